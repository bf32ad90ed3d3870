// SPDX-License-Identifier: Apache-2.0
// With --time: a prompt's products by shape, those of a 27B model at 8,192 rows. Ours, with
// unpacking and all that becomes of sums, beside the vendor's on the same unpacked weights: alone,
// and with what must be around them. Kinds take turns, forwards and backwards, on a card that has
// been at work; beside a time stand the mean clock (by a multiprocessor's own counter) and the mean
// power (by the driver, every 10 ms) meanwhile.
//
//   gpu_tests --levels cuda:wgmma:vendor --time [--only SHAPE] products
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gpu/suites.h"
extern "C" {
#include "opcheck/opcheck.h"
}
#include "ops/gpu/linear/many/unpack.h"
#include "ops/gpu/linear/many/vendor/vendor.h"
#include "ops/gpu/runtime/ops_cuda.h"
#include "support/device.h"

enum { JOBS = 4, WINDOW_US = 120000, SLOTS = 1024, WANTED = 75 /* per cent */ };

static const struct shape {
    const char *what;
    int64_t k, rows;
    int jobs;
    struct {
        uint32_t type;
        int64_t m;
    } job[JOBS];
    bool pair, add; // gate and up; added to what outputs hold
} shapes[] = {
    {"gate_up", 5120, 8192, 2, {{TYPE_Q4_K, 17408}, {TYPE_Q4_K, 17408}}, true, false},
    {"down_q4", 17408, 8192, 1, {{TYPE_Q4_K, 5120}}, false, true},
    {"down_q6", 17408, 8192, 1, {{TYPE_Q6_K, 5120}}, false, true},
    {"gdn_in",
     5120,
     8192,
     4,
     {{TYPE_Q4_K, 10240}, {TYPE_Q4_K, 6144}, {TYPE_Q8_0, 48}, {TYPE_Q8_0, 48}},
     false,
     false},
    {"out", 6144, 8192, 1, {{TYPE_Q4_K, 5120}}, false, true},
    {"attn_in",
     5120,
     8192,
     3,
     {{TYPE_Q4_K, 12288}, {TYPE_Q4_K, 1024}, {TYPE_Q6_K, 1024}},
     false,
     false},
    {"head_8th", 5120, 8192, 1, {{TYPE_Q6_K, 31040}}, false, false},
};

enum kind { OWN, UNPACKING, VENDOR, VENDOR_ALONE, KINDS };

struct sample {
    double us, mhz, watts;
};

// The power that the card takes now, by the driver's library (NVML) where it is found.
struct meter {
    void *device;
    int (*read)(void *device, int n, void *values);
};

// As the library documents it.
struct meter_value {
    unsigned id, scope;
    long long at, latency;
    int type, result;
    union {
        unsigned milliwatts;
        unsigned long long wide;
    } value;
};
enum { POWER_NOW = 186 };

static void open_meter(struct meter *m, int device) {
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    char bus[32] = "";
    int (*init)(void) = NULL, (*find)(const char *, void **) = NULL;
    memset(m, 0, sizeof *m);
    if (!library || cudaDeviceGetPCIBusId(bus, sizeof bus, device) != cudaSuccess)
        return;
    *(void **)&init = dlsym(library, "nvmlInit_v2");
    *(void **)&find = dlsym(library, "nvmlDeviceGetHandleByPciBusId_v2");
    *(void **)&m->read = dlsym(library, "nvmlDeviceGetFieldValues");
    if (!init || !find || init() || find(bus, &m->device))
        m->read = NULL;
}

static double watts_now(const struct meter *m) {
    struct meter_value v = {};
    v.id = POWER_NOW;
    return m->read && !m->read(m->device, 1, &v) && !v.result ? v.value.milliwatts * 1e-3 : 0;
}

// Cycles and nanoseconds of the multiprocessors, each in its place.
static __global__ void read_clocks(long long *at) {
    unsigned sm;
    long long now;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    if (threadIdx.x == 0 && sm * 2 + 1 < SLOTS) {
        at[sm * 2] = clock64();
        at[sm * 2 + 1] = now;
    }
}

