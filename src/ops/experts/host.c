// SPDX-License-Identifier: Apache-2.0
// See host.h. Long calls go in pieces, which change no bits, so that the host's memory stays
// within bounds.
#include "ops/experts/host.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ops/copier.h"
#include "ops/exec.h"
#include "ops/experts/host_rows.h"

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
    bool given;           // the device has been told to read sums
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

static void send(struct expert_host *h, const struct expert_host_call *c, int64_t first) {
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

static void compute(struct expert_host *h, const struct expert_host_call *c, int64_t n) {
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
        send(h, c, 0);
}

void expert_host_end(struct expert_host *h, const struct expert_host_call *c) {
    for (int64_t at = 0, n; at < c->n; at += n) {
        n = min_i64(c->n - at, h->piece);
        if (at > 0)
            send(h, c, at);
        if (h->x->host_rows->wait(h->x) && list_holds(h, n))
            compute(h, c, n);
        else
            memset(h->sums, 0, (size_t)(n * h->s.dim) * sizeof *h->sums);
        h->given = true;
        h->x->host_rows->in(h->x, &(struct rows_in){.host = h->sums,
                                                    .out = c->out + at * h->s.dim,
                                                    .n = n * h->s.dim,
                                                    .add = !c->apart});
    }
}
