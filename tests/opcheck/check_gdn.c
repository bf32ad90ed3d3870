// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet: one stream of tokens is fed in three ways (one by one, in ragged prompt pieces,
// as paths hidden in random trees). All must give the same bits, at every level and thread count,
// and agree with the plain token-by-token recurrence in double precision; so must every other row
// of the trees.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck.h"

enum { TOKENS = 230, PIECE = 70, NODES = 40 };

enum feed { ONE_BY_ONE, PIECES, TREES, FEEDS };

struct stream {
    struct gdn_shape shape;
    float *u, *a, *b; // [TOKENS][..]
    float *conv_w, *ssm_a, *dt_bias;
    float *out; // [TOKENS][nV][dv]
};

struct world {
    const struct stream *s;
    struct exec *x;
    struct gdn_state st;
    struct gdn_rows rows;
    float *a, *b, *out;
    struct forest f;
    float *memory;
    double worst; // error of tree rows off the path against doubles
};

static float *floats(int64_t n) {
    float *p = calloc((size_t)n, sizeof *p);
    if (!p)
        abort();
    return p;
}

static void stream_init(struct stream *s, struct rng *r, int nk, int nv, int dk, int dv) {
    s->shape = (struct gdn_shape){nk, nv, dk, dv, 2 * nk * dk + nv * dv};
    int64_t c = s->shape.channels;
    s->u = floats(TOKENS * c);
    s->a = floats(TOKENS * nv);
    s->b = floats(TOKENS * nv);
    s->conv_w = floats(c * GDN_CONV);
    s->ssm_a = floats(nv);
    s->dt_bias = floats(nv);
    s->out = floats((int64_t)TOKENS * nv * dv);
    fill_random(r, s->u, TOKENS * c, 2);
    fill_random(r, s->a, TOKENS * nv, 3);
    fill_random(r, s->b, TOKENS * nv, 3);
    fill_random(r, s->conv_w, c * GDN_CONV, 1);
    fill_random(r, s->dt_bias, nv, 1);
    for (int h = 0; h < nv; h++)
        s->ssm_a[h] = -0.02f - 0.3f * (float)h / (float)nv; // slow and fast decays
}

static void stream_fini(struct stream *s) {
    free(s->u);
    free(s->a);
    free(s->b);
    free(s->conv_w);
    free(s->ssm_a);
    free(s->dt_bias);
    free(s->out);
}

static int64_t state_floats(const struct gdn_shape *s) {
    return 2ll * s->n_v * s->dk * s->dv + (int64_t)GDN_RING * (s->n_k * s->dk + s->n_v * s->dv) +
           GDN_RING * s->n_v + 2ll * (GDN_CONV - 1) * s->channels;
}

static void world_init(struct world *w, const struct stream *s, struct exec *x) {
    const struct gdn_shape *h = &s->shape;
    int64_t n = PIECE, k = h->n_k * h->dk, v = h->n_v * h->dv;
    w->s = s;
    w->x = x;
    w->worst = 0;
    float *p = w->memory = floats(state_floats(h));
    w->st.s_lo = p;
    w->st.s_hi = p += h->n_v * h->dk * h->dv;
    w->st.log_k = p += h->n_v * h->dk * h->dv;
    w->st.log_d = p += GDN_RING * k;
    w->st.log_g = p += GDN_RING * v;
    w->st.conv = p += GDN_RING * h->n_v;
    w->st.conv_hi = p += (GDN_CONV - 1) * h->channels;
    w->rows =
        (struct gdn_rows){floats(n * h->channels), floats(n * k),      floats(n * k), floats(n * v),
                          floats(n * h->n_v),      floats(n * h->n_v), floats(n * v)};
    w->a = floats(n * h->n_v);
    w->b = floats(n * h->n_v);
    w->out = floats(n * v);
}

static void world_fini(struct world *w) {
    float *all[] = {w->memory, w->rows.u, w->rows.q, w->rows.k, w->rows.v, w->rows.beta,
                    w->rows.g, w->rows.d, w->a,      w->b,      w->out};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        free(all[i]);
}

// Inputs of row i: token t of the stream, or noise for t < 0.
static void set_row(struct world *w, struct rng *r, int64_t i, int64_t t) {
    int64_t c = w->s->shape.channels, nv = w->s->shape.n_v;
    if (t < 0) {
        fill_random(r, w->rows.u + i * c, c, 2);
        fill_random(r, w->a + i * nv, nv, 3);
        fill_random(r, w->b + i * nv, nv, 3);
        return;
    }
    memcpy(w->rows.u + i * c, w->s->u + t * c, (size_t)c * 4);
    memcpy(w->a + i * nv, w->s->a + t * nv, (size_t)nv * 4);
    memcpy(w->b + i * nv, w->s->b + t * nv, (size_t)nv * 4);
}

