// SPDX-License-Identifier: Apache-2.0
// Rows of logits against the token that came and against reference rows; see rows.h.
#include "cli/perplexity/rows.h"

#include <math.h>
#include <string.h>

#define DEPTH 16.0f // below the likeliest logit, where codes begin
#define CODES 65535.0f

struct scale {
    float step, least;
};

struct row_sum row_sum_of(const float *logits, int64_t n) {
    struct row_sum s = {.max = logits[0], .min = logits[0]};
    double sum = 0;
    for (int64_t i = 1; i < n; i++) {
        if (logits[i] > s.max) {
            s.max = logits[i];
            s.top = i;
        }
        s.min = logits[i] < s.min ? logits[i] : s.min;
    }
    for (int64_t i = 0; i < n; i++)
        sum += (double)expf(logits[i] - s.max);
    s.sum = (double)s.max + log(sum);
    return s;
}

// floor: the logit of code 0.
static struct scale scale_of(const struct row_sum *s, float *floor) {
    *floor = fmaxf(s->min, s->max - DEPTH);
    return (struct scale){(s->max - *floor) / CODES, (float)((double)*floor - s->sum)};
}

void row_encode(const struct row_sum *s, const float *logits, int64_t n, uint16_t *out) {
    float floor;
    struct scale c = scale_of(s, &floor);
    float codes = c.step > 0 ? 1 / c.step : 0;
    memcpy(out, &c, sizeof c);
    memset(out + ROW_HEAD, 0, (size_t)(row_units(n) - ROW_HEAD) * sizeof *out);
    for (int64_t i = 0; i < n; i++) {
        float code = fminf(rintf(codes * (logits[i] - floor)), CODES);
        out[ROW_HEAD + i] = code > 0 ? (uint16_t)code : 0;
    }
}

double row_reference(const uint16_t *row, int64_t id) {
    struct scale c;
    memcpy(&c, row, sizeof c);
    return (double)(c.step * (float)row[ROW_HEAD + id] + c.least);
}

static bool equal_rows(const struct row_sum *s, const float *logits, int64_t n,
                       const uint16_t *reference, uint16_t *own) {
    float floor;
    struct scale c = scale_of(s, &floor);
    if (memcmp(&c, reference, sizeof c) != 0)
        return false;
    row_encode(s, logits, n, own);
    return memcmp(own + ROW_HEAD, reference + ROW_HEAD, (size_t)n * sizeof *own) == 0;
}

struct row_difference row_compare(const struct row_sum *s, const float *logits, int64_t n,
                                  const uint16_t *reference, uint16_t *own) {
    const uint16_t *code = reference + ROW_HEAD;
    struct row_difference d = {0};
    struct scale c;
    uint16_t best = 0;
    memcpy(&c, reference, sizeof c);
    d.whole =
        isfinite(c.least) && c.step >= 0 && c.step * CODES + c.least < 1; // ln p <= 0, rounded
    if (!d.whole)
        return d;
    for (int64_t i = 0; i < n; i++)
        best = code[i] > best ? code[i] : best;
    d.same_top = code[s->top] == best;
    if (equal_rows(s, logits, n, reference, own))
        return d;
    for (int64_t i = 0; i < n; i++) {
        float p = c.step * (float)code[i] + c.least;
        if (p > -DEPTH)
            d.kl += (double)expf(p) * ((double)p - ((double)logits[i] - s->sum));
    }
    return d;
}
