// SPDX-License-Identifier: Apache-2.0
// A relay that compresses, in front of our own server, with a scorer that looks for the words of
// the question: what goes on compressed and what as it came, what is said of it.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/time.h>
#include <unistd.h>

#include "serve/relay/relay.h"
#include "server_rig.h"
#include "test.h"
#include "words_scorer.h"

#define CHAT  "/v1/chat/completions"
#define MODEL SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"

enum { LINES = 150 };

struct rig {
    struct words_scorer words;
    struct tokenizer *t;
    struct compressor *c;
    struct server_rig up;
    struct relay *relay;
    pthread_t thread;
    struct peer_server peer;
    struct str log;
};

static void keep_line(void *arg, const char *line, size_t n) {
    str_append(&((struct rig *)arg)->log, line, n);
}

static void *run(void *arg) {
    assert_int_equal(relay_run(arg, NULL), 0);
    return NULL;
}

static void start(struct rig *g, enum prefill_mode mode, int64_t threshold) {
    char base[64];
    struct err e = {0};
    *g = (struct rig){.words = words_scorer(), .t = words_tokenizer(MODEL)};
    assert_int_equal(compressor_create(&g->c, &g->words.base, g->t, NULL), 0);
    server_rig_start(&g->up, (struct server_options){.log_prompts = true});
    snprintf(base, sizeof base, "http://127.0.0.1:%d", g->up.peer.port);
    struct relay_options o = {.upstream = {.base = base},
                              .http = {.host = "127.0.0.1"},
                              .prefill = prefill_options_default(),
                              .compressor = g->c,
                              .log = {.write = keep_line, .arg = g}};
    o.prefill.mode = mode;
    o.prefill.threshold = threshold;
    o.prefill.compress.select.budget = SELECT_RATIO;
    o.prefill.compress.select.keep = 0.2;
    o.prefill.compress.select.head = o.prefill.compress.select.tail = 0;
    if (relay_create(&g->relay, &o, &e))
        fail_msg("%s", e.text);
    g->peer.port = atoi(strrchr(relay_address(g->relay, 0), ':') + 1);
    assert_int_equal(pthread_create(&g->thread, NULL, run, g->relay), 0);
}

static void stop(struct rig *g) {
    relay_stop(g->relay);
    WAIT_JOIN(g->thread, NULL);
    relay_destroy(g->relay);
    server_rig_stop(&g->up);
    compressor_close(g->c);
    tokenizer_destroy(g->t);
    str_fini(&g->log);
}

// POST through the relay; the status. head: of the answer.
static int ask(struct rig *g, const char *path, const char *body, struct str *head,
               struct str *out) {
    struct str text = {0};
    str_printf(&text,
               "POST %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
               "Content-Length: %zu\r\n\r\n%s",
               path, strlen(body), body);
    str_clear(head);
    str_clear(out);
    int fd = peer_connect(&g->peer);
    peer_send_bytes(fd, text.data, text.len);
    int status = peer_answer(fd, head, out);
    close(fd);
    str_fini(&text);
    return status;
}

static void filler(struct str *out, int lines) {
    for (int i = 0; i < lines; i++)
        str_puts(out, i == lines / 2 ? "The zebra hides a mango under the piano.\\n"
                                     : "The grass is green and the sky is blue.\\n");
}

static void messages_go_on_compressed(void **state) {
    (void)state;
    struct rig g;
    struct str body = {0}, head = {0}, out = {0};
    start(&g, PREFILL_AUTO, 300);
    str_puts(&body, "{\"temperature\":0.0,\"max_tokens\":2,\"own\":[1.50],\"messages\":["
                    "{\"role\":\"system\",\"content\":\"Be brief.\"},"
                    "{\"role\":\"user\",\"name\":\"Ann\",\"content\":\"");
    filler(&body, LINES);
    str_puts(&body, "\\nWhere is the mango of the zebra?\"}]}");
    assert_int_equal(ask(&g, CHAT, body.data, &head, &out), 200);
    const char *said = strstr(head.data, "x-coppice-compression: {\"from\":");
    assert_non_null(said);
    assert_non_null(strstr(said, "\"reason\":null}"));
    assert_non_null(strstr(g.log.data, " 200, compressed from "));
    const char *read = strstr(g.up.log.data, " prompt \"");
    static const char *const parts[] = {"<|im_start|>system\\nBe brief.", "<|im_start|>user",
                                        "The zebra hides a mango under the piano.",
                                        "Where is the mango of the zebra?<|im_end|>"};
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        assert_non_null(read);
        read = strstr(read, parts[i]);
    }
    struct json *v = NULL;
    assert_int_equal(json_parse(&v, out.data, out.len, NULL), 0);
    assert_in_range(server_rig_int(v, "usage.prompt_tokens"), 20, 900);
    json_free(v);
    str_fini(&body);
    str_puts(&body, "{\"max_tokens\":2,\"prompt\":\"");
    filler(&body, LINES);
    str_puts(&body, "\\nWhere is the mango of the zebra?\"}");
    assert_int_equal(ask(&g, "/v1/completions", body.data, &head, &out), 200);
    assert_non_null(strstr(head.data, "\"reason\":null}"));
    str_fini(&body);
    str_fini(&head);
    str_fini(&out);
    stop(&g);
}

