// SPDX-License-Identifier: Apache-2.0
// Qwen2 and Qwen2.5 (also Coder, QwQ and the R1 distillates of them): the plain decoder with
// biases of queries, keys and values. Format: docs/models.md.
#include "models/plain.h"

const struct plain_arch arch_qwen2 = {
    .desc = {"qwen2", plain_params, plain_load, plain_buffers, plain_forward},
    .bias = PLAIN_BIAS,
    .pairs = ROPE_HALVES,
    .base = 10000,
    .draft_mask = 151669,
};
