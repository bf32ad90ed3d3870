// SPDX-License-Identifier: Apache-2.0
// Which element type a tensor of a written model gets (docs/formats.md section 4). Shared by the
// files of convert and synth only.
#ifndef COPPICE_CONVERT_QUANTIZE_TYPES_H
#define COPPICE_CONVERT_QUANTIZE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

#include "convert/convert.h"

// The inputs of the choice of a type besides its name and shape.
struct convert_model {
    const struct convert_recipe *recipe;
    int layers;   // blocks of the file
    bool tied;    // the embedding serves as output matrix
    bool shared;  // four or more query heads share a key head
    bool large;   // the 80 layers of a 70B model
    bool weighed; // there are importances
    bool pure;    // all matrices get the recipe's type
    int experts;  // 0 or 1: none
    const struct convert_override *overrides;
    int n_overrides;
    int values; // matrices for which convert_is_value(); 0: one in each layer
};

struct convert_matrix {
    const char *name;
    int64_t row, slices; // elements of a row; matrices, one for each expert
    int rank;            // of those for which convert_is_value(): number in order of layers
};

// Whether a tensor of that name and rank is re-encoded at all; if not it stays as it is.
bool convert_eligible(const char *name, int n_dims);
// Whether it makes attention values, alone or with others.
bool convert_is_value(const char *name);
// The type that an eligible tensor gets, with the fallbacks for rows that fit no block.
uint32_t convert_type(const struct convert_model *m, const struct convert_matrix *t);
// The type that it would get if its rows fitted every block.
uint32_t convert_wanted_type(const struct convert_model *m, const struct convert_matrix *t);

#endif
