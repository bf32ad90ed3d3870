// SPDX-License-Identifier: Apache-2.0
// What linear layers read: weights as tiles of 16 output rows, activations as int8 groups with one
// scale for 32 values, and the part of a matrix product that one call of a kernel makes.
#ifndef COPPICE_OPS_CPU_LINEAR_LINEAR_H
#define COPPICE_OPS_CPU_LINEAR_LINEAR_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TILE = 16,  // output rows of a weight tile = vector lanes
    GROUP = 32, // k values that share one activation scale
    ROWS = 16,  // activation rows that one call of a linear kernel takes at most
};

// One group of 32 activations of up to 16 rows, which lie side by side so that a kernel for many
// rows finds them in one cache line: int8 codes q with x ~ d * q.
struct act_block {
    float d[ROWS];
    float ds[ROWS];      // d * sum of the codes
    float ds16[2][ROWS]; // the same of each half
    int32_t nsum[ROWS];  // minus the sum of the codes
    int32_t nsum16[2][ROWS];
};

// The same of one row alone: blocks of long rows do not stay in a near cache.
struct act_alone {
    float d, ds, ds16[2];
    int32_t nsum, nsum16[2], unused;
};

// Rows in the form that linear layers read.
struct act {
    int64_t cap;             // values that x and q hold
    int64_t k, stride;       // stride = k rounded up to GROUP; the padding is zero
    float *x;                // [n][stride]
    int8_t *q;               // [n][stride]
    struct act_block *b;     // [n / ROWS rounded up][stride / GROUP]
    uint16_t *h;             // [n][stride] x as bf16; written by a call whose weights are
    struct act_alone *alone; // [stride / GROUP] of row 0; written by a call for one row
};

// The blocks of row `row`, a multiple of ROWS, and the 15 that follow.
static inline struct act_block *act_blocks(const struct act *a, int64_t row) {
    return a->b + row / ROWS * (a->stride / GROUP);
}

enum scale_kind {
    SCALE_HALF,  // fp16 per group (and fp16 minimum)
    SCALE_SUPER, // fp16 per 256 times int8 per sub-group (and the same of minima)
    SCALE_FLOAT, // f32 per sub-group
};

// How a weight is stored: X(name, bits of a code, log2 of the offset in the codes or 0, scales per
// group, minima, scale kind). value = scale * (code - offset) - minimum.
#define LINEAR_FORMS_ONE(X)                                                                        \
    X(N4_HALF, 4, 3, 1, 0, SCALE_HALF)                                                             \
    X(N4_HALF_MIN, 4, 0, 1, 1, SCALE_HALF)                                                         \
    X(B6_HALF, 6, 4, 1, 0, SCALE_HALF)                                                             \
    X(B6_HALF_MIN, 6, 0, 1, 1, SCALE_HALF)                                                         \
    X(B8_HALF, 8, 7, 1, 0, SCALE_HALF)                                                             \
    X(N4_SUPER_MIN, 4, 0, 1, 1, SCALE_SUPER)                                                       \
    X(B6_SUPER_MIN, 6, 0, 1, 1, SCALE_SUPER)                                                       \
    X(B8_SUPER, 8, 7, 1, 0, SCALE_SUPER)                                                           \
    X(B6_FLOAT, 6, 4, 1, 0, SCALE_FLOAT)                                                           \
    X(B8_FLOAT, 8, 7, 1, 0, SCALE_FLOAT)
#define LINEAR_FORMS_TWO(X)                                                                        \
    X(N4_SUPER_2MIN, 4, 0, 2, 1, SCALE_SUPER)                                                      \
    X(N4_SUPER_2, 4, 2, 2, 0, SCALE_SUPER)                                                         \
    X(B6_SUPER_2, 6, 5, 2, 0, SCALE_SUPER)                                                         \
    X(B6_FLOAT_2, 6, 4, 2, 0, SCALE_FLOAT)                                                         \
    X(B8_FLOAT_2, 8, 7, 2, 0, SCALE_FLOAT)
