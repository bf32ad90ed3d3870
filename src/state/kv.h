// SPDX-License-Identifier: Apache-2.0
// Key/value storage: a pool of refcounted pages of one layout, and the page table of one sequence
// in one KV group. Pages are shared by reference (fork, checkpoint) and copied on write. It moves
// pages; the values in them are written by ops.
#ifndef COPPICE_STATE_KV_H
#define COPPICE_STATE_KV_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

struct kv_host;
struct kv_pool; // pages of one kv_layout on one backend

// limit: most pages that may exist at once, 0 for no limit. x must outlive the pool.
int kv_pool_create(struct kv_pool **out, struct exec *x, const struct kv_layout *l, int64_t limit,
                   struct err *e);
void kv_pool_limit(struct kv_pool *p, int64_t limit); // from now on; pages that exist stay
void kv_pool_destroy(struct kv_pool *p);              // after every kv that uses it
int64_t kv_pool_used(const struct kv_pool *p);        // pages referenced now
int64_t kv_pool_allocated(const struct kv_pool *p);   // pages that exist (used and free)
int64_t kv_pool_free_bytes(const struct kv_pool *p);  // bytes of free pages
// Gives the memory of free pages but `keep` back to the backend (exec_trim brings it to the
// device); the bytes of it.
int64_t kv_pool_trim(struct kv_pool *p, int64_t keep);

const struct kv_layout *kv_pool_layout(const struct kv_pool *p);

// What several pools may take together. Zeroed: no limit, no pools.
struct kv_budget {
    int64_t limit; // bytes of pages that exist at most; 0: none
    int64_t held;  // bytes of pages that exist
    struct kv_pool *pools;
    struct kv_host *host; // (state/host/kv_host.h) where full pages may go; NULL: they stay
};
// An empty pool joins, until it is destroyed; b must outlive it. NULL: nothing happens. When the
// budget is spent, free pages of the others are given back first; then ERR_LIMIT.
void kv_pool_join(struct kv_pool *p, struct kv_budget *b);
int64_t kv_budget_free_bytes(const struct kv_budget *b); // bytes of free pages
int64_t kv_budget_trim(struct kv_budget *b);             // gives them back; bytes
int64_t kv_budget_used(const struct kv_budget *b);       // pages referenced now

// The page table of one sequence. Zeroed is empty but needs kv_init before use.
struct kv {
    struct kv_pool *pool;
    int64_t window; // keys at distance >= window are never read again; 0: all are kept
    int64_t len;    // positions 0 .. len-1 hold committed values (the oldest may be dropped)
    int64_t n_pages, cap;
    unsigned char **pages; // [n_pages] NULL where dropped: the `pages` of a kv_view
    int32_t *ids;          // [n_pages] pool page numbers, -1 where dropped
    bool still;            // see kv_stay
    uint64_t moves;        // of the pool when `pages` was right (state/host/kv_host.h)
};

void kv_init(struct kv *k, struct kv_pool *pool, int64_t window);
void kv_fini(struct kv *k); // gives all pages back

// Makes positions len .. len+n-1 writable: pages exist and belong to this kv alone (shared ones are
// copied). ERR_MEMORY or ERR_LIMIT: nothing has changed, and no page is kept.
int kv_reserve(struct kv *k, int64_t n, struct err *e);
// Takes a reservation back: gives the pages after the first n_pages back, none of which may hold
// positions below len.
void kv_release(struct kv *k, int64_t n_pages);

// Where position pos is; it must be below len plus what was reserved and not dropped.
struct kv_slot kv_slot_at(const struct kv *k, int64_t pos);

// Declares that the next n reserved positions are written; drops pages that lie wholly below
// len - window - KV_PAGE.
void kv_advance(struct kv *k, int64_t n);

// Whether the window of a row at position n (n <= len) is still there.
bool kv_keeps(const struct kv *k, int64_t n);
// Forgets positions n and above (n <= len).
void kv_truncate(struct kv *k, int64_t n);

// Makes dst (initialised, same pool) hold the first n positions of src by reference. n <= src->len.
// dst's former pages are given back. The page that n lies on is copied by the first writer.
// ERR_MEMORY leaves dst unchanged.
int kv_share(struct kv *dst, const struct kv *src, int64_t n, struct err *e);

// Makes an empty kv one whose first n pages were dropped. ERR_MEMORY leaves it as it was.
int kv_skip(struct kv *k, int64_t n_pages, struct err *e);

struct kv_view kv_view_of(const struct kv *k);

// From now on pages stay where they are as long as k refers to them, so that they can be copied.
void kv_stay(struct kv *k);

// A page that was not dropped where it is now: on the device, or its copy in host memory.
const unsigned char *kv_page_data(const struct kv *k, int64_t i);

// The pages of a sequence by group, as plans count them: arithmetic, no pages.
struct kv_need {
    int64_t page_bytes;
    int64_t page_q8; // the same with q8_0 keys and values, or page_bytes where that cannot be
    int64_t window;  // as in struct kv
    int64_t late;    // committed positions that are not stored yet, at most (of a draft's groups)
    // Pages in host memory for each page of the device that stages them; 0: they cannot go there.
    int64_t staged;
};
enum { KV_NEEDS = 16 };
struct kv_needs { // zeroed: no groups
    int n;
    struct kv_need of[KV_NEEDS];
    int64_t host; // bytes of host memory for full pages of one sequence
};
// Another group; there are fewer than KV_NEEDS.
void kv_needs_add(struct kv_needs *s, const struct kv_layout *l, int64_t window, int64_t late);
void kv_needs_join(struct kv_needs *s, const struct kv_needs *more);
// The same groups with q8_0 keys and values.
struct kv_needs kv_needs_q8(const struct kv_needs *s);
// Bytes on the device that a sequence holds at most on its way to n positions where it reserves no
// more than `step` at once, and that it holds at least at n positions with nothing reserved.
int64_t kv_needs_max(const struct kv_needs *s, int64_t n, int64_t step);
// Of what it holds then, bytes in host memory.
int64_t kv_needs_hosted(const struct kv_needs *s, int64_t n, int64_t step);
int64_t kv_needs_kept(const struct kv_needs *s, int64_t n);
// Of these bytes those in groups with a window.
int64_t kv_needs_windows(const struct kv_needs *s, int64_t n, int64_t step);
// Bytes of 1,024 positions in groups without a window: what grows with a text to its end.
int64_t kv_needs_per_1k(const struct kv_needs *s);

#endif
