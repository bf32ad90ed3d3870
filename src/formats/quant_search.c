// SPDX-License-Identifier: Apache-2.0
// The searches of quant_search.h. All sums are plain 32-bit floats in element order, so that the
// result does not depend on the machine.
#include "formats/quant_search.h"

#include "formats/quant_impl.h"

// Sums of the weighted fit of x by a scale times codes.
struct fit {
    float xl, ll; // sum of w x l and of w l l
};

static int signed_code(float x, float inv, int half) {
    return clamp_int(round_even(inv * x), -half, half - 1);
}

static struct fit fit_signed(const float *x, const float *w, int n, float inv, int half) {
    struct fit s = {0};
    for (int i = 0; i < n; i++) {
        float l = (float)signed_code(x[i], inv, half);
        s.xl += w[i] * x[i] * l;
        s.ll += w[i] * l * l;
    }
    return s;
}

float quant_search_signed(const float *x, const float *w, int n, int half, int *code) {
    float extreme = quant_extreme(x, n);
    if (fabsf(extreme) < QUANT_NEGLIGIBLE) {
        for (int i = 0; i < n; i++)
            code[i] = 0;
        return 0.0f;
    }
    float kept = (float)-half / extreme;
    struct fit s = fit_signed(x, w, n, kept, half);
    float scale = s.ll > 0.0f ? s.xl / s.ll : 0.0f, best = scale * s.xl;
    for (int t = -9; t <= 9; t++) {
        if (t == 0)
            continue;
        float inv = -((float)half + 0.1f * (float)t) / extreme;
        s = fit_signed(x, w, n, inv, half);
        if (s.ll > 0.0f && s.xl * s.xl > best * s.ll) {
            kept = inv;
            scale = s.xl / s.ll;
            best = scale * s.xl;
        }
    }
    for (int i = 0; i < n; i++)
        code[i] = signed_code(x[i], kept, half) + half;
    return scale;
}

// Moves the code of value i to what the fit of all others asks for, where that fits all better.
static bool move_code(struct fit *s, float x, float w, int lo, int hi, int *code) {
    float l = (float)*code;
    struct fit rest = {s->xl - w * x * l, s->ll - w * l * l};
    if (!(rest.xl > 0.0f) || !(rest.ll > 0.0f))
        return false;
    int to = clamp_int(round_even(x * rest.ll / rest.xl), lo, hi);
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
    bool flat = fabsf(extreme) < QUANT_NEGLIGIBLE;
    for (int i = 0; i < n; i++) {
        w[i] = x[i] * x[i];
        code[i] = flat ? -half : signed_code(x[i], (float)-half / extreme, half);
    }
    if (!flat)
        scale = sweep_codes(fit_signed(x, w, n, (float)-half / extreme, half), x, w, n,
                            (const int[]){-half, half - 1}, code);
    for (int i = 0; i < n; i++)
        code[i] += half;
    return scale;
}

static void affine_codes(const float *x, int n, float inv, float lo, int top, int *code) {
    for (int i = 0; i < n; i++)
        code[i] = clamp_int(round_even(inv * (x[i] - lo)), 0, top);
}

static float affine_error(const float *x, const float *w, int n, const int *code, float scale,
                          float lo) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++) {
        float diff = scale * (float)code[i] + lo - x[i];
        sum += w[i] * (diff * diff);
    }
    return sum;
}

static float affine_distance(const float *x, const float *w, int n, const int *code, float scale,
                             float lo) {
    float sum = 0.0f;
    for (int i = 0; i < n; i++)
        sum += w[i] * fabsf(scale * (float)code[i] + lo - x[i]);
    return sum;
}

// Weighted least squares x ~ scale * code + lo with lo <= 0; false when the codes are degenerate.
static bool affine_fit(const float *x, const float *w, int n, const int *code, float *scale,
                       float *lo) {
    float sw = 0.0f, sx = 0.0f, sl = 0.0f, sll = 0.0f, sxl = 0.0f;
    for (int i = 0; i < n; i++) {
        float l = (float)code[i];
        sw += w[i];
        sx += w[i] * x[i];
        sl += w[i] * l;
        sll += w[i] * l * l;
        sxl += w[i] * l * x[i];
    }
    float det = sw * sll - sl * sl;
    if (!(det > 0.0f))
        return false;
    *scale = (sw * sxl - sx * sl) / det;
    *lo = (sll * sx - sl * sxl) / det;
    if (*lo > 0.0f) {
        *lo = 0.0f;
        *scale = sxl / sll;
    }
    return true;
}

float quant_search_affine(const float *x, const float *w, int n, const struct quant_grid *grid,
                          int *code, float *minimum) {
    float (*const measure)(const float *, const float *, int, const int *, float, float) =
        grid->absolute ? affine_distance : affine_error;
    float lo = x[0], hi = x[0];
    for (int i = 1; i < n; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    lo = lo > 0.0f ? 0.0f : lo;
    memset(code, 0, (size_t)n * sizeof *code);
    *minimum = -lo;
    if (!(hi - lo > QUANT_NEGLIGIBLE))
        return 0.0f;
    float inv = (float)grid->top / (hi - lo), scale = 1.0f / inv;
    affine_codes(x, n, inv, lo, grid->top, code);
    float best = measure(x, w, n, code, scale, lo);
    for (int s = 0; s <= grid->count; s++) {
        int trial[QUANT_GROUP];
        float a, c;
        inv = (grid->start + grid->step * (float)s + (float)grid->top) / (hi - lo);
        affine_codes(x, n, inv, lo, grid->top, trial);
        if (!affine_fit(x, w, n, trial, &a, &c))
            continue;
        float error = measure(x, w, n, trial, a, c);
        if (error < best) {
            memcpy(code, trial, (size_t)n * sizeof *code);
            best = error;
            scale = a;
            lo = c; // the next trials start from the better minimum
        }
    }
    *minimum = -lo;
    return scale;
}

static void positive_codes(const float *x, int n, float inv, int top, int *code) {
    for (int i = 0; i < n; i++)
        code[i] = clamp_int(round_even(inv * x[i]), 0, top);
}

float quant_search_positive(const float *x, const float *w, int n, int top, int *code) {
    float most = 0.0f, best = INFINITY, kept = 0.0f;
    struct fit s = {0};
    for (int i = 0; i < n; i++)
        most = x[i] > most ? x[i] : most;
    if (!(most > QUANT_NEGLIGIBLE)) {
        memset(code, 0, (size_t)n * sizeof *code);
        return 0.0f;
    }
    for (int t = 0; t <= 8; t++) {
        // 0 first, so that the others must be better than it: 0, -4 .. -1, 1 .. 4.
        int tenths = t == 0 ? 0 : t <= 4 ? t - 5 : t - 4;
        float inv = ((float)top + 0.1f * (float)tenths) / most;
        positive_codes(x, n, inv, top, code);
        float error = affine_error(x, w, n, code, 1.0f / inv, 0.0f);
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

// The size is kept beside the value: clang 19 takes the wrong sign when a loop that compares the
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
