// SPDX-License-Identifier: Apache-2.0
// Qwen3, dense (qwen3) and with experts (qwen3moe): the plain decoder with norms of queries and
// keys. Format: docs/models.md.
#include "models/plain.h"

const struct plain_arch arch_qwen3 = {
    .desc = {"qwen3", plain_params, plain_load, plain_buffers, plain_forward},
    .qk_norm = PLAIN_NORM,
    .pairs = ROPE_HALVES,
    .draft_mask = 151669, // the first id behind the tokenizer's own
};

const struct plain_arch arch_qwen3moe = {
    .desc = {"qwen3moe", plain_params, plain_load, plain_buffers, plain_forward},
    .qk_norm = PLAIN_NORM,
    .pairs = ROPE_HALVES,
    .experts = {.score = ROUTE_SOFTMAX, .normalise = true, .scale = 1},
    .draft_mask = 151669,
};
