// SPDX-License-Identifier: Apache-2.0
// Makers of guesses behind one interface. A drafter looks at sequences and their newest tokens and
// adds what it expects next to a proposal of each: candidates or a chain. Several may add to one
// proposal. Some serve many sequences at once (a draft model runs over all in one pass), others
// know only one (an index of its tokens). Nothing a drafter does can change the output, only how
// fast it comes.
#ifndef COPPICE_SPEC_DRAFT_DRAFTER_H
#define COPPICE_SPEC_DRAFT_DRAFTER_H

#include <stdint.h>

#include "base/err.h"
#include "models/draft/draft.h"
#include "spec/tree/ddtree.h"

enum draft_kind {
    DRAFT_MODEL,  // the draft model, of many sequences
    DRAFT_LOOKUP, // the most recent longest repetition in the context: a chain
    DRAFT_ORACLE, // a recorded continuation with errors: marginals; for tests and measurements
    DRAFT_KINDS,
};

struct draft_config {
    struct model *model; // the target
    struct draft *draft; // DRAFT_MODEL: attached to that target
    int max_k;           // most candidates per depth that will be requested; 0: TREE_MAX_K
    int max_members;     // most sequences of a call, for kinds that serve many; 0: 1
    // DRAFT_ORACLE: the tokens by position, and the chance that the best candidate of a position
    // is another token (the recorded one then has some lower rank, or is missing).
    const int32_t *recording; // [n_recording], borrowed
    int64_t n_recording;
    double error_rate; // 0..1
    // In place of the rate, where n_right > 0: the chance that the guess at depth i + 1 is the
    // recorded token where those before it are, drawn anew for each step; deeper ones never are.
    double right[TREE_MAX_DEPTH];
    int n_right;
    uint64_t seed;
    bool with_draft; // it stands for the draft model, which is called before it: guesses reach as
                     // far
};

struct draft_request {
    struct sequence *seq; // its len tokens are committed
    int32_t root;         // the newest token, at position len, not yet run
    int k;                // candidates per depth, 1..max_k
    int max_depth;        // deeper guesses are useless; 0: all are
    int useful_depth; // 0, or deeper guesses do not pay; they may be given where they cost nothing
    const struct sample_row *noise; // NULL, or [max_depth]: the noise of the target's own draws
};

struct drafter;

// One sentence and a negative code when the configuration lacks what the kind needs.
int drafter_create(struct drafter **out, enum draft_kind kind, const struct draft_config *c,
                   struct err *e);
void drafter_destroy(struct drafter *d);        // NULL is allowed
int drafter_max_depth(const struct drafter *d); // deepest guess it can make
bool drafter_free(const struct drafter *d);     // its guesses take next to no time, and no noise
// Its candidates depend on the path: proposals have expand, expand_many and a width.
bool drafter_by_path(const struct drafter *d);

// Adds guesses for r[i] to *p[i], i < n, which the caller zeroed; 1 <= n <= max_members, of
// distinct sequences. What is guessed for one does not depend on the others, save that a draft
// whose length is chosen by `useful_depth` is as long as the largest. Candidates take the place of
// those that an earlier drafter has left there; chains add up. Arrays of all proposals stay the
// drafter's, until its next call; so long their nodes may be requested (tree_expand_fn), and what
// the requests point to must stay.
int drafter_propose(struct drafter *d, const struct draft_request *r, int n,
                    struct proposal *const *p, struct err *e);

// The functions of a kind: a row of the table in drafter.c.
struct drafter_class {
    const char *name;
    int (*create)(void **self, const struct draft_config *c, struct err *e);
    void (*destroy)(void *self);
    int (*max_depth)(const void *self);
    int (*propose)(void *self, const struct draft_request *r, int n, struct proposal *const *p,
                   struct err *e);
    bool shared; // serves up to max_members sequences; else n is always 1
    bool free;   // guesses take next to no time, and do not look at the sampling noise
    bool (*by_path)(const void *self); // see drafter_by_path; NULL: no
};
// The same for a class that is not in the table, such as one from outside or a test.
int drafter_create_class(struct drafter **out, const struct drafter_class *class,
                         const struct draft_config *c, struct err *e);

// Of draft models: one whose guesses depend on the depth alone, and any other.
extern const struct drafter_class drafter_dflash, drafter_model;
extern const struct drafter_class drafter_lookup, drafter_oracle;

#endif
