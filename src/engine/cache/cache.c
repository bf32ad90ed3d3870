// SPDX-License-Identifier: Apache-2.0
// What goes into the cache and what comes out of it; entries and their eviction are in entries.c.
#include "engine/cache/entries.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/checkpoint.h"

#define USUAL_MIN (INT64_C(256) << 20)
#define USUAL_MAX (INT64_C(8) << 30)

enum { EDITED = 256, EDITED_MIN = 512 }; // tokens, see edited_from
static const int64_t PREPARED = INT64_C(2) << 30;

// A checkpoint of a recurrent state takes as much as that many tokens; closer ones cost more than
// what lies between them. A text that takes less than a sixteenth of that is sooner run again than
// its state is copied out and back.
static void set_distances(struct cache *c, const struct sequence_spec *spec, int64_t grid) {
    enum { LEAST = 2048, MANY = 1 << 16, SHARE = 16 };
    int64_t state = recurrent_save_bytes(&spec->shape, spec->n_recurrent);
    int64_t token = max_i64(plan_kv(session_plan(c->session), MANY) / MANY, 1);
    c->grid =
        grid > 0 ? round_up(grid, GDN_BLOCK) : round_up(max_i64(LEAST, state / token), KV_PAGE);
    c->min_len = max_i64(CACHE_MIN_TOKENS, state / token / SHARE);
}

int64_t cache_usual_ram(int64_t model, int64_t machine) {
    int64_t wanted = model < USUAL_MAX / 4 ? max_i64(4 * model, USUAL_MIN) : USUAL_MAX;
    int64_t left = max_i64(machine - model, machine / 8);
    return machine > 0 ? min_i64(wanted, left / 8) : wanted;
}

// A state of one page in each group is the least that can be held.
static int check_host(const struct cache *c, struct err *e) {
    const struct kv_needs *kv = &session_plan(c->session)->kv;
    struct sequence_spec spec = model_spec(session_model(c->session));
    int64_t least = recurrent_save_bytes(&spec.shape, spec.n_recurrent);
    for (int i = 0; i < kv->n; i++)
        least += kv->of[i].page_bytes;
    if (c->o.host >= least)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "%lld bytes of host memory for states (--kv-host) are less than one of a single "
                   "page takes, %lld bytes; give at least that, or none",
                   (long long)c->o.host, (long long)least);
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
    c->o.ram += o->host;
    c->keeps = o->ram > 0;
    c->o.dir = c->keeps ? o->dir : NULL;
    set_distances(c, &spec, o->grid);
    c->sparse = sequence_spec_ruled(&spec);
    c->cuts = spec.n_recurrent == 0;
    for (int i = 0; i < spec.n_groups; i++)
        c->cuts = c->cuts && spec.groups[i].window == 0;
    host_blocks_init(&c->blocks, spec.x, c->o.ram);
    int rc = o->host ? check_host(c, e) : 0;
    if (!rc)
        rc = copier_create(&c->copier, spec.x, e);
    if (rc) {
        cache_destroy(c);
        return rc;
    }
    cache_disk_tier_open(c);
    *out = c;
    return 0;
}

void cache_prepare(struct cache *c) {
    struct sequence_spec spec = model_spec(session_model(c->session));
    size_t state = (size_t)recurrent_save_bytes(&spec.shape, spec.n_recurrent);
    struct ram_copy shape;
    if (cache_empty_shape(c, &shape, NULL, NULL))
        return;
    ram_copy_prepare(&shape, &c->blocks, spec.n_recurrent ? state : 0, min_i64(c->o.ram, PREPARED));
    free(shape.form);
}

void cache_destroy(struct cache *c) {
    if (!c)
        return;
    cache_flush(c);
    cache_disk_tier_close(c);
    while (c->all)
        cache_entry_drop(c, c->all);
    prefix_tree_fini(&c->tree);
    host_blocks_fini(&c->blocks);
    copier_destroy(c->copier);
    free(c);
}

// A RAM copy that is not what it should be goes, and so do those that may have pages of it: they
// were taken since, so their copies come after its own.
static void drop_invalid(struct cache *c, struct cache_entry *y) {
    for (struct cache_entry *z = c->copying, *next; z; z = next) {
        next = z->next_copy;
        if (ram_copy_shares(z->ram_copy, y->ram_copy))
            cache_evict(c, z);
    }
    cache_evict(c, y);
}

// Whether its copies have ended and the device's status has been read after them.
static bool is_over(const struct cache *c, const struct cache_entry *y) {
    return y->queued_epoch < exec_epoch(cache_exec(c)) && ram_copy_settled(y->ram_copy, c->copier);
}

// In the order of copies, so that none is offered whose pages another has made invalid.
static void settle_copies(struct cache *c, bool wait) {
    struct cache_entry *y;
    while ((y = c->copying) && (wait || is_over(c, y))) {
        if (cache_copied(c, y))
            drop_invalid(c, y);
        else
            cache_disk_tier_offer(c, y);
    }
}

