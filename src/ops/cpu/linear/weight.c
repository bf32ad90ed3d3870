// SPDX-License-Identifier: Apache-2.0
// Weights in the CPU's own order (struct weight in ops/cpu/simd/row/row.h): 16 output rows side by
// side, so that a vector lane is an output row and no sum ever crosses lanes. Repacking runs once,
// at load.
#include "ops/cpu/linear/weight.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/grid.h"
#include "formats/quant/quant.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/pages.h"

static int64_t number_bytes(enum linear_form f) {
    return f == FORM_F32 ? 4 : 2;
}

// Shape and sizes of a tensor's packed form; false when linear layers cannot read it.
static bool layout(const struct tensor *t, bool woven, struct weight *w) {
    const struct unpack_row *row = unpack_row(t->type);
    const struct quant_format *q = quant_format(t->type);
    if (!row || t->ne[2] < 1 || t->ne[2] > OPS_EXPERTS_MAX || t->ne[3] != 1 ||
        quant_row_bytes(q, t->ne[0]) < 0)
        return false;
    *w = (struct weight){
        .type = t->type,
        .form = row->form,
        .k = t->ne[0],
        .m = t->ne[1],
        .experts = t->ne[2],
        .tiles = ceil_div(t->ne[1], TILE),
        .source = t->data,
        .source_row = quant_row_bytes(q, t->ne[0]),
    };
    if (!row->unpack) {
        int64_t k = w->form == FORM_BF16 ? round_up(w->k, GROUP) : w->k;
        w->scales_at = k * TILE * number_bytes(w->form);
        w->tile_bytes = round_up(w->scales_at, 64);
        return true;
    }
    const struct form *f = linear_form(w->form);
    int64_t groups = w->k / GROUP, codes = groups * group_bytes(*f);
    w->woven = woven;
    w->scales_at = woven ? 0 : codes;
    int64_t scales = woven ? ceil_div(groups, WOVEN) * scale_bytes(*f)
                           : ceil_div(groups * scale_bytes(*f), WOVEN);
    w->tile_bytes = round_up(codes + scales, 64);
    return true;
}

int64_t cpu_weight_bytes(const struct exec *x, const struct tensor *t) {
    struct weight w;
    const struct cpu *c = (const struct cpu *)x;
    return layout(t, c->row.woven, &w) ? w.experts * w.tiles * w.tile_bytes : 0;
}

// Bytes lose the offset here; shorter codes keep it.
static void put_codes(const struct form *f, unsigned char *codes, const struct unpacked *u,
                      int count, int lane) {
    int offset = f->shift ? 1 << f->shift : 0;
    for (int i = 0; i < count; i++) {
        int j = i % GROUP / 4, code = u->code[i];
        unsigned char *p = codes + i / GROUP * group_bytes(*f) + lane * 4 + i % 4;
        if (f->bits == 8) {
            p[j * 64] = (unsigned char)(code - offset);
            continue;
        }
        p[j % 4 * 64] = (unsigned char)(p[j % 4 * 64] | (code & 15) << (j < 4 ? 0 : 4));
        if (f->bits == 6)
            p[256 + j % 2 * 64] = (unsigned char)(p[256 + j % 2 * 64] | code >> 4 << j / 2 * 2);
    }
}

// group: the block's first group of 32; count: values in the block.
static void put_scales(const struct form *f, unsigned char *scales, const struct unpacked *u,
                       int64_t group, int count, int lane) {
    int subs = count / GROUP * f->subs;
    if (f->scale == SCALE_FLOAT) {
        for (int s = 0; s < subs; s++)
            memcpy(scales + ((group * f->subs + s) * TILE + lane) * 4, &u->f[s], 4);
    } else if (f->scale == SCALE_HALF) {
        unsigned char *p = scales + group * 2 * TILE * (1 + f->min);
        memcpy(p + 2 * lane, &u->d, 2);
        if (f->min)
            memcpy(p + 2 * (TILE + lane), &u->dm, 2);
    } else {
        int n = subs * TILE;
        unsigned char *p = scales + group / 8 * (n + 2 * TILE) * (1 + f->min);
        unsigned char *d = p + n * (1 + f->min);
        memcpy(d + 2 * lane, &u->d, 2);
        if (f->min)
            memcpy(d + 2 * (TILE + lane), &u->dm, 2);
        for (int s = 0; s < subs; s++) {
            p[s * TILE + lane] = (unsigned char)u->s[s];
            if (f->min)
                p[n + s * TILE + lane] = (unsigned char)u->m[s];
        }
    }
}