#define LINEAR_FORMS(X) LINEAR_FORMS_ONE(X) LINEAR_FORMS_TWO(X)

enum linear_form {
#define X(name, ...) FORM_##name,
    LINEAR_FORMS(X)
#undef X
        FORM_F32, // plain numbers, [k][TILE]
    FORM_F16,
    FORM_BF16, // pairs, [k / 2][TILE][2], zeros up to a multiple of GROUP
    FORM_COUNT
};

struct form {
    int bits, shift, subs, min;
    enum scale_kind scale;
};

// Few rows wait for memory, and the processor's own fetching stops at every page of 4 KB: kernels
// of tiles that are not woven ask for the stream of weights this far ahead.
enum { FETCH_AHEAD = 2048 };

// Bytes that the codes of a group of 16 rows take.
static inline int group_bytes(struct form f) {
    return GROUP * TILE / 8 * f.bits;
}

enum { WOVEN = 8 }; // groups of a woven tile whose scales lie together

// Bytes that the scales, and minima, of WOVEN groups of 16 rows take.
static inline int scale_bytes(struct form f) {
    int each = f.scale == SCALE_FLOAT ? f.subs * 4 * TILE : 2 * TILE;
    int super = WOVEN * f.subs * TILE + 2 * TILE;
    return (f.scale == SCALE_SUPER ? super : WOVEN * each) * (1 + f.min);
}

// A matrix as tiles of 16 output rows. A quantised tile holds its codes, then its scales; a woven
// one the scales of each eight groups, then their codes, so that it is read from begin to end.
// Codes of a group: vector j has 4 bytes for each of the 16 rows, those of k = 4j .. 4j+3;
// bytes are signed and without the offset; of nibbles the low ones are k = 4j .. and the high ones
// k = 16 + 4j .., with the offset. Codes of 6 bits, with the offset: their low 4 as nibbles, then
// two vectors with the upper 2 of k = 8i + 4v .. in bits 2i and 2i+1 of vector v's bytes.
// Scales: SCALE_HALF [group](d[16], m[16]), SCALE_FLOAT [group][sub][16], SCALE_SUPER
// [256 values](s[8 subs][16], m[8 subs][16], d[16], dm[16]); m and dm only with minima.
struct weight {
    uint32_t type; // enum tensor_type of the source
    enum linear_form form;
    int64_t k, m, tiles; // of one expert
    int64_t experts;     // 1 of a plain matrix; tiles and source rows of one follow the other's
    bool woven;
    int64_t scales_at;  // bytes from the tile's begin to its scales
    int64_t tile_bytes; // a multiple of 64
    unsigned char *data;
    const unsigned char *source; // the tensor's own rows, borrowed
    int64_t source_row;          // bytes
};

// The matrix of one expert.
static inline struct weight weight_expert(const struct weight *w, int64_t expert) {
    struct weight one = *w;
    one.experts = 1;
    one.data += expert * w->tiles * w->tile_bytes;
    one.source += expert * w->m * w->source_row;
    return one;
}

// Whole tiles times some rows: out[i * stride + t * TILE + lane] = (or +=) row `row + i` of in
// times output row (tile + t) * TILE + lane, for i < n and t < tiles.
struct linear_part {
    const struct weight *w;
    int64_t tile, tiles;
    const struct act *in;
    int64_t row;                   // a multiple of ROWS
    int n;                         // 1 .. ROWS
    const struct act_alone *alone; // of the only row, or NULL: its blocks are to be read
    bool add;
    float *out;
    int64_t stride;
};
typedef void linear_fn(const struct linear_part *p);
// Writes what is known of one row of a block: half = the sums of the codes' halves.
static inline void act_block_put(struct act_block *b, int lane, float d, const int half[2]) {
    b->d[lane] = d;
    b->ds[lane] = d * (float)(half[0] + half[1]);
    b->nsum[lane] = -(half[0] + half[1]);
    for (int h = 0; h < 2; h++) {
        b->ds16[h][lane] = d * (float)half[h];
        b->nsum16[h][lane] = -half[h];
    }
}

#endif
