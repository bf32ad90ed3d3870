// SPDX-License-Identifier: Apache-2.0
// Memory that ops work with in the place of something else: while a carve is open it comes from a
// piece of memory that somebody has already, in the order that it is asked for, and without being
// cleared (moe/lend.c).
#ifndef COPPICE_OPS_GPU_RUNTIME_CARVE_H
#define COPPICE_OPS_GPU_RUNTIME_CARVE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpu;

struct gpu_carve {
    unsigned char *at, *end;
    bool open, failed;
    size_t wide; // f32 rows of the largest act so far; these acts have none of their own yet
    // Scratch of ops for as long as memory is lent for passes of more rows, in the place of the
    // usual one if it is more.
    void *scratch;
    size_t scratch_bytes;
};

// Opens the GPU's carve on a piece of device memory. End: gives the acts that were made in between
// their f32 rows, out of that piece or, with own, those that all acts share; false: it was too
// small.
void gpu_carve_open(struct gpu *g, unsigned char *at, int64_t bytes);
bool gpu_carve_end(struct gpu *g, bool own);

#ifdef __cplusplus
}
#endif

#endif
