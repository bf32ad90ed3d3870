// SPDX-License-Identifier: Apache-2.0
// The table of linear families (docs/cuda.md has it too) and what reads it.
#include "ops/linear_choice.h"

#define FORM(name) (1u << WEIGHT_##name)
#define PATH(name) (1u << CUDA_PATH_##name)

enum {
    ANY_FORM = (1 << WEIGHT_FORMS) - 1,
    ANY_PATH = (1 << CUDA_PATHS) - 1,
    // Those whose stages are so large that on sm_90a ops/gpu/linear/few/kernel.cuh finds no room
    // for some numbers of rows.
    WIDE = FORM(HALF) | FORM(FLOAT),
    // Forms of the files' rarer types have no kernels of ops/gpu/linear/few/stream.cuh.
    RARE = FORM(Q2_K) | FORM(LEVELS8) | FORM(LEVELS16) | FORM(NVFP4) | FORM(Q5_1),
};

static const struct row {
    enum linear_family family;
    int64_t min, max; // rows
    unsigned forms, paths;
    bool clusters; // needs them
} table[] = {
    {LINEAR_UNPACKED, 768, INT64_MAX, ANY_FORM & ~FORM(FLOAT), PATH(WGMMA), true},
    {LINEAR_UNPACKED, LINEAR_MMA_MANY, INT64_MAX, ANY_FORM & ~FORM(FLOAT), PATH(MMA), false},
    {LINEAR_FEW, 1, LINEAR_FEW_ROWS, ANY_FORM, PATH(WGMMA), false},
    {LINEAR_GEMM, 96, INT64_MAX, ANY_FORM & ~FORM(FLOAT), PATH(WGMMA), false},
    {LINEAR_WGMMA, 96, INT64_MAX, FORM(FLOAT), PATH(WGMMA), false},
    {LINEAR_FEW, 1, LINEAR_WARP_ROWS, ANY_FORM, PATH(MMA), false},
    {LINEAR_STREAM, 1, LINEAR_STREAM_ROWS, WIDE, PATH(WGMMA), false},
    {LINEAR_STREAM, LINEAR_WARP_ROWS + 1, LINEAR_STREAM_ROWS, ANY_FORM & ~RARE, PATH(MMA), false},
    {LINEAR_TILES, 1, INT64_MAX, ANY_FORM, ANY_PATH, false},
};

static bool serves(const struct row *r, const struct linear_call *c) {
    return (!r->clusters || c->clusters) && c->n >= r->min && c->n <= r->max &&
           r->forms >> c->form & 1 && r->paths >> c->path & 1 && !(c->without >> r->family & 1);
}

enum linear_family linear_choose(const struct linear_call *c) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (serves(&table[i], c))
            return table[i].family;
    return LINEAR_TILES;
}

int64_t linear_slice(enum cuda_path path, bool streams, int64_t n) {
    if (path == CUDA_PATH_SMALL)
        return n < LINEAR_SMALL_ROWS ? n : LINEAR_SMALL_ROWS;
    const int64_t max = streams ? LINEAR_STREAM_ROWS : LINEAR_WARP_ROWS;
    if (path == CUDA_PATH_WGMMA || n <= max || n > 2 * LINEAR_STREAM_ROWS)
        return n;
    const int64_t slices = (n + max - 1) / max;
    return (n + slices * 8 - 1) / (slices * 8) * 8;
}
