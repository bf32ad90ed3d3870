// SPDX-License-Identifier: Apache-2.0
// The forms of attention that a descriptor can request besides the usual one: K and V of different
// lengths, V as a part of K, sinks, a soft cap; optional norms, both kinds of rotary pairs, a part
// of a head, frequency factors, YaRN. Against doubles, between levels, and rule E: rows of a chain
// alone, keys and values stored without queries. A backend without a form says so, and is done.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "ops/kv/rotate.h"

enum { PAGES = 4, MOST = PAGES * KV_PAGE, ROWS_HERE = 19, LAYERS = 2, LAYER = 1 };

static const double PI = 3.14159265358979323846;

struct form {
    const char *name;
    int n_heads, n_kv, dk, dv;
    bool v_in_k, apart, sinks, gated, softplus, single, no_norm, v_norm;
    float soft_cap;
    int64_t window;
    struct rope rope;
    bool factors;
    enum kv_codec_id codec_k, codec_v;
};

#define YARN(orig, fast, slow)                                                                     \
    .factor = 32, .ramp = 1, .beta_fast = fast, .beta_slow = slow, .trained = orig
static const struct form forms[] = {
    {"K 96, V 64", 6, 2, 96, 64, .rope = {.dims = 96, .base = 1e4f}, .codec_k = KV_Q8_0},
    {"K 64, V 160, gate", 4, 2, 64, 160, .gated = true, .rope = {.dims = 64, .base = 1e4f}},
    {"gate by softplus", 4, 2, 64, 64, .gated = true, .softplus = true,
     .rope = {.dims = 64, .base = 1e4f}},
    {"one gate a head by softplus, window", 12, 2, 128, 128, .gated = true, .softplus = true,
     .single = true, .window = 40, .rope = {.dims = 128, .base = 1e4f}},
    {"one gate a head", 6, 2, 64, 64, .gated = true, .single = true,
     .rope = {.dims = 64, .base = 1e4f}},
    {"V in K, neighbours of the last 32", 5, 1, 160, 128, .v_in_k = true,
     .rope = {.first = 128, .dims = 32, .base = 1e4f, .pairs = ROPE_NEIGHBOURS}},
    {"latents of 512, 16 heads", 16, 1, 576, 512, .v_in_k = true, .apart = true, .no_norm = true,
     .codec_k = KV_F16, .codec_v = KV_F16,
     .rope = {.first = 512, .dims = 64, .base = 1e4f, .pairs = ROPE_NEIGHBOURS}},
    {"latents of 512, 5 heads, sinks, BF16", 5, 1, 576, 512, .v_in_k = true, .no_norm = true,
     .sinks = true, .codec_k = KV_BF16, .codec_v = KV_BF16,
     .rope = {.first = 512, .dims = 64, .base = 1e4f, .pairs = ROPE_NEIGHBOURS}},
    {"latents of 512, 20 heads, Q8_0", 20, 1, 576, 512, .v_in_k = true, .apart = true,
     .no_norm = true, .codec_k = KV_Q8_0, .codec_v = KV_Q8_0,
     .rope = {.first = 512, .dims = 64, .base = 1e4f, .pairs = ROPE_NEIGHBOURS}},
    {"V in K, Q8_0", 4, 1, 96, 64, .v_in_k = true, .codec_k = KV_Q8_0, .codec_v = KV_Q8_0,
     .rope = {.dims = 96, .base = 1e4f}},
    {"K 96 as Q4_0, V 64 as TQ3_0, gate", 6, 2, 96, 64, .gated = true, .codec_k = KV_Q4_0,
     .codec_v = KV_TQ3_0, .rope = {.dims = 96, .base = 1e4f}},
    {"norm of V, TQ3_0, sinks", 6, 2, 128, 256, .v_norm = true, .sinks = true, .codec_k = KV_TQ3_0,
     .codec_v = KV_TQ3_0, .rope = {.dims = 128, .base = 1e4f}},
    {"latents of 512, 20 heads, Q5_1", 20, 1, 576, 512, .v_in_k = true, .apart = true,
     .no_norm = true, .codec_k = KV_Q5_1, .codec_v = KV_Q5_1,
     .rope = {.first = 512, .dims = 64, .base = 1e4f, .pairs = ROPE_NEIGHBOURS}},
    {"V in K, TQ3_0", 4, 1, 96, 64, .v_in_k = true, .codec_k = KV_TQ3_0, .codec_v = KV_TQ3_0,
     .rope = {.dims = 96, .base = 1e4f}},
    {"latents of 512, 16 heads, Q4_0", 16, 1, 576, 512, .v_in_k = true, .apart = true,
     .no_norm = true, .codec_k = KV_Q4_0, .codec_v = KV_Q4_0,
     .rope = {.first = 512, .dims = 64, .base = 1e4f, .pairs = ROPE_NEIGHBOURS}},
    {"as they come, Q5_1 and TQ3_0", 4, 2, 128, 128, .no_norm = true, .gated = true,
     .codec_k = KV_Q5_1, .codec_v = KV_TQ3_0},
    {"as they come, Q5_0 and Q4_0", 4, 2, 64, 64, .no_norm = true, .sinks = true,
     .codec_k = KV_Q5_0, .codec_v = KV_Q4_0},
    {"as they come, Q4_1 and Q5_0", 6, 2, 256, 256, .no_norm = true, .codec_k = KV_Q4_1,
     .codec_v = KV_Q5_0},
    {"as they come, Q4_0 and Q5_1", 6, 2, 128, 128, .no_norm = true, .window = 40,
     .codec_k = KV_Q4_0, .codec_v = KV_Q5_1},
    {"as they come, TQ3_0 and Q4_1", 4, 2, 96, 160, .no_norm = true, .codec_k = KV_TQ3_0,
     .codec_v = KV_Q4_1},
    {"sinks, no norms, YaRN", 8, 2, 64, 64, .sinks = true, .no_norm = true,
     .rope = {.dims = 64,
              .base = 15e4f,
              YARN(4096, 32, 1),
              .exact_ramp = true,
              .magnitude = 1.3465736f}},
    {"sinks and a window", 6, 2, 64, 64, .sinks = true, .window = 40,
     .rope = {.dims = 64, .base = 15e4f}, .codec_v = KV_BF16},
    {"soft cap", 4, 2, 96, 96, .soft_cap = 5, .rope = {.dims = 96, .base = 1e4f}},
    {"soft cap, sinks, odd heads of 40", 3, 3, 40, 24, .soft_cap = 20, .sinks = true,
     .rope = {.dims = 10, .base = 1e4f}, .codec_k = KV_F32},
    {"norm of V, factors", 4, 2, 64, 64, .v_norm = true, .factors = true,
     .rope = {.dims = 64, .base = 1e6f}},
    {"half a head, YaRN, rounded ramp", 4, 4, 128, 128,
     .rope = {.dims = 64, .base = 5e5f, YARN(64, 16, 1), .magnitude = 1.2f}},
    {"neighbours, factors, slower positions", 4, 2, 64, 64, .no_norm = true, .factors = true,
     .rope = {.dims = 64, .base = 5e5f, .pairs = ROPE_NEIGHBOURS, .factor = 4}},
    {"no rotation", 4, 2, 64, 64, .rope = {.dims = 0}},
};
enum { FORMS = sizeof forms / sizeof forms[0] };

