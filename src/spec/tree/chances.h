// SPDX-License-Identifier: Apache-2.0
// How likely the nodes of a tree are to be walked over, as the walks of a text so far have taught.
// A node can be judged by its score, by its place in the tree's order, or step by step; the three
// are mixed by how well each has foretold the nodes so far. A budget (budget.h) asks for it.
#ifndef COPPICE_SPEC_TREE_CHANCES_H
#define COPPICE_SPEC_TREE_CHANCES_H

#include <stdbool.h>

#include "spec/tree/ddtree.h"
#include "spec/tree/walk.h"

enum {
    CHANCE_BINS = 32, // of -score, of one width; the last one holds all that is less likely
    CHANCE_POWERS = 12,
    CHANCE_PLACES = 24,
    CHANCE_RANKS = 4,
    CHANCE_LEVELS = 4,
    CHANCE_WAYS = 3,
};

struct bin {
    double hits, nodes;
};

struct chances {
    struct bin bin[CHANCE_BINS];
    // A draft may be too sure of itself, or not sure enough: its probabilities are taken to that of
    // some powers which fits best what became of the nodes (log-likelihood, older ones faded).
    double power_fit[CHANCE_POWERS];
    int power; // that fits best
    struct bin place[CHANCE_PLACES];
    struct bin rank[CHANCE_RANKS], step[CHANCE_RANKS][CHANCE_LEVELS];
    double way_fit[CHANCE_WAYS]; // log-likelihood of the nodes so far, older ones faded
    // Of the nodes of the tree that was asked about last, as each way predicts them, and mixed.
    double way[CHANCE_WAYS][TREE_MAX_ROWS];
    double node[TREE_MAX_ROWS];
};

void chances_init(struct chances *c);
// A new text begins: what others taught counts less.
void chances_begin(struct chances *c);

// Fills c->node: the chances that nodes are on the path. Only one node of a depth can be. sure:
// NULL, or [t->n] nodes that are as likely as their parents, whatever was learnt.
void chances_predict(struct chances *c, const struct ddtree *t, const bool *sure);

// Counts every verified node that is not sure as walked over or not, and every such step from a
// node of the path. What is expected of the tree is returned, in tokens: its mean converges sooner
// than that of what came of it.
double chances_learn(struct chances *c, const struct ddtree *t, const bool *sure,
                     const struct walk *w);

#endif
