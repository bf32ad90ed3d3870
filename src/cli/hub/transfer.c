// SPDX-License-Identifier: Apache-2.0
// The client over libcurl's multi interface, in one thread; see transfer.h. A file is cut into
// slices of some MiB, of which a few are on their way or wait in memory for those before them.
// Redirects are followed here, so that a token goes to no other host. The library is loaded when it
// is needed, as it brings thirty others.
#include "cli/hub/transfer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/clock.h"
#include "base/net/curl.h"
#include "base/num.h"
#include "base/str.h"
#include "cli/cli.h"

enum {
    CONNECTIONS = 4,
    SLICES = 8, // on their way or waiting
    SLICE_MIN = 1 << 20,
    SLICE_MAX = 16 << 20,
    SLICES_OF_FILE = 16, // at least that many, where they are not below SLICE_MIN
    FAILURES = 6,        // in a row, without a byte in between
    REDIRECTS = 8,
    POLL_MS = 100,
    CONNECT_MS = 30000,
    SILENT_S = 60,
    WAIT_MAX_S = 120, // that a server may ask for
    SAID_S = 3,       // a wait from which on the user is told
    BACKOFF_MS = 150
};

struct transfer {
    struct curl curl;
    CURLM *multi;
};

// What the head of an answer says.
struct head {
    long status;
    int64_t from, total; // of Content-Range; -1
    double wait;         // seconds of Retry-After; -1
    char etag[160], code[64], said[160];
};

struct slice {
    struct run *r;
    CURL *easy; // NULL: not on its way
    struct curl_slist *fields;
    unsigned char *bytes;
    int64_t from, want, got; // got == want: waits for those before it
    int64_t seen;            // of an answer that is the whole file
    int64_t before, had;     // got and job->have before the request
    struct head head;
    bool used, moved; // moved: the request goes where a redirect led
    char why[CURL_ERROR_SIZE];
};

struct run {
    struct transfer *t;
    struct transfer_job *j;
    struct err *e;
    int rc;
    struct slice slices[SLICES];
    struct str url;   // where the bytes are
    bool trusted;     // it may get the token
    bool settled;     // the server has answered a range
    bool whole;       // it has no ranges
    int64_t next;     // where no slice begins yet
    int64_t chunk;    // bytes of a slice
    int64_t start;    // job->have at the begin
    double not_until; // ms
    int failures, redirects;
};

static void put_field(char *to, size_t size, const char *line, size_t n, size_t skip) {
    while (skip < n && (line[skip] == ' ' || line[skip] == '\t'))
        skip++;
    while (n > skip && strchr("\r\n \t", line[n - 1]))
        n--;
    snprintf(to, size, "%.*s", (int)(n - skip), line + skip);
}

static bool is_field(const char *line, size_t n, const char *name, char *value, size_t size) {
    size_t k = strlen(name);
    if (n <= k || line[k] != ':' || strncasecmp(line, name, k) != 0)
        return false;
    put_field(value, size, line, n, k + 1);
    return true;
}

static size_t on_head(char *line, size_t size, size_t count, void *arg) {
    struct slice *s = arg;
    struct head *h = &s->head;
    size_t n = size * count;
    char v[160];
    long long from, total;
    if (n > 5 && !strncmp(line, "HTTP/", 5)) { // a head begins
        *h = (struct head){.from = -1, .total = -1, .wait = -1};
        const char *space = memchr(line, ' ', n);
        h->status = space ? strtol(space, NULL, 10) : 0;
    } else if (is_field(line, n, "content-range", v, sizeof v)) {
        if (sscanf(v, "bytes %lld-%*d/%lld", &from, &total) == 2) {
            h->from = from;
            h->total = total;
        }
    } else if (is_field(line, n, "retry-after", v, sizeof v)) {
        char *end;
        double wait = strtod(v, &end);
        h->wait = end != v && wait >= 0 ? wait : 1; // a date: try again in a second, and see
    } else if (is_field(line, n, "x-linked-etag", v, sizeof v)) {
        const char *q = strchr(v, '"');
        snprintf(h->etag, sizeof h->etag, "%s", q ? q + 1 : v);
        h->etag[strcspn(h->etag, "\"")] = '\0';
    } else if (!is_field(line, n, "x-error-code", h->code, sizeof h->code)) {
        is_field(line, n, "x-error-message", h->said, sizeof h->said);
    }
    return n;
}

