// SPDX-License-Identifier: Apache-2.0
// What the kernels of Gated DeltaNet share. Where the states of a pass's sequences are goes to the
// device as an array of structs of pointers, one for each layer. Each commit of a 32nd position
// exchanges the pointers of the two bases, and among many sequences some commit is always one; so
// the arrays name bases by address, and which is which is said once for all layers of a pass. Then
// arrays change only with the sequences, and the stage finds them.
#ifndef COPPICE_OPS_GPU_GDN_GDN_H
#define COPPICE_OPS_GPU_GDN_GDN_H

#include "ops/gpu/runtime/gpu.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum { GDN_STATES = 64 }; // sequences of one launch

// Sequences [first, stop) occur among rows.
struct gdn_range {
    int first, stop;
};

static inline struct gdn_range gdn_sequences(const int32_t *seq, int64_t n) {
    struct gdn_range r = {seq[0], seq[0] + 1};
    for (int64_t i = 1; i < n; i++) {
        r.first = seq[i] < r.first ? seq[i] : r.first;
        r.stop = seq[i] < r.stop ? r.stop : seq[i] + 1;
    }
    return r;
}

// The tables of a pass with few rows of one sequence; they travel with the launch, so that a kernel
// need not wait for one load to know where the next one is.
enum { GDN_FEW = 64 };
struct gdn_few {
    int32_t n;          // rows; 0: the tables are in device memory
    int8_t up[GDN_FEW]; // row of the parent, < 0: none in flight
    struct gdn_state state;
};

static inline struct gdn_few gdn_few_of(const struct gdn_state *const *seqs, int32_t seq,
                                        const int32_t *parent, int64_t first, int64_t n) {
    struct gdn_few f = {(int32_t)n, {0}, *seqs[seq]};
    for (int64_t i = 0; i < n; i++)
        f.up[i] = (int8_t)(parent[i] < first ? -1 : parent[i] - first);
    return f;
}

// Whether s_lo is the base at the higher address.
static inline bool gdn_exchanged(const struct gdn_state *s) {
    return s->s_lo > s->s_hi;
}

// Device array of the states of the sequences of n <= GDN_STATES runs, s_lo being the base at the
// lower address; NULL after a fault.
static inline const struct gdn_state *gdn_stage_states(struct gpu *g, const struct gdn_args *a,
                                                       const struct gdn_run *runs, int n) {
    struct gdn_state s[GDN_STATES];
    for (int i = 0; i < n; i++) {
        s[i] = *a->seqs[runs[i].seq];
        float *lo = s[i].s_lo;
        if (gdn_exchanged(&s[i])) {
            s[i].s_lo = s[i].s_hi;
            s[i].s_hi = lo;
        }
    }
    return (const struct gdn_state *)gpu_stage(g, s, (size_t)n * sizeof *s);
}

// Whether matrix.cu serves the shape on this device. It depends on nothing else, since it and
// plain.cu give other bits.
bool gdn_takes_matrix(const struct gpu *g, const struct gdn_shape *s);

// Bytes of scratch that cuda_gdn_blocks takes for that many blocks of GDN_BLOCK rows.
size_t gdn_blocks_bytes(const struct gdn_shape *s, int64_t blocks);

#ifdef __CUDACC__
// Inclusive sums over the lanes of a warp, in a fixed order.
static __device__ inline float gdn_scan(float v, int lane) {
#pragma unroll
    for (int d = 1; d < WARP; d *= 2) {
        float o = warp_below(v, d);
        v = lane >= d ? v + o : v;
    }
    return v;
}

// Four neighbouring floats of which `left` exist; VEC: they are 16-byte aligned and left is 0 or
// at least 4.
template <bool VEC> static __device__ inline float4 gdn_get4(const float *p, int left) {
    if (VEC)
        return left > 0 ? *(const float4 *)p : make_float4(0, 0, 0, 0);
    return make_float4(left > 0 ? p[0] : 0, left > 1 ? p[1] : 0, left > 2 ? p[2] : 0,
                       left > 3 ? p[3] : 0);
}

template <bool VEC> static __device__ inline void gdn_put4(float *p, float4 v, int left) {
    if (VEC) {
        if (left > 0)
            *(float4 *)p = v;
        return;
    }
    if (left > 0)
        p[0] = v.x;
    if (left > 1)
        p[1] = v.y;
    if (left > 2)
        p[2] = v.z;
    if (left > 3)
        p[3] = v.w;
}

static __device__ inline void gdn_fma4(float4 *acc, float f, float4 v) {
    acc->x = fmaf(f, v.x, acc->x);
    acc->y = fmaf(f, v.y, acc->y);
    acc->z = fmaf(f, v.z, acc->z);
    acc->w = fmaf(f, v.w, acc->w);
}

static __device__ inline float4 gdn_scale4(float4 v, float f) {
    return make_float4(v.x * f, v.y * f, v.z * f, v.w * f);
}
#endif

#endif
