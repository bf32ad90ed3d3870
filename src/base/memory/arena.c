// SPDX-License-Identifier: Apache-2.0
// Bump allocation; see arena.h. Chunks double up to a bound, so that small arenas stay small and
// large ones take few system calls; a request too big for a chunk gets one of its own, placed
// after the current one so that the rest of that is not wasted. Nothing is freed singly.
#include "base/memory/arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { ALIGN = 64, CHUNK_MIN = 4096, CHUNK_MAX = 1 << 20 };

struct arena_chunk {
    struct arena_chunk *next;
    char *at, *end; // the free part; `at` is aligned
};

static char *align_up(char *p) {
    return p + (-(uintptr_t)p & (ALIGN - 1));
}

// A zeroed chunk of `capacity` bytes (a multiple of ALIGN).
static struct arena_chunk *chunk_new(struct arena *a, size_t capacity) {
    size_t bytes = sizeof(struct arena_chunk) + ALIGN + capacity;
    struct arena_chunk *c = calloc(1, bytes);
    if (!c)
        return NULL;
    c->at = align_up((char *)(c + 1));
    c->end = (char *)c + bytes;
    a->total += bytes;
    return c;
}

static size_t bytes_left(const struct arena_chunk *c) {
    return c->end > c->at ? (size_t)(c->end - c->at) : 0;
}

// Bytes for the next ordinary chunk.
static size_t next_capacity(const struct arena *a) {
    size_t capacity = max_size(a->total, CHUNK_MIN);
    return min_size(capacity, CHUNK_MAX) & ~(size_t)(ALIGN - 1);
}

void *arena_alloc(struct arena *a, size_t size) {
    if (size > SIZE_MAX / 2)
        return NULL;
    size_t needed = (size ? size + ALIGN - 1 : ALIGN) & ~(size_t)(ALIGN - 1);
    struct arena_chunk *c = a->head;
    if (!c || bytes_left(c) < needed) {
        size_t capacity = next_capacity(a);
        c = chunk_new(a, max_size(needed, capacity));
        if (!c)
            return NULL;
        if (needed > capacity && a->head) {
            c->next = a->head->next;
            a->head->next = c;
        } else {
            c->next = a->head;
            a->head = c;
        }
    }
    void *p = c->at;
    c->at += needed;
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        return NULL;
    return arena_alloc(a, bytes);
}

char *arena_strndup(struct arena *a, const char *s, size_t n) {
    char *copy = n < SIZE_MAX ? arena_alloc(a, n + 1) : NULL;
    if (copy && n)
        memcpy(copy, s, n);
    return copy;
}

void arena_fini(struct arena *a) {
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        free(c);
    }
    *a = (struct arena){0};
}
