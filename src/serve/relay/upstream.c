// SPDX-License-Identifier: Apache-2.0
// The client over libcurl's multi interface, driven by the loop's descriptors and one timer; see
// upstream.h. libcurl's callbacks come from inside its calls, where no handle may be taken away, so
// ends are gathered and reported after each of them. The library is loaded when it is needed: it
// brings thirty others, which a program that serves a model has no use for.
#include "serve/relay/upstream.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/net/curl.h"

enum {
    CONNECT_MS = 10000,
    SILENT_MS = 600000,
    TICK_MS = 500,
    HEAD_MAX = 1 << 18 // bytes of an answer's head
};

struct upstream {
    struct http *h;
    struct curl curl;
    struct str base; // without a slash and without /v1 at its end
    struct str key;  // "Bearer ..."
    int connect_ms, silent_ms;
    CURLM *multi;
    struct http_alarm *alarm, *tick;
    struct upstream_call *calls;
};

struct upstream_call {
    struct upstream *u;
    struct upstream_call *prev, *next;
    struct upstream_events events;
    void *arg;
    CURL *easy;
    struct curl_slist *fields; // sent
    struct str lines;          // of the answer's head, as far as it has come
    struct http_head head;     // status >= 200: the caller has it
    struct err unread;         // why it is none
    bool held;                 // the caller takes no more for now
    double progress;           // ms, of the newest byte
    char why[CURL_ERROR_SIZE];
};

static void free_call(struct upstream_call *c) {
    struct upstream *u = c->u;
    if (c->prev)
        c->prev->next = c->next;
    else
        u->calls = c->next;
    if (c->next)
        c->next->prev = c->prev;
    if (c->easy) {
        u->curl.multi_remove_handle(u->multi, c->easy);
        u->curl.easy_cleanup(c->easy);
    }
    u->curl.slist_free_all(c->fields);
    str_fini(&c->lines);
    http_head_fini(&c->head);
    free(c);
}

static void end_call(struct upstream_call *c, const struct api_error *why) {
    struct upstream_events events = c->events;
    void *arg = c->arg;
    events.end(arg, why);
    free_call(c);
}

static void describe_failure(const struct upstream_call *c, CURLcode code, struct api_error *why) {
    const char *name = c->u->base.data, *said = c->unread.code ? c->unread.text
                                                : c->why[0]    ? c->why
                                                               : c->u->curl.easy_strerror(code);
    curl_off_t connected = 0;
    c->u->curl.easy_getinfo(c->easy, CURLINFO_PRETRANSFER_TIME_T, &connected);
    if (code == CURLE_OPERATION_TIMEDOUT)
        api_fail(why, 504, "upstream_timeout",
                 "the upstream %.200s did not accept a connection within %d ms", name,
                 c->u->connect_ms);
    else if (code == CURLE_GOT_NOTHING)
        api_fail(why, 502, "upstream_failed",
                 "the upstream %.200s closed the connection without an answer", name);
    else if (c->head.status >= 200 && !c->unread.code)
        api_fail(why, 502, "upstream_failed", "the upstream %.200s broke off its answer: %.200s",
                 name, said);
    else if (connected > 0)
        api_fail(why, 502, "upstream_failed", "the upstream %.200s gave no answer: %.200s", name,
                 said);
    else
        api_fail(why, 502, "upstream_unreachable", "the upstream %.200s cannot be reached: %.200s",
                 name, said);
}

// Reports calls that have ended. Not from inside libcurl.
static void report_ended_calls(struct upstream *u) {
    int left;
    for (CURLMsg *m; (m = u->curl.multi_info_read(u->multi, &left));) {
        struct upstream_call *c = NULL;
        struct api_error why;
        CURLcode code = m->data.result;
        if (m->msg != CURLMSG_DONE ||
            u->curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&c) || !c)
            continue;
        if (code)
            describe_failure(c, code, &why);
        end_call(c, code ? &why : NULL);
    }
}

