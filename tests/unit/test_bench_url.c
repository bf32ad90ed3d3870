// SPDX-License-Identifier: Apache-2.0
// What `bench --url` makes of bytes: addresses, responses however they are cut, answers,
// percentiles, goodput and errors by kind.
#include "test.h"

#include <stdio.h>

#include "cli/bench/url/client.h"

static void test_target(void **state) {
    (void)state;
    static const struct {
        const char *url, *host, *port, *base, *authority;
    } good[] = {
        {"http://localhost", "localhost", "80", "/v1", "localhost"},
        {"http://127.0.0.1:8080/", "127.0.0.1", "8080", "/v1", "127.0.0.1:8080"},
        {"http://a.b:1/v1/chat/completions", "a.b", "1", "/v1", "a.b:1"},
        {"http://a.b:1/v1/completions/", "a.b", "1", "/v1", "a.b:1"},
        {"http://[::1]:8080/api/v3", "::1", "8080", "/api/v3", "[::1]:8080"},
        {"http://[fe80::1]", "fe80::1", "80", "/v1", "[fe80::1]"},
    };
    static const char *const bad[] = {
        "",           "localhost:8080", "ftp://a",      "https://a",       "http://",
        "http://:80", "http://a:",      "http://a:80x", "http://a:123456", "http://a/v1?b=c",
        "http://[]",  "http://u:p@a",
    };
    struct url_target t;
    struct err e;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(url_target_read(&t, good[i].url, &e), 0);
        assert_string_equal(t.host, good[i].host);
        assert_string_equal(t.port, good[i].port);
        assert_string_equal(t.base, good[i].base);
        assert_string_equal(t.authority, good[i].authority);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_not_equal(url_target_read(&t, bad[i], &e), 0);
}

// Pushes the text in two parts, cut at every place in turn; the body must be the same.
static void check_response(const char *text, int status, const char *body, bool close) {
    size_t n = strlen(text);
    for (size_t cut = 0; cut <= n; cut++) {
        struct url_reply r;
        struct url_result q;
        url_reply_init(&r, false, 0, &q, NULL);
        if (!url_reply_push(&r, text, cut, 1) && !url_reply_push(&r, text + cut, n - cut, 1))
            url_reply_close(&r, 1);
        assert_int_equal(q.outcome, status == 200 || status == 204 ? URL_DONE : URL_STATUS);
        assert_int_equal(r.status, status);
        assert_int_equal(r.close, close);
        assert_string_equal(r.body.data ? r.body.data : "", body);
        url_reply_fini(&r);
    }
}

static void test_responses(void **state) {
    (void)state;
    check_response("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", 200, "hello", false);
    check_response("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", 200, "", false);
    check_response("HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n", 404, "", false);
    check_response("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 404 No\r\ncontent-LENGTH:2\r\n\r\nno",
                   404, "no", false);
    check_response("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
                   "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n",
                   200, "abc0123456789", false);
    check_response("HTTP/1.1 200 OK\r\nConnection: Close\r\nContent-Length: 1\r\n\r\nx", 200, "x",
                   true);
    check_response("HTTP/1.0 200 OK\r\n\r\nuntil the end", 200, "until the end", true);
}

static void test_bad_responses(void **state) {
    (void)state;
    static const char *const bad[] = {
        "SSH-2.0-OpenSSH\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 20 OK\r\n\r\n",
        "HTTP/1.1 200OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct url_reply r;
        struct url_result q;
        url_reply_init(&r, false, 0, &q, NULL);
        assert_true(url_reply_push(&r, bad[i], strlen(bad[i]), 1));
        assert_int_equal(q.outcome, URL_FORMAT);
        assert_true(r.close);
        url_reply_fini(&r);
    }
}

static void test_long_header(void **state) {
    (void)state;
    struct url_reply r;
    struct url_result q;
    char line[1024] = "HTTP/1.1 ";
    bool over = false;
    url_reply_init(&r, false, 0, &q, NULL);
    memset(line + 9, 'a', sizeof line - 9);
    for (int i = 0; i < 100 && !over; i++)
        over = url_reply_push(&r, line, sizeof line, 1);
    assert_int_equal(q.outcome, URL_FORMAT);
    assert_true(r.head.len <= (64 << 10) + sizeof line);
    url_reply_fini(&r);
}

#define HEAD "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n\r\n"
#define ROLE                                                                                       \
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"}}]}\n\n"
#define TEXT   "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n"
#define THINK  "data: {\"choices\":[{\"index\":0,\"delta\":{\"reasoning_content\":\"a\"}}]}\n\n"
#define PLAIN  "data: {\"choices\":[{\"index\":0,\"text\":\"a\",\"finish_reason\":null}]}\n\n"
#define FINISH "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
#define USAGE                                                                                      \
    "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":4,"                \
    "\"prompt_tokens_details\":{\"cached_tokens\":3}},\"timings\":{\"queue_ms\":1,"                \
    "\"prompt_ms\":4.5}}\n\n"
