// SPDX-License-Identifier: Apache-2.0
// Requests whose prompts are compressed, over real HTTP, with a scorer that looks for the words of
// the question: what is compressed and what is left alone, what the model reads, what is said of it
// in answers, log and metrics, prompts that fit only so, a scorer that fails.
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server_rig.h"
#include "test.h"
#include "words_scorer.h"

#define CHAT  "/v1/chat/completions"
#define TEXT  "/v1/completions"
#define MODEL SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"

// Turns of more than 1,024 tokens are not kept whole.
enum { CONTEXT = 1024, LINES = 150 };

struct rig {
    struct words_scorer words;
    struct tokenizer *t;
    struct compressor *c;
    struct server_rig r;
};

// A budget of its own: as many guesses as pay may be none.
static void guess(void *arg, const struct session *s, struct request *r) {
    (void)arg;
    (void)s;
    r->auto_budget = false;
    r->tree.budget = 4;
}

static void start(struct rig *g, struct prefill_options p, int64_t context, bool json) {
    *g = (struct rig){.words = words_scorer(), .t = words_tokenizer(MODEL)};
    assert_int_equal(compressor_create(&g->c, &g->words.base, g->t, NULL), 0);
    struct server_options o = {.prefill = p,
                               .compressor = g->c,
                               .defaults = guess,
                               .log_prompts = true,
                               .log = {.json = json}};
    o.engine.session.target.max_ctx = context;
    server_rig_start(&g->r, o);
}

static void stop(struct rig *g) {
    server_rig_stop(&g->r);
    compressor_close(g->c);
    tokenizer_destroy(g->t);
}

static struct prefill_options options(enum prefill_mode mode, int64_t threshold, double keep) {
    struct prefill_options p = prefill_options_default();
    p.mode = mode;
    p.threshold = threshold;
    p.compress.select.budget = SELECT_RATIO;
    p.compress.select.keep = keep;
    p.compress.select.head = p.compress.select.tail = 0;
    return p;
}

// Lines without information, with one that has some in the middle.
static void filler(struct str *out, int lines) {
    for (int i = 0; i < lines; i++)
        str_puts(out, i == lines / 2 ? "The zebra hides a mango under the piano.\\n"
                                     : "The grass is green and the sky is blue.\\n");
}

// A body with these messages around a long user message, and more members.
static char *body(int lines, const char *before, const char *after, const char *more) {
    static struct str s;
    str_clear(&s);
    str_printf(&s,
               "{\"temperature\":0,\"max_tokens\":4,%s\"messages\":[%s{\"role\":\"user\","
               "\"content\":[{\"type\":\"text\",\"text\":\"",
               more, before);
    filler(&s, lines);
    str_puts(&s, "\"},{\"type\":\"text\",\"text\":\"\\nWhere is the mango of the zebra?\"}]}");
    str_printf(&s, "%s]}", after);
    return s.data;
}

static int64_t from(const struct json *v) {
    return server_rig_int(v, "timings.compression.from");
}

static int64_t to(const struct json *v) {
    return server_rig_int(v, "timings.compression.to");
}

static void a_long_prompt_is_compressed(void **state) {
    (void)state;
    struct rig g;
    start(&g, options(PREFILL_AUTO, 300, 0.2), 4096, false);
    struct json *v = server_rig_json(
        &g.r, CHAT, body(LINES, "{\"role\":\"system\",\"content\":\"Be brief.\"},", "", ""), 200);
    assert_true(from(v) > 1200 && to(v) < from(v) / 3);
    assert_int_equal(server_rig_int(v, "usage.prompt_tokens"), to(v));
    assert_null(server_rig_at(v, "timings.compression.reason"));
    assert_true(json_num(server_rig_at(v, "timings.compression.ms"), -1) >= 0);
    assert_non_null(strstr(g.r.log.data, ", compressed from "));
    // What the model read: roles, instructions, the needle and the question.
    const char *read = strstr(g.r.log.data, " prompt \"");
    static const char *const parts[] = {"<|im_start|>system\\nBe brief.", "<|im_start|>user",
                                        "The zebra hides a mango under the piano.",
                                        "Where is the mango of the zebra?<|im_end|>",
                                        "<|im_start|>assistant"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_non_null(read);
        read = strstr(read, parts[i]);
    }
    json_free(v);
    // The same in a stream.
    struct str out = {0};
    struct rig_stream s;
    assert_int_equal(server_rig_ask(&g.r, CHAT, body(LINES, "", "", "\"stream\":true,"), &out),
                     200);
    rig_stream_read(&s, &out);
    assert_true(s.done && to(s.last) < from(s.last) / 3);
    rig_stream_fini(&s);
    assert_int_equal(server_rig_ask(&g.r, "/metrics", NULL, &out), 200);
    assert_non_null(strstr(out.data, "coppice_compression_total{result=\"compressed\"} 2\n"));
    assert_non_null(strstr(out.data, "coppice_compression_total{result=\"left\"} 0\n"));
    assert_null(strstr(out.data, "coppice_compression_tokens_total{at=\"to\"} 0\n"));
    str_fini(&out);
    assert_int_equal(g.words.calls, 2);
    stop(&g);
}