// Positions 0 .. len - 1 are committed, and a chain of ROWS_HERE rows follows.
struct scene {
    const struct form *f;
    struct rope rope;
    struct kv_layout layout;
    int64_t len;
    int32_t token[MOST], parent[MOST], seq[MOST];
    int64_t pos[MOST];
    float *q, *k, *v, *q_norm, *k_norm, *sinks; // of all positions; q: [n][heads][dk + dv]
    float factors[OPS_HEAD_MAX / 2];
};

static void scene_init(struct scene *w, struct rng *r, const struct form *f) {
    memset(w, 0, sizeof *w);
    w->f = f;
    w->layout = kv_layout_for(
        (struct kv_shape){LAYERS, f->n_kv, f->dk, f->dv, f->v_in_k, f->codec_k, f->codec_v});
    w->len = between(r, 60, MOST - ROWS_HERE);
    w->rope = f->rope;
    for (int i = 0; i < OPS_HEAD_MAX / 2; i++) // the last quarter hardly turns
        w->factors[i] = i < f->rope.dims * 3 / 8 ? 1 + fabsf(unit_random(r)) : 1e30f;
    w->rope.factors = f->factors ? w->factors : NULL;
    for (int i = 0; i < MOST; i++) {
        w->parent[i] = i - 1;
        w->pos[i] = i;
    }
    w->q = random_floats(r, MOST * f->n_heads * (f->dk + f->dv), 2);
    w->k = random_floats(r, MOST * f->n_kv * f->dk, 2);
    w->v = random_floats(r, MOST * f->n_kv * f->dv, 1);
    w->q_norm = random_floats(r, f->dk, 2);
    w->k_norm = random_floats(r, f->dk, 2);
    w->sinks = random_floats(r, f->n_heads, 3);
}

