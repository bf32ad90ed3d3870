// SPDX-License-Identifier: Apache-2.0
// Servers with options of their own over real HTTP: a template that thinks, a full queue, streams
// that wait, the end of a server, its log.
#include "test.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server_rig.h"
#include "text/jinja/jinja.h"

#define CHAT "/v1/chat/completions"
#define TEXT "/v1/completions"
#define LONG                                                                                       \
    "\"prompt\":\"x\",\"stream\":true,\"max_tokens\":4000,\"ignore_eos\":true,"                    \
    "\"coppice\":{\"speculate\":\"off\"}"

// A template that begins the answer's thinking, which this model then never ends.
static void thinking_is_separated_from_text(void **state) {
    (void)state;
    static const char text[] =
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "<|im_start|>assistant\n{% if enable_thinking is not defined or enable_thinking %}<think>\n"
        "{% else %}<think>\n\n</think>\n\n{% endif %}";
    static const char ask[] = "{\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],"
                              "\"temperature\":0,\"ignore_eos\":true,\"max_tokens\":20%s}";
    struct server_rig small;
    struct rig_stream s;
    struct str out = {0};
    char path[] = "/tmp/coppice-template-XXXXXX", body[256];
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, text, sizeof text - 1) == sizeof text - 1);
    close(fd);
    server_rig_start(&small, (struct server_options){.template_file = path});
    unlink(path);
    snprintf(body, sizeof body, ask, "");
    struct json *v = server_rig_json(&small, CHAT, body, 200);
    assert_true(strlen(server_rig_text(v, "choices.0.message.reasoning_content")) > 10);
    assert_string_equal(server_rig_text(v, "choices.0.message.content"), "");
    assert_int_equal(server_rig_int(v, "usage.completion_tokens_details.reasoning_tokens"), 20);
    snprintf(body, sizeof body, ask, ",\"stream\":true");
    assert_int_equal(server_rig_ask(&small, CHAT, body, &out), 200);
    rig_stream_read(&s, &out);
    assert_string_equal(s.reasoning.data,
                        server_rig_text(v, "choices.0.message.reasoning_content"));
    assert_int_equal(s.text.len, 0);
    rig_stream_fini(&s);
    json_free(v);
    static const char *const off[] = {",\"enable_thinking\":false",
                                      ",\"reasoning_effort\":\"none\"",
                                      ",\"thinking\":{\"type\":\"disabled\"}",
                                      ",\"reasoning_effort\":\"high\",\"chat_template_kwargs\":{"
                                      "\"enable_thinking\":false}"};
    for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
        snprintf(body, sizeof body, ask, off[i]);
        v = server_rig_json(&small, CHAT, body, 200);
        assert_true(strlen(server_rig_text(v, "choices.0.message.content")) > 10);
        assert_null(server_rig_at(v, "choices.0.message.reasoning_content"));
        json_free(v);
    }
    server_rig_stop(&small);
    str_fini(&out);
}

// A request with a header of its own; the connection is for the caller.
static int ask_marked(struct server_rig *r, const char *mark, const char *body) {
    struct str text = {0};
    int fd = server_rig_connect(r);
    str_printf(
        &text,
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %zu\r\n\r\n%s", mark,
        strlen(body), body);
    peer_send_bytes(fd, text.data, text.len);
    str_fini(&text);
    return fd;
}

// The text of this stream is that of another one with the same body.
static void expect_stream(struct server_rig *r, const char *body, const struct str *out) {
    struct rig_stream joined, plain;
    struct str other = {0};
    assert_int_equal(server_rig_ask(r, TEXT, body, &other), 200);
    rig_stream_read(&joined, out);
    rig_stream_read(&plain, &other);
    assert_true(joined.done && joined.text.len > 0);
    assert_string_equal(joined.text.data, plain.text.data);
    rig_stream_fini(&joined);
    rig_stream_fini(&plain);
    str_fini(&other);
}

