// SPDX-License-Identifier: Apache-2.0
// The kernels of the gated delta rule and what each one takes; they stand in the table of
// ops/cpu/simd/row/row.h. Together they give delta and output of rows that share a base state S and
// a log: products of keys and queries with the log's keys, coefficients with the decays in them,
// what S and the committed log give each row, and last what its ancestors in flight add.
// delta_scalar.c specifies every operation and its order; ops.c says which rows go together.
#ifndef COPPICE_OPS_CPU_GDN_DELTA_H
#define COPPICE_OPS_CPU_GDN_DELTA_H

#include <stdint.h>

#include "ops/args/args.h"

enum {
    DELTA_ROWS = 16, // rows that one reading of a state and its log serves at most
    DELTA_LOG = 64,  // log rows that one reading takes at most
    DELTA_X = OPS_HEAD_MAX + DELTA_LOG,
    FOLD_LOG = 32, // log rows that one fold takes at most
};

// What has faded below e^FADE_LO since it was written counts as zero: 4e-11 of a sum that is
// rounded to 6e-8. Zeros at the old end of a log need no work, and neither does such a state.
#define FADE_LO (-24.0f)

// out[i][j] = x[i] . k[j], in 16 partial sums; n_x is even.
struct delta_dots {
    const float *x[2 * DELTA_ROWS]; // [dim]
    float *out[2 * DELTA_ROWS];     // [n]
    const float *const *k;          // [n][dim]
    int n_x, n, dim;
};

// f = e^(x[j] - m), or 0 below FADE_LO; ck[j] = f kk[j], cq[j] = f kq[j]. Returns e^-m likewise.
struct delta_fade {
    const float *x, *kk, *kq; // [n]
    float *ck, *cq;           // [n]
    float m;
    int n;
};

// For each row: a = scale S^T k + sum over the log in order of ck[j] d[j]; b the same with q, cq.
struct delta_read {
    const float *s; // [dk][dv]; NULL: every scale is 0
    int dk, dv, n;  // n rows
    // The log in two pieces one after the other: count rows of dv floats, stride floats apart.
    const float *d[2];
    int count[2];
    int64_t stride;
    const float *x; // [n][2][DELTA_X]: k and after dk values ck; q and cq
    struct delta_reader {
        float scale;
        float *a, *b; // [dv]
    } row[DELTA_ROWS];
    float *panel; // scratch, [DELTA_X][32]
};

// Completes a row: a and b gain pa[j] d[j] and pb[j] d[j] in order; then a = beta (v - a), which is
// the row's delta, and b += self * a, its output.
struct delta_row {
    float *a, *b;          // [dim]
    const float *pa, *pb;  // [n]
    const float *const *d; // [n][dim]
    const float *v;        // [dim]
    float beta, self;
    int n, dim;
};

// out = decay * s + sum over j in order of (c[j] k[j]) d[j]^T. out may be s; without s, the sum
// alone.
struct state_fold {
    float *out;
    const float *s; // [dk][dv]
    int dk, dv, n;
    float decay;
    const float *c;        // [n]
    const float *const *k; // [n][dk]
    const float *const *d; // [n][dv]
};

struct delta_kernels {
    void (*dots)(const struct delta_dots *a);
    float (*fade)(const struct delta_fade *a);
    void (*read)(const struct delta_read *a);
    void (*row)(const struct delta_row *a);
    void (*fold)(const struct state_fold *a);
};

void delta_fill_scalar(struct delta_kernels *d);

#endif
