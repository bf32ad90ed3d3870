// SPDX-License-Identifier: Apache-2.0
// Server-sent events (WHATWG HTML, section 9.2) into a buffer: one event a call, its data one line
// of JSON.
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

#endif
