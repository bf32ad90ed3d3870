// SPDX-License-Identifier: Apache-2.0
// Linear layers of bf16 weights for many rows with AMX: a tile product is 32 k values of 16 outputs
// times up to 16 rows, and the sums stay in tiles until a row is done. What one product does, down
// to the order of its additions, is the specification in scalar.c. Four weight tiles are
// taken at a time, so that they share what is loaded of the activations.
#include "ops/cpu/linear/amx.h"

enum { TOGETHER = 4, BLOCK_BYTES = GROUP * TILE * 2 };

// Tiles 0-3 take sums, 4 activations, 5-6 weights.
static void configure(int n) {
    struct tile_config c = {.palette = 1};
    for (int i = 0; i < 7; i++)
        tile_shape(&c, i, i < 5 ? n : GROUP / 2, 4 * TILE);
    tile_configure(&c);
}

INLINE void zero(int count) {
    _tile_zero(0);
    if (count < TOGETHER)
        return;
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
}

// One block of `count` weight tiles, a constant.
INLINE void block(const uint16_t *x, int64_t stride, const unsigned char *w, int64_t tile_bytes,
                  int count) {
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

INLINE void store(float sum[TOGETHER][ROWS * TILE], int count) {
    _tile_stored(0, sum[0], 64);
    if (count < TOGETHER)
        return;
    _tile_stored(1, sum[1], 64);
    _tile_stored(2, sum[2], 64);
    _tile_stored(3, sum[3], 64);
}

// Weight tiles [t, t + count) of the part.
INLINE void tiles(const struct linear_part *p, int64_t t, int count) {
    _Alignas(64) float sum[TOGETHER][ROWS * TILE];
    int64_t stride = p->in->stride, bytes = p->w->tile_bytes;
    const unsigned char *w = p->w->data + (p->tile + t) * bytes;
    const uint16_t *x = p->in->h + p->row * stride;
    bool far = p->row == 0; // later rows find the weights in a near cache
    zero(count);
    for (int64_t k = 0; k < stride; k += GROUP, w += BLOCK_BYTES) {
        for (int j = 0; far && j < count * BLOCK_BYTES / 64; j++)
            _mm_prefetch((const char *)w + j / 16 * bytes + FETCH_AHEAD + j % 16 * 64, _MM_HINT_T0);
        block(x + k, stride, w, bytes, count);
    }
    store(sum, count);
    __asm__ volatile("" : : "r"(sum) : "memory"); // written behind the compiler's back
    for (int j = 0; j < count; j++)
        for (int r = 0; r < p->n; r++)
            put(p, p->out + r * p->stride + (t + j) * TILE, _mm512_load_ps(sum[j] + r * TILE));
}

static void linear_bf16(const struct linear_part *p) {
    int64_t t = 0;
    configure(p->n);
    for (; t + TOGETHER <= p->tiles; t += TOGETHER)
        tiles(p, t, TOGETHER);
    for (; t < p->tiles; t++)
        tiles(p, t, 1);
    _tile_release();
}

void linear_fill_bf16_amx(struct row_kernels *r) {
    r->linear_many[FORM_BF16] = linear_bf16;
}
