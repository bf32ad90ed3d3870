// SPDX-License-Identifier: Apache-2.0
// Block-sparse attention, stage by stage: means, masses and outputs against doubles, choices
// against the rule applied to the op's own masses, levels against scalar. Texts of any length are
// read in chunks of any length; keys have a direction for each block, so that masses differ.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

enum { B = SPARSE_BLOCK };

// One text with all that the ops give for it; arrays are the host's.
struct text {
    struct sparse_args a; // shape and options
    int64_t len;
    bool paged; // K and V in pages of two layers, of which the second is used; else dense
    struct kv_layout layout;
    size_t k_bytes, v_bytes;
    unsigned char *k, *v; // paged: all pages are in k
    float *q;
    float *means, *mass, *out; // [blocks][n_kv][d], [blocks][n_heads][blocks], [len][n_heads][d]
    int32_t *count, *list;     // [blocks][n_heads], [blocks][n_heads][blocks]
};

static void *room(size_t bytes) {
    void *p = malloc(bytes + 1);
    if (!p)
        abort();
    memset(p, 0xFF, bytes);
    return p;
}

static struct sparse_rows rows_of(const struct text *t, bool value, void *data) {
    if (t->paged)
        return sparse_rows_paged(&t->layout, value ? &t->layout.v : &t->layout.k, 1, NULL, data);
    const enum kv_codec_id codec = value ? t->a.v.codec : t->a.k.codec;
    const int64_t row = kv_codec_bytes(codec, t->a.d);
    return (struct sparse_rows){.codec = codec,
                                .data = data,
                                .piece = KV_PAGE * t->a.n_kv * row,
                                .code_slot = t->a.n_kv * row,
                                .code_head = row};
}

static void put_row(const struct text *t, bool value, int64_t pos, int head, const float *x) {
    struct sparse_rows s = rows_of(t, value, value && !t->paged ? t->v : t->k);
    unsigned char *at = s.data + pos / KV_PAGE * s.piece;
    int64_t slot = pos % KV_PAGE;
    kv_codec_of(s.codec)->encode(x, at + s.codes + slot * s.code_slot + head * s.code_head,
                                 at + s.scales + slot * s.scale_slot + head * s.scale_head, t->a.d);
}

static void get_row(const struct text *t, bool value, int64_t pos, int head, float *x) {
    struct sparse_rows s = rows_of(t, value, value && !t->paged ? t->v : t->k);
    const unsigned char *at = s.data + pos / KV_PAGE * s.piece;
    int64_t slot = pos % KV_PAGE;
    kv_codec_of(s.codec)->decode(at + s.codes + slot * s.code_slot + head * s.code_head,
                                 at + s.scales + slot * s.scale_slot + head * s.scale_head, x,
                                 t->a.d);
}

static void fill_rows(struct text *t, struct rng *r) {
    float way[OPS_HEAD_MAX], x[OPS_HEAD_MAX];
    for (int h = 0; h < t->a.n_kv; h++)
        for (int64_t pos = 0; pos < t->len; pos++) {
            if (pos % B == 0)
                fill_random(r, way, t->a.d, 4);
            fill_random(r, x, t->a.d, 1);
            for (int i = 0; i < t->a.d; i++)
                x[i] += way[i];
            put_row(t, false, pos, h, x);
            fill_random(r, x, t->a.d, 1);
            put_row(t, true, pos, h, x);
        }
}

// A text of len positions; a has shape, options and codecs.
static void text_init(struct text *t, struct rng *r, const struct sparse_args *a, int64_t len,
                      bool paged) {
    *t = (struct text){.a = *a, .len = len, .paged = paged};
    int64_t blocks = sparse_blocks(len), lists = blocks * a->n_heads, pieces = 2 * blocks;
    t->a.total = len;
    if (paged) {
        t->layout =
            kv_layout_for((struct kv_shape){2, a->n_kv, a->d, a->d, false, a->k.codec, a->v.codec});
        t->k_bytes = (size_t)(pieces * t->layout.page_bytes);
    } else {
        int64_t rows = pieces * KV_PAGE * a->n_kv;
        t->k_bytes = (size_t)(rows * kv_codec_bytes(a->k.codec, a->d));
        t->v_bytes = (size_t)(rows * kv_codec_bytes(a->v.codec, a->d));
    }
    t->k = room(t->k_bytes);
    t->v = room(t->v_bytes);
    fill_rows(t, r);
    t->q = random_floats(r, len * a->n_heads * a->d, 1.5f);
    t->means = room((size_t)(blocks * a->n_kv * a->d) * sizeof(float));
    t->mass = room((size_t)(lists * blocks) * sizeof(float));
    t->out = room((size_t)(len * a->n_heads * a->d) * sizeof(float));
    t->count = room((size_t)lists * sizeof(int32_t));
    t->list = room((size_t)(lists * blocks) * sizeof(int32_t));
}

