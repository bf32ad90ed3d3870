// SPDX-License-Identifier: Apache-2.0
// CUDA devices for tests: a path can be forced, and an activation can be looked into.
#include <stdlib.h>
#include <string.h>

#include "formats/quant.h"
#include "ops/cuda/cuda.h"
#include "support/device.h"

bool device_level(const char *level) {
    return strncmp(level, "cuda", 4) == 0;
}

static int force_path(struct gpu *g, const char *name, struct err *e) {
    static const char *const names[] = {"small", "mma", "wgmma"};
    static const int least[] = {75, 80, 90};
    for (int i = 0; i < 3; i++) {
        if (strcmp(name, names[i]))
            continue;
        if (g->sm < least[i] || (i == CUDA_PATH_WGMMA && g->sm != 90))
            return err_set(e, ERR_UNSUPPORTED, "compute capability %d has no path %s", g->sm, name);
        g->path = (enum cuda_path)i;
        return 0;
    }
    return err_set(e, ERR_USAGE, "unknown CUDA path \"%.40s\"", name);
}

int device_open(struct exec **out, const char *level, int threads, struct err *e) {
    if (!device_level(level))
        return exec_create_cpu(out, level, threads, e);
    int rc = exec_create_cuda(out, &(struct cuda_options){0}, e);
    if (rc == 0 && level[4] == ':')
        rc = force_path(gpu_of(*out), level + 5, e);
    if (rc && *out) {
        exec_destroy(*out);
        *out = NULL;
    }
    return rc;
}

int device_status(struct exec *x, struct err *e) {
    return strcmp(exec_ops(x)->name, "cuda") ? 0 : cuda_status(x, e);
}

void device_read_act(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out) {
    size_t values = (size_t)(n * a->stride);
    uint16_t *half = malloc(values * sizeof *half);
    float *unscale = malloc((size_t)n * sizeof *unscale);
    if (!half || !unscale)
        abort();
    exec_ops(x)->download(x, half, a->x, values * sizeof *half);
    exec_ops(x)->download(x, unscale, a->unscale, (size_t)n * sizeof *unscale);
    for (int64_t i = 0; i < n; i++)
        for (int64_t j = 0; j < k; j++)
            out[i * k + j] = f16_to_f32(half[i * a->stride + j]) * unscale[i];
    free(half);
    free(unscale);
}

void device_read_wide(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out) {
    float *wide = malloc((size_t)(n * a->stride) * sizeof *wide);
    if (!wide)
        abort();
    exec_ops(x)->download(x, wide, a->wide, (size_t)(n * a->stride) * sizeof *wide);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * k, wide + i * a->stride, (size_t)k * sizeof *out);
    free(wide);
}
