// SPDX-License-Identifier: Apache-2.0
// Where a text may be cut, and its chunks of about 32 tokens that end there: they are what is
// scored and kept or left out as a whole. A border lies after lines, sentences and words, never
// inside a character, a word or a tag; after the white space that follows what it ends, but before
// the indentation of a line, so that pieces put together again read as they did. Chunks do not
// depend on scores or budgets, and borders on no language.
#ifndef COPPICE_COMPRESS_SELECT_CHUNKS_H
#define COPPICE_COMPRESS_SELECT_CHUNKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// From worst to best.
enum border {
    BORDER_NONE,
    BORDER_MARK,     // after a comma, a semicolon or a closing bracket
    BORDER_WORD,     // after white space, or next to an ideograph
    BORDER_LINE,     // after a line end
    BORDER_SENTENCE, // after a sentence or an empty line
    BORDER_END,      // the end of the text
};

// A run without any border that is longer than that many bytes is no word (base64, a file of one
// line): it may be cut between characters.
enum { BORDER_WORD_MAX = 1024 };

// Where to cut at or near byte `at` of text[0 .. n), at <= n: within the white space around it, or
// at the next character.
size_t border_near(const char *text, size_t n, size_t at);
// The kind of border byte `at` <= n is; 0 is none.
enum border border_kind(const char *text, size_t n, size_t at);
// Whether a character begins at byte `at` that does not belong to the one before.
bool border_of_character(const char *text, size_t n, size_t at);

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