static void text_fini(struct text *t) {
    void *const all[] = {t->k, t->v, t->q, t->means, t->mass, t->out, t->count, t->list};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

// Rows [first, first + n), with K, V and means on the device; results go to their places in t.
static void run_chunk(struct check *c, struct exec *x, struct text *t, struct sparse_args *a) {
    int64_t all = sparse_blocks(t->len), blocks = sparse_blocks(a->first + a->n);
    int64_t width = (int64_t)a->n_heads * a->d, from = a->first / B * a->n_heads;
    int64_t lists = sparse_query_blocks(a->first, a->n) * a->n_heads;
    float *mass = room((size_t)(lists * blocks) * sizeof *mass);
    int32_t *list = room((size_t)(lists * blocks) * sizeof *list);
    const struct ops *o = exec_ops(x);
    struct buffers of, *r = &of;
    buffers_open(r, c, x);
    a->q = buffers_in(r, t->q + a->first * width, (size_t)(a->n * width) * sizeof(float));
    a->mass = buffers_own(r, NULL, (size_t)(lists * blocks) * sizeof(float));
    a->list = buffers_own(r, NULL, (size_t)(lists * blocks) * sizeof(int32_t));
    a->count = buffers_own(r, NULL, (size_t)lists * sizeof(int32_t));
    a->out = act_new(x, a->n, width);
    o->sparse_means(x, a);
    o->sparse_select(x, a);
    o->sparse_attend(x, a);
    buffers_get(r, mass, a->mass, (size_t)(lists * blocks) * sizeof *mass);
    buffers_get(r, list, a->list, (size_t)(lists * blocks) * sizeof *list);
    buffers_get(r, t->count + from, a->count, (size_t)lists * sizeof *list);
    for (int64_t i = 0; i < lists; i++) {
        memcpy(t->mass + (from + i) * all, mass + i * blocks, (size_t)blocks * sizeof *mass);
        memcpy(t->list + (from + i) * all, list + i * blocks, (size_t)blocks * sizeof *list);
    }
    read_act(x, a->out, a->n, width, t->out + a->first * width);
    o->act_destroy(x, a->out);
    buffers_close(r);
    free(mass);
    free(list);
}

// Rows from `from` on, a multiple of 128, in chunks: the first of `head` rows, others of `chunk`.
// Of those before there are means alone.
static void run_tail(struct check *c, struct exec *x, struct text *t, int64_t from, int64_t head,
                     int64_t chunk) {
    struct buffers r;
    struct sparse_args a = t->a;
    buffers_open(&r, c, x);
    unsigned char *k = buffers_in(&r, t->k, t->k_bytes);
    unsigned char *v = t->paged ? k : buffers_in(&r, t->v, t->v_bytes);
    a.k = rows_of(t, false, k);
    a.v = rows_of(t, true, v);
    size_t bytes = (size_t)(sparse_blocks(t->len) * a.n_kv * a.d) * sizeof(float);
    a.means = buffers_own(&r, NULL, bytes);
    a.n = from;
    if (from > 0)
        exec_ops(x)->sparse_means(x, &a);
    for (a.first = from; a.first < t->len; a.first += a.n) {
        a.n = a.first > from ? chunk : head;
        a.n = a.n < t->len - a.first ? a.n : t->len - a.first;
        run_chunk(c, x, t, &a);
    }
    buffers_get(&r, t->means, a.means, bytes);
    buffers_close(&r);
}

static void run_text(struct check *c, struct exec *x, struct text *t, int64_t head, int64_t chunk) {
    run_tail(c, x, t, 0, head, chunk);
}

// Shapes and options at random; sweep counts the cases, which go through all rests of 128.
static struct sparse_args random_args(struct check *c, int sweep) {
    static const int dims[] = {64, 128, 32, 80, 32, 64, 96};
    static const enum kv_codec_id codecs[] = {KV_BF16, KV_F16, KV_F32};
    struct rng *r = &c->rng;
    struct sparse_args a = {.n_kv = (int)between(r, 1, 2),
                            .d = dims[rng_below(r, c->device ? 2 : 7)]};
    a.n_heads = a.n_kv * (int)between(r, 1, 2);
    a.k.codec = codecs[rng_below(r, 3)];
    a.v.codec = codecs[rng_below(r, 3)];
    static const float alphas[] = {0, 0.12f, 0.5f, 1, 0.02f};
    if (c->device && sweep % 2) { // what has the most kernels
        a.d = 128;
        a.k.codec = a.v.codec = KV_F16;
    }
    a.scale = 1 / sqrtf((float)a.d);
    a.opt.alpha = alphas[sweep % 5];
    a.opt.sinks = (int)rng_below(r, 2);
    a.opt.window = (int)rng_below(r, 3);
    a.opt.last_full = (int)rng_below(r, 2);
    if (rng_below(r, 4) == 0)
        a.opt.density = 0.05f + 0.4f * (float)rng_below(r, 3);
    return a;
}

static const int64_t rests[] = {0, 1, 7, 8, 127};
enum { RESTS = sizeof rests / sizeof *rests, SWEEP = RESTS * RESTS };

// Case i of a sweep: a text and how it is cut.
static void sweep_case(struct check *c, int i, struct text *t, int64_t *chunk, char *shape,
                       size_t size) {
    struct sparse_args a = random_args(c, i);
    int64_t len = B * between(&c->rng, i % 3, 7) + rests[i % RESTS];
    *chunk = B * between(&c->rng, 0, 2) + rests[i / RESTS];
    *chunk = *chunk > 0 ? *chunk : B;
    text_init(t, &c->rng, &a, len > 0 ? len : B, rng_below(&c->rng, 2));
    snprintf(shape, size, "%d/%d heads of %d, %lld by %lld", a.n_heads, a.n_kv, a.d,
             (long long)t->len, (long long)*chunk);
}

bool check_has_sparse(struct check *c) {
    const struct sparse_args a = {.n_heads = 2, .n_kv = 1, .d = 64};
    if (!check_takes(c, &(struct ops_needs){.sparse = &a}, "sparse"))
        return false;
    return CHECK_HAS(c, sparse_means) && CHECK_HAS(c, sparse_select) && CHECK_HAS(c, sparse_attend);
}

// What is beyond the own block of a list or a mass is not compared: it is never written.
static int64_t differences(const struct text *x, const struct text *y) {
    int64_t blocks = sparse_blocks(x->len), heads = x->a.n_heads, n = 0;
    n += bit_differences(x->out, y->out, x->len * heads * x->a.d);
    n += bit_differences(x->means, y->means, x->len / B * x->a.n_kv * x->a.d);
    for (int64_t i = 0; i < blocks * heads; i++) {
        const int64_t at = i * blocks, own = i / heads + 1;
        n += bit_differences(x->mass + at, y->mass + at, own);
        n += x->count[i] != y->count[i] ||
             memcmp(x->list + at, y->list + at, (size_t)x->count[i] * sizeof *x->list);
    }
    return n;
}

// The same text on another exec, or cut otherwise.
static struct text twin_of(const struct text *t) {
    struct text y = *t;
    int64_t blocks = sparse_blocks(t->len), lists = blocks * t->a.n_heads;
    y.means = room((size_t)(blocks * t->a.n_kv * t->a.d) * sizeof(float));
    y.mass = room((size_t)(lists * blocks) * sizeof(float));
    y.out = room((size_t)(t->len * t->a.n_heads * t->a.d) * sizeof(float));
    y.count = room((size_t)lists * sizeof(int32_t));
    y.list = room((size_t)(lists * blocks) * sizeof(int32_t));
    return y;
}

static void twin_fini(struct text *y) {
    y->k = y->v = NULL;
    y->q = NULL;
    text_fini(y);
}

void check_sparse(struct check *c) {
    if (!check_has_sparse(c) ||
        c->device) // a device's choices may be others; see check_sparse_double
        return;
    for (int i = 0; i < SWEEP; i += c->brief ? 4 : 1) {
        struct text t, y;
        int64_t chunk;
        char shape[64];
        sweep_case(c, i, &t, &chunk, shape, sizeof shape);
        y = twin_of(&t);
        run_text(c, c->spec, &t, chunk, chunk);
        run_text(c, c->exec, &y, chunk, chunk);
        int64_t n = differences(&t, &y);
        report(c, n == 0, "sparse", shape, "%lld values differ (exact)", (long long)n);
        twin_fini(&y);
        text_fini(&t);
    }
}

// One call against calls of whole blocks, which another exec makes.
void check_sparse_rule(struct check *c) {
    if (!check_has_sparse(c))
        return;
    for (int i = 0; i < 10; i += c->brief ? 3 : 1) {
        struct text t, y;
        int64_t chunk;
        char shape[64];
        sweep_case(c, i, &t, &chunk, shape, sizeof shape);
        y = twin_of(&t);
        run_text(c, c->exec, &t, t.len, t.len);
        run_text(c, c->other, &y, B * between(&c->rng, 1, 3), B * between(&c->rng, 1, 3));
        int64_t n = differences(&t, &y);
        report(c, n == 0, "sparse, chunks", shape, "%lld values differ (exact)", (long long)n);
        twin_fini(&y);
        text_fini(&t);
    }
}

// Doubles.

struct errors {
    double means, mass, out; // the worst, relative to the largest of a row
    int64_t choices;         // lists that are others
    double kept, all;        // blocks
};

static void worst(double *e, double d) {
    if (!(d <= *e))
        *e = isfinite(d) ? d : INFINITY;
}

// A text in doubles: K and V [n_kv][len][d], means [n_kv][blocks][d].
struct doubles {
    double *k, *v, *mean;
};

static double *zeros(int64_t n) {
    double *x = calloc((size_t)n + 1, sizeof *x);
    if (!x)
        abort();
    return x;
}

static struct doubles doubles_of(const struct text *t) {
    int64_t d = t->a.d, each = t->len * d, blocks = sparse_blocks(t->len);
    struct doubles y = {zeros(each * t->a.n_kv), zeros(each * t->a.n_kv),
                        zeros(blocks * d * t->a.n_kv)};
    float k[OPS_HEAD_MAX], v[OPS_HEAD_MAX];
    for (int kv = 0; kv < t->a.n_kv; kv++)
        for (int64_t pos = 0; pos < t->len; pos++) {
            double *mean = y.mean + (kv * blocks + pos / B) * d;
            get_row(t, false, pos, kv, k);
            get_row(t, true, pos, kv, v);
            for (int i = 0; i < d; i++) {
                y.k[kv * each + pos * d + i] = (double)k[i];
                y.v[kv * each + pos * d + i] = (double)v[i];
                mean[i] += (double)k[i] / B;
            }
        }
    return y;
}

static void doubles_free(struct doubles *y) {
    free(y->k);
    free(y->v);
    free(y->mean);
}

static void compare_means(const struct text *t, const struct doubles *y, struct errors *e) {
    int64_t d = t->a.d, blocks = sparse_blocks(t->len);
    for (int64_t b = 0; b < t->len / B; b++)
        for (int64_t kv = 0; kv < t->a.n_kv; kv++)
            for (int64_t i = 0; i < d; i++)
                worst(&e->means, fabs((double)t->means[(b * t->a.n_kv + kv) * d + i] -
                                      y->mean[(kv * blocks + b) * d + i]));
}

// Row r's score of block b, which it sees whole.
static double score_of(const struct text *t, const double *mean, int64_t r, int64_t b, int h) {
    const float *q = t->q + (r * t->a.n_heads + h) * t->a.d;
    double s = 0;
    for (int i = 0; i < t->a.d; i++)
        s += (double)q[i] * mean[b * t->a.d + i];
    return s * (double)t->a.scale;
}

// Rows [from, end) of one query block m and head h: masses of blocks 0 .. m.
static void masses_of(const struct text *t, const double *mean, int64_t from, int64_t end, int h,
                      double *mass) {
    int64_t m = from / B;
    double max = -INFINITY, sum = 1e-9;
    for (int64_t b = 0; b <= m; b++)
        for (int64_t r = from > B * b + B - 1 ? from : B * b + B - 1; r < end; r++)
            max = fmax(max, score_of(t, mean, r, b, h));
    for (int64_t b = 0; b <= m; b++) {
        mass[b] = 0;
        for (int64_t r = from > B * b + B - 1 ? from : B * b + B - 1; r < end; r++)
            mass[b] += exp(score_of(t, mean, r, b, h) - max);
        sum += mass[b];
    }
    for (int64_t b = 0; b <= m; b++)
        mass[b] /= sum;
}

// Whether the rule would choose block b from the op's own masses.
static bool chosen(const struct text *t, const float *mass, int64_t m, int64_t b) {
    const struct sparse_options *o = &t->a.opt;
    float max = 0;
    int64_t better = 0;
    if (b == m)
        return true;
    for (int64_t i = 0; i <= m; i++)
        max = mass[i] > max ? mass[i] : max;
    for (int64_t i = 0; i < m; i++)
        better += mass[i] > mass[b] || (mass[i] == mass[b] && i < b);
    if (o->density > 0)
        return better < sparse_kept(o->density, m) - 1;
    return mass[b] >= o->alpha * max || b < o->sinks || m - b < o->window ||
           m >= sparse_blocks(t->len) - o->last_full;
}

// The list of the last chunk that has rows of the block: masses of its rows [from, end).
static void compare_lists(const struct text *t, const double *mean, int64_t from, int64_t end,
                          int h, struct errors *e) {
    int64_t m = from / B, blocks = sparse_blocks(t->len), at = m * t->a.n_heads + h;
    const float *mass = t->mass + at * blocks;
    double *want = zeros(m + 1), max = 0;
    int32_t n = 0;
    bool same = true;
    masses_of(t, mean, from, end, h, want);
    for (int64_t b = 0; b <= m; b++)
        max = want[b] > max ? want[b] : max;
    for (int64_t b = 0; b <= m; b++) {
        worst(&e->mass, fabs((double)mass[b] - want[b]) / (max + 1e-9));
        if (!chosen(t, mass, m, b))
            continue;
        same = same && n < t->count[at] && t->list[at * blocks + n] == b;
        n++;
    }
    e->choices += !same || n != t->count[at];
    e->kept += n;
    e->all += (double)(m + 1);
    free(want);
}

// Adds one key to a row's sums and returns its weight.
static double attend_key(const struct sparse_args *a, const float *q, const double *k,
                         const double *v, double *out) {
    double s = 0;
    for (int j = 0; j < a->d; j++)
        s += (double)q[j] * k[j];
    s = exp(s * (double)a->scale);
    for (int j = 0; j < a->d; j++)
        out[j] += s * v[j];
    return s;
}

static void attend_row(const struct text *t, const struct doubles *y, int64_t r, int h,
                       double *out) {
    const struct sparse_args *a = &t->a;
    int64_t blocks = sparse_blocks(t->len), at = r / B * a->n_heads + h;
    int64_t kv = h / (a->n_heads / a->n_kv) * t->len * a->d;
    const float *q = t->q + (r * a->n_heads + h) * a->d;
    double sum = 0;
    memset(out, 0, (size_t)a->d * sizeof *out);
    for (int32_t i = 0; i < t->count[at]; i++) {
        int64_t from = (int64_t)t->list[at * blocks + i] * B, stop = from + B;
        for (int64_t p = from; p < stop && p <= r; p++)
            sum += attend_key(a, q, y->k + kv + p * a->d, y->v + kv + p * a->d, out);
    }
    for (int j = 0; j < a->d; j++)
        out[j] /= sum;
}

// Lists and rows [from, end) of one query block, which one call has read.
static void compare_block(const struct text *t, const struct doubles *y, int64_t from, int64_t end,
                          struct errors *e) {
    int64_t each = sparse_blocks(t->len) * t->a.d;
    for (int h = 0; h < t->a.n_heads; h++)
        compare_lists(t, y->mean + h / (t->a.n_heads / t->a.n_kv) * each, from, end, h, e);
    for (int64_t i = from * t->a.n_heads; i < end * t->a.n_heads; i += end - from > 9 ? 7 : 1) {
        double want[OPS_HEAD_MAX], d = 0, size = 0;
        const float *got = t->out + i * t->a.d;
        attend_row(t, y, i / t->a.n_heads, (int)(i % t->a.n_heads), want);
        for (int j = 0; j < t->a.d; j++) {
            d += ((double)got[j] - want[j]) * ((double)got[j] - want[j]);
            size += want[j] * want[j];
        }
        worst(&e->out, sqrt(d / size));
    }
}

static int64_t block_end(const struct text *t, int64_t pos) {
    int64_t end = (pos / B + 1) * B;
    return end < t->len ? end : t->len;
}

// The text in one call; then in two, where the second may begin within a block: rows of that block
// choose by themselves there.
static void compare_text(struct check *c, struct text *t, int64_t head, struct errors *e) {
    struct doubles y = doubles_of(t);
    run_text(c, c->exec, t, t->len, t->len);
    compare_means(t, &y, e);
    for (int64_t from = 0; from < t->len; from += B)
        compare_block(t, &y, from, block_end(t, from), e);
    if (head < t->len) {
        run_text(c, c->exec, t, head, t->len);
        compare_means(t, &y, e);
        compare_block(t, &y, head, block_end(t, head), e);
    }
    doubles_free(&y);
}

static void report_errors(struct check *c, const struct errors *e, const char *shape) {
    // A device rounds queries, keys' means and weights to 16 bits.
    double mean = c->device ? 4e-3 : 5e-6, mass = c->device ? 3e-2 : 2e-5;
    double out = c->device ? 4e-3 : 1e-5;
    report(c, e->means <= mean && e->mass <= mass && e->out <= out && e->choices == 0,
           "sparse, doubles", shape,
           "means %.1e masses %.1e out %.1e, %lld other lists, %.0f %% of blocks", e->means,
           e->mass, e->out, (long long)e->choices, 100 * e->kept / e->all);
}

// alpha = 0 against attention to everything, in doubles: with lists of all blocks.
static void check_dense(struct check *c) {
    struct sparse_args a = random_args(c, 0);
    struct text t;
    struct errors e = {0};
    char shape[64];
    a.opt = (struct sparse_options){0};
    text_init(&t, &c->rng, &a, 5 * B + 77, false);
    compare_text(c, &t, t.len, &e);
    snprintf(shape, sizeof shape, "%d/%d heads of %d, alpha 0", a.n_heads, a.n_kv, a.d);
    report(c, e.kept == e.all, "sparse, dense", shape, "%.0f of %.0f blocks", e.kept, e.all);
    report_errors(c, &e, shape);
    text_fini(&t);
}

// More blocks than a backend scores at a time.
static void check_long(struct check *c) {
    struct sparse_args a = {.n_heads = 1, .n_kv = 1, .d = c->device ? 64 : 32, .scale = 0.15f};
    struct text t;
    struct errors e = {0};
    char shape[64];
    a.opt.alpha = 0.3f;
    text_init(&t, &c->rng, &a, 301 * B + 9, true);
    struct doubles y = doubles_of(&t);
    run_tail(c, c->exec, &t, 299 * B, t.len, t.len);
    compare_means(&t, &y, &e);
    for (int64_t from = 299 * B; from < t.len; from += B)
        compare_block(&t, &y, from, block_end(&t, from), &e);
    snprintf(shape, sizeof shape, "1/1 heads of %d, end of %lld", a.d, (long long)t.len);
    report_errors(c, &e, shape);
    doubles_free(&y);
    text_fini(&t);
}

void check_sparse_double(struct check *c) {
    if (!check_has_sparse(c))
        return;
    check_dense(c);
    if (!c->brief)
        check_long(c);
    for (int i = 0; i < SWEEP; i += c->brief ? 4 : 1) {
        struct text t;
        struct errors e = {0};
        int64_t chunk;
        char shape[64];
        sweep_case(c, i, &t, &chunk, shape, sizeof shape);
        compare_text(c, &t, chunk, &e);
        report_errors(c, &e, shape);
        text_fini(&t);
    }
}
