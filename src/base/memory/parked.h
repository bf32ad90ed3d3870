// SPDX-License-Identifier: Apache-2.0
// Slabs whose memory can be lent to others for a while: their addresses stay, their contents wait
// in host memory and come back. For contents that do not change, such as weights, so that a copy
// that was made once serves every time.
#ifndef COPPICE_BASE_MEMORY_PARKED_H
#define COPPICE_BASE_MEMORY_PARKED_H

#include "base/err.h"
#include "base/memory/slabs.h"

// Where such slabs come from. Sizes are multiples of `grain`.
struct parked_source {
    void *(*reserve)(void *arg, size_t bytes); // addresses without memory; NULL: none
    void (*release)(void *arg, void *p, size_t bytes);
    bool (*back)(void *arg, void *p, size_t bytes);  // gives them memory; false: there is none
    void (*strip)(void *arg, void *p, size_t bytes); // and takes it away, behind all that uses it
    void *(*host_take)(void *arg, size_t bytes);     // NULL: there is none
    void (*host_give)(void *arg, void *p);
    bool (*save)(void *arg, void *host, const void *p, size_t bytes); // false: a fault
    bool (*load)(void *arg, void *p, const void *host, size_t bytes);
    void *arg;
    size_t grain;
    size_t piece; // back and strip may be asked for such pieces from a slab's begin, and its rest
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

// New slabs of s come from `from` until parked_seal; others go on as before.
void parked_init(struct parked *k, struct slabs *s, const struct parked_source *from);
void parked_seal(struct parked *k);
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
