// SPDX-License-Identifier: Apache-2.0
// Devices that share one model (tensor parallelism): each rank holds some heads and some columns of
// the feed-forward layers, and the residual stream whole. Ranks meet at two kinds of places only:
// where a block's output joins the residual stream (the matrices `wo`, `down` and `ssm_out`), and
// where the rows of the head lie apart. There is one rank now, for which both cost nothing.
//
// Rule E across ranks (docs/exactness.md): a sum over ranks is in rank order, on every rank alike.
// Ranks send each other their partial results as they are and each adds them up itself; no
// reduction in the network, whose order is not fixed. So bits depend on the number of ranks, as
// they do on the weights' type, and on nothing else that rule E forbids.
#ifndef COPPICE_MODELS_RANKS_H
#define COPPICE_MODELS_RANKS_H

#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

struct ranks {
    int n, rank; // 0 <= rank < n
};

extern const struct ranks ranks_one; // a device on its own

// ERR_USAGE: no such rank. ERR_UNSUPPORTED: more than one.
int ranks_init(struct ranks *r, int n, int rank, struct err *e);

// A linear layer whose output is the sum over ranks, in rank order, of in_r W_r^T, then bias: joins
// what stands in job->out or takes its place (job->add). job->w: this rank's columns of the matrix,
// [k -> m]; in: [n][k], this rank's; out: [n][m], the same on all ranks before and after. Of one
// rank: that layer.
void linear_reduce(const struct ranks *r, struct exec *x, const struct linear_job *job,
                   const struct act *in, int64_t n);

// The same for the weighed sum of entries' results (a->in: this rank's part of each): of one rank,
// moe_combine.
void experts_reduce(const struct ranks *r, struct exec *x, const struct moe_combine_args *a);

// rows: [n][m], of which each rank has filled columns m * rank / n_ranks to m * (rank + 1) /
// n_ranks; afterwards all have all. Of one rank they already are.
void ranks_gather(const struct ranks *r, struct exec *x, float *rows, int64_t n, int64_t m);

#endif
