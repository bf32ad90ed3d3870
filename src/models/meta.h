// SPDX-License-Identifier: Apache-2.0
// Metadata of a model file with the checks that every loader needs: required keys, bounds, finite
// positive numbers. It reads; what the numbers mean is the architecture's business.
#ifndef COPPICE_MODELS_META_H
#define COPPICE_MODELS_META_H

#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"

// An integer in lo..hi. When the key is absent: `otherwise`, or ERR_FORMAT if that is below lo.
int meta_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
             int64_t *out, struct err *e);
// A positive finite number; `otherwise` 0 means that the key is required.
int meta_positive(const struct gguf *g, const char *key, double otherwise, float *out,
                  struct err *e);
// A number of heads: one integer, or an array over `blocks` layers whose non-zero entries agree.
int meta_heads(const struct gguf *g, const char *key, int64_t blocks, int *out, struct err *e);
// Element i, in 1..hi, of a key that is one number or an array over n layers.
int meta_of_layer(const struct gguf *g, const char *key, int64_t n, int64_t i, int64_t hi,
                  int64_t *out, struct err *e);

#endif
