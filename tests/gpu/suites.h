// SPDX-License-Identifier: Apache-2.0
// The suites of the GPU program. Each runs on one level ("cuda", "cuda:small", ...), prints its
// lines and adds to the counts.
#ifndef COPPICE_TESTS_GPU_SUITES_H
#define COPPICE_TESTS_GPU_SUITES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpu_options {
    const char *only;  // a family of ops, or how names of golden cases begin; NULL: all
    const char *data;  // the folder tests of the repository
    const char *model; // suite compare: a GGUF file; NULL: random tiny models only
    bool timing;
    bool brief;       // leave out the large cases of opcheck
    int cases, first; // of the property test
    uint64_t seed;
};

struct gpu_counts {
    int passed, failed, skipped;
};

// One line of the table, counted.
void gpu_line(struct gpu_counts *n, bool ok, const char *level, const char *suite, const char *what,
              const char *format, ...) __attribute__((format(printf, 6, 7)));

typedef void gpu_suite_fn(const char *level, const struct gpu_options *o, struct gpu_counts *n);

gpu_suite_fn suite_opcheck;  // ops against the scalar level and doubles (tests/opcheck)
gpu_suite_fn suite_golden;   // small models against stored answers (tests/golden)
gpu_suite_fn suite_property; // rule E over random models (tests/property)
gpu_suite_fn suite_score;    // the scorer of prompts: near the CPU's, same bits in chunks
gpu_suite_fn suite_compare;  // logits against the CPU's, next to what int8 activations change
gpu_suite_fn suite_lending;  // slots of experts that are lent where the host has no memory
gpu_suite_fn suite_sigmoid;  // several sigmoids at once compared with single ones, of all floats
gpu_suite_fn suite_lies;     // with --delay: whether the watch of launches finds lies (watch.h)

#ifdef __cplusplus
}
#endif

#endif
