// SPDX-License-Identifier: Apache-2.0
// What files of drafts say, whatever their kind: the config.json next to safetensors, numbers and
// rotary settings in it, and tokens, which must be the target's.
#ifndef COPPICE_MODELS_DRAFT_CONFIG_H
#define COPPICE_MODELS_DRAFT_CONFIG_H

#include <stdbool.h>

#include "base/err.h"
#include "base/json/json.h"
#include "formats/gguf/gguf.h"
#include "ops/attention.h"

// config.json next to the weights at path, or in the folder that path is. ERR_IO, ERR_FORMAT.
int draft_config_open(struct json **out, const char *path, struct err *e);

// A number above 0; v absent: otherwise. ERR_FORMAT names key.
int draft_config_positive(const struct json *v, const char *key, double otherwise, float *out,
                          struct err *e);

// Rotary settings of layers with a sliding window or of those without one: r->base is what holds
// where the file does not say. divisors: [head_dim / 2], filled for llama3's scaling only, else
// left alone. ERR_FORMAT, ERR_UNSUPPORTED.
int draft_config_rope(struct rope *r, float *divisors, int head_dim, bool windowed,
                      const struct json *c, struct err *e);

// A draft's tokens must be the target's, where both files have a list: ERR_MISMATCH.
int draft_check_tokens(const struct gguf *draft, const struct gguf *target, struct err *e);

#endif
