// SPDX-License-Identifier: Apache-2.0
// What the two files of Domino share: weights and workspace, made by the one, and the draft in
// progress, which is the other's.
#ifndef COPPICE_MODELS_DRAFT_DFLASH_DOMINO_H
#define COPPICE_MODELS_DRAFT_DFLASH_DOMINO_H

#include "models/draft/dflash/impl.h"

// Candidates of a row that are corrected, and of those that a node can have.
enum { DOMINO_SCORED = 128, DOMINO_MAX_K = 64 };

struct domino_member {
    const struct sequence *seq;
    int named;        // nodes so far
    int first, at, n; // of the newest level: its first node's number, and row; nodes
    int depth;        // of it; -1: there is none
};

// H: width of the unit, E: of the head; S sequences, N = S DFLASH_WIDTH nodes of a level, G guesses
// of a block, K candidates of each. Without a word, arrays are the host's.
struct domino {
    const struct weight *in, *rec, *down;  // [D -> 3 H], [H -> 3 H], [D + H -> E]
    float *in_bias, *rec_bias, *down_bias; // device [3 H], [3 H], [E]; or NULL
    const struct tensor *up;               // [vocab][E], in the file
    float *up_bias, *start;                // [vocab], [H] what the unit begins with; or NULL
    // On the device: [S G][D] of the block, normed; [N][D], [N][3 H], [N][3 H]; [N][H] states
    // before and after a step; [N][D + H], [N][E]
    float *rows, *embedded, *of_input, *of_state, *old, *fresh, *joined, *corrected;
    struct act *act_in, *act_rec, *act_down; // N rows of D, of H, of D + H
    int k, guesses, n_members;               // K; G of the last draft
    struct domino_member *members;           // [S]
    struct sequence **seqs;                  // [S]
    int32_t *roots;                          // [S]
    int32_t *ids;                            // [S G][K]
    float *logp;                             // [S G][K]
    struct sample_row *noise;                // [S G]
    int32_t *token, *parent, *row, *self;    // [N] of nodes; self: 0, 1, ..
    float *states;                           // [S][2][DFLASH_WIDTH][H], by even and odd depths
    float *gates;                            // [2][N][3 H] of input and state
    float *before, *after;                   // [N][H]
    float *hidden, *up_rows, *score;         // [N][E], [K][E], [K]
    int32_t *out_ids;                        // [N][DOMINO_MAX_K]
    float *out_logp;                         // [N][DOMINO_MAX_K]
};

#endif
