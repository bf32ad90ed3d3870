// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: its exec, plain memory ops and the table. All ops queue on one stream.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant.h"
#include "ops/gpu/linear/many/vendor.h"
#include "ops/gpu/runtime/ops_cuda.h"

static void *memory_alloc(struct exec *x, size_t bytes) {
    return gpu_alloc(gpu_of(x), bytes);
}

static void memory_free(struct exec *x, void *p) {
    gpu_release(gpu_of(x), p);
}

// Blocks until src may be reused.
static void memory_upload(struct exec *x, void *dst, const void *src, size_t bytes) {
    struct gpu *g = gpu_of(x);
    gpu_flush(g);
    if (bytes && gpu_check(g, gpu_to_device(dst, src, bytes, g->stream), "copying to the device"))
        gpu_check(g, gpu_stream_wait(g->stream), "copying to the device");
}

static void memory_download(struct exec *x, void *dst, const void *src, size_t bytes) {
    struct gpu *g = gpu_of(x);
    gpu_flush(g);
    if (bytes && gpu_check(g, gpu_to_host(dst, src, bytes, g->stream), "copying from the device"))
        gpu_check(g, gpu_stream_wait(g->stream), "copying from the device");
}

static void memory_copy(struct exec *x, void *dst, const void *src, size_t bytes) {
    struct gpu *g = gpu_of(x);
    gpu_flush(g);
    if (bytes)
        gpu_check(g, gpu_on_device(dst, src, bytes, g->stream), "copying on the device");
}

static void memory_zero(struct exec *x, void *dst, size_t bytes) {
    struct gpu *g = gpu_of(x);
    gpu_flush(g);
    if (bytes)
        gpu_check(g, gpu_zero(dst, 0, bytes, g->stream), "clearing memory");
}

static void memory_of(struct exec *x, struct exec_memory *m) {
    struct gpu *g = gpu_of(x);
    size_t available = 0, total = 0;
    gpu_check(g, gpu_memory_info(&available, &total), "asking for free memory");
    *m = (struct exec_memory){
        .used = g->used, .peak = g->peak, .free = (int64_t)available, .total = (int64_t)total};
    if (g->limit > 0 && m->free > g->limit - g->used)
        m->free = g->limit - g->used;
}

static int64_t act_bytes(const struct exec *x, int64_t n, int64_t k) {
    (void)x;
    return n * (round_up(k, ACT_ALIGN) * 2 + (int64_t)sizeof(float));
}

// What lies beside weights, rooms and callers' memory: the stage, the shared wide rows, and what
// ops ask for as scratch, which is estimated here.
static int64_t own_bytes(const struct exec *x, int64_t most_values) {
    enum { SCRATCH = 160 << 20 };
    const struct gpu *g = (const struct gpu *)x;
    int64_t scratch = g->path == CUDA_PATH_WGMMA ? UNPACKED_BYTES : SCRATCH;
    if (g->vendor)
        scratch = (int64_t)UNPACKED_BYTES + VENDOR_SUMS + VENDOR_WORKSPACE;
    return STAGE_BYTES + scratch + most_values * (int64_t)sizeof(float);
}

// Room for f32 rows that all acts share.
static bool share_wide(struct gpu *g, size_t bytes) {
    if (bytes <= g->wide_bytes)
        return true;
    gpu_flush(g);
    float *wide = gpu_alloc(g, bytes);
    if (!wide)
        return false;
    gpu_release(g, g->wide);
    g->wide = wide;
    g->wide_bytes = bytes;
    for (struct act *a = g->acts; a; a = a->next)
        a->wide = wide;
    return true;
}

int cuda_act_create(struct exec *x, int64_t n, int64_t k, struct act **out, struct err *e) {
    struct gpu *g = gpu_of(x);
    int64_t stride = round_up(k, ACT_ALIGN);
    struct act *a = calloc(1, sizeof *a);
    *out = NULL;
    bool ok = a && n > 0 && k > 0 && stride < INT64_MAX / 8 / n;
    if (ok) {
        a->rows = n;
        a->cap_k = k;
        a->x = gpu_alloc(g, (size_t)(n * stride) * 2);
        a->unscale = gpu_alloc(g, (size_t)n * sizeof *a->unscale);
        ok = a->x && a->unscale && share_wide(g, (size_t)(n * stride) * sizeof *a->wide);
    }
    if (!ok) {
        cuda_act_destroy(x, a);
        return err_set(e, ERR_MEMORY,
                       "out of GPU memory for %lld rows of %lld activations; use a smaller --chunk",
                       (long long)n, (long long)k);
    }
    a->wide = g->wide;
    a->next = g->acts;
    g->acts = a;
    *out = a;
    return 0;
}

