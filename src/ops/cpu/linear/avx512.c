// SPDX-License-Identifier: Apache-2.0
// Linear layers with AVX-512 VNNI: one vector is the 16 outputs of a tile. Codes are unsigned
// bytes, activations signed bytes broadcast four at a time; the codes' offset is taken out exactly
// by starting each integer sum at -offset * sum(q). Rows are taken 8, 4, 2 or 1 at a time, so that
// all their sums stay in registers. One inlined body serves every form, in tiles that are woven
// and, besides AMX, which needs all scales after all codes, in tiles that are not.
#include "ops/cpu/linear/avx512.h"

INLINE __m512i four(const int8_t *q) {
    int32_t v;
    memcpy(&v, q, 4);
    return _mm512_set1_epi32(v);
}

// `rows` rows of a part, a constant.
struct some_rows {
    const int8_t *q;
    int64_t stride;
    int rows;
};

// What is known of sub-group s of the first row and, after it, of the others.
struct known {
    const int32_t *nsum;
    const float *d, *ds;
};

INLINE struct known known_rows(struct form f, const struct act_block *b, int s, int64_t i) {
    return (struct known){(f.subs == 1 ? b->nsum : b->nsum16[s]) + i, b->d + i,
                          (f.subs == 1 ? b->ds : b->ds16[s]) + i};
}

INLINE struct known known_alone(struct form f, const struct act_alone *a, int s) {
    return (struct known){f.subs == 1 ? &a->nsum : a->nsum16 + s, &a->d,
                          f.subs == 1 ? &a->ds : a->ds16 + s};
}

INLINE void add_group(struct form f, __m512 *acc, const struct group *g, int s,
                      const struct some_rows *x, struct known k) {
    const int32_t *nsum = k.nsum;
    const float *d = k.d, *ds = k.ds;
    __m512i sum[8];
    UNROLL for (int r = 0; r < x->rows; r++) sum[r] =
        f.shift ? _mm512_slli_epi32(_mm512_set1_epi32(nsum[r]), (unsigned)f.shift)
                : _mm512_setzero_si512();
    UNROLL for (int j = s * 8 / f.subs; j < (s + 1) * 8 / f.subs; j++)
        UNROLL for (int r = 0; r < x->rows; r++) sum[r] =
            _mm512_dpbusd_epi32(sum[r], g->code[j], four(x->q + r * x->stride + 4 * j));
    UNROLL for (int r = 0; r < x->rows; r++) {
        acc[r] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[r]),
                                 _mm512_mul_ps(g->scale[s], _mm512_set1_ps(d[r])), acc[r]);
        if (f.min)
            acc[r] = _mm512_fnmadd_ps(g->min[s], _mm512_set1_ps(ds[r]), acc[r]);
    }
}

// Requests a group's part of the stream, codes and scales.
INLINE void fetch_ahead(struct form f, const unsigned char *p) {
    UNROLL for (int j = 0; j < f.bits + 1; j++)
        _mm_prefetch((const char *)p + FETCH_AHEAD + 64 * j, _MM_HINT_T0);
}

// The next tile's first scales lie after all its codes and are read with the first of them.
INLINE void fetch_next_scales(const unsigned char *scales) {
    enum { LINES = 6 };
    UNROLL for (int j = 0; j < LINES; j++) _mm_prefetch((const char *)scales + 64 * j, _MM_HINT_T0);
}