// An answer that is the whole file, from its begin: what the sink has is passed over.
static size_t take_whole(struct slice *s, const char *bytes, size_t n) {
    struct run *r = s->r;
    struct transfer_job *j = r->j;
    int64_t begin = s->seen, end = begin + (int64_t)n;
    s->seen = end;
    r->whole = true;
    if (end > (j->size < 0 ? j->until : j->size)) {
        r->rc = err_set(r->e, ERR_FORMAT, "%s sends more than %lld bytes", j->url,
                        (long long)(j->size < 0 ? j->until : j->size));
        return 0;
    }
    int64_t take_end = min_i64(end, j->until);
    if (take_end > j->have) {
        size_t some = (size_t)(take_end - j->have);
        r->rc = j->sink(j->arg, bytes + (j->have - begin), some, r->e);
        j->have = take_end;
    }
    return r->rc || (j->size >= 0 && j->have >= j->until) ? 0 : n;
}

static size_t on_body(char *bytes, size_t size, size_t count, void *arg) {
    struct slice *s = arg;
    struct run *r = s->r;
    size_t n = size * count;
    if (r->rc)
        return 0;
    if (s->head.status == 200)
        return take_whole(s, bytes, n);
    if (s->head.status != 206)
        return n;
    bool right =
        s->head.from == s->from + s->before && (s->head.total < 0 || s->head.total == r->j->size);
    if (!right || s->got + (int64_t)n > s->want) {
        r->rc = err_set(r->e, ERR_FORMAT,
                        "%s answers with other bytes than it was asked for; the file may have "
                        "changed: try again",
                        r->j->url);
        return 0;
    }
    memcpy(s->bytes + s->got, bytes, n);
    s->got += (int64_t)n;
    r->settled = true;
    r->redirects = 0;
    return n;
}

static void end_slice(struct slice *s) {
    struct curl *c = &s->r->t->curl;
    if (s->easy) {
        c->multi_remove_handle(s->r->t->multi, s->easy);
        c->easy_cleanup(s->easy);
    }
    c->slist_free_all(s->fields);
    s->easy = NULL;
    s->fields = NULL;
}

static void drop_slice(struct slice *s) {
    end_slice(s);
    free(s->bytes);
    s->bytes = NULL;
    s->used = false;
}

