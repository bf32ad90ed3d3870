// SPDX-License-Identifier: Apache-2.0
// Which pieces of a text are kept, from a score for each token. Chunks that end at borders
// (chunks.h) are put in one order, and as many as the budget allows are taken from its begin: so
// what is kept grows with the budget, which is a ratio, a curve of ratios over lengths, or as much
// as holds a share of the scores. The order takes turns between the best chunks by their mean
// smoothed score (half of the tokens), the ends of the text and the anchors of the query (a quarter
// each, as long as there are some); parts that are always kept come first, and the best chunk of
// every other part. It does not depend on models: scores may come from anywhere.
#ifndef COPPICE_COMPRESS_SELECT_SELECT_H
#define COPPICE_COMPRESS_SELECT_SELECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "compress/select/chunks.h"

enum select_budget {
    // Chunks by rank until they hold `mass` of the scores (of what is above the median), between
    // least and most: few where some stand out, many where all are alike.
    SELECT_MASS,
    SELECT_RATIO, // `keep` of the tokens
    SELECT_CURVE, // a ratio by the length of the text
};

struct select_point {
    double tokens, keep;
};

enum { SELECT_POINTS = 32 };

struct select_options {
    enum select_budget budget;
    double mass, least, most; // SELECT_MASS: shares in (0, 1], least <= most
    double keep;              // SELECT_RATIO: in (0, 1]
    // SELECT_CURVE: tokens rise; between points the ratio changes linearly, beyond them it stays.
    struct select_point curve[SELECT_POINTS];
    int n_points;
    int head, tail; // tokens of the begin and the end that come first, within a share (select.h)
    // Places where a run of 4 tokens of the query stands. Radius (chunks around each) and hits (a
    // run that stands at more places says nothing) follow from the number of chunks where 0.
    bool anchors;
    int anchor_radius, anchor_hits;
};

// Mass 0.9 of scores between 0.02 and 0.5 of the tokens; ratio 0.05; head 256, tail 768; anchors.
struct select_options select_options_default(void);
// ERR_USAGE with a sentence: a share outside (0, 1], a curve out of order, twice the same length.
int select_options_check(const struct select_options *o, struct err *e);

// Reads points "T:R" apart by blanks or commas ("10000:.5 40000:.2") and makes them the budget of
// o. After an error o is as it was.
int select_curve_read(struct select_options *o, const char *text, size_t n, struct err *e);
// The ratio of a text of that many tokens; o has a ratio or a curve.
double select_ratio(const struct select_options *o, int64_t tokens);

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
