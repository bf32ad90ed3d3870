// SPDX-License-Identifier: Apache-2.0
// From tokens to answers: parts of a reply, bytes of chunks and errors, events, counts, log lines,
// names of requests.
#include "test.h"

#include <stdlib.h>

#include "base/rng.h"
#include "formats/gguf/gguf.h"
#include "serve/http/sse.h"
#include "serve/metrics.h"
#include "serve/reply/answer.h"
#include "serve/reply/logprobs.h"
#include "serve/reply/text.h"
#include "serve/request/error.h"
#include "serve/request_log.h"

#define MODEL SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"

static struct tokenizer *tokenizer;

static int start(void **state) {
    (void)state;
    struct gguf *g;
    struct err e = {0};
    int rc = gguf_open(&g, MODEL, &e);
    if (rc)
        return rc;
    rc = tokenizer_create(&tokenizer, g, &e);
    gguf_close(g);
    return rc;
}

static int stop(void **state) {
    (void)state;
    tokenizer_destroy(tokenizer);
    return 0;
}

struct reply_case {
    enum reasoning_family family;
    bool inside;
    const char *text, *stop, *reasoning, *content;
    bool stopped;
};

static void one_reply(const struct reply_case *c) {
    struct token_list l = {0};
    struct stop_set stops = {0};
    struct reply_text r;
    struct err e = {0};
    bool stopped = false;
    assert_int_equal(tokenizer_encode(tokenizer, c->text, strlen(c->text), false, &l, &e), 0);
    if (c->stop)
        assert_int_equal(stop_set_add(&stops, c->stop, strlen(c->stop), &e), 0);
    const struct reply_rules form = {.family = c->family, .inside = c->inside, .stops = &stops};
    assert_int_equal(reply_text_init(&r, tokenizer, &form, &e), 0);
    for (size_t i = 0; i < l.count; i++)
        stopped |= reply_text_push(&r, l.ids[i]);
    reply_text_end(&r, false);
    assert_false(reply_text_failed(&r));
    assert_int_equal(stopped, c->stopped);
    struct str out[2] = {0};
    for (int i = 0; i < r.deltas.n; i++)
        str_append(&out[r.deltas.list[i].part], r.deltas.text.data + r.deltas.list[i].at,
                   r.deltas.list[i].n);
    assert_string_equal(out[REPLY_REASONING].len ? out[REPLY_REASONING].data : "", c->reasoning);
    assert_string_equal(out[REPLY_CONTENT].len ? out[REPLY_CONTENT].data : "", c->content);
    str_fini(&out[0]);
    str_fini(&out[1]);
    assert_int_equal(r.reasoning_tokens > 0, c->reasoning[0] != 0);
    assert_true(c->content[0] == 0 || r.reasoning_tokens < (int64_t)l.count);
    reply_text_fini(&r);
    stop_set_fini(&stops);
    token_list_fini(&l);
}

