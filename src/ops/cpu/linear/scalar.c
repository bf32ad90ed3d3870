// SPDX-License-Identifier: Apache-2.0
// The specification of the linear layers: what each output is, operation by operation. Integer
// sums are exact in any order; the f32 operations are one fma per scale in k order, so a result
// depends on nothing but the weight row and the activation row. The vector levels do the same for
// 16 outputs at a time.
#include "formats/quant/quant.h"
#include "ops/cpu/simd/row/row.h"

// The codes of a lane's weights in a group, without their offset.
static void codes_of(const struct form *f, const unsigned char *group, int lane,
                     int8_t code[GROUP]) {
    enum { HALF = GROUP / 2, HIGH = 256 }; // where the two high bits begin
    const unsigned char *at = group + lane * 4;
    int offset = f->shift ? 1 << f->shift : 0;
    if (f->bits == 8) {
        for (int k = 0; k < GROUP; k++)
            code[k] = (int8_t)at[k / 4 * 64 + k % 4];
        return;
    }
    for (int k = 0; k < HALF; k++) {
        int byte = at[k / 4 * 64 + k % 4];
        code[k] = (int8_t)((byte & 15) - offset);
        code[HALF + k] = (int8_t)((byte >> 4) - offset);
    }
    if (f->bits == 6)
        for (int k = 0; k < GROUP; k++)
            code[k] =
                (int8_t)(code[k] + ((at[HIGH + k / 4 % 2 * 64 + k % 4] >> k / 8 * 2 & 3) << 4));
}

static float half_at(const unsigned char *p, int i) {
    uint16_t h;
    memcpy(&h, p + 2 * i, 2);
    return f16_to_f32(h);
}

// Scale and minimum of one sub-group of one output row; at: the tile's scales.
static void scale_of(const struct form *f, const unsigned char *at, int64_t group, int sub,
                     int lane, float *scale, float *min) {
    *min = 0;
    if (f->scale == SCALE_FLOAT) {
        memcpy(scale, at + ((group * f->subs + sub) * TILE + lane) * 4, 4);
    } else if (f->scale == SCALE_HALF) {
        const unsigned char *p = at + group * 2 * TILE * (1 + f->min);
        *scale = half_at(p, lane);
        if (f->min)
            *min = half_at(p, TILE + lane);
    } else {
        int n = 8 * f->subs * TILE; // int8 scales of 256 values
        const unsigned char *p = at + group / 8 * (n + 2 * TILE) * (1 + f->min);
        int i = ((int)(group % 8) * f->subs + sub) * TILE + lane;
        const unsigned char *d = p + n * (1 + f->min);
        *scale = half_at(d, lane) * (float)(int8_t)p[i];
        if (f->min)
            *min = half_at(d, TILE + lane) * (float)(int8_t)p[n + i];
    }
}

// A group of one output row, taken apart once for all activation rows.
struct group {
    int8_t code[GROUP];
    float scale[2], min[2]; // of each sub-group
};

static void read_group(const struct form *f, const unsigned char *codes,
                       const unsigned char *scales, int64_t g, int lane, struct group *o) {
    codes_of(f, codes + g * group_bytes(*f), lane, o->code);
    for (int s = 0; s < f->subs; s++)
        scale_of(f, scales, g, s, lane, &o->scale[s], &o->min[s]);
}

// q: the group's codes of row i of block b.
static float add_group(const struct form *f, const struct group *w, float acc, const int8_t *q,
                       const struct act_block *b, int i) {
    int width = GROUP / f->subs;
    for (int s = 0; s < f->subs; s++) {
        int sum = 0;
        for (int k = s * width; k < (s + 1) * width; k++)
            sum += w->code[k] * q[k];
        acc = fmaf((float)sum, w->scale[s] * b->d[i], acc);
        if (f->min)
            acc = fmaf(-w->min[s], f->subs == 1 ? b->ds[i] : b->ds16[s][i], acc);
    }
    return acc;
}

static void put(const struct linear_part *p, float *out, float value) {
    *out = p->add ? *out + value : value;
}

