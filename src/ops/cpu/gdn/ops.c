// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet by the recurrent log (docs/architecture.md; formulas: arXiv 2412.06464 section 3,
// unrolled from a base). The state S is read only at the base of a row's position,
// 32 max(0, floor(pos/32) - 1); every position since then, committed (the ring) or an ancestor in
// flight, contributes through its key, delta and decay, taken in position order. Rows of one
// sequence share S and the ring, so they read them together, as a matrix product; only ancestors in
// flight are taken row by row. Nothing is read that has faded to zero. Verification writes no
// state: cpu_gdn_commit does.
#include <math.h>

#include "base/num.h"
#include "ops/cpu/cpu.h"

struct delta_run {
    const struct cpu *cpu;
    const struct gdn_args *a;
    const struct rows *r;
    bool by_value; // an item is one value head, not a key head with all of its value heads
};

// A row's ancestors in flight, oldest first, and itself.
struct lineage {
    int n;
    int64_t at[GDN_OWN];
};

// Rows of one sequence that are worked on together, for some value heads of one key head.
// Positions count from the oldest base: the ring has those below `ring`.
struct batch {
    const struct delta_run *run;
    struct gdn_scratch *s;
    const struct gdn_state *state;
    int64_t first; // row
    int count, ring, key_head;
    int64_t base;       // position
    int newer;          // where the newer base is
    bool reads[2];      // some row reads the older base, the newer one
    bool hi[GDN_BATCH]; // the row reads the newer base
    struct lineage line[GDN_BATCH];
};

static int64_t base_of(int64_t pos) {
    int64_t block = pos / GDN_BLOCK;
    return block > 0 ? (block - 1) * GDN_BLOCK : 0;
}

static int64_t ring_slot(const struct batch *b, int j) {
    return (b->base + j) % GDN_RING;
}

static void find_lineage(struct batch *b, int i) {
    const struct rows *r = b->run->r;
    int64_t row = b->first + i;
    struct lineage *l = &b->line[i];
    b->hi[i] = r->pos[row] / GDN_BLOCK > (b->base + b->ring) / GDN_BLOCK;
    b->reads[b->hi[i]] = true;
    l->n = (int)(r->pos[row] - b->base) - b->ring + 1;
    for (int t = l->n; t-- > 0; row = r->parent[row])
        l->at[t] = row;
}

// Minus the log decay of row i since its base.
static float decay_of(const struct batch *b, const struct gdn_decays *y, int i) {
    return y->own[i][b->line[i].n - 1];
}

static void sum_decays(const struct batch *b, int v_head, struct gdn_decays *y) {
    const struct gdn_args *a = b->run->a;
    int n_v = a->shape.n_v;
    float total[2] = {0};
    for (int hi = 0; hi < 2; hi++)
        for (int j = hi ? b->newer : 0; b->reads[hi] && j < b->ring; j++) {
            total[hi] += b->state->log_g[ring_slot(b, j) * n_v + v_head];
            y->ring[hi][j] = -total[hi];
        }
    for (int i = 0; i < b->count; i++) {
        float sum = total[b->hi[i]];
        for (int t = 0; t < b->line[i].n; t++) {
            sum += a->rows.g[b->line[i].at[t] * n_v + v_head];
            y->own[i][t] = -sum;
        }
    }
}

// The rows of a batch that read one base, for one value head.
struct readers {
    int n, start; // the ring counts from position start on: before that, all has faded
    bool state;   // and S counts
    int row[GDN_BATCH];
};

static void find_readers(const struct batch *b, const struct gdn_decays *y, int hi,
                         struct readers *out) {
    float least = INFINITY; // of the rows' decays: what has faded there has faded for all
    out->n = 0;
    for (int i = 0; i < b->count; i++) {
        if (b->hi[i] != hi)
            continue;
        out->row[out->n++] = i;
        float m = decay_of(b, y, i);
        least = m < least ? m : least;
    }
    out->state = -least >= FADE_LO;
    out->start = hi ? b->newer : 0;
    while (out->start < b->ring && !(y->ring[hi][out->start] - least >= FADE_LO))
        out->start++;
}

