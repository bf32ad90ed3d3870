// SPDX-License-Identifier: Apache-2.0
// Guesses of several drafts for one sequence as one proposal. Below a node the candidates are all
// that those say which know about it; the probability of one is the mean of theirs, weighted by how
// often the guesses of each came true of late. A draft that says nothing below a node, since it
// reaches less deep or has no room for further nodes, does not count there. Drafts whose candidates
// depend on the depth, on the parent or on the path mix in any combination; chains of all are kept.
#ifndef COPPICE_SPEC_TREE_MIX_H
#define COPPICE_SPEC_TREE_MIX_H

#include <stddef.h>

#include "spec/tree/ddtree.h"
#include "spec/tree/price.h"

struct mix_part {
    const struct proposal *p; // stays until the tree is complete
    double weight;            // above 0; only ratios count
    int draft;                // its number: 0 .. PRICE_DRAFTS - 1, for origins of nodes
};

struct mix;
size_t mix_bytes(void); // memory for one, of any content

// A proposal of parts[n], 1 <= n <= PRICE_DRAFTS; valid as long as they are. A part whose function
// fails takes no part any more (mix_failed).
void mix_offer(struct mix *m, const struct mix_part *parts, int n, struct proposal *out);

// What the proposal's `expand` does, in parts, for trees that grow together: nodes[n] that the tree
// requests, with k candidates each; what of that is requested of a draft, which is to be called
// with it (NULL: nothing); then the candidates of the tree.
void mix_level(struct mix *m, const struct tree_node *nodes, int n, int k);
struct tree_question *mix_question(struct mix *m, int draft);
struct tree_candidates mix_answer(struct mix *m);

// From now on that draft is left out: its function has failed.
void mix_drop(struct mix *m, int draft);
unsigned mix_failed(const struct mix *m); // drafts that were, a bit each

// How often guesses of a draft came true for a text: of those below nodes of its paths, where it
// had guessed. Zeroed: nothing is known.
struct mix_record {
    double right, guessed; // older ones faded
};
double mix_weight(const struct mix_record *r);
// The walk through a tree whose nodes have origins (TREE_BY_*): r[PRICE_DRAFTS].
void mix_learn(struct mix_record *r, const struct ddtree *t, const struct walk *w);

#endif
