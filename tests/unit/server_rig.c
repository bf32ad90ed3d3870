// SPDX-License-Identifier: Apache-2.0
// A server for tests; see server_rig.h.
#include "server_rig.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "models/model.h"
#include "ops/exec.h"
#include "support/wait.h"
#include "test.h"

#define MODEL SOURCE_ROOT "/models/coppice-tiny-q8_0.gguf"
// Without another wish: small enough that a prompt beyond it is quickly made.
#define RIG_MAX_CTX 4096
#define DRAFT       SOURCE_ROOT "/models/coppice-tiny-dflash-q8_0.gguf"

// Where the engine of one server stands still: at the first op of a pass.
static struct {
    atomic_bool shut, there;
    struct exec *x;
    struct engine *g;
    int64_t tokens;
    const struct ops *inner;
    struct ops table;
} gate;

static void gather_at_gate(struct exec *x, const struct weight *w, const int32_t *ids, int64_t n,
                           float *out) {
    if (gate.shut && x == gate.x && engine_stats(gate.g).tokens >= gate.tokens) {
        gate.there = true;
        WAIT_UNTIL(!gate.shut);
    }
    gate.inner->gather_rows(x, w, ids, n, out);
}

void server_rig_hold(struct server_rig *r, int64_t tokens) {
    gate.g = server_engine(r->v);
    gate.x = model_exec(session_model(engine_session(gate.g)));
    assert_int_equal(engine_lend(gate.g, NULL), 0); // no round runs
    if (gate.x->ops != &gate.table) {
        gate.inner = gate.x->ops;
        gate.table = *gate.inner;
        gate.table.gather_rows = gather_at_gate;
        gate.x->ops = &gate.table;
    }
    gate.there = false;
    gate.tokens = engine_stats(gate.g).tokens + tokens;
    gate.shut = true;
    assert_int_equal(engine_lend_end(gate.g, NULL), 0);
}

void server_rig_held(struct server_rig *r) {
    (void)r;
    WAIT_UNTIL(gate.there);
}

void server_rig_go(struct server_rig *r) {
    (void)r;
    gate.shut = false;
}

static void keep_line(void *arg, const char *line, size_t n) {
    struct server_rig *r = arg;
    pthread_mutex_lock(&r->lock);
    str_append(&r->log, line, n);
    pthread_mutex_unlock(&r->lock);
}

static void *run(void *arg) {
    struct server_rig *r = arg;
    r->rc = server_run(r->v, &r->err);
    return NULL;
}

static bool is_ready(struct server_rig *r) {
    int status = server_rig_ask(r, "/health", NULL, NULL);
    assert_true(status == 200 || status == 503);
    return status == 200;
}

void server_rig_start(struct server_rig *r, struct server_options o) {
    struct server_options d = server_options_default();
    struct err e = {0};
    *r = (struct server_rig){0};
    pthread_mutex_init(&r->lock, NULL);
    d.engine.session.model = MODEL;
    d.engine.session.draft = DRAFT;
    d.engine.session.device = "cpu";
    d.engine.session.threads = 2;
    d.engine.slots = o.engine.slots;
    d.engine.queue = o.engine.queue;
    d.engine.kv_limit = o.engine.kv_limit;
    d.engine.session.target.max_ctx =
        o.engine.session.target.max_ctx ? o.engine.session.target.max_ctx : RIG_MAX_CTX;
    d.http = o.http;
    d.prefill = o.prefill;
    d.compressor = o.compressor;
    d.defaults = o.defaults;
    d.http.host = "127.0.0.1";
    d.log = (struct request_log){.write = keep_line, .arg = r, .json = o.log.json};
    d.log_prompts = o.log_prompts;
    d.name = o.name;
    d.alive_ms = o.alive_ms;
    d.template_file = o.template_file;
    if (server_create(&r->v, &d, &e))
        fail_msg("%s", e.text);
    r->peer.port = atoi(strrchr(server_address(r->v, 0), ':') + 1);
    assert_int_equal(pthread_create(&r->thread, NULL, run, r), 0);
    WAIT_UNTIL(is_ready(r));
}

void server_rig_stop(struct server_rig *r) {
    server_rig_go(r);
    server_stop(r->v);
    WAIT_JOIN(r->thread, NULL);
    server_destroy(r->v);
    str_fini(&r->log);
    pthread_mutex_destroy(&r->lock);
    if (r->rc)
        fail_msg("%s", r->err.text);
}

int server_rig_connect(struct server_rig *r) {
    return peer_connect(&r->peer);
}

int server_rig_ask(struct server_rig *r, const char *path, const char *body, struct str *out) {
    struct str text = {0}, head = {0}, answer = {0};
    str_printf(&text, "%s %s HTTP/1.1\r\nHost: localhost\r\n", body ? "POST" : "GET", path);
    if (body)
        str_printf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                   strlen(body));
    str_puts(&text, "Connection: close\r\n\r\n");
    if (body)
        str_puts(&text, body);
    int fd = server_rig_connect(r);
    peer_send_bytes(fd, text.data, text.len);
    int status = peer_answer(fd, &head, &answer);
    close(fd);
    if (out) {
        str_clear(out);
        str_append(out, answer.data ? answer.data : "", answer.len);
    }
    str_fini(&text);
    str_fini(&head);
    str_fini(&answer);
    return status;
}