static void conv_rows(struct world *w) {
    const struct gdn_state *seqs[1] = {&w->st};
    struct gdn_conv_args a = {w->s->shape, w->a,          w->b, w->s->conv_w,
                              w->s->ssm_a, w->s->dt_bias, seqs, w->rows};
    exec_ops(w->x)->gdn_gates_conv(w->x, &a, &w->f.rows);
}

static void delta_rows(struct world *w, int64_t len, int64_t first, int64_t count) {
    const struct gdn_state *seqs[1] = {&w->st};
    struct gdn_args a = {w->s->shape, first, count, seqs, &len, w->rows, w->out};
    exec_ops(w->x)->gdn(w->x, &a, &w->f.rows);
}

// Commits the path and keeps its outputs.
static void commit(struct world *w, int64_t len, const int32_t *path, int64_t n, float *out) {
    int64_t v = w->s->shape.n_v * w->s->shape.dv;
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (len + i) * v, w->out + path[i] * v, (size_t)v * 4);
    struct gdn_commit_args a = {w->s->shape, &w->st, len, w->rows, path, n};
    exec_ops(w->x)->gdn_commit(w->x, &a);
}

static int64_t feed_piece(struct world *w, struct rng *r, int64_t len, int64_t n, float *out) {
    int32_t path[PIECE];
    forest_clear(&w->f);
    forest_add(&w->f, r, CHAIN, 0, len, (int)n);
    for (int64_t i = 0; i < n; i++) {
        set_row(w, r, i, len + i);
        path[i] = (int32_t)i;
    }
    conv_rows(w);
    for (int64_t at = 0; at < n;) {
        int64_t count = n - at < GDN_BLOCK ? n - at : between(r, 1, GDN_BLOCK);
        delta_rows(w, len + at, at, count);
        commit(w, len + at, path + at, count, out);
        at += count;
    }
    return n;
}

// One token of the plain recurrence; s: [nV][dk][dv], u: the four conv inputs, oldest first.
static void token_double(const struct stream *p, double *s, const float *const u[4], const float *a,
                         const float *b, double *out) {
    const struct gdn_shape *h = &p->shape;
    double *y = calloc((size_t)h->channels, sizeof *y);
    for (int c = 0; c < h->channels; c++) {
        double x = 0;
        for (int t = 0; t < 4; t++)
            x += (double)p->conv_w[4 * c + t] * (double)u[t][c];
        y[c] = x / (1 + exp(-x));
    }
    for (int part = 0; part < 2 * h->n_k; part++) {
        double sum = 1e-6, unit = part < h->n_k ? 1 / sqrt((double)h->dk) : 1;
        for (int i = 0; i < h->dk; i++)
            sum += y[part * h->dk + i] * y[part * h->dk + i];
        for (int i = 0; i < h->dk; i++)
            y[part * h->dk + i] *= unit / sqrt(sum);
    }
    for (int v = 0; v < h->n_v; v++) {
        double *m = s + (int64_t)v * h->dk * h->dv;
        const double *q = y + v % h->n_k * h->dk, *k = q + h->n_k * h->dk;
        double decay = exp((double)p->ssm_a[v] * log1p(exp((double)a[v] + (double)p->dt_bias[v])));
        double beta = 1 / (1 + exp(-(double)b[v]));
        for (int j = 0; j < h->dv; j++) {
            double read = 0, o = 0;
            for (int i = 0; i < h->dk; i++)
                read += m[i * h->dv + j] * decay * k[i];
            double d = beta * (y[2 * h->n_k * h->dk + v * h->dv + j] - read);
            for (int i = 0; i < h->dk; i++) {
                m[i * h->dv + j] = m[i * h->dv + j] * decay + k[i] * d;
                o += m[i * h->dv + j] * q[i];
            }
            out[v * h->dv + j] = o;
        }
    }
    free(y);
}

static double relative(const float *got, const double *want, int64_t n) {
    double err = 0, size = 0;
    for (int64_t i = 0; i < n; i++) {
        err += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        size += want[i] * want[i];
    }
    return sqrt(err / (size + 1e-30));
}