// What is sent again, marked, gets the answer that is being made, all of it: by its key, or because
// the client has closed its side of the connection.
static void retried_requests_join(void **state) {
    (void)state;
    static const char stream[] = "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":800,"
                                 "\"ignore_eos\":true,\"seed\":1}";
    static const char whole[] =
        "{\"prompt\":\"x\",\"max_tokens\":600,\"ignore_eos\":true,\"seed\":1}";
    static const char *const marks[][2] = {
        {"", "x-stainless-retry-count: 1\r\n"},
        {"Idempotency-Key: k\r\n", "Idempotency-Key: k\r\n"},
    };
    struct server_rig small;
    server_rig_start(&small, (struct server_options){.engine = {.slots = 2}});
    for (int i = 0; i < 4; i++) {
        const char *body = i < 2 ? stream : whole;
        struct str old = {0}, head = {0}, out = {0};
        server_rig_hold(&small, 10);
        int first = ask_marked(&small, marks[i % 2][0], body);
        server_rig_held(&small);
        if (i % 2 == 0)
            shutdown(first, SHUT_WR);
        int second = ask_marked(&small, marks[i % 2][1], body);
        assert_int_not_equal(peer_read_all(first, &old, PATIENCE), 1); // broken off
        server_rig_go(&small);
        assert_int_equal(peer_answer(second, &head, &out), 200);
        assert_int_equal(engine_stats(server_engine(small.v)).taken, i + 1 + (i > 0));
        if (i == 0)
            expect_stream(&small, body, &out);
        else if (i == 1)
            assert_non_null(strstr(out.data, "data: [DONE]"));
        else
            assert_non_null(strstr(out.data, "\"completion_tokens\":600"));
        close(first);
        close(second);
        server_rig_idle(&small);
        str_fini(&old);
        str_fini(&head);
        str_fini(&out);
    }
    server_rig_stop(&small);
}

// Equal requests whose tries before were refused are no retries of each other: the clients of all
// are there, and each gets an answer.
static void equal_requests_with_retries_are_all_served(void **state) {
    (void)state;
    enum { EQUALS = 6 };
    static const char body[] = "{\"prompt\":\"x\",\"stream\":true,\"max_tokens\":300,"
                               "\"ignore_eos\":true,\"seed\":1}";
    struct server_rig small;
    int fds[EQUALS];
    server_rig_start(&small, (struct server_options){.engine = {.slots = EQUALS}});
    server_rig_hold(&small, 3);
    for (int i = 0; i < EQUALS; i++) {
        char mark[64];
        snprintf(mark, sizeof mark, "x-stainless-retry-count: %d\r\n", i);
        fds[i] = ask_marked(&small, mark, body);
        if (i == 0)
            server_rig_held(&small); // the others find it in progress
    }
    WAIT_UNTIL(engine_stats(server_engine(small.v)).waiting == EQUALS - 1);
    server_rig_go(&small);
    for (int i = 0; i < EQUALS; i++) {
        struct str head = {0}, out = {0};
        assert_int_equal(peer_answer(fds[i], &head, &out), 200);
        assert_non_null(strstr(out.data, "data: [DONE]"));
        close(fds[i]);
        str_fini(&head);
        str_fini(&out);
    }
    assert_int_equal(engine_stats(server_engine(small.v)).taken, EQUALS);
    server_rig_stop(&small);
}

static void requests_without_a_retry_mark_are_separate(void **state) {
    (void)state;
    static const char body[] = "{" LONG ",\"seed\":1}";
    struct server_rig small;
    server_rig_start(&small, (struct server_options){.engine = {.slots = 4}});
    static const char *const marks[] = {"", "", "Idempotency-Key: k\r\n",
                                        "x-api-key: k\r\nx-stainless-retry-count: 1\r\n"};
    int fds[4];
    server_rig_hold(&small, 3);
    for (int i = 0; i < 4; i++) {
        fds[i] = ask_marked(&small, marks[i], body);
        if (i == 0)
            server_rig_held(&small);
    }
    WAIT_UNTIL(engine_stats(server_engine(small.v)).waiting == 3);
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    server_rig_stop(&small);
}

#define BODIES "coppice_http_body_bytes"

// What a body became counts while it is there, after the reading too.
static void memory_of_bodies_counts_until_it_is_free(void **state) {
    (void)state;
    enum { WAITING = 3, WORDS = 2000 };
    struct server_rig small;
    struct str members = {0};
    int fds[WAITING + 1];
    str_puts(&members, "\"max_tokens\":2,\"prompt\":\"");
    for (int i = 0; i < WORDS; i++)
        str_puts(&members, "x ");
    str_puts(&members, "\"");
    server_rig_start(&small, (struct server_options){.engine = {.slots = 1}});
    server_rig_hold(&small, 3);
    fds[WAITING] = server_rig_open(&small, TEXT, LONG, 0);
    server_rig_held(&small);
    for (int i = 0; i < WAITING; i++)
        fds[i] = server_rig_open(&small, TEXT, members.data, 0);
    WAIT_UNTIL(engine_stats(server_engine(small.v)).waiting == WAITING);
    // A token of two bytes at most.
    assert_true(server_rig_metric(&small, BODIES) >= WAITING * WORDS * (double)sizeof(int32_t));
    for (int i = 0; i <= WAITING; i++)
        close(fds[i]);
    server_rig_go(&small);
    WAIT_UNTIL(server_rig_metric(&small, BODIES) == 0);
    server_rig_stop(&small);
    str_fini(&members);
}

