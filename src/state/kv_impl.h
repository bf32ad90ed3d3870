// SPDX-License-Identifier: Apache-2.0
// The inside of a pool of pages, for kv.c and host/kv_host.c only: what one has of a page and what
// the other does, and what each asks of the other.
#ifndef COPPICE_STATE_KV_IMPL_H
#define COPPICE_STATE_KV_IMPL_H

#include "state/kv.h"

struct page {
    unsigned char *data;     // NULL: given back, or only in host memory
    int32_t refs, next_free; // next_free: -1 ends the list
    uint64_t taken_epoch;    // exec_epoch when it was taken last
    // Of a pool whose pages may go to host memory.
    unsigned char *copy;  // in host memory; NULL: none
    uint64_t ticket;      // of the copy
    int32_t pins;         // references that keep it where it is
    int32_t slot;         // of the staging, where it is only in host memory
    int32_t older, newer; // of full pages on the device; -1 ends the list
    bool full;            // written to its end: it does not change while it has references
};

// What kv.c asks of who moves pages.
struct kv_moves {
    void (*destroy)(struct kv_pool *p);
    void (*full)(struct kv_pool *p, int32_t id); // it has been written to its end
    // It will be written to again, or nobody refers to it: its copy goes.
    void (*forget)(struct kv_pool *p, int32_t id);
    // Moves full pages until one is free. False: nothing more can move.
    bool (*give_up)(struct kv_pool *p);
};

struct kv_pool {
    struct exec *x;
    struct kv_layout layout;
    struct page *pages; // [n]
    int64_t n, cap, limit;
    int64_t used, held;            // pages with a user; pages that have memory
    int64_t hosted, staging;       // of those with a user, only in host memory; memory of staging
    int32_t free_head, empty_head; // free pages; numbers without memory
    uint64_t moves;                // changes of places so far
    struct kv_budget *budget;      // NULL: none
    struct kv_pool *next;          // of the budget's
    struct kv_places *places;      // NULL: pages stay on the device
    const struct kv_moves *moving; // there with places
};

static inline int64_t kv_pool_free(const struct kv_pool *p) {
    return p->held - (p->used - p->hosted) - p->staging;
}

// Sees to a number without memory; adds the memory of a page to the free ones (false: no
// memory for a number), or takes that of a free page, which there is. Counts stay as they are.
int kv_pool_number(struct kv_pool *p, struct err *e);
bool kv_pool_add_memory(struct kv_pool *p, unsigned char *data, uint64_t taken);
unsigned char *kv_pool_take_memory(struct kv_pool *p);
// Another free page, from the backend.
int kv_pool_grow(struct kv_pool *p, struct err *e);

#endif
