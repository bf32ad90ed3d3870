// SPDX-License-Identifier: Apache-2.0
// The draft tree: which guesses a verification pass should look at (DDTree, arXiv 2604.12989).
// A drafter proposes candidates per depth with log-probabilities, and possibly whole chains; the
// score of a prefix is the sum of its steps, and the tree holds the prefixes with the best scores.
// Pure arithmetic on small arrays: no model, no allocation, no randomness.
#ifndef COPPICE_SPEC_DDTREE_H
#define COPPICE_SPEC_DDTREE_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TREE_MAX_BUDGET = 127, // nodes beside the root
    TREE_MAX_ROWS = TREE_MAX_BUDGET + 1,
    TREE_MAX_DEPTH = 32, // the recurrent log covers no more (GDN_BLOCK)
    TREE_MAX_K = 64,     // candidates per depth
    TREE_MAX_CHAINS = 4,
};

// A guessed continuation ids[0..len) of the root, with the same log-probability for each token.
struct draft_chain {
    const int32_t *ids;
    int len;
    float logp;
};

// What a drafter offers. Depth d = 1..depth has k candidates at ids[(d-1) * k], best first. A
// candidate with a log-probability that is not a finite number does not count; one above 0 counts
// as 0; of equal ids in one depth the best counts.
struct proposal {
    int depth, k;
    const int32_t *ids; // [depth][k]
    const float *logp;  // [depth][k]
    struct draft_chain chains[TREE_MAX_CHAINS];
    int n_chains;
};

struct tree_options {
    int budget;      // nodes beside the root, 0..TREE_MAX_BUDGET; more counts as the maximum
    int k;           // candidates used per depth, 1..TREE_MAX_K
    int max_depth;   // 0..TREE_MAX_DEPTH
    bool chain_seed; // first the best candidate of every depth, as far as the budget goes
    double min_prob; // nodes whose path probability is below this stay out; 0: off
};

// Node 0 is the root. Nodes are in the order in which they were chosen, so parent[i] < i; the
// children of one node have distinct tokens.
struct ddtree {
    int n; // rows: 1 + nodes
    int32_t token[TREE_MAX_ROWS];
    int32_t parent[TREE_MAX_ROWS]; // -1 for the root
    int32_t depth[TREE_MAX_ROWS];  // 0 for the root
    double score[TREE_MAX_ROWS];   // log-probability of the path; 0 for the root
};

// Builds the tree of the options' size. A step's score is its candidate's log-probability; where
// the path so far is the beginning of a chain, the chain's next token is a candidate too (the
// better of both log-probabilities counts). Nodes come by score (highest first), then depth, index
// of the parent, rank among its siblings (best step first, then lower token id).
void ddtree_build(struct ddtree *t, int32_t root, const struct proposal *p,
                  const struct tree_options *o);

// The child of `node` with this token, or -1.
int ddtree_child(const struct ddtree *t, int node, int32_t token);

// Rows from the root to `node` (both included) into path[0..depth(node)]; returns their count.
int ddtree_path(const struct ddtree *t, int node, int32_t path[TREE_MAX_DEPTH + 1]);

#endif