// Where group g's codes are, and which group's place its scales take after *scales.
static unsigned char *codes_of(const struct weight *w, const struct form *f, unsigned char *tile,
                               int64_t g, unsigned char **scales, int64_t *place) {
    *scales = tile + w->scales_at;
    *place = g;
    if (!w->woven)
        return tile + g * group_bytes(*f);
    *scales = tile + g / WOVEN * (scale_bytes(*f) + WOVEN * group_bytes(*f));
    *place = g % WOVEN;
    return *scales + scale_bytes(*f) + *place * group_bytes(*f);
}

static void pack_quant_row(const struct weight *w, const struct unpack_row *row, int64_t m) {
    const struct quant_format *q = quant_format(w->type);
    const struct form *f = linear_form(w->form);
    unsigned char *tile = w->data + m / TILE * w->tile_bytes, *codes, *scales;
    const unsigned char *src = w->source + m * w->source_row;
    struct unpacked u;
    for (int64_t k = 0; k < w->k; k += q->block, src += q->bytes) {
        row->unpack(src, &u);
        int64_t place;
        codes = codes_of(w, f, tile, k / GROUP, &scales, &place);
        put_codes(f, codes, &u, q->block, (int)(m % TILE));
        put_scales(f, scales, &u, place, q->block, (int)(m % TILE));
    }
}

static void pack_number_row(const struct weight *w, int64_t m) {
    int64_t each = number_bytes(w->form), side = w->form == FORM_BF16 ? 2 : 1;
    unsigned char *dst = w->data + m / TILE * w->tile_bytes + m % TILE * side * each;
    const unsigned char *src = w->source + m * w->source_row;
    for (int64_t k = 0; k < w->k; k++)
        memcpy(dst + (k / side * side * TILE + k % side) * each, src + k * each, (size_t)each);
}

struct pack {
    const struct weight *w;
    const struct row_kernels *k;
};

static void pack_some(const struct pack *a, const struct weight *w, int64_t begin, int64_t end) {
    const struct unpack_row *row = unpack_row(w->type);
    int64_t last = end * TILE < w->m ? end * TILE : w->m;
    for (int64_t m = begin * TILE; m < last; m++) {
        if (row->unpack)
            pack_quant_row(w, row, m);
        else
            pack_number_row(w, m);
    }
    for (int64_t t = begin; t < end && row->unpack && a->k->arrange; t++)
        a->k->arrange(w, w->data + t * w->tile_bytes);
}

static void pack_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct pack *a = arg;
    for (int64_t n; begin < end; begin += n) {
        struct weight w = weight_expert(a->w, begin / a->w->tiles);
        int64_t first = begin % w.tiles;
        n = end - begin < w.tiles - first ? end - begin : w.tiles - first;
        pack_some(a, &w, first, first + n);
    }
}

