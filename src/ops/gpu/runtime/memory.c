// SPDX-License-Identifier: Apache-2.0
// Device memory of the CUDA backend: slabs (base/memory/slabs.h) that are counted against a limit,
// scratch, activations, copies, and the stage that carries small host arrays over. All work is
// ordered by one stream, so a block may be released and handed out again while earlier work still
// uses it. Nothing here waits, except when the stage comes round or empty slabs go back to the
// device.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"
#include "ops/gpu/runtime/cuda.h"
#include "ops/gpu/runtime/ops_cuda.h"

static void *malloc_slab(void *arg, size_t bytes) {
    void *p = NULL;
    (void)arg;
    if (gpu_malloc(&p, bytes) == GPU_OK)
        return p;
    gpu_last_error(); // an allocation that fails is an answer, not a fault
    return NULL;
}

// This waits for the work that is queued, so nothing can still be using the memory.
static void free_slab(void *arg, void *p) {
    gpu_check(arg, gpu_free(p), "freeing memory");
}

_Static_assert(SLABS_ARENAS == (int)EXEC_ARENAS, "an arena of slabs for each of ours");

void gpu_memory_init(struct gpu *g) {
    g->memory.source.take = malloc_slab;
    g->memory.source.give = free_slab;
    g->memory.source.arg = g;
}

void gpu_memory_fini(struct gpu *g) {
    slabs_fini(&g->memory);
}

void gpu_suballoc_open(struct gpu *g, unsigned char *at, int64_t bytes) {
    struct gpu_suballoc *c = &g->suballoc;
    c->at = at;
    c->end = at + bytes;
    c->open = true;
    c->failed = false;
    c->wide = 0;
}

static void *suballocate(struct gpu_suballoc *c, size_t bytes) {
    size_t whole = round_up_size(max_size(bytes, 1), SLABS_ALIGN);
    unsigned char *p = c->at;
    if (whole > (size_t)(c->end - c->at)) {
        c->failed = true;
        return NULL;
    }
    c->at += whole;
    return p;
}

void *gpu_alloc_in(struct gpu *g, enum exec_arena arena, size_t bytes) {
    if (g->suballoc.open && arena == ARENA_WORK)
        return gpu_falls(&g->fail_alloc) ? NULL : suballocate(&g->suballoc, bytes);
    void *p = gpu_falls(&g->fail_alloc) ? NULL : slabs_take(&g->memory, (int)arena, bytes);
    if (p)
        gpu_check(g, gpu_fill(p, 0, bytes, g->stream), "clearing memory");
    return p;
}

void *gpu_alloc(struct gpu *g, size_t bytes) {
    return gpu_alloc_in(g, ARENA_WORK, bytes);
}

// What waits to be queued may still have to write there, and the next owner's zeros come first.
void gpu_release(struct gpu *g, void *p) {
    gpu_flush(g);
    slabs_give(&g->memory, p);
}

bool gpu_scratch_reserve(struct gpu *g, size_t bytes) {
    gpu_flush(g);
    if (bytes <= g->scratch_bytes)
        return true;
    gpu_release(g, g->scratch);
    g->scratch = gpu_alloc(g, bytes);
    g->scratch_bytes = g->scratch ? bytes : 0;
    return g->scratch != NULL;
}

void *gpu_scratch(struct gpu *g, size_t bytes) {
    if (g->suballoc.scratch_bytes > g->scratch_bytes && bytes <= g->suballoc.scratch_bytes) {
        gpu_flush(g);
        return g->suballoc.scratch;
    }
    if (gpu_scratch_reserve(g, bytes))
        return g->scratch;
    gpu_check(g, GPU_OUT_OF_MEMORY, "scratch memory of an op");
    return NULL;
}

// Every copy begins here; false after a failure.
static bool begin_copy(struct gpu *g, const char *where) {
    gpu_flush(g);
    return !gpu_falls(&g->fail_queue) || gpu_check(g, GPU_OUT_OF_MEMORY, where);
}

void gpu_upload(struct gpu *g, void *dst, const void *src, size_t bytes) {
    const char *where = "copying to the device";
    if (begin_copy(g, where) && bytes &&
        gpu_check(g, gpu_to_device(dst, src, bytes, g->stream), where))
        gpu_check(g, gpu_stream_wait(g->stream), where);
}

void gpu_download(struct gpu *g, void *dst, const void *src, size_t bytes) {
    const char *where = "copying from the device";
    if (begin_copy(g, where) && bytes &&
        gpu_check(g, gpu_to_host(dst, src, bytes, g->stream), where))
        gpu_check(g, gpu_stream_wait(g->stream), where);
}

void gpu_copy(struct gpu *g, void *dst, const void *src, size_t bytes) {
    const char *where = "copying on the device";
    if (begin_copy(g, where) && bytes)
        gpu_check(g, gpu_on_device(dst, src, bytes, g->stream), where);
}

void gpu_clear(struct gpu *g, void *dst, size_t bytes) {
    const char *where = "clearing memory";
    if (begin_copy(g, where) && bytes)
        gpu_check(g, gpu_fill(dst, 0, bytes, g->stream), where);
}

