// SPDX-License-Identifier: Apache-2.0
// Stands in for device_cuda.c in a build without CUDA.
#include <stdlib.h>
#include <string.h>

#include "support/device.h"

bool device_level(const char *level) {
    return strncmp(level, "cuda", 4) == 0;
}

int device_open(struct exec **out, const char *level, int threads, struct err *e) {
    *out = NULL;
    if (device_level(level))
        return err_set(e, ERR_UNSUPPORTED, "these tests were built without CUDA");
    return exec_create_cpu(out, level, threads, e);
}

int64_t device_kept(const struct exec *x) {
    (void)x;
    return 0;
}

void device_read_act(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out) {
    (void)x;
    (void)a;
    (void)n;
    (void)k;
    (void)out;
    abort(); // no exec of this build is a device
}

void device_read_wide(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out) {
    device_read_act(x, a, n, k, out);
}
