// SPDX-License-Identifier: Apache-2.0
// Gated DeltaNet: one stream of tokens is fed in four ways (one by one, in ragged prompt pieces, in
// whole blocks where the backend has an op for them, as paths hidden in random trees). All must
// give the same bits, at every level and thread count, and agree with the plain token-by-token
// recurrence in double precision; so must every other row of the trees.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "opcheck/gdn_state.h"

enum { TOKENS = 230, PIECE = 70, NODES = 128, ROWS = 7 * GDN_BLOCK };

// Relative error of a device, whose sums have another order: f32 all the way.
static const double DEVICE_GDN = 1e-4;

enum feed { ONE_BY_ONE, PIECES, BLOCKS, TREES, FEEDS };

struct stream {
    struct gdn_shape shape;
    float *u, *a, *b; // [TOKENS][..]
    float *conv_w, *ssm_a, *dt_bias;
    float *out; // [TOKENS][nV][dv]
};

// One sequence in an exec's memory, and what the host must see of it.
struct world {
    const struct stream *s;
    struct exec *x;
    struct buffers buffers;
    struct gdn_state st;
    struct gdn_rows rows;
    float *a, *b, *out; // [ROWS][..]
    float *conv_w, *ssm_a, *dt_bias;
    float *memory;                              // all of the state
    float *host_u, *host_a, *host_b, *host_out; // the same rows on the host
    struct forest f;
    double worst;    // error of tree rows off the path against doubles
    int64_t at_once; // rows fed in whole blocks
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

static float *own(struct world *w, const float *host, int64_t n) {
    return buffers_own(&w->buffers, host, (size_t)n * sizeof *host);
}

static void world_init(struct world *w, struct check *c, const struct stream *s, struct exec *x) {
    const struct gdn_shape *h = &s->shape;
    int64_t n = ROWS, k = h->n_k * h->dk, v = h->n_v * h->dv;
    float *zeros = floats(gdn_state_floats(h));
    memset(w, 0, sizeof *w);
    w->s = s;
    w->x = x;
    buffers_open(&w->buffers, c, x);
    w->memory = own(w, zeros, gdn_state_floats(h));
    w->st = gdn_state_in(h, w->memory);
    w->rows = (struct gdn_rows){own(w, NULL, n * h->channels),
                                own(w, NULL, n * k),
                                own(w, NULL, n * k),
                                own(w, NULL, n * v),
                                own(w, NULL, n * h->n_v),
                                own(w, NULL, n * h->n_v),
                                own(w, NULL, n * v)};
    w->a = own(w, NULL, n * h->n_v);
    w->b = own(w, NULL, n * h->n_v);
    w->out = own(w, NULL, n * v);
    w->conv_w = own(w, s->conv_w, h->channels * GDN_CONV);
    w->ssm_a = own(w, s->ssm_a, h->n_v);
    w->dt_bias = own(w, s->dt_bias, h->n_v);
    w->host_u = floats(n * h->channels);
    w->host_a = floats(n * h->n_v);
    w->host_b = floats(n * h->n_v);
    w->host_out = floats(n * v);
    free(zeros);
}

static void world_fini(struct world *w) {
    buffers_close(&w->buffers);
    free(w->host_u);
    free(w->host_a);
    free(w->host_b);
    free(w->host_out);
}

// Inputs of row i: token t of the stream, or noise for t < 0.
static void set_row(struct world *w, struct rng *r, int64_t i, int64_t t) {
    int64_t c = w->s->shape.channels, nv = w->s->shape.n_v;
    if (t < 0) {
        fill_random(r, w->host_u + i * c, c, 2);
        fill_random(r, w->host_a + i * nv, nv, 3);
        fill_random(r, w->host_b + i * nv, nv, 3);
        return;
    }
    memcpy(w->host_u + i * c, w->s->u + t * c, (size_t)c * 4);
    memcpy(w->host_a + i * nv, w->s->a + t * nv, (size_t)nv * 4);
    memcpy(w->host_b + i * nv, w->s->b + t * nv, (size_t)nv * 4);
}

static void send_rows(struct world *w) {
    size_t n = (size_t)w->f.rows.n * sizeof(float);
    buffers_put(&w->buffers, w->rows.u, w->host_u, n * (size_t)w->s->shape.channels);
    buffers_put(&w->buffers, w->a, w->host_a, n * (size_t)w->s->shape.n_v);
    buffers_put(&w->buffers, w->b, w->host_b, n * (size_t)w->s->shape.n_v);
}

static void conv_rows(struct world *w) {
    const struct gdn_state *seqs[1] = {&w->st};
    struct gdn_conv_args a = {w->s->shape, w->a,       w->b, w->conv_w,
                              w->ssm_a,    w->dt_bias, seqs, w->rows};
    exec_ops(w->x)->gdn_gates_conv(w->x, &a, &w->f.rows);
}

static void delta_rows(struct world *w, int64_t len, int64_t first, int64_t count) {
    const struct gdn_state *seqs[1] = {&w->st};
    struct gdn_run run = {first, count, 0};
    struct gdn_args a = {w->s->shape, &run, 1, seqs, &len, w->rows, w->out};
    exec_ops(w->x)->gdn(w->x, &a, &w->f.rows);
}

// Brings outputs of rows [first, first + count) to the host.
static void fetch_out(struct world *w, int64_t first, int64_t count) {
    int64_t v = w->s->shape.n_v * w->s->shape.dv;
    buffers_get(&w->buffers, w->host_out + first * v, w->out + first * v,
                (size_t)(count * v) * sizeof(float));
}

// Commits the path and keeps its outputs, which are on the host.
static void commit(struct world *w, int64_t len, const int32_t *path, int64_t n, float *out) {
    int64_t v = w->s->shape.n_v * w->s->shape.dv;
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (len + i) * v, w->host_out + path[i] * v, (size_t)v * 4);
    struct gdn_commit_seq seq = {&w->st, len, path, n};
    struct gdn_commit_args a = {w->s->shape, 1, &seq, 1, &w->rows};
    exec_ops(w->x)->gdn_commit(w->x, &a);
}