static uint64_t hash_of(const unsigned char *p, size_t bytes) {
    uint64_t h = 0x9E3779B97F4A7C15u ^ bytes;
    for (; bytes >= 8; p += 8, bytes -= 8) {
        uint64_t v;
        memcpy(&v, p, 8);
        h = (h ^ v) * 0xFF51AFD7ED558CCDu;
        h ^= h >> 32;
    }
    for (; bytes; p++, bytes--)
        h = (h ^ *p) * 0x100000001B3u;
    return h ^ h >> 29;
}

void gpu_stage_reserve(struct gpu *g, size_t bytes) {
    struct gpu_stage *s = &g->stage;
    if (s->used + bytes <= STAGE_BYTES)
        return;
    gpu_check(g, gpu_stream_wait(g->stream), "waiting for the device");
    s->used = 0;
    s->n_entries = 0;
    s->turn++;
    launch_order_forget(&g->order); // places in the stage no longer distinguish arrays
}

const void *gpu_stage(struct gpu *g, const void *host, size_t bytes) {
    struct gpu_stage *s = &g->stage;
    enum { ENTRIES = sizeof s->entries / sizeof s->entries[0] };
    uint64_t hash = hash_of(host, bytes);
    for (int i = 0; i < s->n_entries && i < ENTRIES; i++) {
        const struct stage_entry *t = &s->entries[i];
        if (t->hash == hash && t->bytes == bytes && !memcmp(s->host + t->offset, host, bytes))
            return s->device + t->offset;
    }
    size_t padded = round_up_size(bytes, 16);
    if (padded > STAGE_BYTES - s->used) {
        gpu_check(g, GPU_OUT_OF_MEMORY, "staging the arrays of an op");
        return NULL;
    }
    unsigned char *to = s->device + s->used;
    memcpy(s->host + s->used, host, bytes);
    const char *where = "sending an array";
    if (!begin_copy(g, where) ||
        !gpu_check(g, gpu_to_device(to, s->host + s->used, bytes, g->stream), where))
        return NULL;
    s->entries[s->n_entries++ % ENTRIES] = (struct stage_entry){hash, s->used, bytes};
    s->used += padded;
    return to;
}

struct gpu *gpu_enter(struct exec *x) {
    struct gpu *g = gpu_of(x);
    int current = -1;
    if (gpu_current_device(&current) != GPU_OK || current != g->device) // calling it costs less
        gpu_check(g, gpu_use_device(g->device), "choosing the device");
    gpu_stage_reserve(g, STAGE_OP);
    return g;
}

// Activations: rows of fp16 and their powers of two, one buffer of f32 rows that all of them share
// but for those of passes for which memory is lent.

int64_t cuda_act_bytes(const struct exec *x, int64_t n, int64_t k) {
    (void)x;
    return n * (round_up(k, ACT_ALIGN) * 2 + (int64_t)sizeof(float));
}

static bool share_wide(struct gpu *g, size_t bytes) {
    if (bytes <= g->wide_bytes)
        return true;
    gpu_flush(g);
    float *wide = gpu_alloc(g, bytes);
    if (!wide)
        return false;
    gpu_release(g, g->wide);
    for (struct act *a = g->acts; a; a = a->next)
        if (a->wide == g->wide)
            a->wide = wide;
    g->wide = wide;
    g->wide_bytes = bytes;
    return true;
}

bool gpu_suballoc_end(struct gpu *g, bool own) {
    float *wide = NULL;
    bool ok = !g->suballoc.failed;
    if (own) {
        g->suballoc.open = false;
        ok = ok && share_wide(g, g->suballoc.wide);
        wide = g->wide;
    } else if (ok && g->suballoc.wide) {
        wide = gpu_alloc(g, g->suballoc.wide);
        ok = wide != NULL;
    }
    g->suballoc.open = false;
    for (struct act *a = g->acts; a; a = a->next)
        if (!a->wide)
            a->wide = wide;
    return ok;
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
        const size_t wide = (size_t)(n * stride) * sizeof *a->wide;
        ok = a->x && a->unscale && (g->suballoc.open || share_wide(g, wide));
        g->suballoc.wide = max_size(g->suballoc.wide, wide);
    }
    if (!ok) {
        cuda_act_destroy(x, a);
        return err_set(e, ERR_MEMORY,
                       "out of GPU memory for %lld rows of %lld activations; use a smaller --chunk",
                       (long long)n, (long long)k);
    }
    a->wide = g->suballoc.open ? NULL : g->wide;
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
void cuda_act_read(struct exec *x, const struct act *a, int64_t n, float *out) {
    enum { ROWS = 256 };
    struct gpu *g = gpu_enter(x);
    float unscale[ROWS];
    const int64_t values = n * a->stride;
    const unsigned char *half = (const unsigned char *)out + 2 * values;
    gpu_download(g, (unsigned char *)out + 2 * values, a->x, (size_t)values * 2);
    for (int64_t i = 0; i < n; i++) {
        int64_t left = min_i64(n - i, ROWS);
        if (i % ROWS == 0)
            gpu_download(g, unscale, a->unscale + i, (size_t)left * sizeof *unscale);
        for (int64_t k = 0; k < a->k; k++) {
            uint16_t h;
            memcpy(&h, half + 2 * (i * a->stride + k), sizeof h);
            out[i * a->k + k] = f16_to_f32(h) * unscale[i % ROWS];
        }
    }
}
