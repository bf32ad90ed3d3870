// SPDX-License-Identifier: Apache-2.0
// What weights are made from and lie in: blocks of the file formats taken apart into codes and
// scales, for repacking. Internal.
#ifndef COPPICE_OPS_CPU_LINEAR_WEIGHT_H
#define COPPICE_OPS_CPU_LINEAR_WEIGHT_H

#include <stddef.h>
#include <stdint.h>

#include "ops/cpu/simd/row/row.h"

// One block; value = scale * (code - offset) - minimum in the form's terms.
struct unpacked {
    uint8_t code[256];
    int8_t s[16], m[16]; // SCALE_SUPER
    uint16_t d, dm;      // fp16: SCALE_HALF and SCALE_SUPER
    float f[16];         // SCALE_FLOAT
};

struct unpack_row {
    uint32_t type; // enum tensor_type
    enum linear_form form;
    void (*unpack)(const unsigned char *block, struct unpacked *u); // NULL: plain numbers
};

// NULL when linear layers cannot read the type.
const struct unpack_row *unpack_row(uint32_t type);

// Bits of the control word of SSE and AVX by which they treat small numbers as tile products do.
enum { FLUSH_TO_ZERO = 0x8040 };

// Bits, offset, scales of a quantised form.
const struct form *linear_form(enum linear_form f);

#endif
