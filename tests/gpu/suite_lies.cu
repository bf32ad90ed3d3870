// SPDX-License-Identifier: Apache-2.0
// Launches that lie, and the same ones honest: what watch.h must find, and must not find. Each case
// is a writer, sometimes a launch between, and a reader of what the writer wrote. Then golden
// models, whose own launches' descriptions leave something out: that must be found, too.
#include <string.h>

#include "gpu/suites.h"
#include "gpu/watch.h"
#include "ops/gpu/runtime/cuda.h"
#include "support/device.h"

enum { N = 4096, THREADS = 256 };

static __global__ void writes(int *x, int value) {
    gpu_await();
    x[blockIdx.x * THREADS + threadIdx.x] = value;
}

// In front of its wait.
static __global__ void writes_early(int *x, int value) {
    x[blockIdx.x * THREADS + threadIdx.x] = value;
    gpu_await();
}

static __global__ void lets_ahead(int *x, int value) {
    gpu_let_ahead();
    gpu_await();
    x[blockIdx.x * THREADS + threadIdx.x] = value;
}

static __global__ void lets_next(int *x, int value) {
    gpu_await();
    gpu_let_next();
    x[blockIdx.x * THREADS + threadIdx.x] = value;
}

static __global__ void reads(const int *x, int *out) {
    gpu_await();
    const int i = blockIdx.x * THREADS + threadIdx.x;
    out[i] = __ldcg(x + i) + 1;
}

static __global__ void reads_early(const int *x, int *out) {
    const int i = blockIdx.x * THREADS + threadIdx.x, v = __ldcg(x + i);
    gpu_await();
    out[i] = v + 1;
}

typedef void writer(int *x, int value);
typedef void reader(const int *x, int *out);

enum { W = MEMORY_WEIGHTS, ROWS = MEMORY_ROWS, STATES = MEMORY_STATES, SUMS = MEMORY_SUMS };

static const char here[2] = {}; // places

#define SAYS(early, writes)       {early, writes, false, NULL, false}
#define AHEAD(early, writes)      {early, writes, true, NULL, false}
#define AT(early, writes, places) {early, writes, false, places, false}
#define NO_ONE                                                                                     \
    NULL, {                                                                                        \
    }

static const struct {
    const char *what;
    writer *write;
    struct launch_says says;
    writer *between; // of other memory; NULL: there is none
    struct launch_says between_says;
    reader *read;
    struct launch_says reader_says;
    int read_lies, write_lies, let_lies;
} cases[] = {
    {"reads behind its wait", writes, SAYS(W, ROWS), NO_ONE, reads, SAYS(W, SUMS), 0, 0, 0},
    {"reads early", writes, SAYS(W, ROWS), NO_ONE, reads_early, SAYS(W | ROWS, SUMS), 0, 0, 0},
    {"reads early unsaid", writes, SAYS(W, ROWS), NO_ONE, reads_early, SAYS(W, SUMS), 1, 0, 0},
    {"is written unsaid", writes, SAYS(W, SUMS), NO_ONE, reads_early, SAYS(ROWS, SUMS), 1, 0, 0},
    {"what the last but one writes", writes, SAYS(W, STATES), lets_ahead, AHEAD(W, ROWS),
     reads_early, SAYS(STATES, SUMS), 0, 0, 0},
    {"the same unsaid", writes, SAYS(W, SUMS), lets_ahead, AHEAD(W, ROWS), reads_early,
     SAYS(STATES, MEMORY_DELTAS), 1, 0, 0},
    {"what has ended", writes, SAYS(W, STATES), lets_next, SAYS(W, ROWS), reads_early,
     SAYS(STATES, SUMS), 0, 0, 0},
    {"the same, of another kind", writes, SAYS(W, ROWS), lets_next, SAYS(W, SUMS), reads_early,
     SAYS(STATES, SUMS), 1, 0, 0},
    // What it wrote is overwritten, so that it has not left the same, either.
    {"writes early", writes_early, SAYS(W, ROWS), NO_ONE, reads, SAYS(W, SUMS), 1, 1, 0},
    {"lets ahead", lets_ahead, AHEAD(W, ROWS), NO_ONE, reads, SAYS(W, SUMS), 0, 0, 0},
    {"lets ahead unsaid", lets_ahead, SAYS(W, ROWS), NO_ONE, reads, SAYS(W, SUMS), 0, 0, 1},
    {"pages but for fresh ones", writes, AT(W, MEMORY_FRESH, here), NO_ONE, reads,
     AT(MEMORY_PAGES, SUMS, here), 0, 0, 0},
    {"fresh ones, too", writes, AT(W, MEMORY_FRESH, here), NO_ONE, reads_early,
     AT(MEMORY_PAGES, SUMS, here), 1, 0, 0},
    {"fresh ones of others", writes, AT(W, MEMORY_FRESH, here), NO_ONE, reads_early,
     AT(MEMORY_PAGES, SUMS, here + 1), 0, 0, 0},
};