struct bench {
    struct exec *x;
    struct gpu *g;
    struct vendor *vendor;
    const struct shape *s;
    struct weight *w[JOBS];
    struct act *in, *joined;
    float *out[JOBS];
    __half *unpacked;
    long long *clocks; // [2][SLOTS]
    struct meter meter;
    cudaEvent_t from, to;
};

// What the unpacked weights of all jobs are, and which the vendor multiplies.
static void each_job(struct bench *b, bool unpack, bool multiply) {
    const struct shape *s = b->s;
    __half *to = b->unpacked;
    for (int j = 0; j < s->jobs; j += s->pair ? 2 : 1) {
        struct linear_one o = {};
        o.w[0] = b->w[j]->view;
        if (s->pair)
            o.w[1] = b->w[j + 1]->view;
        o.pair = s->pair;
        const int64_t m = linear_unpacked_rows(&o);
        if (unpack)
            linear_unpack(b->g, &o, to, b->in->stride);
        const struct vendor_product p = {to, b->in->x, b->out[j], m, s->rows, b->in->stride, m};
        if (multiply)
            vendor_multiply(b->g, &p);
        to += m * b->in->stride;
    }
}

static void call_once(struct bench *b, int kind) {
    const struct shape *s = b->s;
    struct linear_job jobs[JOBS] = {};
    b->g->vendor = kind == OWN ? NULL : b->vendor;
    if (kind == UNPACKING || kind == VENDOR_ALONE) {
        each_job(b, kind == UNPACKING, kind == VENDOR_ALONE);
        return;
    }
    if (s->pair) {
        struct gate_up w = {};
        w.gate = b->w[0];
        w.up = b->w[1];
        exec_ops(b->x)->linear_gate_up(b->x, &w, b->in, s->rows, b->joined);
        return;
    }
    for (int j = 0; j < s->jobs; j++) {
        jobs[j].w = b->w[j];
        jobs[j].out = b->out[j];
        jobs[j].add = s->add;
    }
    exec_ops(b->x)->linear(b->x, jobs, s->jobs, b->in, s->rows);
}

static void mark(struct bench *b, cudaEvent_t event, int which) {
    gpu_flush(b->g);
    launch_order_forget(&b->g->order);
    read_clocks<<<4 * b->g->processors, 32, 0, b->g->stream>>>(b->clocks + which * SLOTS);
    cudaEventRecord(event, b->g->stream);
}

// `calls` calls of a kind.
static struct sample measure(struct bench *b, int kind, int calls) {
    static long long clocks[2][SLOTS];
    struct sample s = {};
    float ms = 0;
    cudaStreamSynchronize(b->g->stream);
    mark(b, b->from, 0);
    for (int i = 0; i < calls; i++)
        call_once(b, kind);
    mark(b, b->to, 1);
    int n = 0;
    for (; cudaEventQuery(b->to) == cudaErrorNotReady; n++) {
        s.watts += watts_now(&b->meter);
        usleep(10000);
    }
    s.watts = n ? s.watts / n : 0;
    cudaEventElapsedTime(&ms, b->from, b->to);
    s.us = (double)ms * 1e3 / calls;
    cudaMemcpy(clocks, b->clocks, sizeof clocks, cudaMemcpyDeviceToHost);
    s.mhz = (double)(clocks[1][0] - clocks[0][0]) * 1e3 / (double)(clocks[1][1] - clocks[0][1]);
    return s;
}

static void open_shape(struct bench *b, struct rng *rng) {
    const struct shape *s = b->s;
    int64_t all = 0;
    float *in = random_floats(rng, s->rows * s->k, 1);
    float *at = (float *)b->x->ops->alloc(b->x, (size_t)(s->rows * s->k) * sizeof *in);
    b->in = act_new(b->x, s->rows, s->k);
    b->x->ops->upload(b->x, at, in, (size_t)(s->rows * s->k) * sizeof *in);
    b->x->ops->to_act(b->x, at, s->rows, s->k, b->in);
    for (int j = 0; j < s->jobs; j++) {
        struct matrix m = matrix_new(rng, s->job[j].type, s->k, s->job[j].m);
        b->w[j] = matrix_pack(b->x, &m);
        matrix_free(&m);
        all += b->w[j]->view.tiles * TILE_ROWS;
    }
    for (int j = 0; j < s->jobs; j++) {
        const int64_t m = s->pair ? (j ? 0 : all) : b->w[j]->view.tiles * TILE_ROWS;
        b->out[j] = m ? (float *)b->x->ops->alloc(b->x, (size_t)(s->rows * m) * 4) : NULL;
    }
    b->unpacked = (__half *)b->x->ops->alloc(b->x, (size_t)(all * b->in->stride) * 2);
    b->joined = s->pair ? act_new(b->x, s->rows, s->job[0].m) : NULL;
    b->x->ops->free(b->x, at);
    free(in);
}

