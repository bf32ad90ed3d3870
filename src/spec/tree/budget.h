// SPDX-License-Identifier: Apache-2.0
// How many guesses a step should verify. A pass takes longer the more rows it has (price.h), and a
// node of a tree pays only as often as the target walks over it. A budget has learnt that for one
// member of a batch: what the guesses of its text have been worth, those too that cost nothing to
// make and were not verified. From price and budgets come the
// trees with the most tokens per second for the pass as a whole, down to none: then a member's
// drafting pauses, and is tried again now and then. Only speed depends on all this, never the
// output.
//
// A step of n >= 1 members, each with a budget, on a device with a price:
//
//     struct budget_step s = {.price, .members, .n, .other_rows, .max_rows, .draft[].max_depth};
//     budget_drafts(&s);    // who drafts (members[i].drafts), with which drafts, how deep these go
//     ... each draft for all who ask it; trees; s.draft[].ms = what each has taken
//     budget_share(&s);     // how many nodes of each tree to keep (members[i].nodes)
//     ... cut the trees, one pass, walks; s.pass_ms = all that followed the draft
//     budget_note(&s);      // price and budgets learn from it
#ifndef COPPICE_SPEC_TREE_BUDGET_H
#define COPPICE_SPEC_TREE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "spec/tree/ddtree.h"
#include "spec/tree/price.h"

struct budget;

int budget_create(struct budget **out, struct err *e);
void budget_destroy(struct budget *b); // NULL is allowed

// A new text begins: drafting gets another chance. What other texts taught counts less: those of
// this budget, or those of `before`, which may be of a member that has left, when it is not NULL.
void budget_begin(struct budget *b, const struct budget *before);

struct budget_member {
    struct budget *budget;
    // In: whether it has a drafter at all and room for guesses. budget_drafts clears it when this
    // step should go without them.
    bool drafts;
    unsigned may;  // drafts that it may ask, a bit each; 0: the first
    unsigned asks; // out of budget_drafts: those to be asked, some of them
    // Its guesses take no time to make, as those that repeat the text: it drafts in every step,
    // and learns by each token whether the guess of it was right, verified or not.
    bool free;
    // budget_share: the whole drafted tree. budget_note: what was verified of it. A tree of the
    // root alone where nothing was drafted.
    const struct ddtree *tree;
    // NULL, or [tree->n]: nodes that are certain to be on the path if their parents are. They are
    // no guesses: nothing is learnt from them, and they cost no credit.
    const bool *forced;
    int nodes;               // out of budget_share: besides the root, in the tree's order
    const struct walk *walk; // budget_note: what came of it
};

struct budget_draft {
    int max_depth; // that it can reach
    int depth;     // out of budget_drafts: how deep its guesses should reach; 0: nobody asks it
    double ms;     // budget_note: what it has taken
};

struct budget_step {
    struct price *price;
    struct budget_member *members; // [n], n >= 1: those that decode in this pass
    int n;
    // Rows and sequences that are in the pass besides: pieces of the prompts of other members.
    int64_t other_rows;
    int other_seqs;
    int max_rows; // of all members' trees together, roots included; at least n
    struct budget_draft draft[PRICE_DRAFTS]; // as many as the price has
    double pass_ms;
};

void budget_drafts(struct budget_step *s);
void budget_share(struct budget_step *s);
void budget_note(const struct budget_step *s);

#endif
