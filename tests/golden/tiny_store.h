// SPDX-License-Identifier: Apache-2.0
// A safetensors file of formula weights: collect names and shapes, then write header and data.
#ifndef COPPICE_TESTS_GOLDEN_TINY_STORE_H
#define COPPICE_TESTS_GOLDEN_TINY_STORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

enum { TINY_NAME_MAX = 96, TINY_MAX_DIMS = 5 };

struct tiny_tensor {
    char name[TINY_NAME_MAX];     // hashed by the weight formula
    char stored[TINY_NAME_MAX];   // written into the file
    int64_t shape[TINY_MAX_DIMS]; // PyTorch order
    int n_dims;
};

// A zeroed store is valid and empty.
struct tiny_store {
    struct tiny_tensor *items;
    size_t count;
    int64_t cap;
    bool failed; // an allocation failed; reported by tiny_store_write
};

// Adds prefix + suffix with a shape that ends at the first 0. The stored name is the same.
// Returns the entry (valid until the next call), or NULL when out of memory.
struct tiny_tensor *tiny_store_add(struct tiny_store *s, const char *prefix, const char *suffix,
                                   const int64_t shape[TINY_MAX_DIMS]);

// What the weight formula takes besides names and indices.
struct tiny_seed {
    uint64_t seed;
    bool plain_norms; // norm weights are 1 + N(0, .2) instead of N(0, .2)
    double dt_mean;   // dt_bias is N(dt_mean, 1)
    bool gemma;       // embeddings are small, norms of queries have a mean of 0.3
};

// Writes all tensors as F32, but d2t as I64.
int tiny_store_write(const struct tiny_store *s, const char *path, const struct tiny_seed *from,
                     struct err *e);

// Value i of a tensor whose innermost dimension is `last` (a projection's input width).
float tiny_weight(const struct tiny_seed *from, const char *name, int64_t last, int64_t i);

// Writes text to dir/name.
int tiny_write_text(const char *dir, const char *name, const struct str *text, struct err *e);

void tiny_store_fini(struct tiny_store *s);

#endif