// Puts an entry's state into seq, cut to at most `max` tokens; the tokens that are there then.
static int64_t restore_entry(struct cache *c, struct cache_entry *y, const int32_t *ids,
                             int64_t max, struct sequence *seq) {
    struct model *m = session_model(c->session);
    struct sequence_spec spec = model_spec(m);
    int64_t kept = 0, len = y->len;
    int32_t *text = malloc((size_t)len * sizeof *text);
    struct checkpoint *p = NULL;
    if (!text)
        return 0;
    prefix_text(y->node, text);
    int rc = ram_copy_restore(y->ram_copy, &spec, text, &p, NULL);
    if (!rc)
        rc = sequence_restore(seq, p, NULL);
    checkpoint_destroy(p);
    free(text);
    if (!rc)
        rc = sequence_truncate(seq, min_i64(len, max), &kept, NULL);
    if (rc || kept > max || memcmp(sequence_tokens(seq), ids, (size_t)kept * sizeof *ids) != 0)
        (void)sequence_truncate(seq, 0, &kept, NULL);
    return kept;
}

// Why no more than r->cached tokens were there.
static enum cache_why explain_miss(const struct prefix_match *m, const struct cache_report *r,
                                   int64_t limit, const struct cache_wanted *w, bool tried) {
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
        if (n->entries && !cache_entry_of(n, n->end, w))
            return CACHE_SETTINGS;
        if (n->gone)
            return CACHE_EVICTED;
    }
    return CACHE_BETWEEN;
}

// The token with which the text of a match goes on, after what is common; -1: it ends there.
static int32_t token_after(const struct prefix_match *m) {
    const struct prefix_node *n = m->node;
    if (m->common < n->end)
        return prefix_token(n, m->common);
    return n->child ? n->child->ids[0] : -1;
}

// The best entry for a prompt: on its way, or a longer one that can be cut to `limit` tokens.
static struct cache_entry *choose_entry(const struct cache *c, const struct prefix_match *m,
                                        int64_t limit, const struct cache_wanted *w, bool cut) {
    struct cache_entry *y = cache_entry_above(m->node, limit, w), *longer = NULL;
    if (cut && c->cuts && limit >= CACHE_MIN_TOKENS && (y ? y->len : 0) < limit)
        longer = cache_entry_below(m->node, limit, w);
    return longer ? longer : y;
}

bool cache_ready(struct cache *c, const int32_t *ids, int64_t n, int64_t sparse_end) {
    struct cache_wanted any = {.sparse_end = c->sparse ? sparse_end : 0}, here = any;
    if (!c->disk)
        return true;
    if (!cache_disk_tier_look(c))
        return false;
    struct prefix_match m = prefix_find(&c->tree, ids, n, 0);
    int64_t limit = min_i64(m.common, n - 1);
    struct cache_entry *y = choose_entry(c, &m, limit, &any, true);
    if (!y || y->ram_copy)
        return true;
    here.ready = true;
    struct cache_entry *near = choose_entry(c, &m, limit, &here, true);
    if (near && min_i64(near->len, limit) + c->grid / 8 >= min_i64(y->len, limit))
        return true; // reading it is not worth the wait
    return !y->loading && !cache_disk_tier_load(c, y);
}

enum { LATER = 1 };

// Makes the RAM copy of a checkpoint and begins to fill it. LATER: memory for it is being made, and
// `wait` is false.
static int make_ram_copy(struct cache *c, struct checkpoint *from, const struct ram_copy *shape,
                         bool wait, struct ram_copy **out, struct err *e) {
    const int32_t *ids = checkpoint_tokens(from);
    struct cache_wanted w = {.sparse_end = shape->sparse_end, .ready = true};
    struct ram_copy_base base = {0};
    struct cache_entry *near = cache_nearest(c, ids, shape->len, &w, &base.common);
    base.ram_copy = near ? near->ram_copy : NULL;
    int64_t more = (int64_t)(sizeof *near + 2 * sizeof *near->node) +
                   shape->len * (int64_t)sizeof *ids + ram_copy_needs(shape, &base);
    if (!cache_evict_for(c, more, near))
        return err_set(e, ERR_LIMIT, "the prefix cache has no room for a text of %lld tokens",
                       (long long)shape->len);
    c->blocks.max = cache_room(c) - c->tree.bytes;
    if (!wait && !ram_copy_ready(shape, &base, &c->blocks))
        return LATER;
    int rc = ram_copy_make(out, shape, &base, &c->blocks, e);
    return rc ? rc : ram_copy_take(*out, from, c->copier, c->blocks.x, e);
}

