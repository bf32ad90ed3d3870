// SPDX-License-Identifier: Apache-2.0
// Time marks on the stream: one event for each number, made when it is first used. One that cannot
// be made is left out: that spoils a time, and no op's result.
#include "ops/gpu/runtime/cuda.h"

void cuda_mark(struct exec *x, int i) {
    struct gpu *g = gpu_enter(x);
    if (!g->marks[i] && gpu_event_create(&g->marks[i]) != GPU_OK) {
        gpu_last_error();
        g->marks[i] = NULL;
        return;
    }
    gpu_check(g, gpu_event_record(g->marks[i], g->stream), "marking the time");
}

double cuda_between(struct exec *x, int a, int b) {
    struct gpu *g = gpu_enter(x);
    float ms = 0;
    if (!g->marks[a] || !g->marks[b])
        return 0;
    gpu_check(g, gpu_event_wait(g->marks[b]), "waiting for a mark");
    gpu_check(g, gpu_event_ms(&ms, g->marks[a], g->marks[b]), "reading marks");
    return (double)ms;
}

void cuda_marks_fini(struct gpu *g) {
    for (int i = 0; i < EXEC_MARKS; i++)
        if (g->marks[i])
            gpu_event_destroy(g->marks[i]);
}
