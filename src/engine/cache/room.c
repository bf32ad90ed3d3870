// SPDX-License-Identifier: Apache-2.0
// What is dropped for others. An entry is worth the tokens that would have to be run without it,
// times the chance that they are asked for again, for each byte that is freed with it. The chance
// falls with the lookups since it was last of use. Conversations come back where they ended, and
// where several texts part, but hardly ever at a place that one text has only passed through.
#include "engine/cache/impl.h"

#include <stdlib.h>

#include "base/num.h"
#include "base/vec.h"

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

// What an entry is worth for each byte, `bytes` being freed with it.
static double worth_of(struct cache *c, const struct cache_entry *y, int64_t bytes) {
    const struct cache_entry *before = entry_before(y->node);
    double tokens = (double)(y->len - (before ? before->len : 0));
    double age = (double)(c->clock - y->used);
    int branches = branches_below(y->node);
    double chance = (branches == 1 ? PASSED : branches ? 1 + (double)y->hits : 1) / (age + HALF);
    c->stats.weighed++;
    return tokens * chance / (double)max_i64(bytes, 1);
}

static bool may_go(const struct cache_ranking *r, const struct cache_entry *y) {
    if (y == r->keep)
        return false;
    if (r->files)
        return y->file && y->stored && !y->dependents && !y->loading;
    return y->image && !y->writing;
}

static struct cache_ranked ranked(struct cache *c, const struct cache_ranking *r,
                                  struct cache_entry *y) {
    return (struct cache_ranked){
        y, worth_of(c, y, r->files ? y->file->bytes : image_own_bytes(y->image))};
}

static void sink(struct cache_ranking *r, int64_t at) {
    struct cache_ranked one = r->at[at];
    for (int64_t child; (child = 2 * at + 1) < r->n; at = child) {
        if (child + 1 < r->n && r->at[child + 1].worth < r->at[child].worth)
            child++;
        if (one.worth <= r->at[child].worth)
            break;
        r->at[at] = r->at[child];
    }
    r->at[at] = one;
}

void cache_rank(struct cache_ranking *r, struct cache *c, struct cache_entry *y) {
    if (!y || !may_go(r, y) || vec_reserve(&r->at, &r->cap, r->n + 1, sizeof *r->at, NULL))
        return;
    struct cache_ranked one = ranked(c, r, y);
    int64_t at = r->n++;
    for (; at > 0 && one.worth < r->at[(at - 1) / 2].worth; at = (at - 1) / 2)
        r->at[at] = r->at[(at - 1) / 2];
    r->at[at] = one;
}

// What has gone may have made others worth more, so that the first is looked at again.
struct cache_entry *cache_least(struct cache_ranking *r, struct cache *c, bool files,
                                const struct cache_entry *keep) {
    if (!r->at) {
        r->files = files;
        r->keep = keep;
        for (struct cache_entry *y = c->all; y; y = y->next)
            cache_rank(r, c, y);
    }
    while (r->n > 0) {
        struct cache_ranked first = ranked(c, r, r->at[0].entry);
        bool least = first.worth <= r->at[0].worth;
        if (least)
            r->at[0] = r->at[--r->n];
        else
            r->at[0] = first;
        if (r->n > 0)
            sink(r, 0);
        if (least)
            return first.entry;
    }
    return NULL;
}

bool cache_make_room(struct cache *c, int64_t bytes, const struct cache_entry *keep) {
    struct cache_ranking ranking = {0};
    bool room = bytes <= c->o.ram;
    while (room && bytes_in_use(c) + bytes > c->o.ram) {
        struct cache_entry *y = cache_least(&ranking, c, false, keep);
        if (y) {
            c->stats.evicted++;
            cache_let_go(c, y);
        } else if (c->ghosts > 0) {
            cache_prune_ghosts(c, c->ghosts / 2);
        } else {
            room = false;
        }
    }
    free(ranking.at);
    return room;
}
