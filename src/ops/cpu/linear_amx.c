// SPDX-License-Identifier: Apache-2.0
// Linear layers for many rows with AMX int8: one tile product is the 32 codes of a group of 16
// outputs times up to 16 rows. Its integer sums, which are exact and so the same as those of every
// other level, go through a small buffer to the f32 operations in vector registers. Three groups
// are under way at a time: the product of one, the store of an earlier one, the f32 steps of the
// one before. Codes are signed here, so that nothing has to be taken out of a sum. Tile
// instructions keep the second multiplier of the vector unit away; so sums begin as the bits of 1.5
// * 2^23, which makes them floats by themselves, and no conversion is needed. Forms with two scales
// a group, and few rows, are left to the level below.
#include "ops/cpu/linear_avx512.h"

enum { MANY = 6, SLOTS = 4, LAG = 2 };

// Layout that the instruction set prescribes for ldtilecfg.
struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16]; // of a row of each tile
    uint8_t rows[16];
};

// Tiles 0-3 take sums, 4-5 activations, 6-7 codes; two or four of each, so that they overlap.
static void configure(int n) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 8; i++) {
        c.rows[i] = (uint8_t)(i < 6 ? n : GROUP / 4);
        c.bytes[i] = i == 4 || i == 5 ? GROUP : 4 * TILE;
    }
    _tile_loadconfig(&c);
}

struct buffers {
    _Alignas(64) int32_t sum[SLOTS][ROWS * TILE];
    _Alignas(64) unsigned char code[SLOTS][GROUP * TILE]; // nibbles as bytes
    _Alignas(64) float round[ROWS * TILE];                // what every sum begins with
};

// One group's product into sum tile `slot`, a constant.
INLINE void product(int slot, const unsigned char *codes, const int8_t *q, int64_t stride,
                    const float *round) {
    switch (slot) {
    case 0:
        _tile_loadd(0, round, 64);
        _tile_loadd(4, q, stride);
        _tile_loadd(6, codes, 64);
        _tile_dpbssd(0, 4, 6);
        break;
    case 1:
        _tile_loadd(1, round, 64);
        _tile_loadd(5, q, stride);
        _tile_loadd(7, codes, 64);
        _tile_dpbssd(1, 5, 7);
        break;
    case 2:
        _tile_loadd(2, round, 64);
        _tile_loadd(4, q, stride);
        _tile_loadd(6, codes, 64);
        _tile_dpbssd(2, 4, 6);
        break;
    default:
        _tile_loadd(3, round, 64);
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

// A place in the sequence of groups of a part, tile by tile.
struct place {
    const unsigned char *tile; // its data
    int64_t group;
};

INLINE void step(struct place *at, const struct weight *w) {
    if (++at->group == w->k / GROUP) {
        at->group = 0;
        at->tile += w->tile_bytes;
    }
}

// Starts the product of the group at `at` in a slot, and moves on.
INLINE void begin_group(struct form f, const struct linear_part *p, struct place *at, int slot,
                        struct buffers *t) {
    int size = f.bits == 4 ? 256 : 512;
    const unsigned char *codes = at->tile + at->group * size;
    for (int j = 0; j < size / 64 + 1; j++) // the next tile, from far memory
        _mm_prefetch((const char *)codes + p->w->tile_bytes + 64 * j, _MM_HINT_T0);
    if (f.bits == 4) {
        struct group g;
        load_codes(f, codes, &g);
        UNROLL for (int j = 0; j < 8; j++) _mm512_store_si512(
            t->code[slot] + 64 * j,
            f.shift ? _mm512_sub_epi8(g.code[j], _mm512_set1_epi8((char)(1 << f.shift)))
                    : g.code[j]);
        codes = t->code[slot];
    }
    __asm__ volatile("" ::: "memory"); // what tile instructions read must be in memory
    product(slot, codes, p->in->q + p->row * p->in->stride + at->group * GROUP, p->in->stride,
            t->round);
    step(at, p->w);
}

// The f32 steps of one group for `rows` rows, a constant.
INLINE void finish_group(struct form f, __m512 *acc, const struct group *g,
                         const struct act_block *b, const int32_t *sum, int rows) {
    const __m512 round = _mm512_set1_ps(EXP_ROUND);
    UNROLL for (int r = 0; r < rows; r++) {
        __m512 x = _mm512_castsi512_ps(_mm512_load_si512(sum + r * TILE));
        acc[r] = _mm512_fmadd_ps(_mm512_sub_ps(x, round),
                                 _mm512_mul_ps(g->scale[0], _mm512_set1_ps(b->d[r])), acc[r]);
        if (f.min)
            acc[r] = _mm512_fnmadd_ps(g->min[0], _mm512_set1_ps(b->ds[r]), acc[r]);
    }
}

// Where a part stands: the groups that are begun and finished, and the sums of the open tile.
struct progress {
    struct place front, back;
    struct outer outer;
    float *out; // of the open tile
};

// The stored sums of slot `old` into the tile's f32 sums, which are put away after its last group.
INLINE void finish(struct form f, const struct linear_part *p, struct progress *at, __m512 *acc,
                   const struct buffers *t, int old, int rows) {
    int64_t group = at->back.group;
    struct group g;
    load_scales(f, &at->outer, at->back.tile + p->w->scales_at, group, &g);
    finish_group(f, acc, &g, act_blocks(p->in, p->row) + group, t->sum[old], rows);
    step(&at->back, p->w);
    if (at->back.group)
        return;
    UNROLL for (int r = 0; r < rows; r++) {
        if (r < p->n)
            put(p, at->out + r * p->stride, acc[r]);
        acc[r] = _mm512_setzero_ps();
    }
    at->out += TILE;
}

// All tiles of a part for `rows` rows, a constant of at least n; the rest is made and dropped.
INLINE void part(struct form f, const struct linear_part *p, int rows) {
    int64_t all = p->w->k / GROUP * p->tiles;
    struct place first = {p->w->data + p->tile * p->w->tile_bytes, 0};
    struct progress at = {.front = first, .back = first, .out = p->out};
    struct buffers t;
    __m512 acc[ROWS];
    for (int r = 0; r < rows; r++)
        _mm512_store_ps(t.round + r * TILE, _mm512_set1_ps(EXP_ROUND));
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm512_setzero_ps();
    for (int64_t i = 0; i < all + LAG; i += SLOTS)
        UNROLL for (int s = 0; s < SLOTS; s++) {
            int old = (s + SLOTS - LAG) % SLOTS;
            bool some = i + s >= LAG && i + s < all + LAG;
            if (some)
                store_sums(old, t.sum[old]);
            if (i + s < all)
                begin_group(f, p, &at.front, s, &t);
            if (some)
                finish(f, p, &at, acc, &t, old, rows);
        }
}

#define X(name, bits, shift, subs, min, scale)                                                     \
    static void linear_##name(const struct linear_part *p) {                                       \
        const struct form f = {bits, shift, subs, min, scale};                                     \
        configure(p->n);                                                                           \
        if (p->n > ROWS / 2)                                                                       \
            part(f, p, ROWS);                                                                      \
        else                                                                                       \
            part(f, p, ROWS / 2);                                                                  \
        _tile_release();                                                                           \
    }
LINEAR_FORMS_ONE(X)
#undef X

void linear_fill_amx(struct row_kernels *r) {
#define X(name, ...) r->linear_many[FORM_##name] = linear_##name;
    LINEAR_FORMS_ONE(X)
#undef X
    r->many = MANY;
}
