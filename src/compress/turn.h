// SPDX-License-Identifier: Apache-2.0
// Which words of a conversation are the question: the last user turn, or, where that turn is itself
// the long text, the closing lines of it. They are kept whole, and their last tokens are what the
// rest is scored for.
#ifndef COPPICE_COMPRESS_TURN_H
#define COPPICE_COMPRESS_TURN_H

#include "compress/reading.h"

enum {
    TURN_MAX = 1024,    // tokens of a turn that is whole whatever the rest
    TURN_CLOSING = 256, // tokens of closing lines at most
    TURN_QUERIES = 64,
};

struct turn {
    int64_t message; // -1: there is no text
    // Parts of the reading before `part` are not of it; of `part` what is behind byte `begin` is.
    int64_t part;
    size_t begin;
    int64_t first, end; // its tokens, up to the end of the message
};

// A turn is whole if it has at most `whole` tokens or at most half of all. Otherwise it is closing:
// the last part, if that has at most `whole` tokens; else of that part what follows the last empty
// line within TURN_CLOSING tokens, else the last sentences of at least 16 tokens within
// TURN_QUERIES, else TURN_QUERIES tokens.
struct turn turn_find(const struct reading *r, int64_t whole);

#endif
