// SPDX-License-Identifier: Apache-2.0
// Row kernels of attention over sixteen lanes, as a template that continues
// ops/cpu/simd/row/tmpl.h. Values for four queries that see the same keys: a small matrix product
// whose sums stay in registers; each (query, column) takes the steps that weigh takes. The same,
// and the scores, from keys and values in their stored form: for few queries decoding them first
// costs more than using them.

enum { SIDE = DOT_SUMS >= 16 ? 4 : 2 }; // queries and chunks of 16 columns of one pass

// `wide` chunks of 16 columns from `at`, a constant, of SIDE queries from i on.
INLINE void weigh_block(const struct weigh4 *w, int i, int at, int wide, int left) {
    vf a[SIDE * SIDE];
    UNROLL for (int r = 0; r < SIDE; r++) UNROLL for (int c = 0; c < wide; c++) a[r * SIDE + c] =
        v_mul(v_load_n(w->acc[i + r] + at + 16 * c, left), v_set(w->scale[i + r]));
    for (int j = 0; j < w->n; j++) {
        const float *v = w->v[j] + at;
        vf x[SIDE];
        UNROLL for (int c = 0; c < wide; c++) x[c] = v_load_n(v + 16 * c, left);
        UNROLL for (int r = 0; r < SIDE; r++) {
            vf p = v_set(w->p[i + r][j]);
            UNROLL for (int c = 0; c < wide; c++) a[r * SIDE + c] = v_fma(p, x[c], a[r * SIDE + c]);
        }
    }
    UNROLL for (int r = 0; r < SIDE; r++) UNROLL for (int c = 0; c < wide; c++)
        v_store_n(w->acc[i + r] + at + 16 * c, a[r * SIDE + c], left);
}

static void weigh4(const struct weigh4 *w) {
    int at = 0;
    for (; at + 16 * SIDE <= w->dim; at += 16 * SIDE)
        for (int i = 0; i < 4; i += SIDE)
            weigh_block(w, i, at, SIDE, 16);
    for (; at < w->dim; at += 16)
        for (int i = 0; i < 4; i += SIDE)
            weigh_block(w, i, at, 1, w->dim - at < 16 ? w->dim - at : 16);
}

// Values at + 16 half .. of row j, at a multiple of 32; codec and half are constants where it is
// called.
INLINE vf stored_16(const struct stored_rows *r, int codec, int j, int at, int half) {
    const unsigned char *row = r->codes + j * r->code_row;
    const int c = at + 16 * half;
    if (codec == KV_F16)
        return v_from_f16((const uint16_t *)(const void *)row + c);
    if (codec == KV_BF16)
        return v_from_bf16((const uint16_t *)(const void *)row + c);
    if (codec == KV_F32)
        return v_load((const float *)(const void *)row + c);
    return coded_16(codec, row, r->scales + j * r->scale_row, at / 32, half);
}

// Requests what takes the place of rows j .. j + n - 1 next, into the second nearest cache: the
// nearest has too few requests in flight to keep up with memory.
INLINE void fetch_next(const struct stored_rows *r, int j, int n) {
    for (int64_t at = j * r->code_row; r->next && at < (j + n) * r->code_row; at += 64)
        __builtin_prefetch(r->next + at, 0, 2);
}

// Keys of which xs queries have DOT_SUMS sums or fewer.
INLINE int keys_for(int xs) {
    return DOT_SUMS / (xs > 2 ? 4 : xs);
}

// Half a block of keys j .. j + keys_for(xs) - 1 for xs queries; all are constants but j and at.
INLINE void stored_dot_chunk(const struct stored_dots *a, int j, int xs, int codec, int at,
                             int half, vf *acc) {
    const int ks = keys_for(xs);
    UNROLL for (int r = 0; r < ks; r++) {
        vf v = stored_16(&a->k, codec, j + r < a->k.n ? j + r : a->k.n - 1, at, half);
        UNROLL for (int t = 0; t < xs; t++) acc[t * ks + r] =
            v_fma(v_load(a->x[t] + at + 16 * half), v, acc[t * ks + r]);
    }
}

// Keys j .. j + keys_for(xs) - 1 for xs queries; all are constants but j.
INLINE void stored_dot_block(const struct stored_dots *a, int j, int xs, int codec) {
    const int ks = keys_for(xs);
    vf acc[DOT_SUMS];
    float out[DOT_SUMS];
    UNROLL for (int r = 0; r < DOT_SUMS; r++) acc[r] = v_set(0);
    fetch_next(&a->k, j, ks);
    int c = 0;
    for (; c + 32 <= a->k.dim; c += 32)
        UNROLL for (int half = 0; half < 2; half++) stored_dot_chunk(a, j, xs, codec, c, half, acc);
    if (c < a->k.dim)
        stored_dot_chunk(a, j, xs, codec, c, 0, acc);
    v_fold_all(acc, out);
    for (int t = 0; t < xs; t++)
        for (int r = 0; r < ks && j + r < a->k.n; r++)
            a->out[t][j + r] = out[t * ks + r];
}

