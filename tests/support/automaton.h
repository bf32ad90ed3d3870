// SPDX-License-Identifier: Apache-2.0
// Random small automata over token ids as constraints: states that allow everything, about half of
// the tokens, a few, or one; at times states that allow nothing, or that cannot be had. They stand
// for grammars where what is tested is how constraints are obeyed.
#ifndef COPPICE_TESTS_SUPPORT_AUTOMATON_H
#define COPPICE_TESTS_SUPPORT_AUTOMATON_H

#include "spec/constraint/constraint.h"

enum { AUTOMATON_STATES = 12, AUTOMATON_VOCAB = 4096 };

enum automaton_kind {
    AUTOMATON_FREE,   // every token is allowed
    AUTOMATON_HALF,   // about half of them
    AUTOMATON_FEW,    // 2 to 6
    AUTOMATON_ONE,    // one
    AUTOMATON_DEAD,   // none
    AUTOMATON_BLIND,  // its mask cannot be had
    AUTOMATON_BROKEN, // there is no such state
    AUTOMATON_KINDS
};

struct automaton {
    struct constraint *constraint; // borrowed; the automaton exists as long as it does
    int64_t vocab;
    int states;
    enum automaton_kind kind[AUTOMATON_STATES];
    uint32_t allow[AUTOMATON_STATES][AUTOMATON_VOCAB / 32];
    int32_t likely[AUTOMATON_STATES]; // what its hint says, -1: nothing
    uint64_t seed;
    int64_t live;    // states that have not been dropped
    int64_t work;    // counted as if masks after some states took much of it
    int64_t allowed; // work may come to
};

// One reference to its constraint, to be dropped. vocab: at most AUTOMATON_VOCAB. ends: whether
// there may be states after which nothing can be chosen. ERR_MEMORY.
int automaton_create(struct automaton **out, int64_t vocab, bool ends, uint64_t seed,
                     struct err *e);
// The state after a token; 0 is the first.
int automaton_next(const struct automaton *a, int state, int32_t token);
bool automaton_allows(const struct automaton *a, int state, int32_t token);

#endif