// Runs a case from memory that has been taken for it; false: a wrong result or too little memory.
static bool run(struct exec *x, int i) {
    struct gpu *g = gpu_of(x);
    int *in = (int *)x->ops->alloc(x, N * sizeof *in);
    int *other = (int *)x->ops->alloc(x, N * sizeof *in);
    int *out = (int *)x->ops->alloc(x, N * sizeof *in);
    static int found[N];
    const dim3 grid(N / THREADS), block(THREADS);
    bool ok = in && other && out;
    if (ok) {
        gpu_launch_saying({g, "writer", cases[i].says}, cases[i].write, grid, block, 0, in, 7);
        if (cases[i].between)
            gpu_launch_saying({g, "between", cases[i].between_says}, cases[i].between, grid, block,
                              0, other, 5);
        gpu_launch_saying({g, "reader", cases[i].reader_says}, cases[i].read, grid, block, 0,
                          (const int *)in, out);
        x->ops->download(x, found, out, sizeof found);
    }
    for (int j = 0; j < N; j++) // by the first run, which nothing is kept from
        ok = ok && found[j] == 8;
    x->ops->free(x, in);
    x->ops->free(x, other);
    x->ops->free(x, out);
    return ok;
}

// Descriptions of a model's launches that leave something out. Not lists: who reads numbers of
// experts that are poison writes anywhere, and the device is lost.
static const struct {
    const char *what, *model; // a golden case
    unsigned early;           // kinds
} left_out[] = {
    {"nothing left out", "r1_tied", 0},
    {"early states left out", "r1_tied", MEMORY_STATES},
    {"early rows left out", "r1_tied", MEMORY_ROWS},
};

static void leave_out(const char *level, const struct gpu_options *o, struct gpu_counts *n, int i) {
    struct gpu_options golden = *o;
    struct gpu_counts ignored = {};
    const char *text;
    golden.only = left_out[i].model;
    golden.brief = true;
    watch_leave_out(left_out[i].early);
    watch_take(&text);
    suite_golden(level, &golden, &ignored);
    const struct watch_counts c = watch_take(&text);
    watch_leave_out(0);
    const bool right = left_out[i].early ? c.read > 0 : !c.read && !c.wrote && !c.let;
    gpu_line(n, ignored.failed == 0 && right, level, "lies", left_out[i].what,
             "%lld launches, %lld loose, %lld read early, %lld wrote early, %lld let ahead: "
             "%.120s",
             (long long)c.launches, (long long)c.loose, (long long)c.read, (long long)c.wrote,
             (long long)c.let, text);
}

extern "C" void suite_lies(const char *level, const struct gpu_options *o, struct gpu_counts *n) {
    struct exec *x = NULL;
    struct err e = {};
    if (!watch_on())
        return;
    if (device_open(&x, level, 0, &e)) {
        gpu_line(n, false, level, "lies", "open", "%s", e.text);
        return;
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *text;
        watch_take(&text);
        const bool right = run(x, (int)i);
        const struct watch_counts c = watch_take(&text);
        gpu_line(n,
                 right && c.early >= 2 && c.read == cases[i].read_lies &&
                     c.wrote == cases[i].write_lies && c.let == cases[i].let_lies,
                 level, "lies", cases[i].what, "%s", text[0] ? text : "nothing found");
    }
    if (x->status(x, &e))
        gpu_line(n, false, level, "lies", "status", "%s", e.text);
    x->destroy(x);
    for (size_t i = 0; i < sizeof left_out / sizeof *left_out; i++)
        leave_out(level, o, n, (int)i);
}