// Products of every row's key and query with the keys from position `start` on.
static void key_products(const struct batch *b, int start) {
    const struct gdn_args *a = b->run->a;
    const struct gdn_shape *s = &a->shape;
    const struct delta_kernels *f = &b->run->cpu->row.delta;
    const float *k[GDN_RING], *own[GDN_OWN];
    struct gdn_scratch *w = b->s;
    for (int j = start; j < b->ring; j++)
        k[j] = b->state->log_k + (ring_slot(b, j) * s->n_k + b->key_head) * s->dk;
    struct delta_dots ring = {.k = k + start, .n = b->ring - start, .dim = s->dk};
    for (int i = 0; i < b->count; i++) {
        int64_t at = ((b->first + i) * s->n_k + b->key_head) * s->dk;
        const struct lineage *l = &b->line[i];
        for (int t = 0; t < l->n; t++)
            own[t] = a->rows.k + (l->at[t] * s->n_k + b->key_head) * s->dk;
        struct delta_dots mine = {.x = {a->rows.k + at, a->rows.q + at},
                                  .out = {w->kk[i] + b->ring, w->kq[i] + b->ring},
                                  .k = own,
                                  .n_x = 2,
                                  .n = l->n,
                                  .dim = s->dk};
        f->dots(&mine);
        ring.x[ring.n_x] = mine.x[0];
        ring.x[ring.n_x + 1] = mine.x[1];
        ring.out[ring.n_x++] = w->kk[i] + start;
        ring.out[ring.n_x++] = w->kq[i] + start;
    }
    f->dots(&ring);
}

// Keys and queries for delta_read: the readers of the older base, then the others.
static void copy_keys(const struct batch *b) {
    const struct gdn_args *a = b->run->a;
    const struct gdn_shape *s = &a->shape;
    for (int hi = 0, t = 0; hi < 2; hi++)
        for (int i = 0; i < b->count; i++) {
            if (b->hi[i] != hi)
                continue;
            int64_t at = ((b->first + i) * s->n_k + b->key_head) * s->dk;
            memcpy(b->s->x[t][0], a->rows.k + at, (size_t)s->dk * sizeof(float));
            memcpy(b->s->x[t++][1], a->rows.q + at, (size_t)s->dk * sizeof(float));
        }
}

// Coefficients of row i: those of the ring from `start` on into x, and those of its own line.
// Returns the decay since its base.
static float fade_row(const struct batch *b, const struct gdn_decays *y, int i, int start,
                      float (*x)[DELTA_X]) {
    struct gdn_scratch *w = b->s;
    int dk = b->run->a->shape.dk, ring = b->ring;
    struct delta_fade job = {.m = decay_of(b, y, i),
                             .x = y->own[i],
                             .kk = w->kk[i] + ring,
                             .kq = w->kq[i] + ring,
                             .ck = w->ck[i],
                             .cq = w->cq[i],
                             .n = b->line[i].n};
    b->run->cpu->row.delta.fade(&job);
    job.x = y->ring[b->hi[i]] + start;
    job.kk = w->kk[i] + start;
    job.kq = w->kq[i] + start;
    job.ck = x[0] + dk;
    job.cq = x[1] + dk;
    job.n = ring - start;
    return b->run->cpu->row.delta.fade(&job);
}

// What S and the ring give the readers of one base: into rows.d and out, for complete_row.
static void read_base(const struct batch *b, int v_head, int hi, const struct readers *w) {
    const struct gdn_args *a = b->run->a;
    const struct gdn_shape *s = &a->shape;
    float(*x)[2][DELTA_X] = b->s->x + (hi ? b->count - w->n : 0);
    const struct gdn_decays *y = &b->s->decays[v_head / s->n_k % GDN_HEADS];
    struct delta_read job = {
        .dk = s->dk, .dv = s->dv, .n = w->n, .x = x[0][0], .panel = b->s->panel};
    if (w->state)
        job.s = (hi ? b->state->s_hi : b->state->s_lo) + (int64_t)v_head * s->dk * s->dv;
    int slot = (int)ring_slot(b, w->start), count = b->ring - w->start;
    int wraps = slot + count <= GDN_RING ? 0 : slot + count - GDN_RING;
    job.stride = (int64_t)s->n_v * s->dv;
    job.d[1] = b->state->log_d + (int64_t)v_head * s->dv;
    job.d[0] = job.d[1] + slot * job.stride;
    job.count[0] = count - wraps;
    job.count[1] = wraps;
    for (int t = 0; t < w->n; t++) {
        int64_t row = ((b->first + w->row[t]) * s->n_v + v_head) * s->dv;
        job.row[t].scale = fade_row(b, y, w->row[t], w->start, x[t]);
        job.row[t].a = a->rows.d + row;
        job.row[t].b = a->out + row;
    }
    b->run->cpu->row.delta.read(&job);
}

