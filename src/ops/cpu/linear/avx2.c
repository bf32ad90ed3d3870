// SPDX-License-Identifier: Apache-2.0
// Linear layers with AVX2: two vectors are the 16 outputs of a tile. Without VNNI the byte products
// go through 16-bit sums, added only as long as they cannot overflow: codes below 16 for a whole
// group (8 * 2 * 15 * 127 < 2^15), codes below 32 for four steps, below 64 for two, and full bytes
// as |w| times the activation with w's sign for one. So the integer sums are those of every other
// level. Codes of a group are unpacked once for all rows of a part, which take them two at a time.
#include <immintrin.h>

#include "ops/cpu/simd/row/row.h"

struct group {
    __m256i code[8][2]; // with 8 bits: signed weights
    __m256i size[8][2]; // and their magnitudes
    __m256 scale[2][2], min[2][2];
};

INLINE __m256 halves(const unsigned char *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

INLINE __m256 bytes(const unsigned char *p) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p)));
}

INLINE __m256i load(const unsigned char *p) {
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}

// Adds the upper two bits of 6.
INLINE void load_upper(const unsigned char *p, int h, struct group *g) {
    const __m256i two = _mm256_set1_epi8(0x30);
    for (int v = 0; v < 2; v++) {
        __m256i u = load(p + 64 * v + 32 * h);
        const __m256i field[4] = {_mm256_slli_epi16(u, 4), _mm256_slli_epi16(u, 2), u,
                                  _mm256_srli_epi16(u, 2)};
        for (int i = 0; i < 4; i++)
            g->code[2 * i + v][h] =
                _mm256_or_si256(g->code[2 * i + v][h], _mm256_and_si256(field[i], two));
    }
}

// One half of the outputs.
INLINE void load_codes(struct form f, const unsigned char *p, int h, struct group *g) {
    const __m256i low = _mm256_set1_epi8(15);
    for (int j = 0; j < (f.bits == 8 ? 8 : 4); j++) {
        __m256i v = load(p + 64 * j + 32 * h);
        g->code[j][h] = f.bits == 8 ? v : _mm256_and_si256(v, low);
        if (f.bits == 8)
            g->size[j][h] = _mm256_abs_epi8(v);
        else
            g->code[j + 4][h] = _mm256_and_si256(_mm256_srli_epi16(v, 4), low);
    }
    if (f.bits == 6)
        load_upper(p + 256, h, g);
}

INLINE void load_scales(struct form f, const unsigned char *scales, int64_t i, struct group *g) {
    int n = 8 * f.subs * TILE, sets = 1 + f.min;
    for (int s = 0; s < f.subs; s++)
        for (int h = 0; h < 2; h++) {
            int64_t at = i * f.subs + s;
            const unsigned char *p = scales + at * 2 * TILE * sets + 16 * h;
            if (f.scale == SCALE_FLOAT)
                g->scale[s][h] = _mm256_loadu_ps(
                    (const float *)(const void *)(scales + (at * TILE + 8 * h) * 4));
            if (f.scale == SCALE_HALF)
                g->scale[s][h] = halves(p);
            if (f.scale == SCALE_HALF && f.min)
                g->min[s][h] = halves(p + 2 * TILE);
            if (f.scale != SCALE_SUPER)
                continue;
            p = scales + i / 8 * (n + 2 * TILE) * sets;
            int64_t sub = (i % 8 * f.subs + s) * TILE + 8 * h;
            g->scale[s][h] = _mm256_mul_ps(halves(p + n * sets + 16 * h), bytes(p + sub));
            if (f.min)
                g->min[s][h] =
                    _mm256_mul_ps(halves(p + n * sets + 2 * TILE + 16 * h), bytes(p + n + sub));
        }
}

INLINE __m256i four(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    return _mm256_set1_epi32(v);
}

enum { SOME = 2 }; // rows that are taken together: their sums and two codes are in registers

// `rows` rows of a part, a constant of at most SOME.
struct some_rows {
    const int8_t *q;
    int64_t stride;
    int rows;
};