// Rows [i, i + rows) of the part times its tile t; rows, woven and alone are constants.
INLINE void tile_rows(struct form f, bool woven, bool alone, const struct linear_part *p, int64_t t,
                      int64_t i, int rows) {
    const struct weight *w = p->w;
    const unsigned char *codes = w->data + (p->tile + t) * w->tile_bytes;
    const unsigned char *scales = codes + w->scales_at;
    const unsigned char *first = codes;
    int64_t groups = w->k / GROUP, step = w->tile_bytes / groups,
            ahead = w->tile_bytes + (i & 8 ? 64 : 0);
    struct some_rows x = {p->in->q + (p->row + i) * p->in->stride, p->in->stride, rows};
    const struct act_block *b = act_blocks(p->in, p->row);
    __m512 acc[8];
    struct outer o = {scales, scales, _mm512_setzero_ps(), _mm512_setzero_ps()};
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm512_setzero_ps();
    for (int64_t at = 0; at < groups; at++, b++, x.q += GROUP, codes += group_bytes(f)) {
        struct group g;
        if (woven && at % WOVEN == 0) {
            scales = codes;
            codes += scale_bytes(f);
        }
        if (rows < 8 && !woven)
            fetch_ahead(f, first + at * step);
        if (rows < 8 && !woven && at + 2 == groups)
            fetch_next_scales(scales + w->tile_bytes);
        if (rows == 8) // half of the next tile, from far memory, after this one's arithmetic
            for (int j = 0; j < f.bits / 2 + 1; j++)
                _mm_prefetch((const char *)codes + ahead + 128 * j, _MM_HINT_T0);
        load_codes(f, codes, &g);
        for (int s = 0; s < f.subs; s++) {
            load_scale(f, &o, scales, woven ? at % WOVEN : at, s, &g);
            struct known k = alone ? known_alone(f, p->alone + at, s) : known_rows(f, b, s, i);
            add_group(f, acc, &g, s, &x, k);
        }
    }
    float *out = p->out + i * p->stride + t * TILE;
    UNROLL for (int r = 0; r < rows; r++) put(p, out + r * p->stride, acc[r]);
}

INLINE void part(struct form f, bool woven, const struct linear_part *p) {
    if (woven && p->alone) {
        for (int64_t t = 0; t < p->tiles; t++)
            tile_rows(f, woven, true, p, t, 0, 1);
        return;
    }
    for (int64_t t = 0; t < p->tiles; t++) {
        int i = 0;
        for (; i + 8 <= p->n; i += 8)
            tile_rows(f, woven, false, p, t, i, 8);
        if (p->n & 4)
            tile_rows(f, woven, false, p, t, i, 4);
        i += p->n & 4;
        if (p->n & 2)
            tile_rows(f, woven, false, p, t, i, 2);
        i += p->n & 2;
        if (p->n & 1)
            tile_rows(f, woven, false, p, t, i, 1);
    }
}

#define X(name, bits, shift, subs, min, scale)                                                     \
    static void linear_##name(const struct linear_part *p) {                                       \
        const struct form f = {bits, shift, subs, min, scale};                                     \
        part(f, true, p);                                                                          \
    }                                                                                              \
    static void linear_split_##name(const struct linear_part *p) {                                 \
        const struct form f = {bits, shift, subs, min, scale};                                     \
        part(f, false, p);                                                                         \
    }
CODE_FORMS(X)
#undef X

INLINE __m512 numbers(enum code_form form, const unsigned char *p, int64_t k) {
    if (form == FORM_F32)
        return _mm512_loadu_ps(p + k * TILE * 4);
    return halves(p + k * TILE * 2);
}

// Rows [i, i + n), n a constant of at most 4: four partial sums each.
INLINE void number_rows(enum code_form form, const struct linear_part *part, int64_t t, int i,
                        int n) {
    int64_t k = part->w->k, stride = part->in->stride;
    const unsigned char *p = part->w->data + (part->tile + t) * part->w->tile_bytes;
    const float *x = part->in->x + (part->row + i) * stride;
    float *out = part->out + i * part->stride + t * TILE;
    __m512 acc[4][4];
    for (int r = 0; r < n; r++)
        for (int s = 0; s < 4; s++)
            acc[r][s] = _mm512_setzero_ps();
    int64_t at = 0;
    for (; at + 4 <= k; at += 4)
        for (int s = 0; s < 4; s++) {
            __m512 v = numbers(form, p, at + s);
            for (int r = 0; r < n; r++)
                acc[r][s] = _mm512_fmadd_ps(v, _mm512_set1_ps(x[r * stride + at + s]), acc[r][s]);
        }
    for (int s = 0; s < 3; s++)
        for (int r = 0; r < n && at + s < k; r++)
            acc[r][s] = _mm512_fmadd_ps(numbers(form, p, at + s),
                                        _mm512_set1_ps(x[r * stride + at + s]), acc[r][s]);
    for (int r = 0; r < n; r++)
        put(part, out + r * part->stride,
            _mm512_add_ps(_mm512_add_ps(acc[r][0], acc[r][1]),
                          _mm512_add_ps(acc[r][2], acc[r][3])));
}

