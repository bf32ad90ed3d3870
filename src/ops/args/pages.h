// SPDX-License-Identifier: Apache-2.0
// What the ops key_bounds and page_scores take: which pages of keys matter to a query, by the
// bounds of their keys (Quest, arXiv 2406.10774). Bounds are of keys as they are stored, rotated
// ones too, with queries rotated alike. Pointers are device memory of the backend unless a comment
// says host.
#ifndef COPPICE_OPS_ARGS_PAGES_H
#define COPPICE_OPS_ARGS_PAGES_H

#include <stdint.h>

#include "ops/kv/layout.h"

// Of each page, whose KV_PAGE positions all hold keys, and kv head the smallest and the largest
// value that a channel has in them.
struct key_bounds_args {
    const struct kv_layout *layout;
    int layer;                   // within the KV group
    unsigned char *const *pages; // host [n] of device pointers
    int64_t n;
    float *out; // [n][n_kv][2][dk]: the smallest ones, the largest ones
};

// out[h][p] = scale * sum over channels d of max(q[h][d] min[p][d], q[h][d] max[p][d]) with the
// bounds of h's kv head, h / (n_heads / n_kv): no key of the page has a larger score. On a CPU
// channel d is added to partial sum d mod 16, in order, and these are folded in halves.
struct page_scores_args {
    int n_heads, n_kv, dk;
    float scale;
    int64_t n, stride;   // pages; numbers from a head to the next in out
    const float *q;      // [n_heads][dk]
    const float *bounds; // [n][n_kv][2][dk]
    float *out;          // [n_heads][stride], of which n are written
};

#endif
