// SPDX-License-Identifier: Apache-2.0
// The forms of attention that the CUDA kernels take, and a word for each that they do not: what a
// model asks when it is loaded, and what an op asks before it is queued.
#include "ops/gpu/runtime/ops_cuda.h"

const char *cuda_qk_lacks(const struct qk_args *a) {
    const struct rope *r = &a->rope;
    if (!a->k_norm || (a->q && !a->q_norm))
        return "queries and keys without a norm";
    if (a->v_norm)
        return "a norm of values";
    if (r->pairs != ROPE_HALVES)
        return "rotary pairs of neighbours";
    if (r->first != 0 || r->dims == 0)
        return "rotary embedding that does not begin a head";
    if (r->factors)
        return "rotary frequency factors";
    if (a->dk != a->dv || a->layout->s.v_in_k)
        return "keys and values of different lengths";
    return a->dk % 32 ? "heads that are no multiple of 32" : NULL;
}

const char *cuda_attend_lacks(const struct attend_args *a) {
    const struct attend_shape *s = &a->shape;
    if (s->sinks)
        return "attention sinks";
    if (s->soft_cap > 0)
        return "a soft cap of scores";
    if (s->dk != s->dv || a->layout->s.v_in_k)
        return "keys and values of different lengths";
    return s->dk % 32 ? "heads that are no multiple of 32" : NULL;
}
