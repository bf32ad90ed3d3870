// SPDX-License-Identifier: Apache-2.0
// key_mass against scalar and against doubles: ragged numbers of queries and keys, one query, all
// tokens queries, groups of heads, a mass that is there already, keys that no query sees.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

struct mass_case {
    struct key_mass_args a;
    float *q, *k, *q_norm, *k_norm, *mass; // host
};

static void case_init(struct mass_case *m, struct rng *r, int i) {
    static const int dims[] = {32, 64, 128, 20, 256};
    static const int heads[][2] = {{1, 1}, {4, 2}, {16, 8}, {6, 1}, {3, 3}};
    static const int64_t queries[] = {1, 8, 64, 7, 33};
    struct key_mass_args *a = &m->a;
    *a = (struct key_mass_args){.n_heads = heads[i % 5][0],
                                .n_kv = heads[i % 5][1],
                                .d = dims[rng_below(r, 5)],
                                .eps = 1e-6f,
                                .n_q = queries[rng_below(r, 5)]};
    a->scale = 1 / sqrtf((float)a->d);
    a->n = a->n_q + (i % 3 ? between(r, 0, 300) : 0);
    m->q = random_floats(r, a->n_q * a->n_heads * a->d, 3);
    m->k = random_floats(r, a->n * a->n_kv * a->d, 3);
    m->q_norm = random_floats(r, a->d, 2);
    m->k_norm = random_floats(r, a->d, 2);
    m->mass = random_floats(r, a->n_q * a->n, 0.01f);
}

static void case_fini(struct mass_case *m) {
    free(m->q);
    free(m->k);
    free(m->q_norm);
    free(m->k_norm);
    free(m->mass);
}

// mass: host, as before the call, then as after it.
static void run_mass(struct check *c, const struct mass_case *m, struct exec *x, float *mass) {
    struct key_mass_args a = m->a;
    struct buffers r;
    buffers_open(&r, c, x);
    size_t rows = (size_t)(a.n_q * a.n) * sizeof *mass, d = (size_t)a.d * sizeof *mass;
    a.q = buffers_in(&r, m->q, (size_t)(a.n_q * a.n_heads) * d);
    a.k = buffers_in(&r, m->k, (size_t)(a.n * a.n_kv) * d);
    a.q_norm = buffers_in(&r, m->q_norm, d);
    a.k_norm = buffers_in(&r, m->k_norm, d);
    a.work = buffers_own(&r, NULL, rows);
    a.mass = buffers_io(&r, mass, rows);
    exec_ops(x)->key_mass(x, &a);
    buffers_close(&r);
}

static void normed(const float *x, const float *w, const struct key_mass_args *a, double *out) {
    double sum = 0;
    for (int i = 0; i < a->d; i++)
        sum += (double)x[i] * (double)x[i];
    for (int i = 0; i < a->d; i++)
        out[i] = (double)x[i] / sqrt(sum / a->d + (double)a->eps) * (double)w[i];
}

// The row of one query and head: shares of keys 0 .. n - 1.
static void shares(const struct mass_case *m, int64_t t, int head, double *p, int64_t n) {
    const struct key_mass_args *a = &m->a;
    double q[256], k[256], max = -INFINITY, sum = 0;
    normed(m->q + (t * a->n_heads + head) * a->d, m->q_norm, a, q);
    for (int64_t j = 0; j < n; j++) {
        int kv = head / (a->n_heads / a->n_kv);
        normed(m->k + (j * a->n_kv + kv) * a->d, m->k_norm, a, k);
        p[j] = 0;
        for (int i = 0; i < a->d; i++)
            p[j] += q[i] * k[i] * (double)a->scale;
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j < n; j++)
        sum += exp(p[j] - max);
    for (int64_t j = 0; j < n; j++)
        p[j] = exp(p[j] - max) / sum;
}

static void mass_double(const struct mass_case *m, float *mass) {
    const struct key_mass_args *a = &m->a;
    double *p = malloc((size_t)a->n * sizeof *p);
    for (int64_t t = 0; t < a->n_q; t++) {
        int64_t n = a->n - a->n_q + t + 1;
        for (int h = 0; h < a->n_heads; h++) {
            shares(m, t, h, p, n);
            for (int64_t j = 0; j < n; j++)
                mass[t * a->n + j] = fmaxf(mass[t * a->n + j], (float)p[j]);
        }
    }
    free(p);
}

static void compare(struct check *c, bool doubles) {
    if (!exec_ops(c->exec)->key_mass)
        return; // not every backend has it
    struct tally t = {0};
    for (int i = 0; i < 15; i++) {
        struct mass_case m;
        case_init(&m, &c->rng, i);
        int64_t n = m.a.n_q * m.a.n;
        float *want = malloc((size_t)n * sizeof *want), *got = malloc((size_t)n * sizeof *got);
        memcpy(want, m.mass, (size_t)n * sizeof *want);
        memcpy(got, m.mass, (size_t)n * sizeof *got);
        if (doubles)
            mass_double(&m, want);
        else
            run_mass(c, &m, c->spec, want);
        run_mass(c, &m, c->exec, got);
        tally_add(&t, want, got, n);
        if (!doubles && !c->device) { // as many threads as you like
            memcpy(want, m.mass, (size_t)n * sizeof *want);
            run_mass(c, &m, c->other, want);
            tally_add(&t, want, got, n);
        }
        free(want);
        free(got);
        case_fini(&m);
    }
    if (doubles)
        report(c, t.error < 1e-5, "key_mass", "doubles", "relative error %.1e", t.error);
    else
        report_tally(c, &t, true, 1e-5, "key_mass", "15 shapes");
}

void check_mass(struct check *c) {
    compare(c, false);
}

void check_mass_double(struct check *c) {
    compare(c, true);
}