#define NUMBERS(name, form)                                                                        \
    static void linear_##name(const struct linear_part *p) {                                       \
        for (int64_t t = 0; t < p->tiles; t++) {                                                   \
            int i = 0;                                                                             \
            for (; i + 4 <= p->n; i += 4)                                                          \
                number_rows(form, p, t, i, 4);                                                     \
            for (; i < p->n; i++)                                                                  \
                number_rows(form, p, t, i, 1);                                                     \
        }                                                                                          \
    }
NUMBERS(f32, FORM_F32)
NUMBERS(f16, FORM_F16)
#undef NUMBERS

// Pairs of bf16 as floats, those of even and those of odd k.
INLINE __m512 even(__m512i v) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(v, 16));
}
INLINE __m512 odd(__m512i v) {
    return _mm512_castsi512_ps(_mm512_and_si512(v, _mm512_set1_epi32((int)0xFFFF0000)));
}

// Rows [i, i + n), n a constant of at most 4.
INLINE void bf16_rows(const struct linear_part *p, int64_t t, int i, int n) {
    int64_t stride = p->in->stride;
    const unsigned char *w = p->w->data + (p->tile + t) * p->w->tile_bytes;
    const uint16_t *x = p->in->h + (p->row + i) * stride;
    __m512 acc[4];
    UNROLL for (int r = 0; r < n; r++) acc[r] = _mm512_setzero_ps();
    for (int64_t k = 0; k < stride; k += GROUP, w += GROUP * TILE * 2, x += GROUP) {
        __m512 sum[2][4];
        UNROLL for (int r = 0; r < n; r++) sum[0][r] = sum[1][r] = _mm512_setzero_ps();
        UNROLL for (int j = 0; j < GROUP / 2; j++) {
            __m512i v = _mm512_loadu_si512(w + 64 * j);
            _mm_prefetch((const char *)w + FETCH_AHEAD + 64 * j, _MM_HINT_T0);
            UNROLL for (int r = 0; r < n; r++) {
                __m512i u = four((const int8_t *)(x + r * stride + 2 * j));
                sum[0][r] = _mm512_fmadd_ps(even(u), even(v), sum[0][r]);
                sum[1][r] = _mm512_fmadd_ps(odd(u), odd(v), sum[1][r]);
            }
        }
        UNROLL for (int r = 0; r < n; r++) acc[r] =
            _mm512_add_ps(acc[r], _mm512_add_ps(sum[0][r], sum[1][r]));
    }
    float *out = p->out + i * p->stride + t * TILE;
    UNROLL for (int r = 0; r < n; r++) put(p, out + r * p->stride, acc[r]);
}

static void linear_bf16(const struct linear_part *p) {
    unsigned mode = _mm_getcsr();
    _mm_setcsr(mode | FLUSH_TO_ZERO);
    for (int64_t t = 0; t < p->tiles; t++) {
        int i = 0;
        for (; i + 4 <= p->n; i += 4)
            bf16_rows(p, t, i, 4);
        for (; i + 2 <= p->n; i += 2)
            bf16_rows(p, t, i, 2);
        if (i < p->n)
            bf16_rows(p, t, i, 1);
    }
    _mm_setcsr(mode);
}

static void to_bf16(const float *x, uint16_t *out, int64_t n) {
    for (int64_t i = 0; i < n; i += TILE) {
        __m512 f = _mm512_loadu_ps(x + i);
        __m512i v = _mm512_castps_si512(f);
        __m512i odd = _mm512_and_si512(_mm512_srli_epi32(v, 16), _mm512_set1_epi32(1));
        __m512i up = _mm512_add_epi32(v, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7FFF)));
        up = _mm512_mask_or_epi32(up, _mm512_cmp_ps_mask(f, f, _CMP_UNORD_Q), v,
                                  _mm512_set1_epi32(0x400000));
        _mm256_storeu_si256((__m256i *)(void *)(out + i),
                            _mm512_cvtepi32_epi16(_mm512_srli_epi32(up, 16)));
    }
}

void linear_fill_avx512(struct row_kernels *r) {
    CODE_FORMS(LINEAR_ENTRY)
    r->woven = r->alone = true;
    r->linear[FORM_F32] = linear_f32;
    r->linear[FORM_F16] = linear_f16;
    r->linear[FORM_BF16] = linear_bf16;
    r->to_bf16 = to_bf16;
}

void linear_fill_avx512_split(struct row_kernels *r) {
#define X(name, ...) r->linear[FORM_##name] = linear_split_##name;
    CODE_FORMS(X)
#undef X
    r->woven = r->alone = false;
}
