// SPDX-License-Identifier: Apache-2.0
// A tiny invented qwen3_5 checkpoint folder (3 value heads per key head) and a draft for it,
// written to a temporary place, whole or with one thing wrong. Shared by the converter's tests.
#ifndef COPPICE_TESTS_HF_FOLDER_H
#define COPPICE_TESTS_HF_FOLDER_H

#include <stdint.h>

#include "base/err.h"
#include "convert/convert.h"

// Sizes of the model: 2 layers, the first linear, the second full attention.
enum { D = 32, V = 8, F = 64, HD = 8, HEADS = 2, KEYS = 2, COPIES = 3, DV = 4 };
enum { NV = KEYS * COPIES, VD = NV * DV, QK = 2 * KEYS * DV, CH = QK + VD };

struct source {
    const char *name;
    int64_t shape[6]; // PyTorch order, ends with 0
};
extern const struct source hf_target_tensors[], hf_draft_tensors[];
extern const char hf_target_config[], hf_draft_config[], hf_tokenizer[];

struct edit {
    const char *drop; // tensor left out
    const char *nan;  // tensor whose second element becomes this value
    float poison;
    const char *reshape;   // tensor that gets one row less
    const char *copy, *of; // tensor with the values of another one
};

// Folders of target and draft, and two output files, after hf_set_up (a group's set-up function);
// hf_tear_down fails when anything but these is left in the temporary place.
extern char hf_root[], hf_target[64], hf_draft[64], hf_out[64], hf_second[64];
int hf_set_up(void **state);
int hf_tear_down(void **state);

// Writes both folders whole.
void hf_write_folders(void);
// Writes text with the first `from` in it replaced by `to` (from NULL: unchanged).
void hf_write_edited(const char *dir, const char *name, const char *text, const char *from,
                     const char *to);
// Writes model.safetensors with the tensors of list (names after prefix) and of more (may be
// NULL).
void hf_write_weights(const char *dir, const char *prefix, const struct source *list,
                      const struct source *more, const struct edit *x);
// The value of element i of a source tensor, known by its name without prefix: in (-1, 1).
float hf_value(const char *name, int64_t i);

struct convert_options hf_options(const char *recipe, const char *target);

#endif
