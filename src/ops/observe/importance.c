// SPDX-License-Identifier: Apache-2.0
// The table that sums squares of inputs. Sums are doubles that are kept as long as the exec;
// buffers are made where activations and weights are, so that no op allocates.
#include "ops/observe/importance.h"

#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "ops/exec.h"

struct summed {
    const struct weight *w;
    struct imatrix_sum sum; // its name and squares are this entry's own
};

struct importance {
    struct exec_attachment base; // first
    const struct ops *inner;
    struct ops table;
    struct summed *weights;
    int n, last;
    int64_t cap;
    struct imatrix_sum *shown; // [cap]
    float *rows;               // [capacity] values of the rows of any activation
    int64_t capacity;
    double *squares; // [widest]
    int64_t widest;
};

static void free_entry(struct summed *s) {
    free((char *)s->sum.name);
    free((double *)s->sum.squares);
    free((int64_t *)s->sum.counts);
}

static void destroy_importance(struct exec_attachment *a) {
    struct importance *m = (struct importance *)a;
    for (int i = 0; i < m->n; i++)
        free_entry(&m->weights[i]);
    free(m->weights);
    free(m->shown);
    free(m->rows);
    free(m->squares);
    free(m);
}

// The exec's own, or NULL when it was not prepared.
static struct importance *importance_of(const struct exec *x) {
    return (struct importance *)exec_attached(x, destroy_importance);
}

static bool reserve_sums(struct importance *m) {
    int64_t cap = m->cap; // of the first array alone, until both have it
    return !vec_reserve(&m->weights, &cap, m->n + 1, sizeof *m->weights, NULL) &&
           !vec_reserve(&m->shown, &m->cap, m->n + 1, sizeof *m->shown, NULL);
}

static int summed_weight_create(struct exec *x, const struct tensor *t, struct weight **out,
                                struct err *e) {
    struct importance *m = importance_of(x);
    if (strncmp(t->name ? t->name : "", "blk.", 4) || t->n_dims < 2 || t->n_dims > 3)
        return m->inner->weight_create(x, t, out, e);
    int64_t experts = t->n_dims > 2 ? t->ne[2] : 0, slices = experts ? experts : 1;
    struct summed s = {.sum = {.name = strdup(t->name), .columns = t->ne[0], .experts = experts}};
    s.sum.squares = calloc((size_t)(slices * t->ne[0]), sizeof *s.sum.squares);
    s.sum.counts = calloc((size_t)slices, sizeof *s.sum.counts);
    int rc = 0;
    if (!s.sum.name || !s.sum.squares || !s.sum.counts || !reserve_sums(m))
        rc = err_set(e, ERR_MEMORY, "no memory for the importances of tensor %s", t->name);
    if (!rc)
        rc = m->inner->weight_create(x, t, out, e);
    if (rc) {
        free_entry(&s);
        return rc;
    }
    s.w = *out;
    m->weights[m->n++] = s;
    return 0;
}

// What was summed stays; the address may come back as another weight.
static void summed_weight_destroy(struct exec *x, struct weight *w) {
    struct importance *m = importance_of(x);
    for (int i = 0; i < m->n; i++)
        if (m->weights[i].w == w)
            m->weights[i].w = NULL;
    m->inner->weight_destroy(x, w);
}

static int summed_act_create(struct exec *x, int64_t n, int64_t k, struct act **out,
                             struct err *e) {
    struct importance *m = importance_of(x);
    int64_t capacity = n * exec_act_stride(k);
    if (capacity > m->capacity) {
        float *rows = realloc(m->rows, (size_t)capacity * sizeof *rows);
        if (!rows)
            return err_set(e, ERR_MEMORY,
                           "no memory to sum %lld rows of %lld values; use a "
                           "smaller --chunk",
                           (long long)n, (long long)k);
        m->rows = rows;
        m->capacity = capacity;
    }
    if (k > m->widest) {
        double *squares = realloc(m->squares, (size_t)k * sizeof *squares);
        if (!squares)
            return err_set(e, ERR_MEMORY, "no memory to sum rows of %lld values", (long long)k);
        m->squares = squares;
        m->widest = k;
    }
    return m->inner->act_create(x, n, k, out, e);
}

// The entry of a weight, or NULL. Passes use weights in the order of loading.
static struct imatrix_sum *sum_of(struct importance *m, const struct weight *w) {
    for (int i = 0; i < m->n; i++) {
        m->last = m->last + 1 < m->n ? m->last + 1 : 0;
        if (m->weights[m->last].w == w)
            return &m->weights[m->last].sum;
    }
    return NULL;
}

// Column sums of the squares of n rows of an activation that has k columns.
static void sum_squares(struct exec *x, const struct act *in, int64_t n, int64_t k) {
    struct importance *m = importance_of(x);
    memset(m->squares, 0, (size_t)k * sizeof *m->squares);
    x->act_read(x, in, n, m->rows);
    for (int64_t i = 0; i < n; i++) {
        const float *row = m->rows + i * k;
        for (int64_t j = 0; j < k; j++)
            m->squares[j] += (double)row[j] * (double)row[j];
    }
}

static void add_squares(struct importance *m, struct imatrix_sum *s, int64_t n) {
    double *to = (double *)s->squares;
    for (int64_t j = 0; j < s->columns; j++)
        to[j] += m->squares[j];
    s->rows += n;
}

