// SPDX-License-Identifier: Apache-2.0
// Tiles of K-quants and of the forms that rarer types share, without a GPU: what repacking writes
// and what the kernels make of it, compiled for the host. Each value that would enter a product is
// compared with the scalar decoder's, each row of an embedding too.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern "C" {
#include "formats/quant/grid.h"
#include "formats/quant/quant.h"
}

#include "ops/gpu/linear/form/dequant.cuh"
#include "ops/gpu/linear/form/gather.cuh"
#include "ops/gpu/linear/form/repack.cuh"

enum { ROWS = 16, THERE = 13, BYTES = 1 << 16, CASES = 40 };

// Of what enters products and of embedding rows, as shares of what they may be. floor: what a value
// may be off however small it is, as a share of the row's largest.
struct errors {
    double product, gather, floor;
};

static uint64_t state = 1;

static uint32_t random_bits(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 33);
}

static uint16_t small_half(void) {
    const float x = ((float)(random_bits() % 2001) - 1000) * 5e-5f;
    return __half_as_ushort(__float2half_rn(ldexpf(x, -(int)(random_bits() % 3))));
}

// Random codes, with small numbers where a block has its halves.
static void fill(uint32_t type, unsigned char *b) {
    static const int of_type[][3] = {
        {TYPE_Q4_1, 0, 2},    {TYPE_Q5_0, 0, -1},   {TYPE_Q5_1, 0, 2},    {TYPE_Q2_K, 80, 82},
        {TYPE_Q3_K, 108, -1}, {TYPE_TQ1_0, 52, -1}, {TYPE_TQ2_0, 64, -1}, {TYPE_Q4_K, 0, 2},
        {TYPE_Q5_K, 0, 2},    {TYPE_Q6_K, 208, -1}};
    int at[2] = {0, -1};
    for (int i = 0; i < quant_format(type)->bytes; i++)
        b[i] = (unsigned char)random_bits();
    for (size_t i = 0; i < sizeof of_type / sizeof of_type[0]; i++)
        if ((uint32_t)of_type[i][0] == type)
            memcpy(at, &of_type[i][1], sizeof at);
    for (int i = 0; i < 2 && at[i] >= 0 && type != TYPE_NVFP4; i++) {
        const uint16_t h = small_half();
        for (int n = 0; n < 4 && type == TYPE_IQ1_M; n++)
            b[49 + 2 * n] = (unsigned char)((b[49 + 2 * n] & 15) | (h >> 4 * n & 15) << 4);
        if (type != TYPE_IQ1_M)
            memcpy(b + at[i], &h, 2);
    }
    for (int i = 0; i < 4 && type == TYPE_NVFP4; i++)
        b[i] = (unsigned char)(random_bits() % 0x60);
}

static const uint16_t *grid_of(uint32_t type) {
    switch (type) {
    case TYPE_IQ2_XXS:
        return quant_grid_iq2_xxs;
    case TYPE_IQ2_XS:
        return quant_grid_iq2_xs;
    case TYPE_IQ2_S:
        return quant_grid_iq2_s;
    case TYPE_IQ3_XXS:
        return quant_grid_iq3_xxs;
    case TYPE_IQ3_S:
        return quant_grid_iq3_s;
    default:
        return quant_grid_iq1;
    }
}

static float value_at(const unsigned char *chunk, int form, int row, int k, int e) {
    switch (form) {
    case WEIGHT_Q4_K:
        return q4_k_value(chunk, row, k, e);
    case WEIGHT_Q5_K:
        return q5_k_value(chunk, row, k, e);
    case WEIGHT_Q6_K:
        return q6_k_value(chunk, row, k, e);
    case WEIGHT_Q2_K:
        return q2_k_value(chunk, row, k, e);
    case WEIGHT_LEVELS8:
        return levels8_value(chunk, row, k, e);
    case WEIGHT_LEVELS16:
        return levels16_value(chunk, row, k, e);
    case WEIGHT_NVFP4:
        return nvfp4_value(chunk, row, k, e);
    default:
        return q5_1_value(chunk, row, k, e);
    }
}

static void compare(double *worst, double got, double want, double allowed) {
    const double e = fabs(got - want) / (allowed + 1e-30);
    *worst = e > *worst || isnan(e) ? e : *worst;
}

// A chunk of a tile that begins at k0.
struct chunk_seen {
    const tile_source *s;
    const unsigned char *chunk;
    int64_t k0;
    const float *want; // [ROWS][k] of the whole rows
    const double *max; // of each row
};

// One value: what a product gets of it, and an embedding.
static void look_at_value(const chunk_seen &c, int form, int row, int k, float product,
                          struct errors *r) {
    const bool there = row < THERE && c.k0 + k < c.s->k;
    const double v = there ? (double)c.want[row * c.s->k + c.k0 + k] : 0;
    const int e = c.s->exponent[row];
    compare(&r->product, ldexp((double)product, -e), v, 0x1p-10 * fabs(v) + r->floor * c.max[row]);
    if (there)
        compare(&r->gather, (double)value_at(c.chunk, form, row, k, e), v,
                0x1p-11 * fabs(v) + 0x1p-20 * c.max[row]);
}

template <int FORM> static void look_at(const chunk_seen &c, int lane, struct errors *r) {
    dequant<FORM> q = {};
    q.open(c.chunk, c.k0, lane);
    for (int at = 0; at < dequant<FORM>::SPAN; at += 16) {
        uint32_t a[1][4];
        if (at % 64 == 0)
            q.section(c.chunk, at / 64, lane);
        q.step(at % 64 / 16, a);
        for (int i = 0; i < 8; i++) {
            const __half2 h = half2_of(a[0][i / 2]);
            look_at_value(c, FORM, row_of(lane, i / 2), at + column_of(lane, 0, i / 2, i % 2),
                          __half2float(i % 2 ? __high2half(h) : __low2half(h)), r);
        }
    }
}

