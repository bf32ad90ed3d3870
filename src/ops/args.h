// SPDX-License-Identifier: Apache-2.0
// What the ops of the table in ops.h take: rows of a pass, key/value pages, and one struct of
// arguments for each op with many. Those of recurrent layers are in args_gdn.h, of linear layers,
// norms and experts in args_mlp.h, of choices in args_sample.h. Pointers are device memory of the
// backend unless a comment says host.
#ifndef COPPICE_OPS_ARGS_H
#define COPPICE_OPS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/args_gdn.h"
#include "ops/args_mlp.h"
#include "ops/args_sample.h"
#include "ops/kv_layout.h"

// The rows of a forward pass, topologically ordered (parent index < own index). Host arrays.
struct rows {
    int64_t n;
    const int32_t *token;  // [n]
    const int32_t *parent; // [n] row index, or -1: child of its sequence's last committed token
    const int32_t *seq;    // [n] index into the per-sequence arrays of an op's arguments
    const int64_t *pos;    // [n] position in the sequence = committed length + depth
    // Not 0: all calls with this number have these very rows, and in attention the same views and
    // places (store) of a layout, so a backend may keep what it made of them. 0: nothing is said.
    uint64_t pass;
};

// Bounds that loaders check: head_dim, dk and dv; query heads of one kv head.
enum { OPS_HEAD_MAX = 512, OPS_GROUP_MAX = 128 };

// Where a row's K and V live.
struct kv_slot {
    unsigned char *page;
    int32_t slot; // 0 .. KV_PAGE-1
};

// Committed positions of one sequence in one KV group. pages[i] holds positions 64 i .. 64 i + 63;
// entries wholly below the visible range may be NULL.
struct kv_view {
    unsigned char *const *pages; // host array of device pointers
    int64_t len;
};

struct qk_args {
    int n_heads, n_kv, head_dim;
    int rope_dims; // NEOX pairs (i, i + rope_dims/2) of the first rope_dims
    float rope_base, eps;
    const float *q_norm, *k_norm; // [head_dim]
    const float *q;     // [n][n_heads][q_stride]; the query is the first head_dim of a head
    int q_stride;       // head_dim, or 2 * head_dim when a gate follows each query head
    const float *k, *v; // [n][n_kv][head_dim]
    const struct kv_layout *layout;
    int layer;                   // within the KV group
    const struct kv_slot *store; // [n] host: where K and V go
    float *q_out;                // [n][n_heads][head_dim]; NULL with q: only K and V are wanted
};

enum attend_mask {
    ATTEND_PATH,  // committed keys, own ancestors among these rows, itself
    ATTEND_BLOCK, // committed keys and every row of the own sequence here (a bidirectional draft)
};

struct attend_args {
    int n_heads, n_kv, head_dim;
    float scale;
    int mask;          // enum attend_mask
    int64_t window;    // keys with |q - k| >= window are hidden; 0: no window
    const float *q;    // [n][n_heads][head_dim]
    const float *gate; // NULL, or head h of row i at gate + (i * n_heads + h) * gate_stride
    int gate_stride;   // output is multiplied by sigmoid(gate[0..head_dim))
    const struct kv_layout *layout;
    int layer;
    const struct kv_view *seqs;  // host [sequences]
    const struct kv_slot *store; // [n] host: K and V of these rows (qk_norm_rope_store wrote them)
    struct act *out;             // [n][n_heads * head_dim]
};

#endif