// The entry of a checkpoint, which is only in a file or not there at all. LATER: as make_ram_copy.
static int add_entry(struct cache *c, struct checkpoint *p, struct cache_entry *y, bool wait,
                     struct err *e) {
    struct ram_copy shape, *ram_copy = NULL;
    struct prefix_node *n;
    int rc = ram_copy_shape(p, &shape, NULL, e);
    if (rc)
        return rc;
    rc = make_ram_copy(c, p, &shape, wait, &ram_copy, e);
    if (!ram_copy)
        free(shape.form);
    if (!rc)
        rc = prefix_add(&c->tree, checkpoint_tokens(p), shape.len, &n, e);
    if (!rc && !y && !(y = cache_entry_add(c, n, shape.sparse_end)))
        rc = err_set(e, ERR_MEMORY, "no memory for an entry of the prefix cache");
    if (rc) {
        if (ram_copy)
            (void)ram_copy_settle(ram_copy, c->copier, NULL);
        cache_free_ram_copy(c, &ram_copy);
        return rc;
    }
    y->ram_copy = ram_copy;
    cache_copying(c, y, p);
    y->used = c->clock;
    host_blocks_trim(&c->blocks, cache_room(c) - c->tree.bytes - c->blocks.other);
    c->stats.put++;
    return 0;
}

// The entry of a checkpoint's text, or NULL.
static struct cache_entry *entry_for(struct cache *c, const struct checkpoint *p) {
    int64_t len = checkpoint_len(p);
    struct cache_wanted w = {.sparse_end = checkpoint_sparse_end(p)};
    struct prefix_match m = prefix_find(&c->tree, checkpoint_tokens(p), len, 0);
    return m.common == len && m.node->end == len ? cache_entry_of(m.node, len, &w) : NULL;
}

// Keeps a checkpoint or gives it up; false: it has to wait for memory. *kept: the entry that has
// its state then, in memory; NULL: none has.
static bool put_checkpoint(struct cache *c, struct checkpoint *p, bool wait,
                           struct cache_entry **kept) {
    int64_t len = checkpoint_len(p);
    struct cache_entry *y = entry_for(c, p);
    *kept = y && y->ram_copy ? y : NULL;
    if (y)
        y->used = c->clock;
    if ((y && (y->ram_copy || y->loading)) || len < c->min_len || !checkpoint_usable(p)) {
        checkpoint_destroy(p);
        return true;
    }
    int rc = add_entry(c, p, y, wait, NULL);
    if (rc == LATER)
        return false;
    if (!rc)
        *kept = y ? y : entry_for(c, p);
    if (rc) {
        c->stats.refused++;
        checkpoint_destroy(p);
    }
    return true;
}

// Keeps those that wait, the first n of them at any cost and others as long as there is memory.
static void put_deferred(struct cache *c, int n) {
    int done = 0;
    struct cache_entry *kept;
    while (done < c->n_deferred && put_checkpoint(c, c->deferred[done], done < n, &kept))
        done++;
    c->n_deferred -= done;
    memmove(c->deferred, c->deferred + done, (size_t)c->n_deferred * sizeof c->deferred[0]);
}

// What has been hung on the tree after the last look at the budget takes its room, too.
static void keep_to_budget(struct cache *c) {
    (void)cache_evict_for(c, 0, NULL);
    host_blocks_trim(&c->blocks, cache_room(c) - c->tree.bytes - c->blocks.other);
}

void cache_put(struct cache *c, struct checkpoint *p) {
    struct cache_entry *kept;
    if (c->n_deferred == CACHE_DEFERRED)
        put_deferred(c, 1);
    if (c->n_deferred || !put_checkpoint(c, p, false, &kept))
        c->deferred[c->n_deferred++] = p;
    settle_copies(c, false);
    cache_disk_tier_poll(c);
    keep_to_budget(c);
}

static bool hold_entry(struct cache *c, struct cache_entry *y, struct cache_hold *h) {
    int64_t more = y->holds ? 0 : ram_copy_hold(y->ram_copy, 1);
    const int64_t room = c->o.host - c->held - more;
    if (session_kv_host(c->session).held > room)
        session_kv_host_trim(c->session);
    if (session_kv_host(c->session).held > room) {
        (void)ram_copy_hold(y->ram_copy, -1);
        return false;
    }
    c->held += more;
    session_kv_host_limit(c->session, c->o.host - c->held);
    *h = (struct cache_hold){y, y->holds};
    y->holds = h;
    c->stats.holds++;
    return true;
}

bool cache_put_held(struct cache *c, struct checkpoint *p, struct cache_hold *h) {
    struct cache_entry *y;
    put_deferred(c, c->n_deferred);
    c->holding = true;
    (void)put_checkpoint(c, p, true, &y);
    c->holding = false;
    bool held = y && hold_entry(c, y, h);
    if (y && !y->holds && !c->keeps)
        cache_evict(c, y);
    settle_copies(c, false);
    cache_disk_tier_poll(c);
    keep_to_budget(c);
    return held;
}