#define DONE "data: [DONE]\n\n"

// Pushes parts at 10, 20, 30 ... ms of the clock, closes at the end.
static struct url_result answer(const char *const *parts, int n, struct url_times *gaps) {
    struct url_result q;
    struct url_reply r;
    bool over = false;
    url_reply_init(&r, true, 5, &q, gaps);
    for (int i = 0; i < n && !over; i++)
        over = url_reply_push(&r, parts[i], strlen(parts[i]), 10.0 * (i + 1));
    if (!over)
        url_reply_close(&r, 10.0 * (n + 1));
    url_reply_fini(&r);
    return q;
}

static void test_answer(void **state) {
    (void)state;
    static const char *const parts[] = {HEAD ROLE, THINK, "", TEXT TEXT, PLAIN FINISH, USAGE DONE};
    struct url_times gaps = {0};
    struct url_result q = answer(parts, 6, &gaps);
    assert_int_equal(q.outcome, URL_DONE);
    assert_true(q.first == 20 && q.last == 50 && q.end == 70 && q.start == 5);
    assert_int_equal(q.events, 4);
    assert_true(q.largest_gap == 20);
    assert_int_equal(q.input_tokens, 7);
    assert_int_equal(q.output_tokens, 4);
    assert_int_equal(q.cached_tokens, 3);
    assert_true(q.server_ms == 5.5);
    assert_int_equal(gaps.n, 3);
    assert_true(gaps.at[0] == 20 && gaps.at[1] == 0 && gaps.at[2] == 10);
    url_times_fini(&gaps);
}

