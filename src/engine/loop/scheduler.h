// SPDX-License-Identifier: Apache-2.0
// How many tokens of which prompts go together with the decoding members of a pass. Running
// requests keep their pace: a pass takes no more prompt tokens than the time to the next step
// allows, by what passes with pieces of prompts have been measured to take. Of the prompts the one
// with least left comes first, so that short ones overtake long ones; waiting makes a prompt count
// as shorter, so that a long one is overtaken for a bounded time only. Arithmetic alone: no clock,
// no model.
#ifndef COPPICE_ENGINE_LOOP_SCHEDULER_H
#define COPPICE_ENGINE_LOOP_SCHEDULER_H

#include <stdint.h>

#include "spec/tree/price.h"

// Facts of the pass.
struct pass_frame {
    const struct price *price; // of passes with pieces of prompts
    int decoding;              // members that decode
    double guesses;            // rows of guesses that they are expected to have together
    double other_ms;           // of drafts and whatever else the step takes besides the pass
    int prompts;               // members that are likely to have a piece in it
    int64_t max;               // prompt tokens that fit the pass
    int64_t known;             // rows of the largest pass that has been measured
    int64_t tile;              // rows that a pass is best a multiple of; 0 or 1: none
    double gap_ms;             // that the whole step may take
};

// Tokens of prompts that the pass may take, 1 to f->most: what fits the time, and at least
// SCHEDULE_MIN, or prompts would never be read where steps alone take too long. Where no member
// decodes the pass may take SCHEDULE_IDLE milliseconds, after which who has come or gone is seen
// to. A pass of more than a tile of rows is cut to whole tiles. Before anything has been measured:
// SCHEDULE_FIRST; concurrently with running requests a pass is at most twice as large as any
// before.
enum { SCHEDULE_MIN = 32, SCHEDULE_FIRST = 64, SCHEDULE_IDLE = 1000 };
int64_t schedule_rows(const struct pass_frame *f);

// Milliseconds between two steps that requests have to expect: `wanted`, or where that is 0
// SCHEDULE_GAP, of which what prices predict fills 100, or SCHEDULE_STEPS steps of `step_ms`
// without pieces where those take longer.
enum { SCHEDULE_GAP = 118, SCHEDULE_STEPS = 4 };
double schedule_gap(double wanted, double step_ms);

struct prompt_slice {
    int64_t left;     // tokens of the prompt that are still to be run
    double waited_ms; // since it was taken up
    int64_t rows;     // out of schedule_prompts: of these in this pass; 0: none
    int order;        // out: its place among those that take part, 0 the first
};

// Shares `rows` tokens among slices[n]. token_ms: what a prompt's token takes, for weighing a wait
// against what is left. Returns how many take part.
int schedule_prompts(struct prompt_slice *slices, int n, int64_t rows, double token_ms);

// What a token of a prompt takes where passes take `rows` of them, by the clock that requests wait
// by; 0 before anything was measured.
double schedule_token_ms(const struct pass_frame *f, int64_t rows);

#endif