static void on_ready(void *arg, int fd, bool readable, bool writable) {
    struct upstream *u = arg;
    int running;
    u->curl.multi_socket_action(
        u->multi, fd, (readable ? CURL_CSELECT_IN : 0) | (writable ? CURL_CSELECT_OUT : 0),
        &running);
    report_ended_calls(u);
}

static void on_alarm(void *arg) {
    struct upstream *u = arg;
    int running;
    u->curl.multi_socket_action(u->multi, CURL_SOCKET_TIMEOUT, 0, &running);
    report_ended_calls(u);
}

// Ends those whose upstream has sent nothing for too long.
static void on_tick(void *arg) {
    struct upstream *u = arg;
    struct api_error why;
    double now = clock_ms();
    for (struct upstream_call *c = u->calls, *next; c; c = next) {
        next = c->next;
        if (c->held || now - c->progress < u->silent_ms)
            continue;
        api_fail(&why, 504, "upstream_timeout", "the upstream %.200s said nothing for %d s",
                 u->base.data, u->silent_ms / 1000);
        end_call(c, &why);
    }
    http_alarm_set(u->tick, u->calls ? TICK_MS : -1);
}

static int on_socket(CURL *easy, curl_socket_t fd, int what, void *arg, void *watch) {
    struct upstream *u = arg;
    struct http_watch *w = watch;
    (void)easy;
    if (what == CURL_POLL_REMOVE) {
        http_watch_end(w);
        u->curl.multi_assign(u->multi, fd, NULL);
        return 0;
    }
    if (!w && !(w = http_watch_begin(u->h, fd, on_ready, u)))
        return -1;
    u->curl.multi_assign(u->multi, fd, w);
    return http_watch_for(w, what != CURL_POLL_OUT, what != CURL_POLL_IN) ? -1 : 0;
}

static int on_timeout(CURLM *multi, long ms, void *arg) {
    struct upstream *u = arg;
    (void)multi;
    http_alarm_set(u->alarm, ms);
    return 0;
}

// One line of a head: of the answer's, of one with status 1xx before it, or of what follows chunks.
static size_t on_head(char *line, size_t size, size_t count, void *arg) {
    struct upstream_call *c = arg;
    size_t n = size * count;
    c->progress = clock_ms();
    if (c->head.status >= 200)
        return n;
    if (n > 5 && !strncasecmp(line, "HTTP/", 5))
        str_clear(&c->lines);
    size_t text = n; // without the end of the line, which may be a bare LF, as libcurl has it
    while (text && (line[text - 1] == '\n' || line[text - 1] == '\r'))
        text--;
    str_append(&c->lines, line, text);
    str_append(&c->lines, "\r\n", 2);
    if (c->lines.failed || c->lines.len > HEAD_MAX)
        return 0;
    if (text)
        return n;
    http_head_fini(&c->head);
    if (http_head_parse_response(&c->head, c->lines.data, c->lines.len, &c->unread))
        return 0;
    if (c->head.status >= 200)
        c->events.head(c->arg, &c->head);
    return n;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    struct upstream_call *c = arg;
    c->progress = clock_ms();
    switch (c->events.body(c->arg, bytes, size * count)) {
    case UPSTREAM_MORE:
        return size * count;
    case UPSTREAM_PAUSE:
        c->held = true;
        return CURL_WRITEFUNC_PAUSE;
    case UPSTREAM_STOP:
        break;
    }
    return 0;
}

static bool put_line(struct upstream_call *c, const char *line) {
    struct curl_slist *more = c->u->curl.slist_append(c->fields, line);
    if (more)
        c->fields = more;
    return more != NULL;
}

static bool put_field(struct upstream_call *c, const char *name, const char *value) {
    struct str line = {0};
    str_printf(&line, *value ? "%s: %s" : "%s;", name, value); // libcurl's word for an empty one
    bool ok = !line.failed && put_line(c, line.data);
    str_fini(&line);
    return ok;
}

