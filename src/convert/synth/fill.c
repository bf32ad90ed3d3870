// SPDX-License-Identifier: Apache-2.0
// Random blocks of each element type. A quantised block is random bits with its scales set so that
// the values have the wanted spread and no common offset: a matrix whose entries lean one way would
// feed the same direction back into every layer until nothing else is left.
#include "convert/synth/fill.h"

#include <math.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "formats/quant/quant.h"

enum { PLAIN_BLOCK = 256 };

int64_t synth_block(uint32_t type) {
    const struct quant_format *f = quant_format(type);
    return f->block > 1 ? f->block : PLAIN_BLOCK;
}

// Standard deviation of the integers of a block, with the sub-block scales of K formats.
static double spread_of(uint32_t type) {
    switch (type) {
    case TYPE_Q8_0:
        return 73.9;
    case TYPE_Q4_0:
    case TYPE_Q4_1:
        return 4.61;
    case TYPE_Q5_0:
    case TYPE_Q5_1:
        return 9.23;
    case TYPE_IQ4_NL:
        return 67.44;
    case TYPE_IQ4_XS:
        return 1246;
    case TYPE_MXFP4:
        return 5.852;
    case TYPE_Q2_K:
        return 10.72;
    case TYPE_Q3_K:
        return 43.34;
    case TYPE_Q4_K:
        return 190.4;
    case TYPE_Q5_K:
        return 381.4;
    case TYPE_Q6_K:
        return 1365;
    case TYPE_IQ1_S:
    case TYPE_IQ1_M:
        return 7.19;
    case TYPE_IQ2_XXS:
        return 53.3;
    case TYPE_IQ2_XS:
        return 56.0;
    case TYPE_IQ2_S:
        return 56.5;
    case TYPE_IQ3_XXS:
        return 142.7;
    case TYPE_IQ3_S:
        return 140.9;
    case TYPE_TQ1_0:
        return 0.8165;
    case TYPE_TQ2_0:
        return 0.7071;
    default:
        return 0;
    }
}

bool synth_fill_init(struct synth_fill *f, const struct synth_tensor *t, uint64_t seed) {
    f->t = t;
    f->seed = seed;
    for (int i = 0; i < SYNTH_TABLE; i++) {
        float v = t->mean + t->half * (2 * ((float)i + 0.5f) / (float)SYNTH_TABLE - 1);
        f->table[i] = t->type == TYPE_BF16 ? f32_to_bf16(v) : f32_to_f16(v);
    }
    return t->type == TYPE_F32 || t->type == TYPE_F16 || t->type == TYPE_BF16 ||
           spread_of(t->type) > 0;
}

static void put_half(unsigned char *p, float v) {
    uint16_t h = f32_to_f16(v);
    memcpy(p, &h, sizeof h);
}

// Eight six-bit scales and mins of Q4_K and Q5_K (docs/formats.md), scales 16..62. A min as large
// as its scale takes back the middle of the quants; it is one more as often as one less.
static void put_scales(unsigned char *c, uint64_t h) {
    unsigned s[8], m[8];
    uint64_t r = rng_mix(h);
    for (int i = 0; i < 8; i++) {
        s[i] = 16 + (unsigned)((h >> 8 * i & 255) * 47 >> 8);
        m[i] = s[i] - (unsigned)(r >> i & 1) + (unsigned)(r >> (8 + i) & 1);
    }
    for (int i = 0; i < 4; i++) {
        c[i] = (unsigned char)(s[i] | s[i + 4] >> 4 << 6);
        c[i + 4] = (unsigned char)(m[i] | m[i + 4] >> 4 << 6);
        c[i + 8] = (unsigned char)((s[i + 4] & 15) | (m[i + 4] & 15) << 4);
    }
}

// Sixteen scales 4..14 and mins of Q2_K, as above.
static void put_small_scales(unsigned char *c, uint64_t h) {
    for (int i = 0; i < 16; i++) {
        uint64_t r = rng_mix(h + (uint64_t)i);
        unsigned s = 4 + (unsigned)((r & 255) * 11 >> 8);
        unsigned m = s - (unsigned)(r >> 8 & 1) + (unsigned)(r >> 9 & 1);
        c[i] = (unsigned char)(s | m << 4);
    }
}

// The exponent byte of MXFP4: of the powers of two below and above d one by chance, so that the
// mean square is that of d.
static unsigned char exponent_byte(float d, uint64_t h) {
    int e;
    float f = 2.0f * frexpf(d, &e); // d = f * 2^(e - 1), f in [1, 2)
    bool above = 3.0f * rng_unit(rng_mix(h)) < f * f - 1.0f;
    return (unsigned char)(e - 1 + above + 128);
}

