// SPDX-License-Identifier: Apache-2.0
// The searches of search.h. All sums are plain 32-bit floats in element order, so that the
// result does not depend on the machine.
#include "formats/quant/search.h"

#include "formats/quant/impl.h"

// Sums of the weighted fit of x by a scale times codes.
struct fit {
    float xl, ll; // sum of w x l and of w l l
};

static int signed_code(float x, float inv, int half) {
    return clamp_i32(round_even(inv * x), -half, half - 1);
}

// Moves the code of value i to what the fit of all others gives, where that fits all better.
static bool move_code(struct fit *s, float x, float w, int lo, int hi, int *code) {
    float l = (float)*code;
    struct fit rest = {s->xl - w * x * l, s->ll - w * l * l};
    if (!(rest.xl > 0.0f) || !(rest.ll > 0.0f))
        return false;
    int to = clamp_i32(round_even(x * rest.ll / rest.xl), lo, hi);
    if (to == *code)
        return false;
    l = (float)to;
    rest.xl += w * x * l;
    rest.ll += w * l * l;
    if (!(rest.ll > 0.0f) || !(rest.xl * rest.xl * s->ll > s->xl * s->xl * rest.ll))
        return false;
    *s = rest;
    *code = to;
    return true;
}

// Up to five sweeps over all codes; the scale of the last fit.
static float sweep_codes(struct fit s, const float *x, const float *w, int n, const int *range,
                         int *code) {
    bool moved = true;
    for (int sweep = 0; sweep < 5 && moved; sweep++) {
        moved = false;
        for (int i = 0; i < n; i++)
            moved |= move_code(&s, x[i], w[i], range[0], range[1], &code[i]);
    }
    return s.ll > 0.0f ? s.xl / s.ll : 0.0f;
}

float quant_refine_signed(const float *x, int n, int half, int *code) {
    float w[QUANT_GROUP], extreme = quant_extreme(x, n), scale = 0.0f;
    struct fit s = {0};
    bool flat = fabsf(extreme) < QUANT_NEGLIGIBLE;
    for (int i = 0; i < n; i++) {
        w[i] = x[i] * x[i];
        code[i] = flat ? -half : signed_code(x[i], (float)-half / extreme, half);
        s.xl += w[i] * x[i] * (float)code[i];
        s.ll += w[i] * (float)code[i] * (float)code[i];
    }
    if (!flat)
        scale = sweep_codes(s, x, w, n, (const int[]){-half, half - 1}, code);
    for (int i = 0; i < n; i++)
        code[i] += half;
    return scale;
}

void quant_batch_put(struct quant_batch *b, int lane, const float *x, const float *w) {
    for (int i = 0; i < b->n; i++) {
        b->x[i][lane] = x[i];
        b->w[i][lane] = w[i];
    }
}

// Rounds half to even: from 2^23 on the floats are the integers. For sizes below 2^22.
static inline float round_near(float v) {
    return (v + 12582912.0f) - 12582912.0f;
}

typedef float lane_values[QUANT_LANES];

// The values of largest size with their signs; the first one on ties.
static void extremes(const struct quant_batch *b, lane_values out) {
    lane_values size = {0}, best = {0};
    for (int i = 0; i < b->n; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            bool larger = fabsf(b->x[i][g]) > size[g];
            size[g] = larger ? fabsf(b->x[i][g]) : size[g];
            best[g] = larger ? b->x[i][g] : best[g];
        }
    }
    memcpy(out, best, sizeof best);
}

static inline float clamped_code(float v, float min, float max) {
    v = v > min ? v : min;
    v = v < max ? v : max;
    return round_near(v);
}

// Sums of the weighted fits of x by a scale times codes, for steps 1 / inv.
struct lane_fit {
    lane_values xl, ll;
};

static void fit_signed(const struct quant_batch *b, const lane_values inv, int half,
                       struct lane_fit *s) {
    const float min = (float)-half, max = (float)(half - 1);
    *s = (struct lane_fit){0};
    for (int i = 0; i < b->n; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            float x = b->x[i][g], w = b->w[i][g], l = clamped_code(inv[g] * x, min, max);
            s->xl[g] += w * x * l;
            s->ll[g] += w * l * l;
        }
    }
}

