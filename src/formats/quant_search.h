// SPDX-License-Identifier: Apache-2.0
// The searches behind the encoders that choose a scale by the error it leaves: weighted least
// squares over a few trial steps. Which grid and which weights a type takes is its encoder's
// business; docs/formats.md lists them. Shared by the quant_*.c files only.
#ifndef COPPICE_FORMATS_QUANT_SEARCH_H
#define COPPICE_FORMATS_QUANT_SEARCH_H

#include <stdbool.h>
#include <stdint.h>

#define QUANT_NEGLIGIBLE 1e-15f
enum { QUANT_GROUP = 32 }; // most values of a group that shares one scale

// The scale of n values with codes -half .. half - 1; code[] gets them with half added. w: weights
// of the squared errors.
float quant_search_signed(const float *x, const float *w, int n, int half, int *code);

// The same by another way, for few codes: starts from the largest value and moves single codes as
// long as that makes the fit (weights x^2) better.
float quant_refine_signed(const float *x, int n, int half, int *code);

// Trial steps (start + step s + top) / (hi - lo) for s = 0 .. count.
struct quant_grid {
    int top, count;
    float start, step;
    bool absolute; // errors count by size, not squared
};

// The scale of n values x ~ scale * code - minimum, codes 0 .. top; *minimum >= 0.
float quant_search_affine(const float *x, const float *w, int n, const struct quant_grid *grid,
                          int *code, float *minimum);

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
