// SPDX-License-Identifier: Apache-2.0
// Experts whose place is with the host's CPU (ops/experts/host.h) together with each level and
// device: what joins the rows against the CPU's ops called one by one for the same rows, to the
// bit, in calls of more rows than a piece, too; and no row hangs on others.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "opcheck/families.h"
#include "ops/experts/host.h"

enum { EXPERTS = 8, USED = 2, K = 256, F = 256, MANY = 1030, FEW = 60 };

struct hosted {
    struct matrix part[3];
    struct weight *w[3]; // of the scalar level, which is the host's CPU here
    float *bias[3];
    bool biased, apart;
    struct expert_host *host;
    int64_t n;               // rows: MANY, more than a piece, or FEW
    float *in, *h, *weights; // [n][K], [n][K], [n][USED]
    int32_t *ids;            // [n][USED]
};

static void open_hosted(struct hosted *t, struct check *c, uint32_t type, struct err *e) {
    const struct expert_host_shape shape = {t->n, K, F, EXPERTS, USED};
    for (int i = 0; i < 3; i++) {
        int64_t m = i < 2 ? F : K;
        t->part[i] = matrix_new(&c->rng, type, i < 2 ? K : F, m * EXPERTS);
        t->part[i].t.n_dims = 3;
        t->part[i].t.ne[1] = m;
        t->part[i].t.ne[2] = EXPERTS;
        t->w[i] = matrix_pack(c->spec, &t->part[i]);
        t->bias[i] = random_floats(&c->rng, EXPERTS * m, 1);
    }
    t->in = random_floats(&c->rng, t->n * K, 1);
    t->h = random_floats(&c->rng, t->n * K, 1);
    t->weights = random_floats(&c->rng, t->n * USED, 1);
    t->ids = malloc((size_t)(t->n * USED) * sizeof *t->ids);
    for (int i = 0; i < t->n * USED; i++)
        t->ids[i] = (int32_t)((rng_below(&c->rng, EXPERTS / USED) * USED + (uint32_t)i) % EXPERTS);
    expert_host_create(&t->host, c->exec, c->spec, &shape, e);
}

static void close_hosted(struct hosted *t, struct check *c) {
    expert_host_destroy(t->host);
    for (int i = 0; i < 3; i++) {
        exec_ops(c->spec)->weight_destroy(c->spec, t->w[i]);
        matrix_free(&t->part[i]);
        free(t->bias[i]);
    }
    free(t->in);
    free(t->h);
    free(t->weights);
    free(t->ids);
}

static struct gate_up both_of(const struct hosted *t) {
    return (struct gate_up){.gate = t->w[0],
                            .up = t->w[1],
                            .gate_bias = t->biased ? t->bias[0] : NULL,
                            .up_bias = t->biased ? t->bias[1] : NULL,
                            .activation = t->biased ? ACTIVATION_SWIGLU_CLAMPED : ACTIVATION_SILU};
}

// Rows first .. first + n - 1 through the device's side; what they are afterwards to out, and as
// what the device read them to `read`.
static void run_hosted(struct check *c, const struct hosted *t, int64_t first, int64_t n,
                       float *read, float *out) {
    struct exec *x = c->exec;
    const struct ops *ops = exec_ops(x);
    struct act *in = act_new(x, n, K);
    struct buffers b;
    buffers_open(&b, c, x);
    memcpy(out, t->h + first * K, (size_t)(n * K) * sizeof *out);
    ops->to_act(x, buffers_in(&b, t->in + first * K, (size_t)(n * K) * sizeof *out), n, K, in);
    struct expert_host_call call = {
        .in = in,
        .n = n,
        .ids = buffers_in(&b, t->ids + first * USED, (size_t)(n * USED) * sizeof *t->ids),
        .weights =
            buffers_in(&b, t->weights + first * USED, (size_t)(n * USED) * sizeof *t->weights),
        .both = both_of(t),
        .down = t->w[2],
        .down_bias = t->biased ? t->bias[2] : NULL,
        .out = buffers_io(&b, out, (size_t)(n * K) * sizeof *out),
        .apart = t->apart};
    expert_host_begin(t->host, &call);
    expert_host_end(t->host, &call);
    read_act(x, in, n, K, read);
    buffers_close(&b);
    ops->act_destroy(x, in);
}

// The CPU's ops for the rows that the device has read.
static void run_ops(struct check *c, const struct hosted *t, const float *read, float *out) {
    struct exec *x = c->spec;
    const struct ops *ops = exec_ops(x);
    const struct gate_up both = both_of(t);
    const struct moe_list list = {t->n, USED, t->ids};
    struct act *in = act_new(x, t->n, K), *mid = act_new(x, t->n * USED, F);
    float *entries = malloc((size_t)(t->n * USED * K) * sizeof *entries);
    ops->to_act(x, read, t->n, K, in);
    ops->moe_gate_up(x, &both, &list, in, mid);
    ops->moe_linear(x, &(struct moe_linear_args){.w = t->w[2],
                                                 .bias = t->biased ? t->bias[2] : NULL,
                                                 .list = list,
                                                 .in = mid,
                                                 .entries = true,
                                                 .out = entries});
    ops->moe_combine(
        x, &(struct moe_combine_args){
               .in = entries, .weights = t->weights, .n = t->n, .m = K, .used = USED, .out = out});
    for (int64_t i = 0; !t->apart && i < t->n * K; i++)
        out[i] = t->h[i] + out[i];
    free(entries);
    ops->act_destroy(x, in);
    ops->act_destroy(x, mid);
}

// All rows in one call, and some in calls of few.
static int64_t compare_calls(struct check *c, const struct hosted *t) {
    size_t bytes = (size_t)(t->n * K) * sizeof(float);
    float *read = malloc(bytes), *want = malloc(bytes), *got = malloc(bytes);
    run_hosted(c, t, 0, t->n, read, got);
    run_ops(c, t, read, want);
    int64_t differ = bit_differences(want, got, t->n * K);
    for (int64_t at = 0, n; at < t->n && at < 200; at += n) {
        n = min_i64(between(&c->rng, 1, 23), t->n - at);
        run_hosted(c, t, at, n, read, got);
        differ += bit_differences(want + at * K, got, n * K);
    }
    free(read);
    free(want);
    free(got);
    return differ;
}

void check_host_rule(struct check *c) {
    static const uint32_t types[] = {TYPE_Q4_K, TYPE_MXFP4, TYPE_F32};
    for (int i = 0; i < 3; i++) {
        struct hosted t = {
            .n = i == 1 && !c->brief ? MANY : FEW, .biased = i == 1, .apart = i == 2};
        struct err e = {0};
        char what[80];
        open_hosted(&t, c, types[i], &e);
        int64_t differ = t.host ? compare_calls(c, &t) : -1;
        snprintf(what, sizeof what, "%s%s%s", quant_format(types[i])->name,
                 t.biased ? ", biases" : "", t.apart ? ", apart" : "");
        report(c, differ == 0, "experts of the CPU / its ops", what, "%lld values differ%s",
               (long long)differ, e.text);
        close_hosted(&t, c);
    }
}
