// SPDX-License-Identifier: Apache-2.0
// The JSON of answers, whole and in chunks, byte shapes as OpenAI clients read them, with the names
// that llama-server's clients know beside. Plain values in, JSON out: it knows no requests, no
// threads and no connections.
#ifndef COPPICE_SERVE_REPLY_JSON_H
#define COPPICE_SERVE_REPLY_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/json/json.h"
#include "compress/prefill.h"
#include "engine/batch/request.h"
#include "serve/reply/logprobs.h"

struct answer_head {
    const char *id, *object, *model;
    int64_t created; // seconds since 1970
};
// Opens the answer's object and writes what all answers begin with; jw_end(w, '}') closes it.
void answer_open(struct json_writer *w, const struct answer_head *h);

// A text with its length; NULL: none.
struct answer_text {
    const char *s;
    size_t n;
};

// A call of a tool, or a piece of one.
struct answer_call {
    int index;        // among the calls of the choice
    const char *id;   // NULL: a piece of one that has begun
    const char *name; // where there is an id
    bool custom;      // its text is free, not JSON
    struct answer_text text;
};

struct answer_choice {
    int64_t index;
    bool role;                       // chat: says that the assistant speaks
    struct answer_text reasoning;    // chat
    struct answer_text content;      // chat: content, completions: text
    const struct answer_call *calls; // [n_calls] chat
    int n_calls;
    bool older;                             // the call stands in function_call
    const char *finish;                     // NULL: goes on
    const struct answer_logprobs *logprobs; // [n_logprobs] NULL: none
    int n_logprobs;
};
// Elements of `choices`: of a chunk (delta) and of a whole answer (message) of a chat, and of a
// completion, where both have the same shape.
void answer_delta(struct json_writer *w, const struct answer_choice *c);
void answer_message(struct json_writer *w, const struct answer_choice *c);
void answer_completion(struct json_writer *w, const struct answer_choice *c);

// Sums over all choices of a request.
struct answer_totals {
    int64_t prompt, cached, tokens, reasoning, drafted, accepted, steps;
    int64_t choices; // each one's first token came with its prompt
    double queue_ms, prompt_ms, decode_ms;
    struct prefill_report compression; // of the prompt, in the model's tokens
};
double answer_accept_length(const struct answer_totals *t); // tokens per pass; 0 without passes
double answer_speed(const struct answer_totals *t); // tokens per second while decoding; 0: unknown
// "usage": {...} and "timings": {...}
void answer_usage(struct json_writer *w, const struct answer_totals *t);
void answer_timings(struct json_writer *w, const struct answer_totals *t);

// "stop" or "length"
const char *answer_finish(enum end_reason r);

#endif
