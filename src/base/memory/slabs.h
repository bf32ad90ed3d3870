// SPDX-License-Identifier: Apache-2.0
// Blocks out of slabs: memory that is expensive to ask for, or rounded up by the megabyte, is taken
// in slabs and handed out in blocks. Every slab belongs to one arena, so that what comes and goes
// together lies together, and whole slabs become free again. It never touches the memory itself.
#ifndef COPPICE_BASE_MEMORY_SLABS_H
#define COPPICE_BASE_MEMORY_SLABS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/memory/ranges.h"

enum { SLABS_ARENAS = 5, SLABS_ALIGN = 512 };

struct slab {
    unsigned char *base; // NULL: given back
    struct ranges ranges;
    int arena;
};

struct slab_block {
    unsigned char *p;
    size_t bytes;
    int64_t slab; // index
};

// Set source, or zero all of it; slabs_fini ends it.
struct slabs {
    struct {
        void *(*take)(void *arg, size_t bytes); // NULL: there is no more
        void (*give)(void *arg, void *p);
        void *arg;
    } source;
    int64_t limit; // most bytes of slabs; 0: none
    bool separate; // a slab of its own for every block, given back with it
    int64_t n, cap;
    struct slab *slabs;
    int64_t n_blocks, cap_blocks;
    struct slab_block *blocks;
    int64_t held, peak;         // bytes of slabs now, at most
    int64_t used[SLABS_ARENAS]; // bytes of blocks
};

// A block aligned to SLABS_ALIGN (separate: to what the source gives), its size rounded up to it.
// NULL: there is no memory, also after empty slabs were given back.
void *slabs_take(struct slabs *s, int arena, size_t bytes);
// Ends a block; NULL is allowed. Its slab is kept for others of its arena.
void slabs_give(struct slabs *s, void *p);
void slabs_trim(struct slabs *s); // gives slabs without blocks back to the source
void slabs_fini(struct slabs *s); // gives everything back

// What slabs hold beside their blocks where these are to fill a limit: a smallest slab for each
// arena.
int64_t slabs_vain(void);
// What an arena with so many bytes of blocks may hold beside them beyond its part of that, because
// it took a slab when memory was not short yet.
int64_t slabs_vain_beyond(int64_t used);
// What an arena that is filled with so many bytes of blocks of one size holds behind the last
// blocks of slabs.
int64_t slabs_vain_filled(int64_t used, int64_t block);
// Bytes of slabs of an arena, and of those that slabs_trim would give back.
int64_t slabs_held(const struct slabs *s, int arena);
int64_t slabs_spare(const struct slabs *s, int arena);

#endif
