// SPDX-License-Identifier: Apache-2.0
// Linear layers over the pool: work is cut into tiles of output rows, over all jobs of a call at
// once; tiles that fit into a near cache together take all activation rows before the next ones.
// How the cut falls never changes a result, since a kernel treats each (output, row) pair on its
// own.
#include "base/num.h"
#include "ops/cpu/cpu.h"

enum { NEAR_BYTES = 128 * 1024 }; // weights that stay in a near cache while the rows change

void cpu_linear_part(const struct row_kernels *k, const struct linear_part *p) {
    linear_fn *many = p->n >= k->many ? k->linear_many[p->w->form] : NULL;
    (many ? many : k->linear[p->w->form])(p);
}

// What is known of a row without others, its groups side by side; NULL of more rows, or where the
// kernels do not read it.
static const struct act_alone *row_alone(const struct cpu *c, const struct act *in, int64_t n) {
    if (n != 1 || !c->row.alone)
        return NULL;
    for (int64_t g = 0; g < in->stride / GROUP; g++) {
        const struct act_block *b = in->b + g;
        in->alone[g] = (struct act_alone){.d = b->d[0],
                                          .ds = b->ds[0],
                                          .ds16 = {b->ds16[0][0], b->ds16[1][0]},
                                          .nsum = b->nsum[0],
                                          .nsum16 = {b->nsum16[0][0], b->nsum16[1][0]}};
    }
    return in->alone;
}

struct linear_run {
    const struct cpu *cpu;
    const struct linear_job *jobs;
    const struct act *in;
    int64_t n;
    const struct act_alone *alone;
};

// The last tile of a matrix whose rows are no multiple of TILE.
static void ragged_tile(const struct row_kernels *k, struct linear_part p) {
    float tmp[ROWS * TILE], *out = p.out;
    int64_t stride = p.stride, lanes = p.w->m % TILE;
    bool add = p.add;
    p.out = tmp;
    p.stride = TILE;
    p.tiles = 1;
    p.add = false;
    cpu_linear_part(k, &p);
    for (int i = 0; i < p.n; i++)
        for (int64_t l = 0; l < lanes; l++)
            out[i * stride + l] = add ? out[i * stride + l] + tmp[i * TILE + l] : tmp[i * TILE + l];
}

// Adds the bias of outputs [begin, end) to n rows.
static void add_bias(const struct linear_job *j, int64_t row, int n, int64_t begin, int64_t end) {
    for (int i = 0; i < n; i++) {
        float *out = j->out + (row + i) * j->w->m;
        for (int64_t c = begin; c < end; c++)
            out[c] += j->bias[c];
    }
}

// Tiles [begin, end) of one job for all rows.
static void near_tiles(const struct linear_run *a, const struct linear_job *j, int64_t begin,
                       int64_t end) {
    const struct row_kernels *k = &a->cpu->row;
    int64_t whole = j->w->m / TILE < end ? j->w->m / TILE : end;
    for (int64_t row = 0; row < a->n; row += ROWS) {
        struct linear_part p = {.w = j->w,
                                .tile = begin,
                                .tiles = whole - begin,
                                .in = a->in,
                                .row = row,
                                .n = a->n - row < ROWS ? (int)(a->n - row) : ROWS,
                                .alone = a->alone,
                                .add = j->add,
                                .out = j->out + row * j->w->m + begin * TILE,
                                .stride = j->w->m};
        if (p.tiles > 0)
            cpu_linear_part(k, &p);
        if (whole < end) {
            p.tile = whole;
            p.out = j->out + row * j->w->m + whole * TILE;
            ragged_tile(k, p);
        }
        if (j->bias)
            add_bias(j, row, p.n, begin * TILE, end * TILE < j->w->m ? end * TILE : j->w->m);
    }
}

static void linear_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct linear_run *a = arg;
    const struct linear_job *j = a->jobs;
    int64_t first = 0; // of job j among all tiles
    while (begin < end) {
        while (begin - first >= j->w->tiles)
            first += (j++)->w->tiles;
        int64_t max = NEAR_BYTES / j->w->tile_bytes, left = first + j->w->tiles - begin;
        int64_t n = end - begin < left ? end - begin : left;
        if (a->n > ROWS) // weights are read more than once
            n = n < max ? n : max > 0 ? max : 1;
        near_tiles(a, j, begin - first, begin - first + n);
        begin += n;
    }
}

// A guess in nanoseconds: a tile of 16 x k weights, read from memory, against n activation rows.
static int64_t tile_cost(int64_t k, int64_t n) {
    return k * (n + 3) / 10 + 10;
}

struct round_run {
    const struct cpu *cpu;
    const struct act *in;
};

static void round_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct round_run *a = arg;
    int64_t at = begin * a->in->stride;
    a->cpu->row.to_bf16(a->in->x + at, a->in->h + at, (end - begin) * a->in->stride);
}

// Rows as bf16, for weights that are.
static void to_bf16(struct cpu *c, const struct act *in, int64_t n) {
    struct round_run a = {c, in};
    cpu_run(c, n, in->stride / 10, round_rows, &a);
}

