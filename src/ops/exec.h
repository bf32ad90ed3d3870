// SPDX-License-Identifier: Apache-2.0
// What every backend's exec begins with. Backends embed it as their first member; callers of the
// op table see only `struct exec`. Internal to src/ops.
#ifndef COPPICE_OPS_EXEC_H
#define COPPICE_OPS_EXEC_H

#include "ops/ops.h"

struct exec {
    const struct ops *ops;
    int threads;
    void (*destroy)(struct exec *x);
    int64_t (*weight_bytes)(const struct exec *x, const struct tensor *t);
};

#endif
