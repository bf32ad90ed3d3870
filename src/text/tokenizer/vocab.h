// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a GGUF file: token texts, the bytes they stand for, types, the named ids and
// the set of tokens that end generation. It reads metadata and cuts no text.
#ifndef COPPICE_TEXT_TOKENIZER_VOCAB_H
#define COPPICE_TEXT_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "base/memory/arena.h"
#include "formats/gguf/gguf.h"

enum vocab_type { // values of tokenizer.ggml.token_type
    VOCAB_NORMAL = 1,
    VOCAB_UNKNOWN,
    VOCAB_CONTROL,
    VOCAB_USER_DEFINED,
    VOCAB_UNUSED,
    VOCAB_BYTE,
};

struct vocab_token {
    const char *text; // as the file spells it
    const char *raw;  // the bytes it stands for
    uint32_t n_text, n_raw;
    uint8_t type; // enum vocab_type
    bool mapped;  // normal, and (byte-level) all of text is in the byte map: text can become it
    bool eog;     // ends generation
};

enum vocab_kind {
    VOCAB_BYTE_LEVEL, // "gpt2": texts are spelled in the byte map
    VOCAB_SCORES,     // "llama": texts have U+2581 for a blank, and scores
    VOCAB_ESCAPED,    // "gemma4": the same texts with merges
};

// A zeroed vocab is valid and empty.
struct vocab {
    struct arena arena;
    struct map by_text;
    struct vocab_token *tokens; // [count]
    uint32_t count;
    int32_t bos, eos, unknown; // -1: none
};

// Reads a vocabulary. Named ids outside the vocabulary count as absent; bos, eos and unknown of one
// with scores are 1, 2 and 0 where the file is silent. Several ids may have one text. ERR_FORMAT:
// texts that are not UTF-8, unknown types, wrong counts. After any error call vocab_fini.
int vocab_read(struct vocab *v, const struct gguf *g, enum vocab_kind kind, struct err *e);

// Id of an exact text, or -1. Of several the lowest control or user-defined one, or the lowest.
int32_t vocab_find(const struct vocab *v, const char *text, size_t n);

// Undoes the byte map of byte-level vocabularies: each code point of s stands for one byte.
// Writes at most n bytes to out and their number to *n_out. Code points that stand for no byte
// are copied as they are. Returns false when there was one of those. out may be s.
bool vocab_unmap(const char *s, size_t n, char *out, size_t *n_out);

void vocab_fini(struct vocab *v);

#endif
