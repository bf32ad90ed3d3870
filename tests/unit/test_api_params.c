// SPDX-License-Identifier: Apache-2.0
// Request bodies into parameters: every field, other servers' spellings, nulls, wrong types and
// ranges with the name of the field, what is refused because it cannot be honoured.
#include "test.h"

#include <stdio.h>

#include "serve/conversation/interfaces.h"
#include "serve/request/body.h"
#include "serve/request/fields.h"

static struct params_limits limits(void) {
    struct params_limits l = {.vocab = 1000, .slots = 4, .how = SPECULATE_LOOKUP};
    sample_params_init(&l.sample);
    l.sample.temperature = 0.7;
    return l;
}

static struct json *parse(const char *text) {
    static const struct json_rules rules = {.big_integers = true};
    struct json *v = NULL;
    struct err e = {0};
    if (json_parse_with(&v, text, strlen(text), &rules, &e))
        fail_msg("%s: %s", text, e.text);
    return v;
}

// Members go after what the endpoint needs.
static struct json *body_of(enum endpoint endpoint, const char *members) {
    char text[4096];
    const char *need = endpoint == ENDPOINT_CHAT
                           ? "\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]"
                       : endpoint == ENDPOINT_RESPONSES ? "\"input\":\"x\""
                                                        : "\"prompt\":\"x\"";
    snprintf(text, sizeof text, "{%s%s%s}", need, members[0] ? "," : "", members);
    return parse(text);
}

static void read_ok(struct params *p, struct json **body, enum endpoint ep, const char *members) {
    struct params_limits l = limits();
    struct api_error x = {0};
    *body = body_of(ep, members);
    if (!body_read(p, *body, ep, &l, &x))
        fail_msg("%s: %s", members, x.text);
    assert_int_equal(x.status, 0);
}

static void fini(struct params *p, struct json *body) {
    params_fini(p);
    json_free(body);
}

// Without a draft: what comes of `auto`.
static void auto_is_lookup_without_a_draft(void **state) {
    (void)state;
    struct params p;
    struct json *body;
    read_ok(&p, &body, ENDPOINT_CHAT, "\"coppice\":{\"speculate\":\"auto\"}");
    assert_int_equal(p.how, SPECULATE_LOOKUP);
    fini(&p, body);
}

static void absent_fields_have_defaults(void **state) {
    (void)state;
    static const char *const bodies[] = {
        "",
        "\"temperature\":null,\"top_p\":null,\"n\":null,\"stop\":null,\"stream\":null,"
        "\"max_tokens\":null,\"max_completion_tokens\":null,\"logit_bias\":null,\"tools\":null,"
        "\"tool_choice\":null,\"response_format\":null,\"reasoning_effort\":null,\"seed\":null,"
        "\"logprobs\":null,\"top_logprobs\":null,\"stream_options\":null,\"model\":null,"
        "\"chat_template_kwargs\":null,\"coppice\":null,\"grammar\":null,\"json_schema\":null",
        "\"user\":\"me\",\"metadata\":{\"a\":\"1\"},\"store\":true,\"service_tier\":\"auto\","
        "\"parallel_tool_calls\":true,\"made_up\":[1,{\"x\":null}],\"tools\":[]"};
    for (size_t i = 0; i < sizeof bodies / sizeof bodies[0]; i++) {
        struct params p;
        struct json *body;
        read_ok(&p, &body, ENDPOINT_CHAT, bodies[i]);
        assert_true(p.sample.temperature == 0.7 && p.sample.top_p == 1);
        assert_int_equal(p.max_tokens, -1);
        assert_int_equal(p.n, 1);
        assert_int_equal(p.top_logprobs, -1);
        assert_int_equal(p.thinking, -1);
        assert_int_equal(p.how, SPECULATE_LOOKUP);
        assert_int_equal(p.stops.n, 0);
        assert_null(p.model);
        assert_false(p.stream || p.logprobs || p.include_usage || p.trees || p.logit_hash);
        assert_int_equal(json_len(p.messages), 1);
        fini(&p, body);
    }
    struct params p;
    struct json *body;
    read_ok(&p, &body, ENDPOINT_COMPLETIONS, "");
    assert_int_equal(p.max_tokens, 16);
    fini(&p, body);
}

