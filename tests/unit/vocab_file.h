// SPDX-License-Identifier: Apache-2.0
// Builds the metadata of a GGUF file in memory, well-formed as a container and as hostile inside
// as a test likes. No tensors.
#ifndef COPPICE_TESTS_UNIT_VOCAB_FILE_H
#define COPPICE_TESTS_UNIT_VOCAB_FILE_H

#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "text/tokenizer/tokenizer.h"

// A zeroed one is valid and empty.
struct vocab_file {
    struct str body, whole;
    uint64_t n_kv;
};

void vocab_file_str(struct vocab_file *f, const char *key, const char *text);
void vocab_file_u32(struct vocab_file *f, const char *key, uint32_t value);
void vocab_file_bool(struct vocab_file *f, const char *key, bool value);
// Texts end in NUL.
void vocab_file_strs(struct vocab_file *f, const char *key, const char *const *texts, size_t n);
void vocab_file_i32s(struct vocab_file *f, const char *key, const int32_t *values, size_t n);

// model gpt2, pre qwen2, the 256 byte tokens (id = byte) followed by these tokens with their
// types, and these merges.
struct vocab_spec {
    const char *const *tokens, *const *merges;
    const int32_t *types; // of tokens; NULL: all normal
    size_t n_tokens, n_merges;
};
void vocab_file_fill(struct vocab_file *f, const struct vocab_spec *s);

// tokenizer_create on the file; the caller still calls vocab_file_fini.
int vocab_file_load(struct vocab_file *f, struct tokenizer **out, struct err *e);
void vocab_file_fini(struct vocab_file *f);

#endif
