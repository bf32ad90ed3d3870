// SPDX-License-Identifier: Apache-2.0
// The forms of attention that the CUDA kernels take, and a word for each that they do not: what a
// model asks when it is loaded, and what an op asks before it is queued.
#include "ops/gpu/runtime/ops_cuda.h"

const char *cuda_qk_lacks(const struct qk_args *a) {
    return a->dk % 32 || a->dv % 32 ? "heads that are no multiple of 32" : NULL;
}

const char *cuda_attend_lacks(const struct attend_args *a) {
    const struct attend_shape *s = &a->shape;
    if (s->soft_cap > 0)
        return "a soft cap of scores";
    return s->dk % 32 || s->dv % 32 ? "heads that are no multiple of 32" : NULL;
}
