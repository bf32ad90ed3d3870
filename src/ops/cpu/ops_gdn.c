// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet by the recurrent log (docs/architecture.md; formulas: arXiv 2412.06464 section 3,
// unrolled from a base). The state S is read only at the base of a row's position,
// 32 max(0, floor(pos/32) - 1); every position since then, committed (the ring) or an ancestor in
// flight, contributes through its key, delta and decay, taken in position order. Verification
// writes no state; gdn_commit appends to the ring and folds a new base every 32 positions.
#include <math.h>

#include "ops/cpu/cpu.h"

// Gates and convolution.

struct conv_run {
    const struct cpu *cpu;
    const struct gdn_conv_args *a;
    const struct rows *r;
};

static void gates(const struct conv_run *u) {
    const struct gdn_conv_args *a = u->a;
    int nv = a->shape.n_v;
    for (int64_t i = 0; i < u->r->n; i++)
        for (int h = 0; h < nv; h++) {
            float y = a->a[i * nv + h] + a->dt_bias[h];
            float softplus = y > 20 ? y : log1pf(expf(y));
            a->rows.g[i * nv + h] = a->ssm_a[h] * softplus;
            a->rows.beta[i * nv + h] = row_sigmoid(a->b[i * nv + h]);
        }
}

// The inputs of row i and its three predecessors from channel c on, oldest first.
static void taps(const struct conv_run *u, int64_t i, int64_t c, const float *in[GDN_CONV]) {
    const struct gdn_conv_args *a = u->a;
    int64_t channels = a->shape.channels, row = i;
    const float *old = a->seqs[u->r->seq[i]]->conv;
    int state = GDN_CONV - 2; // newest committed input
    for (int t = GDN_CONV - 1; t >= 0; t--) {
        if (row >= 0) {
            in[t] = a->rows.u + row * channels + c;
            row = u->r->parent[row];
        } else {
            in[t] = old + state-- * channels + c;
        }
    }
}

// Convolution of one head's channels for all rows, with the norm that its part asks for.
static void conv_head(const struct conv_run *u, int head) {
    const struct gdn_conv_args *a = u->a;
    const struct gdn_shape *s = &a->shape;
    const struct row_kernels *k = &u->cpu->row;
    int part = head < s->n_k ? 0 : head < 2 * s->n_k ? 1 : 2; // q, k, v
    int h = head - part * s->n_k, n = part == 2 ? s->n_v : s->n_k, dim = part == 2 ? s->dv : s->dk;
    int64_t c = (int64_t)part * s->n_k * s->dk + (int64_t)h * dim;
    float *out = part == 0 ? a->rows.q : part == 1 ? a->rows.k : a->rows.v;
    float unit = part == 0 ? 1.0f / sqrtf((float)dim) : 1.0f;
    for (int64_t i = 0; i < u->r->n; i++) {
        const float *in[GDN_CONV];
        float *y = out + (i * n + h) * dim;
        taps(u, i, c, in);
        k->conv4(y, in, a->conv_w + c * GDN_CONV, dim);
        if (part < 2)
            k->scale_mul(y, y, NULL, unit / sqrtf(k->sum_sq(y, dim) + 1e-6f), dim);
    }
}

static void conv_items(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct conv_run *u = arg;
    int heads = 2 * u->a->shape.n_k + u->a->shape.n_v;
    for (int64_t item = begin; item < end; item++) {
        if (item == heads)
            gates(u);
        else
            conv_head(u, (int)item);
    }
}

void cpu_gdn_gates_conv(struct exec *x, const struct gdn_conv_args *a, const struct rows *r) {
    struct conv_run u = {cpu_of(x), a, r};
    int64_t items = 2 * a->shape.n_k + a->shape.n_v + 1;
    if (r->n)
        cpu_run(cpu_of(x), items, r->n * a->shape.dk / 4 + 10, conv_items, &u);
}

// The delta rule.

struct gdn_run {
    const struct cpu *cpu;
    const struct gdn_args *a;
    const struct rows *r;
};

// The positions base..pos of one row: its ancestors since the base, then itself.
struct lineage {
    int n;                                                // ancestors, at most 63
    const float *k[GDN_RING], *d[GDN_RING], *g[GDN_RING]; // of value head 0 for d and g
};

static int64_t base_of(int64_t pos) {
    int64_t block = pos / GDN_BLOCK;
    return block > 0 ? (block - 1) * GDN_BLOCK : 0;
}

