// SPDX-License-Identifier: Apache-2.0
// A list under a lock; see queue.h.
#include "engine/loop/queue.h"

#include <pthread.h>
#include <stdlib.h>

#include "engine/loop/stream_impl.h"

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

static void wake(struct queue *q) {
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
        wake(q);
    }
    pthread_mutex_unlock(&q->lock);
    return rc;
}

void queue_wake(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    wake(q);
    pthread_mutex_unlock(&q->lock);
}

void queue_end(struct queue *q) {
    pthread_mutex_lock(&q->lock);
    q->end = true;
    wake(q);
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