void cuda_act_destroy(struct exec *x, struct act *a) {
    if (!a)
        return;
    struct gpu *g = gpu_of(x);
    for (struct act **at = &g->acts; *at; at = &(*at)->next) {
        if (*at == a) {
            *at = a->next;
            break;
        }
    }
    if (g->deferred_act == a)
        g->deferred_rows = 0;
    gpu_release(g, a->x);
    gpu_release(g, a->unscale);
    free(a);
}

// Halves arrive in the second half of `out`, which is long enough, and are widened from its start:
// each is read before its place is written.
static void act_read(struct exec *x, const struct act *a, int64_t n, float *out) {
    enum { ROWS = 256 };
    float unscale[ROWS];
    const int64_t values = n * a->stride;
    const unsigned char *half = (const unsigned char *)out + 2 * values;
    memory_download(x, (unsigned char *)out + 2 * values, a->x, (size_t)values * 2);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = min_i64(n - i, ROWS);
        if (i % ROWS == 0)
            memory_download(x, unscale, a->unscale + i, (size_t)left * sizeof *unscale);
        for (int64_t k = 0; k < a->k; k++) {
            uint16_t h;
            memcpy(&h, half + 2 * (i * a->stride + k), sizeof h);
            out[i * a->k + k] = f16_to_f32(h) * unscale[i % ROWS];
        }
    }
}

// Forms that came with ops for models to be, and have no kernel here yet.
static int takes(const struct exec *x, const struct ops_needs *n, struct err *e) {
    const char *what = NULL;
    if (n->activation != ACTIVATION_SILU)
        what = "an activation other than SiLU";
    if (n->bias)
        what = "linear layers with a bias";
    if (n->experts)
        what = "experts";
    if (!what && n->qk)
        what = cuda_qk_lacks(n->qk);
    if (!what && n->attend)
        what = cuda_attend_lacks(n->attend);
    if (!what)
        return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "the CUDA backend has no kernel for %s (%s); use "
                   "--device cpu",
                   what, x->label);
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
    .weight_create = cuda_weight_create,
    .weight_destroy = cuda_weight_destroy,
    .act_create = cuda_act_create,
    .act_destroy = cuda_act_destroy,
    .gather_rows = cuda_gather_rows,
    .to_act = cuda_to_act,
    .norm = cuda_norm,
    .norm_to_act = cuda_norm_to_act,
    .linear = cuda_linear,
    .linear_gate_up = cuda_linear_gate_up,
    .gdn_gates_conv = cuda_gdn_gates_conv,
    .gdn = cuda_gdn,
    .gdn_commit = cuda_gdn_commit,
    .gdn_blocks = cuda_gdn_blocks,
    .gated_norm_to_act = cuda_gated_norm_to_act,
    .qk_norm_rope_store = cuda_qk_norm_rope_store,
    .attend = cuda_attend,
    .copy_rows = cuda_copy_rows,
    .kv_copy = cuda_kv_copy,
    .head_topk = cuda_head_topk,
    .sample = cuda_sample,
};

static void cuda_destroy(struct exec *x) {
    struct gpu *g = gpu_of(x);
    if (g->stream)
        gpu_stream_wait(g->stream);
    if (g->stage.host)
        gpu_host_free(g->stage.host);
    cuda_loader_close(g);
    vendor_close(g);
    gpu_memory_fini(g);
    free(g->deferred_sums);
    cuda_marks_fini(g);
    if (g->stream)
        gpu_stream_destroy(g->stream);
    free(g);
}