static bool uses_hi(const struct gdn_run *u, int64_t i) {
    return u->r->pos[i] / GDN_BLOCK > u->a->len[u->r->seq[i]] / GDN_BLOCK;
}

static void find_lineage(const struct gdn_run *u, int64_t i, int key_head, struct lineage *l) {
    const struct gdn_args *a = u->a;
    const struct gdn_shape *s = &a->shape;
    const struct gdn_state *state = a->seqs[u->r->seq[i]];
    int64_t base = base_of(u->r->pos[i]), row = i;
    l->n = (int)(u->r->pos[i] - base);
    for (int64_t p = u->r->pos[i]; p >= base; p--) {
        int at = (int)(p - base);
        bool ring = row < a->first;
        int64_t k = ring ? p % GDN_RING : row;
        l->k[at] = (ring ? state->log_k : a->rows.k) + (k * s->n_k + key_head) * s->dk;
        l->d[at] = (ring ? state->log_d : a->rows.d) + k * s->n_v * s->dv;
        l->g[at] = (ring ? state->log_g : a->rows.g) + k * s->n_v;
        row = ring ? row : u->r->parent[row];
    }
}

// S_base^T k and S_base^T q of every row, into rows.d and out, which delta_row then completes.
static void read_states(const struct gdn_run *u, int v_head) {
    const struct gdn_args *a = u->a;
    const struct gdn_shape *s = &a->shape;
    int64_t size = (int64_t)s->dk * s->dv, stop = a->first + a->count;
    int k_head = v_head % s->n_k;
    for (int hi = 0; hi < 2; hi++) {
        struct state_read job = {.dk = s->dk, .dv = s->dv, .n = 0};
        for (int64_t i = a->first; i < stop; i++) {
            if (uses_hi(u, i) != hi)
                continue;
            const struct gdn_state *state = a->seqs[u->r->seq[i]];
            const float *from = (hi ? state->s_hi : state->s_lo) + v_head * size;
            if (job.n == STATE_ROWS || (job.n && job.s != from)) {
                u->cpu->row.state_read(&job);
                job.n = 0;
            }
            job.s = from;
            job.k[job.n] = a->rows.k + (i * s->n_k + k_head) * s->dk;
            job.q[job.n] = a->rows.q + (i * s->n_k + k_head) * s->dk;
            job.sk[job.n] = a->rows.d + (i * s->n_v + v_head) * s->dv;
            job.sq[job.n++] = a->out + (i * s->n_v + v_head) * s->dv;
        }
        if (job.n)
            u->cpu->row.state_read(&job);
    }
}

// delta and output of one row and value head; kk and kq: products of the lineage's keys with the
// row's own key and query.
static void delta_row(const struct gdn_run *u, int64_t i, int v_head, const struct lineage *l,
                      const float *kk, const float *kq) {
    const struct gdn_args *a = u->a;
    const struct row_kernels *f = &u->cpu->row;
    int dv = a->shape.dv, n = l->n;
    int64_t at = i * a->shape.n_v + v_head;
    const float *d[GDN_RING];
    float minus[GDN_RING], fade[GDN_RING], ck[GDN_RING], cq[GDN_RING], sum = 0;
    for (int j = 0; j <= n; j++) {
        sum += l->g[j][v_head];
        minus[j] = -sum;
        d[j] = l->d[j] + v_head * dv;
    }
    f->exp_sum(fade, minus, minus[n], n + 1); // e^(G_i - G_j), 1 for the row itself
    for (int j = 0; j <= n; j++) {
        ck[j] = fade[j] * kk[j];
        cq[j] = fade[j] * kq[j];
    }
    float *delta = a->rows.d + at * dv, *out = a->out + at * dv, whole = row_exp(sum);
    const float *v = a->rows.v + at * dv;
    f->weigh(delta, whole, ck, d, n, dv);
    for (int c = 0; c < dv; c++)
        delta[c] = a->rows.beta[at] * (v[c] - delta[c]);
    f->weigh(out, whole, cq, d, n + 1, dv);
}