// Outputs of the stream by the recurrence, and the state before token `stop` if it is asked for.
static void stream_double(const struct stream *s, int64_t stop, double *state, double *out) {
    int64_t c = s->shape.channels, v = s->shape.n_v * s->shape.dv;
    float *zero = floats(c);
    for (int64_t t = 0; t < stop; t++) {
        const float *u[4];
        for (int i = 0; i < 4; i++)
            u[i] = t - 3 + i < 0 ? zero : s->u + (t - 3 + i) * c;
        token_double(s, state, u, s->a + t * s->shape.n_v, s->b + t * s->shape.n_v, out + t * v);
    }
    free(zero);
}

// Every row of the tree against the recurrence along its own path.
static void tree_double(struct world *w, int64_t len) {
    const struct gdn_shape *h = &w->s->shape;
    int64_t c = h->channels, v = h->n_v * h->dv, size = (int64_t)h->n_v * h->dk * h->dv;
    double *start = calloc((size_t)size, sizeof *start), *s = calloc((size_t)size, sizeof *s);
    double *out = calloc((size_t)(TOKENS * v), sizeof *out);
    float *zero = floats(c);
    stream_double(w->s, len, start, out);
    for (int32_t i = 0; i < w->f.rows.n; i++) {
        int32_t path[NODES];
        int n = forest_path(&w->f, i, path);
        memcpy(s, start, (size_t)size * sizeof *s);
        for (int t = 0; t < n; t++) {
            const float *u[4];
            for (int j = 0; j < 4; j++) {
                int64_t p = t - 3 + j;
                u[j] = p >= 0         ? w->rows.u + path[p] * c
                       : len + p >= 0 ? w->s->u + (len + p) * c
                                      : zero;
            }
            token_double(w->s, s, u, w->a + path[t] * h->n_v, w->b + path[t] * h->n_v, out);
        }
        double e = relative(w->out + i * v, out, v);
        w->worst = e > w->worst ? e : w->worst;
    }
    free(start);
    free(s);
    free(out);
    free(zero);
}

static int64_t feed_tree(struct world *w, struct rng *r, int64_t len, bool doubles, float *out) {
    int32_t path[NODES];
    int nodes = (int)between(r, 1, NODES);
    forest_clear(&w->f);
    forest_add(&w->f, r, TREE, 0, len, nodes);
    int n = forest_path(&w->f, (int32_t)rng_below(r, (uint32_t)nodes), path);
    n = n < TOKENS - len ? n : (int)(TOKENS - len);
    for (int64_t i = 0, on = 0; i < nodes; i++) {
        bool taken = on < n && path[on] == i;
        set_row(w, r, i, taken ? len + on : -1);
        on += taken;
    }
    conv_rows(w);
    delta_rows(w, len, 0, nodes);
    if (doubles)
        tree_double(w, len);
    commit(w, len, path, n, out);
    return n;
}

// Feeds the whole stream; out: [TOKENS][nV][dv].
static void feed(struct world *w, struct rng *r, enum feed how, bool doubles, float *out) {
    for (int64_t len = 0; len < TOKENS;) {
        int64_t left = TOKENS - len, piece = how == ONE_BY_ONE ? 1 : between(r, 1, PIECE);
        if (how == TREES)
            len += feed_tree(w, r, len, doubles && rng_below(r, 3) == 0, out);
        else
            len += feed_piece(w, r, len, piece < left ? piece : left, out);
    }
}

static void random_stream(struct stream *s, struct rng *r) {
    static const int heads[][2] = {{1, 1}, {2, 4}, {2, 6}, {3, 3}};
    static const int dims[][2] = {{16, 16}, {32, 32}, {24, 40}, {64, 32}, {128, 128}};
    const int *h = heads[rng_below(r, 4)], *d = dims[rng_below(r, 5)];
    stream_init(s, r, h[0], h[1], d[0], d[1]);
}

static void shape_text(const struct gdn_shape *h, char *text, size_t size) {
    snprintf(text, size, "%d/%d heads, %d x %d", h->n_k, h->n_v, h->dk, h->dv);
}

// Bits of outputs and of the final state (s_lo and s_hi may have changed places).
static int64_t world_differences(const struct world *a, const struct world *b, const float *x,
                                 const float *y) {
    const struct gdn_shape *h = &a->s->shape;
    int64_t size = (int64_t)h->n_v * h->dk * h->dv, v = h->n_v * h->dv;
    return bit_differences(x, y, TOKENS * v) + bit_differences(a->st.s_lo, b->st.s_lo, size) +
           bit_differences(a->st.s_hi, b->st.s_hi, size) +
           bit_differences(a->st.log_k, b->st.log_k, (int64_t)GDN_RING * h->n_k * h->dk) +
           bit_differences(a->st.log_d, b->st.log_d, (int64_t)GDN_RING * v) +
           bit_differences(a->st.log_g, b->st.log_g, (int64_t)GDN_RING * h->n_v) +
           bit_differences(a->st.conv, b->st.conv, 3ll * h->channels) +
           bit_differences(a->st.conv_hi, b->st.conv_hi, 3ll * h->channels);
}

