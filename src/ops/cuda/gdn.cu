// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet, the delta rule by the recurrent log (formulas: arXiv 2412.06464 section 3,
// unrolled from a base; ops_gdn.c is the specification): brings the tables of a pass over and
// chooses one of two kernels by device and shape. No state is written; gdn_commit.cu does that.
#include "ops/cuda/gdn_launch.h"

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

extern "C" void cuda_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    struct gpu *g = gpu_of(x);
    struct gdn_job j = {};
    size_t ids = (size_t)a->count * sizeof(int32_t);
    if (!a->count)
        return;
    j.a = *a;
    struct gdn_range range = gdn_sequences(r->seq + a->first, a->count);
    j.parent = (const int32_t *)gpu_stage(g, r->parent + a->first, ids);
    j.seq = (const int32_t *)gpu_stage(g, r->seq + a->first, ids);
    j.pos = (const int64_t *)gpu_stage(g, r->pos + a->first, (size_t)a->count * sizeof *r->pos);
    j.len = (const int64_t *)gpu_stage(g, a->len, (size_t)range.stop * sizeof *a->len);
    j.behind = g->last == LAST_COMMIT;
    bool matrix = gdn_takes_matrix(g, &a->shape);
    for (j.first_seq = range.first; j.first_seq < range.stop; j.first_seq += GDN_STATES) {
        int left = range.stop - j.first_seq, sequences = left < GDN_STATES ? left : GDN_STATES;
        j.states = gdn_stage_states(g, a->seqs, j.first_seq, range.stop);
        if (!j.parent || !j.seq || !j.pos || !j.len || !j.states)
            return;
        // Places: those of both bases begin at multiples of four.
        j.most = (most_rows(r->seq + a->first, a->count, j.first_seq, sequences) + 3 + 3) / 4 * 4;
        if (!(matrix ? gdn_matrix(g, &j, sequences) : gdn_plain(g, &j, sequences)))
            return;
    }
    g->last = LAST_GDN;
}
