// SPDX-License-Identifier: Apache-2.0
// Shared parts of the op checks: guarded host memory, random data, forests, comparisons.
#include "opcheck/opcheck.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 64, GUARD_BYTE = 0xA5, POISON_BYTE = 0xFF };

struct guarded guarded_new(int64_t n) {
    size_t bytes = (size_t)n * sizeof(float);
    unsigned char *p = malloc(bytes + 2 * GUARD);
    if (!p)
        abort();
    memset(p, GUARD_BYTE, bytes + 2 * GUARD);
    struct guarded g = {(float *)(void *)(p + GUARD), n};
    guarded_poison(&g);
    return g;
}

void guarded_poison(struct guarded *g) {
    memset(g->p, POISON_BYTE, (size_t)g->n * sizeof(float));
}

bool guarded_free(struct guarded *g) {
    unsigned char *p = (unsigned char *)g->p;
    size_t bytes = (size_t)g->n * sizeof(float);
    bool ok = true;
    for (int i = 1; i <= GUARD; i++)
        ok = ok && p[-i] == GUARD_BYTE && p[bytes + (size_t)i - 1] == GUARD_BYTE;
    for (int64_t i = 0; i < g->n; i++) {
        uint32_t bits;
        memcpy(&bits, &g->p[i], 4);
        ok = ok && bits != 0xFFFFFFFFu;
    }
    free(p - GUARD);
    *g = (struct guarded){0};
    return ok;
}

float unit_random(struct rng *r) {
    return rng_unit(rng_next(r)) * 2 - 1;
}

void fill_random(struct rng *r, float *x, int64_t n, float scale) {
    for (int64_t i = 0; i < n; i++)
        x[i] = unit_random(r) * scale;
}

float *random_floats(struct rng *r, int64_t n, float scale) {
    float *x = malloc((size_t)n * sizeof *x);
    if (!x)
        abort();
    fill_random(r, x, n, scale);
    return x;
}

int64_t between(struct rng *r, int64_t lo, int64_t hi) {
    return lo + (int64_t)rng_below(r, (uint32_t)(hi - lo + 1));
}

// A half in the top nibbles of four words.
static void put_spread_half(unsigned char *p, uint16_t h) {
    for (int i = 0; i < 4; i++)
        p[2 * i + 1] = (unsigned char)((p[2 * i + 1] & 15) | (h >> 4 * i & 15) << 4);
}

// Random codes; the fp16 fields at the given offsets of each block become small numbers.
static void random_blocks(struct rng *r, const struct quant_format *f, unsigned char *p, int64_t n,
                          const int *halves) {
    for (int64_t b = 0; b < n / f->block; b++, p += f->bytes) {
        for (int i = 0; i < f->bytes; i++)
            p[i] = (unsigned char)(rng_next(r) >> 56);
        for (int i = 0; halves[i] >= 0; i++) {
            uint16_t h = f32_to_f16(unit_random(r) * 0.05f);
            memcpy(p + halves[i], &h, 2);
        }
        if (f->type == TYPE_MXFP4)
            p[0] = (unsigned char)(120 + rng_below(r, 8));
        if (f->type == TYPE_NVFP4)
            for (int s = 0; s < 4; s++)
                p[s] = (unsigned char)rng_below(r, 0x60);
        if (f->type == TYPE_IQ1_M)
            put_spread_half(p + 48, f32_to_f16(unit_random(r) * 0.05f));
    }
}

void fill_quant(struct rng *r, const struct quant_format *f, void *dst, int64_t n) {
    static const struct {
        uint32_t type;
        int halves[3];
    } scales[] = {
        {TYPE_Q8_0, {0, -1, -1}},   {TYPE_Q4_0, {0, -1, -1}},    {TYPE_Q4_1, {0, 2, -1}},
        {TYPE_Q5_0, {0, -1, -1}},   {TYPE_Q5_1, {0, 2, -1}},     {TYPE_IQ4_NL, {0, -1, -1}},
        {TYPE_IQ4_XS, {0, -1, -1}}, {TYPE_Q2_K, {80, 82, -1}},   {TYPE_Q3_K, {108, -1, -1}},
        {TYPE_Q4_K, {0, 2, -1}},    {TYPE_Q5_K, {0, 2, -1}},     {TYPE_Q6_K, {208, -1, -1}},
        {TYPE_MXFP4, {-1, -1, -1}}, {TYPE_NVFP4, {-1, -1, -1}},  {TYPE_IQ1_M, {-1, -1, -1}},
        {TYPE_IQ1_S, {0, -1, -1}},  {TYPE_IQ2_XXS, {0, -1, -1}}, {TYPE_IQ2_XS, {0, -1, -1}},
        {TYPE_IQ2_S, {0, -1, -1}},  {TYPE_IQ3_XXS, {0, -1, -1}}, {TYPE_IQ3_S, {0, -1, -1}},
        {TYPE_TQ1_0, {52, -1, -1}}, {TYPE_TQ2_0, {64, -1, -1}},
    };
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        if (scales[i].type == (uint32_t)f->type) {
            random_blocks(r, f, dst, n, scales[i].halves);
            return;
        }
    for (int64_t i = 0; i < n; i++) { // F32, F16, BF16
        float x = unit_random(r);
        f->quantize(&x, (char *)dst + i * f->bytes, 1);
    }
}

