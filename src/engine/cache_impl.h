// SPDX-License-Identifier: Apache-2.0
// The inside of the prefix cache, for cache*.c only.
#ifndef COPPICE_ENGINE_CACHE_IMPL_H
#define COPPICE_ENGINE_CACHE_IMPL_H

#include "engine/cache.h"
#include "engine/prefix_tree.h"
#include "state/image.h"

enum { CACHE_LEAST = 32 }; // tokens of a text that is worth an entry

struct cache_entry {
    struct prefix_node *node;
    struct cache_entry *same;        // of the same node
    struct cache_entry *prev, *next; // of all
    struct image *image;
    struct checkpoint *source; // until its copies have ended; NULL: they have
    uint64_t ticket;
    int64_t used, hits; // when it was last of use, by the cache's clock; how often
};

struct cache {
    struct session *session;
    struct cache_options o;
    struct host_blocks blocks;
    struct copier *copier;
    struct prefix_tree tree;
    struct cache_entry *all; // the newest first
    uint64_t model;          // content hash
    int64_t clock;           // lookups so far
    int64_t grid;            // tokens between checkpoints within a prompt
    bool sparse;             // prompts are read by a sparse rule
    bool cuts;               // states can be cut to any length
    int64_t ghosts;          // bytes of texts that nothing is kept of any more
    struct cache_stats stats;
};

// Whether an entry's state is what would be run for `len` tokens under this rule.
static inline bool cache_same_rule(const struct cache_entry *y, int64_t len, int64_t sparse_end) {
    int64_t own = y->image->sparse_end < len ? y->image->sparse_end : len;
    return own == (sparse_end < len ? sparse_end : len);
}

int64_t cache_bytes(const struct cache *c); // of memory that it holds
// Drops what is worth least but `keep` until so many bytes more fit; false: they never do.
bool cache_make_room(struct cache *c, int64_t bytes, const struct cache_entry *keep);
void cache_drop(struct cache *c, struct cache_entry *y);   // its node may be gone with it
void cache_settle(struct cache *c, struct cache_entry *y); // its copies have ended

#endif
