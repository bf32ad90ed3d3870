// SPDX-License-Identifier: Apache-2.0
// The draft tree: which guesses a verification pass should look at (DDTree, arXiv 2604.12989).
// A drafter proposes candidates with log-probabilities, and possibly whole chains; the score of a
// prefix is the sum of its steps, and the tree holds the prefixes with the best scores. Candidates
// may depend on the depth alone, on depth and parent token, or on the whole path. Arithmetic on
// small arrays: no model, no allocation, no randomness.
#ifndef COPPICE_SPEC_TREE_DDTREE_H
#define COPPICE_SPEC_TREE_DDTREE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum {
    TREE_MAX_BUDGET = 127, // nodes besides the root
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

// A node whose candidates are requested. Nodes are numbered from 0 in the order in which they are
// requested; the first is the root, and a parent is requested before its children. One by one they
// are at most `budget`, depth by depth 1 + width * (depth - 1).
struct tree_node {
    int32_t depth;                // 0: the root
    int32_t parent;               // the parent's number, -1 for the root
    int32_t path[TREE_MAX_DEPTH]; // [depth] tokens after the root, the node's own last
    double score;
};

// Who offered a node: one or several of them. Candidates are the first draft's unless it is said
// whose they are: those of draft i have TREE_BY_CANDIDATES << i.
enum { TREE_BY_CHAIN = 1, TREE_BY_CONSTRAINT = 2, TREE_DRAFT_SHIFT = 2, TREE_BY_CANDIDATES = 4 };
// Of an origin the drafts, a bit each.
static inline unsigned tree_drafts(unsigned origin) {
    return origin >> TREE_DRAFT_SHIFT;
}

// Where the candidates of n nodes are: those of node i at i * k. Their order counts where some may
// be forbidden (spec/constraint/masks.h): the first that are allowed are taken. A drafter with
// fewer than k fills up with log-probabilities that are not finite.
struct tree_candidates {
    const int32_t *ids; // [n][k]
    const float *logp;  // [n][k]
    // [n][k] TREE_BY_* of each, where others' guesses are among them; NULL: all the proposal's.
    const uint8_t *origin;
};

// Sets *out to the k candidates of each of nodes[n], all of one depth; the arrays stay valid until
// the next call. A negative code ends the tree.
typedef int tree_expand_fn(void *arg, const struct tree_node *nodes, int n, int k,
                           struct tree_candidates *out, struct err *e);

// The same for several trees in one call, where a drafter would rather have it so: the next nodes
// of each, which get their answers. arg: of its proposal.
struct tree_question {
    void *arg;
    const struct tree_node *nodes; // [n] of one depth
    int n, k;
    struct tree_candidates answer;
};
typedef int tree_expand_many_fn(struct tree_question *q, int n, struct err *e);

// The k log-probabilities of depth d + 2 after candidate q of depth d + 1. They stay as long as the
// proposal does.
typedef const float *tree_pair_fn(void *arg, int d, int q);

// The candidates of a drafter for depths 1..depth, besides chains. In all kinds a candidate with a
// log-probability that is not a finite number does not count, one above 0 counts as 0, and of equal
// ids the best counts. The kind is the first of these that holds:
// - expand: candidates depend on the whole path. ids and logp are not read.
// - pair: candidates depend on the parent's token. Depth d > 1 has for parent ids[(d-2) * k + q]
//   the k log-probabilities pair(pair_arg, d-2, q) (of equal parents the first q counts); logp
//   serves depth 1, and parents that only a chain guessed. The best of them are used.
// - else they depend on the depth: k candidates at ids[(d-1) * k], best first. The first are used.
struct proposal {
    int depth, k;
    const int32_t *ids; // [depth][k]
    const float *logp;  // [depth][k]
    tree_pair_fn *pair; // NULL: candidates depend on no token before
    void *pair_arg;
    tree_expand_fn *expand;
    void *expand_arg;
    tree_expand_many_fn *expand_many; // NULL, or what expand does, for proposals that have the same
    int width; // of expand; 0: nodes are requested one by one, as they join; else depth by depth,
               // at most `width` of each
    uint8_t origin; // TREE_BY_* of its candidates; 0: TREE_BY_CANDIDATES
    struct draft_chain chains[TREE_MAX_CHAINS];
    int n_chains;
};

// With pair: the log-probabilities below a token of a depth >= 1; NULL where it is no candidate.
const float *proposal_pair(const struct proposal *p, int depth, int32_t token);

