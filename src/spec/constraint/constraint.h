// SPDX-License-Identifier: Apache-2.0
// What a reply may say, token by token, behind one interface: a grammar, or anything else that
// knows from the tokens so far which ones may come next. A state stands after a number of tokens
// of a reply; every node of a draft tree has one, so that drafting goes on under a constraint. The
// constraint decides which tokens are allowed and nothing else: among these the target chooses, and
// what it chooses does not depend on what was guessed (docs/exactness.md).
//
// Rules for a maker. States, views and answers are functions of the tokens since `begin` alone:
// never of the order of calls, of caches, or of time. All functions but `destroy` are called by one
// thread at a time: the one that runs the steps, for all members that share the constraint. They
// run concurrently with the device while that computes a pass (on a CPU, between the pass and the
// choices), so a slow `look` of a common state costs time on a CPU only.
#ifndef COPPICE_SPEC_CONSTRAINT_CONSTRAINT_H
#define COPPICE_SPEC_CONSTRAINT_CONSTRAINT_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct constraint_state; // the maker's

// The allowed next tokens.
struct constraint_view {
    // [(vocab + 31) / 32]: bit id % 32 of word id / 32 says that the token may be chosen, as in
    // struct sample_row; bits after the vocabulary do not count. NULL: every token may. Valid
    // while the state is held.
    const uint32_t *allow;
    int32_t only; // the token, where exactly one is allowed; else -1
    bool none;    // no token is allowed
};

enum constraint_hint {
    CONSTRAINT_NO_HINT,
    CONSTRAINT_LIKELY, // the token is what comes next almost always
    CONSTRAINT_ONLY,   // no other token is allowed: `look` says so, too
};

struct constraint_class {
    const char *name;
    void (*destroy)(void *self);
    // The state before the first token of a reply. *out is the caller's, to be dropped.
    int (*begin)(void *self, struct constraint_state **out, struct err *e);
    // The state after a token that `from` allows. `from` stays as it is.
    int (*next)(void *self, struct constraint_state *from, int32_t token,
                struct constraint_state **out, struct err *e);
    void (*drop)(void *self, struct constraint_state *s); // before `self` is destroyed
    // Whether `look` would allow the token; called for guesses, many times a step.
    bool (*allows)(void *self, struct constraint_state *s, int32_t token);
    int (*look)(void *self, struct constraint_state *s, struct constraint_view *out, struct err *e);
    // A guess at the next token that takes no more than a little time. It decides nothing.
    enum constraint_hint (*hint)(void *self, struct constraint_state *s, int32_t *token);
    // Steps counted since it was made, some 25 ns each, for all that share it. NULL: it takes no
    // time that is worth it.
    int64_t (*work)(void *self);
    // From now on calls end with ERR_UNFINISHED, or without a hint, where they would take more than
    // that many steps together; `next` and `look` go on from there when they are called again.
    // Allowed CONSTRAINT_STEPS or more, they come further each time. INT64_MAX: as many as it
    // takes. NULL where `work` is.
    void (*allow)(void *self, int64_t steps);
};

enum { CONSTRAINT_STEPS = 1 << 22 };

struct constraint {
    const struct constraint_class *class;
    void *self;
    int64_t vocab; // ids are 0 .. vocab - 1
    atomic_int refs;
};

// One reference for the caller; self is destroyed with the last one. ERR_MEMORY, and self is
// destroyed.
int constraint_create(struct constraint **out, const struct constraint_class *class, void *self,
                      int64_t vocab, struct err *e);
struct constraint *constraint_keep(struct constraint *c); // NULL is allowed
void constraint_drop(struct constraint *c);               // NULL is allowed; by any thread

// The view of bits [(vocab + 31) / 32] that a maker has; they are read once.
struct constraint_view constraint_view_of(const uint32_t *allow, int64_t vocab);

#endif
