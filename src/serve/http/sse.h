// SPDX-License-Identifier: Apache-2.0
// Server-sent events (WHATWG HTML, section 9.2): written into a buffer, one event a call, its data
// one line of JSON; and read as lines, however the bytes are cut.
#ifndef COPPICE_SERVE_HTTP_SSE_H
#define COPPICE_SERVE_HTTP_SSE_H

#include "base/json/json.h"
#include "base/str.h"

#define SSE_TYPE "text/event-stream; charset=utf-8"

// Appends an event and empties the writer for the next one. event: NULL for none. A failed
// allocation of either shows in out->failed.
void sse_write(struct str *out, const char *event, struct json_writer *w);

// The end of a stream as OpenAI clients know it.
void sse_done(struct str *out);

// The lines of a stream. Zeroed is valid and has read nothing.
struct sse_reader {
    struct str line; // the one that has not ended yet
    bool after_cr;
};
// Takes a line without its end, which is CR, LF or both; the empty one ends an event. An error ends
// the reading.
typedef int sse_line_fn(void *arg, const char *line, size_t n, struct err *e);
// Gives every line that ends within the n bytes to fn. ERR_LIMIT: one is over 64 MiB; ERR_MEMORY;
// those of fn.
int sse_read(struct sse_reader *r, const char *bytes, size_t n, sse_line_fn *fn, void *arg,
             struct err *e);
// Where the data of a line begins; NULL: the line is of something else. It goes on to the line's
// end.
const char *sse_data(const char *line, size_t n);
void sse_reader_fini(struct sse_reader *r);

#endif