// The whole blocks among rows [at, at + n), after len tokens, at once; how many rows those are.
static int64_t feed_blocks(struct world *w, int64_t len, int64_t at, int64_t n, float *out) {
    const struct ops *o = exec_ops(w->x);
    struct gdn_run run = {at, n / GDN_BLOCK * GDN_BLOCK, 0};
    struct gdn_args a = {
        .shape = w->s->shape, .runs = &run, .n_runs = 1, .rows = w->rows, .out = w->out};
    int64_t v = w->s->shape.n_v * w->s->shape.dv;
    if (!o->gdn_blocks || len % GDN_BLOCK || !run.count || !o->gdn_blocks(w->x, &a, &w->st, len))
        return 0;
    fetch_out(w, at, run.count);
    memcpy(out + len * v, w->host_out + at * v, (size_t)(run.count * v) * sizeof *out);
    w->at_once += run.count;
    return run.count;
}

static int64_t feed_piece(struct world *w, struct rng *r, int64_t len, int64_t n, bool blocks,
                          float *out) {
    int32_t path[ROWS];
    forest_clear(&w->f);
    forest_grow(&w->f, r, CHAIN, 0, len, (int)n);
    for (int64_t i = 0; i < n; i++) {
        set_row(w, r, i, len + i);
        path[i] = (int32_t)i;
    }
    send_rows(w);
    conv_rows(w);
    for (int64_t at = 0; at < n;) {
        int64_t count = blocks ? feed_blocks(w, len + at, at, n - at, out) : 0;
        if (count) {
            at += count;
            continue;
        }
        count = n - at < GDN_BLOCK ? n - at : between(r, 1, GDN_BLOCK);
        delta_rows(w, len + at, at, count);
        fetch_out(w, at, count);
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

// Outputs of the stream by the recurrence, and the state before token `stop` if it is requested.
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
                u[j] = p >= 0         ? w->host_u + path[p] * c
                       : len + p >= 0 ? w->s->u + (len + p) * c
                                      : zero;
            }
            token_double(w->s, s, u, w->host_a + path[t] * h->n_v, w->host_b + path[t] * h->n_v,
                         out);
        }
        double e = relative(w->host_out + i * v, out, v);
        w->worst = e > w->worst ? e : w->worst;
    }
    free(start);
    free(s);
    free(out);
    free(zero);
}

static int64_t feed_tree(struct world *w, struct rng *r, int64_t len, bool doubles, float *out) {
    int32_t path[NODES];
    int nodes = rng_below(r, 8) ? (int)between(r, 1, 90) : NODES;
    forest_clear(&w->f);
    forest_grow(&w->f, r, TREE, 0, len, nodes);
    int n = forest_path(&w->f, (int32_t)rng_below(r, (uint32_t)nodes), path);
    n = n < TOKENS - len ? n : (int)(TOKENS - len);
    for (int64_t i = 0, on = 0; i < nodes; i++) {
        bool taken = on < n && path[on] == i;
        set_row(w, r, i, taken ? len + on : -1);
        on += taken;
    }
    send_rows(w);
    conv_rows(w);
    delta_rows(w, len, 0, nodes);
    fetch_out(w, 0, nodes);
    if (doubles)
        tree_double(w, len);
    commit(w, len, path, n, out);
    return n;
}

