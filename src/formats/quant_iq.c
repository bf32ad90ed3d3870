// SPDX-License-Identifier: Apache-2.0
// Codecs of the two types whose 4-bit codes index a fixed non-linear table (IQ4_NL, IQ4_XS).
#include "formats/quant_impl.h"

static const signed char levels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

static void scaled_levels(const unsigned char *q, float d, float *y) {
    for (int j = 0; j < 16; j++) {
        y[j] = d * (float)levels[q[j] & 15];
        y[j + 16] = d * (float)levels[q[j] >> 4];
    }
}

static void iq4_nl_block(const unsigned char *b, float *y) {
    scaled_levels(b + 2, load_half(b), y);
}

// Eight groups of 32; the 6-bit scale of group k is a nibble of b[4..7] and two bits of b[2..3].
static void iq4_xs_block(const unsigned char *b, float *y) {
    float d = load_half(b);
    unsigned high = load_u16(b + 2);
    for (int k = 0; k < 8; k++) {
        int low = b[4 + k / 2] >> 4 * (k % 2) & 15;
        int scale = low | (int)(high >> 2 * k & 3u) << 4;
        scaled_levels(b + 8 + 16 * k, d * (float)(scale - 32), y + 32 * k);
    }
}

void quant_decode_iq4_nl(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 32, 18, iq4_nl_block);
}

void quant_decode_iq4_xs(const void *src, float *dst, int64_t n) {
    decode_blocks(src, dst, n, 256, 136, iq4_xs_block);
}
