// SPDX-License-Identifier: Apache-2.0
// Queueing launches: every kernel of an op comes through here (gpu_launch in gpu.h), so that what
// holds for all launches has one place. A kernel that was written for it may begin while the one
// before it ends, where the device and the kernels' machine code know how to wait for that. Also
// the first failure of an exec, kept until exec_status reads it.
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

// The place of a kernel among those that may use their shared memory, or the free one for it; NULL:
// all are taken.
static const void **place_of(struct gpu *g, const void *kernel) {
    enum { PLACES = sizeof g->allowed / sizeof *g->allowed };
    const size_t first = (size_t)kernel >> 4;
    for (size_t i = 0; i < PLACES; i++) {
        const void **p = &g->allowed[(first + i) % PLACES];
        if (!*p || *p == kernel)
            return p;
    }
    return NULL;
}

bool gpu_allow_shared(struct gpu *g, const void *kernel, int bytes, const char *op) {
    const void **p = place_of(g, kernel);
    if (p && *p)
        return true;
    if (!gpu_check(g, gpu_set_shared(kernel, bytes), op))
        return false;
    if (p)
        *p = kernel;
    return true;
}

bool gpu_allow_max_shared(struct gpu *g, const void *kernel, const char *op) {
    const void **p = place_of(g, kernel);
    gpu_kernel_properties k;
    if (p && *p)
        return true;
    return gpu_check(g, gpu_get_kernel_properties(&k, kernel), op) &&
           gpu_allow_shared(g, kernel, g->shared - (int)k.sharedSizeBytes, op);
}
