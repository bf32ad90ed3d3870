// SPDX-License-Identifier: Apache-2.0
// What experts that come and go cost (ops/experts/store.h): layers of the shape of 35B-A3B, of
// which a half and a quarter of the experts are resident, compared with the same layers with all of
// them, for choices that are equally likely and for skewed ones (Zipf; then some 93 % of the
// choices fall on 60 % of the experts, as was published for agents' texts). The time that is added
// stands next to what the bytes that were brought take at 45 GB/s.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "opcheck/families.h"
#include "ops/experts/store.h"

enum { LAYERS = 6, EXPERTS = 256, USED = 8, K = 2048, F = 512, LISTS = 240, MOST = 24 };

struct times {
    struct check *c;
    struct matrix part[EXPERT_PARTS];
    struct weight *all[EXPERT_PARTS];
    struct weight *some[LAYERS][EXPERT_PARTS];
    struct expert_store *store;
    struct act *in, *mid;
    float *out;
    int32_t *ids; // device [LISTS][MOST * USED]
};

static int open_store(struct times *t, int64_t slots, struct err *e) {
    struct exec *x = t->c->exec;
    struct expert_classes classes = {0};
    struct tensor parts[EXPERT_PARTS];
    for (int p = 0; p < EXPERT_PARTS; p++)
        parts[p] = t->part[p].t;
    for (int i = 0; i < LAYERS; i++)
        expert_classes_add(&classes, EXPERTS, exec_expert_record(x, parts), e);
    int rc = expert_classes_per_layer(&classes, slots, e);
    if (!rc)
        rc = expert_store_create(&t->store, x, &classes, 0, e);
    for (int i = 0; i < LAYERS && !rc; i++) {
        rc = expert_store_layer(t->store, parts, e);
        for (int p = 0; p < EXPERT_PARTS && !rc; p++)
            rc = expert_store_weight(t->store, p, &parts[p], &t->some[i][p], e);
    }
    return rc ? rc : expert_store_finish(t->store, NULL, e);
}

static void close_store(struct times *t) {
    for (int i = 0; i < LAYERS; i++)
        for (int p = 0; p < EXPERT_PARTS; p++) {
            if (t->some[i][p])
                exec_ops(t->c->exec)->weight_destroy(t->c->exec, t->some[i][p]);
            t->some[i][p] = NULL;
        }
    expert_store_destroy(t->store);
    t->store = NULL;
}

// Different experts for each row: equally likely, or by rank. Each layer has ranks of its own.
static void choose(struct rng *r, const double *sum, int layer, int32_t *ids, int64_t n) {
    for (int64_t i = 0; i < n * USED; i++) {
        bool again = true;
        while (again) {
            int rank = (int)rng_below(r, EXPERTS);
            double at = (double)rng_below(r, 1 << 30) / (1 << 30) * (sum ? sum[EXPERTS - 1] : 0);
            for (rank = sum ? 0 : rank; sum && rank < EXPERTS - 1 && sum[rank] < at;)
                rank++;
            ids[i] = (rank * 75 + layer * 31) % EXPERTS;
            again = false;
            for (int64_t j = i / USED * USED; j < i; j++)
                again = again || ids[j] == ids[i];
        }
    }
}

// Microseconds of a layer's call, over the lists first .. last.
static double run(struct times *t, bool whole, int64_t n, int first, int last) {
    struct exec *x = t->c->exec;
    const struct ops *ops = exec_ops(x);
    struct err e;
    exec_status(x, &e);
    double start = now_us();
    for (int i = first; i < last; i++) {
        struct weight *const *w = whole ? t->all : t->some[i % LAYERS];
        struct moe_list list = {n, USED, t->ids + i * MOST * USED};
        struct gate_up both = {.gate = w[0], .up = w[1]};
        ops->moe_gate_up(x, &both, &list, t->in, t->mid);
        struct moe_linear_args down = {.w = w[2], .list = list, .in = t->mid, .entries = true};
        down.out = t->out;
        ops->moe_linear(x, &down);
    }
    exec_status(x, &e);
    return (now_us() - start) / (last - first);
}

