// SPDX-License-Identifier: Apache-2.0
// Sigmoids and SiLUs of several values at once (activation.cuh) compared with the plain
// expressions, for all 2^32 floats: four neighbours at a time, so that steps of usual numbers serve
// whatever they may.
#include "gpu/suites.h"
extern "C" {
#include "opcheck/opcheck.h"
}
#include "ops/gpu/linear/form/activation.cuh"
#include "ops/gpu/runtime/ops_cuda.h"
#include "support/device.h"

enum what { SIGMOID, SILU, ROW_SILU, KINDS };
enum { R = 4, THREADS = 256, BLOCKS = 4096 };

template <what KIND> static __device__ void all(float (&x)[R]) {
    if (KIND == SIGMOID)
        sigmoid_all(x);
    else if (KIND == SILU)
        silu_all(x);
    else
        row_silu_all(x);
}

template <what KIND> static __device__ float plain(float x) {
    return KIND == SIGMOID ? 1.0f / (1.0f + expf(-x))
           : KIND == SILU  ? x / (1.0f + expf(-x))
                           : row_silu(x);
}

// Counts floats whose result differs, and says one of them.
template <what KIND> static __global__ void differ(unsigned long long *count, unsigned *one) {
    const unsigned step = (unsigned)(gridDim.x * blockDim.x);
    for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < (1u << 30); i += step) {
        float x[R];
        for (int r = 0; r < R; r++)
            x[r] = __uint_as_float(i * R + r);
        all<KIND>(x);
        for (int r = 0; r < R; r++) {
            const float want = plain<KIND>(__uint_as_float(i * R + r));
            if (__float_as_uint(x[r]) == __float_as_uint(want) || (x[r] != x[r] && want != want))
                continue;
            atomicAdd(count, 1ull);
            *one = i * R + r;
        }
    }
}

struct found {
    unsigned long long count;
    unsigned one;
};

template <what KIND>
static void check(const char *level, const char *name, struct found *on, struct gpu_counts *n) {
    struct found f = {};
    cudaError_t error = cudaMemset(on, 0, sizeof *on);
    differ<KIND><<<BLOCKS, THREADS>>>(&on->count, &on->one);
    if (error == cudaSuccess)
        error = cudaMemcpy(&f, on, sizeof f, cudaMemcpyDeviceToHost);
    gpu_line(n, error == cudaSuccess && !f.count, level, "sigmoid", name,
             "%llu of 4294967296 floats differ%s%s, one of bits %08x", f.count,
             error == cudaSuccess ? "" : ", ",
             error == cudaSuccess ? "" : cudaGetErrorString(error), f.one);
}

extern "C" void suite_sigmoid(const char *level, const struct gpu_options *o,
                              struct gpu_counts *n) {
    struct exec *x = NULL;
    struct found *on;
    struct err e = {};
    (void)o;
    if (!device_level(level))
        return;
    if (device_open(&x, level, 0, &e)) {
        gpu_line(n, false, level, "sigmoid", "open", "%s", e.text);
        return;
    }
    gpu_enter(x);
    on = (struct found *)x->ops->alloc(x, sizeof *on);
    if (on) {
        check<SIGMOID>(level, "1 / (1 + e^-x)", on, n);
        check<SILU>(level, "x / (1 + e^-x)", on, n);
        check<ROW_SILU>(level, "row_silu", on, n);
    }
    if (!on || x->status(x, &e))
        gpu_line(n, false, level, "sigmoid", "status", "%s", on ? e.text : "no memory");
    exec_destroy(x);
}