// The half that scales a block of IQ1_M is in the top nibbles of four words.
static void put_nibbles(unsigned char *p, uint16_t half) {
    for (int k = 0; k < 4; k++)
        p[2 * k + 1] = (unsigned char)((p[2 * k + 1] & 15) | (half >> 4 * k & 15) << 4);
}

// TQ2_0: digits of 3, which stand for two steps up, become 1, the middle.
static void put_digits(unsigned char *p) {
    for (int i = 0; i < 64; i++)
        p[i] = (unsigned char)(p[i] & ~((p[i] & p[i] << 1) & 0xAA));
}

// Sets the scales of one block of random bits. d: scale; h: random bits of the block.
static void put_scale(uint32_t type, unsigned char *b, float d, uint64_t h) {
    float either = h & 1 ? d : -d;
    switch (type) {
    case TYPE_Q8_0:
    case TYPE_Q4_0:
    case TYPE_Q5_0:
    case TYPE_IQ4_NL:
    case TYPE_IQ4_XS:
        put_half(b, either);
        break;
    case TYPE_MXFP4:
        b[0] = exponent_byte(d, h);
        break;
    case TYPE_Q2_K:
        put_small_scales(b, h);
        put_half(b + 80, d);
        put_half(b + 82, d * 1.5f);
        break;
    case TYPE_Q3_K:
        put_half(b + 108, either);
        break;
    case TYPE_Q4_1:
    case TYPE_Q5_1:
        put_half(b, either);
        put_half(b + 2, either * (type == TYPE_Q4_1 ? -7.5f : -15.5f));
        break;
    case TYPE_Q4_K:
    case TYPE_Q5_K:
        put_half(b, d);
        put_half(b + 2, d * (type == TYPE_Q4_K ? 7.5f : 15.5f));
        put_scales(b + 4, rng_mix(h));
        break;
    case TYPE_IQ1_S:
    case TYPE_IQ2_XXS:
    case TYPE_IQ2_XS:
    case TYPE_IQ2_S:
    case TYPE_IQ3_XXS:
    case TYPE_IQ3_S:
        put_half(b, either);
        break;
    case TYPE_IQ1_M:
        put_nibbles(b + 48, f32_to_f16(either));
        break;
    case TYPE_TQ1_0:
        put_half(b + 52, either);
        break;
    case TYPE_TQ2_0:
        put_digits(b);
        put_half(b + 64, either);
        break;
    default: // Q6_K
        put_half(b + 208, d);
    }
}

static void fill_quants(const struct synth_fill *f, int64_t first, int64_t n, unsigned char *out) {
    uint32_t type = f->t->type;
    int bytes = quant_format(type)->bytes;
    double d = f->t->half / sqrt(3) / spread_of(type);
    for (int64_t i = 0; i < n; i++, out += bytes) {
        uint64_t h = rng_mix(f->seed ^ (uint64_t)(first + i)), r;
        for (int at = 0, k = 1; at < bytes; at += 8, k++) {
            r = rng_mix(h + (uint64_t)k);
            memcpy(out + at, &r, bytes - at < 8 ? (size_t)(bytes - at) : 8);
        }
        put_scale(type, out, (float)(d * (0.75 + 0.5 * (double)rng_unit(h))), h);
    }
}

// n values from the first one of a block on.
static void fill_f32(const struct synth_fill *f, int64_t block, int64_t n, unsigned char *out) {
    uint64_t h = rng_mix(f->seed ^ (uint64_t)block);
    for (int64_t i = 0; i < n; i++) {
        float v = f->t->mean + f->t->half * (2 * rng_unit(rng_mix(h + (uint64_t)i)) - 1);
        memcpy(out + 4 * i, &v, sizeof v);
    }
}

static void fill_half(const struct synth_fill *f, int64_t block, int64_t n, unsigned char *out) {
    uint64_t h = rng_mix(f->seed ^ (uint64_t)block), r = 0;
    for (int64_t i = 0; i < n; i++, r >>= 12) {
        if (i % 5 == 0)
            r = rng_mix(h + (uint64_t)i);
        memcpy(out + 2 * i, &f->table[r % SYNTH_TABLE], 2);
    }
}

void synth_fill_blocks(const struct synth_fill *f, int64_t first, int64_t n, unsigned char *out) {
    const struct quant_format *q = quant_format(f->t->type);
    if (q->block > 1) {
        fill_quants(f, first, n, out);
        return;
    }
    int64_t total = f->t->ne[0] * f->t->ne[1] * f->t->ne[2];
    for (int64_t i = first; i < first + n; i++, out += PLAIN_BLOCK * q->bytes) {
        int64_t left = total - i * PLAIN_BLOCK, now = min_i64(left, PLAIN_BLOCK);
        if (q->bytes == 4)
            fill_f32(f, i, now, out);
        else
            fill_half(f, i, now, out);
    }
}
