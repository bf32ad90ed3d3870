// SPDX-License-Identifier: Apache-2.0
// The plain version of the cases of test_matrix.cu.
#define GPU_PLAIN
#include "gpu/matrix_cases.cuh"

// A map as plain code reads it: halves, tiles of 16 rows of 64.
static gpu_tile_map plain_of(unsigned char *base, const uint32_t (&size)[5],
                             const uint64_t (&step)[5], const uint16_t (&box)[5]) {
    gpu_tile_map map = {};
    struct plain_map *m = (struct plain_map *)&map;
    m->base = base;
    for (int i = 0; i < 5; i++) {
        m->size[i] = size[i];
        m->step[i] = step[i];
        m->box[i] = box[i];
    }
    return map;
}

void run_plain_cases(const struct case_arrays *a) {
    case_maps maps;
    unsigned char *in = (unsigned char *)a->in;
    maps.two = plain_of(in, {128, 60, 1, 1, 1}, {2, 256, 0, 0, 0}, {64, 16, 1, 1, 1});
    maps.to = plain_of(a->stored, {128, 64, 1, 1, 1}, {2, 256, 0, 0, 0}, {64, 16, 1, 1, 1});
    maps.three = plain_of(in, {64, 60, 2, 1, 1}, {2, 256, 128, 0, 0}, {64, 16, 1, 1, 1});
    maps.five = plain_of(in, {64, 30, 2, 1, 2}, {2, 256, 128, 256, 7680}, {64, 8, 1, 1, 2});
    start_cases(*a, maps);
}