static void gdn_items(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct gdn_run *u = arg;
    const struct gdn_args *a = u->a;
    const struct gdn_shape *s = &a->shape;
    for (int64_t key_head = begin; key_head < end; key_head++) {
        for (int v = (int)key_head; v < s->n_v; v += s->n_k)
            read_states(u, v);
        for (int64_t i = a->first; i < a->first + a->count; i++) {
            struct lineage l;
            float kk[GDN_RING], kq[GDN_RING];
            find_lineage(u, i, (int)key_head, &l);
            u->cpu->row.dots(kk, l.k[l.n], l.k, l.n + 1, s->dk);
            u->cpu->row.dots(kq, a->rows.q + (i * s->n_k + key_head) * s->dk, l.k, l.n + 1, s->dk);
            for (int v = (int)key_head; v < s->n_v; v += s->n_k)
                delta_row(u, i, v, &l, kk, kq);
        }
    }
}

void cpu_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    struct gdn_run u = {cpu_of(x), a, r};
    const struct gdn_shape *s = &a->shape;
    int64_t each = s->n_v / s->n_k * (int64_t)s->dk * s->dv;
    if (a->count)
        cpu_run(cpu_of(x), s->n_k, each * (a->count + 2) / 16, gdn_items, &u);
}

// Commit.

// Puts one row into the ring.
static void append(const struct gdn_commit_args *a, int64_t pos, int64_t row) {
    const struct gdn_shape *s = &a->shape;
    int64_t slot = pos % GDN_RING, nk = (int64_t)s->n_k * s->dk, nv = (int64_t)s->n_v * s->dv;
    memcpy(a->state->log_k + slot * nk, a->rows.k + row * nk, (size_t)nk * sizeof(float));
    memcpy(a->state->log_d + slot * nv, a->rows.d + row * nv, (size_t)nv * sizeof(float));
    memcpy(a->state->log_g + slot * s->n_v, a->rows.g + row * s->n_v,
           (size_t)s->n_v * sizeof(float));
}

// The last conv inputs after rows path[0..count), which follow those in conv.
static void advance_conv(const struct gdn_commit_args *a, const int32_t *path, int64_t count) {
    int64_t channels = a->shape.channels;
    int64_t keep = count < GDN_CONV - 1 ? GDN_CONV - 1 - count : 0;
    float *conv = a->state->conv;
    memmove(conv, conv + (GDN_CONV - 1 - keep) * channels,
            (size_t)(keep * channels) * sizeof *conv);
    for (int64_t t = keep; t < GDN_CONV - 1; t++)
        memcpy(conv + t * channels, a->rows.u + path[count - (GDN_CONV - 1) + t] * channels,
               (size_t)channels * sizeof *conv);
}

struct fold_run {
    const struct cpu *cpu;
    const struct gdn_commit_args *a;
    int64_t block; // first position of the completed block
};

// s_lo = the state after the block, from s_hi, which is the state before it.
static void fold_heads(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct fold_run *u = arg;
    const struct gdn_shape *s = &u->a->shape;
    const struct gdn_state *state = u->a->state;
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
        u->cpu->row.exp_sum(c, minus, -sum, GDN_BLOCK);
        struct state_fold job = {.out = state->s_lo + h * size,
                                 .s = state->s_hi + h * size,
                                 .dk = s->dk,
                                 .dv = s->dv,
                                 .n = GDN_BLOCK,
                                 .decay = row_exp(sum),
                                 .c = c,
                                 .k = k,
                                 .d = d};
        u->cpu->row.state_fold(&job);
    }
}

void cpu_gdn_commit(struct exec *x, const struct gdn_commit_args *a) {
    struct cpu *c = cpu_of(x);
    struct gdn_state *state = a->state;
    const struct gdn_shape *s = &a->shape;
    for (int64_t done = 0; done < a->count;) {
        int64_t pos = a->len + done, room = GDN_BLOCK - pos % GDN_BLOCK;
        int64_t n = a->count - done < room ? a->count - done : room;
        for (int64_t i = 0; i < n; i++)
            append(a, pos + i, a->path[done + i]);
        advance_conv(a, a->path + done, n);
        done += n;
        if (n < room)
            break;
        struct fold_run u = {c, a, pos + n - GDN_BLOCK};
        cpu_run(c, s->n_v, (int64_t)s->dk * s->dv * 3, fold_heads, &u);
        float *newest = state->s_lo;
        state->s_lo = state->s_hi;
        state->s_hi = newest;
        memcpy(state->conv_hi, state->conv,
               (size_t)(GDN_CONV - 1) * (size_t)s->channels * sizeof(float));
    }
}
