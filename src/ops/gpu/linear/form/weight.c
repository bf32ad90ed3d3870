// SPDX-License-Identifier: Apache-2.0
// Weights on the device: their sizes, and their way from the mapped file through two pinned buffers
// of a few MiB to the repacking kernel, so that the host never holds a second copy of the file.
// While the device repacks one piece the next one is read.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/grid.h"
#include "ops/gpu/runtime/cuda.h"
#include "ops/gpu/runtime/ops_cuda.h"

enum { PIECE = 4 << 20, GRID = 4096 };

// The codebook of a type, GRID bytes at most, and its size; NULL where there is none.
static const uint16_t *grid_of(uint32_t type, size_t *bytes) {
#define X(name)                                                                                    \
    *bytes = sizeof quant_grid_##name;                                                             \
    return quant_grid_##name
    switch (type) {
    case TYPE_IQ2_XXS:
        X(iq2_xxs);
    case TYPE_IQ2_XS:
        X(iq2_xs);
    case TYPE_IQ2_S:
        X(iq2_s);
    case TYPE_IQ3_XXS:
        X(iq3_xxs);
    case TYPE_IQ3_S:
        X(iq3_s);
    case TYPE_IQ1_S:
    case TYPE_IQ1_M:
        X(iq1);
    default:
        *bytes = 0;
        return NULL;
    }
#undef X
}

// Shape and sizes of a tensor's device form; false when linear layers cannot read it.
bool cuda_weight_layout(const struct tensor *t, struct weight *w) {
    const struct quant_format *q = quant_format(t->type);
    const int form = weight_form_of(t->type);
    const int64_t experts = t->n_dims > 2 ? t->ne[2] : 0, each = experts ? experts : 1;
    if (!q || form == WEIGHT_FORMS || t->ne[2] != each || t->ne[3] != 1 || t->ne[0] < 1 ||
        t->ne[1] < 1 || each < 1 || quant_row_bytes(q, t->ne[0]) < 0)
        return false;
    int64_t k = t->ne[0], m = t->ne[1], tiles = ceil_div(m, TILE_ROWS);
    int span = weight_span(form);
    int64_t pitch = ceil_div(k, span) * weight_chunk(form), data = tiles * pitch;
    *w = (struct weight){.k = k, .m = m, .form = form, .bytes = each * (data + tiles * TILE_ROWS)};
    w->experts = experts;
    w->step = data;
    w->view = (struct matrix_view){.k = k, .m = m, .tiles = tiles, .pitch = pitch, .type = t->type};
    return true;
}

int64_t cuda_weight_bytes(const struct exec *x, const struct tensor *t) {
    (void)x;
    struct weight w;
    return cuda_weight_layout(t, &w) ? w.bytes : 0;
}

void cuda_loader_close(struct gpu *g) {
    struct gpu_loader *l = &g->loader;
    for (int i = 0; i < 2; i++) {
        if (l->host[i])
            gpu_host_free(l->host[i]);
        gpu_release(g, l->device[i]);
        if (l->sent[i])
            gpu_event_destroy(l->sent[i]);
    }
    *l = (struct gpu_loader){0};
}

// Room for pieces of `bytes`.
static bool loader_open(struct gpu *g, size_t bytes) {
    struct gpu_loader *l = &g->loader;
    if (l->bytes >= bytes)
        return true;
    cuda_loader_close(g);
    for (int i = 0; i < 2; i++) {
        void *host = NULL;
        if (gpu_host_malloc(&host, bytes) != GPU_OK)
            gpu_last_error();
        l->host[i] = host;
        l->device[i] = gpu_alloc(g, bytes);
        if (!host || !l->device[i] ||
            !gpu_check(g, gpu_event_create(&l->sent[i]), "creating an event")) {
            cuda_loader_close(g);
            return false;
        }
    }
    l->bytes = bytes;
    return true;
}

