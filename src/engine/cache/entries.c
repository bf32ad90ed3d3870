// SPDX-License-Identifier: Apache-2.0
// The radix tree (children are a list, the one used last first), the entries on it, and which of
// them are evicted.
#include "engine/cache/entries.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "models/checkpoint.h"

static int64_t node_bytes(const struct prefix_node *n) {
    return (int64_t)sizeof *n + n->n * (int64_t)sizeof *n->ids;
}

static void free_node(struct prefix_tree *t, struct prefix_node *n) {
    t->bytes -= node_bytes(n);
    free(n->ids);
    free(n);
}

void prefix_tree_fini(struct prefix_tree *t) {
    struct prefix_node *at = &t->root;
    while (t->root.child) {
        while (at->child)
            at = at->child;
        struct prefix_node *up = at->parent;
        up->child = at->next;
        free_node(t, at);
        at = up;
    }
}

// A node of its own with a copy of n tokens.
static struct prefix_node *make_node(struct prefix_tree *t, struct prefix_node *parent,
                                     const int32_t *ids, int64_t n) {
    struct prefix_node *y = calloc(1, sizeof *y);
    if (y)
        y->ids = malloc((size_t)n * sizeof *ids);
    if (!y || !y->ids) {
        free(y);
        return NULL;
    }
    memcpy(y->ids, ids, (size_t)n * sizeof *ids);
    y->parent = parent;
    y->n = n;
    y->end = parent->end + n;
    t->bytes += node_bytes(y);
    return y;
}

// The child that begins with this token, brought to the front; NULL: none does.
static struct prefix_node *child_of(struct prefix_node *parent, int32_t id) {
    for (struct prefix_node **at = &parent->child; *at; at = &(*at)->next) {
        struct prefix_node *y = *at;
        if (y->ids[0] != id)
            continue;
        *at = y->next;
        y->next = parent->child;
        parent->child = y;
        return y;
    }
    return NULL;
}

static int64_t same_tokens(const int32_t *a, const int32_t *b, int64_t n) {
    int64_t i = 0;
    while (i < n && a[i] == b[i])
        i++;
    return i;
}

struct prefix_match prefix_find(struct prefix_tree *t, const int32_t *ids, int64_t n, int64_t now) {
    struct prefix_match m = {&t->root, 0};
    while (m.common == m.node->end && m.common < n) {
        struct prefix_node *y = child_of(m.node, ids[m.common]);
        if (!y)
            break;
        m.common += same_tokens(y->ids, ids + m.common, min_i64(y->n, n - m.common));
        m.node = y;
        if (now)
            y->touched = now;
    }
    return m;
}

// Cuts a node in two: the upper one is new and ends at `end`. NULL: no memory.
static struct prefix_node *split_node(struct prefix_tree *t, struct prefix_node *y, int64_t end) {
    int64_t n = end - y->parent->end;
    struct prefix_node *up = make_node(t, y->parent, y->ids, n);
    if (!up)
        return NULL;
    struct prefix_node **at = &y->parent->child;
    while (*at != y)
        at = &(*at)->next;
    *at = up;
    up->next = y->next;
    up->child = y;
    up->touched = y->touched;
    y->next = NULL;
    y->parent = up;
    y->n -= n;
    memmove(y->ids, y->ids + n, (size_t)y->n * sizeof *y->ids);
    t->bytes -= n * (int64_t)sizeof *y->ids;
    return up;
}

int prefix_add(struct prefix_tree *t, const int32_t *ids, int64_t n, struct prefix_node **out,
               struct err *e) {
    struct prefix_match m = prefix_find(t, ids, n, 0);
    if (m.common < m.node->end)
        m.node = split_node(t, m.node, m.common);
    if (m.node && m.common < n) {
        struct prefix_node *y = make_node(t, m.node, ids + m.common, n - m.common);
        if (y) {
            y->next = m.node->child;
            m.node->child = y;
        }
        m.node = y;
    }
    *out = m.node;
    return m.node ? 0 : err_set(e, ERR_MEMORY, "no memory for a text in the prefix cache");
}

