// SPDX-License-Identifier: Apache-2.0
// What an exec has failed at (the first failure is kept until someone asks), and the flush of what
// ops have deferred, which stands before all that could see the difference.
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
    g->flush(g);
}

int cuda_status(struct exec *x, struct err *e) {
    struct gpu *g = gpu_of(x);
    gpu_flush(g);
    gpu_check(g, gpu_stream_wait(g->stream), "waiting for the device");
    gpu_check(g, gpu_last_error(), "a kernel");
    gpu_error fault = g->fault;
    if (fault == GPU_OK)
        return 0;
    if (fault != GPU_OUT_OF_MEMORY)
        return err_set(e, ERR_DEVICE, "GPU %d failed (%s: %s); restart the program", g->device,
                       g->fault_where, gpu_error_text(fault));
    g->fault = GPU_OK;
    return err_set(e, ERR_MEMORY,
                   "GPU %d is out of memory (%s); use a shorter --max-ctx or a smaller --chunk",
                   g->device, g->fault_where);
}
