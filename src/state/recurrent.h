// SPDX-License-Identifier: Apache-2.0
// Recurrent state of one sequence in all Gated DeltaNet layers: bases, log ring and conv inputs
// (docs/state.md). It can go back only to the last multiple of 32; a saved copy holds
// (S_lo, the log rows h-32 .. h-1, the conv inputs) and resumes at exactly h. It allocates and
// copies; the arithmetic is in ops->gdn and ops->gdn_commit.
#ifndef COPPICE_STATE_RECURRENT_H
#define COPPICE_STATE_RECURRENT_H

#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

// Zeroed is valid and empty (no layers).
struct recurrent {
    struct exec *x;
    struct gdn_shape shape;
    int n_layers;
    struct gdn_state *layers; // [n_layers]; ops may swap the pointers inside one state
    float *block;             // device memory of all of them
};

// All-zero state, as before the first token. n_layers may be 0. ERR_MEMORY.
int recurrent_init(struct recurrent *r, struct exec *x, const struct gdn_shape *shape, int n_layers,
                   struct err *e);
void recurrent_fini(struct recurrent *r);

void recurrent_reset(struct recurrent *r);                               // back to no tokens
void recurrent_copy(struct recurrent *dst, const struct recurrent *src); // same shape and layers

// From any length to 32 * floor(length / 32): only the conv inputs differ.
void recurrent_rewind(struct recurrent *r);

// The state at h = 32 * floor(len / 32), h >= 32.
struct recurrent_save {
    struct exec *x;
    float *block; // per layer: S_lo, 32 log rows (k, d, g), conv inputs
};
// Room for one, zeroed. ERR_MEMORY.
int recurrent_save_make(struct recurrent_save *s, struct exec *x, const struct gdn_shape *shape,
                        int n_layers, struct err *e);
int recurrent_save_init(struct recurrent_save *s, const struct recurrent *r, int64_t len,
                        struct err *e);
void recurrent_save_fini(struct recurrent_save *s);
// Puts the saved state into r (same shape): valid for exactly h tokens. ERR_MEMORY leaves r as is.
int recurrent_restore(struct recurrent *r, const struct recurrent_save *s, int64_t h,
                      struct err *e);

int64_t recurrent_bytes(const struct gdn_shape *shape, int n_layers);      // of one sequence
int64_t recurrent_save_bytes(const struct gdn_shape *shape, int n_layers); // of one save

#endif
