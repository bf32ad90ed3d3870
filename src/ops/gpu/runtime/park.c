// SPDX-License-Identifier: Apache-2.0
// Parking on a GPU: addresses are reserved once, and memory is mapped to them and taken away by the
// driver's calls for virtual memory. They are requested by name, so that nothing is linked for
// them, and a driver without them cannot park.
#include "base/num.h"
#include "ops/copier.h"
#include "ops/gpu/runtime/ops_cuda.h"
#include "ops/parking.h"

static struct gpu_virtual_calls driver; // filled once it is requested; the same from any thread

static bool find_driver_calls(void) {
    struct gpu_virtual_calls c;
    bool ok = gpu_find_virtual_calls(&c);
    if (ok)
        driver = c;
    else
        gpu_last_error();
    return ok;
}

static void *reserve_addresses(void *arg, size_t bytes) {
    gpu_address p = 0;
    gpu_use_device(((struct gpu *)arg)->device);
    return gpu_driver_did(driver.reserve(&p, bytes, 0, 0, 0)) ? (void *)p : NULL;
}

static void free_addresses(void *arg, void *p, size_t bytes) {
    struct gpu *g = arg;
    if (!gpu_driver_did(driver.unreserve((gpu_address)p, bytes)))
        gpu_check(g, GPU_UNKNOWN, "freeing addresses of parked memory");
}

static bool map_piece(struct gpu *g, gpu_address p, size_t bytes) {
    gpu_piece h;
    const gpu_piece_kind kind = gpu_piece_kind_of(g->device);
    const gpu_piece_access access = gpu_piece_access_of(&kind);
    if (!gpu_driver_did(driver.create(&h, bytes, &kind, 0)))
        return false;
    bool mapped = gpu_driver_did(driver.map(p, bytes, 0, h, 0));
    bool ok = mapped && gpu_driver_did(driver.access(p, bytes, &access, 1));
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
            gpu_driver_did(driver.unmap((gpu_address)(p + at), min_size(bytes - at, PARK_PIECE))) &&
            ok;
    return ok;
}

static bool map_pieces(void *arg, void *p, size_t bytes) {
    struct gpu *g = arg;
    gpu_use_device(g->device);
    for (size_t at = 0; at < bytes; at += PARK_PIECE)
        if (!map_piece(g, (gpu_address)p + at, min_size(bytes - at, PARK_PIECE))) {
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
        gpu_check(g, GPU_UNKNOWN, "parking memory");
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
    const gpu_piece_kind kind = gpu_piece_kind_of(g->device);
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
    if (!find_driver_calls() || !gpu_driver_did(driver.grain(&from.grain, &kind, GPU_LEAST_GRAIN)))
        return err_set(e, ERR_UNSUPPORTED,
                       "the driver of GPU %d has no virtual memory, by which weights could make "
                       "room for a while",
                       g->device);
    parked_init(k, &g->memory, &from);
    return 0;
}

void cuda_park_fault(struct exec *x) {
    gpu_check(gpu_of(x), GPU_UNKNOWN, "bringing weights back");
}
