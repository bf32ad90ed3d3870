// SPDX-License-Identifier: Apache-2.0
// Server-sent events; see sse.h.
#include "serve/http/sse.h"

#include <string.h>

enum { LINE_MAX_BYTES = 64 << 20 };

void sse_write(struct str *out, const char *event, struct json_writer *w) {
    if (event) {
        str_puts(out, "event: ");
        str_puts(out, event);
        str_putc(out, '\n');
    }
    str_puts(out, "data: ");
    if (w->out.data) // the writer escapes line ends
        str_append(out, w->out.data, w->out.len);
    str_puts(out, "\n\n");
    out->failed |= w->out.failed;
    str_clear(&w->out);
    w->comma = false;
}

void sse_done(struct str *out) {
    str_puts(out, "data: [DONE]\n\n");
}

int sse_read(struct sse_reader *r, const char *bytes, size_t n, sse_line_fn *fn, void *arg,
             struct err *e) {
    int rc = 0;
    for (size_t at = 0; !rc && at < n;) {
        if (r->after_cr && bytes[at] == '\n') { // the second half of a line's end
            r->after_cr = false;
            at++;
            continue;
        }
        size_t end = at;
        while (end < n && bytes[end] != '\n' && bytes[end] != '\r')
            end++;
        str_append(&r->line, bytes + at, end - at);
        if (r->line.failed)
            return err_set(e, ERR_MEMORY, "no memory for an event");
        if (r->line.len > LINE_MAX_BYTES)
            return err_set(e, ERR_LIMIT, "a line of an event is over %d bytes", LINE_MAX_BYTES);
        r->after_cr = end < n && bytes[end] == '\r';
        if (end == n)
            break;
        at = end + 1;
        rc = fn(arg, r->line.data, r->line.len, e);
        str_clear(&r->line);
    }
    return rc;
}

const char *sse_data(const char *line, size_t n) {
    if (n < 4 || memcmp(line, "data", 4) != 0 || (n > 4 && line[4] != ':'))
        return NULL;
    return line + (n == 4 ? 4 : n > 5 && line[5] == ' ' ? 6 : 5);
}

void sse_reader_fini(struct sse_reader *r) {
    str_fini(&r->line);
}
