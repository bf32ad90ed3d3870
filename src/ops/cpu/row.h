// SPDX-License-Identifier: Apache-2.0
// The row kernels of the CPU backend: the loops that touch numbers, one function per job, in a
// table that is filled once. The scalar functions (row_scalar.c, linear_scalar.c) specify every
// floating-point operation and its order, so the vector levels give the same bits. Sums over a
// row go into 16 partial sums (element i to lane i mod 16) that row_fold adds pairwise; sums over
// keys or matrix rows go element by element in order.
#ifndef COPPICE_OPS_CPU_ROW_H
#define COPPICE_OPS_CPU_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/ops.h"
#include "ops/rowmath.h"

enum {
    TILE = 16,      // output rows of a weight tile = vector lanes
    GROUP = 32,     // k values that share one activation scale
    ROWS = 16,      // activation rows that one call of a linear kernel takes at most
    STATE_ROWS = 8, // rows that one pass over a recurrent state serves at most
    STATE_LOG = 32, // log rows that one fold takes at most
};

// One group of 32 activations: int8 codes q with x ~ d * q.
struct act_block {
    float d;
    float ds;      // d * sum of the codes
    float ds16[2]; // the same of each half
    int32_t nsum;  // minus the sum of the codes
    int32_t nsum16[2];
    int32_t unused;
};

// Rows in the form that linear layers read.
struct act {
    int64_t cap;         // values that x and q hold
    int64_t k, stride;   // stride = k rounded up to GROUP; the padding is zero
    float *x;            // [n][stride]
    int8_t *q;           // [n][stride]
    struct act_block *b; // [n][stride / GROUP]
};

enum scale_kind {
    SCALE_HALF,  // fp16 per group (and fp16 minimum)
    SCALE_SUPER, // fp16 per 256 times int8 per sub-group (and the same of minima)
    SCALE_FLOAT, // f32 per sub-group
};

// How a weight is stored: X(name, bits of a code, log2 of the offset in the codes or 0, scales per
// group, minima, scale kind). value = scale * (code - offset) - minimum.
#define LINEAR_FORMS(X)                                                                            \
    X(N4_HALF, 4, 3, 1, 0, SCALE_HALF)                                                             \
    X(N4_HALF_MIN, 4, 0, 1, 1, SCALE_HALF)                                                         \
    X(B6_HALF, 6, 4, 1, 0, SCALE_HALF)                                                             \
    X(B6_HALF_MIN, 6, 0, 1, 1, SCALE_HALF)                                                         \
    X(B8_HALF, 8, 7, 1, 0, SCALE_HALF)                                                             \
    X(N4_SUPER_MIN, 4, 0, 1, 1, SCALE_SUPER)                                                       \
    X(B6_SUPER_MIN, 6, 0, 1, 1, SCALE_SUPER)                                                       \
    X(B8_SUPER, 8, 7, 1, 0, SCALE_SUPER)                                                           \
    X(N4_SUPER_2MIN, 4, 0, 2, 1, SCALE_SUPER)                                                      \
    X(N4_SUPER_2, 4, 2, 2, 0, SCALE_SUPER)                                                         \
    X(B6_SUPER_2, 6, 5, 2, 0, SCALE_SUPER)                                                         \
    X(B6_FLOAT, 6, 4, 1, 0, SCALE_FLOAT)                                                           \
    X(B6_FLOAT_2, 6, 4, 2, 0, SCALE_FLOAT)

enum linear_form {
#define X(name, ...) FORM_##name,
    LINEAR_FORMS(X)
#undef X
        FORM_F32, // plain numbers, [k][TILE]
    FORM_F16,
    FORM_BF16,
    FORM_COUNT
};

struct form {
    int bits, shift, subs, min;
    enum scale_kind scale;
};

// A matrix as tiles of 16 output rows. A quantised tile holds its codes, then its scales.
// Codes of a group: vector j has 4 bytes for each of the 16 rows, those of k = 4j .. 4j+3;
// with 4 bits the low nibbles are k = 4j .. and the high ones k = 16 + 4j ...
// Scales: SCALE_HALF [group](d[16], m[16]), SCALE_FLOAT [group][sub][16], SCALE_SUPER
// [256 values](s[8 subs][16], m[8 subs][16], d[16], dm[16]); m and dm only with minima.
struct weight {
    uint32_t type; // enum tensor_type of the source
    enum linear_form form;
    int64_t k, m, tiles;
    int64_t scales_at;  // bytes from the tile's begin to its scales
    int64_t tile_bytes; // a multiple of 64
    unsigned char *data;
    const unsigned char *source; // the tensor's own rows, borrowed
    int64_t source_row;          // bytes
};

