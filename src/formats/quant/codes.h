// SPDX-License-Identifier: Apache-2.0
// Blocks taken apart into integers and scales, for the decoders of this folder and for kernels that
// pack weights in an order of their own: value = scale * (code - offset) - minimum, in that order.
#ifndef COPPICE_FORMATS_QUANT_CODES_H
#define COPPICE_FORMATS_QUANT_CODES_H

#include <stdint.h>

enum scale_kind {
    SCALE_HALF,  // fp16 per 32 values (and fp16 minimum)
    SCALE_SUPER, // fp16 per 256 values times int8 per scale (and the same of minima)
    SCALE_FLOAT, // f32 per scale
};

// The codes and scales of a type: X(name, bits of a code, log2 of the offset in the codes or 0,
// scales per 32 values, minima, scale kind). Codes of 6 bits are below 32 except where the offset
// is 32.
#define CODE_FORMS_ONE(X)                                                                          \
    X(N4_HALF, 4, 3, 1, 0, SCALE_HALF)                                                             \
    X(N4_HALF_MIN, 4, 0, 1, 1, SCALE_HALF)                                                         \
    X(B6_HALF, 6, 4, 1, 0, SCALE_HALF)                                                             \
    X(B6_HALF_MIN, 6, 0, 1, 1, SCALE_HALF)                                                         \
    X(B8_HALF, 8, 7, 1, 0, SCALE_HALF)                                                             \
    X(N4_SUPER_MIN, 4, 0, 1, 1, SCALE_SUPER)                                                       \
    X(B6_SUPER_MIN, 6, 0, 1, 1, SCALE_SUPER)                                                       \
    X(B8_SUPER, 8, 7, 1, 0, SCALE_SUPER)                                                           \
    X(B6_FLOAT, 6, 4, 1, 0, SCALE_FLOAT)                                                           \
    X(B8_FLOAT, 8, 7, 1, 0, SCALE_FLOAT)
#define CODE_FORMS_TWO(X)                                                                          \
    X(N4_SUPER_2MIN, 4, 0, 2, 1, SCALE_SUPER)                                                      \
    X(N4_SUPER_2, 4, 2, 2, 0, SCALE_SUPER)                                                         \
    X(B6_SUPER_2, 6, 5, 2, 0, SCALE_SUPER)                                                         \
    X(B6_FLOAT_2, 6, 4, 2, 0, SCALE_FLOAT)                                                         \
    X(B8_FLOAT_2, 8, 7, 2, 0, SCALE_FLOAT)
#define CODE_FORMS(X) CODE_FORMS_ONE(X) CODE_FORMS_TWO(X)

enum code_form {
#define X(name, ...) FORM_##name,
    CODE_FORMS(X)
#undef X
        FORM_F32, // plain numbers
    FORM_F16,
    FORM_BF16,
    FORM_COUNT
};

struct form {
    int bits, shift, subs, min;
    enum scale_kind scale;
};

// Of a form that has codes.
const struct form *code_form(enum code_form f);

// One block.
struct quant_codes {
    uint8_t code[256];   // with the offset
    int8_t s[16], m[16]; // SCALE_SUPER
    uint16_t d, dm;      // fp16: SCALE_HALF and SCALE_SUPER
    float f[16];         // SCALE_FLOAT
};

struct quant_code_type {
    uint32_t type; // enum tensor_type
    enum code_form form;
    void (*take)(const unsigned char *block, struct quant_codes *c); // NULL: plain numbers
};

// NULL of a type that is not made of such blocks, nor of plain numbers.
const struct quant_code_type *quant_code_type(uint32_t type);

#endif
