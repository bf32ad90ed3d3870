// SPDX-License-Identifier: Apache-2.0
// The CUDA backend: its exec, what it says of itself, its status, and its time marks. All ops queue
// on one stream.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "ops/gpu/attend/cache.h"
#include "ops/gpu/moe/store.h"
#include "ops/gpu/runtime/cuda.h"
#include "ops/gpu/runtime/ops_cuda.h"

static void memory_of(struct exec *x, struct exec_memory *m) {
    struct gpu *g = gpu_enter(x);
    const struct slabs *s = &g->memory;
    size_t available = 0, total = 0;
    gpu_check(g, gpu_memory_info(&available, &total), "asking for free memory");
    *m = (struct exec_memory){
        .used = s->held, .peak = s->peak, .free = (int64_t)available, .total = (int64_t)total};
    if (s->limit > 0 && m->free > s->limit - s->held)
        m->free = s->limit - s->held;
    for (int i = 0; i < EXEC_ARENAS; i++)
        m->arena[i] = (struct exec_arena_use){slabs_held(s, i), s->used[i], slabs_free_bytes(s, i)};
}

// What ops keep between their launches may be half done after a launch that did not come about.
static void reset_after_fault(struct gpu *g) {
    g->fault = GPU_OK;
    launch_order_forget(&g->order);
    g->sums_deferred = g->sums_held = g->combine_deferred = false;
    g->deferred_rows = 0;
    gpu_stage_reserve(g, STAGE_BYTES);
    moe_forget(g);
    if (g->tickets)
        gpu_clear(g, g->tickets, (size_t)g->n_tickets * sizeof *g->tickets);
    if (g->row_state)
        gpu_clear(g, g->row_state, (size_t)g->row_state_rows * 2 * sizeof *g->row_state);
}

static int status_of(struct exec *x, struct err *e) {
    struct gpu *g = gpu_enter(x);
    gpu_flush(g);
    gpu_check(g, gpu_stream_wait(g->stream), "waiting for the device");
    gpu_check(g, gpu_last_error(), "a kernel");
    gpu_error fault = g->fault;
    const char *where = g->fault_where;
    if (fault == GPU_OK)
        return 0;
    if (fault != GPU_OUT_OF_MEMORY)
        return err_set(e, ERR_DEVICE, "GPU %d failed (%s: %s); restart the program", g->device,
                       where, gpu_error_text(fault));
    reset_after_fault(g);
    return err_set(e, ERR_MEMORY,
                   "GPU %d is out of memory (%s); use a shorter --max-ctx or a smaller --chunk",
                   g->device, where);
}

static void *alloc_in(struct exec *x, enum exec_arena arena, size_t bytes) {
    return gpu_alloc_in(gpu_enter(x), arena, bytes);
}

static void trim_memory(struct exec *x) {
    slabs_trim(&gpu_enter(x)->memory);
}

// ERR_UNSUPPORTED for a codec of keys or values without kernels.
static int check_codec(const struct exec *x, enum kv_codec_id id, struct err *e) {
#define HAS(own) || id == own
    char has[128] = "";
#define LIST(own)                                                                                  \
    if (strlen(has) + 16 < sizeof has)                                                             \
        snprintf(has + strlen(has), sizeof has - strlen(has), "%s%s", has[0] ? ", " : "",          \
                 kv_codec_of(own)->name);
    if (false CUDA_KV_CODECS(HAS))
        return 0;
    CUDA_KV_CODECS(LIST)
    return err_set(
        e, ERR_UNSUPPORTED,
        "the CUDA backend has kernels for keys and values as %s, not as %s (%s); use one "
        "of these with --kv-type, or --device cpu",
        has, kv_codec_of(id)->name, x->label);
}

static int check_layout(const struct exec *x, const struct kv_layout *l, struct err *e) {
    int rc = l ? check_codec(x, l->s.codec_k, e) : 0;
    return rc || !l ? rc : check_codec(x, l->s.codec_v, e);
}

// Forms that came with ops for models to be, and have no kernel here yet.
static int check_needs(const struct exec *x, const struct ops_needs *n, struct err *e) {
    const char *what = NULL;
    int rc = n->qk ? check_layout(x, n->qk->layout, e) : 0;
    if (!rc && n->attend)
        rc = check_layout(x, n->attend->layout, e);
    if (rc)
        return rc;
    if (n->qk)
        what = cuda_qk_lacks(n->qk);
    if (!what && n->attend)
        what = cuda_attend_lacks(n->attend);
    if (!what && n->sparse)
        what = cuda_sparse_lacks(n->sparse);
    if (!what)
        return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "the CUDA backend has no kernel for %s (%s); use "
                   "--device cpu",
                   what, x->label);
}

