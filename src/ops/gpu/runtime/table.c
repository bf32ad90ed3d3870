// SPDX-License-Identifier: Apache-2.0
// The door of the CUDA backend: the op table, each entry of which makes its device the current one
// of the calling thread and begins a new op of the stage (gpu_enter) before the op itself runs. So
// an exec may be used by any thread, one at a time, concurrently with execs of other devices, and
// an op's staged arrays are never overwritten before its launches are queued. An op that the table
// listed by itself would have neither.
#include "ops/gpu/runtime/ops_cuda.h"

static void *enter_alloc(struct exec *x, size_t bytes) {
    return gpu_alloc(gpu_enter(x), bytes);
}

static void enter_free(struct exec *x, void *p) {
    gpu_release(gpu_enter(x), p);
}

static void enter_upload(struct exec *x, void *dst, const void *src, size_t bytes) {
    gpu_upload(gpu_enter(x), dst, src, bytes);
}

static void enter_download(struct exec *x, void *dst, const void *src, size_t bytes) {
    gpu_download(gpu_enter(x), dst, src, bytes);
}

static void enter_copy(struct exec *x, void *dst, const void *src, size_t bytes) {
    gpu_copy(gpu_enter(x), dst, src, bytes);
}

static void enter_zero(struct exec *x, void *dst, size_t bytes) {
    gpu_clear(gpu_enter(x), dst, bytes);
}

#define X(result, name, parameters, arguments)                                                     \
    static result enter_##name parameters {                                                        \
        gpu_enter(x);                                                                              \
        return cuda_##name arguments;                                                              \
    }
OPS_OPERANDS(X)
OPS_COMPUTING(X)
OPS_TRIED(X)
#undef X

const struct ops cuda_table = {
    .name = "cuda",
    .sample_batched = true,
    .rows_tile = 256, // ops/gpu/linear/many/gemm.cu, ops/gpu/linear/many/unpacked.cu; of the other
                      // families, a multiple
    .alloc = enter_alloc,
    .free = enter_free,
    .upload = enter_upload,
    .download = enter_download,
    .copy = enter_copy,
    .zero = enter_zero,
#define X(result, op, parameters, arguments) .op = enter_##op,
    OPS_OPERANDS(X) OPS_COMPUTING(X) OPS_TRIED(X)
#undef X
};
