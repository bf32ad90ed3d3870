// SPDX-License-Identifier: Apache-2.0
// Who may hold memory for keys and values. It is looked at in tokens before requests are admitted,
// and reserved before each pass; where that fails, the youngest members are preempted, one step at
// a time: kept prompts of groups go first, then a member is parked with its state, then one that is
// parked gives its pages up: its state moves to host memory, the prefix cache's or what --kv-host
// holds for it, and comes back by copies when there is room; what host memory has no room for is
// run again. The oldest member can have everything, so that something always goes on.
#include <stdlib.h>

#include "base/num.h"
#include "engine/loop/impl.h"

// Tokens that every member should be able to add before a member has to be preempted again, and
// what one reserves at once when it decodes.
enum { AHEAD = 128, GROWTH = 1 + TREE_MAX_DEPTH };

// Memory that texts will take besides their present one, for a while. Pieces of prompts need pages
// in layers with a window that they leave again after the pass, whose rows all texts share.
struct demand {
    int64_t lasting, passing; // bytes; passing: if each text had the pass for itself
    int64_t unread;           // tokens of prompts
    int readers;
    int64_t least; // bytes on the device with all that can be in host memory there
};

// What texts take with that much host memory.
static struct kv_needs needs_with(const struct engine *g, int64_t host) {
    struct kv_needs kv = session_plan(g->session)->kv;
    kv.host = host;
    return kv;
}

// A text of `held` tokens that goes on to `soon`, of which `left` are read in pieces.
static void demand_add(struct demand *d, const struct engine *g, int64_t held, int64_t soon,
                       int64_t left) {
    const struct memory_plan *p = session_plan(g->session);
    const struct kv_needs kv = needs_with(g, 0), least = needs_with(g, INT64_MAX);
    soon = min_i64(soon, model_max_ctx(session_model(g->session)));
    int64_t decoding = kv_needs_max(&kv, soon, GROWTH);
    d->lasting += decoding - kv_needs_kept(&kv, held);
    d->least += kv_needs_max(&least, soon, GROWTH);
    if (left <= GROWTH)
        return;
    d->passing += kv_needs_max(&kv, soon, min_i64(left, p->step)) - decoding;
    d->unread += left;
    d->readers++;
}

static void demand_of(struct demand *d, const struct engine *g, const struct stream *s) {
    const struct request *r = &s->o.r;
    int64_t held = sequence_len(job_sequence(s->job)), left = job_left(s->job);
    demand_add(d, g, held, min_i64(held + left + AHEAD, r->n_prompt + r->max_tokens), left);
}

// Whether d fits besides what the members that run will take.
static bool fits_memory(const struct engine *g, struct demand d) {
    const struct kv_needs *kv = &session_plan(g->session)->kv;
    int64_t limit = session_kv_limit(g->session), step = session_plan(g->session)->step;
    if (limit <= 0)
        return true;
    for (int i = 0; i < g->n_members; i++)
        if (!g->members[i]->parked)
            demand_of(&d, g, g->members[i]);
    int64_t pass = kv_needs_windows(kv, INT64_MAX, min_i64(d.unread, step)) -
                   kv_needs_windows(kv, INT64_MAX, GROWTH);
    pass += (d.readers - 1) * kv_needs_windows(kv, 1, 1); // each begins a page
    const struct kv_needs all = needs_with(g, 0);
    int64_t rows = d.unread ? kv_needs_max(&all, step, step) : 0;
    if (session_plan(g->session)->kv_host && d.least + rows > limit)
        return false;
    return d.lasting + min_i64(d.passing, max_i64(pass, 0)) <= session_kv_room(g->session);
}

bool room_to_join(const struct engine *g, const struct stream *s) {
    const struct request *r = &s->o.r;
    struct demand d = {0};
    for (int i = 0; i < g->n_members; i++)
        if (g->members[i]->parked)
            return false; // they come first
    demand_add(&d, g, 0, r->n_prompt + min_i64(r->max_tokens, AHEAD), r->n_prompt);
    return g->n_members == 0 || fits_memory(g, d);
}

