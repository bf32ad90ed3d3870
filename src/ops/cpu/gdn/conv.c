// SPDX-License-Identifier: Apache-2.0
// What comes before the delta rule: gates, the causal convolution along each row's ancestors, and
// the norms of queries and keys (arXiv 2412.06464).
#include <math.h>

#include "base/num.h"
#include "ops/cpu/cpu.h"

struct conv_run {
    const struct cpu *cpu;
    const struct gdn_conv_args *a;
    const struct rows *r;
};

// Log decays and betas of all rows and value heads, a piece at a time.
static void gates(const struct conv_run *u) {
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
static void taps(const struct conv_run *u, int64_t i, const float *in[GDN_CONV]) {
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

// Convolution of one head's channels for n rows, with the norm that its part asks for.
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
        gates(u);
    end = min_i64(end, heads);
    for (int64_t first = 0; begin < end && first < u->r->n; first += PIECE) {
        int64_t n = u->r->n - first < PIECE ? u->r->n - first : PIECE;
        for (int64_t i = 0; i < n; i++)
            taps(u, first + i, in[i]);
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
