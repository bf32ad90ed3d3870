// SPDX-License-Identifier: Apache-2.0
// HTTP responses and server-sent events from bytes that arrive; see http.h.
#include "cli/bench/url/http.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { HEADER_MAX = 64 << 10, EVENT_MAX = 16 << 20 };

static int status_line(struct url_http *h, struct err *e) {
    int major, minor, status;
    if (sscanf(h->line.data, "HTTP/%1d.%1d %3d", &major, &minor, &status) != 3 || major != 1 ||
        status < 100)
        return err_set(e, ERR_FORMAT, "the answer begins with '%.60s', which is not HTTP/1.1",
                       h->line.data);
    h->status = status;
    h->close = minor == 0;
    h->chunked = h->lengthy = h->event_stream = false;
    h->state = URL_HTTP_HEADER;
    return 0;
}

// The value of a header line with this name, or NULL.
static const char *value_of(const char *line, const char *name) {
    size_t n = strlen(name);
    if (strncasecmp(line, name, n) != 0 || line[n] != ':')
        return NULL;
    return line + n + 1 + strspn(line + n + 1, " \t");
}

// A body length in digits of a base, below 2^60.
static int length_of(const char *digits, int base, int64_t *out, struct err *e) {
    char *end = NULL;
    unsigned long long n = strtoull(digits, &end, base);
    if (end == digits || n >> 60 || strchr("+- \t", digits[0]))
        return err_set(e, ERR_FORMAT, "the answer has the length '%.40s'", digits);
    *out = (int64_t)n;
    return 0;
}

// The empty line behind the headers: how the body ends is known now.
static void begin_body(struct url_http *h) {
    if (h->status < 200) {
        h->state = URL_HTTP_STATUS;
    } else if (h->status == 204 || h->status == 304 || (h->lengthy && !h->left && !h->chunked)) {
        h->state = URL_HTTP_DONE;
    } else if (h->chunked) {
        h->state = URL_HTTP_CHUNK_SIZE;
    } else if (h->lengthy) {
        h->state = URL_HTTP_BODY;
    } else {
        h->state = URL_HTTP_UNTIL_CLOSE;
        h->close = true;
    }
}

static int header_line(struct url_http *h, struct err *e) {
    const char *line = h->line.data, *v;
    if (!line[0]) {
        begin_body(h);
        return 0;
    }
    if ((v = value_of(line, "content-length"))) {
        h->lengthy = true;
        return length_of(v, 10, &h->left, e);
    }
    if ((v = value_of(line, "transfer-encoding")))
        h->chunked = strcasecmp(v, "chunked") == 0;
    else if ((v = value_of(line, "connection")))
        h->close = strcasecmp(v, "close") == 0;
    else if ((v = value_of(line, "content-type")))
        h->event_stream = strncasecmp(v, "text/event-stream", 17) == 0;
    return 0;
}

static int whole_line(struct url_http *h, struct err *e) {
    switch (h->state) {
    case URL_HTTP_STATUS:
        return status_line(h, e);
    case URL_HTTP_HEADER:
        return header_line(h, e);
    case URL_HTTP_CHUNK_SIZE:
        h->state = URL_HTTP_CHUNK;
        if (length_of(h->line.data, 16, &h->left, e))
            return ERR_FORMAT;
        if (!h->left)
            h->state = URL_HTTP_TRAILER;
        return 0;
    case URL_HTTP_CHUNK_END:
        h->state = URL_HTTP_CHUNK_SIZE;
        return h->line.len ? err_set(e, ERR_FORMAT, "a chunk of the answer is longer than it says")
                           : 0;
    default:
        if (!h->line.len)
            h->state = URL_HTTP_DONE;
        return 0;
    }
}