// Puts the tokens of a node in front of its only child's and takes it out.
static void join_child(struct prefix_tree *t, struct prefix_node *up) {
    struct prefix_node *y = up->child;
    int32_t *ids = realloc(y->ids, (size_t)(up->n + y->n) * sizeof *ids);
    if (!ids)
        return; // it may stay as it is
    memmove(ids + up->n, ids, (size_t)y->n * sizeof *ids);
    memcpy(ids, up->ids, (size_t)up->n * sizeof *ids);
    y->ids = ids;
    y->n += up->n;
    t->bytes += up->n * (int64_t)sizeof *ids;
    struct prefix_node **at = &up->parent->child;
    while (*at != up)
        at = &(*at)->next;
    *at = y;
    y->next = up->next;
    y->parent = up->parent;
    free_node(t, up);
}

void prefix_prune(struct prefix_tree *t, struct prefix_node *y) {
    while (y->parent && !y->entries && !y->child) {
        struct prefix_node *up = y->parent, **at = &up->child;
        while (*at != y)
            at = &(*at)->next;
        *at = y->next;
        free_node(t, y);
        y = up;
    }
    if (y->parent && !y->entries && y->child && !y->child->next)
        join_child(t, y);
}

void prefix_text(const struct prefix_node *y, int32_t *ids) {
    for (; y->parent; y = y->parent)
        memcpy(ids + y->parent->end, y->ids, (size_t)y->n * sizeof *ids);
}

int32_t prefix_token(const struct prefix_node *y, int64_t place) {
    while (y->parent->end > place)
        y = y->parent;
    return y->ids[place - y->parent->end];
}

struct prefix_node *prefix_next(const struct prefix_node *top, struct prefix_node *at) {
    if (at->child)
        return at->child;
    while (at != top && !at->next)
        at = at->parent;
    return at == top ? NULL : at->next;
}

// Entries: found by what they share with a text, put on the tree, and taken off.

enum { HISTORY_PART = 64 }; // of the budget, for texts that nothing is kept of

static bool is_wanted(const struct cache_entry *y, const struct cache_wanted *w, int64_t len) {
    return cache_same_rule(y, len, w->sparse_end) && (!w->ready || y->ram_copy) &&
           (!w->file || (y->file && !y->lost));
}

struct cache_entry *cache_entry_of(const struct prefix_node *n, int64_t len,
                                   const struct cache_wanted *w) {
    struct cache_entry *y = n->entries;
    while (y && !is_wanted(y, w, len))
        y = y->same;
    return y;
}

struct cache_entry *cache_entry_above(const struct prefix_node *n, int64_t max,
                                      const struct cache_wanted *w) {
    struct cache_entry *y = NULL;
    for (; n && !y; n = n->parent)
        if (n->end <= max)
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
        bool here = y->ram_copy != NULL, had = best && best->ram_copy;
        if (!best || here > had || (here == had && y->len < best->len))
            best = y;
    }
    return best;
}

struct cache_entry *cache_nearest(struct cache *c, const int32_t *ids, int64_t n,
                                  const struct cache_wanted *w, int64_t *common) {
    struct prefix_match m = prefix_find(&c->tree, ids, n, 0);
    struct cache_entry *y = cache_entry_below(m.node, m.common, w);
    *common = m.common;
    if (!y && (y = cache_entry_above(m.node, m.common, w)))
        *common = y->len;
    return y;
}