// out[i][lane] = row `row + i` of in times output row `tile * TILE + lane`, for i < n <= ROWS.
typedef void linear_fn(const struct weight *w, int64_t tile, const struct act *in, int64_t row,
                       int n, float *out);
typedef void kv_load_fn(const void *src, float *dst, int64_t n);

// Groups i < n: x + i * x_step, q + i * q_step, b + i * b_step.
struct quantise {
    const float *x;
    int8_t *q;
    struct act_block *b;
    int64_t n, x_step, q_step, b_step;
};

// S^T k and S^T q of up to STATE_ROWS rows over one recurrent state.
struct state_read {
    const float *s; // [dk][dv]
    int dk, dv, n;
    const float *k[STATE_ROWS], *q[STATE_ROWS]; // [dk]
    float *sk[STATE_ROWS], *sq[STATE_ROWS];     // [dv]
};

// a = a * scale + sum over j in order of pa[j] v[j]; b the same with pb.
struct weigh2 {
    float *a, *b; // [dim]
    float scale;
    const float *pa, *pb;  // [n]
    const float *const *v; // [n][dim]
    int n, dim;
};

// out = decay * s + sum over j in order of (c[j] k[j]) d[j]^T. out may be s.
struct state_fold {
    float *out;
    const float *s; // [dk][dv]
    int dk, dv, n;
    float decay;
    const float *c;        // [n]
    const float *const *k; // [n][dk]
    const float *const *d; // [n][dv]
};

struct row_kernels {
    const char *name;
    linear_fn *linear[FORM_COUNT];
    kv_load_fn *load_f16, *load_bf16, *load_q8_0;
    // Codes and blocks of n groups of 32 values: groups of one row, or the same group of rows.
    void (*quantise)(const struct quantise *a);
    float (*sum_sq)(const float *x, int64_t n);
    float (*max)(const float *x, int64_t n); // n > 0; no NaN
    // out = (x * s) * w; w may be NULL (out = x * s).
    void (*scale_mul)(float *out, const float *x, const float *w, float s, int64_t n);
    // out = silu(g) * u.
    void (*silu_mul)(float *out, const float *g, const float *u, int64_t n);
    // out = out * s, then * sigmoid(g) unless g is NULL.
    void (*gate)(float *out, float s, const float *g, int64_t n);
    // out[j] = q . k[j].
    void (*dots)(float *out, const float *q, const float *const *k, int n, int dim);
    // Returns the sum of exp(x - m) and stores the terms in out unless out is NULL.
    float (*exp_sum)(float *out, const float *x, float m, int64_t n);
    // acc = acc * scale + sum over j in order of p[j] v[j].
    void (*weigh)(float *acc, float scale, const float *p, const float *const *v, int n, int dim);
    void (*weigh2)(const struct weigh2 *w);
    // out[c] = silu(w[c][0] u[0][c] + .. + w[c][3] u[3][c]), oldest first, one fma after another.
    void (*conv4)(float *out, const float *const u[4], const float *w, int64_t n);
    // out[i] = row_gumbel(key, first + i).
    void (*gumbel)(float *out, uint64_t key, int64_t first, int64_t n);
    void (*state_read)(const struct state_read *a);
    void (*state_fold)(const struct state_fold *a);
};

enum row_level { ROW_SCALAR, ROW_AVX2, ROW_AVX512, ROW_LEVELS };

// Fills the table up to a level, or up to what this machine has. Returns the level reached.
enum row_level row_kernels_fill(struct row_kernels *r, enum row_level most);
// Parts of the above, each in its own file.
void row_fill_scalar(struct row_kernels *r);
void linear_fill_scalar(struct row_kernels *r);
void row_fill_avx2(struct row_kernels *r);
void linear_fill_avx2(struct row_kernels *r);
void row_fill_avx512(struct row_kernels *r);
void linear_fill_avx512(struct row_kernels *r);

// The sum of 16 partial sums, halves folded onto each other.
static inline float row_fold(float lane[TILE]) {
    for (int h = TILE / 2; h > 0; h /= 2)
        for (int i = 0; i < h; i++)
            lane[i] += lane[i + h];
    return lane[0];
}

#endif
