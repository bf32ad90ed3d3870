// SPDX-License-Identifier: Apache-2.0
// GLM-4.5 to 4.7 and Air: the plain decoder with biases and, in the larger ones, norms of heads, of
// which the first half turns; behind some dense layers, sigmoids choose experts with a bias of each
// for the choice alone, beside a shared one. Format: docs/models.md.
#include "models/plain.h"

const struct plain_arch arch_glm4moe = {
    .desc = {"glm4moe", plain_params, plain_load, plain_buffers, plain_forward},
    .qk_norm = PLAIN_NORM_IF_THERE,
    .bias = PLAIN_BIAS_IF_THERE,
    .pairs = ROPE_HALVES,
    .ffn_norm = "post_attention_norm.weight",
    .experts = {.score = ROUTE_SIGMOID, .shared = 1, .choice_bias = true, .scale = 1},
    .draft_mask = 151363, // the first id behind the tokenizer's own
};
