// SPDX-License-Identifier: Apache-2.0
// What is new of a reply: a list of pieces, each of which may begin a part, add text to it and end
// it. Parts do not overlap and come in the reply's order: reasoning, content, calls of tools. A
// reader goes through the pieces and clears them, or lets them gather to the end.
#ifndef COPPICE_SERVE_REPLY_PIECES_H
#define COPPICE_SERVE_REPLY_PIECES_H

#include "base/str.h"
#include "text/tools/set.h"

enum reply_part { REPLY_REASONING, REPLY_CONTENT, REPLY_CALL };

struct reply_piece {
    enum reply_part part;
    const struct tool *tool; // REPLY_CALL: borrowed from the request's tools
    bool begins, ends;       // the first one of its part, the last one
    bool whole;              // ends: nothing of the part is missing
    size_t at, n;            // in text. Of a call: JSON, or the input of a freeform tool
    int64_t from;            // the first token of the reply that its text can come of
};

// Zeroed is valid: nothing came.
struct reply_pieces {
    struct reply_piece *list; // [n]
    int n, cap;
    struct str text; // of the pieces
    bool open;       // the newest part has not ended
    enum reply_part part;
    const struct tool *tool;
    int64_t from; // of pieces to come
    bool failed;  // memory was short: something is missing
};
void reply_pieces_fini(struct reply_pieces *r);
void reply_pieces_clear(struct reply_pieces *r); // they have been read

// Adds text of a part: to the open one where it is of that kind, else to a new one.
void reply_pieces_add(struct reply_pieces *r, enum reply_part part, const char *s, size_t n);
void reply_pieces_call(struct reply_pieces *r, const struct tool *t); // begins one
void reply_pieces_end(struct reply_pieces *r, bool whole);            // ends the open part, if any

#endif