static void scene_fini(struct scene *w) {
    free(w->q);
    free(w->k);
    free(w->v);
    free(w->q_norm);
    free(w->k_norm);
    free(w->sinks);
}

// The scene in an exec's memory.
struct stage {
    const struct scene *w;
    struct exec *x;
    struct buffers buffers;
    unsigned char *pages[PAGES];
    struct kv_slot slot[MOST];
    float *q, *k, *k_rest, *v, *q_norm, *k_norm, *sinks, *q_out;
};

static struct qk_args qk_of(const struct stage *t, int64_t first) {
    const struct form *f = t->w->f;
    int width = f->dk + f->dv;
    return (struct qk_args){.n_heads = f->n_heads,
                            .n_kv = f->n_kv,
                            .dk = f->dk,
                            .dv = f->dv,
                            .rope = t->w->rope,
                            .eps = 1e-6f,
                            .q_norm = f->no_norm ? NULL : t->q_norm,
                            .k_norm = f->no_norm ? NULL : t->k_norm,
                            .v_norm = f->v_norm,
                            .q = t->q + first * f->n_heads * width,
                            .q_stride = width,
                            .k = t->k + first * f->n_kv * (f->apart ? f->dv : f->dk),
                            .k_rest =
                                f->apart ? t->k_rest + first * f->n_kv * (f->dk - f->dv) : NULL,
                            .value_norm = f->apart ? t->k_norm : NULL,
                            .value_eps = 1e-5f,
                            .v = f->v_in_k ? NULL : t->v + first * f->n_kv * f->dv,
                            .layout = &t->w->layout,
                            .layer = LAYER,
                            .store = t->slot + first,
                            .q_out = t->q_out + first * f->n_heads * f->dk};
}

static struct attend_args attend_of(const struct stage *t, int64_t first) {
    const struct form *f = t->w->f;
    int width = f->dk + f->dv;
    const float *gate = t->q + first * f->n_heads * width + f->dk;
    return (struct attend_args){.shape = {.n_heads = f->n_heads,
                                          .n_kv = f->n_kv,
                                          .dk = f->dk,
                                          .dv = f->dv,
                                          .scale = 1 / sqrtf((float)f->dk),
                                          .soft_cap = f->soft_cap,
                                          .sinks = f->sinks ? t->sinks : NULL,
                                          .mask = ATTEND_PATH,
                                          .window = f->window},
                                .q = t->q_out + first * f->n_heads * f->dk,
                                .gate = f->gated ? gate : NULL,
                                .gate_stride = width,
                                .gate_softplus = f->softplus,
                                .gate_single = f->single,
                                .layout = &t->w->layout,
                                .layer = LAYER,
                                .store = t->slot + first};
}

