// SPDX-License-Identifier: Apache-2.0
// What a member keeps of its constraint: the state after the tokens chosen so far, those of the
// nodes of its tree, and their masks. Guesses that a node's mask forbids are left out before the
// tree is built, and the next best ones take their places; where only one token is allowed it is a
// forced guess. A state that cannot be had where only a guess needs it drops the guess: what
// guesses were made never changes what is chosen, nor how the reply ends.
#ifndef COPPICE_SPEC_CONSTRAINT_MASKS_H
#define COPPICE_SPEC_CONSTRAINT_MASKS_H

#include "spec/constraint/constraint.h"
#include "spec/tree/ddtree.h"

struct masks;

// At the begin of a reply. vocab: of the target; a constraint for another one is refused.
// ERR_MEMORY, ERR_MISMATCH, and what `begin` may fail with.
int masks_create(struct masks **out, struct constraint *c, int64_t vocab, struct err *e);
void masks_destroy(struct masks *m); // NULL is allowed

// Forgets the nodes of the last step. Returns 0, or why no further token can be chosen;
// ERR_UNFINISHED where not enough is allowed for that to be known.
int masks_begin(struct masks *m, struct err *e);

// Candidates to request of drafters where a tree is to have k a node: some may be forbidden.
int masks_wanted(int k);

// Makes a proposal of what is allowed of `base`, besides what the constraint itself expects; both
// are valid until the next masks_begin. o: its `k` is that of `base`, and becomes the proposal's.
void masks_offer(struct masks *m, const struct proposal *base, struct tree_options *o,
                 struct proposal *out);

// What the offer's `expand` does, in parts, for trees that grow together: nodes[n] that the tree
// requests, and which of them `base` is to be requested (that many, in its numbers; 0: none), each
// with masks_candidates; then the candidates of all n of the tree. `answer` is not read where none
// was requested. ERR_MEMORY: of masks_level.
int masks_level(struct masks *m, const struct tree_node *nodes, int n,
                const struct tree_node **asked, struct err *e);
int masks_candidates(const struct masks *m);
struct tree_candidates masks_answer(struct masks *m, const struct tree_candidates *answer);

// Takes the tree that was built of the offer, or a root alone. Later the tree may become shorter.
void masks_take(struct masks *m, const struct ddtree *t);
// [t->n] whether a node is certain to be on the path if its parent is. Valid until masks_begin.
const bool *masks_forced_nodes(const struct masks *m);

// Takes `steps` of the constraint's (INT64_MAX: as many as it takes) for the state after the
// tokens chosen so far and for what may come next, which the next step will look at: 0 when that is
// known, or why it cannot be, which the step will report. ERR_UNFINISHED: goes on when it is
// called again.
int masks_prepare(struct masks *m, int64_t steps);
// Steps that a step may take of its own, where its root has not been prepared or is not known yet,
// and those of its further nodes: a root that needs more ends it with ERR_UNFINISHED, and guesses
// that need more are left out. At first as many as they take.
void masks_allow(struct masks *m, int64_t root, int64_t guesses);

// The allowed tokens after a row of the tree. A state that cannot be had shows as `none`; only of
// row 0 that is an error. Rows are requested after their parents.
int masks_look(struct masks *m, int row, struct constraint_view *out, struct err *e);
// Steps that the constraint has counted for this member so far; 0 where it counts none.
int64_t masks_work(const struct masks *m);
// Whether masks_look has found the row's token to be the only one.
bool masks_forced(const struct masks *m, int row);

// The walk's choices have become part of the reply; the state after them is made by masks_prepare,
// or by the next masks_begin.
void masks_advance(struct masks *m, const struct walk *w);

#endif