// Adds what row i owes its ancestors in flight.
static void complete_row(const struct batch *b, int v_head, int i) {
    const struct gdn_args *a = b->run->a;
    const struct lineage *l = &b->line[i];
    int dv = a->shape.dv;
    int64_t row = (b->first + i) * a->shape.n_v + v_head;
    const float *d[GDN_OWN];
    for (int t = 0; t < l->n - 1; t++)
        d[t] = a->rows.d + (l->at[t] * a->shape.n_v + v_head) * dv;
    struct delta_row job = {.a = a->rows.d + row * dv,
                            .b = a->out + row * dv,
                            .pa = b->s->ck[i],
                            .pb = b->s->cq[i],
                            .d = d,
                            .v = a->rows.v + row * dv,
                            .beta = a->rows.beta[row],
                            .self = b->s->cq[i][l->n - 1],
                            .n = l->n - 1,
                            .dim = dv};
    b->run->cpu->row.delta.row(&job);
}

// The value heads first, first + n_k, .. below stop, at most GDN_HEADS, of one batch.
static void run_heads(struct batch *b, int first, int stop) {
    const struct gdn_shape *s = &b->run->a->shape;
    struct readers of[GDN_HEADS][2];
    int least = b->ring;
    for (int v = first, h = 0; v < stop; v += s->n_k, h++) {
        struct gdn_decays *y = &b->s->decays[v / s->n_k % GDN_HEADS];
        sum_decays(b, v, y);
        for (int hi = 0; hi < 2; hi++) {
            find_readers(b, y, hi, &of[h][hi]);
            if (of[h][hi].n && of[h][hi].start < least)
                least = of[h][hi].start;
        }
    }
    key_products(b, least);
    copy_keys(b);
    for (int v = first, h = 0; v < stop; v += s->n_k, h++) {
        for (int hi = 0; hi < 2; hi++)
            if (of[h][hi].n)
                read_base(b, v, hi, &of[h][hi]);
        for (int i = 0; i < b->count; i++)
            complete_row(b, v, i);
    }
}

// The next rows of a run from b->first on.
static void open_batch(struct batch *b, const struct gdn_run *run) {
    const struct gdn_args *a = b->run->a;
    int64_t left = run->first + run->count - b->first, len = a->len[run->seq];
    b->count = left < GDN_BATCH ? (int)left : GDN_BATCH;
    b->state = a->seqs[run->seq];
    b->base = base_of(len);
    b->ring = (int)(len - b->base);
    b->newer = (int)(len / GDN_BLOCK * GDN_BLOCK - b->base);
    b->reads[0] = b->reads[1] = false;
    for (int i = 0; i < b->count; i++)
        find_lineage(b, i);
}

// Heads of one run; items: value heads, or key heads.
static void run_items(struct batch *b, const struct gdn_run *run, int begin, int end) {
    int n_k = b->run->a->shape.n_k, n_v = b->run->a->shape.n_v;
    int64_t stop = run->first + run->count;
    for (b->first = run->first; b->first < stop; b->first += b->count) {
        open_batch(b, run);
        for (int item = begin; item < end; item++) {
            b->key_head = item % n_k;
            int last = b->run->by_value ? item + 1 : n_v;
            for (int v = item; v < last; v += GDN_HEADS * n_k) {
                int max = v + GDN_HEADS * n_k;
                run_heads(b, v, max < last ? max : last);
            }
        }
    }
}

// Items of all runs, one run after another.
static void gdn_items(void *arg, int64_t begin, int64_t end, int worker) {
    const struct delta_run *u = arg;
    int64_t each = u->by_value ? u->a->shape.n_v : u->a->shape.n_k;
    struct batch b = {.run = u, .s = &u->cpu->gdn[worker]};
    for (int64_t at = begin, next; at < end; at = next) {
        int64_t run = at / each;
        next = (run + 1) * each < end ? (run + 1) * each : end;
        run_items(&b, &u->a->runs[run], (int)(at - run * each), (int)(next - run * each));
    }
}

void cpu_gdn(struct exec *x, const struct gdn_args *a, const struct rows *r) {
    const struct gdn_shape *s = &a->shape;
    struct delta_run u = {cpu_of(x), a, r, (int64_t)s->n_k * a->n_runs < x->threads};
    int64_t n = u.by_value ? s->n_v : s->n_k, rows = 0;
    for (int i = 0; i < a->n_runs; i++)
        rows += a->runs[i].count;
    if (a->n_runs)
        cpu_run(cpu_of(x), n * a->n_runs,
                s->n_v / n * (int64_t)s->dk * s->dv * (rows / a->n_runs + 2) / 16, gdn_items, &u);
}

// What comes before the delta rule: gates, the causal convolution along each row's ancestors,
// and the norms of queries and keys (arXiv 2412.06464).

