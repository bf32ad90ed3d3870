// SPDX-License-Identifier: Apache-2.0
// Linear layers for many rows with AMX int8: one tile product is the codes of 16 outputs that share
// a scale, a group of 32 or half of one (a unit), times up to 16 rows. Its integer sums, which are
// exact and so the same as those of every other level, go through a small buffer to the f32
// operations in vector registers. Four units are under way at a time: the product of one, then two
// that are being computed and stored, then the f32 steps of the oldest. Codes are signed here, so
// that nothing has to be taken out of a sum. Besides tile instructions only one of the two vector
// multipliers works, so f32 steps and products take about as long. Few rows are left to the level
// below.
#include "ops/cpu/linear/avx512.h"

// Layout that the instruction set prescribes for ldtilecfg.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; // of a row of each tile
    uint8_t rows[16];
};

INLINE void tile_shape(struct tile_config *c, int tile, int rows, int bytes) {
    c->rows[tile] = (uint8_t)rows;
    c->bytes[tile] = (uint16_t)bytes;
}

INLINE void tile_configure(const struct tile_config *c) {
    __asm__ volatile("" : : "r"(c) : "memory"); // not every compiler knows that all of it is read
    _tile_loadconfig(c);
}

enum { MANY = 6, SLOTS = 4, STORE_LAG = 2, LAG = 3 };

// Tiles 0-3 take sums, 4-5 activations, 6-7 codes; two or four of each, so that they overlap.
static void configure(int n, int unit) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++)
        tile_shape(&c, i, i < 6 ? n : unit / 4, i == 4 || i == 5 ? unit : 4 * TILE);
    tile_configure(&c);
}

struct buffers {
    _Alignas(64) int32_t sum[SLOTS][ROWS * TILE];
    _Alignas(64) unsigned char code[SLOTS][GROUP * TILE]; // short ones as bytes
};

// One unit's product into sum tile `slot`, a constant.
INLINE void product(int slot, const unsigned char *codes, const int8_t *q, int64_t stride) {
    switch (slot) {
    case 0:
        _tile_zero(0);
        _tile_loadd(4, q, stride);
        _tile_loadd(6, codes, 64);
        _tile_dpbssd(0, 4, 6);
        break;
    case 1:
        _tile_zero(1);
        _tile_loadd(5, q, stride);
        _tile_loadd(7, codes, 64);
        _tile_dpbssd(1, 5, 7);
        break;
    case 2:
        _tile_zero(2);
        _tile_loadd(4, q, stride);
        _tile_loadd(6, codes, 64);
        _tile_dpbssd(2, 4, 6);
        break;
    default:
        _tile_zero(3);
        _tile_loadd(5, q, stride);
        _tile_loadd(7, codes, 64);
        _tile_dpbssd(3, 5, 7);
    }
}

INLINE void store_sums(int slot, int32_t *out) {
    switch (slot) {
    case 0:
        _tile_stored(0, out, 64);
        break;
    case 1:
        _tile_stored(1, out, 64);
        break;
    case 2:
        _tile_stored(2, out, 64);
        break;
    default:
        _tile_stored(3, out, 64);
    }
}

// A part, taken out of its structs: after a tile instruction the compiler would read every field
// again.
struct matrix {
    const struct linear_part *part;
    const int8_t *q;           // codes of the part's rows
    const struct act_block *b; // and their blocks
    int64_t stride;            // of q
    int64_t units, tile_bytes;
};

// Where the products have got to: the codes of a group, and how many units come before it.
struct front {
    const unsigned char *codes;
    int64_t unit;
};

// Short codes of a group as signed bytes; requests the next tile, from far memory.
INLINE void unpack_group(struct form f, const struct matrix *m, const unsigned char *codes,
                         unsigned char *to) {
    UNROLL for (int j = 0; j < f.bits + 1; j++)
        _mm_prefetch((const char *)codes + m->tile_bytes + 64 * j, _MM_HINT_T0);
    if (f.bits == 8)
        return;
    struct group g;
    load_codes(f, codes, &g);
    UNROLL for (int j = 0; j < 8; j++) _mm512_store_si512(
        to + 64 * j,
        f.shift ? _mm512_sub_epi8(g.code[j], _mm512_set1_epi8((char)(1 << f.shift))) : g.code[j]);
}