static bool set_options(struct slice *s, const char *range) {
    struct run *r = s->r;
    struct curl *c = &r->t->curl;
    CURL *y = s->easy;
    const char *silent = getenv("HF_HUB_DOWNLOAD_TIMEOUT");
    long silent_s = silent ? strtol(silent, NULL, 10) : 0;
    bool ok = !c->easy_setopt(y, CURLOPT_URL, r->url.data);
    if (range)
        ok = ok && !c->easy_setopt(y, CURLOPT_RANGE, range);
#if LIBCURL_VERSION_NUM >= 0x075500
    if (c->easy_setopt(y, CURLOPT_PROTOCOLS_STR, "http,https")) // the library may be an older one
#endif
        ok = ok && !c->easy_setopt(
                       y, (CURLoption)181 /* CURLOPT_PROTOCOLS, which newer headers call old */,
                       3L /* http, https */);
    c->easy_setopt(y, CURLOPT_HTTPHEADER, s->fields);
    c->easy_setopt(y, CURLOPT_PRIVATE, s);
    c->easy_setopt(y, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1); // a connection each
    c->easy_setopt(y, CURLOPT_HEADERFUNCTION, on_head);
    c->easy_setopt(y, CURLOPT_HEADERDATA, s);
    c->easy_setopt(y, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(y, CURLOPT_WRITEDATA, s);
    c->easy_setopt(y, CURLOPT_ERRORBUFFER, s->why);
    c->easy_setopt(y, CURLOPT_CONNECTTIMEOUT_MS, (long)CONNECT_MS);
    c->easy_setopt(y, CURLOPT_LOW_SPEED_LIMIT, 1L);
    c->easy_setopt(y, CURLOPT_LOW_SPEED_TIME, silent_s > 0 ? silent_s : (long)SILENT_S);
    c->easy_setopt(y, CURLOPT_NOSIGNAL, 1L);
    return ok;
}

// Sends the request for what a slice lacks.
static void start_slice(struct slice *s) {
    struct run *r = s->r;
    struct curl *c = &r->t->curl;
    struct str field = {0};
    char range[64];
    s->before = s->got;
    s->had = r->j->have;
    s->moved = strcmp(r->url.data, r->j->url) != 0;
    s->seen = 0;
    s->head = (struct head){.from = -1, .total = -1, .wait = -1};
    s->why[0] = '\0';
    snprintf(range, sizeof range, "%lld-%lld", (long long)(s->from + s->got),
             (long long)(s->from + s->want - 1));
    s->easy = c->easy_init();
    if (r->trusted && r->j->token)
        str_printf(&field, "Authorization: Bearer %s", r->j->token);
    if (field.len)
        s->fields = c->slist_append(NULL, field.data);
    s->fields = c->slist_append(s->fields, "User-Agent: coppice");
    bool ok = s->easy && s->fields && !field.failed &&
              set_options(s, r->j->size < 0 || r->whole ? NULL : range) &&
              !c->multi_add_handle(r->t->multi, s->easy);
    if (!ok)
        r->rc = err_set(r->e, ERR_MEMORY, "no memory for a request to %s", r->j->url);
    str_fini(&field);
}

static void begin_slice(struct slice *s, struct run *r) {
    bool ranged = r->j->size >= 0 && !r->whole;
    *s = (struct slice){.r = r, .used = true, .from = r->next};
    s->want = ranged ? min_i64(r->chunk, r->j->until - r->next) : 0;
    r->next = ranged ? r->next + s->want : INT64_MAX;
    s->bytes = ranged ? malloc((size_t)s->want) : NULL;
    if (ranged && !s->bytes)
        r->rc =
            err_set(r->e, ERR_MEMORY, "no memory for %lld bytes of a download", (long long)s->want);
    else
        start_slice(s);
}

// scheme://host:port in small letters.
static void put_origin(char to[256], const char *url) {
    const char *host = strstr(url, "://");
    size_t n = host ? (size_t)(host + 3 - url) : 0;
    n += strcspn(url + n, "/?#");
    snprintf(to, 256, "%.*s", (int)n, url);
    for (char *s = to; *s; s++)
        *s = (char)(*s >= 'A' && *s <= 'Z' ? *s + 32 : *s);
}

static void move_to(struct run *r, const char *url) {
    char from[256], to[256];
    put_origin(from, r->j->url);
    put_origin(to, url);
    r->trusted = !strcmp(from, to) && strlen(to) < 255;
    bool same = r->url.data && !strcmp(r->url.data, url);
    if (!same) {
        struct str copy = {0};
        str_puts(&copy, url);
        str_fini(&r->url);
        r->url = copy;
    }
    if (r->url.failed)
        r->rc = err_set(r->e, ERR_MEMORY, "no memory for an address");
}

static void follow_redirect(struct run *r, struct slice *s) {
    char *to = NULL;
    r->t->curl.easy_getinfo(s->easy, CURLINFO_REDIRECT_URL, &to);
    bool secure = !strncasecmp(r->url.data, "https:", 6);
    if (!to || strncasecmp(to, "http", 4) != 0)
        r->rc = err_set(r->e, ERR_FORMAT, "%s is redirected (%ld) to no address", r->j->url,
                        s->head.status);
    else if (secure && strncasecmp(to, "https:", 6) != 0)
        r->rc = err_set(r->e, ERR_FORMAT, "%s is redirected to %s, which is not encrypted",
                        r->j->url, to);
    else if (++r->redirects > REDIRECTS)
        r->rc =
            err_set(r->e, ERR_FORMAT, "%s is redirected more than %d times", r->j->url, REDIRECTS);
    else
        move_to(r, to);
}

static void fail(struct run *r, const struct slice *s, CURLcode code) {
    r->j->status = s->head.status;
    snprintf(r->j->code, sizeof r->j->code, "%s", s->head.code);
    if (s->head.wait > WAIT_MAX_S)
        r->rc = err_set(r->e, ERR_IO, "%s answers %ld%s; it asks to wait %.0f s", r->j->url,
                        s->head.status, s->head.status == 429 ? ": too many requests" : "",
                        s->head.wait);
    else if (s->head.status && s->head.status != 200 && s->head.status != 206)
        r->rc = err_set(r->e, ERR_IO, "%s answers %ld%s%s", r->j->url, s->head.status,
                        s->head.said[0] ? ": " : "", s->head.said);
    else
        r->rc = err_set(r->e, ERR_IO, "%s cannot be fetched: %s", r->j->url,
                        s->why[0]          ? s->why
                        : code == CURLE_OK ? "the answer ends before the file does"
                                           : r->t->curl.easy_strerror(code));
}

// Whether an answer, or none, may be another one soon.
static bool may_pass(const struct slice *s, CURLcode code) {
    long status = s->head.status;
    if (s->head.wait > WAIT_MAX_S)
        return false;
    if (status >= 400)
        return status == 408 || status == 429 || status >= 500 || s->moved;
    return code != CURLE_UNSUPPORTED_PROTOCOL && code != CURLE_URL_MALFORMAT &&
           code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE;
}

static bool is_unreachable(const struct slice *s, CURLcode code) {
    return !s->head.status &&
           (code == CURLE_COULDNT_RESOLVE_HOST || code == CURLE_COULDNT_CONNECT ||
            code == CURLE_COULDNT_RESOLVE_PROXY);
}

// An attempt has failed: another one follows, later where nothing had come.
static void try_again(struct run *r, struct slice *s, CURLcode code) {
    bool progress = r->j->size >= 0 && (s->got > s->before || (s->seen && r->j->have > s->had));
    bool first = r->j->have == r->start && is_unreachable(s, code);
    if (clock_ms() >= r->not_until) // once for requests that fail together
        r->failures = progress ? 0 : r->failures + 1;
    if (r->failures > (first ? 1 : FAILURES) || !may_pass(s, code)) {
        fail(r, s, code);
        return;
    }
    double ms = progress ? 0 : BACKOFF_MS * (double)(1 << r->failures);
    if (s->head.wait >= 0)
        ms = s->head.wait * 1000;
    if (s->head.wait >= SAID_S)
        fprintf(stderr, "coppice: the server asks to wait %.0f s\n", s->head.wait);
    r->not_until = clock_ms() + ms;
    if (s->head.status >= 400) // an address that has expired, perhaps
        move_to(r, r->j->url);
    if (r->j->size < 0 && r->j->have) {
        r->j->reset(r->j->arg);
        r->j->have = 0;
    }
}

static void finish_slice(struct slice *s, CURLcode code) {
    struct run *r = s->r;
    struct transfer_job *j = r->j;
    long status = s->head.status;
    bool known = j->etag && s->head.etag[0] && (strlen(s->head.etag) == 64);
    if (r->rc) {
        end_slice(s);
        return;
    }
    if (known && strcmp(j->etag, s->head.etag) != 0)
        r->rc = err_set(r->e, ERR_MISMATCH,
                        "%s is another file now than the one that was listed: try again", j->url);
    else if (status >= 300 && status < 400)
        follow_redirect(r, s);
    else if (status == 200 && (j->size < 0 ? code == CURLE_OK : j->have >= j->until))
        r->failures = 0;
    else if (status == 206 && s->got == s->want)
        r->failures = 0;
    else
        try_again(r, s, code);
    end_slice(s);
    if (s->bytes)
        return;
    s->used = j->size < 0 ? status != 200 || code : j->have < j->until;
    if (!s->used && j->size < 0)
        j->until = j->have; // all of it
}

static struct slice *slice_at(struct run *r, int64_t from) {
    for (int i = 0; i < SLICES; i++)
        if (r->slices[i].used && r->slices[i].from == from)
            return &r->slices[i];
    return NULL;
}

// Hands complete slices on, in order.
static void hand_on(struct run *r) {
    for (struct slice *s; !r->rc && !r->whole && (s = slice_at(r, r->j->have));) {
        if (!s->bytes || s->got < s->want)
            return;
        r->rc = r->j->sink(r->j->arg, s->bytes, (size_t)s->want, r->e);
        r->j->have += s->want;
        drop_slice(s);
    }
}

// One request for all, in place of those for ranges.
static void keep_one(struct run *r) {
    struct slice *kept = NULL;
    for (int i = 0; i < SLICES; i++) {
        struct slice *s = &r->slices[i];
        if (s->used && s->easy && s->seen > 0 && !kept)
            kept = s;
        else if (s->used && s->bytes)
            drop_slice(s);
    }
    if (kept) {
        free(kept->bytes);
        kept->bytes = NULL;
        kept->want = kept->got = 0;
    }
    r->next = kept ? INT64_MAX : r->next;
}

static void start_slices(struct run *r) {
    int busy = 0, most = r->settled ? CONNECTIONS : 1;
    if (clock_ms() < r->not_until)
        return;
    for (int i = 0; i < SLICES; i++)
        busy += r->slices[i].easy != NULL;
    for (int i = 0; i < SLICES && busy < most && !r->rc; i++) { // those that were cut first
        struct slice *s = &r->slices[i];
        if (s->used && !s->easy && (!s->bytes || s->got < s->want)) {
            start_slice(s);
            busy++;
        }
    }
    for (int i = 0; i < SLICES && busy < most && r->next < r->j->until && !r->rc; i++)
        if (!r->slices[i].used) {
            begin_slice(&r->slices[i], r);
            busy++;
        }
}

static void read_messages(struct run *r) {
    struct curl *c = &r->t->curl;
    int left;
    for (CURLMsg *m; (m = c->multi_info_read(r->t->multi, &left));) {
        struct slice *s = NULL;
        CURLcode code = m->data.result;
        if (m->msg == CURLMSG_DONE &&
            !c->easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, (char **)&s) && s)
            finish_slice(s, code);
    }
}

