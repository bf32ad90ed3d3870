// SPDX-License-Identifier: Apache-2.0
// See message.h. A head is copied once and cut into strings in place. Refused are, besides what
// breaks the grammar: lines that end in a bare LF, folded lines, space before a colon, control
// characters in values, a Content-Length or Host that comes twice, encodings other than chunked,
// and in requests a Content-Length together with a Transfer-Encoding. Chunks are read by one state
// per place in the grammar, one byte at a time except for the data; extensions and trailers are
// skipped, within bounds.
#include "serve/http/message.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/num.h"
#include "base/utf8.h"

static bool is_token(unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool all_token(const char *s) {
    const char *p = s;
    while (is_token((unsigned char)*p))
        p++;
    return p > s && !*p;
}

size_t http_head_end(const char *bytes, size_t n, size_t seen) {
    size_t from = seen > 3 ? seen - 3 : 0;
    while (from + 4 <= n) {
        const char *cr = memchr(bytes + from, '\r', n - from - 3);
        if (!cr)
            return 0;
        from = (size_t)(cr - bytes);
        if (memcmp(cr, "\r\n\r\n", 4) == 0)
            return from + 4;
        from++;
    }
    return 0;
}

static int refuse_head(int *status, int code, struct err *e, const char *text) {
    *status = code;
    return err_set(e, ERR_FORMAT, "%s", text);
}

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Decodes %XX in place; false for a broken one and for what becomes no printable UTF-8.
static bool decode_path(char *s) {
    char *to = s;
    for (const char *p = s; *p; p++) {
        char c = *p;
        if (c == '%') {
            int high = hex(p[1]), low = high < 0 ? -1 : hex(p[2]);
            if (low < 0)
                return false;
            c = (char)(high << 4 | low);
            p += 2;
        }
        if ((unsigned char)c < ' ' || c == 0x7F)
            return false;
        *to++ = c;
    }
    *to = '\0';
    return utf8_valid(s, (size_t)(to - s));
}

// Whether a name with its port holds nothing but what such a name may. What two readers take for
// different hosts ("a@b", "a/b", "a b") is none.
static bool is_authority(const char *s) {
    for (; *s; s++)
        if (!is_token((unsigned char)*s) && !strchr("[]:(),;=", *s))
            return false;
    return true;
}

// target: what stands between method and version. Sets path, query and, from the absolute form,
// host.
static int read_target(struct http_head *h, char *target, int *status, struct err *e) {
    for (const char *p = target; *p; p++)
        if ((unsigned char)*p <= ' ' || (unsigned char)*p >= 0x7F || *p == '#')
            return refuse_head(status, 400, e,
                               "the request's target holds a character that it must not");
    if (strncasecmp(target, "http://", 7) == 0 || strncasecmp(target, "https://", 8) == 0) {
        char *host = strstr(target, "//") + 2;
        size_t n = strcspn(host, "/?");
        // The host moves one to the left, over a slash that is no longer needed, to get its NUL.
        memmove(host - 1, host, n);
        (host - 1)[n] = '\0';
        h->host = host - 1;
        target = host + n;
        if (!*h->host || !is_authority(h->host))
            return refuse_head(status, 400, e, "the request's target names no host");
    } else if (*target != '/' && strcmp(target, "*") != 0) {
        return refuse_head(status, 400, e, "the request's target must begin with '/'");
    }
    char *query = strchr(target, '?');
    if (query) {
        *query = '\0';
        h->query = query + 1;
    }
    if (!decode_path(target))
        return refuse_head(status, 400, e, "the request's path is not UTF-8 in percent-encoding");
    h->path = *target ? target : "/";
    return 0;
}

static int read_version(struct http_head *h, const char *version, int *status, struct err *e) {
    if (strncmp(version, "HTTP/", 5) != 0 || version[5] < '0' || version[5] > '9' ||
        version[6] != '.' || version[7] < '0' || version[7] > '9' || version[8])
        return refuse_head(status, 400, e,
                           "the request line does not end in a version such as HTTP/1.1");
    if (version[5] != '1')
        return refuse_head(status, 505, e, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    h->minor = version[7] == '0' ? 0 : 1;
    h->keep_alive = h->minor > 0;
    return 0;
}

static int read_request_line(struct http_head *h, char *line, int *status, struct err *e) {
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version)
        return refuse_head(status, 400, e, "the request line is not METHOD TARGET VERSION");
    *target++ = '\0';
    *version++ = '\0';
    if (!all_token(line))
        return refuse_head(status, 400, e, "the request's method is no word");
    // The version first: of other versions nothing else is known.
    int rc = read_version(h, version, status, e);
    if (rc)
        return rc;
    static const char *const methods[] = {"GET",   "HEAD",    "POST",  "PUT",  "DELETE",
                                          "PATCH", "OPTIONS", "TRACE", "QUERY"};
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
        if (strcmp(line, methods[i]) == 0)
            h->method = methods[i];
    if (!*h->method)
        return refuse_head(status, 501, e, "this method is not known here");
    h->bodiless = strcmp(h->method, "HEAD") == 0;
    if (h->bodiless)
        h->method = "GET";
    return read_target(h, target, status, e);
}

// A line "Name: value" into *f.
static int read_field(struct http_field *f, char *line, int *status, struct err *e) {
    char *colon = strchr(line, ':');
    if (*line == ' ' || *line == '\t')
        return refuse_head(status, 400, e,
                           "a header line begins with a space; folded lines are not read");
    if (!colon)
        return refuse_head(status, 400, e, "a header line has no colon");
    *colon = '\0';
    if (!all_token(line))
        return refuse_head(status, 400, e, "a header's name holds a character that it must not");
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    for (const char *p = value; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7F)
            return refuse_head(status, 400, e, "a header's value holds a control character");
    for (char *p = line; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p | 0x20);
    *f = (struct http_field){line, value};
    return 0;
}

static int read_length(struct http_head *h, const char *value, int *status, struct err *e) {
    int64_t n = 0;
    const char *p = value;
    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(n, 10, &n) || __builtin_add_overflow(n, *p - '0', &n))
            return refuse_head(status, 413, e,
                               "the Content-Length is larger than anything taken here");
    if (*p || p == value)
        return refuse_head(status, 400, e, "the Content-Length is not one number");
    h->length = n;
    return 0;
}

