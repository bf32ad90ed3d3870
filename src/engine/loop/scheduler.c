// SPDX-License-Identifier: Apache-2.0
// Rows of prompts by the time that is left for them, and prompts by urgency.
#include "engine/loop/scheduler.h"

#include <math.h>

#include "base/num.h"

// Of the time to the next step a part is left for what prices do not predict.
static const double MARGIN = 0.85;
// A prompt that has waited counts as shorter by this part of the wait.
static const double AGEING = 0.5;

double schedule_gap(double wanted, double step_ms) {
    return wanted > 0 ? wanted : fmax(SCHEDULE_GAP, (double)SCHEDULE_STEPS * step_ms);
}

// The pass with that many tokens of prompts.
static double mixed_pass_ms(const struct pass_frame *f, int64_t rows) {
    int64_t others = f->decoding + (int64_t)f->guesses;
    return price_pass_ms(f->price, others + rows, f->decoding + max_i32(f->prompts, 1));
}

// The same tokens or somewhat fewer, so that all rows of the pass fill their tiles.
static int64_t whole_tiles(const struct pass_frame *f, int64_t rows) {
    int64_t others = f->decoding + (int64_t)f->guesses, over;
    if (f->tile < 2 || others + rows <= f->tile)
        return rows;
    over = (others + rows) % f->tile;
    return rows - over >= SCHEDULE_MIN ? rows - over : rows;
}

int64_t schedule_rows(const struct pass_frame *f) {
    int64_t lo = min_i64(SCHEDULE_MIN, f->max), hi = f->max;
    if (!price_ready(f->price))
        return min_i64(SCHEDULE_FIRST, f->max);
    if (f->decoding)
        hi = max_i64(lo, min_i64(hi, max_i64(2 * f->known, SCHEDULE_FIRST)));
    double left = f->decoding ? MARGIN * f->gap_ms - f->other_ms : (double)SCHEDULE_IDLE;
    while (lo < hi) { // the most that fit lie in lo .. hi
        int64_t mid = (lo + hi + 1) / 2;
        if (mixed_pass_ms(f, mid) <= left)
            lo = mid;
        else
            hi = mid - 1;
    }
    return whole_tiles(f, lo);
}

double schedule_token_ms(const struct pass_frame *f, int64_t rows) {
    return price_ready(f->price) ? mixed_pass_ms(f, rows) / (double)max_i64(rows, 1) : 0;
}

// The order of prompts: the time that is left of it, less a part of the time that it has waited.
static double urgency(const struct prompt_slice *t, double token_ms) {
    return (double)t->left * token_ms - AGEING * t->waited_ms;
}

int schedule_prompts(struct prompt_slice *slices, int n, int64_t rows, double token_ms) {
    int taken = 0;
    if (!(token_ms > 0))
        token_ms = 1;
    for (int i = 0; i < n; i++)
        slices[i].rows = 0;
    while (rows > 0) {
        struct prompt_slice *best = NULL;
        for (int i = 0; i < n; i++) {
            struct prompt_slice *t = &slices[i];
            if (t->rows == 0 && t->left > 0 &&
                (!best || urgency(t, token_ms) < urgency(best, token_ms)))
                best = t;
        }
        if (!best)
            break;
        best->rows = min_i64(best->left, rows);
        best->order = taken++;
        rows -= best->rows;
    }
    return taken;
}
