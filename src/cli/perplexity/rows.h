// SPDX-License-Identifier: Apache-2.0
// What a row of logits says of the token that came: its negative log-likelihood, how far it is from
// a reference row, and the same row as a reference for others.
//
// A reference row has the form that llama.cpp's perplexity tool writes and reads
// (tools/perplexity): two floats, the step and the least log-probability, and a 16-bit code for
// each token; log-probability = step * code + least. What is more than 16 below the likeliest one
// has code 0. The row is padded to whole floats.
#ifndef COPPICE_CLI_PERPLEXITY_ROWS_H
#define COPPICE_CLI_PERPLEXITY_ROWS_H

#include <stdbool.h>
#include <stdint.h>

enum { ROW_HEAD = 4 }; // 16-bit units before the codes

// 16-bit units of a reference row of that many tokens.
static inline int64_t row_units(int64_t vocab) {
    return 2 * ((vocab + 1) / 2) + ROW_HEAD;
}

// Of logits[n], n >= 1. top: the first of the highest; sum: log of the sum of e^logit, so that
// log-probability = logit - sum.
struct row_sum {
    float max, min;
    int64_t top;
    double sum;
};
struct row_sum row_sum_of(const float *logits, int64_t n);

// Writes the reference row, out[row_units(n)].
void row_encode(const struct row_sum *s, const float *logits, int64_t n, uint16_t *out);

// Natural logarithm of token id's probability in a reference row.
double row_reference(const uint16_t *row, int64_t id);

struct row_difference {
    double kl;     // sum over tokens of p (ln p - ln q): p of the reference, q of the logits
    bool same_top; // the likeliest token of the logits is, perhaps among equals, the reference's
    bool whole;    // false: the reference row holds no log-probabilities, and the rest is not set
};
// Tokens with p below e^-16 are left out, as llama.cpp leaves them out. Logits whose own reference
// row would be this one, bit for bit, have kl 0: 16 bits cannot tell them apart.
// own: room for a reference row.
struct row_difference row_compare(const struct row_sum *s, const float *logits, int64_t n,
                                  const uint16_t *reference, uint16_t *own);

#endif
