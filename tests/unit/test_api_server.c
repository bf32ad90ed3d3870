// SPDX-License-Identifier: Apache-2.0
// The server over real HTTP with the bundled pair: streamed and whole answers are the same text
// from the same logits, stop strings, choices, log-probabilities, errors, clients that vanish or do
// not read, the end of the server.
#include "test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "server_rig.h"

static struct server_rig rig;

static int start(void **state) {
    (void)state;
    server_rig_start(&rig, (struct server_options){.name = "tiny"});
    return 0;
}

static int stop(void **state) {
    (void)state;
    server_rig_stop(&rig);
    return 0;
}

#define CHAT  "/v1/chat/completions"
#define TEXT  "/v1/completions"
#define EXTRA "\"coppice\":{\"logit_hash\":true,\"token_ids\":true}"

static void streamed(const char *path, const char *members, struct rig_stream *s) {
    struct str body = {0}, out = {0};
    str_printf(&body, "{\"stream\":true,%s}", members);
    assert_int_equal(server_rig_ask(&rig, path, body.data, &out), 200);
    rig_stream_read(s, &out);
    str_fini(&body);
    str_fini(&out);
}

static struct json *whole(const char *path, const char *members) {
    struct str body = {0};
    str_printf(&body, "{%s}", members);
    struct json *v = server_rig_json(&rig, path, body.data, 200);
    str_fini(&body);
    return v;
}

static void same_json(const struct json *a, const struct json *b) {
    struct json_writer v = {0}, w = {0};
    jw_value(&v, a);
    jw_value(&w, b);
    assert_string_equal(v.out.data, w.out.data);
    str_fini(&v.out);
    str_fini(&w.out);
}

static void streams_and_whole_answers_agree(void **state) {
    (void)state;
    static const char *const requests[] = {
        "\"messages\":[{\"role\":\"user\",\"content\":\"Tell me of a fox.\"}],\"max_tokens\":60,"
        "\"temperature\":0," EXTRA,
        "\"messages\":[{\"role\":\"system\",\"content\":\"Be brief.\"},{\"role\":\"user\","
        "\"content\":\"Why?\"}],\"seed\":5,\"temperature\":1.2,\"top_k\":50,\"max_tokens\":"
        "50," EXTRA,
        "\"messages\":[{\"role\":\"user\",\"content\":\"\xC3\xBC\xF0\x9F\xA6\x8A\"}],\"seed\":9,"
        "\"min_p\":0.05,\"repetition_penalty\":1.2,\"max_tokens\":40,\"ignore_eos\":true," EXTRA,
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        struct rig_stream s;
        struct json *v = whole(CHAT, requests[i]);
        streamed(CHAT, requests[i], &s);
        assert_true(s.role && s.done && s.chunks > 2 && !s.error && !s.usage);
        assert_string_equal(s.text.data, server_rig_text(v, "choices.0.message.content"));
        assert_string_equal(s.finish, server_rig_text(v, "choices.0.finish_reason"));
        same_json(server_rig_at(v, "coppice"), server_rig_at(s.last, "coppice"));
        assert_int_equal(server_rig_int(v, "usage.completion_tokens"),
                         json_len(server_rig_at(v, "coppice.token_ids.0")));
        rig_stream_fini(&s);
        json_free(v);
    }
}

static void guessing_changes_nothing(void **state) {
    (void)state;
    static const char *const ways[] = {"off", "lookup", "chain", "tree", "auto"};
    struct json *first = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char text[512];
        snprintf(text, sizeof text,
                 "\"prompt\":\"def add(a, b):\",\"seed\":3,\"max_tokens\":80,\"coppice\":{"
                 "\"logit_hash\":true,\"token_ids\":true,\"speculate\":\"%s\"}",
                 ways[i]);
        struct json *v = whole(TEXT, text);
        assert_true(i > 0 || server_rig_int(v, "timings.draft_n") == 0);
        assert_string_equal(server_rig_text(v, "timings.speculate"),
                            strcmp(ways[i], "auto") ? ways[i] : "tree");
        assert_int_equal(
            server_rig_int(v, "timings.draft_n"),
            server_rig_int(v, "usage.completion_tokens_details.accepted_prediction_tokens") +
                server_rig_int(v, "usage.completion_tokens_details.rejected_prediction_tokens"));
        if (first)
            same_json(server_rig_at(first, "coppice"), server_rig_at(v, "coppice"));
        if (first)
            json_free(v);
        else
            first = v;
    }
    json_free(first);
}

