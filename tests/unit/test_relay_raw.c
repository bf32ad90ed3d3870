// SPDX-License-Identifier: Apache-2.0
// Chats as raw prompts: which requests go so, the bodies that go out, and answers and streams that
// come back in the shape of chats, cut anywhere.
#include "serve/relay/impl.h"
#include "test.h"

static const char form[] = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
                           "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
                           "{% if quiet %}<think></think>{% endif %}";

static struct json *parse(const char *text) {
    struct json *v = NULL;
    assert_int_equal(json_parse(&v, text, strlen(text), NULL), 0);
    return v;
}

static void test_fits(void **state) {
    (void)state;
    static const struct {
        const char *body;
        bool fits;
    } cases[] = {
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}]}", true},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":null}", true},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"logprobs\":true}", false},
        {"{\"messages\":[{\"role\":\"user\",\"content\":\"x\"}],\"response_format\":{}}", false},
        {"{\"messages\":[{\"role\":\"assistant\",\"content\":\"x\"}]}", false},
        {"{\"messages\":[{\"content\":\"x\"}]}", false},
        {"{\"messages\":[]}", false},
        {"{\"prompt\":\"x\"}", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct json *v = parse(cases[i].body);
        if (relay_raw_fits(v) != cases[i].fits)
            fail_msg("%s", cases[i].body);
        json_free(v);
    }
}

static void body_is(const struct chat_template *t, const char *body, const char *model,
                    const char *want) {
    struct json *v = parse(body), *kept = parse("[{\"role\":\"user\",\"content\":\"short\"}]");
    struct str out = {0};
    assert_int_equal(relay_raw_body(t, v, kept, model, &out, NULL), 0);
    assert_string_equal(out.data, want);
    str_fini(&out);
    json_free(kept);
    json_free(v);
}

static void test_bodies(void **state) {
    (void)state;
    struct chat_template *t;
    assert_int_equal(chat_template_create(&t, form, sizeof form - 1, NULL, NULL), 0);
    body_is(
        t,
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":\"long\"}],\"top_p\":0.50,"
        "\"max_completion_tokens\":7,\"own\":{\"b\":1,\"a\":1e-7},\"tool_choice\":\"none\"}",
        NULL,
        "{\"model\":\"m\",\"top_p\":0.50,\"max_tokens\":7,\"own\":{\"b\":1,\"a\":1e-7},"
        "\"prompt\":\"<|im_start|>user\\nshort<|im_end|>\\n<|im_start|>assistant\\n\"}");
    body_is(t, "{\"messages\":[],\"chat_template_kwargs\":{\"quiet\":true}}", "own",
            "{\"model\":\"own\",\"prompt\":\"<|im_start|>user\\nshort<|im_end|>\\n"
            "<|im_start|>assistant\\n<think></think>\"}");
    body_is(t, "{\"model\":\"x\"}", "own",
            "{\"model\":\"own\",\"prompt\":\"<|im_start|>user\\nshort<|im_end|>\\n"
            "<|im_start|>assistant\\n\"}");
    chat_template_free(t);
}

static void answer_is(const char *text, const char *want) {
    struct str out = {0};
    assert_true(relay_raw_answer(text, strlen(text), &out));
    assert_string_equal(out.data ? out.data : "", want);
    str_fini(&out);
}

static void test_answers(void **state) {
    (void)state;
    answer_is(
        "{\"id\":\"c-1\",\"object\":\"text_completion\",\"choices\":[{\"text\":\" "
        "a\\n\",\"index\":0,"
        "\"finish_reason\":\"stop\"},{\"text\":\"b\",\"index\":1}],\"usage\":{\"x\":1.50}}",
        "{\"id\":\"c-1\",\"object\":\"chat.completion\",\"choices\":[{\"message\":{\"role\":"
        "\"assistant\",\"content\":\" a\\n\"},\"index\":0,\"finish_reason\":\"stop\"},{\"message\":"
        "{\"role\":\"assistant\",\"content\":\"b\"},\"index\":1}],\"usage\":{\"x\":1.50}}");
    answer_is("{\"error\":{\"message\":\"no\"}}", "");
    answer_is("nonsense", "");
    answer_is("", "");
}

static void test_streams(void **state) {
    (void)state;
    static const char in[] =
        ": alive\n\n"
        "data: {\"object\":\"text_completion\",\"choices\":[{\"text\":\"a\",\"index\":0}]}\n\n"
        "data:{\"choices\":[{\"text\":\"\",\"index\":0,\"finish_reason\":\"length\"}]}\r\n\r\n"
        "data: {\"choices\":[],\"usage\":{}}\n\n"
        "data: {\"error\":{\"message\":\"x\"}}\n\n"
        "data: [DONE]\n\n";
    static const char want[] =
        ": alive\n\n"
        "data: "
        "{\"object\":\"chat.completion.chunk\",\"choices\":[{\"delta\":{\"role\":\"assistant\","
        "\"content\":\"a\"},\"index\":0}]}\n\n"
        "data: "
        "{\"choices\":[{\"delta\":{\"content\":\"\"},\"index\":0,\"finish_reason\":\"length\"}]}"
        "\n\n"
        "data: {\"choices\":[],\"usage\":{}}\n\n"
        "data: {\"error\":{\"message\":\"x\"}}\n\n"
        "data: [DONE]\n\n";
    for (size_t step = 1; step <= sizeof in; step++) {
        struct relay_raw_stream s = {0};
        struct str out = {0};
        for (size_t at = 0; at < sizeof in - 1; at += step) {
            size_t n = sizeof in - 1 - at < step ? sizeof in - 1 - at : step;
            assert_true(relay_raw_push(&s, in + at, n, &out));
        }
        assert_string_equal(out.data, want);
        assert_int_equal(s.reader.line.len, 0);
        relay_raw_fini(&s);
        str_fini(&out);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fits),
        cmocka_unit_test(test_bodies),
        cmocka_unit_test(test_answers),
        cmocka_unit_test(test_streams),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
