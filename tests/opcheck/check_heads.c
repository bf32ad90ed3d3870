// SPDX-License-Identifier: Apache-2.0
// Linear layers of heads against plain ones with the matrix of each head, to the bit, from values
// and from activations; and what lies after the product.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

struct heads {
    struct matrix w; // [k -> m] of each head
    int64_t n;
    int heads, tail, gap; // gap: values after each head of out that must stay as they are
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

// Rows [first, first + n) on one exec, from values or, without what lies after them, from an
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

// What differs from plain layers, from what lies after the inputs, and in what must stay.
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

struct heads_call {
    struct exec *x;
    struct heads_args a;
    struct weight *w[4]; // turned over, so that the cache does not hold them
};

static void heads_turn(void *arg, int turn) {
    struct heads_call *t = arg;
    t->a.w = t->w[turn % 4];
    exec_ops(t->x)->linear_heads(t->x, &t->a);
}

// The matrices of a layer of DeepSeek-V2-Lite and of -V3, as Q8_0.
static void time_heads(struct check *c, int heads, int64_t k, int64_t m, int64_t n) {
    const struct ops *ops = exec_ops(c->exec);
    struct heads_call t = {.x = c->exec};
    struct matrix w = matrix_new(&c->rng, TYPE_Q8_0, k, m * heads);
    const bool act = k > m; // weighted latents are an activation
    w.t.n_dims = 3;
    w.t.ne[1] = m;
    w.t.ne[2] = heads;
    for (int i = 0; i < 4; i++)
        t.w[i] = matrix_pack(c->exec, &w);
    struct buffers r;
    buffers_open(&r, c, c->exec);
    const size_t values = (size_t)(n * heads * k), outs = (size_t)(n * heads * m);
    float *in = malloc(values * sizeof *in);
    fill_random(&c->rng, in, (int64_t)values, 2);
    const float *rows = buffers_in(&r, in, values * sizeof *in);
    struct act *x = act_new(c->exec, n, heads * k);
    ops->to_act(c->exec, rows, n, heads * k, x);
    t.a = (struct heads_args){.heads = heads, .n = n, .in_stride = k, .out_stride = m};
    t.a.in = act ? NULL : rows;
    t.a.act = act ? x : NULL;
    t.a.out = buffers_own(&r, NULL, outs * sizeof(float));
    char text[64];
    snprintf(text, sizeof text, "%d heads %lld to %lld, %lld rows", heads, (long long)k,
             (long long)m, (long long)n);
    report_time(c, "linear_heads", text, time_call(c, heads_turn, &t),
                (double)w.t.bytes + (double)values * (act ? 2 : 4) + (double)outs * 4);
    ops->act_destroy(c->exec, x);
    for (int i = 0; i < 4; i++)
        ops->weight_destroy(c->exec, t.w[i]);
    buffers_close(&r);
    matrix_free(&w);
    free(in);
}

void check_heads_time(struct check *c) {
    static const int64_t rows[] = {1, 23, 512};
    if (!CHECK_HAS(c, linear_heads))
        return;
    for (int i = 0; i < 3; i++)
        for (int heads = 16; heads <= (c->device ? 128 : 16); heads *= 8) {
            time_heads(c, heads, 128, 512, rows[i]);
            time_heads(c, heads, 512, 128, rows[i]);
        }
}
