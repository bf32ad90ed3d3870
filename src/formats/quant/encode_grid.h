// SPDX-License-Identifier: Apache-2.0
// What the encoder of codebook types needs to know of one, and how it hands over a block to be
// packed. Shared by the quant_*.c files only.
#ifndef COPPICE_FORMATS_QUANT_ENCODE_GRID_H
#define COPPICE_FORMATS_QUANT_ENCODE_GRID_H

#include <stdbool.h>
#include <stdint.h>

// 256 values: d * (2 scale + 1) * unit times the digits' codes of the entries.
struct grid_block {
    float d;
    int scale[16];
    uint16_t index[64];
    unsigned char signs[32]; // of eight values each; set: negative
    unsigned char less[64];  // IQ1: codes lie one below the entry's, not one above
};

struct grid_type {
    int bytes; // of a block
    const uint16_t *entry;
    int entries, values; // in the codebook; of an entry
    const int8_t *digit; // what the digits of an entry stand for
    int group;           // values that share a scale
    int top;             // scales are 0 .. top
    float unit;
    bool parity;      // an even number of eight values is negative
    int span;         // IQ1: entries that lie on the same side of their codes; 0 for others
    float spread;     // of the mean square, in the weights
    float from, step; // trial scales: the first one, the next by the one before
    void (*pack)(const struct grid_block *g, unsigned char *b);
};

// n values, a multiple of 256, to blocks. importance: [n], or NULL.
void quant_grid_encode(const struct grid_type *t, const float *x, const float *importance,
                       void *blocks, int64_t n);

#endif
