// SPDX-License-Identifier: Apache-2.0
// Memory of activations: rows of fp16 and their powers of two, one buffer of f32 rows that all of
// them share but for those of passes for which memory is lent, and reading them back.
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"
#include "ops/gpu/runtime/ops_cuda.h"

int64_t cuda_act_bytes(const struct exec *x, int64_t n, int64_t k) {
    (void)x;
    return n * (round_up(k, ACT_ALIGN) * 2 + (int64_t)sizeof(float));
}

// The buffer of f32 rows that all acts share.
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

bool gpu_carve_end(struct gpu *g, bool own) {
    float *wide = NULL;
    bool ok = !g->carve.failed;
    if (own) {
        g->carve.open = false;
        ok = ok && share_wide(g, g->carve.wide);
        wide = g->wide;
    } else if (ok && g->carve.wide) {
        wide = gpu_alloc(g, g->carve.wide);
        ok = wide != NULL;
    }
    g->carve.open = false;
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
        ok = a->x && a->unscale && (g->carve.open || share_wide(g, wide));
        g->carve.wide = max_size(g->carve.wide, wide);
    }
    if (!ok) {
        cuda_act_destroy(x, a);
        return err_set(e, ERR_MEMORY,
                       "out of GPU memory for %lld rows of %lld activations; use a smaller --chunk",
                       (long long)n, (long long)k);
    }
    a->wide = g->carve.open ? NULL : g->wide;
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