static void left_alone(struct rig *g, const char *text, const char *reason) {
    int calls = g->words.calls;
    struct json *v = server_rig_json(&g->r, CHAT, text, 200);
    assert_string_equal(server_rig_text(v, "timings.compression.reason"), reason);
    assert_int_equal(from(v), to(v));
    assert_int_equal(server_rig_int(v, "usage.prompt_tokens"), to(v));
    assert_int_equal(g->words.calls, calls);
    json_free(v);
}

static void what_is_left_alone(void **state) {
    (void)state;
    struct rig g;
    start(&g, options(PREFILL_AUTO, 300, 0.2), 4096, true);
    left_alone(&g, body(5, "", "", ""), "the prompt is shorter than the threshold");
    left_alone(&g,
               body(LINES, "",
                    ",{\"role\":\"assistant\",\"content\":\"Under it.\"},"
                    "{\"role\":\"user\",\"content\":\"Sure?\"}",
                    ""),
               "the conversation continues");
    struct str out = {0};
    server_rig_ask(&g.r, "/metrics", NULL, &out);
    assert_non_null(strstr(out.data, "coppice_compression_total{result=\"left\"} 2\n"));
    str_fini(&out);
    assert_non_null(strstr(g.r.log.data, "\"compression\":{\"from\":"));
    stop(&g);
    start(&g, options(PREFILL_OFF, 300, 0.2), 4096, false);
    struct json *v = server_rig_json(&g.r, CHAT, body(LINES, "", "", ""), 200);
    assert_null(server_rig_at(v, "timings.compression"));
    assert_null(strstr(g.r.log.data, "compress"));
    json_free(v);
    stop(&g);
}

static void a_prompt_that_fits_only_compressed(void **state) {
    (void)state;
    struct rig g;
    start(&g, options(PREFILL_AUTO, 32000, 0.2), CONTEXT, false);
    struct json *v = server_rig_json(&g.r, CHAT, body(200, "", "", ""), 200);
    assert_true(from(v) > CONTEXT && to(v) < CONTEXT);
    json_free(v);
    v = server_rig_json(&g.r, CHAT, body(2000, "", "", ""), 400); // a fifth is too much as well
    assert_string_equal(server_rig_text(v, "error.code"), "context_length_exceeded");
    json_free(v);
    g.words.fails = true;
    v = server_rig_json(&g.r, CHAT, body(200, "", "", ""), 500);
    assert_non_null(strstr(server_rig_text(v, "error.message"), "the scorer's device has failed"));
    json_free(v);
    stop(&g);
}

static void a_text_is_compressed_for_its_end(void **state) {
    (void)state;
    struct rig g;
    struct str text = {0};
    start(&g, options(PREFILL_ALWAYS, 0, 0.2), 4096, false);
    str_puts(&text, "{\"temperature\":0,\"max_tokens\":4,\"prompt\":\"");
    filler(&text, LINES);
    str_puts(&text, "\\nWhere is the mango of the zebra?\"}");
    struct json *v = server_rig_json(&g.r, TEXT, text.data, 200);
    assert_true(to(v) < from(v) / 2);
    assert_int_equal(server_rig_int(v, "usage.prompt_tokens"), to(v));
    assert_non_null(strstr(g.r.log.data, "The zebra hides a mango"));
    json_free(v);
    v = server_rig_json(&g.r, TEXT, "{\"max_tokens\":1,\"prompt\":[[5,6,7],[8]]}", 200);
    assert_string_equal(server_rig_text(v, "timings.compression.reason"),
                        "the prompt is not one text");
    json_free(v);
    v = server_rig_json(&g.r, TEXT, "{\"max_tokens\":1,\"prompt\":\"one two\"}", 200);
    assert_string_equal(server_rig_text(v, "timings.compression.reason"),
                        "the prompt has fewer than nine tokens");
    json_free(v);
    str_fini(&text);
    stop(&g);
}

