// SPDX-License-Identifier: Apache-2.0
// What an exec has failed at (the first failure is kept until exec_status asks), and the flush of
// what ops have deferred, which stands before all that could see the difference.
#include "ops/gpu/runtime/cuda.h"

bool gpu_check(struct gpu *g, gpu_error code, const char *where) {
    if (code == GPU_OK)
        return true;
    if (g->fault == GPU_OK) {
        g->fault = code;
        g->fault_where = where;
    }
    return false;
}

void gpu_flush(struct gpu *g) {
    g->flush(g, true);
}

void gpu_flush_deferred(struct gpu *g) {
    g->flush(g, false);
}