static void replies_come_apart(void **state) {
    (void)state;
    static const struct reply_case cases[] = {
        {REASONING_NONE, false, "a fox \xF0\x9F\xA6\x8A runs", NULL, "",
         "a fox \xF0\x9F\xA6\x8A runs", false},
        {REASONING_NONE, false, "one two three", "two", "", "one ", true},
        {REASONING_NONE, false, "one two three", "threex", "", "one two three", false},
        {REASONING_THINK, true, "let me see</think>It is so.", NULL, "let me see", "It is so.",
         false},
        {REASONING_THINK, true, "let me see</think>It is so.", "is", "let me see", "It ", true},
        {REASONING_THINK, true, "let me see</think>It is so.", "me", "let ", "", true},
        // A stop string does not reach across the border.
        {REASONING_THINK, true, "ab</think>cd", "bc", "ab", "cd", false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        one_reply(&cases[i]);
}

static void is(struct json_writer *w, const char *want) {
    assert_string_equal(w->out.data, want);
    str_fini(&w->out);
    *w = (struct json_writer){0};
}

static void chunks_have_their_bytes(void **state) {
    (void)state;
    struct json_writer w = {0};
    struct answer_choice c = {.index = 1, .role = true, .content = {"", 0}};
    answer_delta(&w, &c);
    is(&w, "{\"index\":1,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"finish_reason\":"
           "null}");
    c = (struct answer_choice){.reasoning = {"hm", 2}};
    answer_delta(&w, &c);
    is(&w, "{\"index\":0,\"delta\":{\"reasoning_content\":\"hm\"},\"finish_reason\":null}");
    c = (struct answer_choice){.finish = "length"};
    answer_delta(&w, &c);
    is(&w, "{\"index\":0,\"delta\":{},\"finish_reason\":\"length\"}");
    c.role = true;
    answer_message(&w, &c); // content is never missing
    is(&w, "{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":null,"
           "\"finish_reason\":\"length\"}");
    c = (struct answer_choice){.content = {"a\n", 2}};
    answer_completion(&w, &c);
    is(&w, "{\"index\":0,\"text\":\"a\\n\",\"logprobs\":null,\"finish_reason\":null}");
}

static void counts_have_their_names(void **state) {
    (void)state;
    struct json_writer w = {0};
    struct answer_totals t = {.prompt = 10,
                              .cached = 4,
                              .tokens = 21,
                              .reasoning = 3,
                              .drafted = 40,
                              .accepted = 12,
                              .steps = 8,
                              .choices = 1,
                              .decode_ms = 100};
    answer_usage(&w, &t);
    is(&w, "\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":21,\"total_tokens\":31,"
           "\"prompt_tokens_details\":{\"cached_tokens\":4},\"completion_tokens_details\":{"
           "\"reasoning_tokens\":3,\"accepted_prediction_tokens\":12,"
           "\"rejected_prediction_tokens\":28}}");
    assert_true(answer_accept_length(&t) == 2.5 && answer_speed(&t) == 200);
    t = (struct answer_totals){.guesses = {.drafted_for = {5}, .unknown = {2}},
                               .drafts = (const char *const[PRICE_DRAFTS]){"mtp"}};
    assert_true(answer_accept_length(&t) == 0 && answer_speed(&t) == 0);
    answer_timings(&w, &t); // of the draft although nothing was verified
    assert_non_null(strstr(w.out.data, "\"guesses\":{\"mtp\":{\"verified\":[],\"accepted\":[],"
                                       "\"unknown\":2}}"));
    str_fini(&w.out);
    w = (struct json_writer){0};
    t = (struct answer_totals){0};
    answer_timings(&w, &t);
    assert_null(strstr(w.out.data, "guesses"));
    str_fini(&w.out);
    assert_string_equal(answer_finish(END_STOP), "stop");
    assert_string_equal(answer_finish(END_CONTEXT), "length");
}

static void errors_have_their_form(void **state) {
    (void)state;
    struct json_writer w = {0};
    struct api_error x = {0};
    struct err e = {0};
    assert_false(api_refuse(&x, "messages[0].role", "it is '%s'", "a\nb"));
    api_error_write(&w, &x, API_OPENAI, NULL);
    is(&w, "{\"error\":{\"message\":\"it is 'a?b'\",\"type\":\"invalid_request_error\",\"param\":"
           "\"messages[0].role\",\"code\":null}}");
    static const struct {
        int code, status;
        const char *type;
    } cases[] = {{ERR_USAGE, 400, "invalid_request_error"},
                 {ERR_MISMATCH, 400, "invalid_request_error"},
                 {ERR_MEMORY, 503, "server_error"},
                 {ERR_STATE, 503, "server_error"},
                 {ERR_DEVICE, 500, "server_error"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        err_set(&e, cases[i].code, "why");
        api_error_of(&x, &e);
        assert_int_equal(x.status, cases[i].status);
        assert_string_equal(api_error_type(x.status, API_OPENAI), cases[i].type);
        assert_int_equal(x.repeats, cases[i].status == 400);
    }
    assert_string_equal(api_error_type(401, API_OPENAI), "authentication_error");
    assert_string_equal(api_error_type(404, API_OPENAI), "not_found_error");
    assert_string_equal(api_error_type(429, API_OPENAI), "rate_limit_error");
}

static void errors_have_their_form_at_anthropic(void **state) {
    (void)state;
    struct json_writer w = {0};
    struct api_error x = {0};
    assert_int_equal(api_error_format_of("/v1/messages/count_tokens"), API_ANTHROPIC);
    assert_int_equal(api_error_format_of("/v1/models"), API_OPENAI);
    api_refuse(&x, "messages[0].role", "it is bad");
    api_error_write(&w, &x, API_ANTHROPIC, "req_1");
    is(&w, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
           "\"it is bad\"},\"request_id\":\"req_1\"}");
    x.n_prompt = 5000;
    x.n_ctx = 4096;
    api_error_write(&w, &x, API_ANTHROPIC, NULL);
    is(&w, "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":"
           "\"prompt is too long: 5000 tokens > 4096 maximum\"},\"request_id\":null}");
    api_fail(&x, 429, "queue_full", "full");
    assert_int_equal(api_error_status(&x, API_ANTHROPIC), 529);
    assert_int_equal(api_error_status(&x, API_OPENAI), 429);
    static const struct {
        int status;
        const char *type;
    } cases[] = {{400, "invalid_request_error"},
                 {401, "authentication_error"},
                 {403, "permission_error"},
                 {404, "not_found_error"},
                 {413, "request_too_large"},
                 {429, "rate_limit_error"},
                 {500, "api_error"},
                 {503, "overloaded_error"},
                 {504, "timeout_error"},
                 {529, "overloaded_error"}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        assert_string_equal(api_error_type(cases[i].status, API_ANTHROPIC), cases[i].type);
}

static void events_are_lines(void **state) {
    (void)state;
    struct json_writer w = {0};
    struct str out = {0};
    jw_cstr(&w, "a\r\n\xE2\x80\xA8");
    sse_write(&out, NULL, &w);
    jw_int(&w, 1);
    sse_write(&out, "tree", &w);
    sse_done(&out);
    assert_string_equal(out.data, "data: \"a\\r\\n\xE2\x80\xA8\"\n\nevent: tree\ndata: 1\n\n"
                                  "data: [DONE]\n\n");
    str_fini(&out);
    str_fini(&w.out);
}

static void histograms_add_up(void **state) {
    (void)state;
    static const double edges[] = {1, 2, 4};
    struct histogram h = {.edge = edges, .bins = 3};
    struct str out = {0};
    histogram_add(&h, 0.5, 1);
    histogram_add(&h, 2, 3); // an edge belongs to the bin below it
    histogram_add(&h, 100, 1);
    metrics_histogram(&out, "x", "Words.", &h);
    assert_string_equal(out.data, "# HELP x Words.\n# TYPE x histogram\n"
                                  "x_bucket{le=\"1\"} 1\nx_bucket{le=\"2\"} 4\n"
                                  "x_bucket{le=\"4\"} 4\nx_bucket{le=\"+Inf\"} 5\n"
                                  "x_sum 106.5\nx_count 5\n");
    str_clear(&out);
    metrics_value(&out, "n", "a=\"b\"", 1e15 + 1);
    assert_string_equal(out.data, "n{a=\"b\"} 1000000000000001\n");
    str_fini(&out);
}

static void a_line_for_each_request(void **state) {
    (void)state;
    struct str out = {0};
    struct request_record r = {.id = "i",
                               .method = "POST",
                               .path = "/v1/x",
                               .peer = "p",
                               .status = 200,
                               .end = "stop",
                               .totals = {.prompt = 9, .tokens = 5, .steps = 2, .choices = 1}};
    request_log_line(&out, &r, false);
    assert_non_null(strstr(out.data,
                           "Z p POST /v1/x i 200 queue 0.0 ms, prompt 9 tokens (0 cached) in "
                           "0.0 ms, 5 new tokens, accept length 2.00, 0.0 tok/s, end "
                           "stop, 0.0 ms\n"));
    str_clear(&out);
    r = (struct request_record){
        .method = "GET", .path = "/\n%\x80\xe2\x80\xa8", .peer = "p", .status = 400};
    r.error = "bad";
    request_log_line(&out, &r, true);
    struct json *v = NULL;
    struct err e = {0};
    assert_int_equal(json_parse(&v, out.data, out.len - 1, &e), 0);
    assert_string_equal(json_str(json_get(v, "error"), NULL), "bad");
    assert_null(json_get(v, "usage"));
    assert_string_equal(json_str(json_get(v, "path"), NULL), "/%0A%25%80%E2%80%A8");
    json_free(v);
    str_clear(&out);
    request_log_line(&out, &r, false);
    assert_non_null(strstr(out.data, "Z p GET /%0A%25%80%E2%80%A8 - 400, 0.0 ms: bad\n"));
    str_fini(&out);
}

// Words are found in their tokens; words that are in none are looked for with bounded work, which
// counts the bytes that were decoded and searched.
static void words_are_found_in_their_tokens(void **state) {
    (void)state;
    struct token_list l = {0};
    struct token_match m = {0};
    struct str text = {0};
    struct err e = {0};
    bool failed = false;
    int64_t range[2];
    while (text.len < 30000)
        str_puts(&text, "The quick brown fox. ");
    assert_int_equal(tokenizer_encode(tokenizer, text.data, text.len, false, &l, &e), 0);
    int64_t n = (int64_t)l.count, end = 0;
    const struct match_tokens all = {tokenizer, l.ids, n};
    for (size_t at = 0; at + 7 <= 21000; at += 7) {
        assert_true(token_match_find(&m, &all, text.data + at, 7, range, &failed) || m.bytes > 0);
        assert_true(m.at >= end && m.at <= n);
        end = m.at;
    }
    assert_true(end > n / 2 && m.work < 64 * text.len);
    m = (struct token_match){0};
    struct match_tokens first = {tokenizer, l.ids, 1};
    for (; first.n <= n; first.n++)
        assert_false(token_match_find(&m, &first, "zebra", 5, range, &failed));
    if (m.work > (16 << 20) + 4 * text.len)
        fail_msg("%zu bytes of work for %zu of text", m.work, text.len);
    assert_false(failed);
    token_list_fini(&l);
    str_fini(&text);
}

static void names_do_not_repeat(void **state) {
    (void)state;
    char a[RANDOM_ID], b[RANDOM_ID];
    random_id(a, "chatcmpl-");
    random_id(b, "chatcmpl-");
    assert_int_equal(strlen(a), 9 + 24);
    assert_memory_equal(a, "chatcmpl-", 9);
    assert_string_not_equal(a, b);
    assert_true(random_seed() != random_seed());
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replies_come_apart),
        cmocka_unit_test(chunks_have_their_bytes),
        cmocka_unit_test(counts_have_their_names),
        cmocka_unit_test(errors_have_their_form),
        cmocka_unit_test(errors_have_their_form_at_anthropic),
        cmocka_unit_test(events_are_lines),
        cmocka_unit_test(histograms_add_up),
        cmocka_unit_test(a_line_for_each_request),
        cmocka_unit_test(words_are_found_in_their_tokens),
        cmocka_unit_test(names_do_not_repeat),
    };
    return cmocka_run_group_tests(tests, start, stop);
}