static void fields_are_read(void **state) {
    (void)state;
    struct params p;
    struct json *body;
    read_ok(&p, &body, ENDPOINT_CHAT,
            "\"model\":\"m/x\",\"temperature\":0,\"top_p\":0.5,\"top_k\":7,\"min_p\":0.1,"
            "\"presence_penalty\":-1,\"frequency_penalty\":2,\"repetition_penalty\":1.5,"
            "\"rep_window\":9,\"seed\":18446744073709551615,\"stop\":[\"a\",\"\",\"bc\"],"
            "\"stop_sequences\":[\"d\"],\"n\":3,\"logit_bias\":{\"0\":-100,\"999\":1.5},"
            "\"max_tokens\":5,\"max_completion_tokens\":6,\"logprobs\":true,\"top_logprobs\":20,"
            "\"stream\":true,\"stream_options\":{\"include_usage\":true},\"ignore_eos\":true,"
            "\"reasoning_effort\":\"high\",\"tools\":[{\"type\":\"web\"}],"
            "\"tool_choice\":\"none\",\"coppice\":{\"logit_hash\":true,\"token_ids\":true,"
            "\"trees\":true,\"speculate\":\"off\"}");
    assert_string_equal(p.model, "m/x");
    assert_true(p.sample.temperature == 0 && p.sample.top_p == 0.5 && p.sample.min_p == 0.1);
    assert_true(p.sample.presence == -1 && p.sample.frequency == 2 && p.sample.repeat == 1.5);
    assert_int_equal(p.sample.top_k, 7);
    assert_int_equal(p.sample.window, 9);
    assert_true(p.sample.seed == UINT64_MAX);
    assert_int_equal(p.stops.n, 3);
    assert_int_equal(p.n, 3);
    assert_int_equal(p.n_bias, 2);
    assert_int_equal(p.bias[1].id, 999);
    assert_true(p.bias[0].bias == -100 && p.bias[1].bias == 1.5f);
    assert_int_equal(p.max_tokens, 6);
    assert_int_equal(p.top_logprobs, 20);
    assert_true(p.logprobs && p.stream && p.include_usage && p.ignore_eos);
    assert_int_equal(p.thinking, 1);
    assert_string_equal(p.effort, "high");
    assert_int_equal(json_len(p.tools), 1);
    assert_string_equal(json_str(p.tool_choice, NULL), "none");
    assert_true(p.logit_hash && p.token_ids && p.trees);
    assert_int_equal(p.how, SPECULATE_OFF);
    fini(&p, body);
}

static void other_spellings_are_read(void **state) {
    (void)state;
    struct params p;
    struct json *body;
    read_ok(&p, &body, ENDPOINT_COMPLETIONS,
            "\"n_predict\":-1,\"repeat_penalty\":2,\"repeat_last_n\":3,\"top_k\":-1,\"top_p\":0,"
            "\"logprobs\":0,\"best_of\":1,\"suffix\":\"\",\"echo\":true,\"stop\":\"x\","
            "\"response_format\":{\"type\":\"text\"},\"seed\":7.0");
    assert_int_equal(p.max_tokens, -1);
    assert_true(p.sample.repeat == 2 && p.sample.top_p > 0 && p.sample.top_p < 1e-6);
    assert_int_equal(p.sample.window, 3);
    assert_int_equal(p.sample.top_k, 0);
    assert_int_equal(p.top_logprobs, 0);
    assert_int_equal(p.sample.seed, 7);
    assert_true(p.logprobs && p.echo);
    assert_int_equal(p.stops.n, 1);
    fini(&p, body);
    read_ok(&p, &body, ENDPOINT_CHAT,
            "\"max_output_tokens\":0,\"thinking\":{\"type\":\"disabled\"}");
    assert_int_equal(p.max_tokens, 0);
    assert_int_equal(p.thinking, 0);
    fini(&p, body);
    read_ok(&p, &body, ENDPOINT_CHAT, "\"reasoning_effort\":\"none\",\"seed\":-2");
    assert_int_equal(p.thinking, 0);
    assert_true(p.sample.seed == UINT64_MAX - 1);
    fini(&p, body);
}

static void seeds_are_random_where_none_is_given(void **state) {
    (void)state;
    struct params p, q;
    struct json *a, *b;
    read_ok(&p, &a, ENDPOINT_CHAT, "");
    read_ok(&q, &b, ENDPOINT_CHAT, "\"seed\":-1");
    assert_true(p.sample.seed != q.sample.seed && q.sample.seed != UINT64_MAX);
    fini(&p, a);
    fini(&q, b);
}

