// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope_store right after the projections of its rows, whose sums a backend may not have
// added up yet, against the same with everything queued in between.
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

// k is cut into five parts where outputs are few.
enum { INPUTS = 2560, HEADS = 6, KV_HEADS = 2, ROWS = 70, BASE_POS = 1000 };

struct turned {
    int dim, stride; // of a head; of a query head with its gate
    int64_t n;
    struct kv_layout layout;
    float *q, *gates;     // [n][HEADS][dim], [n][HEADS][stride]
    unsigned char *pages; // of all rows
};

struct scene {
    struct check *c;
    struct matrix w[3]; // of q, k and v
    float *in;          // [n][INPUTS]
    float *q_norm, *k_norm;
    bool context; // keys and values only
};

static int64_t page_count(int64_t n) {
    return (n + KV_PAGE - 1) / KV_PAGE;
}

static void turn(struct scene *w, struct turned *t, bool apart) {
    struct exec *x = w->c->exec;
    const struct ops *ops = exec_ops(x);
    const size_t heads = (size_t)t->n * HEADS, f = sizeof(float);
    const size_t bytes = (size_t)(page_count(t->n) * t->layout.page_bytes);
    const int64_t dim = t->dim;
    struct kv_slot slot[ROWS];
    int32_t zero[ROWS] = {0}, parent[ROWS];
    int64_t pos[ROWS];
    struct buffers b;
    buffers_open(&b, w->c, x);
    float *in = buffers_in(&b, w->in, (size_t)(t->n * INPUTS) * f);
    float *q = buffers_own(&b, NULL, heads * (size_t)t->stride * f);
    float *k = buffers_own(&b, NULL, (size_t)(t->n * KV_HEADS * dim) * f);
    float *v = buffers_own(&b, NULL, (size_t)(t->n * KV_HEADS * dim) * f);
    float *out = buffers_own(&b, NULL, heads * (size_t)dim * f);
    unsigned char *pages = buffers_own(&b, t->pages, bytes);
    for (int i = 0; i < t->n; i++) {
        slot[i] = (struct kv_slot){pages + i / KV_PAGE * t->layout.page_bytes, i % KV_PAGE};
        parent[i] = i - 1;
        pos[i] = BASE_POS + i;
    }
    struct weight *weight[3];
    for (int i = 0; i < 3; i++)
        weight[i] = matrix_pack(x, &w->w[i]);
    struct act *act = act_new(x, t->n, INPUTS);
    struct linear_job jobs[3] = {
        {.w = weight[0], .out = q}, {.w = weight[1], .out = k}, {.w = weight[2], .out = v}};
    struct qk_args a = {.n_heads = HEADS,
                        .n_kv = KV_HEADS,
                        .dk = t->dim,
                        .dv = t->dim,
                        .rope = {.dims = t->dim == 256 ? 64 : t->dim, .base = 1e6f},
                        .eps = 1e-6f,
                        .q_norm = buffers_in(&b, w->q_norm, (size_t)dim * f),
                        .k_norm = buffers_in(&b, w->k_norm, (size_t)dim * f),
                        .q = w->context ? NULL : q,
                        .q_stride = t->stride,
                        .k = k,
                        .v = v,
                        .layout = &t->layout,
                        .store = slot,
                        .q_out = w->context ? NULL : out};
    struct rows rows = {t->n, zero, parent, zero, pos, 0};
    ops->to_act(x, in, t->n, INPUTS, act);
    ops->linear(x, w->context ? jobs + 1 : jobs, w->context ? 2 : 3, act, t->n);
    if (apart)
        buffers_get(&b, t->q, k, f);
    ops->qk_norm_rope_store(x, &a, &rows);
    buffers_get(&b, t->q, out, heads * (size_t)dim * f);
    buffers_get(&b, t->gates, q, heads * (size_t)t->stride * f);
    buffers_get(&b, t->pages, pages, bytes);
    ops->act_destroy(x, act);
    for (int i = 0; i < 3; i++)
        ops->weight_destroy(x, weight[i]);
    buffers_close(&b);
}

static struct turned turned_new(const struct turned *like) {
    struct turned t = *like;
    const size_t heads = (size_t)t.n * HEADS;
    t.q = calloc(heads * (size_t)t.dim, sizeof *t.q);
    t.gates = calloc(heads * (size_t)t.stride, sizeof *t.gates);
    t.pages = calloc((size_t)page_count(t.n), (size_t)t.layout.page_bytes);
    return t;
}

// What stands after each query in its projection's outputs; the query itself is only in `q_out`
// where its sums were left.
static int64_t gate_differences(const struct turned *a, const struct turned *b) {
    int64_t differ = 0;
    for (int64_t h = 0; h < a->n * HEADS; h++)
        differ += bit_differences(a->gates + h * a->stride + a->dim,
                                  b->gates + h * a->stride + a->dim, a->stride - a->dim);
    return differ;
}

static int64_t compare(struct scene *w, const struct turned *like) {
    struct turned t[2] = {turned_new(like), turned_new(like)};
    const int64_t heads = like->n * HEADS, bytes = page_count(like->n) * like->layout.page_bytes;
    for (int i = 0; i < 2; i++)
        turn(w, &t[i], i == 1);
    int64_t differ =
        bit_differences(t[0].q, t[1].q, heads * like->dim) + gate_differences(&t[0], &t[1]);
    for (int64_t i = 0; i < bytes; i++)
        differ += t[0].pages[i] != t[1].pages[i];
    for (int i = 0; i < 2; i++) {
        free(t[i].q);
        free(t[i].gates);
        free(t[i].pages);
    }
    return differ;
}

void check_turn_rule(struct check *c) {
    static const int dims[] = {64, 128, 256};
    static const int64_t rows[] = {1, 2, 7, 23, 64, ROWS};
    int64_t differ = 0, seen = 0;
    // A CPU level leaves no sums, and takes long for many.
    for (int i = 0; i < (c->brief || !c->device ? 6 : 36); i++) {
        struct turned t = {.dim = dims[i % 3], .n = rows[i / 2 % 6]};
        struct scene w = {.c = c, .context = i % 5 == 4};
        t.stride = i % 2 ? 2 * t.dim : t.dim;
        t.layout = kv_layout_for((struct kv_shape){.n_layers = 1,
                                                   .n_heads = KV_HEADS,
                                                   .dk = t.dim,
                                                   .dv = t.dim,
                                                   .codec_k = KV_F16,
                                                   .codec_v = KV_Q8_0});
        for (int j = 0; j < 3; j++)
            w.w[j] = matrix_new(&c->rng, TYPE_Q8_0, INPUTS,
                                j ? (int64_t)KV_HEADS * t.dim : (int64_t)HEADS * t.stride);
        w.in = random_floats(&c->rng, t.n * INPUTS, 2);
        w.q_norm = random_floats(&c->rng, t.dim, 2);
        w.k_norm = random_floats(&c->rng, t.dim, 2);
        differ += compare(&w, &t);
        seen += t.n;
        for (int j = 0; j < 3; j++)
            matrix_free(&w.w[j]);
        free(w.in);
        free(w.q_norm);
        free(w.k_norm);
    }
    report(c, differ == 0, "qk_store: behind linear", "rows with sums left",
           "%lld values differ in %lld rows", (long long)differ, (long long)seen);
}