const uint32_t weight_types[TYPES] = {
    TYPE_F32,    TYPE_F16,     TYPE_BF16,  TYPE_Q8_0,  TYPE_Q4_0,  TYPE_Q4_1,    TYPE_Q5_0,
    TYPE_Q5_1,   TYPE_Q2_K,    TYPE_Q3_K,  TYPE_Q4_K,  TYPE_Q5_K,  TYPE_Q6_K,    TYPE_IQ4_NL,
    TYPE_IQ4_XS, TYPE_MXFP4,   TYPE_NVFP4, TYPE_IQ1_S, TYPE_IQ1_M, TYPE_IQ2_XXS, TYPE_IQ2_XS,
    TYPE_IQ2_S,  TYPE_IQ3_XXS, TYPE_IQ3_S, TYPE_TQ1_0, TYPE_TQ2_0,
};

int64_t random_k(struct rng *r, const struct quant_format *f) {
    int64_t block = f->block == 1 ? 1 : f->block < 32 ? 32 : f->block;
    int64_t max = block == 256 ? 4 : block == 1 ? 200 : 12;
    return block * between(r, 1, max);
}

struct matrix matrix_new(struct rng *r, uint32_t type, int64_t k, int64_t m) {
    const struct quant_format *f = quant_format(type);
    int64_t bytes = quant_row_bytes(f, k) * m;
    unsigned char *data = malloc((size_t)bytes + 1);
    if (!data)
        abort();
    data++; // tensors are only byte-aligned
    fill_quant(r, f, data, k * m);
    return (struct matrix){{.name = "test",
                            .type = type,
                            .n_dims = 2,
                            .ne = {k, m, 1, 1},
                            .bytes = bytes,
                            .data = data},
                           f};
}

void matrix_free(struct matrix *m) {
    free((unsigned char *)m->t.data - 1);
}

struct weight *matrix_pack(struct exec *x, const struct matrix *m) {
    struct weight *w = NULL;
    struct err e;
    if (exec_ops(x)->weight_create(x, &m->t, &w, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return w;
}

struct act *act_new(struct exec *x, int64_t n, int64_t k) {
    struct act *a = NULL;
    struct err e;
    if (exec_ops(x)->act_create(x, n, k, &a, &e)) {
        fprintf(stderr, "%s\n", e.text);
        abort();
    }
    return a;
}

int64_t bit_differences(const float *a, const float *b, int64_t n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; i++)
        count += memcmp(a + i, b + i, 4) != 0;
    return count;
}

double relative_error(const float *got, const float *want, int64_t n) {
    double err = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)got[i] - (double)want[i];
        err += d * d;
        size += (double)want[i] * (double)want[i];
    }
    double e = err > 0 ? sqrt(err / (size + 1e-60)) : 0;
    return isfinite(err) ? e : INFINITY;
}

void tally_add(struct tally *t, const float *want, const float *got, int64_t n) {
    double e = relative_error(got, want, n);
    t->differ += bit_differences(want, got, n);
    t->error = e > t->error ? e : t->error;
}

struct kv_layout kv_layout_for(struct kv_shape s) {
    struct kv_layout l;
    struct err e;
    if (kv_layout_init(&l, &s, &e))
        abort();
    return l;
}

enum kv_codec_id codec_for(const struct check *c, enum kv_codec_id id) {
    const struct kv_layout l = kv_layout_for((struct kv_shape){1, 1, 64, 64, false, id, id});
    const struct attend_args a = {.shape = {.n_heads = 1, .n_kv = 1, .dk = 64, .dv = 64},
                                  .layout = &l};
    return exec_takes(c->exec, &(struct ops_needs){.attend = &a}, NULL) ? KV_F16 : id;
}

void forest_clear(struct forest *f) {
    f->rows =
        (struct rows){.n = 0, .token = f->token, .parent = f->parent, .seq = f->seq, .pos = f->pos};
}

void forest_grow(struct forest *f, struct rng *r, enum forest_kind kind, int seq, int64_t len,
                 int n) {
    int64_t first = f->rows.n;
    for (int64_t i = first; i < first + n; i++) {
        int64_t parent = i - 1;
        // Half of a tree's rows continue the row before, the others branch anywhere above 30 deep.
        if (kind == TREE && i > first && rng_below(r, 2))
            parent = first + (int64_t)rng_below(r, (uint32_t)(i - first));
        if (kind == TREE && i > first && f->pos[parent] - len > 30)
            parent = first;
        f->parent[i] = i == first ? -1 : (int32_t)parent;
        f->pos[i] = i == first ? len : f->pos[parent] + 1;
        f->seq[i] = seq;
        f->token[i] = (int32_t)rng_below(r, 100);
    }
    f->rows.n += n;
}

int forest_path(const struct forest *f, int32_t i, int32_t *path) {
    int n = 0;
    for (int32_t a = i; a >= 0; a = f->parent[a])
        n++;
    int at = n;
    for (int32_t a = i; a >= 0; a = f->parent[a])
        path[--at] = a;
    return n;
}