struct conv_run {
    const struct cpu *cpu;
    const struct gdn_conv_args *a;
    const struct rows *r;
};

// Log decays and betas of all rows and value heads, a piece at a time.
static void conv_gates(const struct conv_run *u) {
    const struct gdn_conv_args *a = u->a;
    const struct row_kernels *k = &u->cpu->row;
    enum { VALUES = 256 };
    float y[VALUES];
    int nv = a->shape.n_v, left = 0;
    int64_t total = u->r->n * nv;
    for (int64_t at = 0, h = 0; at < total; at += left) {
        int64_t begin = h;
        left = total - at < VALUES ? (int)(total - at) : VALUES;
        for (int j = 0; j < left; j++, h = h + 1 == nv ? 0 : h + 1)
            y[j] = a->a[at + j] + a->dt_bias[h];
        k->softplus(y, y, left);
        h = begin;
        for (int j = 0; j < left; j++, h = h + 1 == nv ? 0 : h + 1)
            a->rows.g[at + j] = a->ssm_a[h] * y[j];
        k->sigmoid(a->rows.beta + at, a->b + at, left);
    }
}

enum { PIECE = 64 }; // rows whose inputs are found together

// The inputs of row i and its three predecessors, oldest first.
static void conv_inputs(const struct conv_run *u, int64_t i, const float *in[GDN_CONV]) {
    const struct gdn_conv_args *a = u->a;
    int64_t channels = a->shape.channels, row = i;
    const float *old = a->seqs[u->r->seq[i]]->conv;
    int state = GDN_CONV - 2; // newest committed input
    for (int t = GDN_CONV - 1; t >= 0; t--) {
        if (row >= 0) {
            in[t] = a->rows.u + row * channels;
            row = u->r->parent[row];
        } else {
            in[t] = old + state-- * channels;
        }
    }
}

// Convolution of one head's channels for n rows, with the norm that its part requires.
static void conv_head(const struct conv_run *u, int head, int64_t first, int64_t n,
                      const float *(*in)[GDN_CONV]) {
    const struct gdn_conv_args *a = u->a;
    const struct gdn_shape *s = &a->shape;
    const struct row_kernels *k = &u->cpu->row;
    int part = head < s->n_k ? 0 : head < 2 * s->n_k ? 1 : 2; // q, k, v
    int h = head - part * s->n_k, heads = part == 2 ? s->n_v : s->n_k;
    int dim = part == 2 ? s->dv : s->dk;
    float *out = part == 0 ? a->rows.q : part == 1 ? a->rows.k : a->rows.v;
    float unit = part == 0 ? 1.0f / sqrtf((float)dim) : 1.0f;
    struct conv4 job = {.in = in,
                        .at = (int64_t)part * s->n_k * s->dk + (int64_t)h * dim,
                        .w = a->conv_w,
                        .out = out + (first * heads + h) * dim,
                        .stride = (int64_t)heads * dim,
                        .n = n,
                        .dim = dim};
    k->conv4(&job);
    for (int64_t i = 0; part < 2 && i < n; i++) {
        float *y = job.out + i * job.stride;
        k->scale_mul(y, y, NULL, unit / sqrtf(k->sum_sq(y, dim) + 1e-6f), dim);
    }
}

static void conv_items(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct conv_run *u = arg;
    const float *in[PIECE][GDN_CONV];
    int heads = 2 * u->a->shape.n_k + u->a->shape.n_v;
    if (end > heads)
        conv_gates(u);
    end = min_i64(end, heads);
    for (int64_t first = 0; begin < end && first < u->r->n; first += PIECE) {
        int64_t n = u->r->n - first < PIECE ? u->r->n - first : PIECE;
        for (int64_t i = 0; i < n; i++)
            conv_inputs(u, first + i, in[i]);
        for (int64_t item = begin; item < end; item++)
            conv_head(u, (int)item, first, n, in);
    }
}

void cpu_gdn_gates_conv(struct exec *x, const struct gdn_conv_args *a, const struct rows *r) {
    struct conv_run u = {cpu_of(x), a, r};
    int64_t items = 2 * a->shape.n_k + a->shape.n_v + 1;
    if (r->n)
        cpu_run(cpu_of(x), items, r->n * a->shape.dk + 10, conv_items, &u);
}

// Commit of rows to recurrent states: appends them to the ring and folds a new base
// every 32 positions. The only writer of a state (the delta rule itself, ops.c, reads).

// Puts one row into the ring of a layer.
static void append_log_row(const struct gdn_shape *s, const struct gdn_state *state,
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
            append_log_row(s, state, r, pos + i, q->path[done + i]);
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