static void measure(struct times *t, const double *sum, int64_t n, int percent) {
    static int32_t ids[LISTS * MOST * USED];
    struct expert_stats a, b;
    struct exec *x = t->c->exec;
    char shape[96];
    enum { WARM = LISTS / 2 };
    for (int i = 0; i < LISTS; i++)
        choose(&t->c->rng, sum, i % LAYERS, ids + i * MOST * USED, n);
    exec_ops(x)->upload(x, t->ids, ids, sizeof ids);
    run(t, true, n, 0, WARM);
    double whole = run(t, true, n, WARM, LISTS);
    run(t, false, n, 0, WARM);
    expert_store_stats(t->store, &a);
    double some = run(t, false, n, WARM, LISTS);
    expert_store_stats(t->store, &b);
    double bytes = (double)(b.bytes - a.bytes) / (LISTS - WARM), least = bytes / 45e3;
    double missed = (double)(b.misses - a.misses) / (double)(b.misses - a.misses + b.hits - a.hits);
    snprintf(shape, sizeof shape, "%d %% of 256, %s, n=%lld", percent, sum ? "skewed" : "uniform",
             (long long)n);
    report(t->c, some > 0, "experts brought", shape,
           "%.1f us a layer, %.1f with all; %.1f %% of the chosen are missing, %.2f MB; added %.1f "
           "us, %.2f of their time at 45 GB/s",
           some, whole, 100 * missed, bytes / 1e6, some - whole,
           least > 0 ? (some - whole) / least : 0);
}

static struct matrix experts_new(struct rng *r, int64_t k, int64_t m) {
    struct matrix all = matrix_new(r, TYPE_Q4_K, k, m * EXPERTS);
    all.t.n_dims = 3;
    all.t.ne[1] = m;
    all.t.ne[2] = EXPERTS;
    return all;
}

void check_store_time(struct check *c) {
    static const int percents[] = {100, 50, 25};
    static const int64_t rows[] = {1, 23};
    struct times t = {.c = c};
    struct exec *x = c->exec;
    struct err e = {0};
    double sum[EXPERTS];
    if (!exec_is_device(x))
        return;
    for (int i = 0; i < EXPERTS; i++)
        sum[i] = (i ? sum[i - 1] : 0) + pow(i + 1, -1.1);
    for (int p = 0; p < EXPERT_PARTS; p++) {
        t.part[p] = p < 2 ? experts_new(&c->rng, K, F) : experts_new(&c->rng, F, K);
        t.all[p] = matrix_pack(x, &t.part[p]);
    }
    float *in = random_floats(&c->rng, MOST * K, 1);
    struct buffers b;
    buffers_open(&b, c, x);
    t.in = act_new(x, MOST, K);
    t.mid = act_new(x, MOST * USED, F);
    t.out = buffers_own(&b, NULL, (size_t)MOST * USED * K * sizeof(float));
    t.ids = buffers_own(&b, NULL, (size_t)LISTS * MOST * USED * sizeof(int32_t));
    exec_ops(x)->to_act(x, buffers_in(&b, in, MOST * K * sizeof *in), MOST, K, t.in);
    for (size_t i = 0; i < sizeof percents / sizeof *percents; i++) {
        int rc = open_store(&t, EXPERTS * percents[i] / 100, &e);
        for (int k = 0; k < 4 && !rc; k++)
            measure(&t, k % 2 ? sum : NULL, rows[k / 2], percents[i]);
        if (rc)
            report(c, false, "experts brought", "", "%s", e.text);
        close_store(&t);
    }
    buffers_close(&b);
    exec_ops(x)->act_destroy(x, t.in);
    exec_ops(x)->act_destroy(x, t.mid);
    free(in);
    for (int p = 0; p < EXPERT_PARTS; p++) {
        exec_ops(x)->weight_destroy(x, t.all[p]);
        matrix_free(&t.part[p]);
    }
}
