// SPDX-License-Identifier: Apache-2.0
// The row kernels of the CPU backend: the loops that touch numbers, one function per job, in a
// table that is filled once. The scalar functions (scalar.c, ops/cpu/linear/scalar.c) specify every
// floating-point operation and its order, so the vector levels give the same bits. Sums over a
// row go into 16 partial sums (element i to lane i mod 16) that row_fold adds pairwise; sums over
// keys or matrix rows go element by element in order.
#ifndef COPPICE_OPS_CPU_SIMD_ROW_ROW_H
#define COPPICE_OPS_CPU_SIMD_ROW_ROW_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/cpu/gdn/delta.h"
#include "ops/cpu/linear/linear.h"
#include "ops/ops.h"
#include "ops/rowmath.h"

#define INLINE static inline __attribute__((always_inline))
// Before a loop whose count is a constant after inlining: its arrays are then in registers.
#ifdef COPPICE_CHECKED // every access is checked: unrolled, a file takes the compiler ten minutes
#define UNROLL
#define UNROLL_BY_4
#else
#define UNROLL      _Pragma("GCC unroll 16")
#define UNROLL_BY_4 _Pragma("GCC unroll 4")
#endif

typedef void row_load_fn(const void *src, float *dst, int64_t n);

// Groups g < groups of rows lane .. lane + rows - 1 of a block: x and q hold `stride` values a row,
// b is the block of the first group.
struct quantise {
    const float *x;
    int8_t *q;
    struct act_block *b;
    int lane, rows;
    int64_t groups, stride;
};

// acc[i] = acc[i] * scale[i] + sum over j in order of p[i][j] v[j], for four sums.
struct weigh4 {
    float *acc[4]; // [dim]
    float scale[4];
    const float *p[4];     // [n]
    const float *const *v; // [n][dim]
    int n, dim;
};

// Row i: out[c] = silu(w[at + c][0] in[0][at + c] + .. + w[at + c][3] in[3][at + c]), one fma after
// another, for c < dim.
struct conv4 {
    const float *(*in)[4]; // [n] four rows of channels, oldest first
    const float *w;        // [channels][4]
    float *out;            // [n][dim], stride apart
    int64_t at, stride, n;
    int dim;
};

// out[c * to + r] = in[r * from + c] for r < rows and c < cols.
struct columns {
    float *out;
    const float *in;
    int64_t to, from;
    int rows, cols;
};

// For each column b < n, where x = scale * score[r][b] goes over the rows: top = max(max[b], all
// x), sum[b] = sum[b] e^(max[b] - top) + e^(x - top) for one row after another, max[b] = top.
struct mass_rows {
    float *max, *sum;          // [n]
    const float *const *score; // [rows][n]
    float scale;
    int rows, n;
};

// n keys or values of a head as a page holds them (ops/kv/layout.h), codec by codec; dim is a
// multiple of 16.
struct stored_rows {
    enum kv_codec_id codec;
    const unsigned char *codes, *scales; // of the first
    int64_t code_row, scale_row;         // bytes from one to the next
    int n, dim;
    const unsigned char *next; // as many rows that are read later; requested meanwhile
};

// dots of up to four queries.
struct stored_dots {
    struct stored_rows k;
    const float *x[4];
    float *out[4];
    int n_x;
};

// weigh of up to four queries.
struct stored_weigh {
    struct stored_rows v;
    const float *p[4];
    float *acc[4], scale[4];
    int n_x;
};

