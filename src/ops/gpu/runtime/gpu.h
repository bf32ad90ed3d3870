// SPDX-License-Identifier: Apache-2.0
// Launches of kernels: what one is, and the ways to queue one from .cu files. Usable from C.
#ifndef COPPICE_OPS_GPU_RUNTIME_GPU_H
#define COPPICE_OPS_GPU_RUNTIME_GPU_H

#include <stdbool.h>
#include <stddef.h>

#include "ops/gpu/runtime/vendor.h"
#include "ops/launch_order.h"

// One launch of a kernel. args[i] points at the value of parameter i, which has sizes[i] bytes.
struct gpu_call {
    const void *kernel;
    const char *op; // for the sentence about a fault; outlives the exec
    dim3 grid, block;
    size_t shared; // bytes of dynamic shared memory
    bool early;    // see gpu_launch_early; false unless the launch says so
    struct launch_says says;
    int cluster; // neighbouring blocks that share memory; 0: no clusters
    int n_args;
    void *const *args;
    const size_t *sizes;
};

// Queues the call; with `early`, it may begin before the kernel in front of it has ended.
static inline gpu_error gpu_start(const struct gpu_call *c, bool early, gpu_stream stream) {
    gpu_launch_attribute a[2];
    unsigned n = 0;
    if (early)
        gpu_let_begin_early(&a[n++]);
    if (c->cluster)
        gpu_put_in_clusters(&a[n++], c->cluster);
    gpu_launch_config config;
    config.gridDim = c->grid;
    config.blockDim = c->block;
    config.dynamicSmemBytes = c->shared;
    config.stream = stream;
    config.attrs = a;
    config.numAttrs = n;
    return gpu_launch_kernel(&config, c->kernel, (void **)c->args);
}

#ifdef __cplusplus
extern "C" {
#endif
struct gpu;
// Queues a launch on the exec's stream and keeps a failure as its fault (launch.c).
void gpu_queue(struct gpu *g, const struct gpu_call *c);
// Lets a kernel use `bytes` of dynamic shared memory above 48 KiB, the same for every launch of it,
// since it holds for all execs of the device; asks once. False: a fault.
bool gpu_allow_shared(struct gpu *g, const void *kernel, int bytes, const char *op);
// The same where launches differ: all that the device has besides what the kernel holds itself.
bool gpu_allow_max_shared(struct gpu *g, const void *kernel, const char *op);
#ifdef __cplusplus
}
#endif

#ifdef __CUDACC__
template <typename T> struct gpu_exact {
    typedef T type;
};

template <typename... P>
static inline void gpu_launch_with(struct gpu *g, struct gpu_call c, P... args) {
    void *at[] = {(void *)&args...};
    const size_t sizes[] = {sizeof(P)...};
    c.n_args = (int)sizeof...(P);
    c.args = at;
    c.sizes = sizes;
    gpu_queue(g, &c);
}

// kernel<<<grid, block, shared>>>(args) on the exec's stream, checked; op: a string constant.
// Arguments become the kernel's parameter types. Every launch of an op goes through here.
template <typename... P>
static inline void gpu_launch(struct gpu *g, const char *op, void (*kernel)(P...), dim3 grid,
                              dim3 block, size_t shared, typename gpu_exact<P>::type... args) {
    struct gpu_call c = {(const void *)kernel, op, grid, block, shared, false,
                         LAUNCH_UNKNOWN,       0,  0,    NULL,  NULL};
    gpu_launch_with<P...>(g, c, args...);
}

// What a launch is about, and what it says of itself.
struct gpu_said {
    struct gpu *g;
    const char *op;
    struct launch_says says;
};

// The same for a kernel all of whose threads call gpu_await before they write anything, or read
// anything but staged tables (whose copies have ended, since a launch right after a copy does not
// begin early) and what it says that it reads early. Such reads go past the first-level cache,
// weights excepted, which no launch boundary has emptied by then (__ldcg, cp.async). What stands in
// front of gpu_await then overlaps the end of the kernel before; the driver may start blocks once
// all blocks of that one have ended or called gpu_let_next. No path may return without gpu_await.
// Where what it reads early may be unfinished, gpu_queue has it begin when all others have ended.
template <typename... P>
static inline void gpu_launch_saying(struct gpu_said s, void (*kernel)(P...), dim3 grid, dim3 block,
                                     size_t shared, typename gpu_exact<P>::type... args) {
    struct gpu_call c = {
        (const void *)kernel, s.op, grid, block, shared, true, s.says, 0, 0, NULL, NULL};
    gpu_launch_with<P...>(s.g, c, args...);
}

// The same for a kernel that reads nothing but weights early, may write whatever a pass writes, and
// does not call gpu_let_ahead.
template <typename... P>
static inline void gpu_launch_early(struct gpu *g, const char *op, void (*kernel)(P...), dim3 grid,
                                    dim3 block, size_t shared,
                                    typename gpu_exact<P>::type... args) {
    const struct launch_says unknown = LAUNCH_UNKNOWN;
    gpu_launch_saying<P...>({g, op, unknown}, kernel, grid, block, shared, args...);
}

// The same for clusters of up to 8 neighbouring blocks in x, from compute capability 9.0 on.
template <typename... P>
static inline void gpu_launch_cluster(struct gpu_said s, void (*kernel)(P...), int cluster,
                                      dim3 grid, dim3 block, typename gpu_exact<P>::type... args) {
    struct gpu_call c = {
        (const void *)kernel, s.op, grid, block, 0, true, s.says, cluster, 0, NULL, NULL};
    gpu_launch_with<P...>(s.g, c, args...);
}

#include "ops/gpu/matrix/launch.cuh"
#include "ops/gpu/matrix/warp.cuh"
#endif

#endif