INLINE __m256i product(struct form f, const struct group *g, int rows, int j, int h, __m256i a) {
    __m256i code = g->code[j][h];
    if (f.bits == 8)
        return _mm256_maddubs_epi16(rows == 1 ? _mm256_abs_epi8(code) : g->size[j][h],
                                    _mm256_sign_epi8(a, code));
    return _mm256_maddubs_epi16(code, a);
}

// Steps of four k whose 16-bit sums cannot overflow together.
INLINE int steps_together(struct form f) {
    if (f.bits == 8)
        return 1;
    if (f.bits == 6)
        return f.shift == 5 ? 2 : 4;
    return 8 / f.subs;
}

// gcc adds integers in an order of its own, for which all products of a group are held at once.
INLINE __m256i in_order(__m256i v) {
#ifndef __clang__
    __asm__("" : "+x"(v));
#endif
    return v;
}

// Adds steps j .. j + each - 1 to the sums of each row and half, or begins them.
INLINE void add_steps(struct form f, const struct group *g, const struct some_rows *x, int j,
                      bool begin, __m256i sum[SOME][2]) {
    const __m256i ones = _mm256_set1_epi16(1);
    const int each = steps_together(f);
    __m256i part[SOME][2];
    UNROLL for (int i = 0; i < each; i++) UNROLL for (int r = 0; r < x->rows; r++) {
        __m256i a = four(x->q + r * x->stride + 4 * (j + i));
        UNROLL for (int h = 0; h < 2; h++) {
            __m256i p = product(f, g, x->rows, j + i, h, a);
            part[r][h] = i ? in_order(_mm256_add_epi16(part[r][h], p)) : p;
            if (i + 1 < each)
                continue;
            p = _mm256_madd_epi16(part[r][h], ones);
            sum[r][h] = begin ? p : in_order(_mm256_add_epi32(sum[r][h], p));
        }
    }
}

// One group of rows i .. of block b.
INLINE void add_group(struct form f, __m256 acc[][2], const struct group *g,
                      const struct some_rows *x, const struct act_block *b, int i) {
    UNROLL for (int s = 0; s < f.subs; s++) {
        const int32_t *nsum = (f.subs == 1 ? b->nsum : b->nsum16[s]) + i;
        const float *ds = (f.subs == 1 ? b->ds : b->ds16[s]) + i;
        const int steps = 8 / f.subs;
        __m256i sum[SOME][2];
        UNROLL for (int j = 0; j < steps; j += steps_together(f))
            add_steps(f, g, x, s * steps + j, j == 0, sum);
        UNROLL for (int r = 0; r < x->rows; r++) UNROLL for (int h = 0; h < 2; h++) {
            __m256i v = sum[r][h];
            if (f.shift && f.bits != 8) // the offset taken out
                v = _mm256_add_epi32(v, _mm256_slli_epi32(_mm256_set1_epi32(nsum[r]), f.shift));
            __m256 scale = _mm256_mul_ps(g->scale[s][h], _mm256_set1_ps(b->d[i + r]));
            acc[r][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(v), scale, acc[r][h]);
            if (f.min)
                acc[r][h] = _mm256_fnmadd_ps(g->min[s][h], _mm256_set1_ps(ds[r]), acc[r][h]);
        }
    }
}

INLINE void put(const struct linear_part *p, float *out, __m256 v) {
    _mm256_storeu_ps(out, p->add ? _mm256_add_ps(_mm256_loadu_ps(out), v) : v);
}

// Codes for several rows are read from memory again for each: the compiler would keep some in
// registers, and sums in memory.
#define IN_MEMORY(g) __asm__("" : "+m"(g))