// Keys as a whole, or their values and what stands after them apart.
static void stage_keys(struct stage *t) {
    const struct form *f = t->w->f;
    const size_t heads = (size_t)MOST * (size_t)f->n_kv, dk = (size_t)f->dk;
    const size_t dv = f->apart ? (size_t)f->dv : dk, rest = dk - dv;
    float *first = malloc(heads * dk * sizeof *first), *rest_of_keys = first + heads * dv;
    if (!first)
        abort();
    for (size_t i = 0; i < heads; i++) {
        memcpy(first + i * dv, t->w->k + i * dk, dv * sizeof *first);
        memcpy(rest_of_keys + i * rest, t->w->k + i * dk + dv, rest * sizeof *first);
    }
    t->k = buffers_own(&t->buffers, first, heads * dv * sizeof *first);
    if (rest)
        t->k_rest = buffers_own(&t->buffers, rest_of_keys, heads * rest * sizeof *first);
    free(first);
}

static void stage_init(struct stage *t, struct check *c, const struct scene *w, struct exec *x) {
    const struct form *f = w->f;
    size_t n = MOST * sizeof(float);
    memset(t, 0, sizeof *t);
    t->w = w;
    t->x = x;
    buffers_open(&t->buffers, c, x);
    for (int p = 0; p < PAGES; p++)
        t->pages[p] = buffers_own(&t->buffers, NULL, (size_t)w->layout.page_bytes);
    for (int i = 0; i < MOST; i++)
        t->slot[i] = (struct kv_slot){t->pages[i / KV_PAGE], i % KV_PAGE};
    t->q = buffers_in(&t->buffers, w->q, n * (size_t)(f->n_heads * (f->dk + f->dv)));
    stage_keys(t);
    t->v = buffers_in(&t->buffers, w->v, n * (size_t)(f->n_kv * f->dv));
    t->q_norm = buffers_in(&t->buffers, w->q_norm, (size_t)f->dk * sizeof(float));
    t->k_norm = buffers_in(&t->buffers, w->k_norm, (size_t)f->dk * sizeof(float));
    t->sinks = buffers_in(&t->buffers, w->sinks, (size_t)f->n_heads * sizeof(float));
    t->q_out = buffers_own(&t->buffers, NULL, n * (size_t)(f->n_heads * f->dk));
}

// Stores positions [first, first + n).
static void store(struct stage *t, int64_t first, int64_t n) {
    const struct scene *w = t->w;
    struct qk_args a = qk_of(t, first);
    struct rows r = {n, w->token, w->parent, w->seq, w->pos + first, 0};
    exec_ops(t->x)->qk_norm_rope_store(t->x, &a, &r);
}

// Attends for n rows after `len` committed positions.
static void attend(struct stage *t, int64_t len, int64_t n, int64_t first, float *out) {
    const struct scene *w = t->w;
    const struct form *f = w->f;
    int64_t width = (int64_t)f->n_heads * f->dv;
    struct attend_args a = attend_of(t, len + first);
    struct kv_view view = {t->pages, len};
    struct rows r = {n, w->token, w->parent, w->seq, w->pos + len, 0};
    struct act *act;
    struct err e;
    if (exec_ops(t->x)->act_create(t->x, n, width, &act, &e))
        abort();
    a.seqs = &view;
    a.out = act;
    a.store = t->slot + len;
    a.first = first;
    exec_ops(t->x)->attend(t->x, &a, &r);
    read_act(t->x, act, n - first, width, out);
    exec_ops(t->x)->act_destroy(t->x, act);
}

// What an exec makes of a scene: queries of all positions, pages, outputs of the rows.
struct result {
    float *q, *out;
    unsigned char *pages;
};

static struct result run(struct stage *t) {
    const struct scene *w = t->w;
    const struct form *f = w->f;
    size_t q = (size_t)(MOST * f->n_heads * f->dk), page = (size_t)w->layout.page_bytes;
    size_t out = (size_t)(ROWS_HERE * f->n_heads * f->dv);
    struct result r = {malloc(q * sizeof(float)), malloc(out * sizeof(float)), calloc(PAGES, page)};
    store(t, 0, w->len);
    store(t, w->len, ROWS_HERE);
    attend(t, w->len, ROWS_HERE, 0, r.out);
    buffers_get(&t->buffers, r.q, t->q_out, q * sizeof(float));
    for (int p = 0; p < PAGES; p++)
        buffers_get(&t->buffers, r.pages + (size_t)p * page, t->pages[p], page);
    return r;
}