int cpu_weight_create(struct exec *x, const struct tensor *t, struct weight **out, struct err *e) {
    struct weight shape;
    *out = NULL;
    if (!layout(t, cpu_of(x)->row.woven, &shape))
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s (%s, %lld x %lld) is not a matrix, or one per expert, of a type "
                       "that linear layers read on the CPU; convert it to Q8_0 or F16",
                       t->name ? t->name : "?",
                       quant_format(t->type) ? quant_format(t->type)->name : "unknown type",
                       (long long)t->ne[0], (long long)t->ne[1]);
    if (t->n_dims > 2) {
        int rc = cpu_moe_reserve(x, shape.k, e);
        if (rc)
            return rc;
    }
    int64_t tiles = shape.experts * shape.tiles;
    struct weight *w = malloc(sizeof *w);
    unsigned char *data = pages_alloc(&cpu_of(x)->pages, (size_t)(tiles * shape.tile_bytes));
    if (!w || !data) {
        free(w);
        pages_free(&cpu_of(x)->pages, data);
        return err_set(e, ERR_MEMORY,
                       "out of memory for tensor %s (%lld bytes); use a smaller model",
                       t->name ? t->name : "?", (long long)(tiles * shape.tile_bytes));
    }
    *w = shape;
    w->data = data;
    struct pack job = {w, &cpu_of(x)->row};
    cpu_run(cpu_of(x), tiles, w->k * TILE, pack_tiles, &job);
    *out = w;
    return 0;
}

void cpu_weight_destroy(struct exec *x, struct weight *w) {
    if (w)
        pages_free(&cpu_of(x)->pages, w->data);
    free(w);
}

// File formats to codes and scales: one function and one table row a type. Layouts are those of
// docs/formats.md; tests/opcheck holds the products against the decoders of src/formats.

static const struct form forms[FORM_COUNT] = {
#define X(name, bits, shift, subs, min, scale) [FORM_##name] = {bits, shift, subs, min, scale},
    LINEAR_FORMS(X)
#undef X
};

const struct form *linear_form(enum linear_form f) {
    return &forms[f];
}

static uint16_t u16_at(const unsigned char *b) {
    return (uint16_t)(b[0] | b[1] << 8);
}

static void nibbles(const unsigned char *q, uint8_t *code) {
    for (int j = 0; j < 16; j++) {
        code[j] = q[j] & 15;
        code[j + 16] = q[j] >> 4;
    }
}

static void q4_0(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    nibbles(b + 2, u->code);
}

// The file adds its minimum, a form subtracts it: the sign of an fp16 is its top bit.
static void q4_1(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    u->dm = u16_at(b + 2) ^ 0x8000;
    nibbles(b + 4, u->code);
}

static void fifth_bits(const unsigned char *h, uint8_t *code) {
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(code[i] | (h[i / 8] >> i % 8 & 1) << 4);
}

static void q5_0(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    nibbles(b + 6, u->code);
    fifth_bits(b + 2, u->code);
}

static void q5_1(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    u->dm = u16_at(b + 2) ^ 0x8000;
    nibbles(b + 8, u->code);
    fifth_bits(b + 4, u->code);
}

static void q8_0(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    for (int i = 0; i < 32; i++)
        u->code[i] = b[2 + i] ^ 0x80;
}

// IQ4 codes stand for these values; stored with 128 added.
static void iq4_codes(const unsigned char *q, uint8_t *code) {
    static const int8_t value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                     1,    13,   25,  38,  53,  69,  89,  113};
    nibbles(q, code);
    for (int i = 0; i < 32; i++)
        code[i] = (uint8_t)(value[code[i]] + 128);
}

static void iq4_nl(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    iq4_codes(b + 2, u->code);
}

static void iq4_xs(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    for (int k = 0; k < 8; k++) {
        int low = b[4 + k / 2] >> 4 * (k % 2) & 15, high = u16_at(b + 2) >> 2 * k & 3;
        u->s[k] = (int8_t)(low + 16 * high - 32);
        iq4_codes(b + 8 + 16 * k, u->code + 32 * k);
    }
}

// fp4 codes stand for twice these values; stored with 16 added, so scales are halved.
static uint8_t fp4(int nibble) {
    static const int8_t value[8] = {0, 1, 2, 3, 4, 6, 8, 12};
    return (uint8_t)(16 + (nibble & 8 ? -value[nibble & 7] : value[nibble & 7]));
}

