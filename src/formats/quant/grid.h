// SPDX-License-Identifier: Apache-2.0
// Types whose codes index a codebook (IQ1_S to IQ3_S) and ternary ones (TQ1_0, TQ2_0): every value
// is a small integer times a factor that 16 or more neighbours share. Layouts: docs/formats.md.
#ifndef COPPICE_FORMATS_QUANT_GRID_H
#define COPPICE_FORMATS_QUANT_GRID_H

#include <stdint.h>

extern const uint16_t quant_grid_iq2_xxs[256], quant_grid_iq2_xs[512], quant_grid_iq2_s[1024];
extern const uint16_t quant_grid_iq3_xxs[256], quant_grid_iq3_s[512], quant_grid_iq1[2048];
// What a digit of an entry stands for; an entry of IQ1 is one more, or less.
extern const int8_t quant_digits_iq1[3], quant_digits_iq2[3], quant_digits_iq3_xxs[8],
    quant_digits_iq3_s[8];

#endif