static void result_fini(struct result *r) {
    free(r->q);
    free(r->out);
    free(r->pages);
}

// The angle of a pair, written down once more from the papers.
static double angle_of(const struct scene *w, int pair) {
    const struct rope *r = &w->rope;
    double n = r->dims, own = pow((double)r->base, -2.0 * pair / n), keep = 1;
    own /= w->f->factors ? (double)w->factors[pair] : 1;
    if (r->factor <= 1)
        return own;
    double at[2] = {(double)r->beta_fast, (double)r->beta_slow};
    for (int i = 0; i < 2 && r->ramp > 0; i++) {
        at[i] = n * log((double)r->trained / (2 * PI * at[i])) / (2 * log((double)r->base));
        at[i] = r->exact_ramp ? at[i] : i ? ceil(at[i]) : floor(at[i]);
        at[i] = fmin(fmax(at[i], 0), n - 1);
    }
    keep = r->ramp > 0 ? 1 - fmin(fmax((pair - at[0]) / fmax(at[1] - at[0], 1e-3), 0), 1) : 0;
    return own * keep + own / (double)r->factor * (1 - keep);
}

// A head of q or k at a position: norm of its first values and rotation in doubles.
static void turn(const struct scene *w, const float *x, const float *norm, int normed, int64_t pos,
                 double *y) {
    const struct rope *r = &w->rope;
    int dk = w->f->dk, pairs = r->dims / 2;
    double sum = 0, size = r->magnitude > 0 ? (double)r->magnitude : 1;
    double eps = normed < dk ? 1e-5 : 1e-6;
    for (int d = 0; d < normed; d++)
        sum += (double)x[d] * (double)x[d];
    for (int d = 0; d < dk; d++)
        y[d] = norm && d < normed ? (double)x[d] / sqrt(sum / normed + eps) * (double)norm[d]
                                  : (double)x[d];
    for (int i = 0; i < pairs; i++) {
        bool near = r->pairs == ROPE_NEIGHBOURS;
        int a = r->first + (near ? 2 * i : i), b = near ? a + 1 : a + pairs;
        double angle = (double)pos * angle_of(w, i), p = y[a], q = y[b];
        y[a] = size * (p * cos(angle) - q * sin(angle));
        y[b] = size * (q * cos(angle) + p * sin(angle));
    }
}

static double worst_of(double worst, double e) {
    return e > worst || isnan(e) ? e : worst;
}

// The stored row as floats, as it was before a rotation.
static void stored(const struct scene *w, const struct result *r, bool value, int64_t pos, int head,
                   float *x) {
    const struct kv_layout *l = &w->layout;
    unsigned char *page = r->pages + pos / KV_PAGE * l->page_bytes;
    struct kv_row row =
        kv_row_at(l, value ? &l->v : &l->k, page, LAYER, head, (int)(pos % KV_PAGE));
    kv_codec_of(value ? l->s.codec_v : l->s.codec_k)
        ->decode(row.codes, row.scales, x, value ? l->s.dv : l->s.dk);
    int group = value ? l->rotate_v : l->rotate_k;
    if (group)
        kv_rotate_back(x, value ? l->s.dv : l->s.dk, group);
}

// The query of a position and head, at = position * heads + head, as it was before a rotation.
static void query_of(const struct scene *w, const struct result *r, int64_t at, float *q) {
    const int dk = w->f->dk;
    memcpy(q, r->q + at * dk, (size_t)dk * sizeof *q);
    if (w->layout.rotate_k)
        kv_rotate_back(q, dk, w->layout.rotate_k);
}