// Adds to the line that is being read; *used: how many of the n bytes belong to it.
static int push_line(struct url_http *h, const char *bytes, size_t n, size_t *used, struct err *e) {
    const char *end = memchr(bytes, '\n', n);
    *used = end ? (size_t)(end - bytes) + 1 : n;
    if (h->line.len + *used > HEADER_MAX)
        return err_set(e, ERR_FORMAT, "the answer has a header line over %d bytes", HEADER_MAX);
    str_append(&h->line, bytes, end ? *used - 1 : n);
    if (!end)
        return h->line.failed ? err_set(e, ERR_MEMORY, "no memory for a header") : 0;
    if (h->line.len && h->line.data[h->line.len - 1] == '\r')
        h->line.data[--h->line.len] = 0;
    str_puts(&h->line, ""); // an empty line is a string too
    if (h->line.failed)
        return err_set(e, ERR_MEMORY, "no memory for a header");
    int rc = whole_line(h, e);
    str_clear(&h->line);
    return rc;
}

static size_t push_body(struct url_http *h, size_t n) {
    if (h->state == URL_HTTP_UNTIL_CLOSE)
        return n;
    size_t used = (int64_t)n < h->left ? n : (size_t)h->left;
    h->left -= (int64_t)used;
    if (!h->left)
        h->state = h->state == URL_HTTP_BODY ? URL_HTTP_DONE : URL_HTTP_CHUNK_END;
    return used;
}

int url_http_push(struct url_http *h, const char *bytes, size_t n, url_bytes_fn *fn, void *arg,
                  struct err *e) {
    int rc = 0;
    for (size_t at = 0, used = 0; !rc && at < n; at += used) {
        if (h->state == URL_HTTP_DONE)
            return err_set(e, ERR_FORMAT, "bytes follow the end of the answer");
        if (h->state == URL_HTTP_BODY || h->state == URL_HTTP_CHUNK ||
            h->state == URL_HTTP_UNTIL_CLOSE) {
            used = push_body(h, n - at);
            rc = fn(arg, bytes + at, used, e);
        } else {
            rc = push_line(h, bytes + at, n - at, &used, e);
        }
    }
    return rc;
}

int url_http_close(struct url_http *h, struct err *e) {
    if (h->state == URL_HTTP_UNTIL_CLOSE)
        h->state = URL_HTTP_DONE;
    if (h->state == URL_HTTP_DONE)
        return 0;
    return err_set(e, ERR_IO, "the connection was closed %s",
                   h->status ? "in the middle of the answer" : "without an answer");
}

void url_http_fini(struct url_http *h) {
    str_fini(&h->line);
    *h = (struct url_http){0};
}

// One line of the stream: the data of the event so far grows, or the event ends.
static int event_line(struct url_events *s, url_bytes_fn *fn, void *arg, struct err *e) {
    const char *line = s->line.len ? s->line.data : "";
    size_t n = s->line.len;
    if (!n) {
        int rc = s->any ? fn(arg, s->data.len ? s->data.data : "", s->data.len, e) : 0;
        s->any = false;
        str_clear(&s->data);
        return rc;
    }
    if (n >= 4 && memcmp(line, "data", 4) == 0 && (n == 4 || line[4] == ':')) {
        size_t at = n < 5 ? n : n > 5 && line[5] == ' ' ? 6 : 5;
        if (s->any)
            str_putc(&s->data, '\n');
        str_append(&s->data, line + at, n - at);
        s->any = true;
    }
    return 0;
}

int url_events_push(struct url_events *s, const char *bytes, size_t n, url_bytes_fn *fn, void *arg,
                    struct err *e) {
    int rc = 0;
    for (size_t at = 0; !rc && at < n;) {
        if (s->after_cr && bytes[at] == '\n') { // the second half of a line's end
            s->after_cr = false;
            at++;
            continue;
        }
        size_t end = at;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r')
            end++;
        str_append(&s->line, bytes + at, end - at);
        s->after_cr = end < n && bytes[end] == '\r';
        at = end + 1;
        if (s->line.len + s->data.len > EVENT_MAX)
            return err_set(e, ERR_LIMIT, "an event of the answer is over %d bytes", EVENT_MAX);
        if (end == n)
            break;
        rc = event_line(s, fn, arg, e);
        str_clear(&s->line);
    }
    return !rc && (s->line.failed || s->data.failed)
               ? err_set(e, ERR_MEMORY, "no memory for an event")
               : rc;
}

void url_events_fini(struct url_events *s) {
    str_fini(&s->line);
    str_fini(&s->data);
    *s = (struct url_events){0};
}