// Starts the product of the next unit in a slot; those of one group lie in slots side by side.
INLINE void begin_unit(struct form f, const struct matrix *m, struct front *at, int slot,
                       struct buffers *t) {
    int sub = slot % f.subs, width = GROUP / f.subs;
    if (sub == 0)
        unpack_group(f, m, at->codes, t->code[slot]);
    const unsigned char *codes = f.bits == 8 ? at->codes : t->code[slot - sub];
    __asm__ volatile("" ::: "memory"); // what tile instructions read must be in memory
    product(slot, codes + sub * width * TILE, m->q + at->unit * width, m->stride);
    at->codes += sub == f.subs - 1 ? group_bytes(f) : 0;
    if (++at->unit < m->units)
        return;
    at->codes += m->tile_bytes - m->units / f.subs * group_bytes(f);
    at->unit = 0;
}

// Where the f32 steps have got to.
struct back {
    const unsigned char *scales; // of the tile
    int64_t unit;
    struct outer outer;
    float *out; // of the tile
};

// The f32 steps of the next unit, sub-group `sub`, for `rows` rows; both are constants.
INLINE void add_unit(struct form f, const struct matrix *m, struct back *at, __m512 *acc,
                     const int32_t *sum, int sub, int rows) {
    const struct act_block *b = m->b + at->unit / f.subs;
    const float *ds = f.subs == 1 ? b->ds : b->ds16[sub];
    struct group g;
    load_scale(f, &at->outer, at->scales, at->unit / f.subs, sub, &g);
    UNROLL for (int r = 0; r < rows; r++) {
        __m512 x = _mm512_cvtepi32_ps(_mm512_load_si512(sum + r * TILE));
        acc[r] = _mm512_fmadd_ps(x, _mm512_mul_ps(g.scale[sub], _mm512_set1_ps(b->d[r])), acc[r]);
        if (f.min)
            acc[r] = _mm512_fnmadd_ps(g.min[sub], _mm512_set1_ps(ds[r]), acc[r]);
    }
}

// Takes the unit of a slot in, and after a tile's last one puts the sums away.
INLINE void finish_unit(struct form f, const struct matrix *m, struct back *at, __m512 *acc,
                        const struct buffers *t, int slot, int rows) {
    add_unit(f, m, at, acc, t->sum[slot], slot % f.subs, rows);
    const struct linear_part *p = m->part;
    if (++at->unit < m->units)
        return;
    UNROLL for (int r = 0; r < rows; r++) {
        if (r < p->n)
            put(p, at->out + r * p->stride, acc[r]);
        acc[r] = _mm512_setzero_ps();
    }
    at->unit = 0;
    at->scales += m->tile_bytes;
    at->out += TILE;
}

// What is under way in one part.
struct flow {
    struct front front;
    struct back back;
};

// One unit in each slot: stores an earlier one, begins it, finishes an older one.
INLINE void take_units(struct form f, const struct matrix *m, struct flow *w, struct buffers *t,
                       __m512 *acc, int rows) {
    UNROLL for (int s = 0; s < SLOTS; s++) {
        int stored = (s + SLOTS - STORE_LAG) % SLOTS, done = (s + SLOTS - LAG) % SLOTS;
        store_sums(stored, t->sum[stored]);
        begin_unit(f, m, &w->front, s, t);
        finish_unit(f, m, &w->back, acc, t, done, rows);
    }
}

// The same at the ends of the part, where some of those units are missing: i is the first one's
// place among the part's units.
INLINE void take_some(struct form f, const struct matrix *m, struct flow *w, struct buffers *t,
                      __m512 *acc, int rows, int64_t i) {
    int64_t all = m->units * m->part->tiles;
    UNROLL for (int s = 0; s < SLOTS; s++) {
        int stored = (s + SLOTS - STORE_LAG) % SLOTS, done = (s + SLOTS - LAG) % SLOTS;
        if (i + s >= STORE_LAG && i + s < all + STORE_LAG)
            store_sums(stored, t->sum[stored]);
        if (i + s < all)
            begin_unit(f, m, &w->front, s, t);
        if (i + s >= LAG && i + s < all + LAG)
            finish_unit(f, m, &w->back, acc, t, done, rows);
    }
}

// All tiles of a part for `rows` rows, a constant of at least n; the rest is made and dropped.
INLINE void part(struct form f, const struct linear_part *p, int rows) {
    const struct weight *w = p->w;
    const struct matrix m = {.part = p,
                             .q = p->in->q + p->row * p->in->stride,
                             .b = act_blocks(p->in, p->row),
                             .stride = p->in->stride,
                             .units = w->k / GROUP * f.subs,
                             .tile_bytes = w->tile_bytes};
    const unsigned char *first = w->data + p->tile * w->tile_bytes;
    int64_t all = m.units * p->tiles;
    struct flow flow;
    struct buffers t;
    __m512 acc[ROWS];
    flow.front = (struct front){first, 0};
    flow.back = (struct back){.scales = first + w->scales_at, .out = p->out};
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm512_setzero_ps();
    for (int64_t i = 0; i < all + LAG; i += SLOTS) {
        if (i >= SLOTS && i + SLOTS <= all)
            take_units(f, &m, &flow, &t, acc, rows);
        else
            take_some(f, &m, &flow, &t, acc, rows, i);
    }
}