// Worst error of queries, absolute.
static double query_error(const struct scene *w, const struct result *r) {
    const struct form *f = w->f;
    double worst = 0, y[OPS_KEY_MAX];
    float q[OPS_KEY_MAX];
    for (int64_t at = 0; at < (w->len + ROWS_HERE) * f->n_heads; at++) {
        query_of(w, r, at, q);
        turn(w, w->q + at * (f->dk + f->dv), f->no_norm ? NULL : w->q_norm, f->dk, at / f->n_heads,
             y);
        for (int d = 0; d < f->dk; d++)
            worst = worst_of(worst, fabs(y[d] - (double)q[d]));
    }
    return worst;
}

// Worst error of stored rows against values that were rounded by the codec from doubles, in parts
// of the row's largest value: a rounding more or less is allowed.
static double store_error(const struct scene *w, const struct result *r) {
    const struct form *f = w->f;
    double worst = 0, y[OPS_KEY_MAX];
    float x[OPS_KEY_MAX];
    for (int64_t at = 0; at < (w->len + ROWS_HERE) * f->n_kv; at++)
        for (int value = 0; value < (f->v_in_k ? 1 : 2); value++) {
            int dim = value ? f->dv : f->dk;
            const float *from = (value ? w->v : w->k) + at * dim;
            double sum = 0, max = 0;
            for (int d = 0; d < dim; d++)
                sum += (double)from[d] * (double)from[d];
            if (!value)
                turn(w, from, f->no_norm && !f->apart ? NULL : w->k_norm, f->apart ? f->dv : f->dk,
                     at / f->n_kv, y);
            for (int d = 0; d < dim && value; d++)
                y[d] = f->v_norm ? (double)from[d] / sqrt(sum / dim + 1e-6) : (double)from[d];
            stored(w, r, value, at / f->n_kv, (int)(at % f->n_kv), x);
            for (int d = 0; d < dim; d++)
                max = fmax(max, fabs(y[d]));
            for (int d = 0; d < dim; d++)
                worst = worst_of(worst, fabs(y[d] - (double)x[d]) / max);
        }
    return worst;
}

// Stored rows that differ from what the scalar codec makes of the values, where neither a norm nor
// angles change these: rotation and rounding are exact everywhere.
static int64_t exact_differences(const struct scene *w, const struct result *r) {
    const struct form *f = w->f;
    const struct kv_layout *l = &w->layout;
    _Alignas(16) unsigned char codes[OPS_KEY_MAX * 4], scales[OPS_KEY_MAX];
    float x[OPS_KEY_MAX];
    int64_t differ = 0;
    for (int64_t at = 0; at < (w->len + ROWS_HERE) * f->n_kv * 2; at++) {
        const bool value = at % 2;
        if (value ? f->v_in_k || f->v_norm : !f->no_norm || f->apart || f->rope.dims)
            continue;
        const int64_t pos = at / 2 / f->n_kv;
        const int dim = value ? f->dv : f->dk, group = value ? l->rotate_v : l->rotate_k;
        const struct kv_plane *p = value ? &l->v : &l->k;
        struct kv_row row = kv_row_at(l, p, r->pages + pos / KV_PAGE * l->page_bytes, LAYER,
                                      (int)(at / 2 % f->n_kv), (int)(pos % KV_PAGE));
        memcpy(x, (value ? w->v : w->k) + at / 2 * dim, (size_t)dim * sizeof *x);
        if (group)
            kv_rotate(x, dim, group);
        kv_codec_of(value ? l->s.codec_v : l->s.codec_k)->encode(x, codes, scales, dim);
        differ += memcmp(codes, row.codes, (size_t)p->code_row) ||
                  memcmp(scales, row.scales, (size_t)p->scale_row);
    }
    return differ;
}

// What a rounding more or less may make of a stored row.
static double stored_bound(const struct scene *w) {
    int k = kv_codec_of(w->f->codec_k)->rotates, v = kv_codec_of(w->f->codec_v)->rotates;
    int most = k > v ? k : v;
    return most == KV_AS_IS ? 0.01 : most == KV_ROTATES_K ? 0.3 : 0.6;
}

