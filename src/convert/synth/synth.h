// SPDX-License-Identifier: Apache-2.0
// Model files with the shapes of real models and random weights, for measuring speed and memory
// where the real weights are not at hand. Every file is valid GGUF and gives finite activations:
// matrices keep the size of what passes through them, decays lie within (0, 1). A value depends on
// the seed, its tensor and its place only, so that the same call writes the same file anywhere.
#ifndef COPPICE_CONVERT_SYNTH_SYNTH_H
#define COPPICE_CONVERT_SYNTH_SYNTH_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "convert/synth/tensors.h"

struct synth_options {
    const struct synth_shape *shape;
    const struct convert_recipe *recipe;
    uint64_t seed;
    int layers;                    // how many, the first ones; 0: all
    int threads;                   // 0: all CPUs
    convert_progress_fn *progress; // may be NULL; called after each tensor
    void *progress_arg;
};

// Writes the file, without a tokenizer, in bounded memory. Errors: a type that needs wider rows
// than the shape has (ERR_UNSUPPORTED), more layers than the shape has (ERR_USAGE), and those of
// the writer.
int synth_write(const char *out, const struct synth_options *o, struct err *e);

#endif
