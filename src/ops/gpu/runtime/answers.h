// SPDX-License-Identifier: Apache-2.0
// Few words that launches leave for the host in its own memory, behind the stage's: a wait for the
// stream sees them, where a copy down would take as long as the wait itself.
#ifndef COPPICE_OPS_GPU_RUNTIME_ANSWERS_H
#define COPPICE_OPS_GPU_RUNTIME_ANSWERS_H

#include "ops/gpu/runtime/cuda.h"

enum { ANSWER_WORDS = 8192, ANSWER_BYTES = ANSWER_WORDS * (int)sizeof(int32_t) };

// Pinned, and at the same address for the device; one launch's until it has been waited for.
static inline int32_t *gpu_answers(const struct gpu *g) {
    return (int32_t *)(void *)(g->stage.host + STAGE_BYTES);
}

#endif
