// SPDX-License-Identifier: Apache-2.0
// linear and linear_gate_up: which kernel serves a call, and its launches. Jobs whose weights have
// one form share a launch. What is chosen here (tile of rows, split or loop) changes no bits.
#include "ops/cuda/linear_launch.h"
#include "ops/cuda/linear_wgmma.h"
#include "ops/cuda/ops_cuda.h"

enum { OUTPUTS = 128, BUSY_BLOCKS = 200, SILU_THREADS = 256 };

static struct linear_variant variant(int form, int n_tiles, bool loop, bool small) {
    return form <= WEIGHT_Q6_K ? linear_k_variant(form, n_tiles, loop, small)
                               : linear_b_variant(form, n_tiles, loop, small);
}

// The smallest tile that holds all rows, or the largest that the device has room for.
static struct linear_variant choose(const struct gpu *g, int form, int64_t rows, bool loop) {
    static const int sizes[] = {1, 2, 3, 4, 6, 8};
    struct linear_variant best = {};
    for (int i = 0; i < 6; i++) {
        struct linear_variant v = variant(form, sizes[i], loop, g->path == CUDA_PATH_SMALL);
        if (!v.kernel || v.shared > g->shared)
            continue;
        best = v;
        if (sizes[i] * 8 >= rows)
            break;
    }
    return best;
}

static bool allow_shared(struct gpu *g, int form, const struct linear_variant *v, bool loop) {
    uint32_t bit = 1u << (v->n_tiles + (loop ? 8 : 0) + (g->path == CUDA_PATH_SMALL ? 16 : 0));
    if (g->allowed[form] & bit)
        return true;
    if (!gpu_check(g, gpu_allow_shared((const void *)v->kernel, v->shared), "linear"))
        return false;
    g->allowed[form] |= bit;
    return true;
}

static bool need_tickets(struct gpu *g, int64_t n) {
    if (n <= g->n_tickets)
        return true;
    gpu_release(g, g->tickets);
    g->n_tickets = n < 8192 ? 8192 : n;
    g->tickets = (unsigned *)gpu_alloc(g, (size_t)g->n_tickets * sizeof *g->tickets);
    if (g->tickets)
        return true;
    g->n_tickets = 0;
    return gpu_check(g, GPU_OUT_OF_MEMORY, "tickets of linear layers");
}

// Units of work of a job: blocks of outputs times parts.
static int64_t units_of(const struct linear_one *j, bool loop) {
    int64_t outputs = j->pair ? 2 * j->w[0].m : j->w[0].m;
    return (outputs + OUTPUTS - 1) / OUTPUTS * (loop ? 1 : j->parts);
}

static bool takes_wgmma(const struct gpu *g, int64_t n) {
    return g->path == CUDA_PATH_WGMMA && n >= WGMMA_ROWS;
}

// Launches the jobs of l, all of one form. Of the scratch memory the first `kept` bytes are in use.
static void launch(struct gpu *g, int form, struct linear_launch *l, size_t kept) {
    if (takes_wgmma(g, l->n)) {
        linear_wgmma_launch(g, form, l);
        return;
    }
    int64_t units = 0, whole = 0;
    bool cut = false;
    for (int j = 0; j < l->jobs; j++) {
        whole += units_of(&l->job[j], true);
        cut = cut || l->job[j].parts > 1;
    }
    struct linear_variant v = choose(g, form, l->n, true);
    bool loop = cut && l->n > 64 && v.kernel;
    loop = loop && whole * ((l->n + v.n_tiles * 8 - 1) / (v.n_tiles * 8)) >= BUSY_BLOCKS;
    if (!loop)
        v = choose(g, form, l->n, false);
    if (!v.kernel) {
        gpu_check(g, GPU_NO_KERNEL, "linear");
        return;
    }
    l->row_tiles = (l->n + v.n_tiles * 8 - 1) / (v.n_tiles * 8);
    for (int j = 0; j < l->jobs; j++) {
        l->job[j].first = units;
        units += units_of(&l->job[j], loop);
    }
    int64_t blocks = units * l->row_tiles;
    if (cut && !loop) {
        size_t bytes = (size_t)blocks * v.threads * v.n_tiles * 8 * sizeof(float);
        unsigned char *scratch = (unsigned char *)gpu_scratch(g, kept + bytes);
        if (!scratch || !need_tickets(g, blocks))
            return;
        l->partial = (float *)(scratch + kept);
        l->ticket = g->tickets;
    }
    if (!allow_shared(g, form, &v, loop))
        return;
    gpu_launch_early(g, "linear", v.kernel, (unsigned)blocks, (unsigned)v.threads, v.shared, *l);
}

static struct linear_launch launch_of(const struct act *in, int64_t n) {
    struct linear_launch l = {};
    l.n = n;
    l.x = (const __half *)in->x;
    l.stride = in->stride;
    l.unscale = in->unscale;
    return l;
}

static void add_job(struct linear_launch *l, const struct linear_job *j) {
    struct linear_one *o = &l->job[l->jobs++];
    o->w[0] = j->w->view;
    o->out = j->out;
    o->out_stride = j->w->m;
    o->add = j->add;
    o->pair = false;
    o->parts = linear_parts(j->w->k, j->w->m);
}

