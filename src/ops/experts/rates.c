// SPDX-License-Identifier: Apache-2.0
// See rates.h. The CPU multiplies one row by experts of a size that many models have, more
// of them than its caches hold; values do not matter, so they are zeros.
#include "ops/experts/rates.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/num.h"
#include "formats/quant/quant.h"
#include "ops/copier.h"
#include "ops/exec.h"

enum {
    BUS_BYTES = 32 << 20,
    TIMES = 3, // of which the best counts
    K = 2048,
    M = 512,
    EXPERTS = OPS_EXPERTS_MAX,
    USED = 8
};

static int measure_bus(double *rate, struct exec *x, struct err *e) {
    struct copier *c = NULL;
    void *host = exec_host_alloc(x, BUS_BYTES), *device = exec_ops(x)->alloc(x, BUS_BYTES);
    int rc = host && device ? copier_create(&c, x, e)
                            : err_set(e, ERR_MEMORY,
                                      "%s has no %d MiB to measure the bus with; give "
                                      "--cpu-experts a number",
                                      exec_label(x), BUS_BYTES >> 20);
    if (!rc)
        rc = exec_status(x, e);
    for (int i = 0; i <= TIMES && !rc; i++) {
        double start = clock_ms();
        rc = copier_wait(c, copier_to_device(c, device, host, BUS_BYTES), e);
        double now = (double)BUS_BYTES / (clock_ms() - start) * 1e-6;
        *rate = i && now > *rate ? now : *rate;
    }
    copier_destroy(c);
    exec_ops(x)->free(x, device);
    exec_host_free(x, host);
    exec_trim(x);
    return rc;
}

struct cpu_bench {
    struct weight *w;
    struct act *in;
    float *row, *out; // [K], [USED][M]
    void *zeros;
};

static int bench_open(struct cpu_bench *b, struct exec *cpu, struct err *e) {
    const struct ops *ops = exec_ops(cpu);
    struct tensor t = {.name = "experts",
                       .type = TYPE_Q4_K,
                       .n_dims = 3,
                       .ne = {K, M, EXPERTS, 1},
                       .bytes = quant_row_bytes(quant_format(TYPE_Q4_K), K) * M * EXPERTS};
    b->zeros = calloc(1, (size_t)t.bytes);
    b->row = ops->alloc(cpu, K * sizeof *b->row);
    b->out = ops->alloc(cpu, (size_t)USED * M * sizeof *b->out);
    t.data = b->zeros;
    int rc = b->zeros && b->row && b->out ? 0
                                          : err_set(e, ERR_MEMORY,
                                                    "no memory to measure the CPU with; give "
                                                    "--cpu-experts a number");
    if (!rc)
        rc = ops->act_create(cpu, 1, K, &b->in, e);
    return rc ? rc : ops->weight_create(cpu, &t, &b->w, e);
}

// Milliseconds of all experts once, USED at a time.
static double sweep(const struct cpu_bench *b, struct exec *cpu) {
    int32_t ids[USED];
    double start = clock_ms();
    for (int first = 0; first < EXPERTS; first += USED) {
        for (int i = 0; i < USED; i++)
            ids[i] = first + i;
        exec_ops(cpu)->moe_linear(
            cpu, &(struct moe_linear_args){
                     .w = b->w, .list = {1, USED, ids}, .in = b->in, .out = b->out});
    }
    return clock_ms() - start;
}

static int measure_cpu(double *rate, struct exec *cpu, struct err *e) {
    const struct ops *ops = exec_ops(cpu);
    struct cpu_bench b = {0};
    int rc = bench_open(&b, cpu, e);
    if (!rc)
        ops->to_act(cpu, b.row, 1, K, b.in);
    const double bytes = (double)(quant_row_bytes(quant_format(TYPE_Q4_K), K) * M * EXPERTS);
    for (int i = 0; i <= TIMES && !rc; i++) {
        double now = bytes / sweep(&b, cpu) * 1e-6;
        *rate = i && now > *rate ? now : *rate;
    }
    if (b.w)
        ops->weight_destroy(cpu, b.w);
    ops->act_destroy(cpu, b.in);
    ops->free(cpu, b.row);
    ops->free(cpu, b.out);
    free(b.zeros);
    return rc;
}

int expert_rates(struct expert_rates *out, struct exec *x, struct exec *cpu, struct err *e) {
    *out = (struct expert_rates){0};
    int rc = measure_bus(&out->bus, x, e);
    return rc ? rc : measure_cpu(&out->cpu, cpu, e);
}
