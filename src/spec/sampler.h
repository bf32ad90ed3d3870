// SPDX-License-Identifier: Apache-2.0
// From a request's sampling parameters to the rows that the `sample` op reads. Each row gets the
// position of the token it chooses and, when penalties are on, the token counts of the window that
// ends at that very row: committed tokens and then the row's own path through the tree. Choices are
// a pure function of (logits, parameters, seed, position, window); there is no generator state.
#ifndef COPPICE_SPEC_SAMPLER_H
#define COPPICE_SPEC_SAMPLER_H

#include <stdint.h>

#include "base/err.h"
#include "ops/ops.h"

enum { SAMPLER_MAX_WINDOW = 4096, SAMPLER_MAX_BIAS = 4096 };

// A zeroed struct is greedy decoding without penalties except that top_p and repeat must be 1: use
// sample_params_init.
struct sample_params {
    double temperature;                 // >= 0; 0: argmax
    int64_t top_k;                      // 0: all
    double top_p, min_p;                // 1 and 0: off
    double repeat, frequency, presence; // 1, 0, 0: off
    int64_t window;                     // tokens the penalties look back at, 0..SAMPLER_MAX_WINDOW
    uint64_t seed;
    uint64_t choice; // index among several answers to one request
    // [n_bias] in any order, at most one a token; read while a sampler is made.
    const struct logit_bias *bias;
    int64_t n_bias;
    // [n_late] tokens that may not be chosen at positions below `from`; read likewise.
    const int32_t *late;
    int64_t n_late, from;
};

void sample_params_init(struct sample_params *p); // greedy; window 64

// One sentence when a value is out of range. ERR_USAGE; ERR_MISMATCH: a bias of a token id that is
// not within 0 .. vocab - 1, likewise of a late token. That there is one bias a token is seen by
// sampler_create.
int sample_params_check(const struct sample_params *p, int64_t vocab, struct err *e);

struct sampler;

// max_rows: rows kept at once. vocab: ids are 0..vocab-1. Errors: as of sample_params_check, and
// ERR_MEMORY.
int sampler_create(struct sampler **out, const struct sample_params *p, int max_rows, int vocab,
                   struct err *e);
void sampler_destroy(struct sampler *s);

// Rows of one sequence: token, parent [n] as in a forest (parent -1: the last committed token), and
// the len tokens committed before them.
struct sampler_batch {
    const int32_t *token, *parent;
    int n;
    const int32_t *committed;
    int64_t len;
};
// The sample row for the choice of the token after row `row` of the batch. `slot` (< max_rows) says
// where it is kept: results in other slots stay valid, and neighbours are neighbours in memory.
const struct sample_row *sampler_row(struct sampler *s, const struct sampler_batch *b, int row,
                                     int slot);

// Where the mask of a row leaves nothing but tokens that its biases forbid, what may be said goes
// before what is wanted: the row gets the biases without its late tokens, or none.
void sampler_yield(const struct sampler *s, struct sample_row *row);

// Rows for a draft that shares the target's noise: row d (0..depth-1) is the choice of the token at
// position first_pos + d, without penalties and biases. NULL when the temperature is 0.
const struct sample_row *sampler_noise(struct sampler *s, int64_t first_pos, int depth);

#endif