static void the_rest_goes_on_as_it_came(void **state) {
    (void)state;
    struct rig g;
    struct str body = {0}, head = {0}, out = {0};
    start(&g, PREFILL_AUTO, 300);
    assert_int_equal(ask(&g, CHAT,
                         "{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"Hi\"}]}",
                         &head, &out),
                     200);
    assert_non_null(strstr(head.data, "\"reason\":\"the prompt is shorter than the threshold\"}"));
    str_puts(&body, "{\"tools\":[{\"type\":\"function\"}],\"messages\":[{\"role\":\"user\","
                    "\"content\":\"");
    filler(&body, LINES);
    str_puts(&body, "\"}]}");
    assert_int_equal(ask(&g, CHAT, body.data, &head, &out), 400); // which is the upstream's
    assert_non_null(strstr(head.data, "\"reason\":\"tools are present\"}"));
    assert_int_equal(ask(&g, CHAT, "{\"messages\":[5]}", &head, &out), 400);
    assert_int_equal(ask(&g, CHAT, "nonsense", &head, &out), 400);
    str_fini(&body);
    str_fini(&head);
    str_fini(&out);
    stop(&g);
}

// The scorer fails once it is let go.
static struct {
    pthread_mutex_t gate;
    atomic_int called;
} held = {.gate = PTHREAD_MUTEX_INITIALIZER};

static void close_nothing(struct scorer *s) {
    (void)s;
}

static int hold_score(struct scorer *s, const struct score_call *c, struct err *e) {
    (void)s;
    (void)c;
    held.called++;
    pthread_mutex_lock(&held.gate);
    pthread_mutex_unlock(&held.gate);
    return err_set(e, ERR_DEVICE, "the scorer's device has failed");
}

// What a server that ends in haste gives its exchanges to end, here as long as they take.
struct event;
int __real_event_add(struct event *ev, const struct timeval *t);
int __wrap_event_add(struct event *ev, const struct timeval *t);
int __wrap_event_add(struct event *ev, const struct timeval *t) {
    static const struct timeval patience = {PATIENCE / 1000, 0};
    return __real_event_add(ev, t && t->tv_sec == 0 && t->tv_usec == 200000 ? &patience : t);
}

// The server is stopped while a worker has the request, in which that fails after it. The
// worker alone writes the error while it has the request; the end takes its place then.
static void one_thread_writes_the_error(void **state) {
    (void)state;
    static const struct scorer_kind kind = {.score = hold_score, .destroy = close_nothing};
    struct rig g;
    struct str body = {0}, text = {0}, head = {0}, out = {0};
    start(&g, PREFILL_AUTO, 300);
    g.words.base.kind = &kind;
    str_puts(&body, "{\"max_tokens\":2,\"prompt\":\"");
    filler(&body, LINES);
    str_puts(&body, "\"}");
    str_printf(&text,
               "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
               body.len, body.data);
    pthread_mutex_lock(&held.gate);
    int fd = peer_connect(&g.peer), other = peer_connect(&g.peer);
    peer_send_bytes(fd, text.data, text.len);
    WAIT_UNTIL(held.called >= 1);
    // A head of which a part has been read ends after the hooks of exchanges.
    peer_send(other, "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\nGET /he");
    assert_int_equal(peer_answer(other, &head, &out), 200);
    relay_stop(g.relay);
    relay_stop(g.relay);
    assert_int_not_equal(peer_read_all(other, NULL, PATIENCE), 1);
    pthread_mutex_unlock(&held.gate);
    assert_int_equal(peer_answer(fd, &head, &out), 503);
    assert_non_null(strstr(out.data, "shutting_down"));
    close(fd);
    close(other);
    str_fini(&body);
    str_fini(&text);
    str_fini(&head);
    str_fini(&out);
    stop(&g);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_go_on_compressed),
        cmocka_unit_test(the_rest_goes_on_as_it_came),
        cmocka_unit_test(one_thread_writes_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
