// SPDX-License-Identifier: Apache-2.0
// A scorer for tests that is a real qwen3 file without training: one layer, random embeddings, and
// queries and keys that are the embeddings themselves, so that tokens look at their equals. With
// any vocabulary it finds what the question names by rare tokens.
#ifndef COPPICE_TESTS_SUPPORT_MATCH_SCORER_H
#define COPPICE_TESTS_SUPPORT_MATCH_SCORER_H

#include "base/err.h"

// Writes it with the tokenizer of another GGUF file. The same tokenizer gives the same file.
int match_scorer_write(const char *path, const char *tokenizer, struct err *e);

#endif
