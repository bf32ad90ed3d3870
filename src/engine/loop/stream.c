// SPDX-License-Identifier: Apache-2.0
// Streams, then the queue that they wait in. What the engine thread has written becomes visible by
// release stores of counts that readers load with acquire. `notified` is cleared before a reader
// loads and set after the engine has stored, both sequentially consistent, so that either the
// reader sees what is new or is notified again.
#include "engine/loop/stream.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "engine/loop/stream_impl.h"

const char *stream_phase_name(enum stream_phase p) {
    static const char *const names[] = {"queued", "reading", "decoding", "parked", "ended"};
    return names[p];
}

static void stream_free(struct stream *s) {
    reply_fini(&s->reply);
    queue_drop(s->queue);
    pthread_mutex_destroy(&s->calls);
    pthread_mutex_destroy(&s->views);
    free(s->ring);
    free(s->prompt);
    free(s->bias);
    free(s->stop_ids);
    free(s->positions);
    free(s->checkpoint_positions);
    constraint_drop(s->o.r.constraint);
    free(s);
}

// A copy of n > 0 bytes.
static void *copy_of(const void *from, size_t n) {
    void *to = malloc(n);
    return to ? memcpy(to, from, n) : NULL;
}

static bool stream_copy(struct stream *s) {
    struct request *r = &s->o.r;
    size_t n_bias = (size_t)r->sample.n_bias * sizeof *r->sample.bias;
    s->prompt = copy_of(r->prompt, (size_t)r->n_prompt * sizeof *r->prompt);
    s->bias = n_bias ? copy_of(r->sample.bias, n_bias) : NULL;
    size_t n_ids = (size_t)r->n_stop_ids * sizeof *r->stop_ids;
    s->stop_ids = n_ids ? copy_of(r->stop_ids, n_ids) : NULL;
    size_t n_positions = (size_t)s->o.positions.n * sizeof *s->positions;
    s->positions = n_positions ? copy_of(s->o.positions.at, n_positions) : NULL;
    s->o.positions.at = s->positions;
    s->ring = s->o.trees ? calloc(STREAM_TREES, sizeof *s->ring) : NULL;
    r->prompt = s->prompt;
    r->sample.bias = s->bias;
    r->stop_ids = s->stop_ids;
    return s->prompt && (s->bias || !n_bias) && (s->stop_ids || !n_ids) &&
           (s->positions || !n_positions) && (s->ring || !s->o.trees);
}

int stream_create(struct stream **out, const struct stream_options *o, struct queue *q,
                  struct err *e) {
    struct stream *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a request");
    s->o = *o;
    s->queue = queue_keep(q);
    (void)constraint_keep(o->r.constraint);
    s->submitted = clock_ms();
    atomic_init(&s->refs, 2);
    pthread_mutex_init(&s->calls, NULL);
    pthread_mutex_init(&s->views, NULL);
    if (!stream_copy(s)) {
        stream_free(s);
        return err_set(e, ERR_MEMORY, "no memory for a request of %lld tokens",
                       (long long)o->r.n_prompt);
    }
    *out = s;
    return 0;
}

bool stream_stops(void *arg, int32_t id) {
    struct stream *s = arg;
    pthread_mutex_lock(&s->calls);
    bool stops = s->released || s->o.r.stop(s->o.r.stop_arg, id);
    pthread_mutex_unlock(&s->calls);
    return stops;
}

void stream_drop(struct stream *s) {
    if (atomic_fetch_sub(&s->refs, 1) == 1)
        stream_free(s);
}

static void notify_reader(struct stream *s) {
    if (!s->o.notify || atomic_exchange(&s->notified, true))
        return;
    pthread_mutex_lock(&s->calls);
    if (!s->released)
        s->o.notify(s->o.notify_arg);
    pthread_mutex_unlock(&s->calls);
}

void stream_publish(struct stream *s, enum stream_phase phase) {
    bool news = s->reply.n != atomic_load(&s->published) || (int)phase != atomic_load(&s->phase);
    atomic_store(&s->published, s->reply.n);
    atomic_store(&s->phase, (int)phase);
    if (news)
        notify_reader(s);
}

void stream_finish(struct stream *s, enum end_reason reason, const struct err *e) {
    const struct reply *y = &s->reply;
    struct stream_end *end = &s->end;
    double now = clock_ms();
    *end = (struct stream_end){.reason = e ? END_NONE : reason,
                               .rc = e ? e->code : 0,
                               .prompt = s->o.r.n_prompt,
                               .tokens = y->n,
                               .steps = y->steps,
                               .drafted = y->drafted,
                               .guesses = y->guesses,
                               .recomputed = y->recomputed,
                               .hash = y->hash,
                               .cache = s->cache};
    if (e)
        end->err = *e;
    for (int64_t i = 0; i < y->steps; i++)
        end->accepted += y->accepted[i] - 1;
    constraint_drop(s->o.r.constraint); // it may not outlive the engine's session, as a stream may
    s->o.r.constraint = NULL;
    double joined = s->joined > 0 ? s->joined : now, chosen = s->chosen > 0 ? s->chosen : now;
    if (s->joined > 0)
        end->cached = atomic_load(&s->done) - y->fed;
    end->queue_ms = joined - s->submitted;
    end->prompt_ms = chosen - joined;
    end->decode_ms = now - chosen;
    stream_publish(s, STREAM_ENDED);
}

