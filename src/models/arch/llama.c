// SPDX-License-Identifier: Apache-2.0
// Llama 2 and 3, and Mistral files of that kind: the plain decoder, whose converter has put the two
// values of a rotary pair side by side. From Llama 3.1 on a tensor divides the slow angles. Format:
// docs/models.md.
#include "models/plain.h"

const struct plain_arch arch_llama = {
    .desc = {"llama", plain_params, plain_load, plain_buffers, plain_forward},
    .bias = PLAIN_BIAS_IF_THERE,
    .factors = true,
    .pairs = ROPE_NEIGHBOURS,
    .base = 10000,
    .draft_mask = 128002, // <|reserved_special_token_0|> of Llama 3
};
