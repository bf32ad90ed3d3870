// SPDX-License-Identifier: Apache-2.0
// A radix tree over token ids: every node stands for a text, its path from the root, and holds only
// the tokens behind its parent's. Entries hang on nodes, newest first; a node without any is there
// because texts part at it, or as the memory of what was there before. It knows nothing of what
// entries hold.
#ifndef COPPICE_ENGINE_CACHE_PREFIX_TREE_H
#define COPPICE_ENGINE_CACHE_PREFIX_TREE_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct cache_entry;

struct prefix_node {
    struct prefix_node *parent, *child, *next; // NULL parent: the root; next: of the same parent
    int32_t *ids;                              // [n] behind the parent's
    int64_t n, end;                            // end: tokens up to and with these
    struct cache_entry *entries;
    int64_t touched; // when it was last walked over, by the caller's clock
    int64_t gone;    // when it lost its last entry; 0: it had none or has some
};

struct prefix_tree {
    struct prefix_node root;
    int64_t bytes; // that nodes take, the root not counted
};
void prefix_tree_fini(struct prefix_tree *t);

// Where a text of n tokens leaves the tree.
struct prefix_match {
    // The deepest node of which at least one token is shared; all of them where common ==
    // node->end.
    struct prefix_node *node;
    int64_t common; // tokens shared
};
// now: noted on the nodes walked over; 0: nothing is.
struct prefix_match prefix_find(struct prefix_tree *t, const int32_t *ids, int64_t n, int64_t now);

// The node of exactly this text, made where there is none. ERR_MEMORY.
int prefix_add(struct prefix_tree *t, const int32_t *ids, int64_t n, struct prefix_node **out,
               struct err *e);
// Takes a node without entries and children out, and those above it that stand for nothing then;
// joins a parent without entries to an only child.
void prefix_prune(struct prefix_tree *t, struct prefix_node *node);
// Writes the text of a node to ids[node->end].
void prefix_text(const struct prefix_node *node, int32_t *ids);
// The token at a place of the text, place < node->end.
int32_t prefix_token(const struct prefix_node *node, int64_t place);
// The next node of the tree below `top` in an order in which parents come before children; NULL:
// that was the last. Begin with top itself.
struct prefix_node *prefix_next(const struct prefix_node *top, struct prefix_node *at);

#endif
