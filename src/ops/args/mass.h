// SPDX-License-Identifier: Apache-2.0
// What the op key_mass takes: how much attention some queries give to each key of a text, which is
// what a scorer asks of a layer (docs/pflash.md). Pointers are device memory of the backend.
#ifndef COPPICE_OPS_ARGS_MASS_H
#define COPPICE_OPS_ARGS_MASS_H

#include <stdint.h>

// Query t stands at position n - n_q + t and sees the keys j up to its own. With queries and keys
// normed per head (RMSNorm) and without rotary embedding, and query head h reading kv head
// h / (n_heads / n_kv):
//   p[t][h][j] = softmax over the keys j that t sees of scale q[t][h] . k[j]
//   mass[t][j] = max(mass[t][j], max over h of p[t][h][j])
// Keys that t does not see keep their mass.
struct key_mass_args {
    int n_heads, n_kv, d;
    float scale, eps;
    const float *q_norm, *k_norm; // [d] weights of the norms
    int64_t n_q, n;               // queries, keys; n_q <= n
    const float *q;               // [n_q][n_heads][d] projections as they are
    const float *k;               // [n][n_kv][d] likewise
    float *work;                  // [n_q][n] scratch
    float *mass;                  // [n_q][n]
};

#endif