// What a client's form sends where nothing was written into it.
static void empty_forms_are_none(void **state) {
    (void)state;
    static const char *const cases[] = {
        "\"grammar\":\"\"",
        "\"grammar\":null",
        "\"json_schema\":\"\"",
        "\"guided_json\":\"\",\"guided_regex\":\"\",\"guided_grammar\":\"\",\"guided_choice\":[]",
        "\"guided_json\":null,\"guided_choice\":null,\"structured_outputs\":null",
        "\"structured_outputs\":{\"json\":\"\",\"regex\":\"\",\"choice\":[],\"grammar\":null}",
    };
    for (int endpoint = 0; endpoint < 2; endpoint++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            struct params p;
            struct json *doc;
            read_ok(&p, &doc, endpoint ? ENDPOINT_COMPLETIONS : ENDPOINT_CHAT, cases[i]);
            assert_string_equal(p.format_field, "");
            fini(&p, doc);
        }
    struct params p;
    struct json *doc;
    read_ok(&p, &doc, ENDPOINT_CHAT,
            "\"grammar\":\"\",\"guided_regex\":\"a\",\"guided_json\":\"\"");
    assert_string_equal(p.format_field, "guided_regex"); // and one besides them still counts
    fini(&p, doc);
}

static void wrong_fields_are_named(void **state) {
    (void)state;
    static const struct {
        enum endpoint endpoint;
        const char *members, *param;
    } cases[] = {
        {ENDPOINT_CHAT, "\"temperature\":\"hot\"", "temperature"},
        {ENDPOINT_CHAT, "\"temperature\":-0.1", "temperature"},
        {ENDPOINT_CHAT, "\"temperature\":1e300", "temperature"},
        {ENDPOINT_CHAT, "\"top_p\":1.01", "top_p"},
        {ENDPOINT_CHAT, "\"top_p\":true", "top_p"},
        {ENDPOINT_CHAT, "\"top_k\":1.5", "top_k"},
        {ENDPOINT_CHAT, "\"top_k\":-2", "top_k"},
        {ENDPOINT_CHAT, "\"min_p\":[0]", "min_p"},
        {ENDPOINT_CHAT, "\"frequency_penalty\":101", "frequency_penalty"},
        {ENDPOINT_CHAT, "\"repetition_penalty\":0", "repetition_penalty"},
        {ENDPOINT_CHAT, "\"max_tokens\":-2", "max_tokens"},
        {ENDPOINT_CHAT, "\"max_tokens\":\"5\"", "max_tokens"},
        {ENDPOINT_CHAT, "\"max_tokens\":123456789012345678901234567890", "max_tokens"},
        {ENDPOINT_CHAT, "\"n\":0", "n"},
        {ENDPOINT_CHAT, "\"n\":5", "n"},
        {ENDPOINT_CHAT, "\"seed\":\"a\"", "seed"},
        {ENDPOINT_CHAT, "\"seed\":0.5", "seed"},
        {ENDPOINT_CHAT, "\"seed\":1e300", "seed"},
        {ENDPOINT_CHAT, "\"seed\":18446744073709551616", "seed"},
        {ENDPOINT_CHAT, "\"stop\":5", "stop"},
        {ENDPOINT_CHAT, "\"stop\":[\"a\",5]", "stop"},
        {ENDPOINT_CHAT, "\"stop\":{}", "stop"},
        {ENDPOINT_CHAT, "\"stream\":1", "stream"},
        {ENDPOINT_CHAT, "\"stream_options\":{\"include_usage\":3}", "stream_options.include_usage"},
        {ENDPOINT_CHAT, "\"logit_bias\":{\"x\":1}", "logit_bias"},
        {ENDPOINT_CHAT, "\"logit_bias\":{\"1000\":1}", "logit_bias"},
        {ENDPOINT_CHAT, "\"logit_bias\":{\"01\":1}", "logit_bias"},
        {ENDPOINT_CHAT, "\"logit_bias\":{\"1\":101}", "logit_bias"},
        {ENDPOINT_CHAT, "\"logit_bias\":{\"1\":\"a\"}", "logit_bias"},
        {ENDPOINT_CHAT, "\"logit_bias\":[1]", "logit_bias"},
        {ENDPOINT_CHAT, "\"logprobs\":5", "logprobs"},
        {ENDPOINT_CHAT, "\"logprobs\":true,\"top_logprobs\":21", "top_logprobs"},
        {ENDPOINT_CHAT, "\"top_logprobs\":2", "top_logprobs"},
        {ENDPOINT_COMPLETIONS, "\"logprobs\":true", "logprobs"},
        {ENDPOINT_COMPLETIONS, "\"best_of\":2", "best_of"},
        {ENDPOINT_COMPLETIONS, "\"suffix\":\"x\"", "suffix"},
        {ENDPOINT_CHAT, "\"model\":5", "model"},
        {ENDPOINT_CHAT, "\"model\":\"a\\u0000b\"", "model"},
        {ENDPOINT_CHAT, "\"tools\":{}", "tools"},
        {ENDPOINT_CHAT, "\"tools\":[{\"type\":\"function\"}]", "tools"},
        {ENDPOINT_CHAT,
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\",\"parameters\":\"x\"}}]",
         "tools"},
        {ENDPOINT_CHAT, "\"tools\":[{\"type\":\"function\",\"name\":\"g\",\"parameters\":[1]}]",
         "tools"},
        {ENDPOINT_CHAT, "\"parallel_tool_calls\":1", "parallel_tool_calls"},
        {ENDPOINT_CHAT, "\"tool_choice\":3", "tool_choice"},
        {ENDPOINT_CHAT, "\"functions\":[{}]", "functions"},
        {ENDPOINT_CHAT,
         "\"tools\":[{\"type\":\"function\",\"function\":{\"name\":\"g\"}}],\"functions\":[{"
         "\"name\":\"f\"}]",
         "functions"},
        {ENDPOINT_CHAT, "\"function_call\":\"required\"", "function_call"},
        {ENDPOINT_CHAT, "\"function_call\":{\"name\":\"f\"}", "function_call"},
        {ENDPOINT_CHAT, "\"functions\":[{\"name\":\"f\"}],\"function_call\":{}", "function_call"},
        {ENDPOINT_CHAT, "\"continue_final_message\":1", "continue_final_message"},
        {ENDPOINT_CHAT, "\"continue_final_message\":true,\"add_generation_prompt\":true",
         "continue_final_message"},
        {ENDPOINT_CHAT, "\"response_format\":{\"type\":\"json\"}", "response_format.type"},
        {ENDPOINT_CHAT, "\"response_format\":{\"type\":\"json_schema\"}",
         "response_format.json_schema.schema"},
        {ENDPOINT_CHAT, "\"response_format\":{\"type\":\"json_schema\",\"json_schema\":{}}",
         "response_format.json_schema.schema"},
        {ENDPOINT_CHAT, "\"response_format\":{\"type\":\"json_object\"},\"guided_regex\":\"a\"",
         "guided_regex"},
        {ENDPOINT_CHAT, "\"response_format\":{}", "response_format.type"},
        {ENDPOINT_CHAT, "\"response_format\":\"text\"", "response_format"},
        {ENDPOINT_CHAT, "\"metadata\":{\"a\":1}", "metadata"},
        {ENDPOINT_RESPONSES, "\"metadata\":{\"a\":{}}", "metadata"},
        {ENDPOINT_RESPONSES, "\"prompt_cache_key\":5", "prompt_cache_key"},
        {ENDPOINT_CHAT, "\"user\":{}", "user"},
        {ENDPOINT_CHAT, "\"grammar\":[]", "grammar"},
        {ENDPOINT_CHAT, "\"guided_json\":3", "guided_json"},
        {ENDPOINT_CHAT, "\"guided_choice\":[\"a\",1]", "guided_choice"},
        {ENDPOINT_CHAT, "\"structured_outputs\":{\"json\":{},\"choice\":[\"a\"]}",
         "structured_outputs.choice"},
        {ENDPOINT_CHAT, "\"chat_template_kwargs\":[]", "chat_template_kwargs"},
        {ENDPOINT_CHAT, "\"reasoning_effort\":1", "reasoning_effort"},
        {ENDPOINT_CHAT, "\"thinking\":{\"type\":1}", "thinking.type"},
        {ENDPOINT_CHAT, "\"coppice\":{\"trees\":1}", "coppice.trees"},
        {ENDPOINT_CHAT, "\"coppice\":{\"speculate\":\"oracle\"}", "coppice.speculate"},
        {ENDPOINT_CHAT, "\"coppice\":{\"speculate\":\"tree\"}", "coppice.speculate"},
        {ENDPOINT_CHAT, "\"coppice\":true", "coppice"},
    };
    struct params_limits l = limits();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct params p;
        struct api_error x = {0};
        struct json *body = body_of(cases[i].endpoint, cases[i].members);
        if (body_read(&p, body, cases[i].endpoint, &l, &x))
            fail_msg("%s was taken", cases[i].members);
        assert_int_equal(x.status, 400);
        assert_string_equal(x.param, cases[i].param);
        assert_true(x.text[0] && x.repeats);
        fini(&p, body);
    }
}

