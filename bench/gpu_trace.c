// SPDX-License-Identifier: Apache-2.0
// A library that the CUDA driver loads into any program (CUDA_INJECTION64_PATH) and that writes
// down, by CUPTI, when each kernel, copy and clearing ran: one line "start end kind name" in
// nanoseconds, into the file that GPU_TRACE names. gpu_busy.py makes a table of it. Not part of
// the engine; build it by hand:
//   gcc -O2 -shared -fPIC -I$CUDA/include -o gpu_trace.so bench/gpu_trace.c -L$CUDA/lib64 -lcupti
#include <cupti.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFER = 8 << 20, ALIGN = 8 };
static FILE *out;

static void CUPTIAPI give_buffer(uint8_t **buffer, size_t *size, size_t *max) {
    *buffer = aligned_alloc(ALIGN, BUFFER);
    *size = *buffer ? BUFFER : 0;
    *max = 0;
}

static void put(uint64_t start, uint64_t end, const char *kind, const char *name) {
    fprintf(out, "%llu %llu %s %s\n", (unsigned long long)start, (unsigned long long)end, kind,
            name);
}

static void put_record(const CUpti_Activity *r) {
    if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *k = (const CUpti_ActivityKernel10 *)r;
        put(k->start, k->end, "kernel", k->name);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *m = (const CUpti_ActivityMemcpy6 *)r;
        const char *way = m->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD   ? "to_device"
                          : m->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_DTOH ? "to_host"
                                                                           : "on_device";
        put(m->start, m->end, "copy", way);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const CUpti_ActivityMemset4 *)r;
        put(m->start, m->end, "set", "set");
    }
}

static void CUPTIAPI take_buffer(CUcontext c, uint32_t stream, uint8_t *buffer, size_t size,
                                 size_t valid) {
    CUpti_Activity *r = NULL;
    (void)c, (void)stream, (void)size;
    while (valid > 0 && cuptiActivityGetNextRecord(buffer, valid, &r) == CUPTI_SUCCESS)
        put_record(r);
    free(buffer);
}

static void finish(void) {
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    if (out)
        fclose(out);
}

// The driver calls this when it starts.
int InitializeInjection(void);
int InitializeInjection(void) {
    const char *path = getenv("GPU_TRACE");
    out = fopen(path ? path : "gpu_trace.txt", "w");
    if (!out)
        return 0;
    cuptiActivityRegisterCallbacks(give_buffer, take_buffer);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
    cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMSET);
    atexit(finish);
    return 1;
}
