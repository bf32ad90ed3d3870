// SPDX-License-Identifier: Apache-2.0
// What is dropped for others. An entry is worth the tokens that would have to be run without it,
// times the chance that they are asked for again, for each byte that is freed with it. The chance
// falls with the lookups since it was last of use. Conversations come back where they ended, and
// where several texts part, but hardly ever at a place that one text has only passed through.
#include "engine/cache_impl.h"

#include <stdlib.h>

#include "base/num.h"

// Weights of the chance to come back.
static const double PASSED = 0.15; // of a place that one text has passed through
static const double HALF = 16;     // lookups after which it has halved

// What cannot be given back without dropping entries.
static int64_t bytes_in_use(const struct cache *c) {
    return c->blocks.used + c->blocks.other + c->tree.bytes;
}

// The entry above on the same text; NULL: none.
static const struct cache_entry *entry_before(const struct prefix_node *n) {
    for (n = n->parent; n; n = n->parent)
        if (n->entries)
            return n->entries;
    return NULL;
}

// Whether entries hang below a node: 0: none, 1: on one branch, 2: on several.
static int branches_below(struct prefix_node *top) {
    int n = 0;
    for (struct prefix_node *child = top->child; child && n < 2; child = child->next) {
        struct prefix_node *at = child;
        while (at && !at->entries)
            at = prefix_next(child, at);
        n += at != NULL;
    }
    if (n != 1)
        return n;
    // One branch that parts further below, with nothing kept between, parts here.
    struct prefix_node *only = top->child;
    while (only && !only->entries && !only->child)
        only = only->next;
    return only && !only->entries ? branches_below(only) : 1;
}

double cache_worth(const struct cache *c, const struct cache_entry *y, int64_t bytes) {
    const struct cache_entry *before = entry_before(y->node);
    double tokens = (double)(y->len - (before ? before->len : 0));
    double age = (double)(c->clock - y->used);
    int branches = branches_below(y->node);
    double chance = (branches == 1 ? PASSED : branches ? 1 + (double)y->hits : 1) / (age + HALF);
    return tokens * chance / (double)max_i64(bytes, 1);
}

static struct cache_entry *least_worth(struct cache *c, const struct cache_entry *keep) {
    struct cache_entry *least = NULL;
    double worst = 0;
    for (struct cache_entry *y = c->all; y; y = y->next) {
        if (y == keep || !y->image || y->writing)
            continue;
        double w = cache_worth(c, y, image_own_bytes(y->image));
        if (!least || w < worst) {
            least = y;
            worst = w;
        }
    }
    return least;
}

bool cache_make_room(struct cache *c, int64_t bytes, const struct cache_entry *keep) {
    if (bytes > c->o.ram)
        return false;
    while (bytes_in_use(c) + bytes > c->o.ram) {
        struct cache_entry *y = least_worth(c, keep);
        if (y) {
            c->stats.evicted++;
            cache_let_go(c, y);
        } else if (c->ghosts > 0) {
            cache_prune_ghost(c);
        } else {
            return false;
        }
    }
    return true;
}
