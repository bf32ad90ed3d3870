// SPDX-License-Identifier: Apache-2.0
// The chance that a node of a drafted tree is on the path that the target walks, learnt from the
// walks through earlier trees. A part of budget.c.
#ifndef COPPICE_SPEC_TREE_CHANCES_H
#define COPPICE_SPEC_TREE_CHANCES_H

#include <stdbool.h>

#include "spec/tree/ddtree.h"

// Chosen by a replay (docs/notes/budget-auto.md).
enum {
    FEW = 4,    // observations after which as much is believed of them as of what is usual
    PRIOR = 12, // nodes after which the same holds of the chances that a draft states
};

enum {
    CHANCE_BINS = 32, // of -score, of one width; the last one holds all that is less likely
    CHANCE_POWERS = 12,
    CHANCE_RANKS = 4,
    CHANCE_LEVELS = 4,
};

// By the node's score, or by the rank of each step of its path among its siblings, and its depth.
// Scores that mean nothing make trees grow and shrink for nothing, and steps converge first, since
// each walk has many of them.
enum { BY_SCORE, BY_STEP, WAYS };

struct bin {
    double hits, nodes;
};

struct chances {
    struct bin bin[CHANCE_BINS];
    // A draft may be too sure of itself, or not sure enough: its probabilities are taken to that of
    // some powers which fits best what became of the nodes (log-likelihood, older ones faded).
    double power_fit[CHANCE_POWERS];
    int power; // that fits best
    struct bin rank[CHANCE_RANKS], step[CHANCE_RANKS][CHANCE_LEVELS];
    double way_fit[WAYS]; // log-likelihood of the nodes so far, older ones faded
    // Of the nodes of the tree that was predicted last, as each way predicts them, and mixed.
    double way[WAYS][TREE_MAX_ROWS];
    double node[TREE_MAX_ROWS];
};

void chances_init(struct chances *c);  // of a zeroed one: a draft is as sure as it says
void chances_begin(struct chances *c); // a new text begins: what others taught counts less

// Fills c->node: the chances that nodes are on the path. Only one node of a depth can be. forced:
// NULL, or [t->n] nodes that are as likely as their parents, whatever was learnt.
void chances_predict(struct chances *c, const struct ddtree *t, const bool *forced);

// Counts every verified node that is not forced as walked over or not, and every such step from a
// node of the path. What is expected of the tree is returned, in tokens: its mean converges sooner
// than that of what came of it.
double chances_learn(struct chances *c, const struct ddtree *t, const bool *forced,
                     const struct walk *w);

#endif
