// SPDX-License-Identifier: Apache-2.0
// The router on its own, a warp a row (route.cuh).
#include "ops/gpu/moe/route.cuh"
#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 128, ROWS = THREADS / WARP };

template <int EACH>
static __global__ void __launch_bounds__(THREADS)
    route_rows(const __grid_constant__ struct moe_route_args a) {
    __shared__ float by[ROWS][EACH * WARP];
    gpu_await();
    gpu_let_next();
    const int warp = threadIdx.x / WARP;
    const int64_t row = (int64_t)blockIdx.x * ROWS + warp;
    if (row < a.n)
        route_row<EACH>(a, row, by[warp]);
}

extern "C" void cuda_moe_route(struct exec *x, const struct moe_route_args *a) {
    struct gpu *g = gpu_of(x);
    const unsigned blocks = (unsigned)((a->n + ROWS - 1) / ROWS);
    if (a->n == 0)
        return;
    if (a->experts <= 128)
        gpu_launch_early(g, "moe_route", route_rows<4>, blocks, THREADS, 0, *a);
    else if (a->experts <= 256)
        gpu_launch_early(g, "moe_route", route_rows<8>, blocks, THREADS, 0, *a);
    else
        gpu_launch_early(g, "moe_route", route_rows<32>, blocks, THREADS, 0, *a);
}
