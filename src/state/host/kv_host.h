// SPDX-License-Identifier: Apache-2.0
// Pages in host memory. A page that is full never changes, so where the device has no room for
// another one, the pages that were full first are given up there and are read from their copies:
// attention takes one layer of them at a time from a staging area on the device, which copies fill
// while the layer before computes. Tables name positions in the same order wherever pages are, so
// residency changes no bit.
#ifndef COPPICE_STATE_KV_HOST_H
#define COPPICE_STATE_KV_HOST_H

#include "state/kv.h"

struct kv_host; // host memory of the pools of one budget, and the queue of their copies

// Pages take at most `limit` bytes of it. x must outlive it. ERR_MEMORY, ERR_DEVICE.
int kv_host_create(struct kv_host **out, struct exec *x, int64_t limit, struct err *e);
void kv_host_destroy(struct kv_host *h);              // after all its pools; NULL is allowed
void kv_host_limit(struct kv_host *h, int64_t limit); // from now on; what is held stays

struct kv_host_stats {
    int64_t limit, held; // bytes of host memory
    int64_t pages;       // that are only there
    int64_t page_bytes;  // of these
    int64_t given_up, brought_back;
};
struct kv_host_stats kv_host_stats_of(const struct kv_host *h);

// Pages in host memory that one page's memory stages; 0 for groups of fewer than four layers, whose
// pages cannot move: the staging would take what they leave.
int64_t kv_host_staged(const struct kv_layout *l);
// Pages of an empty pool may go there from now on; h must outlive it. A group with a window has no
// use for it. Nothing happens where pages cannot move. ERR_MEMORY.
int kv_pool_use_host(struct kv_pool *p, struct kv_host *h, struct err *e);

// Gives host memory that holds nothing but copies of pages on the device back to the system. Waits
// for copies.
void kv_budget_trim_host(struct kv_budget *b);

// Of the pages of k that are only in host memory, as many come back as there is room for without
// others being given up.
void kv_bring_back(struct kv *k);
// Sees to it that k->pages says where pages are: those in host memory by numbers that only
// a stream takes.
void kv_place(struct kv *k);

// What one pass at a time reads. The arrays are the caller's; tables NULL: pages stay on the
// device.
struct kv_stream {
    struct kv_view *views;  // [sequences]
    unsigned char **tables; // [sequences][room]
    int64_t *n_pages;       // [sequences] entries that may be read
    int64_t room;
    bool on; // some of them are in host memory: views differ from layer to layer
    struct kv_pool *pool;
    const struct kv_view *of;
    int n;
};
// Before the ops of a pass over these views, made after kv_place, with n_pages set; no page may
// move until all have been queued. s->on.
bool kv_stream_begin(struct kv_stream *s, struct kv_pool *p, const struct kv_view *views, int n);
// What ops that read this layer take, right before they are queued; valid until the next call.
const struct kv_view *kv_stream_layer(struct kv_stream *s, int layer);

#endif