void quant_search_signed(const struct quant_batch *b, int half, float *scale, int *code) {
    lane_values extreme, kept, inv, best;
    struct lane_fit s;
    extremes(b, extreme);
    for (int g = 0; g < QUANT_LANES; g++)
        kept[g] = (float)-half / extreme[g];
    fit_signed(b, kept, half, &s);
    for (int g = 0; g < QUANT_LANES; g++) {
        scale[g] = s.ll[g] > 0.0f ? s.xl[g] / s.ll[g] : 0.0f;
        best[g] = scale[g] * s.xl[g];
    }
    for (int t = -9; t <= 9; t++) {
        for (int g = 0; g < QUANT_LANES; g++)
            inv[g] = -((float)half + 0.1f * (float)t) / extreme[g];
        fit_signed(b, inv, half, &s);
        for (int g = 0; g < QUANT_LANES && t != 0; g++) {
            bool better = s.ll[g] > 0.0f && s.xl[g] * s.xl[g] > best[g] * s.ll[g];
            float a = s.xl[g] / s.ll[g];
            kept[g] = better ? inv[g] : kept[g];
            scale[g] = better ? a : scale[g];
            best[g] = better ? a * s.xl[g] : best[g];
        }
    }
    for (int g = 0; g < QUANT_LANES; g++) {
        bool flat = fabsf(extreme[g]) < QUANT_NEGLIGIBLE;
        scale[g] = flat ? 0.0f : scale[g];
        for (int i = 0; i < b->n; i++)
            code[g * b->n + i] = flat ? 0 : signed_code(b->x[i][g], kept[g], half) + half;
    }
}

static void affine_codes(const struct quant_batch *b, const lane_values inv, const lane_values lo,
                         int top, lane_values *code) {
    const float max = (float)top;
    for (int i = 0; i < b->n; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            code[i][g] = clamped_code(inv[g] * (b->x[i][g] - lo[g]), 0.0f, max);
        }
    }
}

// Sums of w e^2, or of w |e|, over each group.
static void affine_error(const struct quant_batch *b, const lane_values *code,
                         const lane_values scale, const lane_values lo, bool absolute,
                         lane_values out) {
    lane_values sum = {0};
    for (int i = 0; i < b->n && absolute; i++)
        for (int g = 0; g < QUANT_LANES; g++)
            sum[g] += b->w[i][g] * fabsf(scale[g] * code[i][g] + lo[g] - b->x[i][g]);
    for (int i = 0; i < b->n && !absolute; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            float diff = scale[g] * code[i][g] + lo[g] - b->x[i][g];
            sum[g] += b->w[i][g] * (diff * diff);
        }
    }
    memcpy(out, sum, sizeof sum);
}

// Sums of w and w x, which no code changes.
struct affine_sums {
    lane_values w, x;
};

static void affine_sums(const struct quant_batch *b, struct affine_sums *s) {
    *s = (struct affine_sums){0};
    for (int i = 0; i < b->n; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            s->w[g] += b->w[i][g];
            s->x[g] += b->w[i][g] * b->x[i][g];
        }
    }
}

// Weighted least squares x ~ scale * code + lo with lo <= 0; no numbers where the codes are
// degenerate.
static void affine_fit(const struct quant_batch *b, const struct affine_sums *s,
                       const lane_values *code, lane_values scale, lane_values lo) {
    lane_values sl = {0}, sll = {0}, sxl = {0};
    for (int i = 0; i < b->n; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            float l = code[i][g], wl = b->w[i][g] * l;
            sl[g] += wl;
            sll[g] += wl * l;
            sxl[g] += wl * b->x[i][g];
        }
    }
    for (int g = 0; g < QUANT_LANES; g++) {
        float det = s->w[g] * sll[g] - sl[g] * sl[g];
        float a = (s->w[g] * sxl[g] - s->x[g] * sl[g]) / det;
        float c = (sll[g] * s->x[g] - sl[g] * sxl[g]) / det;
        float through_0 = sxl[g] / sll[g];
        scale[g] = det > 0.0f ? c > 0.0f ? through_0 : a : NAN;
        lo[g] = c > 0.0f ? 0.0f : c;
    }
}

// The state of a search: the best fit of each group, and the step and minimum that its codes came
// from.
struct affine_best {
    lane_values lo, hi, error, scale, inv, from;
};

static void affine_start(const struct quant_batch *b, int top, struct affine_best *s,
                         lane_values *code) {
    memcpy(s->lo, b->x[0], sizeof s->lo);
    memcpy(s->hi, b->x[0], sizeof s->hi);
    for (int i = 1; i < b->n; i++) {
        for (int g = 0; g < QUANT_LANES; g++) {
            s->lo[g] = b->x[i][g] < s->lo[g] ? b->x[i][g] : s->lo[g];
            s->hi[g] = b->x[i][g] > s->hi[g] ? b->x[i][g] : s->hi[g];
        }
    }
    for (int g = 0; g < QUANT_LANES; g++) {
        s->lo[g] = s->lo[g] > 0.0f ? 0.0f : s->lo[g];
        s->inv[g] = (float)top / (s->hi[g] - s->lo[g]);
        s->scale[g] = 1.0f / s->inv[g];
        s->from[g] = s->lo[g];
    }
    affine_codes(b, s->inv, s->lo, top, code);
}

