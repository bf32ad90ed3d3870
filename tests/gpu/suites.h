// SPDX-License-Identifier: Apache-2.0
// The suites of the GPU program. Each runs on one level ("cuda", "cuda:small", ...), prints its
// lines and adds to the counts.
#ifndef COPPICE_TESTS_GPU_SUITES_H
#define COPPICE_TESTS_GPU_SUITES_H

#include <stdbool.h>
#include <stdint.h>

struct gpu_options {
    const char *only; // a family of ops; NULL: all
    bool timing;
    int cases; // of the property test
    uint64_t seed;
};

struct gpu_counts {
    int passed, failed, skipped;
};

typedef void gpu_suite_fn(const char *level, const struct gpu_options *o, struct gpu_counts *n);

gpu_suite_fn suite_opcheck;

#endif
