// SPDX-License-Identifier: Apache-2.0
// How much of a text is kept: a ratio, a curve of ratios over lengths, or as much as holds a share
// of the scores. The options of selection, their check and their reading from text.
#ifndef COPPICE_COMPRESS_SELECT_BUDGET_H
#define COPPICE_COMPRESS_SELECT_BUDGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

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
// The ratio of a text of so many tokens; o has a ratio or a curve.
double select_ratio(const struct select_options *o, int64_t tokens);

#endif
