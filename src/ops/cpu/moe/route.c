// SPDX-License-Identifier: Apache-2.0
// The router of a mixture of experts: scores, groups, the best experts in order, their weights. All
// of it is a few hundred numbers a row, so that the best are found by looking at all as often as
// there are experts to use.
#include <math.h>

#include "ops/cpu/cpu.h"

struct route_run {
    const struct row_kernels *row;
    const struct moe_route_args *a;
};

// p: the probabilities, or the logits where only those of the chosen are wanted.
static void probabilities(const struct route_run *u, const float *logits, float *p) {
    const struct moe_route_args *a = u->a;
    if (a->score == ROUTE_SIGMOID) {
        u->row->sigmoid(p, logits, a->experts);
    } else if (a->score == ROUTE_SOFTMAX_CHOSEN) {
        memcpy(p, logits, (size_t)a->experts * sizeof *p);
    } else {
        float most = u->row->max(logits, a->experts);
        float sum = u->row->exp_sum(p, logits, most, a->experts);
        for (int i = 0; i < a->experts; i++)
            p[i] /= sum;
    }
}

// The best of n values, equal ones by index; -1 when all are out.
static int best_of(const float *by, const bool *out, int n) {
    int best = -1;
    for (int i = 0; i < n; i++)
        if (!out[i] && (best < 0 || by[i] > by[best]))
            best = i;
    return best;
}

// Takes all experts out that are not in the best groups.
static void drop_groups(const struct moe_route_args *a, const float *by, bool *out) {
    float group[OPS_EXPERTS_MAX];
    bool taken[OPS_EXPERTS_MAX] = {false};
    int size = a->experts / a->groups;
    for (int g = 0; g < a->groups; g++) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = g * size; i < (g + 1) * size; i++) {
            float v = by[i];
            second = v > first ? first : v > second ? v : second;
            first = v > first ? v : first;
        }
        group[g] = a->group_best || size == 1 ? first : first + second;
    }
    for (int i = 0; i < a->groups_used; i++)
        taken[best_of(group, taken, a->groups)] = true;
    for (int i = 0; i < a->experts; i++)
        out[i] = !taken[i / size];
}

static void weigh_chosen(const struct moe_route_args *a, const float *p, const int32_t *ids,
                         float *w) {
    float sum = 0;
    for (int i = 0; i < a->used; i++)
        w[i] = p[ids[i]];
    if (a->score == ROUTE_SOFTMAX_CHOSEN) {
        float most = w[0];
        for (int i = 1; i < a->used; i++)
            most = w[i] > most ? w[i] : most;
        for (int i = 0; i < a->used; i++)
            sum += w[i] = row_exp(w[i] - most);
        for (int i = 0; i < a->used; i++)
            w[i] /= sum;
    }
    sum = 0;
    for (int i = 0; i < a->used; i++)
        sum += w[i];
    for (int i = 0; i < a->used; i++) {
        if (a->normalise)
            w[i] /= sum + 1e-20f;
        w[i] *= a->scale;
        if (a->expert_scale)
            w[i] *= a->expert_scale[ids[i]];
    }
}

static void route_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct route_run *u = arg;
    const struct moe_route_args *a = u->a;
    float p[OPS_EXPERTS_MAX], by[OPS_EXPERTS_MAX];
    for (int64_t row = begin; row < end; row++) {
        bool out[OPS_EXPERTS_MAX] = {false};
        int32_t *ids = a->ids + row * a->used;
        const float *logits = a->logits + row * a->experts;
        probabilities(u, logits, p);
        for (int i = 0; i < a->experts; i++) {
            float v = a->bias ? p[i] + a->bias[i] : p[i];
            by[i] = v == v && logits[i] == logits[i] ? v : -INFINITY;
        }
        if (a->groups > 1)
            drop_groups(a, by, out);
        for (int i = 0; i < a->used; i++) {
            ids[i] = best_of(by, out, a->experts);
            out[ids[i]] = true;
        }
        weigh_chosen(a, p, ids, a->weights + row * a->used);
    }
}

void cpu_moe_route(struct exec *x, const struct moe_route_args *a) {
    struct route_run u = {&cpu_of(x)->row, a};
    cpu_run(cpu_of(x), a->n, (int64_t)a->experts * (a->used + 3), route_rows, &u);
}
