// SPDX-License-Identifier: Apache-2.0
// What comes before the delta rule: gates, the causal convolution along each row's ancestors, and
// the norms of queries and keys (arXiv 2412.06464).
#include <math.h>

#include "ops/cpu/cpu.h"

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
