// SPDX-License-Identifier: Apache-2.0
// See head.h. The head is copied once and cut into strings in place. Refused are, beside what
// breaks the grammar: lines that end in a bare LF, folded lines, space before a colon, control
// characters in values, a Content-Length or Host that comes twice, a Content-Length beside a
// Transfer-Encoding, and encodings other than chunked.
#include "serve/http/head.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

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

static int refuse(int *status, int code, struct err *e, const char *text) {
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
static bool decode(char *s) {
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
            return refuse(status, 400, e,
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
            return refuse(status, 400, e, "the request's target names no host");
    } else if (*target != '/' && strcmp(target, "*") != 0) {
        return refuse(status, 400, e, "the request's target must begin with '/'");
    }
    char *query = strchr(target, '?');
    if (query) {
        *query = '\0';
        h->query = query + 1;
    }
    if (!decode(target))
        return refuse(status, 400, e, "the request's path is not UTF-8 in percent-encoding");
    h->path = *target ? target : "/";
    return 0;
}

static int read_version(struct http_head *h, const char *version, int *status, struct err *e) {
    if (strncmp(version, "HTTP/", 5) != 0 || version[5] < '0' || version[5] > '9' ||
        version[6] != '.' || version[7] < '0' || version[7] > '9' || version[8])
        return refuse(status, 400, e,
                      "the request line does not end in a version such as HTTP/1.1");
    if (version[5] != '1')
        return refuse(status, 505, e, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    h->minor = version[7] == '0' ? 0 : 1;
    h->keep_alive = h->minor > 0;
    return 0;
}

static int read_request_line(struct http_head *h, char *line, int *status, struct err *e) {
    char *target = strchr(line, ' '), *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version)
        return refuse(status, 400, e, "the request line is not METHOD TARGET VERSION");
    *target++ = '\0';
    *version++ = '\0';
    if (!all_token(line))
        return refuse(status, 400, e, "the request's method is no word");
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
        return refuse(status, 501, e, "this method is not known here");
    h->bodiless = strcmp(h->method, "HEAD") == 0;
    if (h->bodiless)
        h->method = "GET";
    return read_target(h, target, status, e);
}

// A line "Name: value" into *f.
static int read_field(struct http_field *f, char *line, int *status, struct err *e) {
    char *colon = strchr(line, ':');
    if (*line == ' ' || *line == '\t')
        return refuse(status, 400, e,
                      "a header line begins with a space; folded lines are not read");
    if (!colon)
        return refuse(status, 400, e, "a header line has no colon");
    *colon = '\0';
    if (!all_token(line))
        return refuse(status, 400, e, "a header's name holds a character that it must not");
    char *value = colon + 1 + strspn(colon + 1, " \t"), *end = value + strlen(value);
    while (end > value && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    *end = '\0';
    for (const char *p = value; *p; p++)
        if (((unsigned char)*p < ' ' && *p != '\t') || *p == 0x7F)
            return refuse(status, 400, e, "a header's value holds a control character");
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
            return refuse(status, 413, e, "the Content-Length is larger than anything taken here");
    if (*p || p == value)
        return refuse(status, 400, e, "the Content-Length is not one number");
    h->length = n;
    return 0;
}

// Whether a comma-separated list holds the word, in any case.
static bool lists(const char *list, const char *word) {
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

// What one field says about the request's frame. seen: bits of the fields that may come once only.
static int take_field(struct http_head *h, const struct http_field *f, unsigned *seen, int *status,
                      struct err *e) {
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
    if (strcmp(f->name, "host") == 0) {
        if (!is_authority(f->value))
            return refuse(status, 400, e, "the Host header holds a character that it must not");
        h->host = h->host ? h->host : f->value;
    } else if (strcmp(f->name, "content-length") == 0) {
        return read_length(h, f->value, status, e);
    } else if (strcmp(f->name, "transfer-encoding") == 0) {
        if (strcasecmp(f->value, "chunked") != 0)
            return refuse(status, 501, e, "the only Transfer-Encoding known here is chunked");
        h->chunked = true;
    } else if (strcmp(f->name, "connection") == 0) {
        h->closes |= lists(f->value, "close");
        h->keep_alive |= lists(f->value, "keep-alive");
        h->keep_alive &= !h->closes; // whichever comes first
    } else if (strcmp(f->name, "expect") == 0) {
        if (strcasecmp(f->value, "100-continue") != 0)
            return refuse(status, 417, e, "the only Expect known here is 100-continue");
        h->expects_continue = h->minor > 0;
    }
    return 0;
}

static int check_frame(const struct http_head *h, unsigned seen, int *status, struct err *e) {
    enum { SEEN_HOST = 1 };
    if (h->minor > 0 && !(seen & SEEN_HOST))
        return refuse(status, 400, e, "the Host header is missing");
    if (h->chunked && h->length >= 0)
        return refuse(status, 400, e, "Content-Length and Transfer-Encoding exclude each other");
    if (h->chunked && h->minor == 0)
        return refuse(status, 400, e, "HTTP/1.0 has no Transfer-Encoding");
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

static int read_lines(struct http_head *h, char *end, int *status, struct err *e) {
    static const char bad_line[] = "a line of the request's head does not end in CRLF";
    char *at = h->text, *line = next_line(&at, end);
    if (!line)
        return refuse(status, 400, e, bad_line);
    int rc = read_request_line(h, line, status, e);
    unsigned seen = 0;
    while (!rc) {
        line = next_line(&at, end);
        if (!line)
            return refuse(status, 400, e, bad_line);
        if (!*line)
            return check_frame(h, seen, status, e);
        if (h->n_fields == HTTP_FIELDS_MAX)
            return refuse(status, 431, e, "the request has more than 128 headers");
        struct http_field *f = &h->fields[h->n_fields];
        rc = read_field(f, line, status, e);
        if (!rc) {
            h->n_fields++;
            rc = take_field(h, f, &seen, status, e);
        }
    }
    return rc;
}

int http_head_parse(struct http_head *head, const char *bytes, size_t n, int *status,
                    struct err *e) {
    *head = (struct http_head){.method = "", .path = "", .query = "", .length = -1};
    size_t lines = 0;
    for (size_t i = 0; i < n && lines < HTTP_FIELDS_MAX + 1; i++)
        lines += bytes[i] == '\n';
    head->text = malloc(n + 1);
    head->fields = calloc(lines + 1, sizeof *head->fields);
    if (!head->text || !head->fields) {
        *status = 500;
        return err_set(e, ERR_MEMORY, "out of memory for the headers of a request");
    }
    memcpy(head->text, bytes, n);
    head->text[n] = '\0';
    return read_lines(head, head->text + n, status, e);
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
