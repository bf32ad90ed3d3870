// SPDX-License-Identifier: Apache-2.0
// Which pieces of a text are kept, from a score for each token. Chunks that end at borders
// (chunks.h) are put in one order, and as many as the budget allows are taken from its begin: so
// what is kept grows with the budget. The order takes turns between the best chunks by their mean
// smoothed score (half of the tokens), the ends of the text and the anchors of the query (a quarter
// each, as long as there are some); parts that are always kept come first, and the best chunk of
// every other part. It knows no models: scores may come from anywhere.
#ifndef COPPICE_COMPRESS_SELECT_SELECT_H
#define COPPICE_COMPRESS_SELECT_SELECT_H

#include "compress/select/budget.h"
#include "compress/select/chunks.h"

struct select_input {
    struct select_text text;
    const float *score;       // [n_tokens] at least 0; what is no number counts as 0
    const int32_t *ids;       // [n_tokens], or NULL: no anchors
    int64_t query, query_end; // tokens of the query, which are the newest; equal: no anchors
    int64_t size;             // tokens by which a curve is looked up; 0: n_tokens
};

// A kept piece. Neighbours are merged; none is empty.
struct select_span {
    int64_t part;
    size_t begin, end; // bytes of the text
};

struct selection {
    struct select_span *spans;
    int64_t n_spans;
    int64_t kept;  // tokens
    double budget; // tokens that were to be kept
};

// ERR_USAGE as select_options_check. Ties go to what comes first. What is kept is at most the
// budget, unless whole parts and the best chunks of the others are more.
int select_spans(const struct select_input *in, const struct select_options *o,
                 struct selection *out, struct err *e);
void selection_fini(struct selection *s);

// Centred mean over up to SELECT_POOL values, of those that there are: out[i] of in[0 .. n).
enum { SELECT_POOL = 13 };
void select_smooth(const float *in, int64_t n, double *out);

#endif