#define X(name, bits, shift, subs, min, scale)                                                     \
    static void linear_##name(const struct linear_part *p) {                                       \
        const struct form f = {bits, shift, subs, min, scale};                                     \
        configure(p->n, GROUP / subs);                                                             \
        if (p->n > ROWS / 2)                                                                       \
            part(f, p, ROWS);                                                                      \
        else                                                                                       \
            part(f, p, ROWS / 2);                                                                  \
        _tile_release();                                                                           \
    }
CODE_FORMS(X)
#undef X

void linear_fill_amx(struct row_kernels *r) {
#define X(name, ...) r->linear_many[FORM_##name] = linear_##name;
    CODE_FORMS(X)
#undef X
    r->many = MANY;
}

// Linear layers of bf16 weights for many rows with AMX: a tile product is 32 k values of 16 outputs
// times up to 16 rows, and the sums stay in tiles until a row is done. What one product does, down
// to the order of its additions, is the specification in scalar.c. Four weight tiles are
// taken at a time, so that they share what is loaded of the activations.

enum { TOGETHER = 4, BLOCK_BYTES = GROUP * TILE * 2 };

// Tiles 0-3 take sums, 4 activations, 5-6 weights.
static void bf16_configure(int n) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 7; i++)
        tile_shape(&c, i, i < 5 ? n : GROUP / 2, 4 * TILE);
    tile_configure(&c);
}

INLINE void bf16_zero(int count) {
    _tile_zero(0);
    if (count < TOGETHER)
        return;
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

// One block of `count` weight tiles, a constant.
INLINE void bf16_block(const uint16_t *x, int64_t stride, const unsigned char *w,
                       int64_t tile_bytes, int count) {
    _tile_loadd(4, x, stride * 2);
    _tile_loadd(5, w, 64);
    _tile_dpbf16ps(0, 4, 5);
    if (count < TOGETHER)
        return;
    _tile_loadd(6, w + tile_bytes, 64);
    _tile_dpbf16ps(1, 4, 6);
    _tile_loadd(5, w + 2 * tile_bytes, 64);
    _tile_dpbf16ps(2, 4, 5);
    _tile_loadd(6, w + 3 * tile_bytes, 64);
    _tile_dpbf16ps(3, 4, 6);
}

INLINE void bf16_store(float sum[TOGETHER][ROWS * TILE], int count) {
    _tile_stored(0, sum[0], 64);
    if (count < TOGETHER)
        return;
    _tile_stored(1, sum[1], 64);
    _tile_stored(2, sum[2], 64);
    _tile_stored(3, sum[3], 64);
}

// Weight tiles [t, t + count) of the part.
INLINE void bf16_tiles(const struct linear_part *p, int64_t t, int count) {
    _Alignas(64) float sum[TOGETHER][ROWS * TILE];
    int64_t stride = p->in->stride, bytes = p->w->tile_bytes;
    const unsigned char *w = p->w->data + (p->tile + t) * bytes;
    const uint16_t *x = p->in->h + p->row * stride;
    bool far = p->row == 0; // later rows find the weights in a near cache
    bf16_zero(count);
    for (int64_t k = 0; k < stride; k += GROUP, w += BLOCK_BYTES) {
        for (int j = 0; far && j < count * BLOCK_BYTES / 64; j++)
            _mm_prefetch((const char *)w + j / 16 * bytes + FETCH_AHEAD + j % 16 * 64, _MM_HINT_T0);
        bf16_block(x + k, stride, w, bytes, count);
    }
    bf16_store(sum, count);
    __asm__ volatile("" : : "r"(sum) : "memory"); // written where the compiler does not see it
    for (int j = 0; j < count; j++)
        for (int r = 0; r < p->n; r++)
            put(p, p->out + r * p->stride + (t + j) * TILE, _mm512_load_ps(sum[j] + r * TILE));
}

static void linear_bf16(const struct linear_part *p) {
    int64_t t = 0;
    bf16_configure(p->n);
    for (; t + TOGETHER <= p->tiles; t += TOGETHER)
        bf16_tiles(p, t, TOGETHER);
    for (; t < p->tiles; t++)
        bf16_tiles(p, t, 1);
    _tile_release();
}

void linear_fill_bf16_amx(struct row_kernels *r) {
    r->linear_many[FORM_BF16] = linear_bf16;
}
