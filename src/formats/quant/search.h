// SPDX-License-Identifier: Apache-2.0
// The searches of the encoders that choose a scale by the error it leaves: weighted least
// squares over a few trial steps. Which grid and which weights a type takes is its encoder's
// business; docs/formats.md lists them. Shared by the quant_*.c files only.
#ifndef COPPICE_FORMATS_QUANT_SEARCH_H
#define COPPICE_FORMATS_QUANT_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#define QUANT_NEGLIGIBLE 1e-15f
enum {
    QUANT_GROUP = 32, // max values of a group that shares one scale
    QUANT_LANES = 8,  // groups that are searched side by side
};

// Groups of n values, the lanes side by side: each is searched as if it were alone, in the order of
// its values, while the lanes share vector instructions. Unused lanes are zero.
struct quant_batch {
    float x[QUANT_GROUP][QUANT_LANES], w[QUANT_GROUP][QUANT_LANES]; // values, weights of errors
    int n;
};

// Puts a group and its weights into a lane.
void quant_batch_put(struct quant_batch *b, int lane, const float *x, const float *w);

// Scales of groups with codes -half .. half - 1. scale: [QUANT_LANES]; code: [QUANT_LANES][n],
// which gets them with half added.
void quant_search_signed(const struct quant_batch *b, int half, float *scale, int *code);

// The scale of one group by another way, for few codes (as above): starts from the largest value
// and moves single codes as long as that makes the fit (weights x^2) better.
float quant_refine_signed(const float *x, int n, int half, int *code);

// Trial steps (start + step s + top) / (hi - lo) for s = 0 .. count.
struct quant_grid {
    int top, count;
    float start, step;
    bool absolute; // errors count by size, not squared
};

// Scales and minimums of groups x ~ scale * code - minimum, codes 0 .. top; minimum >= 0. scale and
// minimum: [QUANT_LANES]; code: [QUANT_LANES][n].
void quant_search_affine(const struct quant_batch *b, const struct quant_grid *grid, float *scale,
                         float *minimum, int *code);

// The scale of n values >= 0 with codes 0 .. top: a grid, then single codes as above.
float quant_search_positive(const float *x, const float *w, int n, int top, int *code);

// Weights that columns of these importances give to n values: importance * sqrt(spread + x^2),
// where spread is a mean square of the neighbourhood. Importances that are all 0 count as equal.
void quant_importance_weights(const float *x, const float *importance, int n, float spread,
                              float *w);

float quant_sum_squares(const float *x, int64_t n);
// The value of largest size with its sign; the first one on ties.
float quant_extreme(const float *x, int n);

#endif