static void by_mode_length_and_tools(void **state) {
    (void)state;
    struct prefill_options o = prefill_options_default();
    struct prefill_prompt p = {.tokens = 40000};
    assert_string_equal(prefill_skip(&o, &p), "compression is off");
    o.mode = PREFILL_AUTO;
    assert_null(prefill_skip(&o, &p));
    p.tokens = 31999;
    assert_non_null(prefill_skip(&o, &p));
    p.room = 31999;
    assert_non_null(prefill_skip(&o, &p));
    p.room = 31998;
    assert_null(prefill_skip(&o, &p));
    p.tools = true;
    assert_string_equal(prefill_skip(&o, &p), "tools are present");
    o.mode = PREFILL_ALWAYS;
    assert_non_null(prefill_skip(&o, &p));
    p = (struct prefill_prompt){.tokens = 1};
    assert_null(prefill_skip(&o, &p));
}

// The ratio that a long prompt of a session was compressed by; -1: none is reported.
static double ratio_of(struct rig *g, const char *session) {
    char more[128];
    snprintf(more, sizeof more, "%s\"max_completion_tokens\":24,", session);
    struct json *v = server_rig_json(&g->r, CHAT, body(LINES, "", "", more), 200);
    double ratio = json_num(server_rig_at(v, "timings.compression.keep_ratio"), -1);
    assert_null(server_rig_at(v, "timings.compression.reason"));
    assert_int_equal(json_bool(server_rig_at(v, "timings.compression.adapted"), false), ratio > 0);
    assert_true(server_rig_int(v, "timings.draft_n") > 0);
    assert_true(to(v) < from(v) / 3);
    json_free(v);
    return ratio;
}

static void ratios_follow_a_session(void **state) {
    (void)state;
    struct rig g;
    struct prefill_options p = options(PREFILL_AUTO, 300, 0.2);
    p.adapt = true;
    start(&g, p, 4096, false);
    assert_true(ratio_of(&g, "\"session_id\":\"a\",") == 0.10);
    double next = ratio_of(&g, "\"session_id\":\"a\",");
    assert_true(next != 0.10 && next > 0.085 && next < 0.115);
    assert_true(ratio_of(&g, "\"session_id\":\"b\",") == 0.10);
    assert_true(ratio_of(&g, "\"session_id\":\"\",") < 0);
    assert_true(ratio_of(&g, "") < 0);
    struct json *v = server_rig_json(&g.r, CHAT, body(1, "", "", "\"session_id\":7,"), 400);
    assert_string_equal(server_rig_text(v, "error.param"), "session_id");
    json_free(v);
    stop(&g);
    p.adapt = false;
    start(&g, p, 4096, false);
    assert_true(ratio_of(&g, "\"session_id\":\"a\",") < 0);
    stop(&g);
}

static void a_client_that_leaves(void **state) {
    (void)state;
    struct rig g;
    start(&g, options(PREFILL_ALWAYS, 0, 0.2), 4096, false);
    for (int i = 0; i < 20; i++) {
        struct str text = {0};
        char *b = body(LINES, "", "", "");
        int fd = server_rig_connect(&g.r);
        str_printf(&text,
                   "POST " CHAT " HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                   strlen(b), b);
        peer_send_bytes(fd, text.data, text.len);
        shutdown(fd, SHUT_RDWR);
        close(fd);
        str_fini(&text);
    }
    struct json *v = server_rig_json(&g.r, CHAT, body(LINES, "", "", ""), 200);
    json_free(v);
    stop(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_long_prompt_is_compressed),
        cmocka_unit_test(what_is_left_alone),
        cmocka_unit_test(a_prompt_that_fits_only_compressed),
        cmocka_unit_test(a_text_is_compressed_for_its_end),
        cmocka_unit_test(by_mode_length_and_tools),
        cmocka_unit_test(ratios_follow_a_session),
        cmocka_unit_test(a_client_that_leaves),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
