// SPDX-License-Identifier: Apache-2.0
// Attention mass of keys. A work item is eight queries: for each head the scores of a tile of keys,
// which stay in the nearest cache while all eight use them, then each query's softmax over its row.
// The norm of keys costs one factor a key, since its weights are put into the queries.
#include <math.h>

#include "ops/cpu/cpu.h"

enum { QUERIES = 8, KEYS = 64 };

struct mass_run {
    const struct row_kernels *row;
    const struct key_mass_args *a;
};

static float inverse_rms(const struct mass_run *u, const float *x) {
    return 1.0f / sqrtf(u->row->sum_sq(x, u->a->d) / (float)u->a->d + u->a->eps);
}

// Keys that query t sees.
static int64_t visible(const struct key_mass_args *a, int64_t t) {
    return a->n - a->n_q + t + 1;
}

// The normed query times the weights of the keys' norm and the scale.
static void make_query(const struct mass_run *u, int64_t t, int head, float *out) {
    const struct key_mass_args *a = u->a;
    const float *q = a->q + (t * a->n_heads + head) * a->d;
    u->row->scale_mul(out, q, a->q_norm, inverse_rms(u, q), a->d);
    u->row->scale_mul(out, out, a->k_norm, a->scale, a->d);
}

// Scores of queries t .. end - 1 of a head, in their rows of work.
static void score_keys(const struct mass_run *u, int64_t t, int64_t end, int head) {
    const struct key_mass_args *a = u->a;
    float q[QUERIES][OPS_KEY_MAX];
    int kv = head / (a->n_heads / a->n_kv);
    for (int64_t i = t; i < end; i++)
        make_query(u, i, head, q[i - t]);
    int64_t last = visible(a, end - 1);
    for (int64_t j = 0; j < last; j += KEYS) {
        const float *k[KEYS];
        float inverse[KEYS];
        int n = (int)(last - j < KEYS ? last - j : KEYS);
        for (int i = 0; i < n; i++) {
            k[i] = a->k + ((j + i) * a->n_kv + kv) * a->d;
            inverse[i] = inverse_rms(u, k[i]);
        }
        for (int64_t i = t; i < end; i++) {
            float *out = a->work + i * a->n + j;
            int seen = (int)(visible(a, i) - j < n ? visible(a, i) - j : n);
            u->row->dots(out, q[i - t], k, seen, a->d);
            for (int s = 0; s < seen; s++)
                out[s] *= inverse[s];
        }
    }
}

// The mass of query t from the scores of a head in its row of work.
static void add_shares(const struct mass_run *u, int64_t t) {
    float *p = u->a->work + t * u->a->n, *mass = u->a->mass + t * u->a->n;
    int64_t n = visible(u->a, t);
    float share = 1.0f / u->row->exp_sum(p, p, u->row->max(p, n), n);
    for (int64_t j = 0; j < n; j++)
        mass[j] = mass[j] > p[j] * share ? mass[j] : p[j] * share;
}

static void mass_items(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct mass_run *u = arg;
    const struct key_mass_args *a = u->a;
    for (int64_t item = begin; item < end; item++) {
        int64_t t = item * QUERIES, stop = t + QUERIES < a->n_q ? t + QUERIES : a->n_q;
        for (int head = 0; head < a->n_heads; head++) {
            score_keys(u, t, stop, head);
            for (int64_t i = t; i < stop; i++)
                add_shares(u, i);
        }
    }
}

void cpu_key_mass(struct exec *x, const struct key_mass_args *a) {
    struct mass_run u = {&cpu_of(x)->row, a};
    int64_t cost = a->n * a->n_heads * a->d / 4;
    cpu_run(cpu_of(x), (a->n_q + QUERIES - 1) / QUERIES, cost, mass_items, &u);
}