bool http_has_word(const char *list, const char *word) {
    size_t n = strlen(word);
    while (*list) {
        list += strspn(list, " \t,");
        size_t len = strcspn(list, " \t,");
        if (len == n && strncasecmp(list, word, n) == 0)
            return true;
        list += len;
    }
    return false;
}

// The meaning of one field for the message's frame. seen: bits of the fields that may come once
// only.
static int read_frame_field(struct http_head *h, const struct http_field *f, unsigned *seen,
                            int *status, struct err *e) {
    static const char *const once[] = {"host", "content-length", "transfer-encoding"};
    for (unsigned i = 0; i < sizeof once / sizeof *once; i++) {
        if (strcmp(f->name, once[i]) != 0)
            continue;
        if (*seen & 1u << i) {
            *status = 400;
            return err_set(e, ERR_FORMAT, "the header %s comes more than once", once[i]);
        }
        *seen |= 1u << i;
    }
    if (strcmp(f->name, "content-length") == 0) {
        return read_length(h, f->value, status, e);
    } else if (strcmp(f->name, "transfer-encoding") == 0) {
        if (strcasecmp(f->value, "chunked") != 0)
            return refuse_head(status, 501, e, "the only Transfer-Encoding known here is chunked");
        h->chunked = true;
    } else if (strcmp(f->name, "connection") == 0) {
        h->closes |= http_has_word(f->value, "close");
        h->keep_alive |= http_has_word(f->value, "keep-alive");
        h->keep_alive &= !h->closes; // whichever comes first
    }
    return 0;
}

