// SPDX-License-Identifier: Apache-2.0
// Matrix products by the vendor's library, found at run time (vendor.c). Internal to this folder.
#ifndef COPPICE_OPS_GPU_LINEAR_MANY_VENDOR_VENDOR_H
#define COPPICE_OPS_GPU_LINEAR_MANY_VENDOR_VENDOR_H

#include "ops/gpu/runtime/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

// Finds the library and opens it for g's stream. ERR_UNSUPPORTED where there is none or it does not
// start, ERR_MEMORY without its workspace.
int vendor_open(struct gpu *g, struct err *e);
void vendor_close(struct gpu *g); // nothing where it was not opened

// out[n][m_stride] f32 = products of w[m][k] and x[n][k], both halves; sums in f32, in an order of
// the library's own. Only where it was opened.
struct vendor_product {
    const void *w, *x;
    float *out;
    int64_t m, n, k, m_stride;
};
void vendor_multiply(struct gpu *g, const struct vendor_product *p);

#ifdef __cplusplus
}
#endif

#endif
