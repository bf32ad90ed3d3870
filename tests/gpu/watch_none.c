// SPDX-License-Identifier: Apache-2.0
// In builds without CUDA there are no launches to watch (watch.h).
#include "gpu/suites.h"
#include "gpu/watch.h"

bool watch_begin(int64_t bytes) {
    (void)bytes;
    return false;
}

bool watch_on(void) {
    return false;
}

struct watch_counts watch_take(const char **text) {
    *text = "";
    return (struct watch_counts){0};
}

void suite_lies(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    (void)level, (void)o, (void)n;
}

void suite_sigmoid(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    (void)level, (void)o, (void)n;
}