// Tile t of the part.
INLINE void tile_rows(struct form f, const struct linear_part *p, int64_t t, int n) {
    const struct weight *w = p->w;
    const unsigned char *codes = w->data + (p->tile + t) * w->tile_bytes;
    const unsigned char *scales = codes;
    int64_t groups = w->k / GROUP, stride = p->in->stride;
    const int8_t *q = p->in->q + p->row * stride;
    const struct act_block *b = act_blocks(p->in, p->row);
    __m256 acc[ROWS][2];
    for (int i = 0; i < n; i++)
        acc[i][0] = acc[i][1] = _mm256_setzero_ps();
    for (int64_t i = 0; i < groups; i++, q += GROUP, b++, codes += group_bytes(f)) {
        struct group g;
        if (i % WOVEN == 0) {
            scales = codes;
            codes += scale_bytes(f);
        }
        load_codes(f, codes, 0, &g);
        load_codes(f, codes, 1, &g);
        load_scales(f, scales, i % WOVEN, &g);
        if (n == 1) {
            add_group(f, acc, &g, &(struct some_rows){q, stride, 1}, b, 0);
            continue;
        }
        IN_MEMORY(g);
        int r = 0;
        for (; r + SOME <= n; r += SOME) {
            add_group(f, acc + r, &g, &(struct some_rows){q + r * stride, stride, SOME}, b, r);
            IN_MEMORY(g);
        }
        if (r < n)
            add_group(f, acc + r, &g, &(struct some_rows){q + r * stride, stride, 1}, b, r);
    }
    for (int i = 0; i < n; i++)
        for (int h = 0; h < 2; h++)
            put(p, p->out + i * p->stride + t * TILE + 8 * h, acc[i][h]);
}

INLINE void part(struct form f, const struct linear_part *p) {
    for (int64_t t = 0; t < p->tiles; t++) {
        if (p->n == 1)
            tile_rows(f, p, t, 1);
        else
            tile_rows(f, p, t, p->n);
    }
}
CODE_FORMS(LINEAR_KERNEL)

INLINE __m256 numbers(enum code_form form, const unsigned char *p, int64_t i) {
    if (form == FORM_F32)
        return _mm256_loadu_ps((const float *)(const void *)(p + i * 4));
    return halves(p + i * 2);
}

// Rows [i, i + n) by `wide` halves of the outputs from h on, constants with n * wide at most 3:
// four partial sums each.
INLINE void number_rows(enum code_form form, const struct linear_part *part, int64_t t, int i,
                        int n, int h, int wide) {
    int64_t k = part->w->k, stride = part->in->stride, at = 0;
    const unsigned char *p = part->w->data + (part->tile + t) * part->w->tile_bytes;
    const float *x = part->in->x + (part->row + i) * stride;
    float *out = part->out + i * part->stride + t * TILE;
    __m256 acc[3][4];
    UNROLL for (int r = 0; r < n * wide; r++) UNROLL for (int s = 0; s < 4; s++) acc[r][s] =
        _mm256_setzero_ps();
    for (; at < k; at += 4)
        UNROLL for (int s = 0; s < 4; s++) UNROLL for (int v = 0; v < wide; v++) {
            if (at + s >= k)
                continue;
            __m256 w = numbers(form, p, (at + s) * TILE + 8 * (h + v));
            UNROLL for (int r = 0; r < n; r++) acc[r * wide + v][s] =
                _mm256_fmadd_ps(w, _mm256_set1_ps(x[r * stride + at + s]), acc[r * wide + v][s]);
        }
    UNROLL for (int r = 0; r < n * wide; r++) put(
        part, out + r / wide * part->stride + 8 * (h + r % wide),
        _mm256_add_ps(_mm256_add_ps(acc[r][0], acc[r][1]), _mm256_add_ps(acc[r][2], acc[r][3])));
}

#define NUMBERS(name, form)                                                                        \
    static void linear_##name(const struct linear_part *p) {                                       \
        for (int64_t t = 0; t < p->tiles; t++) {                                                   \
            int i = 0;                                                                             \
            for (; i + 3 <= p->n; i += 3)                                                          \
                for (int h = 0; h < 2; h++)                                                        \
                    number_rows(form, p, t, i, 3, h, 1);                                           \
            for (; i < p->n; i++)                                                                  \
                number_rows(form, p, t, i, 1, 0, 2);                                               \
        }                                                                                          \
    }
