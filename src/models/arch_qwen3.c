// SPDX-License-Identifier: Apache-2.0
// Qwen3 dense: the plain decoder with norms of queries and keys. Format: docs/models.md.
#include "models/plain.h"

const struct plain_arch arch_qwen3 = {
    .desc = {"qwen3", plain_params, plain_load, plain_forward},
    .qk_norm = true,
    .pairs = ROPE_HALVES,
    .draft_mask = 151669, // the first id behind the tokenizer's own
};
