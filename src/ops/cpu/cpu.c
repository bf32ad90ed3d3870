// SPDX-License-Identifier: Apache-2.0
// What the ops of the CPU backend call: memory, rows shared out over threads, activations. See
// cpu.h.
#include "ops/cpu/cpu.h"

#include <stdlib.h>

#include "base/num.h"

void *cpu_alloc(size_t bytes) {
    if (bytes > SIZE_MAX - 64)
        return NULL;
    size_t size = round_up_size(bytes, 64);
    void *p = aligned_alloc(64, size ? size : 64);
    if (p)
        memset(p, 0, size);
    return p;
}

void cpu_run(struct cpu *c, int64_t n, int64_t cost, pool_fn *fn, void *arg) {
    enum { WORTH_SHARING = 3000, PIECE = 1000 }; // nanoseconds
    cost = max_i64(cost, 1);
    if (n > 0 && (c->base.threads == 1 || n == 1 || n * cost < WORTH_SHARING)) {
        fn(arg, 0, n, 0);
        return;
    }
    int64_t grain = n / (c->base.threads * 4), least = PIECE / cost;
    pool_run(c->pool, n, max_i64(grain, least), fn, arg);
}

int cpu_act_create(struct exec *x, int64_t n, int64_t k, struct act **out, struct err *e) {
    (void)x;
    *out = NULL;
    int64_t stride = round_up(k, GROUP);
    struct act *a = calloc(1, sizeof *a);
    if (a && n > 0 && k > 0 && stride < INT64_MAX / 8 / n) {
        a->cap = n * stride;
        a->x = cpu_alloc((size_t)a->cap * sizeof *a->x);
        a->q = cpu_alloc((size_t)a->cap);
        a->h = cpu_alloc((size_t)a->cap * sizeof *a->h);
        a->b = cpu_alloc((size_t)(ceil_div(n, ROWS) * (stride / GROUP)) * sizeof *a->b);
        a->alone = cpu_alloc((size_t)(a->cap / GROUP) * sizeof *a->alone);
    }
    if (!a || !a->x || !a->q || !a->b || !a->h || !a->alone) {
        cpu_act_destroy(x, a);
        return err_set(e, ERR_MEMORY,
                       "out of memory for %lld rows of %lld activations; "
                       "use a smaller batch",
                       (long long)n, (long long)k);
    }
    *out = a;
    return 0;
}

void cpu_act_destroy(struct exec *x, struct act *a) {
    (void)x;
    if (!a)
        return;
    free(a->x);
    free(a->q);
    free(a->h);
    free(a->alone);
    free(a->b);
    free(a);
}

void act_shape(struct act *a, int64_t n, int64_t k) {
    (void)n;
    a->k = k;
    a->stride = round_up(k, GROUP);
}

void act_finish_rows(const struct cpu *c, struct act *a, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; i++)
        for (int64_t k = a->k; k < a->stride; k++)
            a->x[i * a->stride + k] = 0;
    for (int64_t rows; begin < end; begin += rows) {
        int lane = (int)(begin % ROWS);
        rows = min_i64(end - begin, ROWS - lane);
        struct quantise job = {.x = a->x + begin * a->stride,
                               .q = a->q + begin * a->stride,
                               .b = act_blocks(a, begin),
                               .lane = lane,
                               .rows = (int)rows,
                               .groups = a->stride / GROUP,
                               .stride = a->stride};
        c->row.quantise(&job);
    }
}
