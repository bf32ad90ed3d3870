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
        cpu_run(cpu_of(x), items, r->n * a->shape.dk + 10, conv_items, &u);
}

// The delta rule.

struct gdn_run {
    const struct cpu *cpu;
    const struct gdn_args *a;
    const struct rows *r;
};

// The positions base..pos of one row: its ancestors since the base, then itself.
struct lineage {
    int n;                // ancestors, at most 63
    int64_t at[GDN_RING]; // row index, or -1 - (distance from the oldest base of the sequence)
};

// Rows of one sequence that are worked on together, for one key head.
struct batch {
    const struct gdn_run *run;
    struct gdn_scratch *s;
    int64_t first, count; // rows
    int key_head;
    const struct gdn_state *state;
    int64_t base, len; // oldest base, committed length
    bool packed;       // the ring's rows of the head at hand lie side by side in the scratch
    struct lineage line[GDN_BATCH];
};

static int64_t base_of(int64_t pos) {
    int64_t block = pos / GDN_BLOCK;
    return block > 0 ? (block - 1) * GDN_BLOCK : 0;
}

static bool uses_hi(const struct gdn_run *u, int64_t i) {
    return u->r->pos[i] / GDN_BLOCK > u->a->len[u->r->seq[i]] / GDN_BLOCK;
}

static void find_lineage(const struct batch *b, int64_t i, struct lineage *l) {
    const struct rows *r = b->run->r;
    int64_t base = base_of(r->pos[i]), row = i;
    l->n = (int)(r->pos[i] - base);
    for (int64_t p = r->pos[i]; p >= base; p--) {
        bool ring = row < b->run->a->first;
        l->at[p - base] = ring ? -1 - (p - b->base) : row;
        row = ring ? row : r->parent[row];
    }
}

static const float *key_at(const struct batch *b, int64_t at) {
    const struct gdn_shape *s = &b->run->a->shape;
    if (at < 0 && b->packed)
        return b->s->k + (-1 - at) * s->dk;
    if (at < 0)
        return b->state->log_k + ((b->base - 1 - at) % GDN_RING * s->n_k + b->key_head) * s->dk;
    return b->run->a->rows.k + (at * s->n_k + b->key_head) * s->dk;
}

static const float *delta_at(const struct batch *b, int64_t at, int v_head) {
    const struct gdn_shape *s = &b->run->a->shape;
    if (at < 0 && b->packed)
        return b->s->d + (-1 - at) * s->dv;
    if (at < 0)
        return b->state->log_d + ((b->base - 1 - at) % GDN_RING * s->n_v + v_head) * s->dv;
    return b->run->a->rows.d + (at * s->n_v + v_head) * s->dv;
}

static float decay_at(const struct batch *b, int64_t at, int v_head) {
    int n_v = b->run->a->shape.n_v;
    if (at < 0)
        return b->state->log_g[(b->base - 1 - at) % GDN_RING * n_v + v_head];
    return b->run->a->rows.g[at * n_v + v_head];
}

// Copies the ring's rows of one head, n of dim floats, `heads` of them a slot.
static void pack_ring(const struct batch *b, const float *log, int heads, int head, int dim,
                      float *out) {
    for (int64_t p = b->base; p < b->len; p++)
        memcpy(out + (p - b->base) * dim, log + (p % GDN_RING * heads + head) * dim,
               (size_t)dim * sizeof *out);
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

// delta and output of row `at` of the batch for one value head.
static void delta_row(const struct batch *b, int at, int v_head) {
    const struct gdn_args *a = b->run->a;
    const struct row_kernels *f = &b->run->cpu->row;
    const struct lineage *l = &b->line[at];
    int dv = a->shape.dv, n = l->n;
    int64_t row = (b->first + at) * a->shape.n_v + v_head;
    const float *d[GDN_RING], *v = a->rows.v + row * dv;
    float minus[GDN_RING], fade[GDN_RING], ck[GDN_RING], cq[GDN_RING], sum = 0;
    for (int j = 0; j <= n; j++) {
        sum += decay_at(b, l->at[j], v_head);
        minus[j] = -sum;
        d[j] = delta_at(b, l->at[j], v_head);
    }
    f->exp_sum(fade, minus, minus[n], n + 1); // e^(G_i - G_j), 1 for the row itself
    for (int j = 0; j <= n; j++) {
        ck[j] = fade[j] * b->s->kk[at][j];
        cq[j] = fade[j] * b->s->kq[at][j];
    }
    float *delta = a->rows.d + row * dv, *out = a->out + row * dv;
    struct weigh2 job = {
        .a = delta, .b = out, .scale = row_exp(sum), .pa = ck, .pb = cq, .v = d, .n = n, .dim = dv};
    f->weigh2(&job);
    for (int c = 0; c < dv; c++)
        delta[c] = a->rows.beta[row] * (v[c] - delta[c]);
    f->weigh(out, 1.0f, cq + n, d + n, 1, dv);
}

// Key products of every row of the batch, then its value heads one after another.
static void run_batch(struct batch *b) {
    const struct gdn_args *a = b->run->a;
    const struct gdn_shape *s = &a->shape;
    const struct row_kernels *f = &b->run->cpu->row;
    b->packed = b->count > 2; // for one or two rows the copy would cost what it saves
    if (b->packed)
        pack_ring(b, b->state->log_k, s->n_k, b->key_head, s->dk, b->s->k);
    for (int i = 0; i < b->count; i++) {
        struct lineage *l = &b->line[i];
        const float *k[GDN_RING], *q;
        find_lineage(b, b->first + i, l);
        for (int j = 0; j <= l->n; j++)
            k[j] = key_at(b, l->at[j]);
        q = a->rows.q + ((b->first + i) * s->n_k + b->key_head) * s->dk;
        f->dots(b->s->kk[i], k[l->n], k, l->n + 1, s->dk);
        f->dots(b->s->kq[i], q, k, l->n + 1, s->dk);
    }
    for (int v = b->key_head; v < s->n_v; v += s->n_k) {
        if (b->packed)
            pack_ring(b, b->state->log_d, s->n_v, v, s->dv, b->s->d);
        for (int i = 0; i < b->count; i++)
            delta_row(b, i, v);
    }
}

static void gdn_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct gdn_run *u = arg;
    const struct gdn_args *a = u->a;
    const struct rows *r = u->r;
    struct batch b = {.run = u, .s = &u->cpu->gdn[worker]};
    for (int64_t key_head = begin; key_head < end; key_head++) {
        for (int v = (int)key_head; v < a->shape.n_v; v += a->shape.n_k)
            read_states(u, v);
        b.key_head = (int)key_head;
        for (int64_t i = a->first; i < a->first + a->count; i += b.count) {
            int64_t left = a->first + a->count - i;
            b.first = i;
            b.count = 1;
            while (b.count < left && b.count < GDN_BATCH && r->seq[i + b.count] == r->seq[i])
                b.count++;
            b.state = a->seqs[r->seq[i]];
            b.len = a->len[r->seq[i]];
            b.base = base_of(b.len);
            run_batch(&b);
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