// Takes the fits that are better; the next trials start from their minimums.
static void affine_take(struct affine_best *s, const lane_values error, const lane_values inv,
                        const lane_values scale, const lane_values lo) {
    for (int g = 0; g < QUANT_LANES; g++) {
        bool better = error[g] < s->error[g];
        s->error[g] = better ? error[g] : s->error[g];
        s->scale[g] = better ? scale[g] : s->scale[g];
        s->inv[g] = better ? inv[g] : s->inv[g];
        s->from[g] = better ? s->lo[g] : s->from[g];
        s->lo[g] = better ? lo[g] : s->lo[g];
    }
}

void quant_search_affine(const struct quant_batch *b, const struct quant_grid *grid, float *scale,
                         float *minimum, int *code) {
    lane_values trial[QUANT_GROUP], error, inv, a, c;
    struct affine_best s;
    struct affine_sums sums;
    bool flat[QUANT_LANES];
    affine_sums(b, &sums);
    affine_start(b, grid->top, &s, trial);
    memcpy(minimum, s.lo, sizeof s.lo);
    affine_error(b, trial, s.scale, s.lo, grid->absolute, s.error);
    for (int g = 0; g < QUANT_LANES; g++)
        flat[g] = !(s.hi[g] - s.lo[g] > QUANT_NEGLIGIBLE);
    for (int t = 0; t <= grid->count; t++) {
        float near = grid->start + grid->step * (float)t + (float)grid->top;
        for (int g = 0; g < QUANT_LANES; g++)
            inv[g] = near / (s.hi[g] - s.lo[g]);
        affine_codes(b, inv, s.lo, grid->top, trial);
        affine_fit(b, &sums, trial, a, c);
        affine_error(b, trial, a, c, grid->absolute, error);
        affine_take(&s, error, inv, a, c);
    }
    affine_codes(b, s.inv, s.from, grid->top, trial);
    for (int g = 0; g < QUANT_LANES; g++) {
        scale[g] = flat[g] ? 0.0f : s.scale[g];
        minimum[g] = flat[g] ? -minimum[g] : -s.lo[g];
        for (int i = 0; i < b->n; i++)
            code[g * b->n + i] = flat[g] ? 0 : (int)trial[i][g];
    }
}

static float positive_error(const float *x, const float *w, int n, const int *code, float scale) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        float diff = scale * (float)code[i] - x[i];
        sum += w[i] * (diff * diff);
    }
    return sum;
}

static void positive_codes(const float *x, int n, float inv, int top, int *code) {
    for (int i = 0; i < n; i++)
        code[i] = clamp_i32(round_even(inv * x[i]), 0, top);
}

float quant_search_positive(const float *x, const float *w, int n, int top, int *code) {
    float max = 0.0f, best = INFINITY, kept = 0.0f;
    struct fit s = {0};
    for (int i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    if (!(max > QUANT_NEGLIGIBLE)) {
        memset(code, 0, (size_t)n * sizeof *code);
        return 0.0f;
    }
    for (int t = 0; t <= 8; t++) {
        // 0 first, so that the others must be better than it: 0, -4 .. -1, 1 .. 4.
        int tenths = t == 0 ? 0 : t <= 4 ? t - 5 : t - 4;
        float inv = ((float)top + 0.1f * (float)tenths) / max;
        positive_codes(x, n, inv, top, code);
        float error = positive_error(x, w, n, code, 1.0f / inv);
        if (error < best) {
            best = error;
            kept = inv;
        }
    }
    positive_codes(x, n, kept, top, code);
    for (int i = 0; i < n; i++) {
        s.xl += w[i] * x[i] * (float)code[i];
        s.ll += w[i] * (float)code[i] * (float)code[i];
    }
    return sweep_codes(s, x, w, n, (const int[]){0, top}, code);
}

// The size is kept next to the value: clang 19 takes the wrong sign when a loop that compares the
// sizes of two values and keeps one of them is unrolled.
float quant_extreme(const float *x, int n) {
    float best = 0.0f, size = 0.0f;
    for (int i = 0; i < n; i++) {
        if (fabsf(x[i]) > size) {
            size = fabsf(x[i]);
            best = x[i];
        }
    }
    return best;
}

float quant_sum_squares(const float *x, int64_t n) {
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sum;
}

void quant_importance_weights(const float *x, const float *importance, int n, float spread,
                              float *w) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += importance[i];
    for (int i = 0; i < n; i++)
        w[i] = (sum > 0.0f ? importance[i] : 1.0f) * sqrtf(spread + x[i] * x[i]);
}
