// SPDX-License-Identifier: Apache-2.0
// What linear layers read: weights as tiles of 16 output rows, activations as int8 groups with one
// scale for 32 values, and the part of a matrix product that one call of a kernel makes.
#ifndef COPPICE_OPS_CPU_LINEAR_LINEAR_H
#define COPPICE_OPS_CPU_LINEAR_LINEAR_H

#include <stdbool.h>
#include <stdint.h>

#include "formats/quant/codes.h"

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

// Bits of the control word of SSE and AVX by which they treat small numbers as tile products do.
enum { FLUSH_TO_ZERO = 0x8040 };

// Few rows wait for memory, and the processor's own fetching stops at every page of 4 KB: kernels
// of tiles that are not woven request the stream of weights this far ahead.
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
// Plain numbers are [k][TILE], of bf16 pairs, [k / 2][TILE][2], zeros up to a multiple of GROUP.
// Scales: SCALE_HALF [group](d[16], m[16]), SCALE_FLOAT [group][sub][16], SCALE_SUPER
// [256 values](s[8 subs][16], m[8 subs][16], d[16], dm[16]); m and dm only with minima.
struct weight {
    uint32_t type; // enum tensor_type of the source
    enum code_form form;
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

// For CODE_FORMS: the kernel of a form, from a level's part(form, p), and its entry in the table r.
#define LINEAR_KERNEL(name, bits, shift, subs, min, scale)                                         \
    static void linear_##name(const struct linear_part *p) {                                       \
        const struct form f = {bits, shift, subs, min, scale};                                     \
        part(f, p);                                                                                \
    }
#define LINEAR_ENTRY(name, ...) r->linear[FORM_##name] = linear_##name;

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
