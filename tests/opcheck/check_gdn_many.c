// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet of many sequences in one call: rows of conv, rule and commit must have the bits,
// and states the contents, that each sequence gets in calls of its own. Sequences have different
// lengths; some have one row, as in plain decoding, others a chain or a tree.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "opcheck/gdn_state.h"

enum { MOST = 80, LAYERS = 2, ROW_ARRAYS = 6 };

// Rows that sequences may have: one each, at most that many (small trees and chains among them), or
// any number.
enum { SINGLE = 1, SMALL = 24, ANY = 40 };

// Sequences on the host.
struct many {
    struct gdn_shape shape;
    int n;
    struct forest f;
    struct gdn_run runs[MOST];
    int64_t len[MOST], count[MOST];    // count: rows of the path
    int32_t path[MOST][GDN_BLOCK + 1]; // to commit
    float *u, *a, *b;                  // [rows][..]
    float *conv_w, *ssm_a, *dt_bias;   // of all layers
    float *states;                     // [n][LAYERS][state_floats]
    int64_t state;                     // floats of one
};

// What calls leave: rows by array (q, k, v and beta, g and d; out of each layer), and states.
struct result {
    float *rows, *states;
};

static void grow_run(struct many *m, struct rng *r, int i, int limit) {
    struct gdn_run *run = &m->runs[i];
    int max = (int)(1000 - m->f.rows.n) / (m->n - i);
    int kind = limit == SINGLE ? 0 : (int)rng_below(r, 3);
    max = max < limit ? max : limit;
    *run = (struct gdn_run){m->f.rows.n, 1, i};
    m->len[i] = between(r, 0, 3) ? between(r, 0, 130) : between(r, 1, 4) * GDN_BLOCK - 1;
    if (kind == 1)
        run->count = between(r, 1, max < GDN_BLOCK ? max : GDN_BLOCK);
    else if (kind == 2)
        run->count = between(r, 2, max);
    forest_grow(&m->f, r, kind == 2 ? TREE : CHAIN, i, m->len[i], (int)run->count);
    int64_t last = run->first + (kind == 2 ? between(r, 0, run->count - 1) : run->count - 1);
    m->count[i] = forest_path(&m->f, (int32_t)last, m->path[i]);
}

// Values of the rows, weights and states.
static void many_values(struct many *m, struct rng *r) {
    const struct gdn_shape *s = &m->shape;
    int64_t rows = m->f.rows.n, n = m->n;
    m->state = gdn_state_floats(s);
    m->u = random_floats(r, rows * s->channels, 2);
    m->a = random_floats(r, rows * s->n_v, 3);
    m->b = random_floats(r, rows * s->n_v, 3);
    m->conv_w = random_floats(r, s->channels * GDN_CONV, 1);
    m->dt_bias = random_floats(r, s->n_v, 1);
    m->ssm_a = random_floats(r, s->n_v, 0.1f);
    m->states = random_floats(r, n * LAYERS * m->state, 0.3f);
    for (int h = 0; h < s->n_v; h++)
        m->ssm_a[h] = -fabsf(m->ssm_a[h]);
    for (int i = 0; i < n * LAYERS; i++) {
        float *g = gdn_state_in(s, m->states + i * m->state).log_g;
        for (int j = 0; j < GDN_RING * s->n_v; j++)
            g[j] = -fabsf(g[j]) / 4;
    }
}

static void many_init(struct many *m, struct rng *r, const struct gdn_shape *s, int n, int limit) {
    memset(m, 0, sizeof *m);
    m->shape = *s;
    m->n = n;
    forest_clear(&m->f);
    for (int i = 0; i < n; i++)
        grow_run(m, r, i, limit);
    many_values(m, r);
}