static void mxfp4(const unsigned char *b, struct unpacked *u) {
    u->f[0] = ldexpf(1.0f, b[0] - 128);
    nibbles(b + 1, u->code);
    for (int i = 0; i < 32; i++)
        u->code[i] = fp4(u->code[i]);
}

static float ue4m3(int code) {
    int e = code >> 3 & 15, m = code & 7;
    if (code == 0x7F)
        return 0;
    return e ? ldexpf((float)(8 + m), e - 10) : ldexpf((float)m, -9);
}

static void nvfp4(const unsigned char *b, struct unpacked *u) {
    for (int i = 0; i < 64; i++) {
        int byte = b[4 + i / 16 * 8 + i % 8];
        u->code[i] = fp4(i % 16 < 8 ? byte & 15 : byte >> 4);
    }
    for (int s = 0; s < 4; s++)
        u->f[s] = 0.5f * ue4m3(b[s]);
}

// 6-bit scales and minima of Q4_K and Q5_K.
static void k_scales(const unsigned char *c, struct unpacked *u) {
    for (int k = 0; k < 4; k++) {
        u->s[k] = c[k] & 63;
        u->m[k] = c[k + 4] & 63;
        u->s[k + 4] = (int8_t)((c[k + 8] & 15) + 16 * (c[k] >> 6));
        u->m[k + 4] = (int8_t)((c[k + 8] >> 4) + 16 * (c[k + 4] >> 6));
    }
}

static void k_nibbles(const unsigned char *q, uint8_t *code) {
    for (int i = 0; i < 256; i++) {
        int byte = q[i / 64 * 32 + i % 32];
        code[i] = (uint8_t)(i % 64 < 32 ? byte & 15 : byte >> 4);
    }
}

static void q4_k(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    u->dm = u16_at(b + 2);
    k_scales(b + 4, u);
    k_nibbles(b + 16, u->code);
}

static void q5_k(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b);
    u->dm = u16_at(b + 2);
    k_scales(b + 4, u);
    k_nibbles(b + 48, u->code);
    for (int i = 0; i < 256; i++)
        u->code[i] = (uint8_t)(u->code[i] | (b[16 + i % 32] >> i / 32 & 1) << 4);
}

static void q6_k(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b + 208);
    memcpy(u->s, b + 192, 16);
    for (int i = 0; i < 256; i++) {
        int n = i / 128, g = i % 128 / 32, l = i % 32;
        int low = b[64 * n + 32 * (g & 1) + l] >> (g < 2 ? 0 : 4) & 15;
        u->code[i] = (uint8_t)(low + 16 * (b[128 + 32 * n + l] >> 2 * g & 3));
    }
}

static void q2_k(const unsigned char *b, struct unpacked *u) {
    u->d = u16_at(b + 80);
    u->dm = u16_at(b + 82);
    for (int k = 0; k < 16; k++) {
        u->s[k] = b[k] & 15;
        u->m[k] = (int8_t)(b[k] >> 4);
    }
    for (int i = 0; i < 256; i++)
        u->code[i] = b[16 + i / 128 * 32 + i % 32] >> 2 * (i % 128 / 32) & 3;
}

static void q3_k(const unsigned char *b, struct unpacked *u) {
    const unsigned char *c = b + 96;
    u->d = u16_at(b + 108);
    for (int k = 0; k < 16; k++) {
        int low = k < 8 ? c[k] & 15 : c[k - 8] >> 4;
        u->s[k] = (int8_t)(low + 16 * (c[8 + k % 4] >> 2 * (k / 4) & 3) - 32);
    }
    for (int i = 0; i < 256; i++) {
        int n = i / 128, g = i % 128 / 32, l = i % 32;
        int low = b[32 + 32 * n + l] >> 2 * g & 3, high = b[l] >> (4 * n + g) & 1;
        u->code[i] = (uint8_t)(low + 4 * high);
    }
}

