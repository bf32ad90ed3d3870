// SPDX-License-Identifier: Apache-2.0
// Encoders of Q4_K, Q5_K and Q6_K. Each group's scale (and minimum) is searched by weighted least
// squares over a few trial steps; then the group scales are rounded under one super-block scale
// and the codes derived again from what a reader will see. The rules, with the trial grids and
// weights, are in docs/formats.md; the bytes equal those of the reference quantisers.
#include "formats/quant_impl.h"

#define NEGLIGIBLE 1e-15f

// Sums of the weighted fit of x by a scale times signed codes.
struct signed_fit {
    float xl, ll; // sum of w x l and of w l l, with w = x x
};

static int signed_code(float x, float inv, int half) {
    return clamp_int(round_even(inv * x), -half, half - 1);
}

static struct signed_fit fit_signed(const float *x, int n, float inv, int half) {
    struct signed_fit s = {0};
    for (int i = 0; i < n; i++) {
        float l = (float)signed_code(x[i], inv, half), w = x[i] * x[i];
        s.xl += w * x[i] * l;
        s.ll += w * l * l;
    }
    return s;
}

// Search A: the scale of n values with codes -half..half-1; code[] gets them with half added.
static float search_signed(const float *x, int n, int half, int *code) {
    float extreme = 0.0f;
    for (int i = 0; i < n; i++)
        extreme = fabsf(x[i]) > fabsf(extreme) ? x[i] : extreme;
    if (fabsf(extreme) < NEGLIGIBLE) {
        for (int i = 0; i < n; i++)
            code[i] = 0;
        return 0.0f;
    }
    float kept = (float)-half / extreme;
    struct signed_fit s = fit_signed(x, n, kept, half);
    float scale = s.ll > 0.0f ? s.xl / s.ll : 0.0f, best = scale * s.xl;
    for (int t = -9; t <= 9; t++) {
        if (t == 0)
            continue;
        float inv = -((float)half + 0.1f * (float)t) / extreme;
        s = fit_signed(x, n, inv, half);
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

// The trial grid of search B: inv = (start + step s + top) / (hi - lo) for s = 0..count.
struct affine_grid {
    int top, count;
    float start, step;
};

static float affine_error(const float *x, const float *w, const int *code, float scale, float lo) {
    float sum = 0.0f;
    for (int i = 0; i < 32; i++) {
        float diff = scale * (float)code[i] + lo - x[i];
        sum += w[i] * (diff * diff);
    }
    return sum;
}

static void affine_codes(const float *x, float inv, float lo, int top, int *code) {
    for (int i = 0; i < 32; i++)
        code[i] = clamp_int(round_even(inv * (x[i] - lo)), 0, top);
}

// Weighted least squares x ~ scale * code + lo with lo <= 0; false when the codes are degenerate.
static int affine_fit(const float *x, const float *w, const int *code, float *scale, float *lo) {
    float sw = 0.0f, sx = 0.0f, sl = 0.0f, sll = 0.0f, sxl = 0.0f;
    for (int i = 0; i < 32; i++) {
        float l = (float)code[i];
        sw += w[i];
        sx += w[i] * x[i];
        sl += w[i] * l;
        sll += w[i] * l * l;
        sxl += w[i] * l * x[i];
    }
    float det = sw * sll - sl * sl;
    if (!(det > 0.0f))
        return 0;
    *scale = (sw * sxl - sx * sl) / det;
    *lo = (sll * sx - sl * sxl) / det;
    if (*lo > 0.0f) {
        *lo = 0.0f;
        *scale = sxl / sll;
    }
    return 1;
}

// Search B over 32 values: the scale; code[] gets 0..top and *minimum the value to subtract (>= 0).
static float search_affine(const float *x, const struct affine_grid *grid, int *code,
                           float *minimum) {
    float w[32], lo = x[0], hi = x[0], squares = 0.0f;
    for (int i = 0; i < 32; i++) {
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
        squares += x[i] * x[i];
    }
    float typical = sqrtf(squares / 32.0f);
    for (int i = 0; i < 32; i++)
        w[i] = typical + fabsf(x[i]);
    lo = lo > 0.0f ? 0.0f : lo;
    memset(code, 0, 32 * sizeof *code);
    *minimum = -lo;
    if (!(hi - lo > NEGLIGIBLE))
        return 0.0f;
    float inv = (float)grid->top / (hi - lo), scale = 1.0f / inv;
    affine_codes(x, inv, lo, grid->top, code);
    float best = affine_error(x, w, code, scale, lo);
    for (int s = 0; s <= grid->count; s++) {
        int trial[32];
        float a, c;
        inv = (grid->start + grid->step * (float)s + (float)grid->top) / (hi - lo);
        affine_codes(x, inv, lo, grid->top, trial);
        if (!affine_fit(x, w, trial, &a, &c))
            continue;
        float error = affine_error(x, w, trial, a, c);
        if (error < best) {
            memcpy(code, trial, sizeof trial);
            best = error;
            scale = a;
            lo = c; // the next trials start from the better minimum
        }
    }
    *minimum = -lo;
    return scale;
}

// Packs eight 6-bit scales and minimums into 12 bytes.
static void pack_scales(const int *scale, const int *minimum, unsigned char *c) {
    for (int k = 0; k < 4; k++) {
        c[k] = (unsigned char)(scale[k] | (scale[k + 4] >> 4) << 6);
        c[k + 4] = (unsigned char)(minimum[k] | (minimum[k + 4] >> 4) << 6);
        c[k + 8] = (unsigned char)((scale[k + 4] & 15) | (minimum[k + 4] & 15) << 4);
    }
}

// Rounds eight values to 0..63 of their maximum and returns the half that scales them back.
static uint16_t round_group(const float *v, int *rounded) {
    float top = 0.0f;
    for (int k = 0; k < 8; k++)
        top = v[k] > top ? v[k] : top;
    float inv = top > 0.0f ? 63.0f / top : 0.0f;
    inv = isfinite(inv) ? inv : 0.0f;
    for (int k = 0; k < 8; k++)
        rounded[k] = clamp_int(round_even(inv * v[k]), 0, 63);
    return f32_to_f16(top / 63.0f);
}

// The part Q4_K and Q5_K share: writes d, dmin and the scales to b[0..15], codes 0..top to code.
static void affine_superblock(const float *x, const struct affine_grid *grid, unsigned char *b,
                              int *code) {
    float scale[8], minimum[8];
    int s[8], m[8];
    for (int k = 0; k < 8; k++)
        scale[k] = search_affine(x + 32 * k, grid, code + 32 * k, &minimum[k]);
    uint16_t d = round_group(scale, s), dm = round_group(minimum, m);
    store_u16(b, d);
    store_u16(b + 2, dm);
    pack_scales(s, m, b + 4);
    for (int i = 0; i < 256; i++) {
        float unit = f16_to_f32(d) * (float)s[i / 32];
        if (unit != 0.0f) {
            float shifted = x[i] + f16_to_f32(dm) * (float)m[i / 32];
            code[i] = clamp_int(round_even(shifted / unit), 0, grid->top);
        }
    }
}

static void pack_low_nibbles(const int *code, unsigned char *q) {
    for (int i = 0; i < 128; i++) {
        const int *pair = code + i / 32 * 64 + i % 32;
        q[i] = (unsigned char)((pair[0] & 15) | (pair[32] & 15) << 4);
    }
}

static void q4_k_encode(const float *x, unsigned char *b) {
    static const struct affine_grid grid = {.top = 15, .count = 20, .start = -1.0f, .step = 0.1f};
    int code[256];
    affine_superblock(x, &grid, b, code);
    pack_low_nibbles(code, b + 16);
}

static void q5_k_encode(const float *x, unsigned char *b) {
    static const struct affine_grid grid = {.top = 31, .count = 15, .start = -0.5f, .step = 0.1f};
    int code[256];
    affine_superblock(x, &grid, b, code);
    for (int l = 0; l < 32; l++) {
        unsigned byte = 0;
        for (int k = 0; k < 8; k++)
            byte |= ((unsigned)code[32 * k + l] >> 4 & 1u) << k;
        b[16 + l] = (unsigned char)byte;
    }
    pack_low_nibbles(code, b + 48);
}

static void pack_q6_k(const int *code, unsigned char *b) {
    for (int i = 0; i < 64; i++) {
        int half = i / 32, l = i % 32;
        const int *c = code + 128 * half + l;
        b[64 * half + l] = (unsigned char)((c[0] & 15) | (c[64] & 15) << 4);
        b[64 * half + 32 + l] = (unsigned char)((c[32] & 15) | (c[96] & 15) << 4);
        b[128 + 32 * half + l] =
            (unsigned char)(c[0] >> 4 | c[32] >> 4 << 2 | c[64] >> 4 << 4 | c[96] >> 4 << 6);
    }
}

static void q6_k_encode(const float *x, unsigned char *b) {
    int code[256];
    float scale[16], top = 0.0f;
    for (int k = 0; k < 16; k++) {
        scale[k] = search_signed(x + 16 * k, 16, 32, code + 16 * k);
        top = fabsf(scale[k]) > fabsf(top) ? scale[k] : top;
    }
    if (fabsf(top) < NEGLIGIBLE) {
        memset(b, 0, 210);
        return;
    }
    float inv = -128.0f / top;
    uint16_t d = f32_to_f16(1.0f / inv);
    store_u16(b + 208, d);
    for (int k = 0; k < 16; k++) {
        int s = clamp_int(round_even(inv * scale[k]), -128, 127);
        float unit = f16_to_f32(d) * (float)s;
        b[192 + k] = (unsigned char)(int8_t)s;
        for (int i = 16 * k; unit != 0.0f && i < 16 * k + 16; i++)
            code[i] = clamp_int(round_even(x[i] / unit), -32, 31) + 32;
    }
    pack_q6_k(code, b);
}

void quant_encode_q4_k(const float *src, void *dst, int64_t n) {
    encode_blocks(src, dst, n, 256, 144, q4_k_encode);
}

void quant_encode_q5_k(const float *src, void *dst, int64_t n) {
    encode_blocks(src, dst, n, 256, 176, q5_k_encode);
}

void quant_encode_q6_k(const float *src, void *dst, int64_t n) {
    encode_blocks(src, dst, n, 256, 210, q6_k_encode);
}
