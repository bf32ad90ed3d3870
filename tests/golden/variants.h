// SPDX-License-Identifier: Apache-2.0
// The same target as other GGUF files describe it: with a prediction block, with that block in a
// file of its own, or with fewer keys.
#ifndef COPPICE_TESTS_GOLDEN_VARIANTS_H
#define COPPICE_TESTS_GOLDEN_VARIANTS_H

#include "base/err.h"

enum variant {
    VARIANT_MTP,      // block_count counts one more layer, whose tensors must be left alone
    VARIANT_OLD_KEYS, // without the keys that older files lack; the layer kinds must be inferred
    VARIANT_SIDECAR,  // the prediction block alone: the keys, and the tensors of blocks N and above
    VARIANT_KV_B // deepseek2: keys and values of heads in one matrix, widths as older files name
                 // them
};

// in: a converted target. The logits of the written file, but of a sidecar, are those of `in`.
int variant_write(enum variant v, const char *in, const char *out, struct err *e);

#endif
