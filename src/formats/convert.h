// SPDX-License-Identifier: Apache-2.0
// HuggingFace folders to GGUF (qwen35 targets and z-lab DFlash drafts), and GGUF to a smaller
// GGUF. Mapping and every transformation: docs/formats.md.
#ifndef COPPICE_FORMATS_CONVERT_H
#define COPPICE_FORMATS_CONVERT_H

#include <stdint.h>

#include "base/err.h"

// Told after each tensor: done and total count weight bytes read.
typedef void convert_progress_fn(void *arg, const char *name, int64_t done, int64_t total);

struct convert_options {
    uint32_t type;          // matrices: TYPE_F32, F16, BF16 or a quantised type; norms stay F32
    const char *target_dir; // drafts: the target's HuggingFace folder or GGUF, for its tokenizer
    convert_progress_fn *progress;
    void *progress_arg;
};

// dir: config.json, *.safetensors, tokenizer.json. out: a new GGUF file.
int convert_hf(const char *dir, const char *out, const struct convert_options *o, struct err *e);

// Re-encodes every quantisable matrix of a GGUF file as `type` (docs/formats.md lists what stays).
int convert_quantize(const char *in, const char *out, uint32_t type, const struct convert_options *o,
                     struct err *e);

#endif