// Time marks on the stream: one event for each number, made when it is first used. One that cannot
// be made is left out: that costs a time, and no op's result.
static void set_mark(struct exec *x, int i) {
    struct gpu *g = gpu_enter(x);
    if (!g->marks[i] && gpu_event_create(&g->marks[i]) != GPU_OK) {
        gpu_last_error();
        g->marks[i] = NULL;
        return;
    }
    gpu_check(g, gpu_event_record(g->marks[i], g->stream), "marking the time");
}

static double ms_between(struct exec *x, int a, int b) {
    struct gpu *g = gpu_enter(x);
    float ms = 0;
    if (!g->marks[a] || !g->marks[b])
        return 0;
    gpu_check(g, gpu_event_wait(g->marks[b]), "waiting for a mark");
    gpu_check(g, gpu_event_ms(&ms, g->marks[a], g->marks[b]), "reading marks");
    return (double)ms;
}

static void destroy_marks(struct gpu *g) {
    for (int i = 0; i < EXEC_MARKS; i++)
        if (g->marks[i])
            gpu_event_destroy(g->marks[i]);
}

static void cuda_destroy(struct exec *x) {
    struct gpu *g = gpu_of(x);
    gpu_use_device(g->device);
    if (g->stream)
        gpu_stream_wait(g->stream);
    if (g->stage.host)
        gpu_host_free(g->stage.host);
    cuda_loader_close(g);
    gpu_memory_fini(g);
    free(g->deferred_sums);
    free(g->held_sums);
    free(g->deferred_combine);
    attend_forget(g);
    destroy_marks(g);
    if (g->rows_sent)
        gpu_event_destroy(g->rows_sent);
    if (g->stream)
        gpu_stream_destroy(g->stream);
    free(g);
}

const char *exec_cuda_built(int *version) {
    *version = 0;
    gpu_runtime_version(version);
    return COPPICE_CUDA_BUILT;
}

void exec_survey_cuda(struct device_survey *s) {
    *s = (struct device_survey){.runtime = RUNTIME_READY, .built = COPPICE_CUDA_BUILT};
    gpu_driver_version(&s->driver);
    gpu_runtime_version(&s->version);
    int n = 0;
    gpu_error code = gpu_device_count(&n);
    gpu_last_error(); // calling it is no fault
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
static void flush_deferred(struct gpu *g, bool held) {
    act_flush(g);
    linear_flush(g);
    moe_flush(g);
    if (held)
        linear_release(g);
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
    if (g->stage.device && gpu_host_malloc(&host, STAGE_BYTES + ANSWER_BYTES) == GPU_OK) {
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
                            .experts = &cuda_experts,
                            .host_rows = &cuda_host_rows,
                            .destroy = cuda_destroy,
                            .weight_bytes = cuda_weight_bytes,
                            .takes = check_needs,
                            .act_bytes = cuda_act_bytes,
                            .act_read = cuda_act_read,
                            .own_bytes = cuda_own_bytes,
                            .reserve = cuda_reserve,
                            .status = status_of,
                            .memory = memory_of,
                            .alloc_in = alloc_in,
                            .trim = trim_memory,
                            .mark = set_mark,
                            .between = ms_between};
    g->flush = flush_deferred;
    g->device = o->device;
    g->memory.limit = o->limit;
    g->memory.separate = o->separate;
    gpu_memory_init(g);
    int rc = open_device(g, e);
    if (!rc)
        rc = device_path(&g->path, o->path, COPPICE_CUDA_BUILT, g->sm, e);
    if (!rc)
        rc = open_stage(g, e);
    if (rc) {
        cuda_destroy(&g->base);
        return rc;
    }
    snprintf(g->base.label, sizeof g->base.label, "cuda:%d (%s, %s)", g->device, g->name,
             device_path_name(g->path));
    snprintf(g->base.kind, sizeof g->base.kind, "cuda %s, %s", g->name, device_path_name(g->path));
    *out = &g->base;
    return 0;
}