// Feeds the whole stream; out: [TOKENS][nV][dv].
static void feed(struct world *w, struct rng *r, enum feed how, bool doubles, float *out) {
    for (int64_t len = 0; len < TOKENS;) {
        int64_t left = TOKENS - len, piece = how == ONE_BY_ONE ? 1 : between(r, 1, PIECE);
        if (how == BLOCKS && len % GDN_BLOCK)
            piece = GDN_BLOCK - len % GDN_BLOCK;
        else if (how == BLOCKS)
            piece = between(r, 1, len == 0 && between(r, 0, 1) ? GDN_BLOCK : ROWS);
        if (how == TREES)
            len += feed_tree(w, r, len, doubles && rng_below(r, 3) == 0, out);
        else
            len += feed_piece(w, r, len, piece < left ? piece : left, how == BLOCKS, out);
    }
}

static void random_stream(struct stream *s, struct rng *r) {
    static const int heads[][2] = {{1, 1}, {2, 4}, {2, 6}, {3, 3}};
    static const int dims[][2] = {{16, 16}, {32, 32}, {24, 40}, {18, 30}, {64, 32}, {128, 128}};
    const int *h = heads[rng_below(r, 4)], *d = dims[rng_below(r, 6)];
    stream_init(s, r, h[0], h[1], d[0], d[1]);
}

static void shape_text(const struct gdn_shape *h, char *text, size_t size) {
    snprintf(text, size, "%d/%d heads, %d x %d", h->n_k, h->n_v, h->dk, h->dv);
}

// The final state on the host, s_lo and s_hi in their places.
static float *fetch_state(const struct world *w) {
    const struct gdn_shape *h = &w->s->shape;
    int64_t all = gdn_state_floats(h), size = (int64_t)h->n_v * h->dk * h->dv;
    float *raw = floats(all), *p = floats(all);
    exec_ops(w->x)->download(w->x, raw, w->memory, (size_t)all * sizeof *raw);
    memcpy(p, raw, (size_t)all * sizeof *p);
    memcpy(p, raw + (w->st.s_lo - w->memory), (size_t)size * sizeof *p);
    memcpy(p + size, raw + (w->st.s_hi - w->memory), (size_t)size * sizeof *p);
    free(raw);
    return p;
}

// Outputs and final states of the stream fed in two ways: bits, and errors of each part. Returns
// how many rows were fed in whole blocks.
static int64_t compare_feeds(struct check *c, const struct stream *s, struct exec *x, enum feed fx,
                             struct exec *y, enum feed fy, struct tally *t) {
    const struct gdn_shape *h = &s->shape;
    int64_t v = h->n_v * h->dv, n = TOKENS * v, size = (int64_t)h->n_v * h->dk * h->dv;
    float *a = floats(n), *b = floats(n);
    struct world wa, wb;
    struct rng rng = c->rng;
    world_init(&wa, c, s, x);
    world_init(&wb, c, s, y);
    feed(&wa, &rng, fx, false, a);
    feed(&wb, &rng, fy, false, b);
    c->rng = rng;
    tally_add(t, a, b, n);
    float *sa = fetch_state(&wa), *sb = fetch_state(&wb);
    int64_t parts[] = {size,
                       size,
                       GDN_RING * h->n_k * h->dk,
                       GDN_RING * v,
                       GDN_RING * h->n_v,
                       3ll * h->channels,
                       3ll * h->channels};
    for (int64_t i = 0, at = 0; i < 7; at += parts[i++])
        tally_add(t, sa + at, sb + at, parts[i]);
    world_fini(&wa);
    world_fini(&wb);
    free(sa);
    free(sb);
    free(a);
    free(b);
    return wa.at_once + wb.at_once;
}

bool check_has_gdn(struct check *c) {
    bool conv = CHECK_HAS(c, gdn_gates_conv), gdn = CHECK_HAS(c, gdn);
    return CHECK_HAS(c, gdn_commit) && conv && gdn; // each absence is reported
}

void check_gdn(struct check *c) {
    if (!check_has_gdn(c))
        return;
    for (int i = 0; i < 4; i++) {
        struct stream s;
        struct tally t = {0};
        char text[64];
        random_stream(&s, &c->rng);
        shape_text(&s.shape, text, sizeof text);
        compare_feeds(c, &s, c->spec, TREES, c->exec, TREES, &t);
        report_tally(c, &t, true, DEVICE_GDN, "gdn", text);
        stream_fini(&s);
    }
}

void check_gdn_rule(struct check *c) {
    if (!check_has_gdn(c))
        return;
    bool blocks = exec_ops(c->exec)->gdn_blocks != NULL;
    for (int i = 0; i < (blocks ? 5 : 3); i++) {
        struct stream s;
        struct tally t = {0};
        char text[64];
        if (i >= 2 && blocks) // a shape that it takes
            stream_init(&s, &c->rng, 2, (int)between(&c->rng, 1, 3) * 2, 128, 128);
        else
            random_stream(&s, &c->rng);
        shape_text(&s.shape, text, sizeof text);
        int64_t at_once = 0;
        for (int how = PIECES; how < FEEDS; how++)
            at_once += compare_feeds(c, &s, c->exec, ONE_BY_ONE, c->other, (enum feed)how, &t);
        report(c, t.differ == 0, "gdn: rule E1", text,
               "%lld values differ between feeds, %lld rows in whole blocks", (long long)t.differ,
               (long long)at_once);
        stream_fini(&s);
    }
}