// All of the rows.
template <int FORM>
static void look_at_rows(const tile_source &s, const float *want, const double *max,
                         struct errors *r) {
    alignas(16) static uint32_t words[dequant<FORM>::CHUNK / 4];
    for (int64_t k0 = 0; k0 < s.k; k0 += dequant<FORM>::SPAN) {
        const chunk_seen c = {&s, (const unsigned char *)words, k0, want, max};
        for (int w = 0; w < dequant<FORM>::CHUNK / 4; w++)
            words[w] = chunk_word<FORM>(s, k0, w);
        for (int lane = 0; lane < 32; lane++)
            look_at<FORM>(c, lane, r);
    }
}

// As row_exponents of repack.cu has it.
static int exponent_of(const tile_source &s, int form, int row) {
    const struct quant_format *f = quant_format(s.type);
    const bool of_256 = form == WEIGHT_Q4_K || form == WEIGHT_Q5_K || form == WEIGHT_Q6_K;
    float max = 0;
    if (form == WEIGHT_NVFP4)
        return -7;
    for (int64_t at = 0; row < THERE && at < s.row_bytes; at += f->bytes) {
        const unsigned char *b = s.rows + row * s.row_bytes + at;
        max = fmaxf(max, of_256 ? k_bound(form, b) : low_bound(s.type, form, b));
    }
    return max > 0 ? target_of(form) - 1 - ilogbf(max) : 0;
}

static struct errors check(uint32_t type, int64_t k) {
    static unsigned char rows[BYTES];
    const struct quant_format *f = quant_format(type);
    const int form = weight_form_of(type);
    // A scale and a minimum, each with 11 bits, may cancel; of Q6_K the minimum is rounded, too.
    const bool both =
        form == WEIGHT_Q2_K || form == WEIGHT_Q5_1 || form == WEIGHT_Q4_K || form == WEIGHT_Q5_K;
    struct errors r = {0, 0, both ? 0x1p-10 : form == WEIGHT_Q6_K ? 0x1p-18 : 0x1p-19};
    float *want = (float *)malloc((size_t)(ROWS * k) * sizeof *want);
    int exponent[ROWS];
    double max[ROWS] = {0};
    struct tile_source s = {rows, THERE, quant_row_bytes(f, k), k, type, exponent, grid_of(type)};
    for (int64_t at = 0; at < THERE * s.row_bytes; at += f->bytes)
        fill(type, rows + at);
    for (int row = 0; row < THERE; row++) {
        f->dequantize(rows + row * s.row_bytes, want + row * k, k);
        for (int64_t i = 0; i < k; i++)
            max[row] = fmax(max[row], fabs((double)want[row * k + i]));
    }
    for (int row = 0; row < ROWS; row++)
        exponent[row] = exponent_of(s, form, row);
    if (form == WEIGHT_Q4_K)
        look_at_rows<WEIGHT_Q4_K>(s, want, max, &r);
    else if (form == WEIGHT_Q5_K)
        look_at_rows<WEIGHT_Q5_K>(s, want, max, &r);
    else if (form == WEIGHT_Q6_K)
        look_at_rows<WEIGHT_Q6_K>(s, want, max, &r);
    else if (form == WEIGHT_Q2_K)
        look_at_rows<WEIGHT_Q2_K>(s, want, max, &r);
    else if (form == WEIGHT_LEVELS8)
        look_at_rows<WEIGHT_LEVELS8>(s, want, max, &r);
    else if (form == WEIGHT_LEVELS16)
        look_at_rows<WEIGHT_LEVELS16>(s, want, max, &r);
    else if (form == WEIGHT_NVFP4)
        look_at_rows<WEIGHT_NVFP4>(s, want, max, &r);
    else
        look_at_rows<WEIGHT_Q5_1>(s, want, max, &r);
    free(want);
    return r;
}

int main(void) {
    static const uint32_t types[] = {
        TYPE_Q4_1,  TYPE_Q5_0,  TYPE_Q5_1,  TYPE_Q2_K,    TYPE_Q3_K,   TYPE_IQ4_NL, TYPE_IQ4_XS,
        TYPE_NVFP4, TYPE_IQ1_S, TYPE_IQ1_M, TYPE_IQ2_XXS, TYPE_IQ2_XS, TYPE_IQ2_S,  TYPE_IQ3_XXS,
        TYPE_IQ3_S, TYPE_TQ1_0, TYPE_TQ2_0, TYPE_Q4_K,    TYPE_Q5_K,   TYPE_Q6_K};
    int failed = 0, passed = 0;
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        const struct quant_format *f = quant_format(types[t]);
        struct errors worst = {0, 0, 0};
        for (int i = 0; i < CASES; i++) {
            const int64_t k = f->block * (1 + (int64_t)(random_bits() % (f->block == 256 ? 3 : 9)));
            const struct errors r = check(types[t], k);
            worst.product = fmax(worst.product, r.product);
            worst.gather = fmax(worst.gather, r.gather);
        }
        const bool good = worst.product <= 1 && worst.gather <= 1;
        printf("%-8s %s products %.2f, embeddings %.2f of what rounding allows\n", f->name,
               good ? "ok  " : "FAIL", worst.product, worst.gather);
        *(good ? &passed : &failed) += 1;
    }
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