// One head of a row in doubles, from the queries and stored rows that the op read: its error
// relative to what the weighted values sum up to without their signs.
static double head_error(const struct scene *w, const struct result *r, int64_t row, int head) {
    const struct form *f = w->f;
    int64_t pos = w->len + row, first = f->window > 0 ? pos - f->window + 1 : 0;
    const float *gate = w->q + (pos * f->n_heads + head) * (f->dk + f->dv) + f->dk;
    double sum = f->sinks ? exp((double)w->sinks[head]) : 0;
    double o[OPS_HEAD_MAX] = {0}, all[OPS_HEAD_MAX] = {0}, err = 0, size = 0;
    float have[OPS_KEY_MAX], q[OPS_KEY_MAX];
    query_of(w, r, pos * f->n_heads + head, q);
    for (int64_t p = first < 0 ? 0 : first; p <= pos; p++) {
        double s = 0;
        stored(w, r, false, p, head / (f->n_heads / f->n_kv), have);
        for (int d = 0; d < f->dk; d++)
            s += (double)q[d] * (double)have[d];
        s /= sqrt(f->dk);
        s = exp(f->soft_cap > 0 ? (double)f->soft_cap * tanh(s / (double)f->soft_cap) : s);
        sum += s;
        stored(w, r, true, p, head / (f->n_heads / f->n_kv), have);
        for (int d = 0; d < f->dv; d++) {
            o[d] += s * (double)have[d];
            all[d] += s * fabs((double)have[d]);
        }
    }
    for (int d = 0; d < f->dv; d++) {
        double x = (double)gate[f->single ? 0 : d];
        double g = !f->gated ? 1 : f->softplus ? log1p(exp(x)) : 1 / (1 + exp(-x));
        double e = (double)r->out[(row * f->n_heads + head) * f->dv + d] - g * o[d] / sum;
        err += e * e;
        size += g * all[d] / sum * g * all[d] / sum;
    }
    return sqrt(err / (size + 1e-30));
}

// Rows alone, with those before them committed, and the same by the other exec: bits that differ.
static int64_t alone_differences(struct stage *t, const struct result *r) {
    const struct form *f = t->w->f;
    int64_t width = (int64_t)f->n_heads * f->dv, differ = 0;
    float *one = malloc((size_t)width * sizeof *one);
    for (int64_t i = 0; i < ROWS_HERE; i++) {
        attend(t, t->w->len + i, 1, 0, one);
        differ += bit_differences(one, r->out + i * width, width);
    }
    free(one);
    return differ;
}

// The last rows, with those before them as ancestors only: bits that differ.
static int64_t rest_differences(struct stage *t, const struct result *r) {
    const int64_t width = (int64_t)t->w->f->n_heads * t->w->f->dv;
    int64_t differ = 0;
    float *rest = malloc((size_t)(ROWS_HERE * width) * sizeof *rest);
    for (int64_t first = 1; first < ROWS_HERE; first += 5) {
        attend(t, t->w->len, ROWS_HERE, first, rest);
        differ += bit_differences(rest, r->out + first * width, (ROWS_HERE - first) * width);
    }
    free(rest);
    return differ;
}

// Bits of another exec's queries, pages and outputs.
static int64_t exec_differences(struct check *c, const struct scene *w, struct exec *x,
                                const struct result *r) {
    const struct form *f = w->f;
    struct stage t;
    stage_init(&t, c, w, x);
    struct result other = run(&t);
    int64_t n = (w->len + ROWS_HERE) * f->n_heads * f->dk;
    int64_t differ = bit_differences(r->q, other.q, n) +
                     bit_differences(r->out, other.out, ROWS_HERE * f->n_heads * f->dv);
    float x1[OPS_KEY_MAX], x2[OPS_KEY_MAX];
    for (int64_t at = 0; at < (w->len + ROWS_HERE) * f->n_kv * 2; at++) {
        bool value = at % 2;
        stored(w, r, value, at / 2 / f->n_kv, (int)(at / 2 % f->n_kv), x1);
        stored(w, &other, value, at / 2 / f->n_kv, (int)(at / 2 % f->n_kv), x2);
        differ += bit_differences(x1, x2, value ? f->dv : f->dk);
    }
    result_fini(&other);
    buffers_close(&t.buffers);
    return differ;
}