struct row_kernels {
    const char *name;
    linear_fn *linear[FORM_COUNT];
    linear_fn *linear_many[FORM_COUNT]; // NULL, or better when a part has `many` rows or more
    int many;
    bool woven; // how `linear` and `linear_many` of quantised forms use tiles
    bool alone; // `linear` reads what is known of a row alone
    // The nearest bf16, ties to even; n is a multiple of GROUP.
    void (*to_bf16)(const float *x, uint16_t *out, int64_t n);
    // NULL, or puts the codes of a packed tile into the order that `linear` of this level reads.
    void (*arrange)(const struct weight *w, unsigned char *tile);
    row_load_fn *load_f16, *load_bf16, *load_q8_0; // of weights
    kv_decode_fn *kv_load[KV_CODEC_COUNT];         // by enum kv_codec_id
    kv_encode_fn *kv_store[KV_CODEC_COUNT];
    // Codes and blocks; fastest with four rows or more.
    void (*quantise)(const struct quantise *a);
    float (*sum_sq)(const float *x, int64_t n);
    float (*max)(const float *x, int64_t n); // n > 0; no NaN
    // out = (x * s) * w; w may be NULL (out = x * s).
    void (*scale_mul)(float *out, const float *x, const float *w, float s, int64_t n);
    // out = silu(g) * u.
    void (*silu_mul)(float *out, const float *g, const float *u, int64_t n);
    // out = gelu(g) * u (row_gelu_tanh); out = row_swiglu_clamped(g, u).
    void (*gelu_mul)(float *out, const float *g, const float *u, int64_t n);
    void (*swiglu_clamped)(float *out, const float *g, const float *u, int64_t n);
    // out = out * s, then * sigmoid(g) unless g is NULL.
    void (*gate)(float *out, float s, const float *g, int64_t n);
    // out[j] = q . k[j].
    void (*dots)(float *out, const float *q, const float *const *k, int n, int dim);
    // Returns the sum of exp(x - m) and stores the terms in out unless out is NULL.
    float (*exp_sum)(float *out, const float *x, float m, int64_t n);
    // acc = acc * scale + sum over j in order of p[j] v[j].
    void (*weigh)(float *acc, float scale, const float *p, const float *const *v, int n, int dim);
    void (*weigh4)(const struct weigh4 *w);
    // dots and weigh of rows that need not be decoded before; NULL: the level has none.
    void (*stored_dots)(const struct stored_dots *a);
    void (*stored_weigh)(const struct stored_weigh *a);
    void (*sigmoid)(float *out, const float *x, int64_t n);
    void (*softplus)(float *out, const float *x, int64_t n); // ln(1 + e^x)
    void (*conv4)(const struct conv4 *a);
    // out[i] = row_gumbel(key, first + i).
    void (*gumbel)(float *out, uint64_t key, int64_t first, int64_t n);
    struct delta_kernels delta;
    void (*columns)(const struct columns *a);
    void (*mass_rows)(const struct mass_rows *a);
};

// Those of one kind of processor follow each other; each includes what is before it there.
enum row_level {
    ROW_SCALAR,
    ROW_AVX2,
    ROW_AVX512,
    ROW_AMX,
    ROW_NEON,
    ROW_DOTPROD,
    ROW_I8MM,
    ROW_LEVELS
};

// Fills the table up to a level, or up to what this machine has. Returns the level reached.
enum row_level row_kernels_fill(struct row_kernels *r, enum row_level max);
// Parts of the above, each in its own file.
void row_fill_scalar(struct row_kernels *r);
void linear_fill_scalar(struct row_kernels *r);
void row_fill_avx2(struct row_kernels *r);
void linear_fill_avx2(struct row_kernels *r);
void row_fill_avx512(struct row_kernels *r);
void linear_fill_avx512(struct row_kernels *r);
void linear_fill_avx512_split(struct row_kernels *r); // after it: tiles that are not woven
void linear_fill_amx(struct row_kernels *r);
void linear_fill_bf16_amx(struct row_kernels *r);
void row_fill_neon(struct row_kernels *r);
void linear_fill_neon(struct row_kernels *r);
void linear_fill_bf16_neon(struct row_kernels *r);
void linear_fill_dotprod(struct row_kernels *r);
void linear_fill_i8mm(struct row_kernels *r);

// The sum of 16 partial sums, halves folded onto each other.
static inline float row_fold(float lane[TILE]) {
    for (int h = TILE / 2; h > 0; h /= 2)
        for (int i = 0; i < h; i++)
            lane[i] += lane[i + h];
    return lane[0];
}

#endif
