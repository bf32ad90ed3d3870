// SPDX-License-Identifier: Apache-2.0
// What the ops of Gated DeltaNet layers take: recurrent states, rows, and the arguments of gates
// and convolution, delta rule and commit. Part of args.h; pointers are device memory of the backend
// unless a comment says host.
#ifndef COPPICE_OPS_ARGS_GDN_H
#define COPPICE_OPS_ARGS_GDN_H

#include <stdint.h>

// Recurrent state of one sequence in one Gated DeltaNet layer (docs/state.md). The log is
// a ring: position p is in slot p mod GDN_RING.
enum { GDN_BLOCK = 32, GDN_RING = 64, GDN_CONV = 4 };
struct gdn_state {
    float *s_lo;    // [nV][dk][dv] state after 32 * max(0, floor(len/32) - 1) tokens
    float *s_hi;    // [nV][dk][dv] state after 32 * floor(len/32) tokens
    float *log_k;   // [GDN_RING][nK][dk] normalised keys
    float *log_d;   // [GDN_RING][nV][dv] deltas
    float *log_g;   // [GDN_RING][nV] log decays
    float *conv;    // [GDN_CONV-1][C] last conv inputs, oldest first; zeros before position 0
    float *conv_hi; // [GDN_CONV-1][C] the same as it was at position 32 * floor(len/32)
};

struct gdn_shape {
    int n_k, n_v, dk, dv; // key and value heads (value head h reads key head h mod n_k); sizes
    int channels;         // C = 2 n_k dk + n_v dv
};

// Per-row values of one layer; a verification keeps them until commit.
struct gdn_rows {
    float *u;    // [n][C] conv inputs (the qkv projection)
    float *q;    // [n][nK][dk] normalised, times 1/sqrt(dk)
    float *k;    // [n][nK][dk] normalised
    float *v;    // [n][nV][dv]
    float *beta; // [n][nV]
    float *g;    // [n][nV] log decay, <= 0
    float *d;    // [n][nV][dv] delta, written by gdn
};

struct gdn_conv_args {
    struct gdn_shape shape;
    const float *a, *b;                  // [n][nV] projections
    const float *conv_w;                 // [C][4], oldest tap first
    const float *ssm_a, *dt_bias;        // [nV]
    const struct gdn_state *const *seqs; // host [sequences]
    struct gdn_rows rows;                // u in; q, k, v, beta, g out
};

// Consecutive rows of one sequence: a tree, or a slice of a chain whose earlier rows have been
// committed already. A parent outside the run counts as committed.
struct gdn_run {
    int64_t first, count; // count >= 1
    int32_t seq;          // that of all its rows
};

struct gdn_args {
    struct gdn_shape shape;
    const struct gdn_run *runs; // host [n_runs] in the order of rows, each of another sequence
    int n_runs;
    const struct gdn_state *const *seqs; // host [sequences]
    const int64_t *len;                  // host [sequences] committed tokens
    struct gdn_rows rows;                // q..g in; d out (all [n], indexed by row)
    float *out;                          // [n][nV][dv]
};

// One sequence of a commit: rows path[0..count), consecutive positions from len on.
struct gdn_commit_seq {
    struct gdn_state *states; // host [n_layers]
    int64_t len;              // committed tokens before
    const int32_t *path;      // host [count] row indices
    int64_t count;
};

// Makes rows part of the states of some sequences in every layer: appends them to the log, folds a
// new base at each multiple of 32, advances the conv inputs. May exchange the pointers s_lo and
// s_hi, so owners keep no copies of them.
struct gdn_commit_args {
    struct gdn_shape shape;
    int n_layers;
    const struct gdn_commit_seq *seqs; // host [n_seqs], different sequences
    int n_seqs;
    const struct gdn_rows *rows; // host [n_layers]; u, k, g and d are read
};

#endif