void cpu_linear(struct exec *x, const struct linear_job *jobs, int n_jobs, const struct act *in,
                int64_t n) {
    struct linear_run a = {.cpu = cpu_of(x), .jobs = jobs, .in = in, .n = n};
    int64_t tiles = 0;
    bool bf16 = false;
    for (int j = 0; j < n_jobs; j++) {
        tiles += jobs[j].w->tiles;
        bf16 = bf16 || jobs[j].w->form == FORM_BF16;
    }
    if (bf16 && n)
        to_bf16(cpu_of(x), in, n);
    a.alone = row_alone(cpu_of(x), in, n);
    if (tiles && n)
        cpu_run(cpu_of(x), tiles, tile_cost(in->k, n), linear_tiles, &a);
}

void cpu_activate_row(const struct row_kernels *k, enum activation a, float *out, const float *g,
                      const float *u, int64_t n) {
    switch (a) {
    case ACTIVATION_SILU:
        k->silu_mul(out, g, u, n);
        break;
    case ACTIVATION_GELU_TANH:
        k->gelu_mul(out, g, u, n);
        break;
    case ACTIVATION_SWIGLU_CLAMPED:
        k->swiglu_clamped(out, g, u, n);
        break;
    }
}

struct gate_up_run {
    const struct cpu *cpu;
    const struct gate_up *w;
    const struct act *in;
    int64_t n;
    struct act *out;
    const struct act_alone *alone;
};

// Groups of 32 outputs, two tiles of each matrix, that are made together.
enum { TOGETHER = 4, TOGETHER_OUT = TOGETHER * GROUP };

// Outputs that are made together: `groups` groups of rows [row, row + n).
struct gate_up_piece {
    int64_t group, row;
    int groups, n;
};

// One matrix: outputs of a piece into out, [n][TOGETHER_OUT], zeros after its last tile.
static void gate_up_part(const struct gate_up_run *a, const struct weight *w, const float *bias,
                         const struct gate_up_piece *at, float *out) {
    int64_t tile = at->group * 2, left = w->tiles - tile, first = at->group * GROUP;
    int groups = at->groups, n = at->n;
    struct linear_part p = {.w = w,
                            .tile = tile,
                            .tiles = min_i64(left, 2 * groups),
                            .in = a->in,
                            .row = at->row,
                            .n = n,
                            .alone = a->alone,
                            .out = out,
                            .stride = TOGETHER_OUT};
    cpu_linear_part(&a->cpu->row, &p);
    for (int i = 0; i < n; i++)
        for (int64_t c = p.tiles * TILE; c < groups * GROUP; c++)
            out[i * TOGETHER_OUT + c] = 0;
    for (int i = 0; bias && i < n; i++)
        for (int64_t c = 0; c < groups * GROUP && first + c < w->m; c++)
            out[i * TOGETHER_OUT + c] += bias[first + c];
}

// Activates and quantises a piece.
static void gate_up_act(const struct gate_up_run *a, const struct gate_up_piece *at, const float *g,
                        const float *u) {
    const struct row_kernels *k = &a->cpu->row;
    struct act *o = a->out;
    int64_t group = at->group, row = at->row;
    int groups = at->groups, n = at->n;
    float *x = o->x + row * o->stride + group * GROUP;
    for (int i = 0; i < n; i++) {
        float *y = x + i * o->stride;
        cpu_activate_row(k, a->w->activation, y, g + i * TOGETHER_OUT, u + i * TOGETHER_OUT,
                         groups * GROUP);
        for (int64_t c = a->w->gate->m - group * GROUP; c < groups * GROUP; c++)
            y[c] = 0; // padding of the last group
    }
    struct quantise job = {.x = x,
                           .q = o->q + row * o->stride + group * GROUP,
                           .b = act_blocks(o, row) + group,
                           .rows = n,
                           .groups = groups,
                           .stride = o->stride};
    k->quantise(&job);
}

static void gate_up_groups(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct gate_up_run *a = arg;
    int together = a->n == 1 ? 1 : TOGETHER; // one row waits for memory: two streams overlap
    float g[ROWS * TOGETHER_OUT], u[ROWS * TOGETHER_OUT];
    for (int64_t group = begin; group < end; group += together) {
        int groups = end - group < together ? (int)(end - group) : together;
        for (int64_t row = 0; row < a->n; row += ROWS) {
            int n = a->n - row < ROWS ? (int)(a->n - row) : ROWS;
            struct gate_up_piece at = {group, row, groups, n};
            gate_up_part(a, a->w->gate, a->w->gate_bias, &at, g);
            gate_up_part(a, a->w->up, a->w->up_bias, &at, u);
            gate_up_act(a, &at, g, u);
        }
    }
}

void cpu_linear_gate_up(struct exec *x, const struct gate_up *w, const struct act *in, int64_t n,
                        struct act *out) {
    struct gate_up_run a = {cpu_of(x), w, in, n, out, row_alone(cpu_of(x), in, n)};
    act_shape(out, n, w->gate->m);
    if (n && (w->gate->form == FORM_BF16 || w->up->form == FORM_BF16))
        to_bf16(cpu_of(x), in, n);
    if (n)
        cpu_run(cpu_of(x), out->stride / GROUP, 4 * tile_cost(in->k, n), gate_up_groups, &a);
}