// A string of n characters of two bytes.
static void put_long(struct str *s, int n) {
    str_putc(s, '"');
    for (int i = 0; i < n; i++)
        str_puts(s, "\xc3\xa9");
    str_putc(s, '"');
}

// Fields that do nothing here, with what is published of them.
struct label {
    const char *name;
    enum { PAIRS, KEY, VALUE, WHOLE } what; // of metadata; a string by itself
    int max;
};

static void write_label(struct str *s, const struct label *l, int n) {
    str_printf(s, "\"%s\":%s", l->name, l->what == WHOLE ? "" : "{");
    for (int k = 0; l->what == PAIRS && k < n; k++)
        str_printf(s, "%s\"%d\":\"\"", k ? "," : "", k);
    if (l->what == VALUE)
        str_puts(s, "\"a\":");
    if (l->what != PAIRS)
        put_long(s, n);
    str_puts(s, l->what == KEY ? ":\"a\"}" : l->what == WHOLE ? "" : "}");
}

static void check_label(const struct label *label, enum endpoint at, int n, bool taken) {
    struct params_limits l = limits();
    struct params p;
    struct api_error x = {0};
    struct str s = {0};
    write_label(&s, label, n);
    struct json *body = body_of(at, s.data);
    if (body_read(&p, body, at, &l, &x) != taken)
        fail_msg("%s of %d: %s", label->name, n, x.text);
    if (!taken)
        assert_string_equal(x.param, label->name);
    fini(&p, body);
    str_fini(&s);
}

