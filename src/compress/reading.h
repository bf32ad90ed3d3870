// SPDX-License-Identifier: Apache-2.0
// A conversation as a scorer reads it: tokens with the marks of ChatML where its vocabulary has
// them (else texts apart by an empty line), and for every token of a text the bytes it stands for;
// and which words of it are the question.
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
    struct str text;       // all texts, one after the other
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

// Which words of a conversation are the question: the last user turn, or, where that turn is itself
// the long text, the closing lines of it. They are kept whole, and their last tokens are what the
// rest is scored for.

enum {
    TURN_MAX = 1024,    // tokens of a turn that is whole whatever the rest
    TURN_CLOSING = 256, // tokens of closing lines at most
    TURN_QUERIES = 64,
};

struct pass_slice {
    int64_t message; // -1: there is no text
    // Parts of the reading before `part` are not of it; of `part` what is after byte `begin` is.
    int64_t part;
    size_t begin;
    int64_t first, end; // its tokens, up to the end of the message
};

// A turn is whole if it has at most `whole` tokens or at most half of all. Otherwise it is closing:
// the last part, if that has at most `whole` tokens; else of that part what follows the last empty
// line within TURN_CLOSING tokens, else the last sentences of at least 16 tokens within
// TURN_QUERIES, else TURN_QUERIES tokens.
struct pass_slice turn_find(const struct reading *r, int64_t whole);

#endif
