// SPDX-License-Identifier: Apache-2.0
// Gate and up of a 27B model (5120 to 2 x 17408) at 1 and 24 rows in every type of blocks, compared
// with what the type's own bytes take at the rate of a copy and with Q4_K.
#include <stdio.h>
#include <stdlib.h>

#include "opcheck/families.h"

enum { TURNS = 2, COUNTS = 2, MOST = 24 };
static const int counts[COUNTS] = {1, MOST};

struct pair_call {
    struct exec *x;
    struct weight *gate[TURNS], *up[TURNS]; // in turn, so that no cache holds them
    struct act *in, *out;
    int64_t n;
};

static void pair_turn(void *arg, int turn) {
    const struct pair_call *p = arg;
    struct gate_up w = {.gate = p->gate[turn % TURNS], .up = p->up[turn % TURNS]};
    exec_ops(p->x)->linear_gate_up(p->x, &w, p->in, p->n, p->out);
}

// Microseconds at each count of rows; bytes: of both matrices, in the file and on the device.
static void time_pair(struct check *c, struct pair_call *p, uint32_t type, int64_t k, int64_t m,
                      double (*us)[COUNTS], double (*bytes)[2]) {
    struct matrix w = matrix_new(&c->rng, type, k, m);
    for (int i = 0; i < TURNS; i++) {
        p->gate[i] = matrix_pack(c->exec, &w);
        p->up[i] = matrix_pack(c->exec, &w);
    }
    (*bytes)[0] = 2 * (double)w.t.bytes;
    (*bytes)[1] = 2 * (double)exec_weight_bytes(c->exec, &w.t);
    for (int i = 0; i < COUNTS; i++) {
        p->n = counts[i];
        (*us)[i] = time_call(c, pair_turn, p);
    }
    for (int i = 0; i < TURNS; i++) {
        exec_ops(c->exec)->weight_destroy(c->exec, p->gate[i]);
        exec_ops(c->exec)->weight_destroy(c->exec, p->up[i]);
    }
    matrix_free(&w);
}

void check_weights_time(struct check *c) {
    const int64_t k = c->device ? 5120 : 1024, m = c->device ? 17408 : 2048;
    struct pair_call p = {
        .x = c->exec, .in = act_new(c->exec, MOST, k), .out = act_new(c->exec, MOST, m)};
    double base[COUNTS], bytes[2];
    struct buffers r;
    float *in = random_floats(&c->rng, MOST * k, 1);
    buffers_open(&r, c, c->exec);
    exec_ops(c->exec)->to_act(c->exec, buffers_own(&r, in, (size_t)(MOST * k) * sizeof *in), MOST,
                              k, p.in);
    time_pair(c, &p, TYPE_Q4_K, k, m, &base, &bytes);
    for (int t = 0; t < TYPES; t++) {
        const struct quant_format *f = quant_format(weight_types[t]);
        double us[COUNTS];
        if (f->block == 1)
            continue;
        time_pair(c, &p, weight_types[t], k, m, &us, &bytes);
        for (int i = 0; i < COUNTS; i++) {
            char shape[64];
            const double own = c->copy_rate > 0 ? bytes[0] / c->copy_rate : 0;
            snprintf(shape, sizeof shape, "%s n=%d", f->name, counts[i]);
            printf("time   %-10s %-12s %-14s %9.2f us, %.3f bits in the file, %.3f here, %.2f x "
                   "own bytes, %.2f x Q4_K, %.2f x the larger\n",
                   c->level, "gate and up", shape, us[i], bytes[0] * 4 / (double)(k * m),
                   bytes[1] * 4 / (double)(k * m), own > 0 ? us[i] / own : 0, us[i] / base[i],
                   us[i] / (own > base[i] ? own : base[i]));
        }
        fflush(stdout);
    }
    buffers_close(&r);
    exec_ops(c->exec)->act_destroy(c->exec, p.in);
    exec_ops(c->exec)->act_destroy(c->exec, p.out);
    free(in);
}
