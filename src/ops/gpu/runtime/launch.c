// SPDX-License-Identifier: Apache-2.0
// Queueing launches: every kernel of an op comes through here (gpu_launch in gpu.h), so that what
// holds for all launches has one place. A kernel that was written for it may begin while the one
// before it ends, where the device and the kernels' machine code know how to wait for that. Also
// the first failure of an exec, kept until exec_status asks.
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

void gpu_queue(struct gpu *g, const struct gpu_call *c) {
    if (c->says.passes)
        gpu_flush_deferred(g);
    else
        gpu_flush(g);
    const bool early = c->early && g->overlaps && launch_order_may(&g->order, &c->says);
    if (gpu_falls(&g->fail_queue))
        gpu_check(g, GPU_OUT_OF_MEMORY, c->op);
    else
        gpu_check(g, gpu_start(c, early, g->stream), c->op);
    launch_order_add(&g->order, &c->says, early);
}

bool gpu_allow_most_shared(struct gpu *g, const void *kernel, const char *op) {
    enum { KERNELS = sizeof g->allowed_most / sizeof *g->allowed_most };
    gpu_kernel_properties p;
    for (int i = 0; i < g->n_allowed_most; i++)
        if (g->allowed_most[i] == kernel)
            return true;
    if (!gpu_check(g, gpu_get_kernel_properties(&p, kernel), op) ||
        !gpu_check(g, gpu_allow_shared(kernel, g->shared - (int)p.sharedSizeBytes), op))
        return false;
    if (g->n_allowed_most < KERNELS)
        g->allowed_most[g->n_allowed_most++] = kernel;
    return true;
}
