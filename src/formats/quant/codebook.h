// SPDX-License-Identifier: Apache-2.0
// The entry of a codebook (grid.h) that leaves the least error: an exact search, which passes
// over most entries because the upper half alone already costs more than the best one so far.
// Shared by the quant_*.c files only.
#ifndef COPPICE_FORMATS_QUANT_CODEBOOK_H
#define COPPICE_FORMATS_QUANT_CODEBOOK_H

#include <stdint.h>

enum { CODEBOOK_BUCKETS = 81 };

// Entries as in the files, sorted by their upper halves: a bucket has those with the same one.
struct codebook {
    const uint16_t *entry;
    int values; // of an entry: 8 of three digits, or 4 of eight
    int n;      // buckets
    struct codebook_bucket {
        uint16_t upper, from, to;
    } bucket[CODEBOOK_BUCKETS];
};

// entry: [n], ascending; values: 8 or 4.
void codebook_init(struct codebook *c, const uint16_t *entry, int n, int values);

// What each digit of each value of an entry would add to the error.
typedef float codebook_costs[8][8]; // [values][digits]

// The index of an entry with the least sum of costs, and that sum. first: an index to begin with;
// any will do, a good one saves time.
int codebook_nearest(const struct codebook *c, const codebook_costs cost, int first, float *least);

// The digit of value j of an entry.
static inline int codebook_digit(const struct codebook *c, int index, int j) {
    return c->values == 8 ? c->entry[index] >> 2 * j & 3 : c->entry[index] >> 3 * j & 7;
}

#endif
