// SPDX-License-Identifier: Apache-2.0
// Linear layers of heads against plain ones with the matrix of each head, to the bit, from values
// and from activations; and what lies behind the product.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

struct heads {
    struct matrix w; // [k -> m] of each head
    int64_t n;
    int heads, tail, gap; // gap: values behind each head of out that must stay as they are
    float *in;            // [n][heads][k + tail]
};

static void heads_init(struct heads *t, struct rng *r, uint32_t type) {
    int64_t k = random_k(r, quant_format(type)), m = between(r, 1, 180);
    *t = (struct heads){.n = between(r, 1, 40),
                        .heads = (int)between(r, 1, 9),
                        .tail = (int)between(r, 0, 3) * 16,
                        .gap = (int)between(r, 0, 2)};
    t->w = matrix_new(r, type, k, m * t->heads);
    t->w.t.n_dims = 3;
    t->w.t.ne[1] = m;
    t->w.t.ne[2] = t->heads;
    int64_t values = t->n * t->heads * (k + t->tail);
    t->in = malloc((size_t)values * sizeof *t->in);
    fill_random(r, t->in, values, 2);
}

static void heads_fini(struct heads *t) {
    matrix_free(&t->w);
    free(t->in);
}

static int64_t width_in(const struct heads *t) {
    return t->w.t.ne[0] + t->tail;
}

static int64_t width_out(const struct heads *t) {
    return t->w.t.ne[1] + t->tail + t->gap;
}

// Rows [first, first + n) on one exec, from values or, without what lies behind them, from an
// activation of the first k of each head. Results go to the same rows of out.
static void run_heads(struct check *c, struct exec *x, const struct heads *t, int64_t first,
                      int64_t n, bool act, float *out) {
    const struct ops *ops = exec_ops(x);
    int64_t k = t->w.t.ne[0], each = t->heads * width_in(t);
    struct weight *w = matrix_pack(x, &t->w);
    struct buffers r;
    buffers_open(&r, c, x);
    struct heads_args a = {.w = w, .heads = t->heads, .n = n, .out_stride = width_out(t)};
    struct act *rows = act_new(x, n, t->heads * k);
    float *some = malloc((size_t)(n * t->heads * k) * sizeof *some);
    for (int64_t i = 0; i < n * t->heads; i++)
        memcpy(some + i * k, t->in + first * each + i * width_in(t), (size_t)k * sizeof *some);
    if (act) {
        ops->to_act(x, buffers_in(&r, some, (size_t)(n * t->heads * k) * sizeof *some), n,
                    t->heads * k, rows);
        a.act = rows;
    } else {
        a.in = buffers_in(&r, t->in + first * each, (size_t)(n * each) * sizeof *t->in);
        a.in_stride = width_in(t);
        a.tail = t->tail;
    }
    int64_t values = t->heads * width_out(t);
    a.out = buffers_io(&r, out + first * values, (size_t)(n * values) * sizeof *out);
    ops->linear_heads(x, &a);
    buffers_close(&r);
    ops->act_destroy(x, rows);
    ops->weight_destroy(x, w);
    free(some);
}

// The same of one head by the plain op: out [n][m].
static void run_plain(struct check *c, const struct heads *t, int h, float *out) {
    struct exec *x = c->exec;
    const struct ops *ops = exec_ops(x);
    int64_t k = t->w.t.ne[0], m = t->w.t.ne[1];
    struct matrix one = t->w;
    one.t.n_dims = 2;
    one.t.ne[2] = 1;
    one.t.bytes /= t->heads;
    one.t.data = (const unsigned char *)t->w.t.data + h * one.t.bytes;
    struct weight *w = matrix_pack(x, &one);
    struct act *in = act_new(x, t->n, k);
    float *rows = malloc((size_t)(t->n * k) * sizeof *rows);
    for (int64_t i = 0; i < t->n; i++)
        memcpy(rows + i * k, t->in + (i * t->heads + h) * width_in(t), (size_t)k * sizeof *rows);
    struct buffers r;
    buffers_open(&r, c, x);
    ops->to_act(x, buffers_in(&r, rows, (size_t)(t->n * k) * sizeof *rows), t->n, k, in);
    struct linear_job job = {.w = w, .out = buffers_io(&r, out, (size_t)(t->n * m) * sizeof *out)};
    ops->linear(x, &job, 1, in, t->n);
    buffers_close(&r);
    ops->act_destroy(x, in);
    ops->weight_destroy(x, w);
    free(rows);
}

// What differs from plain layers, from what lies behind the inputs, and in what must stay.
static int64_t wrong_values(struct check *c, const struct heads *t, bool act, const float *out) {
    int64_t m = t->w.t.ne[1], k = t->w.t.ne[0], wrong = 0;
    int tail = act ? 0 : t->tail;
    float *plain = malloc((size_t)(t->n * m) * sizeof *plain);
    for (int h = 0; h < t->heads; h++) {
        run_plain(c, t, h, plain);
        for (int64_t i = 0; i < t->n; i++) {
            const float *row = out + (i * t->heads + h) * width_out(t);
            wrong += bit_differences(row, plain + i * m, m);
            wrong += bit_differences(row + m, t->in + (i * t->heads + h) * width_in(t) + k, tail);
            for (int64_t j = m + tail; j < width_out(t); j++)
                wrong += row[j] != 7;
        }
    }
    free(plain);
    return wrong;
}

static float *outputs(const struct heads *t) {
    int64_t values = t->n * t->heads * width_out(t);
    float *out = malloc((size_t)values * sizeof *out);
    for (int64_t i = 0; i < values; i++)
        out[i] = 7;
    return out;
}

void check_heads_rule(struct check *c) {
    static const uint32_t types[] = {TYPE_F32,  TYPE_F16,  TYPE_BF16,  TYPE_Q8_0,
                                     TYPE_Q5_0, TYPE_Q4_K, TYPE_IQ4_NL};
    int64_t plain = 0, pieces = 0;
    if (!check_takes(c, &(struct ops_needs){.heads = true}, "linear_heads"))
        return;
    for (int i = 0; i < 28; i++) {
        struct heads t;
        bool act = i % 2;
        heads_init(&t, &c->rng, types[i / 2 % 7]);
        float *all = outputs(&t), *some = outputs(&t);
        run_heads(c, c->exec, &t, 0, t.n, act, all);
        plain += wrong_values(c, &t, act, all);
        for (int64_t at = 0, n; at < t.n; at += n) {
            n = between(&c->rng, 1, 5);
            n = n < t.n - at ? n : t.n - at;
            run_heads(c, c->other, &t, at, n, act, some);
        }
        pieces += bit_differences(all, some, t.n * t.heads * width_out(&t));
        free(all);
        free(some);
        heads_fini(&t);
    }
    report(c, plain == 0, "linear_heads / linear", "7 types", "%lld differ", (long long)plain);
    report(c, pieces == 0, "linear_heads: rule E1", "7 types; other exec", "%lld differ",
           (long long)pieces);
}