static void park_member(struct engine *g, struct stream *s) {
    s->parked = true;
    s->stepped = 0;
    sequence_unreserve(job_sequence(s->job));
    job_park(s->job, true);
    g->now.parkings++;
    stream_publish(s, STREAM_PARKED);
}

// Whether the state of a member that has none may be put back from host memory. What failed again
// may be this, and running the text certainly comes to an end.
static bool may_come_back(const struct engine *g, const struct stream *s) {
    return g->cache && !sequence_len(job_sequence(s->job)) && !s->o.r.prompt_logprobs &&
           s->faults <= 1;
}

// False: its state is still being read from a file.
static bool resume_member(struct engine *g, struct stream *s) {
    int64_t n;
    const int32_t *ids = job_text(s->job, &n);
    if (!s->hold.entry && may_come_back(g, s) &&
        !cache_ready(g->cache, ids, n, job_sparse_end(s->job)))
        return false;
    s->parked = false;
    job_park(s->job, false);
    cached_again(g, s);
    return true;
}

void room_resume(struct engine *g) {
    int running = 0;
    for (int i = 0; i < g->n_members; i++)
        running += !g->members[i]->parked;
    for (int i = 0; i < g->n_members; i++) {
        struct stream *s = g->members[i];
        if (!s->parked)
            continue;
        struct demand d = {0};
        demand_of(&d, g, s);
        if (running && !fits_memory(g, d))
            return; // the younger ones wait as well
        if (!resume_member(g, s)) {
            g->stalled = !running;
            return;
        }
        running++;
    }
}

struct sequence *room_take_free_sequence(struct engine *g) {
    if (!g->n_free_sequences)
        return NULL;
    struct sequence *seq = g->free_sequences[--g->n_free_sequences];
    if (!sequence_usable(seq))
        sequence_renew(seq);
    return seq;
}

void room_free_sequence(struct engine *g, struct sequence *seq) {
    int64_t kept;
    if (g->n_free_sequences + g->n_members < g->o.slots &&
        sequence_truncate(seq, 0, &kept, NULL) == 0)
        g->free_sequences[g->n_free_sequences++] = seq;
    else
        sequence_destroy(seq);
}

void room_drop_spares(struct engine *g) {
    while (g->n_free_sequences)
        sequence_destroy(room_take_free_sequence(g));
}

void room_for_fork(struct engine *g) {
    if (g->n_free_sequences + g->n_members >= g->o.slots)
        sequence_destroy(room_take_free_sequence(g));
}

void room_drop_prefix(struct group *p) {
    sequence_destroy(p->prefix);
    p->prefix = NULL;
}

void group_drop(struct group *p) {
    if (!p || --p->refs > 0)
        return;
    room_drop_prefix(p);
    free(p);
}

void room_keep_prefix(struct engine *g) {
    for (int i = 0; i < g->n_members; i++) {
        struct stream *s = g->members[i];
        struct group *p = s->group;
        if (!p || p->first != s || sequence_len(job_sequence(s->job)) < s->o.r.n_prompt - 1)
            continue;
        // Where that fails, another one of them reads the prompt again.
        if (p->waiting)
            room_for_fork(g);
        if (p->waiting)
            (void)sequence_fork(job_sequence(s->job), &p->prefix, NULL);
        p->first = NULL;
    }
}

static void remove_slice(struct engine *g, const struct stream *s) {
    for (int i = 0; i < g->n_slices; i++) {
        if (g->slice_of[i] != s)
            continue;
        g->n_slices--;
        for (int j = i; j < g->n_slices; j++) {
            g->slices[j] = g->slices[j + 1];
            g->slice_of[j] = g->slice_of[j + 1];
        }
        return;
    }
}

// The prompt that is kept for a group, of those that wait or of a member; false: there is none.
static bool drop_waiting_prefix(struct engine *g) {
    for (struct stream *s = g->waiting.first; s; s = s->next) {
        if (!s->group || !s->group->prefix)
            continue;
        room_drop_prefix(s->group);
        return true;
    }
    return false;
}