// Of xs queries, DOT_SUMS of their sums at a time.
INLINE void stored_dots_of(const struct stored_dots *a, int xs, int codec) {
    for (int j = 0; j < a->k.n; j += keys_for(xs))
        stored_dot_block(a, j, xs, codec);
}

INLINE void stored_dots_by(const struct stored_dots *a, int codec) {
    if (a->n_x == 1)
        stored_dots_of(a, 1, codec);
    else if (a->n_x == 2)
        stored_dots_of(a, 2, codec);
    else if (a->n_x == 3)
        stored_dots_of(a, 3, codec);
    else
        stored_dots_of(a, 4, codec);
}

// Calls fn with the codec as a constant, so that each has loops of its own; a codec that is added
// has to be here, or the compiler says so.
#define BY_CODEC(fn, a, of)                                                                        \
    switch (of) {                                                                                  \
        CODEC_CASE(fn, a, KV_F16)                                                                  \
        CODEC_CASE(fn, a, KV_F32)                                                                  \
        CODEC_CASE(fn, a, KV_BF16)                                                                 \
        CODEC_CASE(fn, a, KV_Q8_0)                                                                 \
        CODEC_CASE(fn, a, KV_Q5_1)                                                                 \
        CODEC_CASE(fn, a, KV_Q5_0)                                                                 \
        CODEC_CASE(fn, a, KV_Q4_1)                                                                 \
        CODEC_CASE(fn, a, KV_Q4_0)                                                                 \
        CODEC_CASE(fn, a, KV_TQ3_0)                                                                \
    case KV_CODEC_COUNT:                                                                           \
        break;                                                                                     \
    }
#define CODEC_CASE(fn, a, id)                                                                      \
    case id:                                                                                       \
        fn(a, id);                                                                                 \
        break;

static void stored_dots(const struct stored_dots *a){BY_CODEC(stored_dots_by, a, a -> k.codec)}

// Queries i .. i + xs - 1 and `wide` chunks of 16 columns, 1, 2 or 4, from `at`, a multiple of
// them; constants but i and at.
INLINE void stored_weigh_block(const struct stored_weigh *w, int i, int at, int xs, int wide,
                               int codec) {
    vf a[DOT_SUMS];
    UNROLL for (int t = 0; t < xs; t++) UNROLL for (int c = 0; c < wide; c++) a[t * wide + c] =
        v_mul(v_load(w->acc[i + t] + at + 16 * c), v_set(w->scale[i + t]));
    for (int j = 0; j < w->v.n; j++) {
        vf x[DOT_SUMS];
        if (i == 0 && at == 0)
            fetch_next(&w->v, j, 1);
        UNROLL for (int c = 0; c < wide; c++) x[c] =
            wide % 2 ? stored_16(&w->v, codec, j, at / 32 * 32, at / 16 % 2)
                     : stored_16(&w->v, codec, j, at + c / 2 * 32, c % 2);
        UNROLL for (int t = 0; t < xs; t++) {
            vf p = v_set(w->p[i + t][j]);
            UNROLL for (int c = 0; c < wide; c++) a[t * wide + c] = v_fma(p, x[c], a[t * wide + c]);
        }
    }
    UNROLL for (int t = 0; t < xs; t++) UNROLL for (int c = 0; c < wide; c++)
        v_store(w->acc[i + t] + at + 16 * c, a[t * wide + c]);
}

// All columns for xs queries.
INLINE void stored_weigh_rows(const struct stored_weigh *w, int i, int xs, int codec) {
    enum { WIDE = 4 };
    int at = 0, wide = DOT_SUMS / (xs > 2 ? 4 : xs);
    if (wide > WIDE)
        wide = WIDE;
    for (; at + 16 * wide <= w->v.dim; at += 16 * wide)
        stored_weigh_block(w, i, at, xs, wide, codec);
    for (; at < w->v.dim; at += 16)
        stored_weigh_block(w, i, at, xs, 1, codec);
}

INLINE void stored_weigh_of(const struct stored_weigh *w, int codec) {
    int i = 0;
    if (w->n_x == 4)
        stored_weigh_rows(w, 0, 4, codec);
    else if (w->n_x == 3)
        stored_weigh_rows(w, 0, 3, codec);
    else {
        for (; i + 2 <= w->n_x; i += 2)
            stored_weigh_rows(w, i, 2, codec);
        if (i < w->n_x)
            stored_weigh_rows(w, i, 1, codec);
    }
}

static void stored_weigh(const struct stored_weigh *w) {
    BY_CODEC(stored_weigh_of, w, w->v.codec)
}
