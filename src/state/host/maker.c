// SPDX-License-Identifier: Apache-2.0
// One list that the thread takes from and one that it adds to; see maker.h.
#include "state/host/maker.h"

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/vec.h"
#include "ops/copier.h"

struct block {
    size_t bytes;
    void *p;
};

struct block_list {
    struct block *at; // [n], the first `taken` of which are gone
    int64_t n, cap, taken;
};

struct host_maker {
    struct exec *x;
    pthread_t thread;
    pthread_mutex_t lock; // of all below
    pthread_cond_t more;  // to be done, or `stop`
    struct block_list wanted, made, unwanted;
    bool stop;
};

// Keeps room in front of what is left, so that lists do not grow without end.
static bool add(struct block_list *l, struct block b) {
    if (l->taken == l->n)
        l->taken = l->n = 0;
    if (vec_reserve(&l->at, &l->cap, l->n + 1, sizeof *l->at, NULL))
        return false;
    l->at[l->n++] = b;
    return true;
}

static bool next(struct block_list *l, struct block *b) {
    if (l->taken == l->n)
        return false;
    *b = l->at[l->taken++];
    return true;
}

static void *work(void *arg) {
    struct host_maker *m = arg;
    struct block b;
    pthread_mutex_lock(&m->lock);
    while (!m->stop) {
        bool give = next(&m->unwanted, &b);
        if (!give && !next(&m->wanted, &b)) {
            pthread_cond_wait(&m->more, &m->lock);
            continue;
        }
        pthread_mutex_unlock(&m->lock);
        if (give)
            exec_host_free(m->x, b.p);
        else
            b.p = exec_host_alloc(m->x, b.bytes);
        pthread_mutex_lock(&m->lock);
        if (!give)
            (void)add(&m->made, b); // asking has made room
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

int host_maker_create(struct host_maker **out, struct exec *x, struct err *e) {
    struct host_maker *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m) {
        m->x = x;
        pthread_mutex_init(&m->lock, NULL);
        pthread_cond_init(&m->more, NULL);
        if (!pthread_create(&m->thread, NULL, work, m)) {
            *out = m;
            return 0;
        }
        pthread_cond_destroy(&m->more);
        pthread_mutex_destroy(&m->lock);
        free(m);
    }
    return err_set(e, ERR_MEMORY, "no memory for a thread that makes host memory");
}

void host_maker_destroy(struct host_maker *m) {
    struct block b;
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->more);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    while (next(&m->made, &b) || next(&m->unwanted, &b))
        exec_host_free(m->x, b.p);
    pthread_cond_destroy(&m->more);
    pthread_mutex_destroy(&m->lock);
    free(m->wanted.at);
    free(m->made.at);
    free(m->unwanted.at);
    free(m);
}

static bool queue(struct host_maker *m, struct block_list *l, struct block b) {
    pthread_mutex_lock(&m->lock);
    bool ok = add(l, b);
    pthread_cond_signal(&m->more);
    pthread_mutex_unlock(&m->lock);
    return ok;
}

bool host_maker_ask(struct host_maker *m, size_t bytes) {
    pthread_mutex_lock(&m->lock);
    int64_t answers = m->made.n + m->wanted.n + 2; // with the one that is being made
    bool room = !vec_reserve(&m->made.at, &m->made.cap, answers, sizeof *m->made.at, NULL);
    pthread_mutex_unlock(&m->lock);
    return room && queue(m, &m->wanted, (struct block){bytes, NULL});
}

void host_maker_free(struct host_maker *m, void *p) {
    if (p && !queue(m, &m->unwanted, (struct block){0, p}))
        exec_host_free(m->x, p);
}

bool host_maker_collect(struct host_maker *m, size_t *bytes, void **p) {
    struct block b = {0, NULL};
    pthread_mutex_lock(&m->lock);
    bool ok = next(&m->made, &b);
    pthread_mutex_unlock(&m->lock);
    *bytes = b.bytes;
    *p = b.p;
    return ok;
}
