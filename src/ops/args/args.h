// SPDX-License-Identifier: Apache-2.0
// What the ops of the table in ops.h take: rows of a pass, key/value pages, and one struct of
// arguments for each op with many. Those of recurrent layers are in gdn.h, of linear layers,
// norms and experts in mlp.h, of choices in sample.h, of scorers in mass.h, of
// block-sparse attention in sparse.h. Pointers are device memory of the backend unless a
// comment says host.
#ifndef COPPICE_OPS_ARGS_ARGS_H
#define COPPICE_OPS_ARGS_ARGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/args/gdn.h"
#include "ops/args/mlp.h"
#include "ops/args/sparse.h"
#include "ops/attention.h"
#include "ops/kv/layout.h"

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

// Per head: RMSNorm, rotary embedding of queries and keys, and the store.
struct qk_args {
    int n_heads, n_kv, dk, dv;
    struct rope rope;
    float eps;
    const float *q_norm, *k_norm; // [dk] weights; NULL: no norm
    bool v_norm;                  // RMSNorm of V, without weights
    const float *q;               // [n][n_heads][q_stride]; the query is the first dk of a head
    int q_stride;                 // dk, or more when a gate follows each query head
    // [n][n_kv][dk], [n][n_kv][dv]; v NULL where V is a part of K; k NULL: only queries are turned,
    // for layers that read what an earlier one has stored.
    const float *k, *v;
    // Where V is a part of K, K may come apart: k is [n][n_kv][dv] then, which gets RMSNorm with
    // value_norm [dv], and k_rest [n][n_kv][dk - dv] what stands behind it. NULL: it does not.
    const float *k_rest, *value_norm;
    float value_eps;
    const struct kv_layout *layout;
    int layer;                   // within the KV group
    const struct kv_slot *store; // [n] host: where K and V go
    float *q_out;                // [n][n_heads][dk]; NULL with q: only K and V are wanted
};

// Rows of a pass that choose blocks of keys, and room for it. Those of a sequence are a chain that
// continues it, stored where its pages have these positions (as prompts are).
struct attend_choice {
    struct sparse_rule rule;
    const int64_t *end; // host [sequences]: rows at positions below it choose, others see all
    float *means;       // [blocks][n_kv][dk]
    uint32_t *chosen;   // [n][n_heads][blocks / 32]: bit b % 32 of word b / 32
    int64_t blocks;     // that there is room for, a multiple of 32
};

struct attend_args {
    struct attend_shape shape;
    const float *q;     // [n][n_heads][dk]
    const float *gate;  // NULL, or head h of row i at gate + (i * n_heads + h) * gate_stride
    int gate_stride;    // output is multiplied by sigmoid(gate[0..dv)),
    bool gate_softplus; // or by ln(1 + e^gate),
    bool gate_single;   // and all of a head by what gate[0] gives
    const struct kv_layout *layout;
    int layer;
    const struct kv_view *seqs;  // host [sequences]
    const struct kv_slot *store; // [n] host: K and V of these rows (qk_norm_rope_store wrote them)
    struct act *out;             // [n][n_heads * dv]
    const struct attend_choice *choice; // NULL: all rows see everything. Not beside a window
};

#endif
