// SPDX-License-Identifier: Apache-2.0
// The kernels of the delta rule, between gdn.cu that chooses and the files that have them.
#ifndef COPPICE_OPS_GPU_GDN_LAUNCH_H
#define COPPICE_OPS_GPU_GDN_LAUNCH_H

#include "ops/gpu/gdn/gdn.cuh"

// What launches of the rule say; those that read states early, and that leave things in scratch.
static const struct launch_says GDN_EARLY = {MEMORY_STATES, MEMORY_DELTAS, false, NULL, true};
static const struct launch_says GDN_APART = {MEMORY_STATES, MEMORY_DELTAS | MEMORY_SUMS, false,
                                             NULL, false};
static const struct launch_says GDN_LATE = {0, MEMORY_DELTAS | MEMORY_SUMS, false, NULL, false};

// Queue the rule for so many runs; j->count and j->most are set. t: the tables, if t->few.n
// (gdn_matrix only). False after a fault.
bool gdn_matrix(struct gpu *g, struct gdn_job *j, const struct gdn_tables *t, int runs);
bool gdn_plain(struct gpu *g, struct gdn_job *j, int runs);

// The same bits as gdn_matrix for n <= GDN_STATES runs of at most GDN_SMALL rows each: states are
// read once a run, at the rate of the device's memory. Whether it serves the shape, and the launch.
enum { GDN_SMALL = 24 };
bool gdn_takes_small(const struct gpu *g, const struct gdn_shape *s);
bool gdn_small(struct gpu *g, const struct gdn_args *a, const struct gdn_run *runs, int n,
               const struct rows *r);

// The same for runs of one row each, which read base lo.
bool gdn_single(struct gpu *g, const struct gdn_args *a, const struct gdn_run *runs, int n);

// Bytes of scratch of these. j: shape, count and most.
size_t gdn_matrix_bytes(const struct gpu *g, struct gdn_job j, int runs);
size_t gdn_plain_bytes(const struct gdn_shape *s, int most, int runs);
size_t gdn_single_bytes(const struct gdn_shape *s, int n);
size_t gdn_small_bytes(const struct gdn_shape *s, int rows, int n); // rows: of the longest run

#endif
