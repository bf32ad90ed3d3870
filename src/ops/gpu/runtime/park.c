// SPDX-License-Identifier: Apache-2.0
// Parking on a GPU: addresses are reserved once, and memory is mapped to them and taken away by the
// driver's calls for virtual memory. They are asked for by name, so that nothing is linked for
// them, and a driver without them cannot park.
#include <cuda.h>
#include <string.h>

#include "base/num.h"
#include "ops/copier.h"
#include "ops/gpu/runtime/ops_cuda.h"
#include "ops/parking.h"

// The driver's calls.
struct calls {
    CUresult (*grain)(size_t *, const CUmemAllocationProp *, CUmemAllocationGranularity_flags);
    CUresult (*reserve)(CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long);
    CUresult (*unreserve)(CUdeviceptr, size_t);
    CUresult (*create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *,
                       unsigned long long);
    CUresult (*drop)(CUmemGenericAllocationHandle);
    CUresult (*map)(CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long);
    CUresult (*unmap)(CUdeviceptr, size_t);
    CUresult (*access)(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t);
};

static struct calls driver; // filled once it is asked for; the same from any thread

static bool find_driver_call(const char *name, void *to) {
    enum cudaDriverEntryPointQueryResult found;
    void *f = NULL;
    if (cudaGetDriverEntryPointByVersion(name, &f, 12000, cudaEnableDefault, &found) !=
            cudaSuccess ||
        found != cudaDriverEntryPointSuccess)
        return false;
    memcpy(to, &f, sizeof f);
    return true;
}

static bool find_driver_calls(void) {
    struct calls c;
    bool ok = find_driver_call("cuMemGetAllocationGranularity", &c.grain) &&
              find_driver_call("cuMemAddressReserve", &c.reserve) &&
              find_driver_call("cuMemAddressFree", &c.unreserve) &&
              find_driver_call("cuMemCreate", &c.create) &&
              find_driver_call("cuMemRelease", &c.drop) && find_driver_call("cuMemMap", &c.map) &&
              find_driver_call("cuMemUnmap", &c.unmap) &&
              find_driver_call("cuMemSetAccess", &c.access);
    if (ok)
        driver = c;
    else
        gpu_last_error();
    return ok;
}

static CUmemAllocationProp allocation_kind(const struct gpu *g) {
    CUmemAllocationProp p = {.type = CU_MEM_ALLOCATION_TYPE_PINNED};
    p.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    p.location.id = g->device;
    return p;
}

static void *reserve_addresses(void *arg, size_t bytes) {
    CUdeviceptr p = 0;
    gpu_use_device(((struct gpu *)arg)->device);
    return driver.reserve(&p, bytes, 0, 0, 0) == CUDA_SUCCESS ? (void *)p : NULL;
}

static void free_addresses(void *arg, void *p, size_t bytes) {
    struct gpu *g = arg;
    if (driver.unreserve((CUdeviceptr)p, bytes) != CUDA_SUCCESS)
        gpu_check(g, cudaErrorUnknown, "freeing addresses of parked memory");
}

static bool map_piece(struct gpu *g, CUdeviceptr p, size_t bytes) {
    CUmemGenericAllocationHandle h;
    const CUmemAllocationProp kind = allocation_kind(g);
    const CUmemAccessDesc access = {kind.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    if (driver.create(&h, bytes, &kind, 0) != CUDA_SUCCESS)
        return false;
    bool mapped = driver.map(p, bytes, 0, h, 0) == CUDA_SUCCESS;
    bool ok = mapped && driver.access(p, bytes, &access, 1) == CUDA_SUCCESS;
    if (mapped && !ok)
        driver.unmap(p, bytes);
    driver.drop(h); // the mapping keeps the memory
    return ok;
}

// What is mapped as a whole is unmapped as a whole, and parts of a slab may have to go: so each
// piece of it is mapped by itself.
static bool unmap_pieces(unsigned char *p, size_t bytes) {
    bool ok = true;
    for (size_t at = 0; at < bytes; at += PARK_PIECE)
        ok =
            driver.unmap((CUdeviceptr)(p + at), min_size(bytes - at, PARK_PIECE)) == CUDA_SUCCESS &&
            ok;
    return ok;
}

static bool map_pieces(void *arg, void *p, size_t bytes) {
    struct gpu *g = arg;
    gpu_use_device(g->device);
    for (size_t at = 0; at < bytes; at += PARK_PIECE)
        if (!map_piece(g, (CUdeviceptr)p + at, min_size(bytes - at, PARK_PIECE))) {
            unmap_pieces(p, at);
            return false;
        }
    return true;
}

static void unmap_memory(void *arg, void *p, size_t bytes) {
    struct gpu *g = arg;
    gpu_use_device(g->device);
    gpu_check(g, gpu_stream_wait(g->stream), "waiting to park memory");
    if (!unmap_pieces(p, bytes))
        gpu_check(g, cudaErrorUnknown, "parking memory");
}

static void *host_take(void *arg, size_t bytes) {
    return exec_host_alloc(arg, bytes);
}

static void host_give(void *arg, void *p) {
    exec_host_free(arg, p);
}

static bool copy_out(void *arg, void *host, const void *p, size_t bytes) {
    struct gpu *g = arg;
    gpu_download(g, host, p, bytes);
    return g->fault == GPU_OK;
}

static bool copy_back(void *arg, void *p, const void *host, size_t bytes) {
    struct gpu *g = arg;
    gpu_upload(g, p, host, bytes);
    return g->fault == GPU_OK;
}

int cuda_park_open(struct exec *x, struct parked *k, struct err *e) {
    struct gpu *g = gpu_enter(x);
    const CUmemAllocationProp kind = allocation_kind(g);
    struct parked_source from = {reserve_addresses,
                                 free_addresses,
                                 map_pieces,
                                 unmap_memory,
                                 host_take,
                                 host_give,
                                 copy_out,
                                 copy_back,
                                 g,
                                 0,
                                 PARK_PIECE};
    if (!find_driver_calls() ||
        driver.grain(&from.grain, &kind, CU_MEM_ALLOC_GRANULARITY_MINIMUM) != CUDA_SUCCESS)
        return err_set(e, ERR_UNSUPPORTED,
                       "the driver of GPU %d has no virtual memory, by which weights could make "
                       "room for a while",
                       g->device);
    parked_init(k, &g->memory, &from);
    return 0;
}

void cuda_park_fault(struct exec *x) {
    gpu_check(gpu_of(x), cudaErrorUnknown, "bringing weights back");
}