static void test_bad_answers(void **state) {
    (void)state;
    static const struct {
        const char *text;
        enum url_outcome outcome;
        int status;
        const char *message;
    } cases[] = {
        {HEAD TEXT, URL_CLOSED, 200, "without a finish_reason"},
        {HEAD TEXT FINISH, URL_DONE, 200, ""},
        {HEAD DONE, URL_DONE, 200, ""},
        {HEAD "data: {\"error\":{\"message\":\"broke\"}}\n\n", URL_ERROR, 200, "broke"},
        {HEAD "data: {\"error\":\"short\"}\n\n", URL_ERROR, 200, "short"},
        {HEAD "data: {]\n\n", URL_FORMAT, 200, "an event"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", URL_FORMAT, 200, "not a stream"},
        {"HTTP/1.1 429 X\r\nContent-Length: 28\r\n\r\n{\"error\":{\"message\":\"full\"}}",
         URL_STATUS, 429, "full"},
        {"HTTP/1.1 502 X\r\n\r\nbad gateway\nmore", URL_STATUS, 502, "bad gateway"},
        {"", URL_CLOSED, 0, "without an answer"},
        {"HTTP/1.1 200 OK\r\nContent-Le", URL_CLOSED, 0, "in the middle"},
        {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", URL_CLOSED, 200, "in the middle"},
        {"junk\n", URL_FORMAT, 0, "not HTTP/1.1"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct url_times gaps = {0};
        struct url_result q = answer(&cases[i].text, 1, &gaps);
        assert_int_equal(q.outcome, cases[i].outcome);
        assert_int_equal(q.status, cases[i].status);
        assert_non_null(strstr(q.message, cases[i].message));
        assert_true(q.end > 0);
        url_times_fini(&gaps);
    }
}

static void test_percentiles(void **state) {
    (void)state;
    struct url_times t = {0};
    struct err e;
    struct url_summary none = url_times_sum(&t);
    assert_true(none.mean == 0 && none.p50 == 0 && none.max == 0);
    for (int i = 0; i < 101; i++) // 0..100 in an order of its own
        assert_int_equal(url_times_add(&t, (i * 37) % 101, &e), 0);
    struct url_summary s = url_times_sum(&t);
    assert_true(s.mean == 50 && s.p50 == 50 && s.p95 == 95 && s.p99 == 99 && s.max == 100);
    t.n = 0;
    for (int i = 1; i <= 4; i++)
        assert_int_equal(url_times_add(&t, i, &e), 0);
    s = url_times_sum(&t);
    assert_true(s.mean == 2.5 && s.p50 == 2.5 && s.max == 4);
    assert_float_equal(s.p95, 3.85, 1e-9); // as numpy.percentile([1,2,3,4], 95)
    url_times_fini(&t);
}

static void test_limits(void **state) {
    (void)state;
    struct url_limits l;
    struct err e;
    assert_int_equal(url_limits_read(&l, "ttft=200,tpot=50.5", &e), 0);
    assert_true(l.ms[URL_TTFT] == 200 && l.ms[URL_TPOT] == 50.5 && l.ms[URL_GAP] == 0 &&
                l.ms[URL_LATENCY] == 0);
    assert_int_equal(url_limits_read(&l, "latency=1e4,gap=3", &e), 0);
    assert_true(l.ms[URL_LATENCY] == 10000 && l.ms[URL_GAP] == 3);
    static const char *const bad[] = {"ttft", "ttft=", "ttft=0", "ttft=-1", "ttft=1;", "=3", "x=3"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(url_limits_read(&l, bad[i], &e), ERR_USAGE);
}

static struct url_result done(double start, double first, double last, int64_t tokens) {
    struct url_result q;
    url_result_init(&q, start);
    q.first = first;
    q.last = q.end = last;
    q.events = 2;
    q.largest_gap = last - first;
    q.input_tokens = 10;
    q.output_tokens = tokens;
    return q;
}

static struct url_result failed(enum url_outcome outcome, int status, double end) {
    struct url_result q;
    url_result_init(&q, 100);
    q.outcome = outcome;
    q.status = status;
    q.end = end;
    snprintf(q.message, sizeof q.message, "why %d", status);
    return q;
}

static void test_report(void **state) {
    (void)state;
    const struct url_result results[] = {
        done(0, 100, 200, 11), // 10 ms a token
        done(0, 300, 900, 31), // 20 ms a token
        failed(URL_STATUS, 429, 110), failed(URL_STATUS, 429, 2000), failed(URL_TIMEOUT, 0, 500),
    };
    struct url_times gaps = {0};
    struct url_report r;
    struct err e;
    struct url_run run = {.results = results, .n = 5, .gaps = &gaps, .url = "u", .model = "m"};
    assert_int_equal(url_limits_read(&run.limits, "ttft=200,tpot=15", &e), 0);
    assert_int_equal(url_report_make(&r, &run, &e), 0);
    assert_int_equal(r.done, 2);
    assert_int_equal(r.good, 1);
    assert_int_equal(r.input_tokens, 20);
    assert_int_equal(r.output_tokens, 42);
    assert_true(r.counted && r.seconds == 2);
    assert_true(r.first.mean == 200 && r.first.max == 300);
    assert_true(r.per_token.mean == 15 && r.per_token.max == 20);
    assert_true(r.gap.max == 600 && r.latency.mean == 550);
    assert_false(r.added_known);
    assert_int_equal(r.n_errors, 2);
    assert_int_equal(r.errors[0].count, 2);
    struct str text = {0};
    struct json_writer w = {0};
    struct json *v = NULL;
    url_report_text(&r, &run, &text);
    assert_non_null(strstr(text.data, "5 requests in 2.00 s: 2 done, 3 failed, 1.00 a second"));
    assert_non_null(strstr(text.data, "failed: 2 x HTTP 429: why 429\n"));
    assert_non_null(strstr(text.data, "failed: 1 x timeout"));
    assert_non_null(strstr(text.data, "1 of 2 within ttft 200 ms tpot 15 ms"));
    url_report_json(&r, &run, &w);
    assert_int_equal(json_parse(&v, w.out.data, w.out.len, &e), 0);
    assert_true(json_num(json_get(v, "output_tokens_per_second"), 0) == 21);
    assert_true(json_num(json_get(json_get(v, "goodput"), "requests_per_second"), 0) == 0.5);
    assert_int_equal(json_len(json_get(v, "errors")), 2);
    json_free(v);
    str_fini(&w.out);
    str_fini(&text);
}

// Without usage in one answer, events stand for tokens in all of them.
static void test_uncounted(void **state) {
    (void)state;
    const struct url_result results[] = {done(0, 100, 200, 11), done(0, 100, 200, -1)};
    struct url_times gaps = {0};
    struct url_report r;
    struct err e;
    const struct url_run run = {
        .results = results, .n = 2, .gaps = &gaps, .url = "u", .model = "m"};
    assert_int_equal(url_report_make(&r, &run, &e), 0);
    assert_false(r.counted);
    assert_int_equal(r.output_tokens, 4);
    assert_true(r.per_token.mean == 100);
}

// More kinds of errors than the table has rows: none is lost.
static void test_many_kinds(void **state) {
    (void)state;
    struct url_result results[40];
    struct url_times gaps = {0};
    struct url_report r;
    struct err e;
    int64_t sum = 0;
    for (int i = 0; i < 40; i++)
        results[i] = failed(URL_STATUS, 400 + i, 200);
    const struct url_run run = {
        .results = results, .n = 40, .gaps = &gaps, .url = "u", .model = "m"};
    assert_int_equal(url_report_make(&r, &run, &e), 0);
    assert_int_equal(r.n_errors, URL_ERROR_KINDS);
    for (int i = 0; i < r.n_errors; i++)
        sum += r.errors[i].count;
    assert_int_equal(sum, 40);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_target),        cmocka_unit_test(test_responses),
        cmocka_unit_test(test_bad_responses), cmocka_unit_test(test_long_header),
        cmocka_unit_test(test_answer),        cmocka_unit_test(test_bad_answers),
        cmocka_unit_test(test_percentiles),   cmocka_unit_test(test_limits),
        cmocka_unit_test(test_report),        cmocka_unit_test(test_uncounted),
        cmocka_unit_test(test_many_kinds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
