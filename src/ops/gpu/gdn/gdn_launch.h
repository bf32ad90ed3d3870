// SPDX-License-Identifier: Apache-2.0
// The two kernels of the delta rule, between gdn.cu that chooses and the files that have them.
#ifndef COPPICE_OPS_GPU_GDN_GDN_LAUNCH_H
#define COPPICE_OPS_GPU_GDN_GDN_LAUNCH_H

#include "ops/gpu/gdn/gdn.cuh"

// Queue the rule for `sequences` sequences from j->first_seq on; j->most is set. t: the tables, if
// t->few.n (gdn_matrix only). False after a fault.
bool gdn_matrix(struct gpu *g, struct gdn_job *j, const struct gdn_tables *t, int sequences);
bool gdn_plain(struct gpu *g, struct gdn_job *j, int sequences);

// Bytes of scratch of these. j: shape, count and most.
size_t gdn_matrix_bytes(const struct gpu *g, struct gdn_job j, int sequences);
size_t gdn_plain_bytes(const struct gdn_shape *s, int most, int sequences);

#endif