// Fields of requests only.
static int read_request_field(struct http_head *h, const struct http_field *f, int *status,
                              struct err *e) {
    if (strcmp(f->name, "host") == 0) {
        if (!is_authority(f->value))
            return refuse_head(status, 400, e,
                               "the Host header holds a character that it must not");
        h->host = h->host ? h->host : f->value;
    } else if (strcmp(f->name, "expect") == 0) {
        if (strcasecmp(f->value, "100-continue") != 0)
            return refuse_head(status, 417, e, "the only Expect known here is 100-continue");
        h->expects_continue = h->minor > 0;
    }
    return 0;
}

static int check_request_frame(const struct http_head *h, unsigned seen, int *status,
                               struct err *e) {
    enum { SEEN_HOST = 1 };
    if (h->minor > 0 && !(seen & SEEN_HOST))
        return refuse_head(status, 400, e, "the Host header is missing");
    if (h->chunked && h->length >= 0)
        return refuse_head(status, 400, e,
                           "Content-Length and Transfer-Encoding exclude each other");
    if (h->chunked && h->minor == 0)
        return refuse_head(status, 400, e, "HTTP/1.0 has no Transfer-Encoding");
    return 0;
}

// Cuts the line at *at, which ends in CRLF, off the head; NULL for a NUL, a bare CR or a bare LF.
static char *next_line(char **at, char *end) {
    char *line = *at, *lf = memchr(line, '\n', (size_t)(end - line));
    if (!lf || lf == line || lf[-1] != '\r')
        return NULL;
    lf[-1] = '\0';
    *at = lf + 1;
    return strlen(line) == (size_t)(lf - 1 - line) && !strchr(line, '\r') ? line : NULL;
}

// "HTTP/1.1 200 OK" of a response.
static int read_status_line(struct http_head *h, const char *line, int *status, struct err *e) {
    static const char digits[] = "0123456789";
    if (strncmp(line, "HTTP/1.", 7) != 0 || (line[7] != '0' && line[7] != '1') || line[8] != ' ' ||
        strspn(line + 9, digits) != 3 || line[9] == '0' || (line[12] && line[12] != ' ')) {
        *status = 502;
        return err_set(e, ERR_FORMAT, "the answer begins with '%.60s', which is not HTTP/1.1",
                       line);
    }
    h->minor = line[7] - '0';
    h->keep_alive = h->minor > 0;
    h->status = atoi(line + 9);
    return 0;
}

static int read_lines(struct http_head *h, char *end, bool request, int *status, struct err *e) {
    static const char bad_line[] = "a line of the head does not end in CRLF";
    char *at = h->text, *line = next_line(&at, end);
    if (!line)
        return refuse_head(status, 400, e, bad_line);
    int rc = request ? read_request_line(h, line, status, e) : read_status_line(h, line, status, e);
    unsigned seen = 0;
    while (!rc) {
        line = next_line(&at, end);
        if (!line)
            return refuse_head(status, 400, e, bad_line);
        if (!*line)
            return request ? check_request_frame(h, seen, status, e) : 0;
        if (h->n_fields == HTTP_FIELDS_MAX)
            return refuse_head(status, 431, e, "the head has more than 128 headers");
        struct http_field *f = &h->fields[h->n_fields];
        rc = read_field(f, line, status, e);
        if (!rc) {
            h->n_fields++;
            rc = read_frame_field(h, f, &seen, status, e);
        }
        if (!rc && request)
            rc = read_request_field(h, f, status, e);
    }
    return rc;
}

static int parse_head(struct http_head *head, const char *bytes, size_t n, bool request,
                      int *status, struct err *e) {
    *head = (struct http_head){.method = "", .path = "", .query = "", .length = -1};
    size_t lines = 0;
    for (size_t i = 0; i < n && lines < HTTP_FIELDS_MAX + 1; i++)
        lines += bytes[i] == '\n';
    head->text = malloc(n + 1);
    head->fields = calloc(lines + 1, sizeof *head->fields);
    if (!head->text || !head->fields) {
        *status = 500;
        return err_set(e, ERR_MEMORY, "out of memory for the headers of a message");
    }
    memcpy(head->text, bytes, n);
    head->text[n] = '\0';
    return read_lines(head, head->text + n, request, status, e);
}

int http_head_parse(struct http_head *head, const char *bytes, size_t n, int *status,
                    struct err *e) {
    return parse_head(head, bytes, n, true, status, e);
}