static void many_fini(struct many *m) {
    float *all[] = {m->u, m->a, m->b, m->conv_w, m->dt_bias, m->ssm_a, m->states};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

// Floats of a row in each array of a result.
static void row_sizes(const struct gdn_shape *s, int64_t n[ROW_ARRAYS + LAYERS]) {
    const int64_t v = (int64_t)s->n_v * s->dv, k = (int64_t)s->n_k * s->dk;
    const int64_t sizes[ROW_ARRAYS + LAYERS] = {k, k, v, s->n_v, s->n_v, v, v, v};
    memcpy(n, sizes, sizeof sizes);
}

static int64_t row_floats(const struct gdn_shape *s) {
    int64_t n[ROW_ARRAYS + LAYERS], sum = 0;
    row_sizes(s, n);
    for (int i = 0; i < ROW_ARRAYS + LAYERS; i++)
        sum += n[i];
    return sum;
}

// The pass of sequences from .. from + n - 1 alone, in its own numbers.
struct part {
    struct forest f;
    struct gdn_run runs[MOST];
    int32_t path[MOST][GDN_BLOCK + 1];
    int64_t first; // row of all
};

static void part_init(struct part *p, const struct many *m, int from, int n) {
    const struct forest *f = &m->f;
    p->first = m->runs[from].first;
    forest_clear(&p->f);
    p->f.rows.n = m->runs[from + n - 1].first + m->runs[from + n - 1].count - p->first;
    for (int64_t i = 0; i < p->f.rows.n; i++) {
        int32_t parent = f->parent[p->first + i];
        p->f.token[i] = f->token[p->first + i];
        p->f.parent[i] = parent < 0 ? -1 : parent - (int32_t)p->first;
        p->f.seq[i] = f->seq[p->first + i] - from;
        p->f.pos[i] = f->pos[p->first + i];
    }
    for (int i = 0; i < n; i++) {
        const struct gdn_run *run = &m->runs[from + i];
        p->runs[i] = (struct gdn_run){run->first - p->first, run->count, i};
        for (int64_t t = 0; t < m->count[from + i]; t++)
            p->path[i][t] = m->path[from + i][t] - (int32_t)p->first;
    }
}

static float *give(struct buffers *r, const float *host, int64_t n) {
    return buffers_in(r, host, (size_t)n * sizeof *host);
}

// The memory of one pass on the device: arrays of a result, and states.
struct memory {
    struct buffers buffers;
    float *rows[ROW_ARRAYS + LAYERS], *d[LAYERS], *u, *states;
    struct gdn_state st[MOST][LAYERS];
};

static void memory_init(struct memory *y, struct check *c, const struct many *m, int from, int n,
                        const struct part *p) {
    const struct gdn_shape *s = &m->shape;
    int64_t sizes[ROW_ARRAYS + LAYERS], all = n * LAYERS * m->state;
    buffers_open(&y->buffers, c, c->exec);
    row_sizes(s, sizes);
    for (int i = 0; i < ROW_ARRAYS + LAYERS; i++)
        y->rows[i] =
            buffers_own(&y->buffers, NULL, (size_t)(p->f.rows.n * sizes[i]) * sizeof(float));
    for (int i = 0; i < LAYERS; i++)
        y->d[i] =
            i ? buffers_own(&y->buffers, NULL, (size_t)(p->f.rows.n * sizes[5]) * sizeof(float))
              : y->rows[5];
    y->u = give(&y->buffers, m->u + p->first * s->channels, p->f.rows.n * s->channels);
    y->states =
        buffers_own(&y->buffers, m->states + from * LAYERS * m->state, (size_t)all * sizeof(float));
    for (int i = 0; i < n * LAYERS; i++)
        y->st[i / LAYERS][i % LAYERS] = gdn_state_in(s, y->states + i * m->state);
}

static struct gdn_rows rows_at(const struct memory *y, int layer) {
    return (struct gdn_rows){y->u,       y->rows[0], y->rows[1], y->rows[2],
                             y->rows[3], y->rows[4], y->d[layer]};
}

static struct gdn_conv_args conv_args(const struct many *m, const struct part *p, struct memory *y,
                                      const struct gdn_state *const *seqs) {
    const struct gdn_shape *s = &m->shape;
    int64_t n = p->f.rows.n;
    return (struct gdn_conv_args){*s,
                                  give(&y->buffers, m->a + p->first * s->n_v, n * s->n_v),
                                  give(&y->buffers, m->b + p->first * s->n_v, n * s->n_v),
                                  give(&y->buffers, m->conv_w, s->channels * GDN_CONV),
                                  give(&y->buffers, m->ssm_a, s->n_v),
                                  give(&y->buffers, m->dt_bias, s->n_v),
                                  seqs,
                                  rows_at(y, 0)};
}

static void call_ops(struct check *c, const struct many *m, int from, int n, const struct part *p,
                     struct memory *y) {
    const struct ops *o = exec_ops(c->exec);
    const struct gdn_shape *s = &m->shape;
    const struct gdn_state *seqs[MOST];
    struct gdn_commit_seq commits[MOST];
    struct gdn_rows rows[LAYERS];
    struct gdn_conv_args conv = conv_args(m, p, y, seqs);
    struct rows r = p->f.rows;
    r.pass = exec_pass(c->exec);
    for (int l = 0; l < LAYERS; l++) {
        for (int i = 0; i < n; i++)
            seqs[i] = &y->st[i][l];
        rows[l] = rows_at(y, l);
        if (l == 0)
            o->gdn_gates_conv(c->exec, &conv, &r);
        struct gdn_args rule = {
            *s, p->runs, n, seqs, m->len + from, rows[l], y->rows[ROW_ARRAYS + l]};
        o->gdn(c->exec, &rule, &r);
    }
    for (int i = 0; i < n; i++)
        commits[i] =
            (struct gdn_commit_seq){y->st[i], m->len[from + i], p->path[i], m->count[from + i]};
    struct gdn_commit_args commit = {*s, LAYERS, commits, n, rows};
    o->gdn_commit(c->exec, &commit);
}

// Brings rows and states to the host, s_lo and s_hi in their places.
static void fetch(const struct many *m, int from, int n, const struct part *p, struct memory *y,
                  struct result *out) {
    const struct gdn_shape *s = &m->shape;
    int64_t sizes[ROW_ARRAYS + LAYERS], each = row_floats(s), at = 0;
    int64_t base = (int64_t)s->n_v * s->dk * s->dv;
    row_sizes(s, sizes);
    for (int i = 0; i < ROW_ARRAYS + LAYERS; i++) {
        for (int64_t r = 0; r < p->f.rows.n; r++)
            buffers_get(&y->buffers, out->rows + (p->first + r) * each + at,
                        y->rows[i] + r * sizes[i], (size_t)sizes[i] * sizeof(float));
        at += sizes[i];
    }
    for (int i = 0; i < n * LAYERS; i++) {
        struct gdn_state *st = &y->st[i / LAYERS][i % LAYERS];
        float *to = out->states + (from * LAYERS + i) * m->state;
        buffers_get(&y->buffers, to, y->states + i * m->state, (size_t)m->state * sizeof *to);
        buffers_get(&y->buffers, to, st->s_lo, (size_t)base * sizeof *to);
        buffers_get(&y->buffers, to + base, st->s_hi, (size_t)base * sizeof *to);
    }
}

// Sequences from .. from + n - 1 in calls of their own.
static void run_part(struct check *c, const struct many *m, int from, int n, struct result *out) {
    struct part *p = calloc(1, sizeof *p);
    struct memory *y = calloc(1, sizeof *y);
    if (!p || !y)
        abort();
    part_init(p, m, from, n);
    memory_init(y, c, m, from, n, p);
    call_ops(c, m, from, n, p, y);
    fetch(m, from, n, p, y, out);
    buffers_close(&y->buffers);
    free(p);
    free(y);
}

static struct result result_new(const struct many *m) {
    struct result r = {calloc((size_t)(m->f.rows.n * row_floats(&m->shape)), sizeof(float)),
                       calloc((size_t)(m->n * LAYERS * m->state), sizeof(float))};
    if (!r.rows || !r.states)
        abort();
    return r;
}

static void check_once(struct check *c, const struct gdn_shape *s, int n, int limit) {
    struct many *m = malloc(sizeof *m);
    if (!m)
        abort();
    many_init(m, &c->rng, s, n, limit);
    struct result at_once = result_new(m), alone = result_new(m);
    char text[80];
    snprintf(text, sizeof text, "%d/%d heads, %d x %d, %d sequences, %d rows", s->n_k, s->n_v,
             s->dk, s->dv, n, (int)m->f.rows.n);
    run_part(c, m, 0, n, &at_once);
    for (int i = 0; i < n; i++)
        run_part(c, m, i, 1, &alone);
    int64_t rows = bit_differences(at_once.rows, alone.rows, m->f.rows.n * row_floats(s));
    int64_t states = bit_differences(at_once.states, alone.states, n * LAYERS * m->state);
    report(c, rows == 0 && states == 0, "gdn: many", text,
           "%lld values of rows and %lld of states differ from one by one", (long long)rows,
           (long long)states);
    free(at_once.rows);
    free(at_once.states);
    free(alone.rows);
    free(alone.states);
    many_fini(m);
    free(m);
}

void check_gdn_many_rule(struct check *c) {
    static const struct {
        int shape[4], least, max, limit;
    } cases[] = {{{2, 6, 128, 128}, 2, 12, SINGLE}, {{2, 6, 128, 128}, MOST - 10, MOST, SINGLE},
                 {{2, 6, 128, 128}, 2, 8, ANY},     {{2, 6, 128, 128}, 2, 3, ANY},
                 {{2, 6, 128, 128}, 2, 12, 4},      {{2, 6, 128, 128}, MOST - 10, MOST, 8},
                 {{1, 4, 128, 128}, 3, 20, 16},     {{2, 6, 128, 128}, 3, 20, SMALL},
                 {{2, 6, 128, 128}, 30, 50, SMALL}, {{2, 6, 128, 128}, 2, 4, SMALL},
                 {{1, 2, 32, 32}, 2, 20, SINGLE},   {{2, 4, 64, 64}, 2, 20, ANY},
                 {{3, 3, 24, 40}, 2, 20, ANY}};
    for (int i = 0; check_has_gdn(c) && i < (int)(sizeof cases / sizeof *cases); i++) {
        const int *h = cases[i].shape;
        struct gdn_shape s = {h[0], h[1], h[2], h[3], 2 * h[0] * h[2] + h[1] * h[3]};
        int n = (int)between(&c->rng, cases[i].least, cases[i].max);
        if (c->brief && i != 0 && i != 1 && i != 7)
            continue;
        check_once(c, &s, c->device || n < 20 ? n : 20, cases[i].limit);
    }
}

// Calls of all sequences in one pass; layers take turns, so that states come from memory.
struct timed {
    struct check *c;
    const struct many *m;
    struct part *p;
    struct memory *y;
    const struct gdn_state *seqs[LAYERS][MOST];
    struct gdn_conv_args conv;
    struct rows r;
};

static void conv_turn(void *arg, int turn) {
    struct timed *t = arg;
    t->conv.seqs = t->seqs[turn % LAYERS];
    exec_ops(t->c->exec)->gdn_gates_conv(t->c->exec, &t->conv, &t->r);
}

static void rule_turn(void *arg, int turn) {
    struct timed *t = arg;
    int l = turn % LAYERS;
    struct gdn_args a = {t->m->shape,
                         t->p->runs,
                         t->m->n,
                         t->seqs[l],
                         t->m->len,
                         rows_at(t->y, l),
                         t->y->rows[ROW_ARRAYS + l]};
    exec_ops(t->c->exec)->gdn(t->c->exec, &a, &t->r);
}

// n sequences of that many rows each, the last one of `last`, after 512 positions and more. Bytes
// of the rule: bases that are read, the log's positions since the older one, and the rows.
static void time_rows(struct check *c, int n, int each, int last, enum forest_kind kind) {
    struct gdn_shape s = {16, 48, 128, 128, 10240};
    struct timed *t = calloc(1, sizeof *t);
    struct many *m = calloc(1, sizeof *m);
    double bytes = 0, base = 4.0 * s.n_v * s.dk * s.dv, row = 4.0 * s.channels;
    double log = 4.0 * (s.n_k * s.dk + s.n_v * s.dv + s.n_v);
    char text[80];
    if (!t || !m)
        abort();
    m->shape = s;
    m->n = n;
    forest_clear(&m->f);
    for (int i = 0; i < n; i++) {
        const int rows = i + 1 < n ? each : last;
        m->len[i] = 512 + i * 13 % GDN_BLOCK;
        m->runs[i] = (struct gdn_run){m->f.rows.n, rows, i};
        forest_grow(&m->f, &c->rng, kind, i, m->len[i], rows);
        bool newer = false;
        for (int64_t k = m->runs[i].first; k < m->f.rows.n; k++)
            newer = newer || m->f.pos[k] / GDN_BLOCK > m->len[i] / GDN_BLOCK;
        bytes += base * (newer ? 2 : 1) + log * (double)(m->len[i] % GDN_BLOCK + GDN_BLOCK) +
                 rows * (row + 8.0 * s.n_v * s.dv);
    }
    many_values(m, &c->rng);
    t->c = c;
    t->m = m;
    t->p = calloc(1, sizeof *t->p);
    t->y = calloc(1, sizeof *t->y);
    if (!t->p || !t->y)
        abort();
    part_init(t->p, m, 0, n);
    memory_init(t->y, c, m, 0, n, t->p);
    for (int i = 0; i < n * LAYERS; i++)
        t->seqs[i % LAYERS][i / LAYERS] = &t->y->st[i / LAYERS][i % LAYERS];
    t->conv = conv_args(m, t->p, t->y, t->seqs[0]);
    t->r = t->p->f.rows;
    t->r.pass = exec_pass(c->exec);
    int end =
        snprintf(text, sizeof text, "%d x %s of %d", n, kind == TREE ? "tree" : "chain", each);
    if (last != each)
        snprintf(text + end, sizeof text - (size_t)end, ", the last of %d", last);
    report_time(c, "gdn_gates_conv: many", text, time_call(c, conv_turn, t),
                (double)m->f.rows.n * 2 * row + n * 3 * row);
    if (each <= GDN_BLOCK)
        report_time(c, "gdn: many", text, time_call(c, rule_turn, t), bytes);
    buffers_close(&t->y->buffers);
    many_fini(m);
    free(t->p);
    free(t->y);
    free(t);
    free(m);
}

void check_gdn_many_time(struct check *c) {
    static const int cases[][2] = {{2, 1},  {2, 4},  {2, 8},  {2, 16}, {2, 23}, {3, 23},
                                   {4, 16}, {4, 23}, {8, 1},  {8, 4},  {8, 8},  {8, 16},
                                   {8, 23}, {16, 8}, {32, 1}, {32, 4}, {32, 8}};
    if (!c->device || !check_has_gdn(c))
        return;
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++)
        time_rows(c, cases[i][0], cases[i][1], cases[i][1], cases[i][1] > 1 ? TREE : CHAIN);
    time_rows(c, 32, 4, 23, TREE);
    for (int rows = 64; rows <= 512; rows *= 2)
        time_rows(c, 1, rows, rows, CHAIN);
}
