// SPDX-License-Identifier: Apache-2.0
// Ops that treat values one by one.
#include "base/num.h"
#include "ops/cpu/cpu.h"
#include "ops/rowmath.h"

enum { PIECE = 1024 }; // values of an item

static void scale_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct scale_args *a = arg;
    int64_t stop = min_i64(end * PIECE, a->n);
    for (int64_t i = begin * PIECE; i < stop; i++) {
        float x = a->x[i] * a->scale;
        a->x[i] = a->cap > 0 ? a->cap * row_tanh(x / a->cap) : x;
    }
}

void cpu_scale(struct exec *x, const struct scale_args *a) {
    cpu_run(cpu_of(x), ceil_div(a->n, PIECE), a->cap > 0 ? 8 * PIECE : PIECE / 8, scale_pieces,
            (void *)a);
}

struct activate_run {
    const struct cpu *cpu;
    const struct activate_args *a;
};

// Items are four rows each, which are quantised while they are near.
static void activate_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct activate_run *u = arg;
    const struct activate_args *a = u->a;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = 4 * item, stop = min_i64(row + 4, a->n);
        for (int64_t i = row; i < stop; i++)
            cpu_activate(&u->cpu->row, a->activation, a->out->x + i * a->out->stride,
                         a->gate + i * a->gate_stride, a->up + i * a->up_stride, a->k);
        act_finish_rows(u->cpu, a->out, row, stop);
    }
}

void cpu_activate_values(struct exec *x, const struct activate_args *a) {
    struct activate_run u = {cpu_of(x), a};
    act_shape(a->out, a->n, a->k);
    cpu_run(cpu_of(x), ceil_div(a->n, 4), a->k * 4, activate_rows, &u);
}