static int64_t compare_feeds(const struct stream *s, struct rng *r, struct exec *x, enum feed fx,
                             struct exec *y, enum feed fy) {
    int64_t n = (int64_t)TOKENS * s->shape.n_v * s->shape.dv;
    float *a = floats(n), *b = floats(n);
    struct world wa, wb;
    world_init(&wa, s, x);
    world_init(&wb, s, y);
    feed(&wa, r, fx, false, a);
    feed(&wb, r, fy, false, b);
    int64_t diff = world_differences(&wa, &wb, a, b);
    world_fini(&wa);
    world_fini(&wb);
    free(a);
    free(b);
    return diff;
}

void check_gdn(struct check *c) {
    for (int i = 0; i < 4; i++) {
        struct stream s;
        char text[64];
        random_stream(&s, &c->rng);
        shape_text(&s.shape, text, sizeof text);
        int64_t diff = compare_feeds(&s, &c->rng, c->spec, TREES, c->exec, TREES);
        report(c, diff == 0, "gdn", text, "%lld values differ (exact)", (long long)diff);
        stream_fini(&s);
    }
}

void check_gdn_rule(struct check *c) {
    struct exec *three = NULL;
    struct err e;
    if (exec_create_cpu(&three, c->level, 3, &e))
        abort();
    for (int i = 0; i < 3; i++) {
        struct stream s;
        char text[64];
        random_stream(&s, &c->rng);
        shape_text(&s.shape, text, sizeof text);
        int64_t diff = 0;
        for (int how = PIECES; how < FEEDS; how++)
            diff += compare_feeds(&s, &c->rng, c->exec, ONE_BY_ONE, three, (enum feed)how);
        report(c, diff == 0, "gdn: rule E1", text, "%lld values differ between feeds",
               (long long)diff);
        stream_fini(&s);
    }
    exec_destroy(three);
}

void check_gdn_double(struct check *c) {
    for (int i = 0; i < 3; i++) {
        struct stream s;
        struct world w;
        char text[64];
        random_stream(&s, &c->rng);
        shape_text(&s.shape, text, sizeof text);
        int64_t n = (int64_t)TOKENS * s.shape.n_v * s.shape.dv;
        double *state = calloc((size_t)(s.shape.n_v * s.shape.dk * s.shape.dv), sizeof *state);
        double *want = calloc((size_t)n, sizeof *want);
        float *got = floats(n);
        stream_double(&s, TOKENS, state, want);
        world_init(&w, &s, c->exec);
        feed(&w, &c->rng, TREES, true, got);
        double err = relative(got, want, n);
        report(c, err < 1e-5 && w.worst < 1e-4, "gdn / double", text,
               "path %.1e (max 1e-5), worst tree row %.1e (max 1e-4)", err, w.worst);
        world_fini(&w);
        free(state);
        free(want);
        free(got);
        stream_fini(&s);
    }
}

void check_gdn_time(struct check *c) {
    static const int counts[] = {1, 4, 16, 32};
    struct stream s;
    struct world w;
    char text[64];
    stream_init(&s, &c->rng, 4, 8, 64, 64);
    world_init(&w, &s, c->exec);
    feed_piece(&w, &c->rng, 0, 60, s.out);
    for (size_t i = 0; i < 4; i++) {
        forest_clear(&w.f);
        forest_add(&w.f, &c->rng, CHAIN, 0, 60, counts[i]);
        for (int j = 0; j < counts[i]; j++)
            set_row(&w, &c->rng, j, -1);
        double best[2] = {1e30, 1e30};
        for (int t = 0; t < 50; t++) {
            double a = now_us();
            conv_rows(&w);
            double b = now_us();
            delta_rows(&w, 60, 0, counts[i]);
            double d = now_us();
            best[0] = b - a < best[0] ? b - a : best[0];
            best[1] = d - b < best[1] ? d - b : best[1];
        }
        snprintf(text, sizeof text, "4/8 heads, 64 x 64, n=%d", counts[i]);
        report(c, true, "time gdn", text, "conv %8.1f us, delta %8.1f us", best[0], best[1]);
    }
    world_fini(&w);
    stream_fini(&s);
}
