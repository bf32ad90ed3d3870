// SPDX-License-Identifier: Apache-2.0
// One rank; see ranks.h.
#include "models/ranks.h"

const struct ranks ranks_one = {.n = 1};

int ranks_init(struct ranks *r, int n, int rank, struct err *e) {
    if (n < 1 || rank < 0 || rank >= n)
        return err_set(e, ERR_USAGE, "rank %d of %d does not exist", rank, n);
    if (n > 1)
        return err_set(e, ERR_UNSUPPORTED,
                       "a model cannot be shared by %d devices yet; use one, and a smaller file if "
                       "it does not fit",
                       n);
    *r = ranks_one;
    return 0;
}

void linear_reduce(const struct ranks *r, struct exec *x, const struct linear_job *job,
                   const struct act *in, int64_t n) {
    (void)r; // the only one: its sum is the whole
    exec_ops(x)->linear(x, job, 1, in, n);
}

void experts_reduce(const struct ranks *r, struct exec *x, const struct moe_combine_args *a) {
    (void)r;
    exec_ops(x)->moe_combine(x, a);
}

void ranks_gather(const struct ranks *r, struct exec *x, float *rows, int64_t n, int64_t m) {
    (void)r; // the only one has filled all columns
    (void)x;
    (void)rows;
    (void)n;
    (void)m;
}
