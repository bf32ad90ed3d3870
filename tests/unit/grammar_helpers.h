// SPDX-License-Identifier: Apache-2.0
// What tests of grammars share: a vocabulary of some thousand tokens, texts that a grammar takes or
// not, and random walks on which every mask is compared with single steps.
#ifndef COPPICE_TESTS_UNIT_GRAMMAR_HELPERS_H
#define COPPICE_TESTS_UNIT_GRAMMAR_HELPERS_H

#include "grammar/grammar.h"
#include "test.h"

// Group setup and teardown: *state is a struct grammar_vocab. All bytes, pieces of a text of this
// repository, some of them twice, blanks, a token that is too long, one without text; two that end.
int make_vocab(void **state);
int drop_vocab(void **state);

// Is the whole text one of the grammar's? Fails the test on an error.
bool grammar_takes(struct grammar *g, const char *text, size_t n);

// Random texts of a grammar, each of at most `max` tokens: at each step the mask must allow
// exactly the tokens that can be accepted, and forced tokens be those that are alone in a mask.
// Takes over the reference to g.
void check_walks(struct grammar *g, const struct grammar_vocab *v, int texts, int max,
                 uint64_t seed);

#endif
