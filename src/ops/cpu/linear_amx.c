// SPDX-License-Identifier: Apache-2.0
// Linear layers for many rows with AMX int8: one tile product is the 32 codes of a group of 16
// outputs times up to 16 rows. Its integer sums, which are exact and so the same as those of every
// other level, go through a small buffer to the f32 operations in vector registers. Four groups
// are under way at a time: the product of one, then two that are being computed and stored, then
// the f32 steps of the oldest. Codes are signed here, so that nothing has to be taken out of a sum.
// Beside tile instructions only one of the two vector multipliers works, so f32 steps and products
// take about as long. Forms with two scales a group, and few rows, are left to the level below.
#include "ops/cpu/linear_avx512.h"

enum { MANY = 6, SLOTS = 4, STORE_LAG = 2, LAG = 3 };

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
};

// One group's product into sum tile `slot`, a constant.
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

// A part, taken out of its structs: behind a tile instruction the compiler would read every field
// again.
struct matrix {
    const struct linear_part *part;
    const int8_t *q;           // codes of the part's rows
    const struct act_block *b; // and their blocks
    int64_t stride;            // of q
    int64_t groups, tile_bytes;
};

// Where the products have got to: the codes of a group, and how many groups come before it.
struct front {
    const unsigned char *codes;
    int64_t group;
};

// Starts the product of the next group in a slot; asks for the next tile, from far memory.
INLINE void begin_group(struct form f, const struct matrix *m, struct front *at, int slot,
                        struct buffers *t) {
    int size = f.bits == 4 ? 256 : 512;
    const unsigned char *codes = at->codes;
    UNROLL for (int j = 0; j < size / 64 + 1; j++)
        _mm_prefetch((const char *)codes + m->tile_bytes + 64 * j, _MM_HINT_T0);
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
    product(slot, codes, m->q + at->group * GROUP, m->stride);
    at->codes += size;
    if (++at->group < m->groups)
        return;
    at->group = 0;
    at->codes += m->tile_bytes - m->groups * size;
}

// Where the f32 steps have got to.
struct back {
    const unsigned char *scales; // of the tile
    int64_t group;
    struct outer outer;
    float *out; // of the tile
};

// The f32 steps of the next group for `rows` rows, a constant.
INLINE void add_group(struct form f, const struct matrix *m, struct back *at, __m512 *acc,
                      const int32_t *sum, int rows) {
    const struct act_block *b = m->b + at->group;
    struct group g;
    load_scales(f, &at->outer, at->scales, at->group, &g);
    UNROLL for (int r = 0; r < rows; r++) {
        __m512 x = _mm512_cvtepi32_ps(_mm512_load_si512(sum + r * TILE));
        acc[r] = _mm512_fmadd_ps(x, _mm512_mul_ps(g.scale[0], _mm512_set1_ps(b->d[r])), acc[r]);
        if (f.min)
            acc[r] = _mm512_fnmadd_ps(g.min[0], _mm512_set1_ps(b->ds[r]), acc[r]);
    }
}

// Takes the next group in, and after a tile's last one puts the sums away.
INLINE void finish_group(struct form f, const struct matrix *m, struct back *at, __m512 *acc,
                         const int32_t *sum, int rows) {
    add_group(f, m, at, acc, sum, rows);
    const struct linear_part *p = m->part;
    if (++at->group < m->groups)
        return;
    UNROLL for (int r = 0; r < rows; r++) {
        if (r < p->n)
            put(p, at->out + r * p->stride, acc[r]);
        acc[r] = _mm512_setzero_ps();
    }
    at->group = 0;
    at->scales += m->tile_bytes;
    at->out += TILE;
}

// What is under way in one part.
struct flow {
    struct front front;
    struct back back;
};

// One group in each slot: stores an earlier one, begins it, finishes an older one.
INLINE void take_groups(struct form f, const struct matrix *m, struct flow *w, struct buffers *t,
                        __m512 *acc, int rows) {
    UNROLL for (int s = 0; s < SLOTS; s++) {
        int stored = (s + SLOTS - STORE_LAG) % SLOTS, done = (s + SLOTS - LAG) % SLOTS;
        store_sums(stored, t->sum[stored]);
        begin_group(f, m, &w->front, s, t);
        finish_group(f, m, &w->back, acc, t->sum[done], rows);
    }
}

// The same at the ends of the part, where some of those groups are missing: i is the first one's
// place among the part's groups.
INLINE void take_some(struct form f, const struct matrix *m, struct flow *w, struct buffers *t,
                      __m512 *acc, int rows, int64_t i) {
    int64_t all = m->groups * m->part->tiles;
    UNROLL for (int s = 0; s < SLOTS; s++) {
        int stored = (s + SLOTS - STORE_LAG) % SLOTS, done = (s + SLOTS - LAG) % SLOTS;
        if (i + s >= STORE_LAG && i + s < all + STORE_LAG)
            store_sums(stored, t->sum[stored]);
        if (i + s < all)
            begin_group(f, m, &w->front, s, t);
        if (i + s >= LAG && i + s < all + LAG)
            finish_group(f, m, &w->back, acc, t->sum[done], rows);
    }
}

// All tiles of a part for `rows` rows, a constant of at least n; the rest is made and dropped.
INLINE void part(struct form f, const struct linear_part *p, int rows) {
    const struct weight *w = p->w;
    const struct matrix m = {.part = p,
                             .q = p->in->q + p->row * p->in->stride,
                             .b = act_blocks(p->in, p->row),
                             .stride = p->in->stride,
                             .groups = w->k / GROUP,
                             .tile_bytes = w->tile_bytes};
    const unsigned char *first = w->data + p->tile * w->tile_bytes;
    int64_t all = m.groups * p->tiles;
    struct flow flow;
    struct buffers t;
    __m512 acc[ROWS];
    flow.front = (struct front){first, 0};
    flow.back = (struct back){.scales = first + w->scales_at, .out = p->out};
    UNROLL for (int r = 0; r < rows; r++) acc[r] = _mm512_setzero_ps();
    for (int64_t i = 0; i < all + LAG; i += SLOTS) {
        if (i >= SLOTS && i + SLOTS <= all)
            take_groups(f, &m, &flow, &t, acc, rows);
        else
            take_some(f, &m, &flow, &t, acc, rows, i);
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
