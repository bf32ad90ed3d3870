// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule by the recurrent log (formulas: arXiv 2412.06464 section 3,
// unrolled from a base; ops_gdn.c is the specification): brings the tables of a pass over and
// chooses one of two kernels by device and shape. No state is written; gdn_commit.cu does that.
#include "ops/gpu/gdn/gdn_launch.h"

// The largest number of rows of one sequence among sequences first .. first + n - 1.
static int most_rows(const int32_t *seq, int64_t rows, int first, int n) {
    int count[GDN_STATES] = {0}, most = 0;
    for (int64_t i = 0; i < rows; i++) {
        if (seq[i] < first || seq[i] >= first + n)
            continue;
        int c = ++count[seq[i] - first];
        most = c > most ? c : most;
    }
    return most;
}

// Whether some row's position lies in a later block than its sequence's end, so that it reads the
// newer base.
static bool reads_newer(const struct gdn_job *j, const struct rows *r) {
    for (int64_t i = j->first; i < j->first + j->count; i++) {
        if (r->pos[i] / GDN_BLOCK > j->a.len[r->seq[i]] / GDN_BLOCK)
            return true;
    }
    return false;
}

// Appends the rows that read base lo (hi: base hi) to the places; where: those of rows.
static void place_rows(struct gdn_tables *t, const struct gdn_job *j, const struct rows *r, bool hi,
                       int8_t *where) {
    for (int8_t i = 0; i < (int8_t)j->count; i++) {
        int64_t pos = r->pos[j->first + i];
        if ((pos / GDN_BLOCK > t->len / GDN_BLOCK) != hi)
            continue;
        t->list[t->n] = i;
        t->depth[t->n] = (int8_t)(pos - t->len);
        t->up[t->n] = t->few.up[i] < 0 ? (int8_t)-1 : where[t->few.up[i]];
        where[i] = t->n++;
    }
}

// Few rows of one sequence: their tables go with the launch.
static void fill_few(struct gdn_tables *t, const struct gdn_job *j, const struct rows *r, int seq) {
    int8_t where[GDN_FEW];
    t->few = gdn_few_of(j->a.seqs, seq, r->parent + j->first, j->first, j->count);
    t->len = j->a.len[seq];
    place_rows(t, j, r, false, where);
    while (j->newer && t->n % 4) {
        t->list[t->n] = t->depth[t->n] = t->up[t->n] = -1;
        t->n++;
    }
    t->hi = t->n;
    place_rows(t, j, r, true, where);
}

// The tables in device memory; false after a fault.
static bool stage_tables(struct gpu *g, struct gdn_job *j, const struct rows *r, int stop) {
    size_t n = (size_t)j->count, ids = n * sizeof(int32_t);
    j->parent = (const int32_t *)gpu_stage(g, r->parent + j->first, ids);
    j->seq = (const int32_t *)gpu_stage(g, r->seq + j->first, ids);
    j->pos = (const int64_t *)gpu_stage(g, r->pos + j->first, n * sizeof *r->pos);
    j->len = (const int64_t *)gpu_stage(g, j->a.len, (size_t)stop * sizeof *j->a.len);
    return j->parent && j->seq && j->pos && j->len;
}

// Rows j->first .. j->first + j->count - 1; false after a fault.
static bool run_rows(struct gpu *g, struct gdn_job *j, const struct rows *r) {
    struct gdn_tables t = {};
    struct gdn_range range = gdn_sequences(r->seq + j->first, j->count);
    j->newer = reads_newer(j, r);
    j->behind = g->last != LAST_ROWS && g->last != LAST_GDN;
    bool matrix = gdn_takes_matrix(g, &j->a.shape);
    if (matrix && j->count <= GDN_FEW && range.stop - range.first == 1)
        fill_few(&t, j, r, range.first);
    else if (!stage_tables(g, j, r, range.stop))
        return false;
    for (j->first_seq = range.first; j->first_seq < range.stop; j->first_seq += GDN_STATES) {
        int left = range.stop - j->first_seq, sequences = left < GDN_STATES ? left : GDN_STATES;
        if (!t.few.n)
            j->states = gdn_stage_states(g, j->a.seqs, j->first_seq, range.stop);
        if (!t.few.n && !j->states)
            return false;
        // Places: those of both bases begin at multiples of four.
        j->most = (most_rows(r->seq + j->first, j->count, j->first_seq, sequences) + 3 + 3) / 4 * 4;
        if (!(matrix ? gdn_matrix(g, j, &t, sequences) : gdn_plain(g, j, sequences)))
            return false;
    }
    g->last = LAST_GDN;
    return true;
}

// Runs that lie side by side are one launch.
extern "C" void cuda_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    for (int i = 0, n; i < a->n_runs; i += n) {
        const struct gdn_run *run = &a->runs[i];
        struct gdn_job j = {};
        j.a = *a;
        j.first = run->first;
        for (n = 0; i + n < a->n_runs && run[n].first == j.first + j.count; n++)
            j.count += run[n].count;
        if (!run_rows(gpu_of(x), &j, r))
            return;
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
    j.most = (int)(l->tree + 3 + 3) / 4 * 4;
    j.newer = true;
    size_t blocks = gdn_blocks_bytes(s, (l->rows + GDN_BLOCK - 1) / GDN_BLOCK);
    size_t each = gdn_takes_matrix(g, s) ? gdn_matrix_bytes(g, j, sequences)
                                         : gdn_plain_bytes(s, j.most, sequences);
    return blocks > each ? blocks : each;
}
