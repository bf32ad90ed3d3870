// SPDX-License-Identifier: Apache-2.0
// Work for a device while the host waits for its answer and decides what comes next: what may be
// wanted then, queued behind the op whose answer is waited for. Only ops that wait (sample) ask for
// it, and not all backends do.
#ifndef COPPICE_OPS_MEANWHILE_H
#define COPPICE_OPS_MEANWHILE_H

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

struct meanwhile {
    void (*run)(void *arg); // calls ops; NULL: nothing to do
    void *arg;
};

// Leaves work for the next op that waits, in place of what was left before.
void exec_leave(struct exec *x, struct meanwhile w);
// Takes it, which is then the caller's to run or to drop.
struct meanwhile exec_take_left(struct exec *x);

#ifdef __cplusplus
}
#endif

#endif
