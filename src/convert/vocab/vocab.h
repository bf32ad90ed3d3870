// SPDX-License-Identifier: Apache-2.0
// Shared by the files of this folder only: the vocabulary of a HuggingFace folder on its way
// into a GGUF file, whichever file of the folder it comes from.
#ifndef COPPICE_CONVERT_VOCAB_VOCAB_H
#define COPPICE_CONVERT_VOCAB_VOCAB_H

#include "base/map.h"
#include "base/memory/arena.h"
#include "base/str.h"
#include "convert/config.h"
#include "formats/gguf/gguf.h"

enum token_type {
    TOKEN_NORMAL = 1,
    TOKEN_UNKNOWN,
    TOKEN_CONTROL,
    TOKEN_USER,
    TOKEN_UNUSED,
    TOKEN_BYTE,
};

struct vocab {
    struct arena arena;
    const char *dir;
    struct str where;                                    // the file that holds the vocabulary
    struct hf_file tokenizer, config, generation, model; // the folder's JSON files
    struct hf_file processor;                            // chat_template.json
    struct str template_file, pieces, ranks; // chat_template.jinja, tokenizer.model, tiktoken.model
    int64_t rows;
    const char **text; // [rows]; NULL: no token has this id
    size_t *length;
    int32_t *type;
    float *score; // of vocabularies from tokenizer.model
    struct map ids;
    const char **merge;
    size_t *merge_length;
    uint64_t merges;
    bool always_bos; // whatever the folder says
    struct err *e;
};

int vocab_no_memory(struct vocab *v);
// "PATH has WHAT: this tokenizer cannot be converted".
int vocab_refuse(const struct vocab *v, const char *what);

// Gives an id its text. A second text for an id, or a second id for a text, is an error.
int vocab_add(struct vocab *v, const char *text, size_t n, int64_t id, enum token_type type);
// Control or user-defined: by its flag, or because it looks like one that only programs write.
enum token_type vocab_added_type(const char *text, size_t n, bool special);
// Element i of the ids that a file names NAME_token_id; -1 when there is none.
int64_t vocab_listed_id(const struct hf_file *f, const char *name, size_t i);
// Gives the ids that have no token a text of their own, [PADn].
int vocab_fill_gaps(struct vocab *v);

// The keys of tokenizer.json's byte-level pairs; of its pairs over text with U+2581 for blanks
// (Gemma 4); of tokenizer.model's pieces with scores; of tiktoken.model's byte-level pairs.
int vocab_put_pairs(struct gguf_writer *w, struct vocab *v);
int vocab_put_escaped(struct gguf_writer *w, struct vocab *v);
int vocab_put_pieces(struct gguf_writer *w, struct vocab *v);
int vocab_put_ranks(struct gguf_writer *w, struct vocab *v);
// The keys of byte-level pairs that have been read. Closing tags at which generation stops are
// control tokens then, whatever their flag.
void vocab_write_pairs(struct gguf_writer *w, struct vocab *v, const char *pre);

// Writes the tokenizer of a HuggingFace folder for a vocabulary of `rows` ids, or copies a GGUF's.
int convert_vocab_hf(struct gguf_writer *w, const char *dir, int64_t rows, struct err *e);
int convert_vocab_gguf(struct gguf_writer *w, const struct gguf *g, struct err *e);

#endif