// The state of a member moves to host memory, as far as there is room, and its pages are given up.
static bool give_pages_up(struct engine *g, struct stream *s) {
    const struct sequence *seq = job_sequence(s->job);
    struct checkpoint *c = NULL;
    if (s->o.r.prompt_logprobs || s->faults > 1) // it is run from its first token again
        cached_keep(g, s);
    else if (g->cache && sequence_resume(seq) && !sequence_checkpoint(seq, &c, NULL))
        (void)cache_put_held(g->cache, c, &s->hold);
    if (job_drop(s->job, NULL) != 0) {
        room_leave(g, s);
        return false;
    }
    g->now.dropped++;
    return true;
}

// What host memory holds for a younger member than members[at] that waits is given up, so that
// pages have room there; its text is run again. False: there is none.
static bool give_hold_up(struct engine *g, int at) {
    for (int i = g->n_members - 1; i > at; i--) {
        if (!g->members[i]->hold.entry)
            continue;
        cache_release(g->cache, &g->members[i]->hold);
        return true;
    }
    return false;
}

// Preempts a member younger than members[at] by one step; false: none is left.
static bool preempt_one(struct engine *g, int at) {
    if (drop_waiting_prefix(g))
        return true;
    for (int i = g->n_members - 1; i > at; i--) {
        struct stream *s = g->members[i];
        if (!s->parked) {
            remove_slice(g, s);
            park_member(g, s);
            return true;
        }
        if (sequence_len(job_sequence(s->job)) && give_pages_up(g, s))
            return true;
    }
    return give_hold_up(g, at);
}

static const struct pass_slice *slice_of(const struct engine *g, const struct stream *s) {
    for (int i = 0; i < g->n_slices; i++)
        if (g->slice_of[i] == s)
            return &g->slices[i];
    return NULL;
}

static bool short_of_memory(int rc) {
    return rc == ERR_LIMIT || rc == ERR_MEMORY;
}

// Reserves, with what no member needs given back if need be.
static int try_to_reserve(struct engine *g, struct sequence *seq, int64_t more, struct err *e) {
    int rc = sequence_reserve(seq, more, e);
    // Checkpoints whose copies are under way, or wait for memory, hold pages.
    if (short_of_memory(rc) && g->cache) {
        cache_flush(g->cache);
        rc = sequence_reserve(seq, more, e);
    }
    // Free pages of one layout are of no use to another one until they are given back.
    if (rc == ERR_MEMORY && session_trim(g->session) > 0)
        rc = sequence_reserve(seq, more, e);
    return rc;
}

static int reserve_slice(struct engine *g, int at, struct err *e) {
    struct stream *s = g->members[at];
    const struct pass_slice *t = slice_of(g, s);
    if (!t)
        return 0;
    int64_t left = job_left(s->job), more = left ? min_i64(left, t->rows) : job_growth(s->job);
    int rc = try_to_reserve(g, job_sequence(s->job), more, e);
    while (short_of_memory(rc) && preempt_one(g, at))
        rc = try_to_reserve(g, job_sequence(s->job), more, e);
    return rc;
}

// The oldest member is alone, and by the plan it fits. But its pages lie where others left room, so
// that a larger one may find none between them. It gives them up, and its state comes back in
// order. False where that did not help the last time.
static bool start_over(struct engine *g, struct stream *s) {
    int64_t len = sequence_len(job_sequence(s->job));
    if (len <= s->restarted)
        return false;
    s->restarted = len;
    if (!give_pages_up(g, s))
        return false;
    if (g->cache)
        cache_flush(g->cache);
    session_trim(g->session);
    return true;
}

struct stream *room_reserve(struct engine *g, struct err *e) {
    for (int at = 0; at < g->n_members; at++) {
        struct stream *s = g->members[at];
        int rc = reserve_slice(g, at, e);
        if (!rc)
            continue;
        remove_slice(g, s);
        bool over = at == 0 && !(rc == ERR_MEMORY && start_over(g, s));
        if (over || !short_of_memory(rc))
            return s;
        park_member(g, s);
    }
    // The device's status may have been read for a preemption.
    for (int i = 0; i < g->n_slices; i++) {
        struct stream *s = g->slice_of[i];
        if (sequence_usable(job_sequence(s->job)))
            continue;
        (void)sequence_check(job_sequence(s->job), e);
        remove_slice(g, s);
        return s;
    }
    return NULL;
}