NUMBERS(f32, FORM_F32)
NUMBERS(f16, FORM_F16)
#undef NUMBERS

// Pairs of bf16 as floats, those of even and those of odd k.
INLINE __m256 even(__m256i v) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(v, 16));
}
INLINE __m256 odd(__m256i v) {
    return _mm256_castsi256_ps(_mm256_and_si256(v, _mm256_set1_epi32((int)0xFFFF0000)));
}

// Half h of the outputs for rows [i, i + n), n a constant of at most 4.
INLINE void bf16_rows(const struct linear_part *p, int64_t t, int h, int i, int n) {
    int64_t stride = p->in->stride;
    const unsigned char *w = p->w->data + (p->tile + t) * p->w->tile_bytes + 32 * h;
    const uint16_t *x = p->in->h + (p->row + i) * stride;
    __m256 acc[4];
    for (int r = 0; r < n; r++)
        acc[r] = _mm256_setzero_ps();
    for (int64_t k = 0; k < stride; k += GROUP, w += GROUP * TILE * 2, x += GROUP) {
        __m256 sum[2][4];
        for (int r = 0; r < n; r++)
            sum[0][r] = sum[1][r] = _mm256_setzero_ps();
        for (int j = 0; j < GROUP / 2; j++) {
            __m256i v = load(w + 64 * j);
            _mm_prefetch((const char *)w + FETCH_AHEAD + 64 * j, _MM_HINT_T0);
            for (int r = 0; r < n; r++) {
                int32_t pair;
                memcpy(&pair, x + r * stride + 2 * j, 4);
                __m256i u = _mm256_set1_epi32(pair);
                sum[0][r] = _mm256_fmadd_ps(even(u), even(v), sum[0][r]);
                sum[1][r] = _mm256_fmadd_ps(odd(u), odd(v), sum[1][r]);
            }
        }
        for (int r = 0; r < n; r++)
            acc[r] = _mm256_add_ps(acc[r], _mm256_add_ps(sum[0][r], sum[1][r]));
    }
    for (int r = 0; r < n; r++)
        put(p, p->out + (i + r) * p->stride + t * TILE + 8 * h, acc[r]);
}

static void linear_bf16(const struct linear_part *p) {
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_TO_ZERO);
    for (int64_t at = 0; at < 2 * p->tiles; at++) {
        int i = 0, half = (int)(at % 2);
        for (; i + 4 <= p->n; i += 4)
            bf16_rows(p, at / 2, half, i, 4);
        for (; i < p->n; i++)
            bf16_rows(p, at / 2, half, i, 1);
    }
    _mm_setcsr(mode);
}

// Eight values, in the low halves.
INLINE __m256i rounded(const float *x) {
    __m256 f = _mm256_loadu_ps(x), nan = _mm256_cmp_ps(f, f, _CMP_UNORD_Q);
    __m256i v = _mm256_castps_si256(f);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(v, 16), _mm256_set1_epi32(1));
    __m256i up = _mm256_add_epi32(v, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7FFF)));
    __m256i quiet = _mm256_or_si256(v, _mm256_set1_epi32(0x400000));
    up = _mm256_blendv_epi8(up, quiet, _mm256_castps_si256(nan));
    return _mm256_srli_epi32(up, 16);
}

static void to_bf16(const float *x, uint16_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i += 16) {
        __m256i both = _mm256_packus_epi32(rounded(x + i), rounded(x + i + 8));
        _mm256_storeu_si256((__m256i *)(void *)(out + i), _mm256_permute4x64_epi64(both, 0xD8));
    }
}

void linear_fill_avx2(struct row_kernels *r) {
    CODE_FORMS(LINEAR_ENTRY)
    r->woven = true;
    r->linear[FORM_F32] = linear_f32;
    r->linear[FORM_F16] = linear_f16;
    r->linear[FORM_BF16] = linear_bf16;
    r->to_bf16 = to_bf16;
}
