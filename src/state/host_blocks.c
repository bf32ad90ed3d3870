// SPDX-License-Identifier: Apache-2.0
// Free blocks are stacks, one for each size that has occurred. Pinned memory is made, and given
// back, by a thread of its own.
#include "state/host_blocks.h"

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/err.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/vec.h"
#include "ops/copier.h"

struct exec;
struct host_maker;

// One list that the thread takes from and one that it adds to; see host_blocks.h.

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
static bool add_block(struct block_list *l, struct block b) {
    if (l->taken == l->n)
        l->taken = l->n = 0;
    if (vec_reserve(&l->at, &l->cap, l->n + 1, sizeof *l->at, NULL))
        return false;
    l->at[l->n++] = b;
    return true;
}

static bool take_block(struct block_list *l, struct block *b) {
    if (l->taken == l->n)
        return false;
    *b = l->at[l->taken++];
    return true;
}

static void *maker_main(void *arg) {
    struct host_maker *m = arg;
    struct block b;
    pthread_mutex_lock(&m->lock);
    while (!m->stop) {
        bool give = take_block(&m->unwanted, &b);
        if (!give && !take_block(&m->wanted, &b)) {
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
            (void)add_block(&m->made, b); // the allocation has freed some
    }
    pthread_mutex_unlock(&m->lock);
    return NULL;
}

// x must outlive it. ERR_MEMORY, also where there is no thread to be had.
static int host_maker_create(struct host_maker **out, struct exec *x, struct err *e) {
    struct host_maker *m = calloc(1, sizeof *m);
    *out = NULL;
    if (m) {
        m->x = x;
        pthread_mutex_init(&m->lock, NULL);
        pthread_cond_init(&m->more, NULL);
        if (!pool_thread_start(&m->thread, maker_main, m)) {
            *out = m;
            return 0;
        }
        pthread_cond_destroy(&m->more);
        pthread_mutex_destroy(&m->lock);
        free(m);
    }
    return err_set(e, ERR_MEMORY, "no memory for a thread that makes host memory");
}

// what was not collected is freed; NULL is allowed
static void host_maker_destroy(struct host_maker *m) {
    struct block b;
    if (!m)
        return;
    pthread_mutex_lock(&m->lock);
    m->stop = true;
    pthread_cond_signal(&m->more);
    pthread_mutex_unlock(&m->lock);
    pthread_join(m->thread, NULL);
    while (take_block(&m->made, &b) || take_block(&m->unwanted, &b))
        exec_host_free(m->x, b.p);
    pthread_cond_destroy(&m->more);
    pthread_mutex_destroy(&m->lock);
    free(m->wanted.at);
    free(m->made.at);
    free(m->unwanted.at);
    free(m);
}

static bool queue_block(struct host_maker *m, struct block_list *l, struct block b) {
    pthread_mutex_lock(&m->lock);
    bool ok = add_block(l, b);
    pthread_cond_signal(&m->more);
    pthread_mutex_unlock(&m->lock);
    return ok;
}

// Requests a block of that many bytes, in order; false: no memory to remember it.
static bool host_maker_ask(struct host_maker *m, size_t bytes) {
    pthread_mutex_lock(&m->lock);
    int64_t answers = m->made.n + m->wanted.n + 2; // with the one that is being made
    bool room = !vec_reserve(&m->made.at, &m->made.cap, answers, sizeof *m->made.at, NULL);
    pthread_mutex_unlock(&m->lock);
    return room && queue_block(m, &m->wanted, (struct block){bytes, NULL});
}

// Gives memory of exec_host_alloc back to the system before anything else is made. Where it cannot
// be remembered it is given back at once.
static void host_maker_free(struct host_maker *m, void *p) {
    if (p && !queue_block(m, &m->unwanted, (struct block){0, p}))
        exec_host_free(m->x, p);
}

// The next answer, if there is one: its bytes, and the block or NULL where there was no memory.
static bool host_maker_collect(struct host_maker *m, size_t *bytes, void **p) {
    struct block b = {0, NULL};
    pthread_mutex_lock(&m->lock);
    bool ok = take_block(&m->made, &b);
    pthread_mutex_unlock(&m->lock);
    *bytes = b.bytes;
    *p = b.p;
    return ok;
}

// In the first bytes of a free block.
struct free_block {
    struct free_block *next;
};

struct host_class {
    size_t bytes;
    struct free_block *free;
    int64_t n_free;
    int64_t requested; // of the maker, and not collected yet
    bool refused;      // the maker had no memory; until it is requested again
};

void host_blocks_init(struct host_blocks *b, struct exec *x, int64_t max) {
    *b = (struct host_blocks){.x = x, .max = max};
}

void host_blocks_fini(struct host_blocks *b) {
    host_maker_destroy(b->maker);
    b->maker = NULL;
    host_blocks_trim(b, 0);
    free(b->classes);
    b->classes = NULL;
    b->n = b->cap = 0;
}

size_t host_blocks_size(size_t bytes) {
    size_t step = 64;
    while (step * 32 < bytes)
        step *= 2;
    return round_up_size(bytes ? bytes : 1, step);
}

static struct host_class *class_of(struct host_blocks *b, size_t bytes) {
    for (int64_t i = 0; i < b->n; i++)
        if (b->classes[i].bytes == bytes)
            return &b->classes[i];
    return NULL;
}

// The class of a size, made where it is new, so that giving a block back cannot fail.
static struct host_class *class_for(struct host_blocks *b, size_t size) {
    struct host_class *c = class_of(b, size);
    if (c || vec_reserve(&b->classes, &b->cap, b->n + 1, sizeof *b->classes, NULL))
        return c;
    b->classes[b->n] = (struct host_class){.bytes = size};
    return &b->classes[b->n++];
}

static void push_free(struct host_class *c, void *p) {
    struct free_block *f = p;
    f->next = c->free;
    c->free = f;
    c->n_free++;
}

static void *pop_free(struct host_class *c) {
    struct free_block *f = c->free;
    if (f) {
        c->free = f->next;
        c->n_free--;
    }
    return f;
}

static void collect_made(struct host_blocks *b) {
    size_t bytes;
    void *p;
    while (b->maker && host_maker_collect(b->maker, &bytes, &p)) {
        struct host_class *c = class_of(b, bytes);
        c->requested--;
        c->refused = !p;
        if (p)
            push_free(c, p);
        else
            b->held -= (int64_t)bytes;
    }
}

// Gives free blocks of all classes but one back until at most `max` bytes are held.
static void trim_classes(struct host_blocks *b, int64_t max, const struct host_class *but) {
    for (int64_t i = 0; i < b->n && b->held > max; i++) {
        struct host_class *c = &b->classes[i];
        while (c != but && c->free && b->held > max) {
            void *p = pop_free(c);
            if (b->maker)
                host_maker_free(b->maker, p);
            else
                exec_host_free(b->x, p);
            b->held -= (int64_t)c->bytes;
        }
    }
}

// Counts a block of the class as held, if that is within what may be.
static bool grow_class(struct host_blocks *b, const struct host_class *c) {
    int64_t max = b->max - b->other - (int64_t)c->bytes;
    if (b->held > max)
        trim_classes(b, max, c);
    if (b->held > max)
        return false;
    b->held += (int64_t)c->bytes;
    return true;
}

void *host_blocks_take(struct host_blocks *b, size_t bytes) {
    size_t size = host_blocks_size(bytes);
    struct host_class *c = class_for(b, size);
    if (!c)
        return NULL;
    if (!c->free)
        collect_made(b);
    void *p = pop_free(c);
    if (!p && grow_class(b, c) && !(p = exec_host_alloc(b->x, size)))
        b->held -= (int64_t)size;
    if (p)
        b->used += (int64_t)size;
    return p;
}

bool host_blocks_ready(struct host_blocks *b, size_t bytes, int64_t n) {
    struct host_class *c = class_for(b, host_blocks_size(bytes));
    if (!c || !exec_host_pinned(b->x))
        return true;
    collect_made(b);
    if (!b->maker && host_maker_create(&b->maker, b->x, NULL))
        return true;
    while (!c->refused && c->n_free + c->requested < n) {
        if (!grow_class(b, c))
            return true;
        if (!host_maker_ask(b->maker, c->bytes)) {
            b->held -= (int64_t)c->bytes;
            return true;
        }
        c->requested++;
    }
    if (!c->refused)
        return c->n_free >= n;
    c->refused = c->requested > 0;
    return true;
}

void host_blocks_give(struct host_blocks *b, void *p, size_t bytes) {
    if (!p)
        return;
    size_t size = host_blocks_size(bytes);
    push_free(class_of(b, size), p);
    b->used -= (int64_t)size;
}

void host_blocks_trim(struct host_blocks *b, int64_t max) {
    trim_classes(b, max, NULL);
}
