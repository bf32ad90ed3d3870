// SPDX-License-Identifier: Apache-2.0
// Random values of each element type, for tensors of synthetic models.
#ifndef COPPICE_CONVERT_SYNTH_FILL_H
#define COPPICE_CONVERT_SYNTH_FILL_H

#include "convert/synth/tensors.h"

// Values of one tensor. The table holds what a random index stands for in 16-bit types.
enum { SYNTH_TABLE = 4096 };
struct synth_fill {
    const struct synth_tensor *t;
    uint64_t seed; // of this tensor
    uint16_t table[SYNTH_TABLE];
};
// False when values of this type cannot be made.
bool synth_fill_init(struct synth_fill *f, const struct synth_tensor *t, uint64_t seed);
// Blocks first .. first+n-1 of the tensor. Quantised types count their own blocks, plain types
// blocks of synth_block() elements, of which the last of a tensor may be short.
void synth_fill_blocks(const struct synth_fill *f, int64_t first, int64_t n, unsigned char *out);
int64_t synth_block(uint32_t type);

#endif
