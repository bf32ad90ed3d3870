// SPDX-License-Identifier: Apache-2.0
// Two ops; gate and up may differ in type, so they stay two matrices.
#include "models/blocks/mlp.h"

int mlp_load(struct mlp_block *b, int64_t dim, int64_t ffn, struct load *l, int i, struct err *e) {
    char name[LOAD_NAME];
    int rc = load_weight(l, load_name(name, i, "ffn_gate.weight"), dim, ffn, &b->gate, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "ffn_up.weight"), dim, ffn, &b->up, e);
    if (!rc)
        rc = load_weight(l, load_name(name, i, "ffn_down.weight"), ffn, dim, &b->down, e);
    return rc;
}

void mlp_run(struct exec *x, const struct ranks *ranks, const struct mlp_block *b,
             const struct act *in, struct act *mid, float *h, int64_t n) {
    struct gate_up both = {.gate = b->gate, .up = b->up, .activation = b->activation};
    exec_ops(x)->linear_gate_up(x, &both, in, n, mid);
    linear_reduce(ranks, x, b->down, NULL, mid, n, h);
}

void mlp_run_apart(struct exec *x, const struct ranks *ranks, const struct mlp_block *b,
                   const struct act *in, struct act *mid, float *out, int64_t n) {
    struct gate_up both = {.gate = b->gate, .up = b->up, .activation = b->activation};
    exec_ops(x)->linear_gate_up(x, &both, in, n, mid);
    linear_reduce_to(ranks, x, b->down, NULL, mid, n, out);
}
