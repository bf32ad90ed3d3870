// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: its exec, plain memory ops and the table. All ops queue on one stream.
#include <stdlib.h>
#include <string.h>

#include "ops/cuda/cuda.h"
#include "ops/cuda/ops_cuda.h"

static void *memory_alloc(struct exec *x, size_t bytes) {
    return gpu_alloc(gpu_of(x), bytes);
}

static void memory_free(struct exec *x, void *p) {
    gpu_release(gpu_of(x), p);
}

// Blocks until src may be reused.
static void memory_upload(struct exec *x, void *dst, const void *src, size_t bytes) {
    struct gpu *g = gpu_of(x);
    if (bytes && gpu_check(g, gpu_to_device(dst, src, bytes, g->stream), "copying to the device"))
        gpu_check(g, gpu_stream_wait(g->stream), "copying to the device");
}

static void memory_download(struct exec *x, void *dst, const void *src, size_t bytes) {
    struct gpu *g = gpu_of(x);
    if (bytes && gpu_check(g, gpu_to_host(dst, src, bytes, g->stream), "copying from the device"))
        gpu_check(g, gpu_stream_wait(g->stream), "copying from the device");
}

static void memory_copy(struct exec *x, void *dst, const void *src, size_t bytes) {
    struct gpu *g = gpu_of(x);
    if (bytes)
        gpu_check(g, gpu_on_device(dst, src, bytes, g->stream), "copying on the device");
}

static void memory_zero(struct exec *x, void *dst, size_t bytes) {
    struct gpu *g = gpu_of(x);
    if (bytes)
        gpu_check(g, gpu_zero(dst, 0, bytes, g->stream), "clearing memory");
}

int cuda_status(struct exec *x, struct err *e) {
    struct gpu *g = gpu_of(x);
    gpu_check(g, gpu_stream_wait(g->stream), "waiting for the device");
    gpu_check(g, gpu_last_error(), "a kernel");
    if (g->fault == GPU_OK)
        return 0;
    return err_set(e, ERR_DEVICE, "GPU %d failed (%s: %s); restart the program", g->device,
                   g->fault_where, gpu_error_text(g->fault));
}

int cuda_act_create(struct exec *x, int64_t n, int64_t k, struct act **out, struct err *e) {
    struct gpu *g = gpu_of(x);
    int64_t stride = (k + ACT_ALIGN - 1) / ACT_ALIGN * ACT_ALIGN;
    struct act *a = calloc(1, sizeof *a);
    *out = NULL;
    if (a && n > 0 && k > 0 && stride < INT64_MAX / 8 / n) {
        size_t values = (size_t)(n * stride);
        a->rows = n;
        a->cap_k = k;
        a->x = gpu_alloc(g, values * 2);
        a->unscale = gpu_alloc(g, (size_t)n * sizeof *a->unscale);
        a->wide = gpu_alloc(g, values * sizeof *a->wide);
    }
    if (!a || !a->x || !a->unscale || !a->wide) {
        cuda_act_destroy(x, a);
        return err_set(e, ERR_MEMORY,
                       "out of GPU memory for %lld rows of %lld activations; use a smaller --chunk",
                       (long long)n, (long long)k);
    }
    *out = a;
    return 0;
}

void cuda_act_destroy(struct exec *x, struct act *a) {
    if (!a)
        return;
    gpu_release(gpu_of(x), a->x);
    gpu_release(gpu_of(x), a->unscale);
    gpu_release(gpu_of(x), a->wide);
    free(a);
}

static const struct ops cuda_table = {
    .name = "cuda",
    .sample_together = true,
    .alloc = memory_alloc,
    .free = memory_free,
    .upload = memory_upload,
    .download = memory_download,
    .copy = memory_copy,
    .zero = memory_zero,
    .act_create = cuda_act_create,
    .act_destroy = cuda_act_destroy,
    .to_act = cuda_to_act,
    .norm_to_act = cuda_norm_to_act,
    .gated_norm_to_act = cuda_gated_norm_to_act,
};

static void cuda_destroy(struct exec *x) {
    struct gpu *g = gpu_of(x);
    if (g->stream)
        gpu_stream_wait(g->stream);
    gpu_release(g, g->scratch);
    if (g->stage.host)
        gpu_host_free(g->stage.host);
    gpu_release(g, g->stage.device);
    while (g->n_blocks)
        gpu_release(g, g->blocks[g->n_blocks - 1].p);
    free(g->blocks);
    if (g->stream)
        gpu_stream_destroy(g->stream);
    free(g);
}

static int open_device(struct gpu *g, struct err *e) {
    gpu_properties p;
    gpu_error code = gpu_use_device(g->device);
    if (code == GPU_OK)
        code = gpu_get_properties(&p, g->device);
    if (code == GPU_OK)
        code = gpu_stream_create(&g->stream);
    if (code != GPU_OK)
        return err_set(e, ERR_DEVICE, "GPU %d cannot be used (%s); use --device cpu", g->device,
                       gpu_error_text(code));
    g->sm = p.major * 10 + p.minor;
    g->processors = p.multiProcessorCount;
    g->path = g->sm == 90 ? CUDA_PATH_WGMMA : g->sm >= 80 ? CUDA_PATH_MMA : CUDA_PATH_SMALL;
    g->stage.device = gpu_alloc(g, STAGE_BYTES);
    void *host = NULL;
    code = gpu_host_malloc(&host, STAGE_BYTES);
    g->stage.host = host;
    if (!g->stage.device || code != GPU_OK)
        return err_set(e, ERR_MEMORY, "no memory to open GPU %d; free some of its memory",
                       g->device);
    return 0;
}

int exec_create_cuda(struct exec **out, const struct cuda_options *o, struct err *e) {
    *out = NULL;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_MEMORY, "out of memory for the CUDA backend");
    g->base.ops = &cuda_table;
    g->base.destroy = cuda_destroy;
    g->base.threads = 1;
    g->device = o->device;
    g->limit = o->limit;
    int rc = open_device(g, e);
    if (rc) {
        cuda_destroy(&g->base);
        return rc;
    }
    *out = &g->base;
    return 0;
}