static void a_full_queue_says_when_to_come_back(void **state) {
    (void)state;
    struct server_rig small;
    struct str out = {0};
    static const char body[] = "{\"prompt\":[\"a\",\"b\",\"c\",\"d\",\"e\"],\"max_tokens\":5}";
    server_rig_start(&small, (struct server_options){.engine = {.slots = 1, .queue = 2}});
    assert_int_equal(server_rig_ask(&small, TEXT, body, &out), 429);
    assert_non_null(strstr(out.data, "\"type\":\"rate_limit_error\""));
    server_rig_idle(&small); // none of it goes on
    server_rig_stop(&small);
    str_fini(&out);
}

static void a_waiting_stream_sends_keep_alive_events(void **state) {
    (void)state;
    static const char empty[] = "\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":null}]}";
    struct server_rig small;
    struct str head = {0}, body = {0};
    struct rig_stream s;
    int chunks = 0;
    server_rig_start(&small, (struct server_options){.engine = {.slots = 1}, .alive_ms = 50});
    server_rig_hold(&small, 3);
    int first = server_rig_open(&small, TEXT, LONG, 0);
    server_rig_held(&small);
    int second = server_rig_open(&small, CHAT,
                                 "\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}],\"stream\":"
                                 "true,\"max_tokens\":3,\"ignore_eos\":true",
                                 0);
    server_rig_comes(second, empty, 2);
    close(first);
    server_rig_go(&small);
    assert_int_equal(peer_answer(second, &head, &body), 200);
    close(second);
    for (const char *at = body.data; (at = strstr(at, empty)); at++)
        chunks++;
    assert_true(chunks >= 2);
    assert_non_null(strstr(head.data, "x-request-id: chatcmpl-"));
    rig_stream_read(&s, &body);
    assert_true(s.role && s.done && s.text.len);
    rig_stream_fini(&s);
    server_rig_stop(&small);
    str_fini(&head);
    str_fini(&body);
}

// What each interface sends and receives: a stream that waits, its first event, its keep-alive
// event.
static const struct {
    const char *path, *members, *first, *sign;
} interfaces[] = {
    {CHAT, "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]", "\"role\":\"assistant\"",
     "\"delta\":{}"},
    {TEXT, "\"prompt\":\"%s\"", "", "\"text\":\"\""},
    {"/v1/messages", "\"messages\":[{\"role\":\"user\",\"content\":\"%s\"}]",
     "event: message_start\n", "event: ping\ndata: {\"type\":\"ping\"}\n"},
    {"/v1/responses", "\"max_output_tokens\":4,\"input\":\"%s\"", "event: response.created\n",
     "event: response.in_progress\n"},
};
enum { INTERFACES = sizeof interfaces / sizeof interfaces[0] };

static int open_stream(struct server_rig *r, size_t i, const char *words, size_t times) {
    struct str members = {0}, all = {0};
    for (size_t k = 0; k < times; k++)
        str_puts(&all, words);
    str_puts(&members, "\"stream\":true,\"max_tokens\":3,\"ignore_eos\":true,");
    str_printf(&members, interfaces[i].members, all.data);
    int fd = server_rig_open(r, interfaces[i].path, members.data, 0);
    str_fini(&members);
    str_fini(&all);
    return fd;
}

static int count(const struct str *body, const char *words) {
    int n = 0;
    for (const char *at = body->data; (at = strstr(at, words)); at++)
        n++;
    return n;
}

static void all_interfaces_send_keep_alive_events(void **state) {
    (void)state;
    struct server_rig small;
    server_rig_start(&small, (struct server_options){.engine = {.slots = 1}, .alive_ms = 50});
    for (size_t i = 0; i < INTERFACES; i++) {
        struct str head = {0}, body = {0};
        server_rig_hold(&small, 3);
        int first = server_rig_open(&small, TEXT, LONG, 0);
        server_rig_held(&small);
        int second = open_stream(&small, i, "Hi", 1);
        server_rig_comes(second, interfaces[i].sign, 2);
        close(first);
        server_rig_go(&small);
        assert_int_equal(peer_answer(second, &head, &body), 200);
        close(second);
        const char *begin = strstr(body.data, interfaces[i].first);
        assert_true(begin && begin < body.data + 300);
        assert_true(count(&body, interfaces[i].sign) >= 2);
        server_rig_idle(&small);
        str_fini(&head);
        str_fini(&body);
    }
    server_rig_stop(&small);
}

