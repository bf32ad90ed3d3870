// SPDX-License-Identifier: Apache-2.0
// A file of the engine's passes and requests in Chrome's trace-event JSON format, for
// chrome://tracing, Perfetto and the like. What is written last ends the JSON each time, so that
// the file is whole whenever the process is interrupted. One thread writes. Format: "Trace Event
// Format", Google, 2016.
#ifndef COPPICE_ENGINE_LOOP_TRACE_H
#define COPPICE_ENGINE_LOOP_TRACE_H

#include <stdint.h>

#include "base/err.h"

struct trace;

// Makes the file, or empties it. ERR_IO, ERR_MEMORY.
int trace_open(struct trace **out, const char *path, struct err *e);
void trace_close(struct trace *t); // NULL is allowed, here and below

// Times are of clock_ms.
struct trace_pass {
    double start, ms;
    double draft_ms;        // of ms
    int members, decoding;  // that took part, and of these decoded
    int64_t rows, prompt;   // in all; tokens of prompts
    int64_t guesses, taken; // verified; tokens that the pass chose
    int waiting, parked;    // requests that did not take part
};
void trace_pass(struct trace *t, const struct trace_pass *p);

// A request that has ended; times that never came are those of the next one.
struct trace_request {
    int64_t number;
    double submitted, joined, chosen, ended;
    int64_t prompt, cached, tokens;
    const char *reason; // a word of its own: no quotes
};
void trace_request(struct trace *t, const struct trace_request *r);

// What could not be written, once; 0 else. Nothing more is written after that.
int trace_failed(struct trace *t, struct err *e);

#endif
