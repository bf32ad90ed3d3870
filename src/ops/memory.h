// SPDX-License-Identifier: Apache-2.0
// Memory of a backend: arenas, what it holds, what it needs for itself, and reserving that before a
// model runs. Part of ops.h, which includes it.
#ifndef COPPICE_OPS_MEMORY_H
#define COPPICE_OPS_MEMORY_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "ops/args/args.h"

struct exec;
struct tensor;

// The purposes of memory. What one of them gives back is never used for another, except whole: so
// pages do not fragment the memory of states, and what goes together leaves large pieces.
enum exec_arena {
    ARENA_WORK, // what ops work with: activations, workspaces, scratch
    ARENA_WEIGHTS,
    ARENA_STATES, // of sequences and checkpoints
    ARENA_PAGES,  // of keys and values
    ARENA_SLOTS,  // of experts that come and go (ops/experts/store.h)
    EXEC_ARENAS,
};
// As the table's alloc, which is ARENA_WORK; free with the table's free.
void *exec_alloc(struct exec *x, enum exec_arena arena, size_t bytes);
void exec_trim(struct exec *x); // gives what is free as a whole back to the device

// Bytes of the device: held by this exec now and at most so far, free now and in all; and by arena:
// held, of them in use, and what exec_trim would give back. The CPU backend does not count: all are
// 0.
struct exec_memory {
    int64_t used, peak, free, total;
    struct exec_arena_use {
        int64_t held, used, free_bytes;
    } arena[EXEC_ARENAS];
};
void exec_memory_of(struct exec *x, struct exec_memory *m);

// Bytes that a weight of this tensor takes on the backend (for the memory plan).
int64_t exec_weight_bytes(const struct exec *x, const struct tensor *t);
// Bytes that an act of n rows of k values takes.
int64_t exec_act_bytes(const struct exec *x, int64_t n, int64_t k);

// The largest that a model needs of ops. Zeros: it has none of that.
struct exec_limits {
    int64_t rows, seqs, context;  // of a pass; positions of a sequence
    int64_t tree;                 // rows of one sequence that gdn takes in one call
    int64_t inputs, outputs, act; // of a matrix; values of the largest activation
    int64_t entries, experts;     // rows of experts; experts of a layer (ops/args/mlp.h)
    int64_t expert_width;         // values of their longest row, in or out
    int64_t vocab;
    int n_heads, head_dim; // of attention
    // Bytes for keys and values of a layer as fp16 while a prompt reads them, where a codec with
    // scales stores them: with fewer than a text takes its prompt is slower.
    int64_t fp16_kv;
    struct gdn_shape gdn;
};
// Makes a the limits of two models together.
void exec_limits_join(struct exec_limits *a, const struct exec_limits *b);
// Bytes that the backend needs for itself within these limits, besides weights, acts and what
// callers allocate (for the memory plan).
int64_t exec_own_bytes(const struct exec *x, const struct exec_limits *l);
// Takes them, so that no op within the limits can run out of memory; what was reserved for other
// limits stays enough for those. ERR_MEMORY.
int exec_reserve(struct exec *x, const struct exec_limits *l, struct err *e);

#endif
