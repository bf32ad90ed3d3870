// SPDX-License-Identifier: Apache-2.0
// The thread and what others call. The lock guards what is published and whose turn it is to have
// the session's memory, the queue has its own, and nothing else is shared but streams. Nothing is
// computed, copied or waited for under a lock but its own condition.
#include "engine/loop/impl.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/pool.h"

struct engine_options engine_options_default(void) {
    return (struct engine_options){.session = session_options_default()};
}

static const char LOADING[] = "the model is still being loaded; try again in a moment";
static const char STOPPED[] = "the engine is being stopped and takes no requests any more";

static void set_state(struct engine *g, enum engine_state state, const struct err *why) {
    pthread_mutex_lock(&g->lock);
    g->state = state;
    if (why)
        g->failure = *why;
    pthread_mutex_unlock(&g->lock);
    if (g->o.changed)
        g->o.changed(g->o.changed_arg);
}

static void wake_engine(void *arg) {
    queue_wake(arg);
}

static int open_cache(struct engine *g, struct err *e) {
    struct cache_options *o = &g->o.cache;
    o->note = g->o.session.note;
    o->note_arg = g->o.session.note_arg;
    o->wake = wake_engine;
    o->wake_arg = g->queue;
    int rc = o->ram > 0 || o->host > 0 ? cache_create(&g->cache, g->session, o, e) : 0;
    if (g->cache)
        cache_prepare(g->cache);
    return rc;
}

static int load_session(struct engine *g, struct err *e) {
    struct session *s = g->o.open;
    int rc = s ? 0 : session_open(&s, &g->o.session, e);
    if (!rc)
        rc = batch_create(&g->batch, s, g->o.slots, e);
    pthread_mutex_lock(&g->lock);
    g->session = s;
    if (s)
        g->stats.page_bytes_limit = session_kv_limit(s);
    pthread_mutex_unlock(&g->lock);
    return rc ? rc : open_cache(g, e);
}

static void append_streams(struct stream_list *l, struct stream *s) {
    *(l->last ? &l->last->next : &l->first) = s;
    while (s->next)
        s = s->next;
    l->last = s;
}

// Takes new streams over; false when the thread is to end.
static bool take_streams(struct engine *g) {
    bool idle = g->stalled || (!g->n_members && !g->waiting.first), end;
    struct stream *more = queue_take(g->queue, idle, &end);
    if (more)
        append_streams(&g->waiting, more);
    return !end;
}

// A trace that cannot be written ends, and nothing else does.
static void tell_trace(struct engine *g) {
    struct err e;
    if (trace_failed(g->trace, &e) && g->o.session.note)
        g->o.session.note(g->o.session.note_arg, e.text);
}

// Nothing is lent any more, and what is comes back first.
static void end_lending(struct engine *g) {
    pthread_mutex_lock(&g->lock);
    g->ending = true;
    pthread_cond_broadcast(&g->turned);
    while (g->lent || g->moving)
        pthread_cond_wait(&g->turned, &g->lock);
    pthread_mutex_unlock(&g->lock);
}

// Refuses what is new, ends what is there, and says why.
static void wind_up(struct engine *g, enum engine_state state, const struct err *why) {
    bool end;
    struct err e = *why;
    queue_refuse(g->queue, ERR_STATE, e.text);
    end_lending(g);
    struct stream *more = queue_take(g->queue, false, &end);
    if (more)
        append_streams(&g->waiting, more);
    engine_end_all(g, &e);
    cache_destroy(g->cache);
    g->cache = NULL;
    batch_destroy(g->batch);
    g->batch = NULL;
    set_state(g, state, &e);
}