// Stop strings out of the text itself, at random places, so that they begin and end inside tokens.
static void stop_strings_cut_exactly(void **state) {
    (void)state;
    static const char base[] = "\"prompt\":\"Once upon a time\",\"seed\":11,\"max_tokens\":120,"
                               "\"ignore_eos\":true";
    struct rng r = {3};
    struct json *all = whole(TEXT, base);
    const char *text = server_rig_text(all, "choices.0.text");
    size_t n = strlen(text);
    assert_true(n > 100);
    for (int i = 0; i < 12; i++) {
        struct str members = {0};
        struct json_writer w = {0};
        struct rig_stream s;
        size_t len = 1 + rng_below(&r, 12), at = rng_below(&r, (uint32_t)(n - len));
        while (((unsigned char)text[at] & 0xC0) == 0x80) // whole characters
            at--;
        while (((unsigned char)text[at + len] & 0xC0) == 0x80)
            len++;
        char *word = strndup(text + at, len);
        jw_cstr(&w, word);
        str_printf(&members, "%s,\"stop\":[\"\\u0001\",%s],%s", base, w.out.data, EXTRA);
        struct json *v = whole(TEXT, members.data);
        const char *cut = server_rig_text(v, "choices.0.text");
        size_t want = (size_t)(strstr(text, word) - text);
        assert_int_equal(strlen(cut), want);
        assert_memory_equal(cut, text, want);
        assert_string_equal(server_rig_text(v, "choices.0.finish_reason"), "stop");
        streamed(TEXT, members.data, &s);
        assert_string_equal(s.text.data ? s.text.data : "", cut);
        same_json(server_rig_at(v, "coppice"), server_rig_at(s.last, "coppice"));
        // The last token is the one that completes the string.
        struct str ids = {0};
        const struct json *list = server_rig_at(v, "coppice.token_ids.0");
        str_puts(&ids, "{\"tokens\":[");
        for (size_t t = 0; t + 1 < json_len(list); t++)
            str_printf(&ids, "%s%d", t ? "," : "", (int)json_int(json_at(list, t), 0));
        str_puts(&ids, "]}");
        struct json *back = server_rig_json(&rig, "/v1/detokenize", ids.data, 200);
        assert_null(strstr(server_rig_text(back, "content"), word));
        json_free(back);
        json_free(v);
        rig_stream_fini(&s);
        str_fini(&ids);
        str_fini(&members);
        str_fini(&w.out);
        free(word);
    }
    json_free(all);
}

static void choices_are_those_of_each_prompt(void **state) {
    (void)state;
    static const char both[] = "\"prompt\":[\"A fox\",[39,417,312]],\"n\":2,\"seed\":4,"
                               "\"max_tokens\":12,\"ignore_eos\":true";
    struct json *v = whole(TEXT, both);
    struct json *one = whole(TEXT, "\"prompt\":[[39,417,312]],\"n\":1,\"seed\":4,\"max_tokens\":12,"
                                   "\"ignore_eos\":true");
    assert_int_equal(json_len(server_rig_at(v, "choices")), 4);
    for (int i = 0; i < 4; i++) {
        char place[32];
        snprintf(place, sizeof place, "choices.%d.index", i);
        assert_int_equal(server_rig_int(v, place), i);
    }
    assert_string_equal(server_rig_text(v, "choices.2.text"),
                        server_rig_text(one, "choices.0.text"));
    assert_string_not_equal(server_rig_text(v, "choices.2.text"),
                            server_rig_text(v, "choices.3.text"));
    assert_int_equal(server_rig_int(v, "usage.completion_tokens"), 48);
    json_free(v);
    json_free(one);
}

