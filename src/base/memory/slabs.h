// SPDX-License-Identifier: Apache-2.0
// Blocks out of slabs: memory that is expensive to allocate, or rounded up by the megabyte, is
// taken in slabs and handed out in blocks. Every slab belongs to one arena, so that what comes and
// goes together lies together, and whole slabs become free again. It never touches the memory
// itself.
#ifndef COPPICE_BASE_MEMORY_SLABS_H
#define COPPICE_BASE_MEMORY_SLABS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Which parts of an interval of bytes are free: first fit from the lowest address. Zeroed is valid:
// an interval of no bytes.
struct range {
    size_t begin, end;
};

struct ranges {
    struct range *free; // [n] ascending, never touching each other
    size_t n;
    int64_t cap;
    size_t size; // of the interval
};

// The interval [0, size), all free. -1 when out of memory.
int ranges_init(struct ranges *r, size_t size);
void ranges_fini(struct ranges *r);

// Takes bytes > 0 at the lowest address where they fit. -1 when they fit nowhere. Callers that need
// alignment request multiples of it always.
int ranges_take(struct ranges *r, size_t bytes, size_t *at);

// Gives back what ranges_take gave. -1 when out of memory: the bytes are then lost until fini.
int ranges_give(struct ranges *r, size_t at, size_t bytes);

bool ranges_all_free(const struct ranges *r);

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

// Bytes of slabs besides their blocks where these are to fill a limit: a smallest slab for each
// arena.
int64_t slabs_vain(void);
// Bytes that an arena with that many bytes of blocks may hold besides them beyond its part of that,
// because it took a slab when memory was not short yet.
int64_t slabs_vain_beyond(int64_t used);
// Bytes that an arena filled with that many bytes of blocks of one size holds after the last
// blocks of slabs.
int64_t slabs_vain_filled(int64_t used, int64_t block);
// Bytes of slabs of an arena, and of those that slabs_trim would give back.
int64_t slabs_held(const struct slabs *s, int arena);
int64_t slabs_free_bytes(const struct slabs *s, int arena);

// Slabs whose memory can be lent to others for a while: their addresses stay, their contents wait
// in host memory and come back. For contents that do not change, such as weights, so that a copy
// that was made once serves every time.

// Where such slabs come from. Sizes are multiples of `grain`.
struct parked_source {
    void *(*reserve)(void *arg, size_t bytes); // addresses without memory; NULL: none
    void (*release)(void *arg, void *p, size_t bytes);
    bool (*back)(void *arg, void *p, size_t bytes);  // gives them memory; false: there is none
    void (*strip)(void *arg, void *p, size_t bytes); // and takes it away, after all that uses it
    void *(*host_take)(void *arg, size_t bytes);     // NULL: there is none
    void (*host_give)(void *arg, void *p);
    bool (*save)(void *arg, void *host, const void *p, size_t bytes); // false: a fault
    bool (*load)(void *arg, void *p, const void *host, size_t bytes);
    void *arg;
    size_t grain;
    size_t piece; // back and strip may be called for such pieces from a slab's begin, and its rest
};

struct parked_slab {
    unsigned char *p;
    size_t bytes;
    void *host; // NULL: nothing is kept of it
    bool away;
    size_t hole, hole_bytes; // a part that has no memory
};

// Zeroed: none. Stands in front of the source that slabs had.
struct parked {
    struct slabs *slabs;
    struct parked_source from;
    void *(*take)(void *arg, size_t bytes); // what slabs had
    void (*give)(void *arg, void *p);
    void *arg;
    bool open; // new slabs are such
    struct parked_slab *all;
    int64_t n, cap;
};

// New slabs of s come from `from` until parked_finish; others go on as before.
void parked_init(struct parked *k, struct slabs *s, const struct parked_source *from);
void parked_finish(struct parked *k);
// Keeps copies of slabs of an arena until `bytes` of it can go; nothing may write there any more.
// ERR_MEMORY: the arena has less, or there is no host memory for it; what was kept stays.
int parked_keep(struct parked *k, int arena, int64_t bytes, struct err *e);
int64_t parked_kept(const struct parked *k); // bytes of which there are copies
// Their memory goes, and comes back with its contents: ERR_MEMORY, and none of it may be read.
void parked_leave(struct parked *k);
int parked_return(struct parked *k, struct err *e);
// The whole pieces between p and p + bytes, all of one such slab, have no memory for a while, and
// what they hold is lost; a slab has one such part at a time. How many bytes that is.
int64_t parked_open(struct parked *k, void *p, size_t bytes);
// All of them have memory again: ERR_MEMORY, and none of it may be read.
int parked_close(struct parked *k, struct err *e);
// After slabs_fini, or with slabs that are no longer used.
void parked_fini(struct parked *k);

#endif
