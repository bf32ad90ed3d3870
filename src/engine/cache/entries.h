// SPDX-License-Identifier: Apache-2.0
// The inside of the prefix cache: a radix tree over token ids, on which entries hang. A node stands
// for a text, its path from the root, and holds only the tokens after its parent's. A node without
// entries is there because texts part at it, or as the memory of what was there before.
#ifndef COPPICE_ENGINE_CACHE_ENTRIES_H
#define COPPICE_ENGINE_CACHE_ENTRIES_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/cache/cache.h"
#include "engine/cache/disk.h"
#include "state/ram_copy.h"

struct cache_entry;

struct prefix_node {
    struct prefix_node *parent, *child, *next; // NULL parent: the root; next: of the same parent
    int32_t *ids;                              // [n] after the parent's
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

enum {
    CACHE_MIN_TOKENS = 32, // tokens of a text that is worth an entry, at least
    CACHE_DEFERRED = 8,    // checkpoints that wait for memory, at most: they hold the device's
};

struct cache_entry {
    struct prefix_node *node;
    struct cache_entry *same;        // of the same node
    struct cache_entry *prev, *next; // of all
    int64_t len, sparse_end;
    struct ram_copy *ram_copy;     // NULL: it is in a file only
    struct checkpoint *source;     // of the RAM copy, until its copies have ended; NULL: they have
    struct cache_entry *next_copy; // with a source: whose copies come next
    uint64_t queued_epoch;         // exec_epoch in which they were queued
    bool invalid;                  // it shares pages with one that was
    struct cache_hold *holds;      // as long as there are any, its RAM copy is not evicted
    int64_t used, hits;            // when it was last of use, by the cache's clock; how often
    // On the disk:
    struct record *file;       // NULL: it is not there
    bool stored, lost;         // it has been written; it is to be given up once its job has ended
    bool newer;                // a newer version has written it, so it is not removed
    struct cache_entry *base;  // whose file its own goes on from
    int dependents;            // entries whose files go on from its own
    bool writing, loading;     // a job is under way
    struct ram_copy *incoming; // of one that is being loaded
    int64_t pinned;            // bytes, of one that is being written
};

struct cache {
    struct session *session;
    struct cache_options o; // ram: with what may be held
    bool keeps, holding;    // what is not held, too; what is being put is to be held
    int64_t held;           // bytes of RAM copies that are held
    struct host_blocks blocks;
    struct copier *copier;
    struct prefix_tree tree;
    struct cache_entry *all;                     // the newest first
    struct cache_entry *copying, *copying_last;  // those with a source, in the copies' order
    struct checkpoint *deferred[CACHE_DEFERRED]; // [n_deferred], until there is pinned memory
    int n_deferred;
    int64_t clock;         // lookups so far
    int64_t grid;          // tokens between checkpoints within a prompt
    int64_t min_len;       // tokens of a text that is worth an entry
    bool sparse, cuts;     // prompts or replies have a rule; states can be cut to any length
    int64_t history_bytes; // bytes of texts that nothing is kept of any more
    struct cache_stats stats;
    struct cache_disk *disk; // NULL: none
    bool scanned, scanning;  // it is known what lies there; it is looked at
    char *identity;          // of its files, once the model's file is known
    uint64_t kind;           // its key
    uint64_t content, stamp; // of the model's file (formats/content.h), once they are known
    bool changed;            // it is another one now, or that is being found out
    const struct kv_layout *layouts[RAM_COPY_GROUPS]; // of their pages
    struct cache_found *other; // [n_other] files of other kinds, the oldest last
    int64_t n_other;
    int64_t newer_bytes; // of files that newer versions have written, which are not removed
    uint64_t *newer;     // [n_newer] keys of those of this kind, which are not written over either
    int64_t n_newer, cap_newer;
    int64_t pinned; // bytes of entries that are being written
    double noted;   // when a failure to write was last reported
    double looked;  // clock_ms when others' files were last looked for
};

static inline struct exec *cache_exec(const struct cache *c) {
    return model_exec(session_model(c->session));
}

// Whether an entry's state is what would be run for `len` tokens under this rule.
static inline bool cache_same_rule(const struct cache_entry *y, int64_t len, int64_t sparse_end) {
    return (y->sparse_end < len ? y->sparse_end : len) == (sparse_end < len ? sparse_end : len);
}

// The shape of a RAM copy of no tokens (ram_copy_shape): what all states of this cache have in
// common.
int cache_empty_shape(const struct cache *c, struct ram_copy *shape,
                      const struct kv_layout **layouts, struct err *e);

// The purpose of a look-up.
struct cache_wanted {
    int64_t sparse_end;
    bool ready; // in memory
    bool file;  // on the disk, or on its way there
};

// The entry of a node that has this rule for its first `len` tokens.
struct cache_entry *cache_entry_of(const struct prefix_node *n, int64_t len,
                                   const struct cache_wanted *w);
// The longest entry on the way to a node that is no longer than `max`.
struct cache_entry *cache_entry_above(const struct prefix_node *n, int64_t max,
                                      const struct cache_wanted *w);
// The shortest of those at a node or below that have this rule for their first `len` tokens; those
// in memory first.
struct cache_entry *cache_entry_below(struct prefix_node *top, int64_t len,
                                      const struct cache_wanted *w);
// The entry that shares most with ids[0..n), of those that are wanted, and how many tokens.
struct cache_entry *cache_nearest(struct cache *c, const int32_t *ids, int64_t n,
                                  const struct cache_wanted *w, int64_t *common);
// A new entry of a node; takes nothing over. NULL: no memory.
struct cache_entry *cache_entry_add(struct cache *c, struct prefix_node *n, int64_t sparse_end);
void cache_entry_drop(struct cache *c, struct cache_entry *y);  // its node may be gone with it
void cache_free_ram_copy(struct cache *c, struct ram_copy **m); // which nothing uses any more
// Its RAM copy's copies are under way from a checkpoint, which is the cache's from now on.
void cache_copying(struct cache *c, struct cache_entry *y, struct checkpoint *source);
// Nothing holds it any more, whose RAM copy goes.
void cache_let_go(struct cache *c, struct cache_entry *y);
// Waits for them, and for the device where no other call has since; after an error the RAM copy is
// not what it should be.
int cache_copied(struct cache *c, struct cache_entry *y);
// Out of memory, after copies that are under way; what has no file is dropped.
void cache_evict(struct cache *c, struct cache_entry *y);

int64_t cache_room(const struct cache *c); // of RAM copies, now
// Evicts what is worth least but `keep` until that many bytes more fit there; false: they never do.
bool cache_evict_for(struct cache *c, int64_t bytes, const struct cache_entry *keep);

// Entries by their value, for one eviction: each is looked at once, and again when it is its turn.
// Zeroed: not made yet; free(at).
struct cache_ranking {
    struct cache_ranked {
        struct cache_entry *entry;
        double value;
    } *at; // [n] a heap, the least first
    int64_t n, cap;
    bool files;
    const struct cache_entry *keep;
};
// Takes the least out, of RAM copies or of files; NULL: there is none, or no memory.
struct cache_entry *cache_rank_pop(struct cache_ranking *r, struct cache *c, bool files,
                                   const struct cache_entry *keep);
// Adds an entry that has come to be one that may go; NULL is allowed.
void cache_rank_push(struct cache_ranking *r, struct cache *c, struct cache_entry *y);

// The disk (disk_tier.c). All of them do nothing without one.
void cache_disk_tier_open(struct cache *c);
void cache_disk_tier_close(struct cache *c);
void cache_disk_tier_offer(struct cache *c, struct cache_entry *y); // to be written
// Begins to load an entry; false: it cannot be.
bool cache_disk_tier_load(struct cache *c, struct cache_entry *y);
void cache_disk_tier_poll(struct cache *c);
bool cache_disk_tier_look(struct cache *c); // for files of other processes; false: it is under way
void cache_disk_tier_touch(struct cache *c, struct cache_entry *y); // it was of use
void cache_disk_tier_lose(struct cache *c, struct cache_entry *y);  // its file is removed

#endif