void cache_release(struct cache *c, struct cache_hold *h) {
    struct cache_entry *y = h->entry;
    struct cache_hold **at = y ? &y->holds : NULL;
    if (!y)
        return;
    if (!h->next && *at == h) { // the last one
        cache_let_go(c, y);
        if (!c->keeps)
            cache_evict(c, y);
        return;
    }
    while (*at != h)
        at = &(*at)->next;
    *at = h->next;
    *h = (struct cache_hold){0};
}

bool cache_keeps(const struct cache *c) {
    return c->keeps;
}

void cache_poll(struct cache *c) {
    put_deferred(c, 0);
    settle_copies(c, false);
    cache_disk_tier_poll(c);
    keep_to_budget(c);
}

void cache_flush(struct cache *c) {
    put_deferred(c, c->n_deferred);
    settle_copies(c, true);
    keep_to_budget(c);
}

// Keeps those that wait for memory and that this text goes on from.
static void catch_up(struct cache *c, const int32_t *ids, int64_t n) {
    for (int i = c->n_deferred; i-- > 0;) {
        int64_t len = checkpoint_len(c->deferred[i]);
        const int32_t *its = checkpoint_tokens(c->deferred[i]);
        if (len < n && memcmp(its, ids, (size_t)len * sizeof *ids) == 0) {
            put_deferred(c, i + 1);
            return;
        }
    }
}

struct cache_report cache_restore(struct cache *c, const int32_t *ids, int64_t n,
                                  int64_t sparse_end, struct sequence *seq) {
    catch_up(c, ids, n);
    settle_copies(c, true); // before what it may drop is looked at
    struct prefix_match m = prefix_find(&c->tree, ids, n, ++c->clock);
    struct cache_report r = {.common = m.common, .here = -1, .there = token_after(&m)};
    struct cache_wanted w = {.sparse_end = c->sparse ? sparse_end : 0, .ready = true};
    int64_t limit = min_i64(m.common, n - 1);
    struct cache_entry *y = choose_entry(c, &m, limit, &w, true);
    bool tried = y != NULL;
    if (m.common < n)
        r.here = ids[m.common];
    if (y)
        r.cached = restore_entry(c, y, ids, limit, seq);
    if (y && !r.cached && (y = choose_entry(c, &m, limit, &w, false)))
        r.cached = restore_entry(c, y, ids, limit, seq);
    w.ready = false;
    r.why = explain_miss(&m, &r, limit, &w, tried && r.cached == 0);
    c->stats.lookups++;
    if (r.cached) {
        c->stats.hits++;
        y->hits++;
        y->used = c->clock;
        cache_disk_tier_touch(c, y);
    }
    keep_to_budget(c); // copies that have ended may have become files, which are kept account of
    return r;
}

// Where a checkpoint that is requested at `at` would be.
static int64_t checkpoint_position(const struct cache *c, int64_t at) {
    return c->cuts ? at : at / GDN_BLOCK * GDN_BLOCK;
}

// What stands in front of the first place, instructions, is edited near its end most often: notes
// of the day, of the state of a folder. Texts that can be cut need no entry there; short ones are
// run.
static int64_t edited_from(const struct cache *c, const struct cache_positions *positions) {
    int64_t end = positions->n ? positions->at[0] : 0;
    return c->cuts || end < EDITED_MIN ? 0 : end - min_i64(EDITED, end / 20);
}

int cache_checkpoint_positions(struct cache *c, const int32_t *ids, int64_t n, int64_t from,
                               const struct cache_positions *positions, int64_t **out) {
    int64_t *at = malloc((size_t)(positions->n + n / c->grid + 2) * sizeof *at), last = from;
    int64_t edited = edited_from(c, positions);
    int count = 0,
        i = c->cuts && positions->n ? positions->n - 1 : 0; // texts can be cut: the last one
    if (!at)
        return 0;
    for (;;) {
        int64_t grid = c->cuts ? INT64_MAX : (last / c->grid + 1) * c->grid;
        int64_t place = i < positions->n ? positions->at[i] : INT64_MAX;
        int64_t next = checkpoint_position(c, min_i64(place, grid));
        if (edited > last && edited < next) {
            next = checkpoint_position(c, edited);
            edited = 0;
        } else {
            i += place <= grid && i < positions->n;
        }
        if (next >= n && place >= n)
            break;
        if (next <= last || next >= n || next < c->min_len)
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
    s.bytes = c->blocks.held + c->blocks.other + c->tree.bytes;
    s.limit = c->o.ram;
    s.held = c->held;
    s.held_limit = c->o.host;
    s.pages = c->blocks.pages;
    s.disk_limit = c->disk ? c->o.disk : 0;
    return s;
}
