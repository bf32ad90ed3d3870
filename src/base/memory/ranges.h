// SPDX-License-Identifier: Apache-2.0
// Which parts of an interval of bytes are free: the book-keeping of an allocator whose memory lies
// elsewhere (on a device), first fit from the lowest address. It touches no memory of the interval.
#ifndef COPPICE_BASE_MEMORY_RANGES_H
#define COPPICE_BASE_MEMORY_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct range {
    size_t begin, end;
};

// Zeroed is valid: an interval of no bytes.
struct ranges {
    struct range *free; // [n] ascending, never touching each other
    size_t n;
    int64_t cap;
    size_t size; // of the interval
};

// The interval [0, size), all free. -1 when out of memory.
int ranges_init(struct ranges *r, size_t size);
void ranges_fini(struct ranges *r);

// Takes bytes > 0 at the lowest address where they fit. -1 when they fit nowhere. Callers that want
// alignment ask for multiples of it always.
int ranges_take(struct ranges *r, size_t bytes, size_t *at);

// Gives back what ranges_take gave. -1 when out of memory: the bytes are then lost until fini.
int ranges_give(struct ranges *r, size_t at, size_t bytes);

bool ranges_all_free(const struct ranges *r);

#endif