static void log_probabilities_have_the_form(void **state) {
    (void)state;
    struct json *v = whole(CHAT, "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                                 "\"temperature\":0,\"max_tokens\":9,\"logprobs\":true,"
                                 "\"top_logprobs\":3,\"ignore_eos\":true");
    const struct json *list = server_rig_at(v, "choices.0.logprobs.content");
    struct str text = {0};
    assert_int_equal(json_len(list), 9);
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *t = json_at(list, i);
        const struct json *bytes = json_get(t, "bytes");
        assert_int_equal(json_len(json_get(t, "top_logprobs")), 3);
        assert_true(json_num(json_get(t, "logprob"), 1) <= 0);
        assert_string_equal(server_rig_text(t, "token"),
                            server_rig_text(t, "top_logprobs.0.token"));
        for (size_t b = 0; b < json_len(bytes); b++)
            str_putc(&text, (char)json_int(json_at(bytes, b), 0));
    }
    assert_string_equal(text.data, server_rig_text(v, "choices.0.message.content"));
    json_free(v);
    str_clear(&text);
    v = whole(TEXT, "\"prompt\":\"A small fox\",\"max_tokens\":0,\"echo\":true,\"logprobs\":1");
    assert_string_equal(server_rig_text(v, "choices.0.text"), "A small fox");
    size_t n = json_len(server_rig_at(v, "choices.0.logprobs.tokens"));
    assert_int_equal(n, server_rig_int(v, "usage.prompt_tokens"));
    assert_int_equal(json_len(server_rig_at(v, "choices.0.logprobs.token_logprobs")), n);
    assert_null(server_rig_at(v, "choices.0.logprobs.token_logprobs.0"));
    assert_true(json_num(server_rig_at(v, "choices.0.logprobs.token_logprobs.1"), 1) < 0);
    json_free(v);
    str_fini(&text);
}

static void chances_of_a_completion_name_the_token_and_its_character(void **state) {
    (void)state;
    struct json *v = whole(TEXT, "\"prompt\":\"\u00e9\u00e9 fox\",\"max_tokens\":1,\"echo\":true,"
                                 "\"logprobs\":1,\"temperature\":0,\"logit_bias\":{\"300\":100}");
    const struct json *l = server_rig_at(v, "choices.0.logprobs");
    const struct json *tokens = json_get(l, "tokens"), *top = json_get(l, "top_logprobs");
    size_t last = json_len(tokens) - 1, n;
    assert_int_equal(json_int(json_at(json_get(l, "text_offset"), last), -1), 6);
    for (size_t i = 1; i <= last; i++) {
        const char *name = json_str(json_at(tokens, i), &n);
        const struct json *own = json_get(json_at(top, i), name);
        assert_non_null(own);
        assert_true(json_num(own, 1) == json_num(json_at(json_get(l, "token_logprobs"), i), 2));
    }
    assert_int_equal(json_len(json_at(top, last)), 2);
    json_free(v);
}

static void usage_is_sent_when_requested(void **state) {
    (void)state;
    struct rig_stream s;
    streamed(CHAT,
             "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":5,"
             "\"ignore_eos\":true,\"stream_options\":{\"include_usage\":true},\"model\":\"x/y\"",
             &s);
    assert_non_null(s.usage);
    assert_int_equal(server_rig_int(s.usage, "usage.completion_tokens"), 5);
    assert_string_equal(server_rig_text(s.usage, "model"), "x/y");
    assert_string_equal(s.finish, "length");
    assert_true(server_rig_at(s.last, "timings.queue_ms") != NULL);
    rig_stream_fini(&s);
}