// Rows of a matrix to the device, in pieces of whole tiles.
static void stream_rows(struct gpu *g, struct weight *w, const unsigned char *src) {
    struct gpu_loader *l = &g->loader;
    int64_t row = quant_row_bytes(quant_format(w->view.type), w->k);
    int64_t step = ((int64_t)l->bytes - GRID) / row / TILE_ROWS * TILE_ROWS;
    size_t front; // bytes of the codebook, which is in front of the rows
    const uint16_t *grid = grid_of(w->view.type, &front);
    for (int64_t first = 0, i = 0; first < w->m; first += step, i ^= 1) {
        int64_t count = w->m - first < step ? w->m - first : step;
        size_t bytes = (size_t)(count * row);
        if (!gpu_check(g, gpu_event_wait(l->sent[i]), "loading a weight"))
            return;
        if (grid)
            memcpy(l->host[i], grid, front);
        memcpy((unsigned char *)l->host[i] + front, src + first * row, bytes);
        gpu_check(g, gpu_to_device(l->device[i], l->host[i], front + bytes, g->stream),
                  "loading a weight");
        cuda_repack(g, w, l->device[i] + front, row, first, count, l->device[i]);
        gpu_check(g, gpu_event_record(l->sent[i], g->stream), "loading a weight");
    }
}

// All experts are one matrix if each has whole tiles.
static void stream_experts(struct gpu *g, const struct weight *w, const unsigned char *src) {
    const int64_t row = quant_row_bytes(quant_format(w->view.type), w->k);
    struct weight some = *w;
    if (w->m % TILE_ROWS == 0) {
        some.m *= w->experts;
        stream_rows(g, &some, src);
        return;
    }
    for (int64_t i = 0; i < w->experts; i++, src += w->m * row) {
        stream_rows(g, &some, src);
        some.data += w->step;
        some.view.data += w->step;
        some.view.exponent += w->view.tiles * TILE_ROWS;
    }
}

bool cuda_weight_stream(struct gpu *g, struct weight *w, const struct tensor *t) {
    int64_t rows = TILE_ROWS * quant_row_bytes(quant_format(t->type), w->k);
    if (!loader_open(g, (size_t)max_i64(rows + GRID, PIECE)))
        return false;
    if (w->experts)
        stream_experts(g, w, t->data);
    else
        stream_rows(g, w, t->data);
    return true;
}

int cuda_refuse_type(const struct tensor *t, struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "tensor %s (%s, %lld x %lld) is not a matrix of a type that linear layers read "
                   "on a GPU; convert it to Q8_0 or F16",
                   t->name ? t->name : "?",
                   quant_format(t->type) ? quant_format(t->type)->name : "unknown type",
                   (long long)t->ne[0], (long long)t->ne[1]);
}

int cuda_weight_create(struct exec *x, const struct tensor *t, struct weight **out, struct err *e) {
    struct gpu *g = gpu_of(x);
    struct weight shape;
    *out = NULL;
    if (!cuda_weight_layout(t, &shape))
        return cuda_refuse_type(t, e);
    struct weight *w = malloc(sizeof *w);
    unsigned char *data = gpu_alloc_in(g, ARENA_WEIGHTS, (size_t)shape.bytes);
    bool ok = w && data;
    if (ok) {
        *w = shape;
        w->data = data;
        w->view.data = data;
        w->view.exponent = (const signed char *)data + (w->experts ? w->experts : 1) * w->step;
        ok = cuda_weight_stream(g, w, t);
    }
    if (!ok) {
        free(w);
        gpu_release(g, data);
        return err_set(e, ERR_MEMORY,
                       "out of GPU memory for tensor %s (%lld bytes); use a smaller model or a "
                       "smaller --max-ctx",
                       t->name ? t->name : "?", (long long)shape.bytes);
    }
    if (g->fault != GPU_OK) {
        cuda_weight_destroy(x, w);
        return exec_status(x, e); // others may have work in this epoch too
    }
    *out = w;
    return 0;
}

void cuda_weight_destroy(struct exec *x, struct weight *w) {
    if (!w)
        return;
    gpu_release(gpu_of(x), w->data);
    free(w);
}
