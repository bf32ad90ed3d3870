// SPDX-License-Identifier: Apache-2.0
// The rotation of heads before they are stored in few bits: fixed signs, then a Walsh-Hadamard
// transform, which spreads what is large in a few values over all of a group (QuaRot, arXiv
// 2404.00456). It is orthogonal, so scores of a query and a key that are both rotated are what they
// were up to rounding. One order of f32 operations on all levels, head by head (rule E).
#ifndef COPPICE_OPS_KV_ROTATE_H
#define COPPICE_OPS_KV_ROTATE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { KV_ROTATE_MAX = 128 }; // values of the largest group

// Bit i: value i of a group changes its sign. Fixed: pages keep what was rotated.
#define KV_ROTATE_SIGNS {0x9E3779B9u, 0x7F4A7C15u, 0xBF58476Du, 0x1CE4E5B9u}
// 1 / sqrt(n) of groups of 1, 2, 4, ... values.
#define KV_ROTATE_SCALES                                                                           \
    {1.0f, 0.707106769f, 0.5f, 0.353553385f, 0.25f, 0.176776692f, 0.125f, 0.0883883461f}

// The largest power of two, at most KV_ROTATE_MAX, that divides both lengths; b 0: only a counts.
int kv_rotate_group(int a, int b);
// n values in place, a multiple of the group: y = H (s x) / sqrt(group) in each group, and back.
void kv_rotate(float *x, int64_t n, int group);
void kv_rotate_back(float *x, int64_t n, int group);

#ifdef __cplusplus
}
#endif

#endif
