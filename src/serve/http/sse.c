// SPDX-License-Identifier: Apache-2.0
// Server-sent events; see sse.h.
#include "serve/http/sse.h"

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
