// SPDX-License-Identifier: Apache-2.0
// A conversation as a scorer reads it: tokens with the marks of ChatML where its vocabulary has
// them (else texts apart by an empty line), and for every token of a text the bytes it stands for.
#ifndef COPPICE_COMPRESS_READING_H
#define COPPICE_COMPRESS_READING_H

#include "base/str.h"
#include "compress/compress.h"

enum reading_role { READING_OTHER, READING_SYSTEM, READING_USER };

// A text: bytes begin to end of the reading's text, tokens first to first + count - 1.
struct reading_part {
    int64_t message, part;
    size_t begin, end;
    int64_t first, count;
};

// Zeroed is valid and empty.
struct reading {
    struct token_list ids; // what the scorer reads
    struct str text;       // all texts, one behind the other
    // Tokens of texts: byte offsets, ids, and places in ids.
    int64_t n;
    size_t *at;     // [n + 1]
    int32_t *token; // [n]
    int64_t *place; // [n]
    int64_t cap[3];
    struct reading_part *parts; // those of at least one byte
    int64_t n_parts, parts_cap;
    enum reading_role *roles; // [n_messages]
    int64_t n_messages, roles_cap;
    struct str scratch;
};

// Errors as compress_messages.
int reading_of(struct reading *r, const struct tokenizer *t, const struct compress_conversation *v,
               struct err *e);
// Of a rendered prompt: control tokens, and what stands between <|im_start|> and the end of that
// line, are of no text; each <|im_start|> begins a message. ERR_USAGE: an id outside of the
// vocabulary.
int reading_of_tokens(struct reading *r, const struct tokenizer *t, const struct compress_ids *in,
                      struct err *e);
void reading_fini(struct reading *r);

#endif
