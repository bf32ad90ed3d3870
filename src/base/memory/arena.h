// SPDX-License-Identifier: Apache-2.0
// Bump allocation for things that are allocated and freed together (a loaded model, a request).
#ifndef COPPICE_BASE_MEMORY_ARENA_H
#define COPPICE_BASE_MEMORY_ARENA_H

#include <stddef.h>

struct arena_chunk;

// A zeroed arena is valid and empty.
struct arena {
    struct arena_chunk *head;
    size_t total; // bytes obtained from the system
};

// Returns size zeroed bytes aligned to 64, or NULL when memory is short.
void *arena_alloc(struct arena *a, size_t size);

// Like arena_alloc for count elements; NULL also when count * size overflows.
void *arena_array(struct arena *a, size_t count, size_t size);

// Copies n bytes and a terminating NUL.
char *arena_strndup(struct arena *a, const char *s, size_t n);

// Frees everything and leaves the arena empty.
void arena_fini(struct arena *a);

#endif
