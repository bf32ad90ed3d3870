// SPDX-License-Identifier: Apache-2.0
// Linear layers over the pool: work is cut into tiles of output rows, over all jobs of a call at
// once; every tile takes all activation rows while its weights are in the cache. How the cut falls
// never changes a result, since a kernel treats each (output, row) pair on its own.
#include "ops/cpu/cpu.h"

struct linear_run {
    const struct cpu *cpu;
    const struct linear_job *jobs;
    const struct act *in;
    int64_t n;
};

static void store(const struct linear_job *j, int64_t tile, int64_t row, int n, const float *tmp) {
    int64_t m = j->w->m, left = m - tile * TILE;
    int lanes = left < TILE ? (int)left : TILE;
    for (int i = 0; i < n; i++) {
        float *out = j->out + (row + i) * m + tile * TILE;
        const float *t = tmp + i * TILE;
        for (int l = 0; l < lanes; l++)
            out[l] = j->add ? out[l] + t[l] : t[l];
    }
}

static void linear_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct linear_run *a = arg;
    const struct linear_job *j = a->jobs;
    int64_t first = 0; // of job j among all tiles
    for (int64_t t = begin; t < end; t++) {
        while (t - first >= j->w->tiles)
            first += (j++)->w->tiles;
        float tmp[ROWS * TILE];
        for (int64_t row = 0; row < a->n; row += ROWS) {
            int n = a->n - row < ROWS ? (int)(a->n - row) : ROWS;
            a->cpu->row.linear[j->w->form](j->w, t - first, a->in, row, n, tmp);
            store(j, t - first, row, n, tmp);
        }
    }
}

// A guess in nanoseconds: a tile of 16 x k weights, read from memory, against n activation rows.
static int64_t tile_cost(int64_t k, int64_t n) {
    return k * (n + 3) / 10 + 10;
}

void cpu_linear(struct exec *x, const struct linear_job *jobs, int n_jobs, const struct act *in,
                int64_t n) {
    struct linear_run a = {.cpu = cpu_of(x), .jobs = jobs, .in = in, .n = n};
    int64_t tiles = 0;
    for (int j = 0; j < n_jobs; j++)
        tiles += jobs[j].w->tiles;
    if (tiles && n)
        cpu_run(cpu_of(x), tiles, tile_cost(in->k, n), linear_tiles, &a);
}

struct gate_up_run {
    const struct cpu *cpu;
    const struct weight *gate, *up;
    const struct act *in;
    int64_t n;
    struct act *out;
};

// One group of 32 outputs: two tiles of each matrix, so that the group can be quantised at once.
static void gate_up_group(const struct gate_up_run *a, int64_t group, int64_t row, int n) {
    const struct row_kernels *k = &a->cpu->row;
    float g[2][ROWS * TILE], u[2][ROWS * TILE];
    int64_t m = a->gate->m;
    for (int h = 0; h < 2; h++) {
        int64_t tile = group * 2 + h;
        if (tile >= a->gate->tiles) {
            memset(g[h], 0, sizeof g[h]);
            memset(u[h], 0, sizeof u[h]);
            continue;
        }
        k->linear[a->gate->form](a->gate, tile, a->in, row, n, g[h]);
        k->linear[a->up->form](a->up, tile, a->in, row, n, u[h]);
    }
    struct act *o = a->out;
    int64_t blocks = o->stride / GROUP;
    float *x = o->x + row * o->stride + group * GROUP;
    for (int i = 0; i < n; i++) {
        float *y = x + i * o->stride;
        for (int h = 0; h < 2; h++)
            k->silu_mul(y + h * TILE, g[h] + i * TILE, u[h] + i * TILE, TILE);
        for (int64_t c = m - group * GROUP; c < GROUP; c++)
            y[c] = 0; // padding of the last group
    }
    struct quantise job = {.x = x,
                           .q = o->q + row * o->stride + group * GROUP,
                           .b = o->b + row * blocks + group,
                           .n = n,
                           .x_step = o->stride,
                           .q_step = o->stride,
                           .b_step = blocks};
    k->quantise(&job);
}

static void gate_up_groups(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct gate_up_run *a = arg;
    for (int64_t group = begin; group < end; group++)
        for (int64_t row = 0; row < a->n; row += ROWS)
            gate_up_group(a, group, row, a->n - row < ROWS ? (int)(a->n - row) : ROWS);
}

void cpu_linear_gate_up(struct exec *x, const struct weight *gate, const struct weight *up,
                        const struct act *in, int64_t n, struct act *out) {
    struct gate_up_run a = {cpu_of(x), gate, up, in, n, out};
    act_shape(out, n, gate->m);
    if (n)
        cpu_run(cpu_of(x), out->stride / GROUP, 4 * tile_cost(in->k, n), gate_up_groups, &a);
}