static struct json *parse(const char *text, size_t n) {
    struct json *v = NULL;
    struct err e = {0};
    if (json_parse(&v, text, n, &e))
        fail_msg("%.*s: %s", (int)n, text, e.text);
    return v;
}

struct json *server_rig_json(struct server_rig *r, const char *path, const char *body, int status) {
    struct str out = {0};
    int got = server_rig_ask(r, path, body, &out);
    if (got != status)
        fail_msg("%s %s: %d, not %d: %s", path, body ? body : "", got, status,
                 out.data ? out.data : "");
    struct json *v = parse(out.data, out.len);
    str_fini(&out);
    return v;
}

int server_rig_open(struct server_rig *r, const char *path, const char *members, int room) {
    struct str text = {0}, body = {0};
    int fd = server_rig_connect(r);
    if (room)
        setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    str_printf(&body, "{%s}", members);
    str_printf(&text, "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s", path,
               body.len, body.data);
    peer_send_bytes(fd, text.data, text.len);
    str_fini(&text);
    str_fini(&body);
    return fd;
}

double server_rig_metric(struct server_rig *r, const char *name) {
    char line[128];
    struct str out = {0};
    assert_int_equal(server_rig_ask(r, "/metrics", NULL, &out), 200);
    snprintf(line, sizeof line, "\n%s ", name);
    const char *at = strstr(out.data, line);
    assert_non_null(at);
    double value = strtod(at + strlen(line), NULL);
    str_fini(&out);
    return value;
}

static bool log_holds(struct server_rig *r, const char *text) {
    pthread_mutex_lock(&r->lock);
    bool found = r->log.data && strstr(r->log.data, text);
    pthread_mutex_unlock(&r->lock);
    return found;
}

void server_rig_logged(struct server_rig *r, const char *text) {
    struct wait wait = {0};
    while (!log_holds(r, text))
        wait_more(&wait, text, __FILE__, __LINE__);
}

// How often text has come in what fd has not read yet.
static int count_unread(int fd, const char *text) {
    static char bytes[1 << 16];
    int found = 0;
    ssize_t got = recv(fd, bytes, sizeof bytes - 1, MSG_PEEK | MSG_DONTWAIT);
    bytes[got > 0 ? got : 0] = '\0';
    for (const char *at = bytes; (at = strstr(at, text)); at++)
        found++;
    return found;
}

void server_rig_comes(int fd, const char *text, int n) {
    struct wait wait = {0};
    while (count_unread(fd, text) < n)
        wait_more(&wait, text, __FILE__, __LINE__);
}

static bool is_idle(struct server_rig *r) {
    struct engine_stats g = engine_stats(server_engine(r->v));
    return g.running + g.waiting + g.parked == 0;
}

void server_rig_idle(struct server_rig *r) {
    WAIT_UNTIL(is_idle(r));
}

const struct json *server_rig_at(const struct json *v, const char *place) {
    char name[64];
    while (*place && v) {
        size_t n = strcspn(place, ".");
        snprintf(name, sizeof name, "%.*s", (int)n, place);
        v = json_kind_of(v) == JSON_ARRAY ? json_at(v, (size_t)atoi(name)) : json_get(v, name);
        place += n + (place[n] == '.');
    }
    return v;
}

const char *server_rig_text(const struct json *v, const char *place) {
    const char *s = json_str(server_rig_at(v, place), NULL);
    if (!s)
        fail_msg("%s is no string", place);
    return s;
}

int64_t server_rig_int(const struct json *v, const char *place) {
    return json_int(server_rig_at(v, place), -1);
}

static void append(struct str *out, const struct json *v) {
    size_t n;
    const char *s = json_str(v, &n);
    if (s)
        str_append(out, s, n);
}

static void take_chunk(struct rig_stream *s, struct json *v) {
    const char *finish = json_str(server_rig_at(v, "choices.0.finish_reason"), NULL);
    s->chunks++;
    s->role |= server_rig_at(v, "choices.0.delta.role") != NULL && s->chunks == 1;
    append(&s->text, server_rig_at(v, "choices.0.delta.content"));
    append(&s->text, server_rig_at(v, "choices.0.text"));
    append(&s->reasoning, server_rig_at(v, "choices.0.delta.reasoning_content"));
    if (finish) {
        assert_null(s->last);
        snprintf(s->finish, sizeof s->finish, "%s", finish);
        s->last = v;
    } else if (json_get(v, "error")) {
        s->error = v;
    } else if (json_len(json_get(v, "choices")) == 0) {
        s->usage = v;
    } else {
        assert_null(s->last);
        json_free(v);
    }
}

void rig_stream_read(struct rig_stream *s, const struct str *body) {
    static const char done[] = "data: [DONE]\n\n";
    const char *at = body->data, *end = body->data + body->len;
    *s = (struct rig_stream){0};
    while (at < end) {
        const char *stop = strstr(at, "\n\n");
        assert_false(s->done);
        assert_non_null(stop);
        assert_memory_equal(at, "data: ", 6);
        if (!strncmp(at, done, sizeof done - 1))
            s->done = true;
        else
            take_chunk(s, parse(at + 6, (size_t)(stop - at - 6)));
        at = stop + 2;
    }
}

void rig_stream_fini(struct rig_stream *s) {
    str_fini(&s->text);
    str_fini(&s->reasoning);
    json_free(s->last);
    json_free(s->usage);
    json_free(s->error);
}