// Rendering waits while it is shut.
static atomic_bool shut;
int __real_jinja_render(const struct jinja *j, struct jinja_context *c, struct jinja_output *out,
                        struct err *e);
int __wrap_jinja_render(const struct jinja *j, struct jinja_context *c, struct jinja_output *out,
                        struct err *e);
int __wrap_jinja_render(const struct jinja *j, struct jinja_context *c, struct jinja_output *out,
                        struct err *e) {
    WAIT_UNTIL(!shut);
    return __real_jinja_render(j, c, out, e);
}

// A stream begins while its prompt is still being made. What is wrong with that is its last event.
static void streams_begin_before_their_prompts(void **state) {
    (void)state;
    struct server_rig small;
    server_rig_start(&small, (struct server_options){.alive_ms = 20});
    for (size_t i = 0; i < INTERFACES; i++) {
        struct str head = {0}, body = {0};
        if (!strcmp(interfaces[i].path, TEXT)) // has no template
            continue;
        shut = true;
        int fd = open_stream(&small, i, "many words of no use, ", 4000);
        server_rig_comes(fd, interfaces[i].sign, 1);
        shut = false;
        assert_int_equal(peer_answer(fd, &head, &body), 200);
        close(fd);
        const char *begin = strstr(body.data, interfaces[i].first);
        assert_true(begin && begin < body.data + 300);
        assert_non_null(strstr(body.data, "prompt is too long"));
        assert_int_equal(count(&body, "\"error\":{"), 1);
        str_fini(&head);
        str_fini(&body);
    }
    server_rig_stop(&small);
}

static void streams_end_with_the_server(void **state) {
    (void)state;
    struct server_rig small;
    struct str head = {0}, body = {0};
    struct rig_stream s;
    server_rig_start(&small, (struct server_options){.http = {.grace_s = 0.05}});
    server_rig_hold(&small, 3);
    int fd = server_rig_open(&small, TEXT, LONG, 0);
    server_rig_held(&small);
    server_stop(small.v);
    assert_int_equal(peer_answer(fd, &head, &body), 200);
    close(fd);
    rig_stream_read(&s, &body);
    assert_non_null(s.error);
    assert_string_equal(server_rig_text(s.error, "error.code"), "shutting_down");
    rig_stream_fini(&s);
    server_rig_stop(&small);
    str_fini(&head);
    str_fini(&body);
}

// Both forms of the log, and prompts only where they are requested.
static void the_log_may_be_json_with_prompts(void **state) {
    (void)state;
    struct server_rig small;
    struct json *v = NULL;
    struct err e = {0};
    server_rig_start(&small, (struct server_options){.log.json = true, .log_prompts = true});
    json_free(
        server_rig_json(&small, TEXT, "{\"prompt\":\"a secret word\",\"max_tokens\":2}", 200));
    server_rig_logged(&small, TEXT);
    pthread_mutex_lock(&small.lock);
    const char *line = memmem(small.log.data, small.log.len, "{\"time\"", 7), *end = NULL;
    for (; line && (end = strchr(line, '\n')); line = end + 1) // those of /health before it
        if (memmem(line, (size_t)(end - line), TEXT, strlen(TEXT)))
            break;
    assert_true(line && end);
    assert_int_equal(json_parse(&v, line, (size_t)(end - line), &e), 0);
    pthread_mutex_unlock(&small.lock);
    assert_string_equal(server_rig_text(v, "prompt"), "a secret word");
    assert_string_equal(server_rig_text(v, "path"), TEXT);
    assert_int_equal(server_rig_int(v, "usage.completion_tokens"), 2);
    json_free(v);
    server_rig_stop(&small);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thinking_is_separated_from_text),
        cmocka_unit_test(retried_requests_join),
        cmocka_unit_test(equal_requests_with_retries_are_all_served),
        cmocka_unit_test(requests_without_a_retry_mark_are_separate),
        cmocka_unit_test(memory_of_bodies_counts_until_it_is_free),
        cmocka_unit_test(a_full_queue_says_when_to_come_back),
        cmocka_unit_test(a_waiting_stream_sends_keep_alive_events),
        cmocka_unit_test(all_interfaces_send_keep_alive_events),
        cmocka_unit_test(streams_begin_before_their_prompts),
        cmocka_unit_test(streams_end_with_the_server),
        cmocka_unit_test(the_log_may_be_json_with_prompts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