struct cache_entry *cache_entry_add(struct cache *c, struct prefix_node *n, int64_t sparse_end) {
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

static int oldest_first(const void *a, const void *b) {
    struct prefix_node *const *x = a, *const *y = b;
    return ((*x)->touched > (*y)->touched) - ((*x)->touched < (*y)->touched);
}

// Leaves of the tree that have no entries, the oldest first; how many.
static int64_t list_history(struct cache *c, struct prefix_node ***out) {
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
static void prune_history(struct cache *c, int64_t max) {
    for (int64_t n = 1; n && c->history_bytes > max;) {
        struct prefix_node **all;
        n = list_history(c, &all);
        for (int64_t i = 0; i < n && c->history_bytes > max; i++) {
            int64_t before = c->tree.bytes;
            prefix_prune(&c->tree, all[i]);
            c->history_bytes = max_i64(c->history_bytes - (before - c->tree.bytes), 0);
        }
        free((void *)all);
        if (!n)
            c->history_bytes = 0;
    }
}

void cache_copying(struct cache *c, struct cache_entry *y, struct checkpoint *source) {
    y->source = source;
    y->next_copy = NULL;
    y->queued_epoch = exec_epoch(cache_exec(c));
    y->invalid = false;
    *(c->copying ? &c->copying_last->next_copy : &c->copying) = y;
    c->copying_last = y;
}

int cache_copied(struct cache *c, struct cache_entry *y) {
    struct cache_entry *before = NULL;
    struct exec *x = cache_exec(c);
    int rc = ram_copy_settle(y->ram_copy, c->copier, NULL);
    // Whether other states are invalid is told by them (state/sequence.h).
    if (y->queued_epoch == exec_epoch(x))
        (void)exec_status(x, NULL);
    if (!rc &&
        (y->invalid || exec_epoch_failed(x, y->queued_epoch) || !checkpoint_usable(y->source)))
        rc = ERR_DEVICE;
    checkpoint_destroy(y->source);
    y->source = NULL;
    for (struct cache_entry *z = c->copying; z != y; z = z->next_copy)
        before = z;
    *(before ? &before->next_copy : &c->copying) = y->next_copy;
    if (c->copying_last == y)
        c->copying_last = before;
    return rc;
}

void cache_free_ram_copy(struct cache *c, struct ram_copy **m) {
    if (!ram_copy_free(*m, &c->blocks))
        c->stats.failed++;
    *m = NULL;
}

void cache_let_go(struct cache *c, struct cache_entry *y) {
    struct cache_hold *next = y->holds;
    if (next)
        c->held -= ram_copy_hold(y->ram_copy, -1);
    if (next)
        session_kv_host_limit(c->session, c->o.host - c->held);
    y->holds = NULL;
    for (struct cache_hold *h; (h = next);) {
        next = h->next;
        *h = (struct cache_hold){0};
    }
}

static void free_ram_copy(struct cache *c, struct cache_entry *y) {
    cache_let_go(c, y);
    if (y->source && cache_copied(c, y))
        for (struct cache_entry *z = c->copying; z; z = z->next_copy)
            z->invalid = z->invalid || ram_copy_shares(z->ram_copy, y->ram_copy);
    cache_free_ram_copy(c, &y->ram_copy);
}

void cache_evict(struct cache *c, struct cache_entry *y) {
    if (y->file)
        free_ram_copy(c, y);
    else
        cache_entry_drop(c, y);
}

void cache_entry_drop(struct cache *c, struct cache_entry *y) {
    struct prefix_node *n = y->node;
    struct cache_entry **at = &n->entries;
    while (*at != y)
        at = &(*at)->same;
    *at = y->same;
    *(y->prev ? &y->prev->next : &c->all) = y->next;
    if (y->next)
        y->next->prev = y->prev;
    free_ram_copy(c, y);
    cache_free_ram_copy(c, &y->incoming);
    c->blocks.other -= (int64_t)sizeof *y;
    c->stats.entries--;
    free(y);
    if (n->entries)
        return;
    n->gone = max_i64(c->clock, 1);
    if (!n->child)
        c->history_bytes += (int64_t)sizeof *n + n->n * (int64_t)sizeof *n->ids;
    if (c->history_bytes > c->o.ram / HISTORY_PART) // by half, so that not each drop looks for one
        prune_history(c, c->o.ram / HISTORY_PART / 2);
}

// Eviction. An entry is worth the tokens that would have to be run without it, times the chance
// that they are requested again, for each byte that is freed with it. The chance falls with the
// lookups since it was last of use. Conversations come back where they ended, and where several
// texts part, but hardly ever at a place that one text has only passed through.

// Weights of the chance to come back.
static const double PASSED = 0.15; // of a place that one text has passed through
static const double HALF = 16;     // lookups after which it has halved

// Bytes that cannot be given back without dropping entries.
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

// The value of an entry for each byte, `bytes` being freed with it.
static double entry_value(struct cache *c, const struct cache_entry *y, int64_t bytes) {
    const struct cache_entry *before = entry_before(y->node);
    double tokens = (double)(y->len - (before ? before->len : 0));
    double age = (double)(c->clock - y->used);
    int branches = branches_below(y->node);
    double chance = (branches == 1 ? PASSED : branches ? 1 + (double)y->hits : 1) / (age + HALF);
    c->stats.weighed++;
    return tokens * chance / (double)max_i64(bytes, 1);
}

static bool is_evictable(const struct cache_ranking *r, const struct cache_entry *y) {
    if (y == r->keep)
        return false;
    if (r->files)
        return y->file && y->stored && !y->dependents && !y->loading;
    return y->ram_copy && !y->writing && !y->holds;
}

static struct cache_ranked rank_entry(struct cache *c, const struct cache_ranking *r,
                                      struct cache_entry *y) {
    return (struct cache_ranked){
        y, entry_value(c, y, r->files ? y->file->bytes : ram_copy_own_bytes(y->ram_copy))};
}

static void sift_down(struct cache_ranking *r, int64_t at) {
    struct cache_ranked one = r->at[at];
    for (int64_t child; (child = 2 * at + 1) < r->n; at = child) {
        if (child + 1 < r->n && r->at[child + 1].value < r->at[child].value)
            child++;
        if (one.value <= r->at[child].value)
            break;
        r->at[at] = r->at[child];
    }
    r->at[at] = one;
}

void cache_rank_push(struct cache_ranking *r, struct cache *c, struct cache_entry *y) {
    if (!y || !is_evictable(r, y) || vec_reserve(&r->at, &r->cap, r->n + 1, sizeof *r->at, NULL))
        return;
    struct cache_ranked one = rank_entry(c, r, y);
    int64_t at = r->n++;
    for (; at > 0 && one.value < r->at[(at - 1) / 2].value; at = (at - 1) / 2)
        r->at[at] = r->at[(at - 1) / 2];
    r->at[at] = one;
}

// What has gone may have made others worth more, so that the first is looked at again.
struct cache_entry *cache_rank_pop(struct cache_ranking *r, struct cache *c, bool files,
                                   const struct cache_entry *keep) {
    if (!r->at) {
        r->files = files;
        r->keep = keep;
        for (struct cache_entry *y = c->all; y; y = y->next)
            cache_rank_push(r, c, y);
    }
    while (r->n > 0) {
        struct cache_ranked first = rank_entry(c, r, r->at[0].entry);
        bool min = first.value <= r->at[0].value;
        if (min)
            r->at[0] = r->at[--r->n];
        else
            r->at[0] = first;
        if (r->n > 0)
            sift_down(r, 0);
        if (min)
            return first.entry;
    }
    return NULL;
}

int64_t cache_room(const struct cache *c) {
    return !c->keeps || c->holding ? c->o.ram - session_kv_host(c->session).held
                                   : c->o.ram - c->o.host + c->held;
}

bool cache_evict_for(struct cache *c, int64_t bytes, const struct cache_entry *keep) {
    struct cache_ranking ranking = {0};
    const int64_t max = cache_room(c);
    bool room = bytes <= max - c->held; // what is held stays
    while (room && bytes_in_use(c) + bytes > max) {
        struct cache_entry *y = cache_rank_pop(&ranking, c, false, keep);
        if (y) {
            c->stats.evicted++;
            cache_evict(c, y);
        } else if (c->history_bytes > 0) {
            prune_history(c, c->history_bytes / 2);
        } else {
            room = false;
        }
    }
    free(ranking.at);
    return room;
}

int cache_empty_shape(const struct cache *c, struct ram_copy *shape,
                      const struct kv_layout **layouts, struct err *e) {
    struct model *m = session_model(c->session);
    struct checkpoint *empty = NULL;
    struct sequence *seq = NULL;
    int rc = model_sequence(m, &seq, e);
    if (!rc)
        rc = sequence_checkpoint(seq, &empty, e);
    if (!rc)
        rc = ram_copy_shape(empty, shape, layouts, e);
    checkpoint_destroy(empty);
    sequence_destroy(seq);
    return rc;
}
