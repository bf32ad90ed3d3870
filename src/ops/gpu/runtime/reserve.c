// SPDX-License-Identifier: Apache-2.0
// What ops need besides their operands, reserved when a model is opened: scratch as large as the
// largest of them needs, and the small arrays that they keep between launches. Each family says
// what passes within the limits may request (ops_cuda.h), so that a pass cannot run out of memory.
// An op outside of the limits still gets what it needs if there is memory.
#include "base/num.h"
#include "ops/gpu/runtime/ops_cuda.h"

size_t gpu_scratch_of(const struct gpu *g, const struct exec_limits *l) {
    size_t state = max_size(attend_scratch(l), gdn_scratch(g, l));
    state = max_size(state, max_size(sparse_scratch(l), mass_scratch(l)));
    state = max_size(state, moe_scratch(g, l));
    return max_size(state, max_size(linear_scratch(g, l), sample_scratch(l)));
}

int64_t cuda_own_bytes(const struct exec *x, const struct exec_limits *l) {
    const struct gpu *g = (const struct gpu *)x;
    size_t bytes = STAGE_BYTES + gpu_scratch_of(g, l) + (size_t)l->act * sizeof(float);
    bytes += linear_kept() + moe_kept() + attend_kept(l);
    bytes += g->memory.separate ? 0 : (size_t)slabs_vain();
    return (int64_t)bytes;
}

int cuda_reserve(struct exec *x, const struct exec_limits *l, struct err *e) {
    struct gpu *g = gpu_enter(x);
    bool ok = gpu_scratch_reserve(g, gpu_scratch_of(g, l)) && linear_reserve(g) && moe_reserve(g) &&
              attend_reserve(g, l);
    if (ok)
        return 0;
    return err_set(e, ERR_MEMORY,
                   "GPU %d has no %lld MiB for passes of %lld rows; use a smaller --chunk or a "
                   "shorter --max-ctx",
                   g->device, (long long)(gpu_scratch_of(g, l) >> 20), (long long)l->rows);
}