static void labels_are_bounded(void **state) {
    (void)state;
    static const struct label labels[] = {{"metadata", PAIRS, 16},
                                          {"metadata", KEY, 64},
                                          {"metadata", VALUE, 512},
                                          {"safety_identifier", WHOLE, 128},
                                          {"personality", WHOLE, 64}};
    for (size_t i = 0; i < sizeof labels / sizeof labels[0]; i++) {
        const struct label *l = &labels[i];
        check_label(l, ENDPOINT_RESPONSES, l->max, true);
        check_label(l, ENDPOINT_RESPONSES, l->max + 1, false);
        check_label(l, ENDPOINT_CHAT, l->max, true);
        check_label(l, ENDPOINT_CHAT, l->max + 1, !strcmp(l->name, "personality"));
    }
}

static void missing_fields_are_named(void **state) {
    (void)state;
    static const struct {
        enum endpoint endpoint;
        const char *body, *param;
    } cases[] = {
        {ENDPOINT_CHAT, "{}", "messages"},
        {ENDPOINT_CHAT, "{\"messages\":[]}", "messages"},
        {ENDPOINT_CHAT, "[]", ""},
        {ENDPOINT_CHAT, "null", ""},
        {ENDPOINT_CHAT, "\"x\"", ""},
        {ENDPOINT_CHAT, "{\"messages\":3}", "messages"},
        {ENDPOINT_COMPLETIONS, "{}", "prompt"},
        {ENDPOINT_COMPLETIONS, "{\"prompt\":4}", "prompt"},
        {ENDPOINT_TOKENIZE, "{}", "content"},
        {ENDPOINT_TOKENIZE, "{\"content\":4}", "content"},
        {ENDPOINT_DETOKENIZE, "{}", "tokens"},
        {ENDPOINT_DETOKENIZE, "{\"tokens\":4}", "tokens"},
        {ENDPOINT_TEMPLATE, "{}", "messages"},
    };
    struct params_limits l = limits();
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct params p;
        struct api_error x = {0};
        struct json *body = parse(cases[i].body);
        assert_false(body_read(&p, body, cases[i].endpoint, &l, &x));
        assert_int_equal(x.status, 400);
        assert_string_equal(x.param, cases[i].param);
        fini(&p, body);
    }
}

