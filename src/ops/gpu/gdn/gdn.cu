// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule by the recurrent log (formulas: arXiv 2412.06464 section 3,
// unrolled from a base; ops/cpu/gdn/ops.c is the specification): brings the tables of a pass over
// and chooses one of two kernels by device and shape. No state is written; commit.cu does that.
#include "ops/gpu/gdn/gdn.cuh"

// Whether a run has a row whose position lies in a later block than its sequence's end, so that it
// reads the newer base.
static bool reads_newer(const struct gdn_args *a, const struct gdn_run *run, const struct rows *r) {
    for (int64_t i = run->first; i < run->first + run->count; i++) {
        if (r->pos[i] / GDN_BLOCK > a->len[run->seq] / GDN_BLOCK)
            return true;
    }
    return false;
}

// Appends the rows that read base lo (hi: base hi) to the places; where: those of rows.
static void place_rows(struct gdn_tables *t, const struct rows *r, bool hi, int8_t *where) {
    for (int8_t i = 0; i < (int8_t)t->few.n; i++) {
        int64_t pos = r->pos[t->first + i];
        if ((pos / GDN_BLOCK > t->len / GDN_BLOCK) != hi)
            continue;
        t->list[t->n] = i;
        t->depth[t->n] = (int8_t)(pos - t->len);
        t->up[t->n] = t->few.up[i] < 0 ? (int8_t)-1 : where[t->few.up[i]];
        where[i] = t->n++;
    }
}

// Few rows of one sequence: their tables go with the launch.
static void fill_few(struct gdn_tables *t, const struct gdn_args *a, const struct gdn_run *run,
                     const struct rows *r, bool newer) {
    int8_t where[GDN_FEW];
    t->few = gdn_few_of(a->seqs, run->seq, r->parent + run->first, run->first, run->count);
    t->first = run->first;
    t->len = a->len[run->seq];
    place_rows(t, r, false, where);
    while (newer && t->n % 4) {
        t->list[t->n] = t->depth[t->n] = t->up[t->n] = -1;
        t->n++;
    }
    t->hi = t->n;
    place_rows(t, r, true, where);
}

// The tables of n runs in device memory; false after a fault.
static bool stage_tables(struct gpu *g, struct gdn_job *j, const struct gdn_run *runs, int n,
                         const struct rows *r) {
    struct gdn_place places[GDN_STATES];
    for (int i = 0; i < n; i++) {
        const struct gdn_state *state = j->a.seqs[runs[i].seq];
        places[i] = {runs[i].first, runs[i].count, j->a.len[runs[i].seq], gdn_exchanged(state)};
    }
    j->runs = (const struct gdn_place *)gpu_stage(g, places, (size_t)n * sizeof *places);
    j->states = gdn_stage_states(g, &j->a, runs, n);
    j->parent = (const int32_t *)gpu_stage(g, r->parent, (size_t)r->n * sizeof *r->parent);
    j->pos = (const int64_t *)gpu_stage(g, r->pos, (size_t)r->n * sizeof *r->pos);
    return j->runs && j->states && j->parent && j->pos;
}

// At most GDN_STATES runs in one launch; false after a fault.
static bool launch_runs(struct gpu *g, const struct gdn_args *a, const struct gdn_run *runs, int n,
                        const struct rows *r) {
    struct gdn_job j = {};
    struct gdn_tables t = {};
    bool matrix = gdn_takes_matrix(g, &a->shape);
    j.a = *a;
    for (int i = 0; i < n; i++) {
        j.count = runs[i].count > j.count ? runs[i].count : j.count;
        j.newer = j.newer || reads_newer(a, &runs[i], r);
    }
    j.max = ((int)j.count + 3 + 3) / 4 * 4; // places of both bases begin at multiples of four
    if (matrix && n == 1 && j.count <= GDN_FEW)
        fill_few(&t, a, runs, r, j.newer);
    else if (!stage_tables(g, &j, runs, n, r))
        return false;
    return matrix ? gdn_matrix(g, &j, &t, n) : gdn_plain(g, &j, n);
}

// Ways that runs go: of many rows, or alone; middling and short ones of several sequences, apart
// since a launch costs what its longest run does.
enum { LONG, MIDDLING, SHORT, KINDS };

// Which way a run of that many rows goes that is not alone in it. lone: the only short one joins
// the middling ones.
static int kind_of(int64_t count, bool lone) {
    enum { FEW = 8 };
    if (count > GDN_SMALL)
        return LONG;
    return count > FEW || lone ? MIDDLING : SHORT;
}

static bool launch_kind(struct gpu *g, int kind, const struct gdn_args *a,
                        const struct gdn_run *runs, int n, const struct rows *r) {
    bool single = kind == SHORT;
    if (kind == LONG)
        return launch_runs(g, a, runs, n, r);
    for (int i = 0; i < n; i++)
        single = single && runs[i].count == 1 && !reads_newer(a, &runs[i], r);
    return single ? gdn_single(g, a, runs, n) : gdn_small(g, a, runs, n, r);
}

// How runs are shared out changes no bit.
extern "C" void cuda_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    struct gpu *g = gpu_of(x);
    struct gdn_run runs[KINDS][GDN_STATES];
    int n[KINDS] = {0}, all[KINDS] = {0};
    bool small = gdn_takes_small(g, &a->shape);
    for (int i = 0; i < a->n_runs; i++)
        all[kind_of(a->runs[i].count, false)]++;
    bool lone = all[SHORT] == 1;
    all[MIDDLING] += lone;
    for (int i = 0; i < a->n_runs; i++) {
        int kind = kind_of(a->runs[i].count, lone);
        kind = small && all[kind] > 1 ? kind : LONG;
        runs[kind][n[kind]++] = a->runs[i];
        for (int k = 0; k < KINDS; k++) {
            if (n[k] == 0 || (n[k] < GDN_STATES && i + 1 < a->n_runs))
                continue;
            if (!launch_kind(g, k, a, runs[k], n[k], r))
                return;
            n[k] = 0;
        }
    }
}

extern "C" size_t gdn_scratch(const struct gpu *g, const struct exec_limits *l) {
    const struct gdn_shape *s = &l->gdn;
    int sequences = l->seqs < GDN_STATES ? (int)l->seqs : GDN_STATES;
    if (!s->n_k)
        return 0;
    struct gdn_job j = {};
    j.a.shape = *s;
    j.count = l->rows;
    j.max = (int)(l->tree + 3 + 3) / 4 * 4;
    j.newer = true;
    size_t blocks = gdn_blocks_bytes(s, (l->rows + GDN_BLOCK - 1) / GDN_BLOCK);
    size_t each = gdn_takes_matrix(g, s) ? gdn_matrix_bytes(g, j, sequences)
                                         : gdn_plain_bytes(s, j.max, sequences);
    size_t small = gdn_takes_small(g, s) ? gdn_small_bytes(s, GDN_SMALL, sequences) : 0;
    each = each > small ? each : small;
    return blocks > each ? blocks : each;
}