// The prefix cache: a request that joins begins with what is known of its prompt, leaves
// checkpoints where other texts may part from it, and its state when it ends or is preempted.

static bool looks_up(const struct engine *g, const struct request *r) {
    return g->cache && cache_keeps(g->cache) && !r->prompt_logprobs;
}

static int64_t sparse_end_of(const struct request *r) {
    return r->sparse_end ? r->sparse_end : r->n_prompt;
}

bool cached_ready(struct engine *g, const struct stream *s) {
    const struct request *r = &s->o.r;
    bool prefixed = s->group && s->group->prefix;
    return !looks_up(g, r) || prefixed ||
           cache_ready(g->cache, r->prompt, r->n_prompt, sparse_end_of(r));
}

void cached_begin(struct engine *g, struct stream *s, struct sequence **own) {
    const struct request *r = &s->o.r;
    int64_t kept;
    bool made = !*own;
    s->cache = (struct cache_report){.why = CACHE_OFF, .here = -1, .there = -1};
    if (!looks_up(g, r))
        return;
    if (made && model_sequence(session_model(g->session), own, NULL))
        return;
    s->cache = cache_restore(g->cache, r->prompt, r->n_prompt, sparse_end_of(r), *own);
    if (s->cache.cached && sequence_sparse(*own, sparse_end_of(r), NULL)) {
        (void)sequence_truncate(*own, 0, &kept, NULL);
        s->cache.cached = 0;
    }
    if (made && !s->cache.cached) {
        sequence_destroy(*own);
        *own = NULL;
    }
}

static void keep_checkpoint(void *arg, struct checkpoint *c, const struct err *e) {
    struct stream *s = arg;
    (void)e;
    if (c)
        cache_put(s->engine->cache, c);
}

void set_checkpoint_positions(struct engine *g, struct stream *s, struct request *r, int64_t from) {
    if (!g->cache || !cache_keeps(g->cache))
        return;
    s->engine = g;
    free(s->checkpoint_positions);
    r->n_checkpoints = cache_checkpoint_positions(g->cache, r->prompt, r->n_prompt, from,
                                                  &s->o.positions, &s->checkpoint_positions);
    r->checkpoint_at = s->checkpoint_positions;
    r->checkpoint = keep_checkpoint;
    r->checkpoint_arg = s;
}

void cached_keep(struct engine *g, const struct stream *s) {
    const struct sequence *seq = job_sequence(s->job);
    struct checkpoint *c = NULL;
    if (!g->cache || !cache_keeps(g->cache) || sequence_resume(seq) == 0)
        return;
    if (!sequence_checkpoint(seq, &c, NULL))
        cache_put(g->cache, c);
}

void cached_again(struct engine *g, struct stream *s) {
    int64_t n;
    const int32_t *ids = job_text(s->job, &n);
    if (may_come_back(g, s)) {
        struct sequence *seq = job_sequence(s->job);
        struct cache_report y = cache_restore(g->cache, ids, n, job_sparse_end(s->job), seq);
        if (!y.cached && s->hold.entry) { // what only waits has the pages that it needs
            cache_flush(g->cache);
            while (drop_waiting_prefix(g)) {
            }
            session_trim(g->session);
            (void)cache_restore(g->cache, ids, n, job_sparse_end(s->job), seq);
        }
        if (sequence_sparse(seq, job_sparse_end(s->job),
                            NULL)) { // not what this reply goes on from
            int64_t kept;
            (void)sequence_truncate(seq, 0, &kept, NULL);
            (void)sequence_sparse(seq, job_sparse_end(s->job), NULL);
        }
    }
    room_leave(g, s);
}

void room_leave(struct engine *g, struct stream *s) {
    if (g->cache)
        cache_release(g->cache, &s->hold);
}