void stream_keep_tree(struct stream *s, const struct member *m) {
    if (!s->ring)
        return;
    const struct ddtree *t = &m->tree;
    pthread_mutex_lock(&s->views);
    if (s->ring_n == STREAM_TREES) {
        s->ring_first = (s->ring_first + 1) % STREAM_TREES;
        s->ring_n--;
        s->lost++;
    }
    struct tree_event *v = &s->ring[(s->ring_first + s->ring_n++) % STREAM_TREES];
    *v = (struct tree_event){.step = s->reply.steps - 1,
                             .token = s->reply.n - m->walk.count,
                             .n = t->n,
                             .path = m->walk.count,
                             .bonus = m->walk.chosen[m->walk.count - 1]};
    for (int i = 0; i < t->n; i++) {
        v->id[i] = t->token[i];
        v->parent[i] = (int16_t)t->parent[i];
    }
    for (int i = 0; i < m->walk.count; i++)
        v->on[i] = (int16_t)m->walk.path[i];
    pthread_mutex_unlock(&s->views);
}

bool stream_tree(struct stream *s, struct tree_event *out, int64_t *lost) {
    pthread_mutex_lock(&s->views);
    bool any = s->ring_n > 0;
    if (any) {
        *out = s->ring[s->ring_first];
        s->ring_first = (s->ring_first + 1) % STREAM_TREES;
        s->ring_n--;
    }
    *lost = s->lost;
    pthread_mutex_unlock(&s->views);
    return any;
}

struct stream_progress stream_progress(const struct stream *s) {
    return (struct stream_progress){.phase = (enum stream_phase)atomic_load(&s->phase),
                                    .prompt = s->o.r.n_prompt,
                                    .done = atomic_load(&s->done),
                                    .tokens = atomic_load(&s->published)};
}

// What is read after it is read anew; an exchange, as in base/pool.c.
static void expect_news(struct stream *s) {
    (void)atomic_exchange(&s->notified, false);
}

int64_t stream_tokens(struct stream *s, const int32_t **ids) {
    expect_news(s);
    int64_t n = atomic_load(&s->published);
    *ids = n ? s->reply.ids : NULL;
    return n;
}

bool stream_ended(struct stream *s, struct stream_end *end) {
    expect_news(s);
    if (atomic_load(&s->phase) != STREAM_ENDED)
        return false;
    if (end)
        *end = s->end;
    return true;
}

const struct reply *stream_reply(const struct stream *s) {
    return &s->reply;
}

void stream_cancel(struct stream *s) {
    if (atomic_load(&s->phase) == STREAM_ENDED || atomic_exchange(&s->cancelled, true))
        return;
    queue_leave(s->queue, s);
    queue_wake(s->queue);
}

void stream_release(struct stream *s) {
    if (!s)
        return;
    pthread_mutex_lock(&s->calls);
    s->released = true;
    pthread_mutex_unlock(&s->calls);
    stream_cancel(s);
    stream_drop(s);
}

// A list of streams under a lock.

struct queue {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int refs;
    int limit, waiting; // streams that have not been begun
    bool woken, end;
    struct err refused; // code 0: nothing is
    struct stream *first, *last;
};

int queue_create(struct queue **out, int limit, struct err *e) {
    struct queue *q = calloc(1, sizeof *q);
    if (!q)
        return err_set(e, ERR_MEMORY, "no memory for a queue of requests");
    pthread_mutex_init(&q->lock, NULL);
    pthread_cond_init(&q->changed, NULL);
    q->refs = 1;
    q->limit = limit;
    *out = q;
    return 0;
}

struct queue *queue_keep(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    q->refs++;
    pthread_mutex_unlock(&q->lock);
    return q;
}

void queue_drop(struct queue *q) {
    if (!q)
        return;
    pthread_mutex_lock(&q->lock);
    int left = --q->refs;
    pthread_mutex_unlock(&q->lock);
    if (left)
        return;
    pthread_mutex_destroy(&q->lock);
    pthread_cond_destroy(&q->changed);
    free(q);
}

void queue_refuse(struct queue *q, int rc, const char *why) {
    pthread_mutex_lock(&q->lock);
    q->refused.code = 0;
    if (rc)
        err_set(&q->refused, rc, "%s", why);
    pthread_mutex_unlock(&q->lock);
}

static void wake_engine(struct queue *q) {
    q->woken = true;
    pthread_cond_signal(&q->changed);
}

int queue_push(struct queue *q, struct stream *first, struct stream *last, int n, struct err *e) {
    int rc = 0;
    pthread_mutex_lock(&q->lock);
    if (q->refused.code) {
        rc = err_set(e, q->refused.code, "%s", q->refused.text);
    } else if (n > q->limit - q->waiting) {
        rc =
            err_set(e, ERR_LIMIT, "%d requests are waiting and the queue takes %d; try again later",
                    q->waiting, q->limit);
    } else {
        for (struct stream *s = first; s; s = s->next)
            atomic_store(&s->queued, true);
        *(q->last ? &q->last->next : &q->first) = first;
        q->last = last;
        q->waiting += n;
        wake_engine(q);
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

void queue_wake(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    wake_engine(q);
    pthread_mutex_unlock(&q->lock);
}

void queue_end(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    q->end = true;
    wake_engine(q);
    pthread_mutex_unlock(&q->lock);
}

struct stream *queue_take(struct queue *q, bool wait, bool *end) {
    pthread_mutex_lock(&q->lock);
    while (wait && !q->woken)
        pthread_cond_wait(&q->changed, &q->lock);
    struct stream *all = q->first;
    q->first = q->last = NULL;
    q->woken = false;
    *end = q->end;
    pthread_mutex_unlock(&q->lock);
    return all;
}

void queue_leave(struct queue *q, struct stream *s) {
    if (!atomic_exchange(&s->queued, false))
        return;
    pthread_mutex_lock(&q->lock);
    q->waiting--;
    pthread_mutex_unlock(&q->lock);
}

int queue_waiting(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    int n = q->waiting;
    pthread_mutex_unlock(&q->lock);
    return n;
}
