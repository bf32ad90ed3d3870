// SPDX-License-Identifier: Apache-2.0
// From the token ids of a reply to its text, as they come: bytes, reasoning parted from content,
// whole characters, stop strings found in each of both and cut off with what follows. The engine's
// stop hook and the writer of the answer run the same steps over the same tokens, so that counts
// and text agree. It writes no JSON.
#ifndef COPPICE_SERVE_REPLY_TEXT_H
#define COPPICE_SERVE_REPLY_TEXT_H

#include "serve/stop_match.h"
#include "text/reasoning.h"
#include "text/tokenizer.h"

enum reply_part { REPLY_REASONING, REPLY_CONTENT, REPLY_PARTS };

struct reply_text {
    const struct tokenizer *t; // borrowed
    struct reasoning reasoning;
    struct stop_match stops[REPLY_PARTS];
    struct str bytes, raw[REPLY_PARTS]; // scratch
    struct str out[REPLY_PARTS];        // the caller reads and clears them
    enum reply_part at;                 // of the newest token
    int64_t reasoning_tokens;
    int found; // index of the stop string that ended it, -1
};

// t NULL: tokens have no text. stops must outlive it. inside: the prompt ended in an open block of
// reasoning. ERR_MEMORY.
int reply_text_init(struct reply_text *r, const struct tokenizer *t, enum reasoning_family family,
                    bool inside, const struct stop_set *stops, struct err *e);
void reply_text_fini(struct reply_text *r); // zeroed is allowed

// Appends what this token decides to out[]. True once a stop string is complete; later tokens add
// nothing.
bool reply_text_push(struct reply_text *r, int32_t id);
// The reply has ended: appends what was held back.
void reply_text_end(struct reply_text *r);
bool reply_text_failed(const struct reply_text *r); // memory was short: out[] lacks something

#endif