static void too_much_is_refused(void **state) {
    (void)state;
    struct params_limits l = limits();
    struct str text = {0};
    struct params p;
    struct api_error x = {0};
    str_puts(&text, "{\"prompt\":\"x\",\"stop\":[\"\"");
    for (int i = 0; i < 257; i++)
        str_printf(&text, ",\"s%d\"", i);
    str_puts(&text, "]}");
    struct json *body = parse(text.data);
    assert_false(body_read(&p, body, ENDPOINT_COMPLETIONS, &l, &x));
    assert_string_equal(x.param, "stop");
    fini(&p, body);
    str_clear(&text);
    str_puts(&text, "{\"prompt\":\"x\",\"model\":\"");
    for (int i = 0; i < 1025; i++)
        str_putc(&text, 'm');
    str_puts(&text, "\"}");
    body = parse(text.data);
    assert_false(body_read(&p, body, ENDPOINT_COMPLETIONS, &l, &x));
    assert_string_equal(x.param, "model");
    fini(&p, body);
    str_fini(&text);
}

static void conversations_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *messages, *param; // NULL: it is well
    } cases[] = {
        {"[{\"role\":\"user\",\"content\":\"x\"}]", NULL},
        {"[{\"role\":\"developer\",\"content\":[{\"type\":\"text\",\"text\":\"x\"},\"y\"]}]", NULL},
        {"[{\"role\":\"assistant\",\"content\":null,\"tool_calls\":[{\"id\":\"1\",\"function\":"
         "{\"name\":\"f\",\"arguments\":\"{}\"}}]},{\"role\":\"tool\",\"content\":\"r\"}]",
         NULL},
        {"[{\"role\":\"assistant\"}]", NULL},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"refusal\",\"refusal\":\"no\"}]}]", NULL},
        {"[3]", "messages[0]"},
        {"[{\"content\":\"x\"}]", "messages[0].role"},
        {"[{\"role\":\"user\",\"content\":\"x\"},{\"role\":\"boss\",\"content\":\"x\"}]",
         "messages[1].role"},
        {"[{\"role\":4,\"content\":\"x\"}]", "messages[0].role"},
        {"[{\"role\":\"user\"}]", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":{}}]", "messages[0].content"},
        {"[{\"role\":\"user\",\"content\":[4]}]", "messages[0].content[0]"},
        {"[{\"role\":\"user\",\"content\":[\"a\",{\"type\":\"image_url\",\"image_url\":{}}]}]",
         "messages[0].content[1]"},
        {"[{\"role\":\"user\",\"content\":[{\"type\":\"text\"}]}]", "messages[0].content[0]"},
        {"[{\"role\":\"assistant\",\"tool_calls\":{}}]", "messages[0].tool_calls"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{}}]}]",
         "messages[0].tool_calls[0]"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"function\":{\"name\":\"f\",\"arguments\":4"
         "}}]}]",
         "messages[0].tool_calls[0]"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\",\"custom\":{\"name\":\"p\","
         "\"input\":\"free\"}},{\"custom\":{\"name\":\"p\"}}]}]",
         NULL},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"type\":\"custom\",\"custom\":{}}]}]",
         "messages[0].tool_calls[0]"},
        {"[{\"role\":\"assistant\",\"tool_calls\":[{\"custom\":{\"name\":\"p\",\"input\":{}}}]}]",
         "messages[0].tool_calls[0]"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *v = parse(cases[i].messages);
        struct api_error x = {0};
        struct conversation read = {0};
        bool ok = conversation_read_chat(&read, v, &x);
        conversation_fini(&read);
        if (ok != !cases[i].param)
            fail_msg("%s: %s", cases[i].messages, x.text);
        if (!ok)
            assert_string_equal(x.param, cases[i].param);
        json_free(v);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(absent_fields_have_defaults),
        cmocka_unit_test(auto_is_lookup_without_a_draft),
        cmocka_unit_test(fields_are_read),
        cmocka_unit_test(other_spellings_are_read),
        cmocka_unit_test(seeds_are_random_where_none_is_given),
        cmocka_unit_test(empty_forms_are_none),
        cmocka_unit_test(wrong_fields_are_named),
        cmocka_unit_test(labels_are_bounded),
        cmocka_unit_test(missing_fields_are_named),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(conversations_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