void check_gdn_double(struct check *c) {
    if (!check_has_gdn(c))
        return;
    for (int i = 0; i < (c->brief ? 2 : 3); i++) {
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
        world_init(&w, c, &s, c->exec);
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

// Calls take the states in turn, so that on a device a base comes from memory and not from a cache.
enum { LAYERS = 32, START = 60 };
struct gdn_call {
    struct world *w;
    int64_t n;
    struct gdn_state states[LAYERS];
    int n_states;
};

static void conv_turn(void *arg, int turn) {
    struct gdn_call *t = arg;
    t->w->st = t->states[turn % t->n_states];
    conv_rows(t->w);
}

static void delta_turn(void *arg, int turn) {
    struct gdn_call *t = arg;
    t->w->st = t->states[turn % t->n_states];
    delta_rows(t->w, START, 0, t->n);
}

// Commits the first rows, which form a chain here; 32 of them complete a block and fold a base.
static void commit_turn(void *arg, int turn) {
    struct gdn_call *t = arg;
    int32_t path[GDN_BLOCK];
    for (int i = 0; i < GDN_BLOCK; i++)
        path[i] = i;
    struct gdn_commit_seq seq = {&t->states[turn % t->n_states], GDN_BLOCK, path, t->n};
    struct gdn_commit_args a = {t->w->s->shape, 1, &seq, 1, &t->w->rows};
    exec_ops(t->w->x)->gdn_commit(t->w->x, &a);
}

static void call_init(struct gdn_call *t, struct check *c, struct world *w) {
    int64_t n = gdn_state_floats(&w->s->shape);
    float *host = floats(n);
    buffers_get(&w->buffers, host, w->memory, (size_t)n * sizeof *host);
    *t = (struct gdn_call){.w = w, .states = {w->st}, .n_states = c->device ? LAYERS : 1};
    for (int i = 1; i < t->n_states; i++)
        t->states[i] = gdn_state_in(&w->s->shape, own(w, host, n));
    free(host);
}

// Times rows of one forest. Bytes: each row's inputs and outputs once, and both bases of the state.
static void time_rows(struct check *c, struct gdn_call *t, enum forest_kind kind, int n) {
    struct world *w = t->w;
    const struct gdn_shape *h = &w->s->shape;
    double base = 4.0 * h->n_v * h->dk * h->dv, row = 4.0 * h->channels;
    double log = 4.0 * (h->n_k * h->dk + h->n_v * h->dv + h->n_v);
    char shape[48], text[80];
    shape_text(h, shape, sizeof shape);
    forest_clear(&w->f);
    forest_grow(&w->f, &c->rng, kind, 0, START, n);
    for (int j = 0; j < n; j++)
        set_row(w, &c->rng, j, -1);
    send_rows(w);
    t->n = n;
    snprintf(text, sizeof text, "%s, %s of %d", shape, kind == TREE ? "tree" : "chain", n);
    report_time(c, "gdn_gates_conv", text, time_call(c, conv_turn, t), (2 * n + 4) * row);
    report_time(c, "gdn", text, time_call(c, delta_turn, t),
                2 * base + n * (row + 8.0 * h->n_v * h->dv));
    if (kind == CHAIN)
        report_time(c, "gdn_commit", text, time_call(c, commit_turn, t),
                    2 * n * log + 7 * row + (n < GDN_BLOCK ? 0 : 2 * base));
}

void check_gdn_time(struct check *c) {
    static const int chains[] = {1, 4, 16, GDN_BLOCK}, trees[] = {24, 61, 128};
    static const int shapes[][4] = {{4, 8, 64, 64}, {2, 4, 128, 128}, {16, 48, 128, 128}};
    for (int k = 0; k < 2 && check_has_gdn(c); k++) {
        const int *h = shapes[c->device ? 2 * k : k];
        struct stream s;
        struct world w;
        struct gdn_call call;
        stream_init(&s, &c->rng, h[0], h[1], h[2], h[3]);
        world_init(&w, c, &s, c->exec);
        feed_piece(&w, &c->rng, 0, START, false, s.out);
        call_init(&call, c, &w);
        for (int i = 0; i < 4; i++)
            time_rows(c, &call, CHAIN, chains[i]);
        for (int i = 0; i < 3; i++)
            time_rows(c, &call, TREE, trees[i]);
        world_fini(&w);
        stream_fini(&s);
    }
}