static bool put_fields(struct upstream_call *c, const struct upstream_request *r) {
    // What libcurl would send by itself is left out.
    bool typed = false, ok = put_line(c, "Expect:") && put_line(c, "Accept:");
    for (size_t i = 0; i < r->n_fields && ok; i++) {
        typed |= !strcasecmp(r->fields[i].name, "content-type");
        ok = put_field(c, r->fields[i].name, r->fields[i].value);
    }
    if (ok && !typed)
        ok = put_line(c, "Content-Type:");
    if (ok && c->u->key.len)
        ok = put_field(c, "Authorization", c->u->key.data);
    return ok;
}

static bool fill_call(struct upstream_call *c, const struct upstream_request *r) {
    struct str url = {0};
    CURL *y = c->easy;
    str_printf(&url, "%s%s", c->u->base.data, r->path);
    bool ok = !url.failed && put_fields(c, r) && !c->u->curl.easy_setopt(y, CURLOPT_URL, url.data);
    str_fini(&url);
    ok = ok && !c->u->curl.easy_setopt(y, CURLOPT_PRIVATE, c) &&
         !c->u->curl.easy_setopt(y, CURLOPT_CUSTOMREQUEST, r->method) &&
         !c->u->curl.easy_setopt(y, CURLOPT_HTTPHEADER, c->fields);
    if (ok && r->body)
        ok = !c->u->curl.easy_setopt(y, CURLOPT_POST, 1L) &&
             !c->u->curl.easy_setopt(y, CURLOPT_POSTFIELDS, r->body) &&
             !c->u->curl.easy_setopt(y, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->n_body);
    if (!ok)
        return false;
    c->u->curl.easy_setopt(y, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    c->u->curl.easy_setopt(y, CURLOPT_HEADERFUNCTION, on_head);
    c->u->curl.easy_setopt(y, CURLOPT_HEADERDATA, c);
    c->u->curl.easy_setopt(y, CURLOPT_WRITEFUNCTION, on_body);
    c->u->curl.easy_setopt(y, CURLOPT_WRITEDATA, c);
    c->u->curl.easy_setopt(y, CURLOPT_ERRORBUFFER, c->why);
    c->u->curl.easy_setopt(y, CURLOPT_CONNECTTIMEOUT_MS, (long)c->u->connect_ms);
    c->u->curl.easy_setopt(y, CURLOPT_NOSIGNAL, 1L);
    c->u->curl.easy_setopt(y, CURLOPT_PATH_AS_IS, 1L);
    c->u->curl.easy_setopt(y, CURLOPT_PROXY, ""); // not the one of the environment
    c->u->curl.easy_setopt(y, CURLOPT_TCP_NODELAY, 1L);
    return true;
}

int upstream_start(struct upstream *u, const struct upstream_request *r,
                   const struct upstream_events *events, void *arg, struct upstream_call **out,
                   struct err *e) {
    struct upstream_call *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a request to the upstream");
    *c = (struct upstream_call){
        .u = u, .next = u->calls, .events = *events, .arg = arg, .progress = clock_ms()};
    if (c->next)
        c->next->prev = c;
    u->calls = c;
    c->easy = u->curl.easy_init();
    if (!c->easy || !fill_call(c, r) || u->curl.multi_add_handle(u->multi, c->easy)) {
        free_call(c);
        return err_set(e, ERR_MEMORY, "no memory for a request to the upstream");
    }
    http_alarm_set(u->tick, TICK_MS);
    *out = c;
    return 0;
}

void upstream_resume(struct upstream_call *c) {
    if (!c->held)
        return;
    c->held = false;
    c->progress = clock_ms();
    c->u->curl.easy_pause(c->easy, CURLPAUSE_CONT);
}

void upstream_cancel(struct upstream_call *c) {
    if (c)
        free_call(c);
}

// The address, without the prefix of request paths.
static int set_base(struct upstream *u, const char *base, struct err *e) {
    CURLU *url = u->curl.url();
    char *host = NULL, *user = NULL, *query = NULL, *scheme = NULL;
    size_t n = strlen(base);
    int rc = 0;
    if (!url)
        return err_set(e, ERR_MEMORY, "no memory for the upstream's address");
    if (u->curl.url_set(url, CURLUPART_URL, base, 0) ||
        u->curl.url_get(url, CURLUPART_HOST, &host, 0) ||
        u->curl.url_get(url, CURLUPART_SCHEME, &scheme, 0) ||
        (strcasecmp(scheme, "http") != 0 && strcasecmp(scheme, "https") != 0))
        rc = err_set(e, ERR_USAGE,
                     "the upstream's address must look like http://127.0.0.1:8000 or "
                     "https://host/v1, not '%.200s'",
                     strchr(base, '@') ? "(one with an @)" : base);
    else if (!u->curl.url_get(url, CURLUPART_USER, &user, 0))
        rc = err_set(e, ERR_USAGE,
                     "the upstream's address holds a name or password before the @; give a key "
                     "apart from it");
    else if (!u->curl.url_get(url, CURLUPART_QUERY, &query, 0) || strchr(base, '#'))
        rc = err_set(e, ERR_USAGE, "the upstream's address ends with its path, without ? and #");
    while (n > 0 && base[n - 1] == '/')
        n--;
    if (n > 3 && !strncmp(base + n - 3, "/v1", 3))
        n -= 3;
    while (n > 0 && base[n - 1] == '/')
        n--;
    str_append(&u->base, base, n);
    u->curl.free(host);
    u->curl.free(user);
    u->curl.free(query);
    u->curl.free(scheme);
    u->curl.url_cleanup(url);
    return rc;
}

static int set_key(struct upstream *u, const char *key, struct err *e) {
    for (const char *p = key; *p; p++)
        if ((unsigned char)*p <= ' ' || *p == 0x7F)
            return err_set(e, ERR_USAGE, "the upstream's key holds a blank or control character");
    str_printf(&u->key, "Bearer %s", key);
    return 0;
}

static int open_client(struct upstream *u, struct http *h, const struct upstream_options *o,
                       struct err *e) {
    u->h = h;
    u->connect_ms = o->connect_ms > 0 ? o->connect_ms : CONNECT_MS;
    u->silent_ms = o->silent_ms > 0 ? o->silent_ms : SILENT_MS;
    int rc = set_base(u, o->base, e);
    if (!rc && o->key)
        rc = set_key(u, o->key, e);
    u->multi = u->curl.multi_init();
    u->alarm = http_alarm_create(h, on_alarm, u);
    u->tick = http_alarm_create(h, on_tick, u);
    if (!rc && (!u->multi || !u->alarm || !u->tick || u->base.failed || u->key.failed))
        rc = err_set(e, ERR_MEMORY, "no memory for the client of the upstream");
    if (rc)
        return rc;
    u->curl.multi_setopt(u->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    u->curl.multi_setopt(u->multi, CURLMOPT_SOCKETDATA, u);
    u->curl.multi_setopt(u->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    u->curl.multi_setopt(u->multi, CURLMOPT_TIMERDATA, u);
    return 0;
}

int upstream_create(struct upstream **out, struct http *h, const struct upstream_options *o,
                    struct err *e) {
    struct upstream *u = calloc(1, sizeof *u);
    *out = NULL;
    if (!u)
        return err_set(e, ERR_MEMORY, "no memory for the client of the upstream");
    int rc = curl_load(&u->curl, "requests cannot be passed on", e);
    if (rc) {
        free(u);
        return rc;
    }
    if ((rc = open_client(u, h, o, e)))
        upstream_destroy(u);
    else
        *out = u;
    return rc;
}

void upstream_destroy(struct upstream *u) {
    if (!u)
        return;
    while (u->calls)
        free_call(u->calls);
    if (u->multi)
        u->curl.multi_cleanup(u->multi);
    http_alarm_destroy(u->alarm);
    http_alarm_destroy(u->tick);
    u->curl.global_cleanup();
    str_fini(&u->base);
    str_fini(&u->key);
    free(u);
}

const char *upstream_name(const struct upstream *u) {
    return u->base.data;
}

bool upstream_has_key(const struct upstream *u) {
    return u->key.len > 0;
}