static int run_until_done(struct run *r) {
    struct transfer_job *j = r->j;
    struct curl *c = &r->t->curl;
    while (!r->rc && j->have < j->until) {
        int running;
        bool was = r->whole;
        c->multi_perform(r->t->multi, &running);
        if (r->whole && !was)
            keep_one(r);
        read_messages(r);
        hand_on(r);
        if (j->progress)
            j->progress(j->arg, j->have);
        if (cli_interrupted() && !r->rc)
            r->rc = err_set(r->e, ERR_CANCELLED, "interrupted");
        if (!r->rc && j->have < j->until)
            start_slices(r);
        if (!r->rc && j->have < j->until)
            c->multi_poll(r->t->multi, NULL, 0, POLL_MS, NULL);
    }
    return r->rc;
}

int transfer_run(struct transfer *t, struct transfer_job *job, struct err *e) {
    struct run *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(e, ERR_MEMORY, "no memory for a download");
    r->t = t;
    r->j = job;
    r->e = e;
    r->next = r->start = job->have;
    r->chunk = max_i64(SLICE_MIN, min_i64(SLICE_MAX, job->size / SLICES_OF_FILE));
    job->status = 0;
    job->code[0] = '\0';
    move_to(r, job->url);
    int rc = r->rc ? r->rc : run_until_done(r);
    for (int i = 0; i < SLICES; i++)
        if (r->slices[i].used)
            drop_slice(&r->slices[i]);
    str_fini(&r->url);
    free(r);
    return rc;
}

int transfer_open(struct transfer **out, struct err *e) {
    struct transfer *t = calloc(1, sizeof *t);
    *out = NULL;
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for a download");
    int rc = curl_load(&t->curl, "models cannot be fetched", e);
    if (rc) {
        free(t);
        return rc;
    }
    t->multi = t->curl.multi_init();
    if (t->multi)
        *out = t;
    else
        transfer_close(t);
    return *out ? 0 : err_set(e, ERR_MEMORY, "no memory for a download");
}

void transfer_close(struct transfer *t) {
    if (!t)
        return;
    if (t->multi)
        t->curl.multi_cleanup(t->multi);
    t->curl.global_cleanup();
    free(t);
}
