// SPDX-License-Identifier: Apache-2.0
// Vocabularies for trying grammars on: all bytes, then pieces of this repository's text as a
// tokenizer would cut it, then combinations of letters of other scripts, as large vocabularies have
// them.
#ifndef COPPICE_TESTS_GRAMMAR_VOCABULARY_H
#define COPPICE_TESTS_GRAMMAR_VOCABULARY_H

#include "grammar/grammar.h"

// The token 256 ends a text. NULL: a file could not be read, or there is no memory.
struct grammar_vocab *vocabulary_make(int32_t size);
void vocabulary_text(int32_t token, struct str *append); // of the one that was made last
void vocabulary_drop(struct grammar_vocab *v);

#endif
