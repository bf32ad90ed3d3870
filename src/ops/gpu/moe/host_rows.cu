// SPDX-License-Identifier: Apache-2.0
// Rows to pinned host memory and back (ops/experts/host.h): the device writes and reads there
// itself, one launch each way, and an event signals the host when the rows have come.
#include "ops/experts/host.h"

#include "ops/gpu/runtime/ops_cuda.h"

enum { THREADS = 256 };

// Block: a row of r, whose host arrays are where the device sees them. Stores of a warp are whole
// lines of the bus where k is a multiple of 32.
static __global__ void __launch_bounds__(THREADS)
    send_rows(const __grid_constant__ struct rows_out r, const __half *x, int64_t stride,
              const float *unscale) {
    const int64_t row = blockIdx.x, from = r.first + row;
    const float by = __ldcg(unscale + from);
    for (int64_t i = threadIdx.x; i < r.k; i += THREADS)
        r.host_rows[row * r.k + i] = __half2float(__ldcg(x + from * stride + i)) * by;
    const int i = (int)threadIdx.x;
    if (i < r.used) {
        r.host_ids[row * r.used + i] = __ldcg(r.ids + from * r.used + i);
        r.host_weights[row * r.used + i] = __ldcg(r.weights + from * r.used + i);
    }
}

static __global__ void __launch_bounds__(THREADS)
    join_rows(const float *from, float *out, int64_t n, bool add) {
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n)
        return;
    const float v = __ldcv(from + i);
    out[i] = add ? out[i] + v : v;
}

// Where the device sees it; NULL after a fault.
template <typename T> static T *seen(struct gpu *g, const T *host) {
    void *p = NULL;
    return gpu_check(g, gpu_host_on_device(&p, (void *)host), "rows in host memory") ? (T *)p
                                                                                     : NULL;
}

static void rows_out(struct exec *x, const struct rows_out *r) {
    struct gpu *g = gpu_enter(x);
    struct rows_out to = *r;
    to.host_rows = seen(g, r->host_rows);
    to.host_ids = seen(g, r->host_ids);
    to.host_weights = seen(g, r->host_weights);
    if (!g->rows_sent &&
        !gpu_check(g, gpu_order_event_create(&g->rows_sent), "an event for rows of the host"))
        return;
    if (!to.host_rows || !to.host_ids || !to.host_weights)
        return;
    gpu_launch(g, "sending rows to the host", send_rows, (unsigned)r->n, THREADS, 0, to,
               (const __half *)r->in->x, r->in->stride, r->in->unscale);
    gpu_check(g, gpu_event_record(g->rows_sent, g->stream), "sending rows to the host");
}

static bool rows_wait(struct exec *x) {
    struct gpu *g = gpu_enter(x);
    return g->fault == GPU_OK && g->rows_sent &&
           gpu_check(g, gpu_event_wait(g->rows_sent), "waiting for rows of the host");
}

static void rows_in(struct exec *x, const struct rows_in *r) {
    struct gpu *g = gpu_enter(x);
    const float *from = seen(g, r->host);
    if (from)
        gpu_launch(g, "rows of the host", join_rows, (unsigned)((r->n + THREADS - 1) / THREADS),
                   THREADS, 0, from, r->out, r->n, r->add);
}

extern "C" const struct host_rows cuda_host_rows = {rows_out, rows_wait, rows_in};