static void errors_have_a_sentence(void **state) {
    (void)state;
    static const struct {
        const char *path, *body;
        int status;
        const char *type, *param, *code; // NULL: null
    } cases[] = {
        {CHAT, "{", 400, "invalid_request_error", NULL, NULL},
        {CHAT, "", 400, "invalid_request_error", NULL, NULL},
        {CHAT, "{\"messages\":[],\"messages\":[]}", 400, "invalid_request_error", NULL, NULL},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"\xFF\"}]}", 400,
         "invalid_request_error", NULL, NULL},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"temperature\":NaN}", 400,
         "invalid_request_error", NULL, NULL},
        {CHAT, "{\"messages\":[{\"role\":\"king\",\"content\":\"a\"}]}", 400,
         "invalid_request_error", "messages[0].role", NULL},
        {CHAT, "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"n\":9}", 400,
         "invalid_request_error", "n", NULL},
        {CHAT,
         "{\"messages\":[{\"role\":\"user\",\"content\":\"a\"}],\"tools\":[{\"type\":\"function\"}]"
         "}",
         400, "invalid_request_error", "tools", NULL},
        {TEXT, "{\"prompt\":[]}", 400, "invalid_request_error", "prompt", NULL},
        {TEXT, "{\"prompt\":\"\"}", 400, "invalid_request_error", "prompt", NULL},
        {TEXT, "{\"prompt\":[1,\"a\"]}", 400, "invalid_request_error", "prompt", NULL},
        {TEXT, "{\"prompt\":[\"a\",1]}", 400, "invalid_request_error", "prompt", NULL},
        {TEXT, "{\"prompt\":[4096]}", 400, "invalid_request_error", "prompt", NULL},
        {TEXT, "{\"prompt\":[-1]}", 400, "invalid_request_error", "prompt", NULL},
        {"/v1/detokenize", "{\"tokens\":[4096]}", 400, "invalid_request_error", "tokens", NULL},
        {"/v1/models/other", NULL, 404, "not_found_error", NULL, "model_not_found"},
        {"/v1/nothing", NULL, 404, "not_found_error", NULL, NULL},
        {"/v1/streams/x/trees", NULL, 404, "not_found_error", NULL, NULL},
        {CHAT, NULL, 405, "invalid_request_error", NULL, NULL},
        {"/health", "{}", 405, "invalid_request_error", NULL, NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct json *v = server_rig_json(&rig, cases[i].path, cases[i].body, cases[i].status);
        assert_true(strlen(server_rig_text(v, "error.message")) > 10);
        assert_string_equal(server_rig_text(v, "error.type"), cases[i].type);
        const char *param = json_str(server_rig_at(v, "error.param"), NULL);
        const char *code = json_str(server_rig_at(v, "error.code"), NULL);
        assert_string_equal(param ? param : "-", cases[i].param ? cases[i].param : "-");
        assert_string_equal(code ? code : "-", cases[i].code ? cases[i].code : "-");
        json_free(v);
    }
}

static void a_long_prompt_is_refused_with_its_length(void **state) {
    (void)state;
    struct str body = {0};
    str_puts(&body, "{\"prompt\":[1");
    for (int i = 1; i < 4096; i++)
        str_puts(&body, ",1");
    str_puts(&body, "]}");
    struct json *v = server_rig_json(&rig, TEXT, body.data, 400);
    assert_string_equal(server_rig_text(v, "error.code"), "context_length_exceeded");
    assert_int_equal(server_rig_int(v, "error.n_prompt_tokens"), 4096);
    assert_int_equal(server_rig_int(v, "error.n_ctx"), 4096);
    json_free(v);
    str_fini(&body);
}