void exec_survey_cuda(struct device_survey *s) {
    *s = (struct device_survey){.runtime = RUNTIME_READY, .built = COPPICE_CUDA_BUILT};
    gpu_driver_version(&s->driver);
    gpu_runtime_version(&s->version);
    int n = 0;
    gpu_error code = gpu_device_count(&n);
    gpu_last_error(); // asking is no fault
    if (code == GPU_NO_DEVICE)
        s->runtime = RUNTIME_NO_DEVICE;
    else if (code == GPU_OLD_DRIVER)
        s->runtime = RUNTIME_OLD_DRIVER;
    else if (code != GPU_OK)
        s->runtime = RUNTIME_FAILED;
    if (code != GPU_OK) {
        s->reason = gpu_error_text(code);
        return;
    }
    for (int i = 0; i < n && i < DEVICE_MAX; i++) {
        gpu_properties p;
        if (gpu_get_properties(&p, i) != GPU_OK)
            break;
        s->devices[i].sm = p.major * 10 + p.minor;
        snprintf(s->devices[i].name, sizeof s->devices[i].name, "%.63s", p.name);
        s->n = i + 1;
    }
}

// What ops have deferred, in the order in which later ones may take it up.
static void flush(struct gpu *g) {
    act_flush(g);
    linear_flush(g);
}

static int open_device(struct gpu *g, struct err *e) {
    gpu_properties p;
    gpu_error code = gpu_use_device(g->device);
    if (code == GPU_OK)
        code = gpu_get_properties(&p, g->device);
    if (code == GPU_OK)
        code = gpu_stream_create(&g->stream);
    int kernels = 0;
    if (code == GPU_OK)
        code = gpu_probe(g, &kernels);
    if (code == GPU_OK) {
        g->overlaps = g->clusters = kernels >= 900;
        g->sm = p.major * 10 + p.minor;
        g->processors = p.multiProcessorCount;
        g->shared = (int)p.sharedMemPerBlockOptin;
        snprintf(g->name, sizeof g->name, "%.63s", p.name);
        return 0;
    }
    gpu_last_error();
    if (code == GPU_OUT_OF_MEMORY)
        return err_set(e, ERR_MEMORY,
                       "GPU %d has no free memory; stop what fills it or use --device cpu",
                       g->device);
    return err_set(e, ERR_DEVICE,
                   "GPU %d cannot run this program (%s; kernels are for %s); use --device cpu",
                   g->device, gpu_error_text(code), COPPICE_CUDA_BUILT);
}

static int open_stage(struct gpu *g, struct err *e) {
    void *host = NULL;
    g->stage.device = gpu_alloc(g, STAGE_BYTES);
    if (g->stage.device && gpu_host_malloc(&host, STAGE_BYTES) == GPU_OK) {
        g->stage.host = host;
        return 0;
    }
    gpu_last_error();
    return err_set(e, ERR_MEMORY,
                   "GPU %d has no %d MiB to begin with; raise --vram-limit or free some of its "
                   "memory",
                   g->device, STAGE_BYTES >> 20);
}

int exec_create_cuda(struct exec **out, const struct cuda_options *o, struct err *e) {
    *out = NULL;
    struct gpu *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_MEMORY, "out of memory for the CUDA backend");
    g->base = (struct exec){.ops = &cuda_table,
                            .threads = 1,
                            .device = true,
                            .copies = &cuda_copies,
                            .destroy = cuda_destroy,
                            .weight_bytes = cuda_weight_bytes,
                            .takes = takes,
                            .act_bytes = act_bytes,
                            .act_read = act_read,
                            .own_bytes = own_bytes,
                            .status = cuda_status,
                            .memory = memory_of,
                            .mark = cuda_mark,
                            .between = cuda_between};
    g->flush = flush;
    g->device = o->device;
    g->limit = o->limit;
    g->separate = o->separate;
    int rc = open_device(g, e);
    if (!rc)
        rc = device_path(&g->path, o->path, COPPICE_CUDA_BUILT, g->sm, e);
    if (!rc)
        rc = open_stage(g, e);
    if (!rc && o->vendor_gemm)
        rc = vendor_open(g, e);
    if (rc) {
        cuda_destroy(&g->base);
        return rc;
    }
    snprintf(g->base.label, sizeof g->base.label, "cuda:%d (%s, %s)", g->device, g->name,
             device_path_name(g->path));
    *out = &g->base;
    return 0;
}