// Adds what these weights read; they share the activation and so its columns.
static void sum_inputs(struct exec *x, const struct weight *const *w, int count,
                       const struct act *in, int64_t n) {
    struct importance *m = importance_of(x);
    bool summed = false;
    for (int i = 0; i < count; i++) {
        struct imatrix_sum *s = sum_of(m, w[i]);
        if (!s || n == 0)
            continue;
        if (!summed)
            sum_squares(x, in, n, s->columns);
        summed = true;
        add_squares(m, s, n);
    }
}

static void summed_linear(struct exec *x, const struct linear_job *jobs, int n_jobs,
                          const struct act *in, int64_t n) {
    enum { MAX_TOGETHER = 8 };
    const struct weight *w[MAX_TOGETHER];
    for (int at = 0; at < n_jobs; at += MAX_TOGETHER) {
        int count = min_i32(n_jobs - at, MAX_TOGETHER);
        for (int i = 0; i < count; i++)
            w[i] = jobs[at + i].w;
        sum_inputs(x, w, count, in, n);
    }
    importance_of(x)->inner->linear(x, jobs, n_jobs, in, n);
}

static void summed_linear_gate_up(struct exec *x, const struct gate_up *w, const struct act *in,
                                  int64_t n, struct act *out) {
    const struct weight *const both[2] = {w->gate, w->up};
    sum_inputs(x, both, 2, in, n);
    importance_of(x)->inner->linear_gate_up(x, w, in, n, out);
}

// Adds the squares of a row to those of matrix `which` of a tensor.
static void add_row(struct imatrix_sum *s, int64_t which, const float *row) {
    double *to = (double *)s->squares + which * s->columns;
    for (int64_t j = 0; j < s->columns; j++)
        to[j] += (double)row[j] * (double)row[j];
    ((int64_t *)s->counts)[which]++;
    s->rows++;
}

// Adds each entry's row to what its expert has read. A sum over entries is taken in their order.
static void sum_entries(struct exec *x, const struct weight *w, const struct moe_list *l,
                        const struct act *in, int64_t sharers) {
    struct importance *m = importance_of(x);
    struct imatrix_sum *s = sum_of(m, w);
    int32_t ids[OPS_EXPERTS_USED_MAX];
    if (!s || l->n == 0)
        return;
    x->act_read(x, in, l->n * l->used / sharers, m->rows);
    for (int64_t i = 0; i < l->n * l->used; i++) {
        if (i % l->used == 0)
            m->inner->download(x, ids, l->ids + i, (size_t)l->used * sizeof *ids);
        int64_t expert = ids[i % l->used];
        const float *row = m->rows + i / sharers * s->columns;
        add_row(s, expert, row);
    }
}

static void summed_moe_gate_up(struct exec *x, const struct gate_up *w, const struct moe_list *l,
                               const struct act *in, struct act *out) {
    sum_entries(x, w->gate, l, in, l->used);
    sum_entries(x, w->up, l, in, l->used);
    importance_of(x)->inner->moe_gate_up(x, w, l, in, out);
}

static void summed_moe_linear(struct exec *x, const struct moe_linear_args *a) {
    sum_entries(x, a->w, &a->list, a->in, a->entries ? 1 : a->list.used);
    importance_of(x)->inner->moe_linear(x, a);
}

// Adds the rows of each head to what its matrix has read.
static void summed_linear_heads(struct exec *x, const struct heads_args *a) {
    struct importance *m = importance_of(x);
    struct imatrix_sum *s = sum_of(m, a->w);
    int64_t k = s ? s->columns : 0;
    for (int64_t i = 0; s && i < a->n; i++) {
        if (a->act && i == 0)
            x->act_read(x, a->act, a->n, m->rows);
        for (int h = 0; h < a->heads; h++) {
            const float *row = m->rows + (a->act ? (i * a->heads + h) * k : 0);
            if (!a->act)
                m->inner->download(x, m->rows, a->in + (i * a->heads + h) * a->in_stride,
                                   (size_t)k * sizeof *m->rows);
            add_row(s, h, row);
        }
    }
    m->inner->linear_heads(x, a);
}

int importance_prepare(struct exec *x, struct err *e) {
    if (importance_of(x))
        return 0;
    struct importance *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory to sum importances");
    m->inner = x->ops;
    m->table = *x->ops;
    m->table.weight_create = summed_weight_create;
    m->table.weight_destroy = summed_weight_destroy;
    m->table.act_create = summed_act_create;
    m->table.linear = summed_linear;
    m->table.linear_gate_up = summed_linear_gate_up;
    if (m->inner->moe_route) {
        m->table.moe_gate_up = summed_moe_gate_up;
        m->table.moe_linear = summed_moe_linear;
        m->table.moe_layer = NULL; // its ops one by one
    }
    if (m->inner->linear_heads)
        m->table.linear_heads = summed_linear_heads;
    m->base.destroy = destroy_importance;
    exec_attach(x, &m->base);
    x->ops = &m->table;
    return 0;
}

const struct imatrix_sum *importance_sums(struct exec *x, size_t *n) {
    struct importance *m = importance_of(x);
    *n = 0;
    for (int i = 0; m && i < m->n; i++)
        if (m->weights[i].sum.rows)
            m->shown[(*n)++] = m->weights[i].sum;
    return m ? m->shown : NULL;
}
