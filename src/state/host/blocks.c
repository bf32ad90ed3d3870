// SPDX-License-Identifier: Apache-2.0
// Free blocks are stacks, one for each size that has occurred; see blocks.h.
#include "state/host/blocks.h"

#include <stdlib.h>

#include "base/num.h"
#include "base/vec.h"
#include "state/host/maker.h"

// In the first bytes of a free block.
struct free_block {
    struct free_block *next;
};

struct host_class {
    size_t bytes;
    struct free_block *free;
    int64_t n_free;
    int64_t asked; // of the maker, and not collected yet
    bool refused;  // the maker had no memory; until it is asked for again
};

void host_blocks_init(struct host_blocks *b, struct exec *x, int64_t most) {
    *b = (struct host_blocks){.x = x, .most = most};
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

static void push(struct host_class *c, void *p) {
    struct free_block *f = p;
    f->next = c->free;
    c->free = f;
    c->n_free++;
}

static void *pop(struct host_class *c) {
    struct free_block *f = c->free;
    if (f) {
        c->free = f->next;
        c->n_free--;
    }
    return f;
}

static void collect(struct host_blocks *b) {
    size_t bytes;
    void *p;
    while (b->maker && host_maker_collect(b->maker, &bytes, &p)) {
        struct host_class *c = class_of(b, bytes);
        c->asked--;
        c->refused = !p;
        if (p)
            push(c, p);
        else
            b->held -= (int64_t)bytes;
    }
}

// Gives free blocks of all classes but one back until at most `most` bytes are held.
static void trim(struct host_blocks *b, int64_t most, const struct host_class *but) {
    for (int64_t i = 0; i < b->n && b->held > most; i++) {
        struct host_class *c = &b->classes[i];
        while (c != but && c->free && b->held > most) {
            void *p = pop(c);
            if (b->maker)
                host_maker_free(b->maker, p);
            else
                exec_host_free(b->x, p);
            b->held -= (int64_t)c->bytes;
        }
    }
}

// Counts a block of the class as held, if that is within what may be.
static bool grow(struct host_blocks *b, const struct host_class *c) {
    int64_t most = b->most - b->other - (int64_t)c->bytes;
    if (b->held > most)
        trim(b, most, c);
    if (b->held > most)
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
        collect(b);
    void *p = pop(c);
    if (!p && grow(b, c) && !(p = exec_host_alloc(b->x, size)))
        b->held -= (int64_t)size;
    if (p)
        b->used += (int64_t)size;
    return p;
}

bool host_blocks_ready(struct host_blocks *b, size_t bytes, int64_t n) {
    struct host_class *c = class_for(b, host_blocks_size(bytes));
    if (!c || !exec_host_pinned(b->x))
        return true;
    collect(b);
    if (!b->maker && host_maker_create(&b->maker, b->x, NULL))
        return true;
    while (!c->refused && c->n_free + c->asked < n) {
        if (!grow(b, c))
            return true;
        if (!host_maker_ask(b->maker, c->bytes)) {
            b->held -= (int64_t)c->bytes;
            return true;
        }
        c->asked++;
    }
    if (!c->refused)
        return c->n_free >= n;
    c->refused = c->asked > 0;
    return true;
}

void host_blocks_give(struct host_blocks *b, void *p, size_t bytes) {
    if (!p)
        return;
    size_t size = host_blocks_size(bytes);
    push(class_of(b, size), p);
    b->used -= (int64_t)size;
}

void host_blocks_trim(struct host_blocks *b, int64_t most) {
    trim(b, most, NULL);
}
