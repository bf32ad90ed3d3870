// SPDX-License-Identifier: Apache-2.0
// From the token ids of a reply to its parts, as they come: bytes, reasoning parted from content,
// calls of tools found in the content, whole characters, stop strings found in reasoning and
// content and cut off with what follows. It writes no JSON of answers.
#ifndef COPPICE_SERVE_REPLY_TEXT_H
#define COPPICE_SERVE_REPLY_TEXT_H

#include "base/str.h"
#include "serve/reply/stop_match.h"
#include "text/chat/reasoning.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tools/calls.h"
#include "text/tools/set.h"
// What is new of a reply is a list of deltas, each of which may begin a part, add text to it and
// end it. Parts do not overlap and come in the reply's order. A reader goes through the deltas and
// clears them, or lets them gather to the end.
enum reply_part { REPLY_REASONING, REPLY_CONTENT, REPLY_CALL };

struct reply_delta {
    enum reply_part part;
    const struct tool *tool; // REPLY_CALL: borrowed from the request's tools
    bool begins, ends;       // the first one of its part, the last one
    bool whole;              // ends: nothing of the part is missing
    size_t at, n;            // in text. Of a call: JSON, or the input of a freeform tool
    int64_t from;            // the first token of the reply that its text can come of
};

// Zeroed is valid: nothing came.
struct reply_deltas {
    struct reply_delta *list; // [n]
    int n;
    int64_t cap;
    struct str text; // of the deltas
    bool open;       // the newest part has not ended
    enum reply_part part;
    const struct tool *tool;
    int64_t from; // of deltas to come
    bool failed;  // memory was short: something is missing
};
void reply_deltas_clear(struct reply_deltas *r); // they have been read

// How replies to a prompt are read; everything is borrowed.
struct reply_rules {
    enum reasoning_family family;
    bool inside; // the prompt ended in an open block of reasoning
    const struct stop_set *stops;
    const struct tool_set *tools; // NULL: none, calls are text
    enum tool_family calls;       // how they are written
    bool constrained;             // under a grammar (struct tool_calls)
    bool only;                    // it is calls alone (struct tool_calls)
    bool one_call;                // the reply ends with its first call
    const int32_t *stop_ids;      // [n_stop_ids] tokens that end it
    int n_stop_ids;
    bool keeps_stop;    // the text of what ended it, a stop string or such a token, is part of it
    int64_t min_tokens; // stop strings that this many of the first ones complete do not count
};

struct reply_text {
    const struct tokenizer *t; // borrowed
    struct reasoning reasoning;
    struct tool_calls calls;
    struct stop_match stops[2];       // of reasoning, of content
    struct str bytes, raw[2];         // scratch
    struct str released;              // scratch: what stop strings let through
    struct reply_deltas deltas;       // the caller reads and clears the deltas
    enum reply_part at;               // of the newest token
    int64_t tokens, reasoning_tokens; // read so far
    bool after_call;                  // a call has ended, and no text has come since
    int found;                        // index of the stop string that ended it, -1
    bool one_call, over;              // over: later tokens add nothing
    const int32_t *stop_ids;          // [n_stop_ids] borrowed, whose text is left out
    int n_stop_ids;
    int64_t min_tokens;
};

// t NULL: tokens have no text. ERR_MEMORY.
int reply_text_init(struct reply_text *r, const struct tokenizer *t,
                    const struct reply_rules *rules, struct err *e);
void reply_text_fini(struct reply_text *r); // zeroed is allowed

// Adds what this token decides. True once the reply is over, by a stop string or its only call.
bool reply_text_push(struct reply_text *r, int32_t id);
// The reply has ended: adds what was held back and ends the last part. cut: by a limit or a cancel.
void reply_text_end(struct reply_text *r, bool cut);
bool reply_text_failed(const struct reply_text *r); // memory was short: something is missing

#endif