static void close_shape(struct bench *b) {
    for (int j = 0; j < b->s->jobs; j++) {
        b->x->ops->weight_destroy(b->x, b->w[j]);
        if (b->out[j])
            b->x->ops->free(b->x, b->out[j]);
    }
    b->x->ops->free(b->x, b->unpacked);
    b->x->ops->act_destroy(b->x, b->in);
    if (b->joined)
        b->x->ops->act_destroy(b->x, b->joined);
}

static void time_shape(struct bench *b, const char *level, struct rng *rng, struct gpu_counts *n) {
    static const char *const names[KINDS] = {"ours", "of it unpacking", "vendor", "vendor alone"};
    const struct shape *s = b->s;
    struct sample mean[KINDS] = {};
    double flop = 0;
    for (int j = 0; j < s->jobs; j++)
        flop += 2.0 * (double)s->k * (double)s->job[j].m * (double)s->rows;
    open_shape(b, rng);
    measure(b, VENDOR_ALONE, 1 + (int)(WINDOW_US / measure(b, VENDOR_ALONE, 3).us));
    for (int i = 0; i < 2 * KINDS; i++) {
        const int kind = i < KINDS ? i : 2 * KINDS - 1 - i;
        const double us = measure(b, kind, 3).us;
        const struct sample now = measure(b, kind, 1 + (int)(WINDOW_US / us));
        mean[kind].us += now.us / 2;
        mean[kind].mhz += now.mhz / 2;
        mean[kind].watts += now.watts / 2;
    }
    for (int kind = 0; kind < KINDS; kind++)
        printf("time   %-10s %-9s %-16s %9.1f us %7.1f TFLOP/s %6.0f MHz %5.0f W\n", level, s->what,
               names[kind], mean[kind].us, kind == UNPACKING ? 0 : flop / mean[kind].us * 1e-6,
               mean[kind].mhz, mean[kind].watts);
    const double alone = mean[VENDOR_ALONE].us / mean[OWN].us * 100;
    gpu_line(n, alone >= WANTED, level, "products", s->what,
             "%.1f %% of the vendor's speed alone (wanted: %d), %.1f %% with what is around it",
             alone, WANTED, mean[VENDOR].us / mean[OWN].us * 100);
    close_shape(b);
}

extern "C" void suite_products(const char *level, const struct gpu_options *o,
                               struct gpu_counts *n) {
    struct bench b = {};
    struct err e = {};
    struct rng rng = {1};
    if (!o->timing || !device_level(level))
        return;
    if (device_open(&b.x, level, 0, &e)) {
        gpu_line(n, false, level, "products", "open", "%s", e.text);
        return;
    }
    b.g = gpu_enter(b.x);
    b.vendor = b.g->vendor;
    open_meter(&b.meter, b.g->device);
    cudaEventCreate(&b.from);
    cudaEventCreate(&b.to);
    b.clocks = (long long *)b.x->ops->alloc(b.x, 2 * SLOTS * sizeof *b.clocks);
    for (size_t i = 0; b.vendor && b.clocks && i < sizeof shapes / sizeof *shapes; i++) {
        b.s = &shapes[i];
        if (!o->only || !strcmp(o->only, b.s->what))
            time_shape(&b, level, &rng, n);
    }
    b.g->vendor = b.vendor;
    if (!b.vendor)
        printf("skip   %-10s products: a level with the vendor's is cuda:wgmma:vendor\n", level);
    if (b.x->status(b.x, &e))
        gpu_line(n, false, level, "products", "status", "%s", e.text);
    cudaEventDestroy(b.from);
    cudaEventDestroy(b.to);
    exec_destroy(b.x);
}
