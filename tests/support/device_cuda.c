// SPDX-License-Identifier: Apache-2.0
// CUDA devices for tests: a path can be forced, and an activation can be looked into.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ops/gpu/runtime/cuda.h"
#include "support/device.h"

bool device_level(const char *level) {
    return strncmp(level, "cuda", 4) == 0;
}

// Bytes of shared memory of ":99k" and the like; 0: as many as the GPU has.
static int level_shared(const char *suffix) {
    int kib = 0, end = 0;
    sscanf(suffix, ":%dk%n", &kib, &end);
    return end && !suffix[end] ? kib << 10 : 0;
}

int device_open(struct exec **out, const char *level, int threads, struct err *e) {
    static const enum cuda_path paths[] = {CUDA_PATH_SMALL, CUDA_PATH_MMA, CUDA_PATH_WGMMA};
    struct cuda_options o = {.path = CUDA_PATH_AUTO};
    *out = NULL;
    if (!device_level(level))
        return exec_create_cpu(out, level, threads, e);
    const char *path = level[4] == ':' ? level + 5 : "auto";
    size_t n = strcspn(path, ":");
    o.separate = !strcmp(path + n, ":separate");
    for (size_t i = 0; i < sizeof paths / sizeof paths[0]; i++)
        if (strlen(device_path_name(paths[i])) == n && !memcmp(path, device_path_name(paths[i]), n))
            o.path = paths[i];
    if ((n != 4 || memcmp(path, "auto", 4)) && o.path == CUDA_PATH_AUTO)
        return err_set(e, ERR_USAGE, "unknown level \"%.40s\"", level);
    int rc = exec_create_cuda(out, &o, e), shared = level_shared(path + n);
    if (!rc && shared)
        ((struct gpu *)*out)->shared = shared;
    return rc;
}

int64_t device_kept(const struct exec *x) {
    const struct gpu *g = (const struct gpu *)x;
    if (!exec_is_device(x))
        return 0;
    return (int64_t)g->scratch_bytes + g->n_tickets * (int64_t)sizeof *g->tickets +
           g->row_state_rows * 2 * (int64_t)sizeof *g->row_state;
}

void device_read_act(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out) {
    float *rows = malloc((size_t)(n * exec_act_stride(a->k)) * sizeof *rows);
    if (!rows)
        abort();
    x->act_read(x, a, n, rows);
    for (int64_t i = 0; i < n; i++)
        memcpy(out + i * k, rows + i * a->k, (size_t)k * sizeof *out);
    free(rows);
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
