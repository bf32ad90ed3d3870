// SPDX-License-Identifier: Apache-2.0
// Entries on the tree: found by what they share with a text, hung on, and taken off.
#include <stdlib.h>

#include "base/num.h"
#include "base/vec.h"
#include "engine/cache/impl.h"

enum { GHOST_PART = 64 }; // of the budget, for texts that nothing is kept of

static bool fits(const struct cache_entry *y, const struct cache_wanted *w, int64_t len) {
    return cache_same_rule(y, len, w->sparse_end) && (!w->ready || y->image) &&
           (!w->file || (y->file && !y->lost));
}

struct cache_entry *cache_entry_of(const struct prefix_node *n, int64_t len,
                                   const struct cache_wanted *w) {
    struct cache_entry *y = n->entries;
    while (y && !fits(y, w, len))
        y = y->same;
    return y;
}

struct cache_entry *cache_entry_above(const struct prefix_node *n, int64_t most,
                                      const struct cache_wanted *w) {
    struct cache_entry *y = NULL;
    for (; n && !y; n = n->parent)
        if (n->end <= most)
            y = cache_entry_of(n, n->end, w);
    return y;
}

struct cache_entry *cache_entry_below(struct prefix_node *top, int64_t len,
                                      const struct cache_wanted *w) {
    struct cache_entry *best = NULL;
    for (struct prefix_node *n = top; n; n = prefix_next(top, n)) {
        struct cache_entry *y = cache_entry_of(n, len, w);
        if (!y)
            continue;
        bool here = y->image != NULL, had = best && best->image;
        if (!best || here > had || (here == had && y->len < best->len))
            best = y;
    }
    return best;
}

static struct cache_entry *nearest(struct cache *c, const int32_t *ids, int64_t n,
                                   const struct cache_wanted *w, int64_t *common) {
    struct prefix_match m = prefix_find(&c->tree, ids, n, 0);
    struct cache_entry *y = cache_entry_below(m.node, m.common, w);
    *common = m.common;
    if (!y && (y = cache_entry_above(m.node, m.common, w)))
        *common = y->len;
    return y;
}

struct cache_entry *cache_kin(struct cache *c, const int32_t *ids, int64_t n, int64_t sparse_end,
                              int64_t *common) {
    struct cache_wanted w = {.sparse_end = sparse_end, .ready = true};
    return nearest(c, ids, n, &w, common);
}

struct cache_entry *cache_base(struct cache *c, const int32_t *ids, int64_t n, int64_t sparse_end,
                               int64_t *common) {
    struct cache_wanted w = {.sparse_end = sparse_end, .file = true};
    return nearest(c, ids, n, &w, common);
}

struct cache_entry *cache_hang(struct cache *c, struct prefix_node *n, int64_t sparse_end) {
    struct cache_entry *y = calloc(1, sizeof *y);
    if (!y)
        return NULL;
    y->node = n;
    y->len = n->end;
    y->sparse_end = sparse_end;
    y->used = c->clock;
    y->same = n->entries;
    n->entries = y;
    n->gone = 0;
    y->next = c->all;
    if (y->next)
        y->next->prev = y;
    c->all = y;
    c->blocks.other += (int64_t)sizeof *y;
    c->stats.entries++;
    return y;
}

int64_t cache_bytes(const struct cache *c) {
    return c->blocks.held + c->blocks.other + c->tree.bytes;
}

static int oldest_first(const void *a, const void *b) {
    struct prefix_node *const *x = a, *const *y = b;
    return ((*x)->touched > (*y)->touched) - ((*x)->touched < (*y)->touched);
}

// Leaves of the tree that have no entries, the oldest first; how many.
static int64_t list_ghosts(struct cache *c, struct prefix_node ***out) {
    struct prefix_node **all = NULL;
    int64_t n = 0, cap = 0;
    for (struct prefix_node *y = &c->tree.root; y; y = prefix_next(&c->tree.root, y)) {
        if (!y->parent || y->child || y->entries)
            continue;
        if (vec_reserve(&all, &cap, n + 1, sizeof *all, NULL))
            break;
        all[n++] = y;
    }
    if (n)
        qsort((void *)all, (size_t)n, sizeof *all, oldest_first);
    *out = all;
    return n;
}

// Taking a leaf out takes no other leaf with it, but may leave a new one.
void cache_prune_ghosts(struct cache *c, int64_t most) {
    for (int64_t n = 1; n && c->ghosts > most;) {
        struct prefix_node **all;
        n = list_ghosts(c, &all);
        for (int64_t i = 0; i < n && c->ghosts > most; i++) {
            int64_t before = c->tree.bytes;
            prefix_prune(&c->tree, all[i]);
            c->ghosts = max_i64(c->ghosts - (before - c->tree.bytes), 0);
        }
        free((void *)all);
        if (!n)
            c->ghosts = 0;
    }
}

void cache_copying(struct cache *c, struct cache_entry *y, struct checkpoint *source) {
    y->source = source;
    y->behind = NULL;
    y->taken = exec_stretch(cache_exec(c));
    y->spoilt = false;
    *(c->copying ? &c->copying_last->behind : &c->copying) = y;
    c->copying_last = y;
}

int cache_copied(struct cache *c, struct cache_entry *y) {
    struct cache_entry *before = NULL;
    struct exec *x = cache_exec(c);
    int rc = image_settle(y->image, c->copier, NULL);
    // Whose state else a failure has spoilt is told by that state (state/sequence.h).
    if (y->taken == exec_stretch(x))
        (void)exec_status(x, NULL);
    if (!rc && (y->spoilt || exec_spoilt(x, y->taken) || !checkpoint_usable(y->source)))
        rc = ERR_DEVICE;
    checkpoint_destroy(y->source);
    y->source = NULL;
    for (struct cache_entry *z = c->copying; z != y; z = z->behind)
        before = z;
    *(before ? &before->behind : &c->copying) = y->behind;
    if (c->copying_last == y)
        c->copying_last = before;
    return rc;
}

void cache_free_image(struct cache *c, struct image **m) {
    if (!image_free(*m, &c->blocks))
        c->stats.failed++;
    *m = NULL;
}

static void free_image(struct cache *c, struct cache_entry *y) {
    if (y->source && cache_copied(c, y))
        for (struct cache_entry *z = c->copying; z; z = z->behind)
            z->spoilt = z->spoilt || image_shares(z->image, y->image);
    cache_free_image(c, &y->image);
}

void cache_let_go(struct cache *c, struct cache_entry *y) {
    if (y->file)
        free_image(c, y);
    else
        cache_drop(c, y);
}

void cache_drop(struct cache *c, struct cache_entry *y) {
    struct prefix_node *n = y->node;
    struct cache_entry **at = &n->entries;
    while (*at != y)
        at = &(*at)->same;
    *at = y->same;
    *(y->prev ? &y->prev->next : &c->all) = y->next;
    if (y->next)
        y->next->prev = y->prev;
    free_image(c, y);
    cache_free_image(c, &y->incoming);
    c->blocks.other -= (int64_t)sizeof *y;
    c->stats.entries--;
    free(y);
    if (n->entries)
        return;
    n->gone = max_i64(c->clock, 1);
    if (!n->child)
        c->ghosts += (int64_t)sizeof *n + n->n * (int64_t)sizeof *n->ids;
    if (c->ghosts > c->o.ram / GHOST_PART) // by half, so that not each drop looks for one
        cache_prune_ghosts(c, c->o.ram / GHOST_PART / 2);
}
