// SPDX-License-Identifier: Apache-2.0
// See host.h. Long calls go in pieces, which change no bits, so that the host's memory stays
// within bounds.
#include "ops/experts/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/num.h"
#include "formats/quant/quant.h"
#include "ops/copier.h"
#include "ops/exec.h"

enum { PIECE = 1024 }; // rows

struct expert_host {
    struct exec *x, *cpu;
    struct expert_host_shape s;
    int64_t piece;
    // Of exec_host_alloc, for a piece.
    float *rows, *sums; // [piece][dim]
    int32_t *ids;       // [piece][used]
    float *weights;     // [piece][used]
    // The cpu's.
    struct act *in, *mid; // rows of dim, entries of ffn
    float *out;           // [entries][dim]
    bool given;           // the device has been made to read sums
};

static int64_t piece_of(const struct expert_host_shape *s) {
    return min_i64(s->rows, PIECE);
}

int64_t expert_host_bytes(const struct expert_host_shape *s) {
    enum { ACT = 8 }; // bytes of a value of an activation, about
    int64_t n = piece_of(s), entries = n * s->used;
    return n * s->dim * (8 + ACT) + entries * (8 + s->ffn * ACT + s->dim * 4);
}

void expert_host_destroy(struct expert_host *h) {
    if (!h)
        return;
    const struct ops *cpu = exec_ops(h->cpu);
    if (h->given)
        (void)exec_status(h->x, NULL); // the device may still read there
    exec_host_free(h->x, h->rows);
    exec_host_free(h->x, h->sums);
    exec_host_free(h->x, h->ids);
    exec_host_free(h->x, h->weights);
    cpu->act_destroy(h->cpu, h->in);
    cpu->act_destroy(h->cpu, h->mid);
    cpu->free(h->cpu, h->out);
    free(h);
}

int expert_host_create(struct expert_host **out, struct exec *x, struct exec *cpu,
                       const struct expert_host_shape *s, struct err *e) {
    struct expert_host *h = calloc(1, sizeof *h);
    if (!h)
        return err_set(e, ERR_MEMORY, "no memory for experts on the CPU");
    h->x = x;
    h->cpu = cpu;
    h->s = *s;
    h->piece = piece_of(s);
    size_t rows = (size_t)h->piece, entries = rows * (size_t)s->used, dim = (size_t)s->dim;
    h->rows = exec_host_alloc(x, rows * dim * sizeof *h->rows);
    h->sums = exec_host_alloc(x, rows * dim * sizeof *h->sums);
    h->ids = exec_host_alloc(x, entries * sizeof *h->ids);
    h->weights = exec_host_alloc(x, entries * sizeof *h->weights);
    h->out = exec_ops(cpu)->alloc(cpu, entries * dim * sizeof *h->out);
    int rc = 0;
    if (!h->rows || !h->sums || !h->ids || !h->weights || !h->out)
        rc = err_set(e, ERR_MEMORY,
                     "the host has no %lld MiB for rows of experts on the CPU; use a smaller "
                     "--chunk",
                     (long long)(expert_host_bytes(s) >> 20));
    if (!rc)
        rc = exec_ops(cpu)->act_create(cpu, h->piece, s->dim, &h->in, e);
    if (!rc)
        rc = exec_ops(cpu)->act_create(cpu, h->piece * s->used, s->ffn, &h->mid, e);
    if (rc) {
        expert_host_destroy(h);
        return rc;
    }
    *out = h;
    return 0;
}

static void send_rows(struct expert_host *h, const struct expert_host_call *c, int64_t first) {
    h->x->host_rows->out(h->x, &(struct rows_out){.in = c->in,
                                                  .first = first,
                                                  .n = min_i64(c->n - first, h->piece),
                                                  .k = h->s.dim,
                                                  .used = h->s.used,
                                                  .ids = c->ids,
                                                  .weights = c->weights,
                                                  .host_rows = h->rows,
                                                  .host_ids = h->ids,
                                                  .host_weights = h->weights});
}

// After a fault of the device anything may stand in the list.
static bool list_holds(const struct expert_host *h, int64_t n) {
    for (int64_t i = 0; i < n * h->s.used; i++)
        if (h->ids[i] < 0 || h->ids[i] >= h->s.experts)
            return false;
    return true;
}

static void compute_piece(struct expert_host *h, const struct expert_host_call *c, int64_t n) {
    const struct ops *cpu = exec_ops(h->cpu);
    const struct moe_list list = {n, h->s.used, h->ids};
    cpu->to_act(h->cpu, h->rows, n, h->s.dim, h->in);
    cpu->moe_gate_up(h->cpu, &c->both, &list, h->in, h->mid);
    cpu->moe_linear(h->cpu, &(struct moe_linear_args){.w = c->down,
                                                      .bias = c->down_bias,
                                                      .list = list,
                                                      .in = h->mid,
                                                      .entries = true,
                                                      .out = h->out});
    cpu->moe_combine(h->cpu, &(struct moe_combine_args){.in = h->out,
                                                        .weights = h->weights,
                                                        .n = n,
                                                        .m = h->s.dim,
                                                        .used = h->s.used,
                                                        .out = h->sums});
}

void expert_host_begin(struct expert_host *h, const struct expert_host_call *c) {
    if (c->n > 0)
        send_rows(h, c, 0);
}

void expert_host_end(struct expert_host *h, const struct expert_host_call *c) {
    for (int64_t at = 0, n; at < c->n; at += n) {
        n = min_i64(c->n - at, h->piece);
        if (at > 0)
            send_rows(h, c, at);
        if (h->x->host_rows->wait(h->x) && list_holds(h, n))
            compute_piece(h, c, n);
        else
            memset(h->sums, 0, (size_t)(n * h->s.dim) * sizeof *h->sums);
        h->given = true;
        h->x->host_rows->in(h->x, &(struct rows_in){.host = h->sums,
                                                    .out = c->out + at * h->s.dim,
                                                    .n = n * h->s.dim,
                                                    .add = !c->apart});
    }
}

// For expert_rates: the CPU multiplies one row by experts of a size that many models have, more
// of them than its caches hold; values do not matter, so they are zeros.

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
static double time_sweep(const struct cpu_bench *b, struct exec *cpu) {
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
        double now = bytes / time_sweep(&b, cpu) * 1e-6;
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