// Whose turn it is: a round begins when the session's memory is not lent. What has not come
// back is an error.
static int begin_round(struct engine *g, struct err *e) {
    pthread_mutex_lock(&g->lock);
    g->due = true;
    while (g->lent || g->moving)
        pthread_cond_wait(&g->turned, &g->lock);
    g->due = false;
    int rc = g->lost.code;
    if (rc)
        *e = g->lost;
    g->in_round = true;
    pthread_cond_broadcast(&g->turned);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

// ended: there will be no more.
static void end_round(struct engine *g, bool ended) {
    pthread_mutex_lock(&g->lock);
    g->in_round = false;
    g->ending = ended;
    pthread_cond_broadcast(&g->turned);
    pthread_mutex_unlock(&g->lock);
}

// Moves what is lent, out of the device or back, without the lock, under which `moving` is set.
static int move_weights(struct engine *g, int (*how)(struct session *s, struct err *e),
                        struct err *e) {
    g->moving = true;
    pthread_mutex_unlock(&g->lock);
    int rc = how(g->session, e);
    pthread_mutex_lock(&g->lock);
    g->moving = false;
    return rc;
}

static int check_lendable(const struct engine *g, struct err *e) {
    return g->state == ENGINE_READY && !g->ending && !g->lost.code
               ? 0
               : err_set(e, ERR_STATE, "the engine is not ready");
}

int engine_lend(struct engine *g, struct err *e) {
    pthread_mutex_lock(&g->lock);
    while (g->due && !g->lent && !g->moving)
        pthread_cond_wait(&g->turned, &g->lock);
    int rc = check_lendable(g, e);
    g->lent += !rc;
    while (!rc && (g->in_round || g->moving)) {
        pthread_cond_wait(&g->turned, &g->lock);
        rc = check_lendable(g, e);
        g->lent -= rc != 0;
    }
    if (!rc && !g->away) {
        rc = move_weights(g, session_park, e);
        g->away = !rc;
        g->lent -= rc != 0;
    }
    pthread_cond_broadcast(&g->turned);
    pthread_mutex_unlock(&g->lock);
    return rc;
}

int engine_lend_end(struct engine *g, struct err *e) {
    struct err own = {0};
    int rc = 0;
    pthread_mutex_lock(&g->lock);
    if (--g->lent == 0) {
        rc = move_weights(g, session_unpark, &own);
        g->away = false;
    }
    if (rc)
        g->lost = own;
    pthread_cond_broadcast(&g->turned);
    pthread_mutex_unlock(&g->lock);
    if (rc)
        queue_wake(g->queue);
    if (rc && e)
        *e = own;
    return rc;
}

static void *engine_main(void *arg) {
    struct engine *g = arg;
    struct err e = {0};
    int rc = load_session(g, &e);
    if (!rc) {
        queue_refuse(g->queue, 0, "");
        set_state(g, ENGINE_READY, NULL);
    }
    while (!rc && take_streams(g)) {
        rc = begin_round(g, &e);
        if (!rc)
            rc = engine_round(g, &e);
        if (!rc)
            session_keep_experts(g->session);
        end_round(g, rc != 0);
        tell_trace(g);
    }
    if (!rc)
        err_set(&e, ERR_STATE, "%s", STOPPED);
    wind_up(g, rc ? ENGINE_FAILED : ENGINE_STOPPED, &e);
    return NULL;
}

static int make_lists(struct engine *g, struct err *e) {
    size_t n = (size_t)g->o.slots;
    g->members = calloc(n, sizeof *g->members);
    g->free_sequences = calloc(n, sizeof *g->free_sequences);
    g->slices = calloc(n, sizeof *g->slices);
    g->slice_of = calloc(n, sizeof *g->slice_of);
    g->prompts = calloc(n, sizeof *g->prompts);
    return g->members && g->free_sequences && g->slices && g->slice_of && g->prompts
               ? 0
               : err_set(e, ERR_MEMORY, "no memory for an engine of %d slots", g->o.slots);
}

static void engine_free(struct engine *g) {
    if (!g->o.open)
        session_close(g->session);
    trace_close(g->trace);
    queue_drop(g->queue);
    pthread_mutex_destroy(&g->lock);
    pthread_cond_destroy(&g->turned);
    free(g->members);
    free(g->free_sequences);
    free(g->slices);
    free(g->slice_of);
    free(g->prompts);
    free(g);
}

int engine_create(struct engine **out, const struct engine_options *o, struct err *e) {
    if (o->slots < 0 || o->queue < 0)
        return err_set(e, ERR_USAGE, "%d slots and a queue of %d are not possible; use 1 or more",
                       o->slots, o->queue);
    if (o->open && !session_plan(o->open))
        return err_set(e, ERR_USAGE, "an engine needs a session that was opened with a plan");
    struct engine *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_MEMORY, "no memory for an engine");
    g->o = *o;
    g->o.slots = o->slots ? o->slots : ENGINE_SLOTS;
    g->o.queue = o->queue ? o->queue : ENGINE_QUEUE;
    g->o.session.target.max_seqs = g->o.slots;
    g->o.session.kv_limit = o->kv_limit;
    g->o.session.kv_host = o->cache.host;
    g->o.session.make_plan = true; // it gives how much a text takes
    pthread_mutex_init(&g->lock, NULL);
    pthread_cond_init(&g->turned, NULL);
    int rc = make_lists(g, e);
    if (!rc)
        rc = queue_create(&g->queue, g->o.queue, e);
    if (!rc)
        queue_refuse(g->queue, ERR_STATE, LOADING);
    if (!rc && o->trace)
        rc = trace_open(&g->trace, o->trace, e);
    if (!rc && pool_thread_start(&g->thread, engine_main, g))
        rc = err_set(e, ERR_MEMORY, "the system gives no thread to the engine");
    if (rc) {
        engine_free(g);
        return rc;
    }
    *out = g;
    return 0;
}

