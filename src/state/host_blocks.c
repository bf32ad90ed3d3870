// SPDX-License-Identifier: Apache-2.0
// Free blocks are stacks, one for each size that has occurred; see host_blocks.h.
#include "state/host_blocks.h"

#include <stdlib.h>

#include "base/num.h"
#include "base/vec.h"

// In the first bytes of a free block.
struct free_block {
    struct free_block *next;
};

struct host_class {
    size_t bytes;
    struct free_block *free;
};

void host_blocks_init(struct host_blocks *b, struct exec *x, int64_t most) {
    *b = (struct host_blocks){.x = x, .most = most};
}

void host_blocks_fini(struct host_blocks *b) {
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

void *host_blocks_take(struct host_blocks *b, size_t bytes) {
    size_t size = host_blocks_size(bytes);
    struct host_class *c = class_of(b, size);
    void *p = c ? c->free : NULL;
    if (!c) { // so that giving it back cannot fail
        if (vec_reserve(&b->classes, &b->cap, b->n + 1, sizeof *b->classes, NULL))
            return NULL;
        b->classes[b->n++] = (struct host_class){size, NULL};
    }
    if (p) {
        c->free = c->free->next;
    } else {
        int64_t most = b->most - b->other - (int64_t)size;
        if (b->held > most)
            host_blocks_trim(b, most);
        p = b->held <= most ? exec_host_alloc(b->x, size) : NULL;
        if (!p)
            return NULL;
        b->held += (int64_t)size;
    }
    b->used += (int64_t)size;
    return p;
}

void host_blocks_give(struct host_blocks *b, void *p, size_t bytes) {
    if (!p)
        return;
    size_t size = host_blocks_size(bytes);
    struct host_class *c = class_of(b, size);
    struct free_block *f = p;
    f->next = c->free;
    c->free = f;
    b->used -= (int64_t)size;
}

void host_blocks_trim(struct host_blocks *b, int64_t most) {
    for (int64_t i = 0; i < b->n && b->held > most; i++) {
        struct host_class *c = &b->classes[i];
        while (c->free && b->held > most) {
            struct free_block *f = c->free;
            c->free = f->next;
            exec_host_free(b->x, f);
            b->held -= (int64_t)c->bytes;
        }
    }
}