// Codes of a codebook, stored with `offset` added; a factor for every `each` values.
static void grid(quant_codes_fn *fn, const unsigned char *b, int offset, int each,
                 struct unpacked *u) {
    struct quant_codes c;
    fn(b, &c);
    for (int i = 0; i < 256; i++)
        u->code[i] = (uint8_t)(c.v[i] + offset);
    for (int s = 0; s < 256 / each; s++)
        u->f[s] = c.f[s * each / 16];
}

// -1 to 2 times one half; there is no form without scales of groups, so that these are 1.
static void ternary(quant_codes_fn *fn, const unsigned char *b, int d_at, struct unpacked *u) {
    struct quant_codes c;
    fn(b, &c);
    u->d = u16_at(b + d_at);
    memset(u->s, 1, sizeof u->s);
    for (int i = 0; i < 256; i++)
        u->code[i] = (uint8_t)(c.v[i] + 4);
}

static void tq1_0(const unsigned char *b, struct unpacked *u) {
    ternary(quant_codes_tq1_0, b, 52, u);
}

static void tq2_0(const unsigned char *b, struct unpacked *u) {
    ternary(quant_codes_tq2_0, b, 64, u);
}

#define GRID(name, offset, each)                                                                   \
    static void name(const unsigned char *b, struct unpacked *u) {                                 \
        grid(quant_codes_##name, b, offset, each, u);                                              \
    }
GRID(iq1_s, 16, 32)
GRID(iq1_m, 16, 16)
GRID(iq2_xxs, 128, 32)
GRID(iq2_xs, 128, 16)
GRID(iq2_s, 128, 16)
GRID(iq3_xxs, 128, 32)
GRID(iq3_s, 16, 32)

static const struct unpack_row rows[] = {
    {TYPE_F32, FORM_F32, NULL},
    {TYPE_F16, FORM_F16, NULL},
    {TYPE_BF16, FORM_BF16, NULL},
    {TYPE_Q8_0, FORM_B8_HALF, q8_0},
    {TYPE_Q4_0, FORM_N4_HALF, q4_0},
    {TYPE_Q4_1, FORM_N4_HALF_MIN, q4_1},
    {TYPE_Q5_0, FORM_B6_HALF, q5_0},
    {TYPE_Q5_1, FORM_B6_HALF_MIN, q5_1},
    {TYPE_Q2_K, FORM_N4_SUPER_2MIN, q2_k},
    {TYPE_Q3_K, FORM_N4_SUPER_2, q3_k},
    {TYPE_Q4_K, FORM_N4_SUPER_MIN, q4_k},
    {TYPE_Q5_K, FORM_B6_SUPER_MIN, q5_k},
    {TYPE_Q6_K, FORM_B6_SUPER_2, q6_k},
    {TYPE_IQ4_NL, FORM_B8_HALF, iq4_nl},
    {TYPE_IQ4_XS, FORM_B8_SUPER, iq4_xs},
    {TYPE_MXFP4, FORM_B6_FLOAT, mxfp4},
    {TYPE_NVFP4, FORM_B6_FLOAT_2, nvfp4},
    {TYPE_IQ1_S, FORM_B6_FLOAT, iq1_s},
    {TYPE_IQ1_M, FORM_B6_FLOAT_2, iq1_m},
    {TYPE_IQ2_XXS, FORM_B8_FLOAT, iq2_xxs},
    {TYPE_IQ2_XS, FORM_B8_FLOAT_2, iq2_xs},
    {TYPE_IQ2_S, FORM_B8_FLOAT_2, iq2_s},
    {TYPE_IQ3_XXS, FORM_B8_FLOAT, iq3_xxs},
    {TYPE_IQ3_S, FORM_B6_FLOAT, iq3_s},
    {TYPE_TQ1_0, FORM_N4_SUPER_2, tq1_0},
    {TYPE_TQ2_0, FORM_N4_SUPER_2, tq2_0},
};

const struct unpack_row *unpack_row(uint32_t type) {
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].type == type)
            return &rows[i];
    return NULL;
}
