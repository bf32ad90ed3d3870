// SPDX-License-Identifier: Apache-2.0
// Commit of rows to recurrent states: appends them to the ring and folds a new base
// every 32 positions. The only writer of a state (the delta rule itself, ops.c, reads).
#include "base/num.h"
#include "ops/cpu/cpu.h"

// Puts one row into the ring of a layer.
static void append(const struct gdn_shape *s, const struct gdn_state *state,
                   const struct gdn_rows *r, int64_t pos, int64_t row) {
    int64_t slot = pos % GDN_RING, nk = (int64_t)s->n_k * s->dk, nv = (int64_t)s->n_v * s->dv;
    memcpy(state->log_k + slot * nk, r->k + row * nk, (size_t)nk * sizeof(float));
    memcpy(state->log_d + slot * nv, r->d + row * nv, (size_t)nv * sizeof(float));
    memcpy(state->log_g + slot * s->n_v, r->g + row * s->n_v, (size_t)s->n_v * sizeof(float));
}

// The last conv inputs after rows path[0..count), which follow those in conv.
static void advance_conv(int64_t channels, float *conv, const struct gdn_rows *r,
                         const int32_t *path, int64_t count) {
    int64_t keep = count < GDN_CONV - 1 ? GDN_CONV - 1 - count : 0;
    memmove(conv, conv + (GDN_CONV - 1 - keep) * channels,
            (size_t)(keep * channels) * sizeof *conv);
    for (int64_t t = keep; t < GDN_CONV - 1; t++)
        memcpy(conv + t * channels, r->u + path[count - (GDN_CONV - 1) + t] * channels,
               (size_t)channels * sizeof *conv);
}

struct fold_run {
    const struct cpu *cpu;
    const struct gdn_shape *s;
    const struct gdn_state *state;
    int64_t block; // first position of the completed block
};

// s_lo = the state after the block, from s_hi, which is the state before it.
static void fold_heads(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct fold_run *u = arg;
    const struct gdn_shape *s = u->s;
    const struct gdn_state *state = u->state;
    int64_t size = (int64_t)s->dk * s->dv;
    for (int64_t h = begin; h < end; h++) {
        const float *k[GDN_BLOCK], *d[GDN_BLOCK];
        float minus[GDN_BLOCK], c[GDN_BLOCK], sum = 0;
        for (int j = 0; j < GDN_BLOCK; j++) {
            int64_t slot = (u->block + j) % GDN_RING;
            k[j] = state->log_k + (slot * s->n_k + h % s->n_k) * s->dk;
            d[j] = state->log_d + (slot * s->n_v + h) * s->dv;
            sum += state->log_g[slot * s->n_v + h];
            minus[j] = -sum;
        }
        bool kept = sum >= FADE_LO; // what has faded is neither read nor added, as in ops.c
        int start = 0;
        while (start < GDN_BLOCK && !(minus[start] + sum >= FADE_LO))
            start++;
        u->cpu->row.exp_sum(c, minus, -sum, GDN_BLOCK);
        struct state_fold job = {.out = state->s_lo + h * size,
                                 .s = kept ? state->s_hi + h * size : NULL,
                                 .dk = s->dk,
                                 .dv = s->dv,
                                 .n = GDN_BLOCK - start,
                                 .decay = row_exp(sum),
                                 .c = c + start,
                                 .k = k + start,
                                 .d = d + start};
        u->cpu->row.delta.fold(&job);
    }
}

// All of a commit of one sequence for one layer.
static void commit_layer(struct cpu *c, const struct gdn_commit_args *a,
                         const struct gdn_commit_seq *q, int layer) {
    struct gdn_state *state = &q->states[layer];
    const struct gdn_shape *s = &a->shape;
    const struct gdn_rows *r = &a->rows[layer];
    for (int64_t done = 0; done < q->count;) {
        int64_t pos = q->len + done, to_base = GDN_BLOCK - pos % GDN_BLOCK;
        int64_t n = min_i64(q->count - done, to_base);
        for (int64_t i = 0; i < n; i++)
            append(s, state, r, pos + i, q->path[done + i]);
        advance_conv(s->channels, state->conv, r, q->path + done, n);
        done += n;
        if (n < to_base)
            break;
        struct fold_run u = {c, s, state, pos + n - GDN_BLOCK};
        cpu_run(c, s->n_v, (int64_t)s->dk * s->dv * 3, fold_heads, &u);
        float *newest = state->s_lo;
        state->s_lo = state->s_hi;
        state->s_hi = newest;
        memcpy(state->conv_hi, state->conv,
               (size_t)(GDN_CONV - 1) * (size_t)s->channels * sizeof(float));
    }
}

void cpu_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    for (int q = 0; q < a->n_seqs; q++)
        for (int i = 0; i < a->n_layers; i++)
            commit_layer(cpu_of(x), a, &a->seqs[q], i);
}