static void plain_paths_answer(void **state) {
    (void)state;
    struct str out = {0};
    struct json *v = server_rig_json(&rig, "/v1/models", NULL, 200);
    assert_string_equal(server_rig_text(v, "data.0.id"), "tiny");
    assert_int_equal(server_rig_int(v, "data.0.max_model_len"), 4096);
    assert_string_equal(server_rig_text(v, "data.0.type"), "model");
    assert_string_equal(server_rig_text(v, "first_id"), "tiny");
    assert_null(server_rig_at(v, "models"));
    json_free(v);
    v = server_rig_json(&rig, "/v1/models?client_version=0.169.0", NULL, 200);
    assert_string_equal(server_rig_text(v, "models.0.slug"), "tiny");
    assert_int_equal(server_rig_int(v, "models.0.context_window"), 4096);
    assert_string_equal(server_rig_text(v, "models.0.supported_reasoning_levels.0.effort"), "none");
    json_free(v);
    v = server_rig_json(&rig, "/v1/models/tiny", NULL, 200);
    assert_string_equal(server_rig_text(v, "object"), "model");
    json_free(v);
    v = server_rig_json(&rig, "/api/v0/models", NULL, 200);
    assert_string_equal(server_rig_text(v, "data.0.state"), "loaded");
    json_free(v);
    v = server_rig_json(&rig, "/v1/tokenize", "{\"content\":\"a fox \xF0\x9F\xA6\x8A\"}", 200);
    struct json_writer w = {0};
    jw_value(&w, v);
    struct json *back = server_rig_json(&rig, "/v1/detokenize", w.out.data, 200);
    assert_string_equal(server_rig_text(back, "content"), "a fox \xF0\x9F\xA6\x8A");
    json_free(back);
    json_free(v);
    str_fini(&w.out);
    v = server_rig_json(&rig, "/apply-template",
                        "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}", 200);
    assert_non_null(strstr(server_rig_text(v, "prompt"), "<|im_start|>user\nHi<|im_end|>\n"));
    json_free(v);
    json_free(server_rig_json(&rig, "/props", NULL, 200));
    v = server_rig_json(&rig, "/slots", NULL, 200);
    assert_int_equal(json_len(v), 8);
    json_free(v);
    assert_int_equal(server_rig_ask(&rig, "/metrics", NULL, &out), 200);
    assert_non_null(strstr(out.data, "# TYPE coppice_queue_seconds histogram\n"));
    assert_int_equal(server_rig_ask(&rig, "/", NULL, &out), 200);
    assert_non_null(strstr(out.data, "<html"));
    str_fini(&out);
}

static void user_text_never_becomes_control_tokens(void **state) {
    (void)state;
    static const char *const words[] = {"x", "<|im_end|>"};
    int64_t tokens[2];
    for (int i = 0; i < 2; i++) {
        char members[128];
        snprintf(members, sizeof members,
                 "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}],\"max_tokens\":0",
                 words[i]);
        struct json *v = whole(CHAT, members);
        tokens[i] = server_rig_int(v, "usage.prompt_tokens");
        json_free(v);
    }
    assert_true(tokens[1] > tokens[0] + 2);
}

static void a_client_that_goes_ends_its_request(void **state) {
    (void)state;
    static const char *const requests[] = {
        "\"prompt\":\"x\",\"stream\":true,\"max_tokens\":4000,\"ignore_eos\":true,"
        "\"coppice\":{\"speculate\":\"off\"}",
        "\"prompt\":\"x\",\"max_tokens\":4000,\"ignore_eos\":true,\"n\":3,"
        "\"coppice\":{\"speculate\":\"off\"}",
    };
    for (size_t i = 0; i < sizeof requests / sizeof requests[0]; i++) {
        int64_t before = engine_stats(server_engine(rig.v)).cancelled;
        server_rig_hold(&rig, 3);
        int fd = server_rig_open(&rig, TEXT, requests[i], 0);
        server_rig_held(&rig);
        close(fd);
        WAIT_UNTIL(server_rig_metric(&rig, "coppice_http_connections") == 1); // its own
        server_rig_go(&rig);
        server_rig_idle(&rig);
        assert_true(engine_stats(server_engine(rig.v)).cancelled > before);
    }
}

static void an_idle_client_loses_nothing(void **state) {
    (void)state;
    // A long name makes events that are more than the buffers on the way hold.
    char base[1200];
    snprintf(base, sizeof base,
             "\"prompt\":\"x\",\"max_tokens\":600,\"ignore_eos\":true,\"seed\":2,"
             "\"coppice\":{\"speculate\":\"off\"},\"model\":\"%01000d\"",
             0);
    struct str members = {0}, head = {0}, body = {0};
    struct rig_stream s;
    struct json *v = whole(TEXT, base);
    str_printf(&members, "\"stream\":true,%s", base);
    server_rig_hold(&rig, 1);
    int fd = server_rig_open(&rig, TEXT, members.data, 65536);
    server_rig_held(&rig);
    server_rig_go(&rig);
    server_rig_idle(&rig); // it does not wait for its reader
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    close(fd);
    rig_stream_read(&s, &body);
    assert_true(s.done);
    assert_string_equal(s.text.data, server_rig_text(v, "choices.0.text"));
    rig_stream_fini(&s);
    json_free(v);
    str_fini(&members);
    str_fini(&head);
    str_fini(&body);
}

