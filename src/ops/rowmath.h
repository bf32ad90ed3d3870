// SPDX-License-Identifier: Apache-2.0
// Elementary functions as every CPU level and the sampling kernels compute them: the same
// operations in the same order, so that levels agree to the bit. The constants are shared with the
// vector templates.
#ifndef COPPICE_OPS_ROWMATH_H
#define COPPICE_OPS_ROWMATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/rng.h"

// e^x as every level computes it: x = n ln 2 + r, a Taylor polynomial in r, and 2^n put into the
// exponent. Below -60 (and for -inf) exactly 0: what that drops is far under any rounding, and
// products with it cannot become subnormal, which costs a hundred cycles each; above 88.3 as at
// 88.3. Error below 2 ulp.
#define EXP_LO    (-60.0f)
#define EXP_HI    88.3f
#define EXP_LOG2E 1.44269504f
#define EXP_LN2_A 0.693359375f      // 9 bits: n times it is exact
#define EXP_LN2_B (-2.12194440e-4f) // ln 2 minus the above
#define EXP_ROUND 12582912.0f       // 1.5 * 2^23: adding it rounds to an integer
#define EXP_TERMS {1.0f / 5040, 1.0f / 720, 1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f}

RNG_FN float row_exp(float x) {
    const float term[8] = EXP_TERMS;
    float c = x < EXP_HI ? x : EXP_HI;
    float shifted = fmaf(c, EXP_LOG2E, EXP_ROUND);
    float n = shifted - EXP_ROUND;
    float r = fmaf(-n, EXP_LN2_B, fmaf(-n, EXP_LN2_A, c));
    float p = term[0];
    for (int i = 1; i < 8; i++)
        p = fmaf(p, r, term[i]);
    if (!(x >= EXP_LO))
        return 0.0f;
    uint32_t bits, power;
    memcpy(&bits, &p, 4);
    memcpy(&power, &shifted, 4);
    bits += power << 23;
    memcpy(&p, &bits, 4);
    return p;
}

// ln x for normal x > 0: x = 2^n m with m in [0.707, 1.414], ln m by the series of 2 atanh(s) at
// s = (m - 1) / (m + 1). Relative error below 3 ulp, also near x = 1.
#define LOG_SPLIT 0x3F3504F3 // bits of sqrt(1/2)
#define LOG_TERMS {2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f}

RNG_FN float row_log(float x) {
    const float term[5] = LOG_TERMS;
    int32_t bits, part;
    memcpy(&bits, &x, 4);
    int32_t n = (bits - LOG_SPLIT) >> 23; // arithmetic: rounds down
    part = bits - (int32_t)((uint32_t)n << 23);
    float m, p = term[0];
    memcpy(&m, &part, 4);
    float s = (m - 1.0f) / (m + 1.0f), s2 = s * s;
    for (int i = 1; i < 5; i++)
        p = fmaf(p, s2, term[i]);
    return fmaf((float)n, EXP_LN2_A, fmaf((float)n, EXP_LN2_B, p * s));
}

// Gumbel noise of a counter: -ln(-ln u), u = rng_unit(rng_hash(seed, position, id, 0));
// key = rng_mix(rng_mix(seed) ^ position).
RNG_FN float row_gumbel(uint64_t key, int64_t id) {
    return -row_log(-row_log(rng_unit(rng_mix(rng_mix(key ^ (uint64_t)id)))));
}

RNG_FN float row_sigmoid(float x) {
    return 1.0f / (1.0f + row_exp(-x));
}

// ln(1 + e^x). What 1 + e^x loses of e^x by rounding is put back: it is all there is for x < -17.
RNG_FN float row_softplus(float x) {
    float e = row_exp(x), u = 1.0f + e;
    return row_log(u) + (e - (u - 1.0f)) / u;
}

// tanh x: for |x| < 1/4 its series, else (1 - e^-2|x|) / (1 + e^-2|x|). Relative error below 4 ulp.
#define TANH_SMALL 0.25f
#define TANH_TERMS {62.0f / 2835, -17.0f / 315, 2.0f / 15, -1.0f / 3}

RNG_FN float row_tanh(float x) {
    const float term[4] = TANH_TERMS;
    float a = fabsf(x), x2 = x * x, p = term[0], e = row_exp(-2.0f * a);
    for (int i = 1; i < 4; i++)
        p = fmaf(p, x2, term[i]);
    float far = (1.0f - e) / (1.0f + e);
    return a < TANH_SMALL ? fmaf(x * x2, p, x) : copysignf(far, x);
}

RNG_FN float row_silu(float x) {
    return x * row_sigmoid(x);
}

// x Phi(x) by its tanh form, x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))): since (1 + tanh y) / 2
// is sigmoid(2 y), it needs no function of its own.
RNG_FN float row_gelu_tanh(float x) {
    float y = 1.59576912f * fmaf(0.044715f * x * x, x, x); // 2 sqrt(2/pi) (..)
    return x * row_sigmoid(y);
}

// One value of ACTIVATION_SWIGLU_CLAMPED (gpt-oss): g sigmoid(1.702 g) (u + 1) within limits.
RNG_FN float row_swiglu_clamped(float g, float u) {
    const float limit = 7.0f;
    g = g < limit ? g : limit;
    u = u > -limit ? u < limit ? u : limit : -limit;
    return g * row_sigmoid(1.702f * g) * (u + 1.0f);
}

#endif