int http_head_parse_response(struct http_head *head, const char *bytes, size_t n, struct err *e) {
    int status;
    return parse_head(head, bytes, n, false, &status, e);
}

void http_head_fini(struct http_head *head) {
    free(head->text);
    free(head->fields);
    *head = (struct http_head){0};
}

const char *http_head_field(const struct http_head *head, const char *name) {
    for (size_t i = 0; i < head->n_fields; i++)
        if (strcmp(head->fields[i].name, name) == 0)
            return head->fields[i].value;
    return NULL;
}

enum {
    LINE_MAX_BYTES = 256,    // of a size with its extensions
    TRAILER_MAX_BYTES = 8192 // of all trailers
};

enum chunk_state {
    SIZE_FIRST, // the first digit of a chunk's size
    SIZE,
    EXTENSION, // after ';' or space
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, // the first byte of a trailer line, or the CR of the end
    TRAILER,
    TRAILER_LF,
    END_LF
};

// Whether b may follow in the size line; moves to the next state.
static bool read_size_byte(struct http_chunked *c, char b) {
    int digit = c->state == EXTENSION ? -1 : hex(b);
    if (++c->line > LINE_MAX_BYTES)
        return false;
    if (digit >= 0) {
        bool fits = c->left <= UINT64_MAX >> 4;
        c->left = c->left << 4 | (unsigned)digit;
        c->state = SIZE;
        return fits;
    }
    if (c->state == SIZE_FIRST)
        return false;
    if (b == '\r')
        c->state = SIZE_LF;
    else if (c->state == SIZE && b != ';' && b != ' ' && b != '\t')
        return false;
    else
        c->state = EXTENSION;
    return b == '\r' || b == '\t' || ((unsigned char)b >= ' ' && b != 0x7F);
}

static bool read_trailer_byte(struct http_chunked *c, char b) {
    if (++c->line > TRAILER_MAX_BYTES)
        return false;
    if (b == '\r') {
        c->state = c->state == TRAILER_FIRST ? END_LF : TRAILER_LF;
        return true;
    }
    c->state = TRAILER;
    return b == '\t' || ((unsigned char)b >= ' ' && b != 0x7F);
}

static bool read_chunk_byte(struct http_chunked *c, char b) {
    switch ((enum chunk_state)c->state) {
    case SIZE_FIRST:
    case SIZE:
    case EXTENSION:
        return read_size_byte(c, b);
    case SIZE_LF:
        c->state = c->left ? DATA : TRAILER_FIRST;
        c->line = 0;
        return b == '\n';
    case DATA_CR:
        c->state = DATA_LF;
        return b == '\r';
    case DATA_LF:
        c->state = SIZE_FIRST;
        return b == '\n';
    case TRAILER_FIRST:
    case TRAILER:
        return read_trailer_byte(c, b);
    case TRAILER_LF:
        c->state = TRAILER_FIRST;
        return b == '\n';
    case END_LF:
        c->done = true;
        return b == '\n';
    case DATA:
        break;
    }
    return false;
}

int http_chunked_take(struct http_chunked *c, const char *in, size_t n, size_t *used, int *status,
                      struct err *e) {
    size_t i = 0;
    for (*used = 0; i < n && !c->done; *used = i) {
        if (c->state != DATA) {
            if (!read_chunk_byte(c, in[i++])) {
                *status = 400;
                return err_set(e, ERR_FORMAT, "the chunks of the body are broken");
            }
            continue;
        }
        size_t piece = (size_t)c->left < n - i ? (size_t)c->left : n - i;
        if (c->left > c->limit - min_size(c->body->len, c->limit)) {
            *status = 413;
            return err_set(e, ERR_FORMAT, "the request's body is larger than %zu bytes", c->limit);
        }
        str_append(c->body, in + i, piece);
        if (c->body->failed) {
            *status = 503;
            return err_set(e, ERR_MEMORY, "out of memory for the body of a request");
        }
        i += piece;
        c->left -= piece;
        c->state = c->left ? DATA : DATA_CR;
    }
    return 0;
}