void engine_destroy(struct engine *g) {
    if (!g)
        return;
    queue_end(g->queue);
    pthread_join(g->thread, NULL);
    engine_free(g);
}

enum engine_state engine_state(struct engine *g, struct err *why) {
    pthread_mutex_lock(&g->lock);
    enum engine_state state = g->state;
    if (why)
        *why = g->failure;
    pthread_mutex_unlock(&g->lock);
    return state;
}

const struct session *engine_session(struct engine *g) {
    pthread_mutex_lock(&g->lock);
    const struct session *s = g->state == ENGINE_LOADING ? NULL : g->session;
    pthread_mutex_unlock(&g->lock);
    return s;
}

struct engine_stats engine_stats(struct engine *g) {
    pthread_mutex_lock(&g->lock);
    struct engine_stats stats = g->stats;
    pthread_mutex_unlock(&g->lock);
    stats.waiting = queue_waiting(g->queue);
    return stats;
}

static int64_t context_of(const struct session *s) {
    const struct memory_plan *p = session_plan(s);
    const struct kv_needs kv = plan_kv_beyond(p);
    int64_t lo = 0, hi = model_max_ctx(session_model(s)), limit = session_kv_limit(s);
    while (limit > 0 && lo < hi) { // the most that fit lie in lo .. hi
        int64_t mid = (lo + hi + 1) / 2;
        if (kv_needs_max(&kv, mid, p->step) <= limit)
            lo = mid;
        else
            hi = mid - 1;
    }
    return hi;
}

int64_t engine_context(struct engine *g) {
    const struct session *s = engine_session(g);
    return s ? context_of(s) : 0;
}

// What can never fit is refused now, not when its turn has come.
static int check_request(struct engine *g, const struct request *r, struct err *e) {
    const struct session *s = engine_session(g);
    if (!s)
        return err_set(e, ERR_STATE, "%s", LOADING);
    int rc = request_check(r, s, e);
    if (rc)
        return rc;
    int64_t max = context_of(s);
    int64_t max_new_tokens = min_i64(r->max_tokens, model_max_ctx(session_model(s)) - r->n_prompt);
    if (r->n_prompt + max_new_tokens <= max)
        return 0;
    return err_set(e, ERR_LIMIT,
                   "%lld tokens of prompt and %lld new ones are more than the %lld that the memory "
                   "for keys and values can hold; shorten the prompt or ask for fewer tokens",
                   (long long)r->n_prompt, (long long)max_new_tokens, (long long)max);
}

static int make_streams(struct engine *g, const struct stream_options *o, int n,
                        struct stream **out, struct err *e) {
    int made = 0, rc = 0;
    // Log-probabilities of a prompt need all of it to be run.
    bool shared = n > 1 && o->r.n_prompt > 1 && !o->r.prompt_logprobs;
    struct group *group = shared ? calloc(1, sizeof *group) : NULL;
    if (shared && !group)
        return err_set(e, ERR_MEMORY, "no memory for %d choices", n);
    while (!rc && made < n) {
        rc = stream_create(&out[made], &o[made], g->queue, e);
        made += !rc;
    }
    for (int i = 0; !rc && i < n; i++) {
        out[i]->group = group;
        out[i]->next = i + 1 < n ? out[i + 1] : NULL;
    }
    if (group && !rc)
        group->refs = group->waiting = n;
    if (!rc)
        rc = queue_push(g->queue, out[0], out[n - 1], n, e);
    if (!rc)
        return 0;
    free(group);
    for (int i = 0; i < made; i++) {
        stream_drop(out[i]);
        stream_drop(out[i]);
    }
    return rc;
}

int engine_submit_choices(struct engine *g, const struct stream_options *o, int n,
                          struct stream **out, struct err *e) {
    if (n < 1 || n > ENGINE_CHOICES)
        return err_set(e, ERR_USAGE, "%d choices are not within 1 to %d", n, ENGINE_CHOICES);
    int rc = 0;
    for (int i = 0; !rc && i < n; i++)
        rc = check_request(g, &o[i].r, e);
    return rc ? rc : make_streams(g, o, n, out, e);
}

int engine_submit(struct engine *g, const struct stream_options *o, struct stream **out,
                  struct err *e) {
    return engine_submit_choices(g, o, 1, out, e);
}