static void trees_are_shown_to_their_end(void **state) {
    (void)state;
    struct rig_stream s;
    struct str out = {0};
    char path[128];
    streamed(CHAT,
             "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"max_tokens\":40,"
             "\"temperature\":0,\"ignore_eos\":true,\"coppice\":{\"trees\":true}",
             &s);
    snprintf(path, sizeof path, "/v1/streams/%s/trees", server_rig_text(s.last, "id"));
    int fd = server_rig_connect(&rig); // a HEAD takes no other request's place
    struct str head = {0};
    str_printf(&head, "HEAD %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n", path);
    peer_send(fd, head.data);
    peer_read_all(fd, &out, 5000);
    close(fd);
    assert_non_null(strstr(out.data, "HTTP/1.1 200 "));
    str_fini(&head);
    assert_int_equal(server_rig_ask(&rig, path, NULL, &out), 200);
    int64_t drafted = 0, accepted = 0, steps = 0;
    struct json *v = NULL;
    struct err e = {0};
    for (const char *at = out.data; *at; at = strstr(at, "\n\n") + 2) {
        json_free(v);
        v = NULL;
        assert_int_equal(json_parse(&v, at + 6, strcspn(at + 6, "\n"), &e), 0);
        if (strcmp(server_rig_text(v, "type"), "tree") != 0)
            continue;
        assert_int_equal(server_rig_int(v, "step"), steps++);
        drafted += (int64_t)json_len(json_get(v, "id")) - 1;
        accepted += (int64_t)json_len(json_get(v, "path")) - 1;
        assert_int_equal(json_len(json_get(v, "token")), json_len(json_get(v, "parent")));
    }
    assert_string_equal(server_rig_text(v, "type"), "end");
    assert_int_equal(drafted, server_rig_int(s.last, "timings.draft_n"));
    assert_int_equal(accepted, server_rig_int(s.last, "timings.draft_n_accepted"));
    assert_int_equal(steps, server_rig_int(s.last, "timings.steps"));
    assert_int_equal(server_rig_ask(&rig, path, NULL, NULL), 404); // they have been seen
    json_free(v);
    str_fini(&out);
    rig_stream_fini(&s);
}

static void the_log_has_no_prompts(void **state) {
    (void)state;
    json_free(whole(TEXT, "\"prompt\":\"a secret word\",\"max_tokens\":1"));
    server_rig_logged(&rig, "end length");
    pthread_mutex_lock(&rig.lock);
    bool counted = strstr(rig.log.data, "/v1/completions cmpl-") != NULL;
    bool secret = strstr(rig.log.data, "secret") != NULL;
    pthread_mutex_unlock(&rig.lock);
    assert_true(counted);
    assert_false(secret);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_and_whole_answers_agree),
        cmocka_unit_test(guessing_changes_nothing),
        cmocka_unit_test(stop_strings_cut_exactly),
        cmocka_unit_test(choices_are_those_of_each_prompt),
        cmocka_unit_test(log_probabilities_have_the_form),
        cmocka_unit_test(chances_of_a_completion_name_the_token_and_its_character),
        cmocka_unit_test(usage_is_sent_when_requested),
        cmocka_unit_test(errors_have_a_sentence),
        cmocka_unit_test(a_long_prompt_is_refused_with_its_length),
        cmocka_unit_test(plain_paths_answer),
        cmocka_unit_test(user_text_never_becomes_control_tokens),
        cmocka_unit_test(a_client_that_goes_ends_its_request),
        cmocka_unit_test(an_idle_client_loses_nothing),
        cmocka_unit_test(trees_are_shown_to_their_end),
        cmocka_unit_test(the_log_has_no_prompts),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