static void run_jobs(struct gpu *g, const struct linear_job *jobs, int n_jobs, const struct act *in,
                     int64_t n, size_t kept) {
    for (int form = 0; form < WEIGHT_FORMS; form++) {
        struct linear_launch l = launch_of(in, n);
        for (int j = 0; j < n_jobs; j++) {
            if (jobs[j].w->form != form)
                continue;
            add_job(&l, &jobs[j]);
            if (l.jobs < LINEAR_JOBS)
                continue;
            launch(g, form, &l, kept);
            l.jobs = 0;
        }
        if (l.jobs)
            launch(g, form, &l, kept);
    }
}

extern "C" void cuda_linear(struct exec *x, const struct linear_job *jobs, int n_jobs,
                            const struct act *in, int64_t n) {
    if (n > 0)
        run_jobs(gpu_of(x), jobs, n_jobs, in, n, 0);
}

// out[n][stride] = silu(g) * u of [n][m].
static __global__ void silu_join(const float *gate, const float *up, int64_t m, float *out,
                                 int64_t stride) {
    gpu_await();
    int64_t i = (int64_t)blockIdx.x * SILU_THREADS + threadIdx.x;
    if (i >= m)
        return;
    float g = gate[blockIdx.y * m + i];
    out[blockIdx.y * stride + i] = g / (1.0f + expf(-g)) * up[blockIdx.y * m + i];
}

// Matrices of two forms: each on its own, then joined, a slice of rows at a time.
static void gate_up_apart(struct gpu *g, const struct weight *gate, const struct weight *up,
                          const struct act *in, int64_t n, struct act *out) {
    const int64_t slice = 64;
    int64_t m = gate->m;
    size_t kept = (size_t)(2 * slice * m) * sizeof(float);
    // Parts of one tile of 64 rows take less than 16 MiB (linear_parts), so that nothing moves
    // below.
    if (!gpu_scratch(g, kept + ((size_t)16 << 20)))
        return;
    for (int64_t at = 0; at < n; at += slice) {
        struct act part = *in;
        int64_t count = n - at < slice ? n - at : slice;
        float *wide = (float *)gpu_scratch(g, kept);
        part.x = (__half *)in->x + at * in->stride;
        part.unscale = in->unscale + at;
        struct linear_job jobs[2] = {{gate, wide, false}, {up, wide + slice * m, false}};
        run_jobs(g, jobs, 2, &part, count, kept);
        dim3 grid((unsigned)((m + SILU_THREADS - 1) / SILU_THREADS), (unsigned)count);
        gpu_launch_early(g, "linear_gate_up", silu_join, grid, SILU_THREADS, 0, wide,
                         wide + slice * m, m, out->wide + at * out->stride, out->stride);
    }
}

// The same where many rows go through wgmma, which makes one matrix at a time.
static void gate_up_wgmma(struct gpu *g, const struct weight *gate, const struct weight *up,
                          const struct act *in, int64_t n, struct act *out) {
    const int64_t slice = n < 512 ? n : 512, m = gate->m;
    float *wide = (float *)gpu_scratch(g, (size_t)(2 * slice * m) * sizeof(float));
    for (int64_t at = 0; wide && at < n; at += slice) {
        struct act part = *in;
        int64_t count = n - at < slice ? n - at : slice;
        part.x = (__half *)in->x + at * in->stride;
        part.unscale = in->unscale + at;
        for (int i = 0; i < 2; i++) {
            struct linear_job job = {i ? up : gate, wide + i * slice * m, false};
            struct linear_launch l = launch_of(&part, count);
            add_job(&l, &job);
            if (gate->form == up->form)
                l.job[0].parts = linear_parts(gate->k, 2 * m); // as in a pair
            linear_wgmma_launch(g, job.w->form, &l);
        }
        dim3 grid((unsigned)((m + SILU_THREADS - 1) / SILU_THREADS), (unsigned)count);
        gpu_launch_early(g, "linear_gate_up", silu_join, grid, SILU_THREADS, 0, wide,
                         wide + slice * m, m, out->wide + at * out->stride, out->stride);
    }
}

extern "C" void cuda_linear_gate_up(struct exec *x, const struct weight *gate,
                                    const struct weight *up, const struct act *in, int64_t n,
                                    struct act *out) {
    struct gpu *g = gpu_of(x);
    cuda_act_shape(out, n, gate->m);
    if (n <= 0)
        return;
    if (takes_wgmma(g, n)) {
        gate_up_wgmma(g, gate, up, in, n, out);
    } else if (gate->form == up->form) {
        struct linear_launch l = launch_of(in, n);
        struct linear_one *o = &l.job[l.jobs++];
        o->w[0] = gate->view;
        o->w[1] = up->view;
        o->out = out->wide;
        o->out_stride = out->stride;
        o->pair = true;
        o->parts = linear_parts(gate->k, 2 * gate->m);
        launch(g, gate->form, &l, 0);
    } else {
        gate_up_apart(g, gate, up, in, n, out);
    }
    cuda_act_finish(x, out, n);
}