struct tree_options {
    int budget;      // nodes besides the root, 0..TREE_MAX_BUDGET; more counts as the maximum
    int k;           // candidates used per node, 1..TREE_MAX_K
    int max_depth;   // 0..TREE_MAX_DEPTH
    bool chain_seed; // first the best candidate of every depth, as far as the budget goes
    double min_prob; // nodes whose path probability is below this stay out; 0: off
};

// Node 0 is the root. Nodes are in the order below, so parent[i] < i; the children of one node have
// distinct tokens.
struct ddtree {
    int n; // rows: 1 + nodes
    int32_t token[TREE_MAX_ROWS];
    int32_t parent[TREE_MAX_ROWS]; // -1 for the root
    int32_t depth[TREE_MAX_ROWS];  // 0 for the root
    double score[TREE_MAX_ROWS];   // log-probability of the path; 0 for the root
    uint8_t origin[TREE_MAX_ROWS]; // TREE_BY_*, of all that offered it; root: 0
};

// Builds the tree of the options' size: the first `budget` prefixes among those offered, by score
// (highest first), then depth, place of the parent in this order, rank among its siblings (best
// step first, then lower token id). A step's score is its candidate's log-probability; where the
// path so far is the beginning of a chain, the chain's next token is a candidate too (the better of
// both log-probabilities counts). A prefix is offered when its parent was expanded: that is every
// node of the tree, so that no prefix with a better score exists; with `width`, within p->depth,
// the first `width` of each depth by this order. Nodes whose children could not join any more are
// not requested. Fails only where p->expand does; the tree is then the root.
int ddtree_build(struct ddtree *t, int32_t root, const struct proposal *p,
                 const struct tree_options *o, struct err *e);

// The same in parts, for trees that grow together: the caller gives the candidates that
// ddtree_level requests, of one depth where the proposal has a width, to ddtree_answer, until no
// more are requested. p must stay.
struct ddtree_build;
size_t ddtree_build_bytes(void); // memory for one, of any content
void ddtree_start(struct ddtree_build *b, int32_t root, const struct proposal *p,
                  const struct tree_options *o);
// How many nodes are requested next, each with so many candidates; 0: the tree is complete.
int ddtree_level(struct ddtree_build *b, const struct tree_node **nodes);
int ddtree_candidates(const struct ddtree_build *b);
void ddtree_answer(struct ddtree_build *b, const struct tree_candidates *answer);
void ddtree_finish(const struct ddtree_build *b, struct ddtree *t);

// The child of `node` with this token, or -1.
int ddtree_child(const struct ddtree *t, int node, int32_t token);

// Following the target's own choices through a verified tree: what gets committed, what was chosen
// last, and whether generation ends. The tokens that a walk yields are the choices of the rows on
// its path, one per row, so the output never depends on what was drafted.

enum end_reason {
    END_NONE,    // generation goes on
    END_STOP,    // a stop token was chosen (it is the last token of the output)
    END_LENGTH,  // the token limit is reached
    END_CONTEXT, // the context is full
    END_CALLER,  // the caller's function stopped it
};

// Name for output: "none", "stop", "length", "context", "caller".
const char *end_reason_name(enum end_reason r);

typedef bool walk_stop_fn(void *arg, int32_t token);

struct walk_limits {
    int64_t tokens_left;  // choices that the request still allows, >= 1
    int64_t context_left; // choices for which the context still has a position, >= 1
    walk_stop_fn *stop;   // NULL: nothing stops
    void *stop_arg;
};

struct walk {
    int count;                          // rows on the path, >= 1: the accept length
    int32_t path[TREE_MAX_DEPTH + 1];   // rows, the root first; these are to be committed
    int32_t chosen[TREE_MAX_DEPTH + 1]; // chosen[i] = choice of row path[i]: the new tokens
    enum end_reason end;                // why chosen[count - 1] is the last one
};

// choice: [t->n] the target's choice after each row; only rows that the walk reaches are read. One
// below 0 says that nothing can be chosen there: the walk ends before that row, and has a count of
// 0 where it is the root. The
// last chosen token is the next root (it has not been run); when a limit or a stop token cuts the
// path short, the path ends at the row that chose the last allowed token.
void walk_tree(const struct ddtree *t, const int32_t *choice, const struct walk_limits *limits,
               struct walk *out);

#endif