// Values that differ where keys and values are stored without queries: committed ones in one call,
// rows one by one.
static int64_t store_differences(struct check *c, const struct scene *w, const struct result *r) {
    const struct form *f = w->f;
    const size_t page = (size_t)w->layout.page_bytes;
    struct stage t;
    struct result other = {NULL, NULL, calloc(PAGES, page)};
    float x1[OPS_KEY_MAX], x2[OPS_KEY_MAX];
    int64_t differ = 0;
    stage_init(&t, c, w, c->exec);
    for (int64_t at = 0, n = w->len; at < w->len + ROWS_HERE; at += n, n = 1) {
        struct qk_args a = qk_of(&t, at);
        struct rows rows = {n, w->token, w->parent, w->seq, w->pos + at, 0};
        a.q = NULL;
        a.q_out = NULL;
        exec_ops(t.x)->qk_norm_rope_store(t.x, &a, &rows);
    }
    for (int p = 0; p < PAGES; p++)
        buffers_get(&t.buffers, other.pages + (size_t)p * page, t.pages[p], page);
    for (int64_t at = 0; at < (w->len + ROWS_HERE) * f->n_kv; at++)
        for (int value = 0; value < (f->v_in_k ? 1 : 2); value++) {
            stored(w, r, value, at / f->n_kv, (int)(at % f->n_kv), x1);
            stored(w, &other, value, at / f->n_kv, (int)(at % f->n_kv), x2);
            differ += bit_differences(x1, x2, value ? f->dv : f->dk);
        }
    result_fini(&other);
    buffers_close(&t.buffers);
    return differ;
}

static void check_form(struct check *c, struct stage *t) {
    const struct scene *w = t->w;
    double worst = 0, max = c->device ? 1e-3 : 1e-5;
    struct result r = run(t);
    for (int64_t row = 0; row < ROWS_HERE; row++)
        for (int h = 0; h < w->f->n_heads; h++)
            worst = worst_of(worst, head_error(w, &r, row, h));
    double query = query_error(w, &r), kept = store_error(w, &r);
    int64_t alone = alone_differences(t, &r) + rest_differences(t, &r),
            other = exec_differences(c, w, c->other, &r);
    int64_t without = store_differences(c, w, &r), exact = exact_differences(w, &r);
    if (!c->device)
        other += exec_differences(c, w, c->spec, &r);
    bool same = !alone && !other && !without && !exact;
    report(c, worst < max && query < 1e-5 && kept < stored_bound(w) && same, "attend: forms",
           w->f->name,
           "relative %.1e (max %.1e), query %.1e, stored %.1e; alone, others, without queries, "
           "scalar codec: %lld, %lld, %lld, %lld differ",
           worst, max, query, kept, (long long)alone, (long long)other, (long long)without,
           (long long)exact);
    result_fini(&r);
}

void check_attend_forms(struct check *c) {
    for (int i = 0; i < FORMS; i++) {
        if (codec_for(c, forms[i].codec_k) != forms[i].codec_k ||
            codec_for(c, forms[i].codec_v) != forms[i].codec_v)
            continue;
        struct scene *w = malloc(sizeof *w);
        struct stage *t = malloc(sizeof *t);
        scene_init(w, &c->rng, &forms[i]);
        stage_init(t, c, w, c->exec);
        struct qk_args qk = qk_of(t, 0);
        struct attend_args at = attend_of(t, 0);
        if (check_takes(c, &(struct ops_needs){.qk = &qk, .attend = &at}, forms[i].name))
            check_form(c, t);
        buffers_close(&t->buffers);
        scene_fini(w);
        free(w);
        free(t);
    }
}
