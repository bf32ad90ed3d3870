// SPDX-License-Identifier: Apache-2.0
// Cuts texts into chunks of about 32 tokens that end at borders: they are what is scored and kept
// or left out as a whole. Chunks do not depend on scores or budgets.
#ifndef COPPICE_COMPRESS_SELECT_CHUNKS_H
#define COPPICE_COMPRESS_SELECT_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// A piece of the text that is cut by itself, such as the words of a message. In order, disjoint.
struct select_part {
    size_t begin, end; // bytes
    bool whole;        // always kept, as one chunk
};

// Tokens of a text: token i is bytes at[i] to at[i + 1], in rising order; it belongs to the chunk
// that its last byte is in. A token without bytes belongs to the one before it.
struct select_text {
    const char *text;
    size_t n;
    const size_t *at; // [n_tokens + 1]
    int64_t n_tokens;
    const struct select_part *parts;
    int64_t n_parts;
};

struct chunk {
    size_t begin, end;    // bytes
    int64_t first, count; // tokens
    int64_t part;
};

struct chunks {
    struct chunk *c;
    int64_t n, cap;
};

// Chunks of all parts, in order; together they cover them. A chunk ends at the best border between
// 16 and 48 tokens, at the first line or sentence up to 128, else at a word; only a run without
// borders of more than BORDER_WORD_MAX bytes is cut between characters.
int chunks_make(const struct select_text *t, struct chunks *out, struct err *e);
void chunks_fini(struct chunks *c);

#endif
