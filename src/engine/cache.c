// SPDX-License-Identifier: Apache-2.0
// What goes into the cache and what comes out; what is dropped is in cache_room.c. See cache.h.
#include "engine/cache_impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/model_checkpoint.h"

const char *cache_why_name(enum cache_why why) {
    static const char *const names[] = {"off",     "hit",      "new",     "changed",
                                        "evicted", "settings", "between", "failed"};
    return names[why];
}

// A checkpoint of a recurrent state takes as much as so many tokens; closer ones cost more than
// what lies between them.
static int64_t grid_of(const struct session *s, const struct sequence_spec *spec) {
    enum { LEAST = 2048, MANY = 1 << 16 };
    int64_t state = recurrent_save_bytes(&spec->shape, spec->n_recurrent);
    int64_t token = max_i64(plan_kv(session_plan(s), MANY) / MANY, 1);
    return round_up(max_i64(LEAST, state / token), KV_PAGE);
}

int cache_create(struct cache **out, struct session *s, const struct cache_options *o,
                 struct err *e) {
    struct model *m = session_model(s);
    struct sequence_spec spec = model_spec(m);
    struct cache *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for the prefix cache");
    c->session = s;
    c->o = *o;
    c->model = model_content(m);
    c->grid = o->grid > 0 ? round_up(o->grid, GDN_BLOCK) : grid_of(s, &spec);
    c->sparse = spec.sparse.on;
    c->cuts = spec.n_recurrent == 0;
    for (int i = 0; i < spec.n_groups; i++)
        c->cuts = c->cuts && spec.groups[i].window == 0;
    host_blocks_init(&c->blocks, spec.x, o->ram);
    int rc = copier_create(&c->copier, spec.x, e);
    if (rc) {
        cache_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

void cache_destroy(struct cache *c) {
    if (!c)
        return;
    cache_flush(c);
    while (c->all)
        cache_drop(c, c->all);
    prefix_tree_fini(&c->tree);
    host_blocks_fini(&c->blocks);
    copier_destroy(c->copier);
    free(c);
}

void cache_settle(struct cache *c, struct cache_entry *y) {
    if (!y->source)
        return;
    int rc = copier_wait(c->copier, y->ticket, NULL);
    bool whole = !rc && checkpoint_usable(y->source);
    checkpoint_destroy(y->source);
    y->source = NULL;
    if (!whole)
        cache_drop(c, y);
}

static void settle(struct cache *c, bool wait) {
    struct cache_entry *next;
    for (struct cache_entry *y = c->all; y; y = next) {
        next = y->next;
        if (y->source && (wait || copier_done(c->copier, y->ticket)))
            cache_settle(c, y);
    }
}

void cache_poll(struct cache *c) {
    settle(c, false);
}

void cache_flush(struct cache *c) {
    settle(c, true);
}

// The entry of a node that has this rule for its first `len` tokens.
static struct cache_entry *entry_of(const struct prefix_node *n, int64_t len, int64_t sparse_end) {
    struct cache_entry *y = n->entries;
    while (y && !cache_same_rule(y, len, sparse_end))
        y = y->same;
    return y;
}

// The longest entry on the way to a node that is no longer than `most`.
static struct cache_entry *entry_above(const struct prefix_node *n, int64_t most,
                                       int64_t sparse_end) {
    struct cache_entry *y = NULL;
    for (; n && !y; n = n->parent)
        if (n->end <= most)
            y = entry_of(n, n->end, sparse_end);
    return y;
}

// The shortest of those at a node or below that have this rule for their first `len` tokens.
static struct cache_entry *entry_below(struct prefix_node *top, int64_t len, int64_t sparse_end) {
    struct cache_entry *best = NULL;
    for (struct prefix_node *n = top; n; n = prefix_next(top, n)) {
        struct cache_entry *y = entry_of(n, len, sparse_end);
        if (y && (!best || y->image->len < best->image->len))
            best = y;
    }
    return best;
}

// Puts an entry's state into seq, cut to at most `most` tokens; the tokens that are there then.
static int64_t put_back(struct cache *c, struct cache_entry *y, const int32_t *ids, int64_t most,
                        struct sequence *seq) {
    struct model *m = session_model(c->session);
    struct sequence_spec spec = model_spec(m);
    int64_t kept = 0, len = y->image->len;
    int32_t *text = malloc((size_t)len * sizeof *text);
    struct checkpoint *p = NULL;
    if (!text)
        return 0;
    prefix_text(y->node, text);
    struct image_target to = {.spec = &spec,
                              .model = c->model,
                              .device = exec_kind(model_exec(m)),
                              .vocab = model_params_of(m)->vocab,
                              .tokens = text};
    int rc = image_restore(y->image, &to, &p, NULL);
    if (!rc)
        rc = sequence_restore(seq, p, NULL);
    checkpoint_destroy(p);
    free(text);
    if (!rc)
        rc = sequence_truncate(seq, min_i64(len, most), &kept, NULL);
    if (rc || kept > most || memcmp(sequence_tokens(seq), ids, (size_t)kept * sizeof *ids) != 0)
        (void)sequence_truncate(seq, 0, &kept, NULL);
    return kept;
}

// Why no more than r->cached tokens were there.
static enum cache_why explain(const struct prefix_match *m, const struct cache_report *r,
                              int64_t limit, int64_t sparse_end, bool tried) {
    enum { NEAR = 2 * GDN_BLOCK };
    const struct prefix_node *n = m->node;
    bool differs = r->here >= 0 && r->there >= 0;
    if (m->common == 0)
        return CACHE_NEW;
    if (min_i64(r->common, limit) - r->cached < NEAR)
        return differs ? CACHE_CHANGED : CACHE_HIT;
    if (tried)
        return CACHE_FAILED;
    for (; n && n->end > r->cached; n = n->parent) {
        if (n->end > limit)
            continue;
        if (n->entries && !entry_of(n, n->end, sparse_end))
            return CACHE_SETTINGS;
        if (n->gone)
            return CACHE_EVICTED;
    }
    return CACHE_BETWEEN;
}

// The token with which the text of a match goes on, behind what is common; -1: it ends there.
static int32_t token_behind(const struct prefix_match *m) {
    const struct prefix_node *n = m->node;
    if (m->common < n->end)
        return prefix_token(n, m->common);
    return n->child ? n->child->ids[0] : -1;
}

struct cache_report cache_restore(struct cache *c, const int32_t *ids, int64_t n,
                                  int64_t sparse_end, struct sequence *seq) {
    struct prefix_match m = prefix_find(&c->tree, ids, n, ++c->clock);
    struct cache_report r = {.common = m.common, .here = -1, .there = token_behind(&m)};
    int64_t limit = min_i64(m.common, n - 1);
    sparse_end = c->sparse ? sparse_end : 0; // as checkpoints say
    struct cache_entry *y = entry_above(m.node, limit, sparse_end), *longer = NULL;
    int64_t have = y ? y->image->len : 0;
    if (m.common < n)
        r.here = ids[m.common];
    if (c->cuts && limit >= CACHE_LEAST && have < limit)
        longer = entry_below(m.node, limit, sparse_end);
    if (longer)
        cache_flush(c);
    if (longer && (r.cached = put_back(c, longer, ids, limit, seq)) > have)
        y = longer;
    else if (y) {
        if (y->source)
            cache_flush(c);
        r.cached = put_back(c, y, ids, limit, seq);
    }
    r.why = explain(&m, &r, limit, sparse_end, y && r.cached == 0);
    c->stats.lookups++;
    if (r.cached) {
        c->stats.hits++;
        y->hits++;
        y->used = c->clock;
    }
    return r;
}

// Of the entries that begin like ids[0..n), the one that shares most of them, and how many.
static struct cache_entry *kin_of(struct cache *c, const int32_t *ids, int64_t n,
                                  int64_t sparse_end, int64_t *common) {
    struct prefix_match m = prefix_find(&c->tree, ids, n, 0);
    struct cache_entry *y = entry_below(m.node, m.common, sparse_end);
    *common = m.common;
    if (!y && (y = entry_above(m.node, m.common, sparse_end)))
        *common = y->image->len;
    return y;
}

// Makes the entry of a checkpoint at its node.
static int add(struct cache *c, struct checkpoint *p, struct err *e) {
    struct model *m = session_model(c->session);
    const int32_t *ids = checkpoint_tokens(p);
    int64_t len = checkpoint_len(p), end = checkpoint_sparse_end(p);
    struct cache_entry *y = calloc(1, sizeof *y);
    struct image_source from = {.checkpoint = p,
                                .model = c->model,
                                .device = exec_kind(model_exec(m)),
                                .vocab = model_params_of(m)->vocab};
    struct cache_entry *kin = kin_of(c, ids, len, end, &from.kin.common);
    from.kin.image = kin ? kin->image : NULL;
    int rc = y ? 0 : err_set(e, ERR_MEMORY, "no memory for an entry of the prefix cache");
    int64_t more = (int64_t)(sizeof *y + 2 * sizeof(struct prefix_node)) +
                   len * (int64_t)sizeof *ids + image_needs(&from);
    if (!rc && !cache_make_room(c, more, kin))
        rc = err_set(e, ERR_LIMIT, "the prefix cache has no room for a text of %lld tokens",
                     (long long)len);
    if (!rc)
        rc = prefix_add(&c->tree, ids, len, &y->node, e);
    if (!rc)
        c->blocks.most = c->o.ram - c->tree.bytes;
    if (!rc && (rc = image_take(&y->image, &from, &c->blocks, c->copier, &y->ticket, e)))
        prefix_prune(&c->tree, y->node);
    if (rc) {
        free(y);
        return rc;
    }
    y->source = p;
    y->used = c->clock;
    y->same = y->node->entries;
    y->node->entries = y;
    y->node->gone = 0;
    y->next = c->all;
    if (y->next)
        y->next->prev = y;
    c->all = y;
    c->blocks.other += (int64_t)sizeof *y;
    host_blocks_trim(&c->blocks, c->o.ram - c->tree.bytes - c->blocks.other);
    c->stats.entries++;
    c->stats.put++;
    return 0;
}

void cache_put(struct cache *c, struct checkpoint *p) {
    int64_t len = checkpoint_len(p), end = checkpoint_sparse_end(p);
    const int32_t *ids = checkpoint_tokens(p);
    struct prefix_match m = prefix_find(&c->tree, ids, len, 0);
    struct cache_entry *y = NULL;
    if (m.common == len && m.node->end == len)
        y = entry_of(m.node, len, end);
    if (y)
        y->used = c->clock;
    if (y || len < CACHE_LEAST || !checkpoint_usable(p)) {
        checkpoint_destroy(p);
        return;
    }
    if (add(c, p, NULL)) {
        c->stats.refused++;
        checkpoint_destroy(p);
        return;
    }
    cache_poll(c);
}

// Where a checkpoint that is asked for at `at` would be.
static int64_t place_of(const struct cache *c, int64_t at) {
    return c->cuts ? at : at / GDN_BLOCK * GDN_BLOCK;
}

int cache_points(struct cache *c, const int32_t *ids, int64_t n, int64_t from,
                 const struct cache_places *places, int64_t **out) {
    int64_t *at = malloc((size_t)(places->n + n / c->grid + 1) * sizeof *at), last = from;
    int count = 0, i = c->cuts && places->n ? places->n - 1 : 0; // texts can be cut: the last one
    if (!at)
        return 0;
    for (;;) {
        int64_t grid = c->cuts ? INT64_MAX : (last / c->grid + 1) * c->grid;
        int64_t place = i < places->n ? places->at[i] : INT64_MAX;
        int64_t next = place_of(c, min_i64(place, grid));
        i += place <= grid && i < places->n;
        if (next >= n && place >= n)
            break;
        if (next <= last || next >= n || next < CACHE_LEAST)
            continue;
        struct prefix_match m = prefix_find(&c->tree, ids, next, 0);
        last = next;
        if (m.common < next || m.node->end != next || !m.node->entries)
            at[count++] = next;
    }
    if (!count)
        free(at);
    *out = count ? at : NULL;
    return count;
}

struct cache_stats cache_stats(const struct cache *c) {
    struct cache_stats s = c->stats;
    s.bytes = cache_bytes(c);
    s.limit = c->o.ram;
    return s;
}