static void linear_quant(const struct linear_part *p) {
    const struct weight *w = p->w;
    const struct form *f = code_form(w->form);
    const struct act_block *b = act_blocks(p->in, p->row);
    const int8_t *q = p->in->q + p->row * p->in->stride;
    for (int64_t at = 0; at < p->tiles * TILE; at++) {
        const unsigned char *codes = w->data + (p->tile + at / TILE) * w->tile_bytes;
        struct group group;
        float acc[ROWS] = {0};
        for (int64_t g = 0; g < w->k / GROUP; g++) {
            read_group(f, codes, codes + w->scales_at, g, (int)(at % TILE), &group);
            for (int i = 0; i < p->n; i++)
                acc[i] = add_group(f, &group, acc[i], q + i * p->in->stride + g * GROUP, b + g, i);
        }
        for (int i = 0; i < p->n; i++)
            put(p, p->out + i * p->stride + at, acc[i]);
    }
}

static float number_at(const struct weight *w, const unsigned char *p, int64_t i) {
    float f;
    if (w->form == FORM_F16)
        return half_at(p, (int)i);
    memcpy(&f, p + 4 * i, 4);
    return f;
}

// Four partial sums, k mod 4, merged in pairs: shorter chains for the processor, smaller errors.
static void linear_float(const struct linear_part *p) {
    const struct weight *w = p->w;
    for (int64_t at = 0; at < p->tiles * p->n; at++) {
        int64_t t = at / p->n, i = at % p->n;
        const unsigned char *numbers = w->data + (p->tile + t) * w->tile_bytes;
        const float *x = p->in->x + (p->row + i) * p->in->stride;
        for (int lane = 0; lane < TILE; lane++) {
            float a[4] = {0};
            for (int64_t k = 0; k < w->k; k++)
                a[k % 4] = fmaf(number_at(w, numbers, k * TILE + lane), x[k], a[k % 4]);
            put(p, p->out + i * p->stride + t * TILE + lane, (a[0] + a[1]) + (a[2] + a[3]));
        }
    }
}

// Tile products of bf16 take numbers below the normal ones for zeros, and make none.
static float normal(float x) {
    return fabsf(x) < 0x1p-126f ? copysignf(0, x) : x;
}

static float bf16_at(const uint16_t *p) {
    return normal(bf16_to_f32(*p));
}

// 32 products: those of even and of odd k in order, then both sums together.
static float bf16_block(const uint16_t *w, const uint16_t *x) {
    float sum[2] = {0, 0};
    for (int k = 0; k < GROUP; k++)
        sum[k % 2] =
            normal(fmaf(bf16_at(x + k), bf16_at(w + k / 2 * 2 * TILE + k % 2), sum[k % 2]));
    return normal(sum[0] + sum[1]);
}

// What AMX makes of bf16 (TDPBF16PS in Intel's manual), block by block.
static void linear_bf16(const struct linear_part *p) {
    const struct weight *w = p->w;
    int64_t stride = p->in->stride;
    for (int64_t at = 0; at < p->tiles * p->n; at++) {
        int64_t t = at / p->n, i = at % p->n;
        const uint16_t *tile = (const uint16_t *)(w->data + (p->tile + t) * w->tile_bytes);
        const uint16_t *x = p->in->h + (p->row + i) * stride;
        for (int lane = 0; lane < TILE; lane++) {
            float acc = 0;
            for (int64_t k = 0; k < stride; k += GROUP)
                acc = normal(acc + bf16_block(tile + k * TILE + 2 * lane, x + k));
            put(p, p->out + i * p->stride + t * TILE + lane, acc);
        }
    }
}

static void to_bf16(const float *x, uint16_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        out[i] = f32_to_bf16(x[i]);
}

void linear_fill_scalar(struct row_kernels *r) {
    for (int f = 0; f < FORM_F32; f++)
        r->linear[f] = linear_quant;
    r->linear[FORM_F32] = linear_float;
    r->linear[FORM_F16] = linear_float;
    r->linear[FORM_BF16] = linear_bf16;
    r->to_bf16 = to_bf16;
}
