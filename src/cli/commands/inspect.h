// SPDX-License-Identifier: Apache-2.0
// Shared by the files of `coppice inspect`.
#ifndef COPPICE_CLI_COMMANDS_INSPECT_H
#define COPPICE_CLI_COMMANDS_INSPECT_H

#include <stdio.h>

#include "base/utf8.h"
#include "cli/cli.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "formats/safetensors.h"

// Bytes that running takes beside the weights.
struct inspect_plan {
    int64_t scratch;       // workspace
    int64_t kv_per_1k;     // keys and values of 1,024 tokens as F16, in layers without a window,
    int64_t kv_windows;    // and in those with one, of a sequence at most
    int64_t recurrent;     // Gated DeltaNet state of one sequence
    int64_t checkpoint;    // of that state
    int64_t experts;       // of the weights: experts, which need not all be on the device,
    int64_t least;         // and how many bytes of them must be without --cpu-experts,
    int64_t expert_layers; // and the layers that have them
    struct err refusal;    // why a target cannot be run; code 0 when there is nothing to say
};

// An open file of either format, and its plan when it is a model that can be run.
struct inspected {
    struct gguf *gguf;
    struct safetensors *safetensors;
    bool has_plan;
    struct inspect_plan plan;
};

// Plans a target or a dflash draft; false (perhaps with a refusal) for anything else.
bool inspect_plan(struct inspect_plan *p, const struct gguf *g);

#endif
