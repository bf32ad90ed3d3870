// SPDX-License-Identifier: Apache-2.0
// The model scorer against a transcription of its formulas in doubles: all lengths about the
// borders of blocks and chunks, dense and block-sparse attention, layers left out, one query and
// many; which layers are loaded, what it takes at the size of a real scorer, and what it refuses.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "compress/score/score.h"
#include "formats/quant/quant.h"
#include "models/load.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

struct rig {
    char path[96];
    struct tiny_shape shape;
    struct gguf *g;
    struct exec *x;
    struct err e;
};

static void rig_open(struct rig *r, const struct tiny_shape *shape) {
    *r = (struct rig){.shape = *shape};
    snprintf(r->path, sizeof r->path, "/tmp/test_score.%d.gguf", (int)getpid());
    assert_int_equal(tiny_target_write(shape, r->path, &r->e), 0);
    assert_int_equal(gguf_open(&r->g, r->path, &r->e), 0);
    assert_int_equal(exec_create_cpu(&r->x, "auto", 2, &r->e), 0);
}

static void rig_close(struct rig *r) {
    exec_destroy(r->x);
    gguf_close(r->g);
    remove(r->path);
}

// A tensor of layer i in doubles.
static double *tensor(const struct rig *r, int i, const char *suffix) {
    char name[LOAD_NAME];
    const struct tensor *t = gguf_tensor(r->g, i < 0 ? suffix : load_name(name, i, suffix));
    assert_non_null(t);
    int64_t n = t->ne[0] * t->ne[1];
    float *f = malloc((size_t)n * sizeof *f);
    double *d = malloc((size_t)n * sizeof *d);
    quant_format(t->type)->dequantize(t->data, f, n);
    for (int64_t k = 0; k < n; k++)
        d[k] = (double)f[k];
    free(f);
    return d;
}

// out[n][m] = in[n][k] W^T (added where add).
static void times(const struct rig *r, int i, const char *name, const double *in, double *out,
                  const int64_t size[3], bool add) {
    double *w = tensor(r, i, name);
    for (int64_t row = 0; row < size[0]; row++)
        for (int64_t m = 0; m < size[2]; m++) {
            double sum = 0;
            for (int64_t k = 0; k < size[1]; k++)
                sum += in[row * size[1] + k] * w[m * size[1] + k];
            out[row * size[2] + m] = add ? out[row * size[2] + m] + sum : sum;
        }
    free(w);
}

static void norm(const struct rig *r, int i, const char *name, const double *in, double *out,
                 int64_t rows, int64_t d) {
    double *w = tensor(r, i, name);
    for (int64_t row = 0; row < rows; row++) {
        double sum = 0;
        for (int64_t k = 0; k < d; k++)
            sum += in[row * d + k] * in[row * d + k];
        for (int64_t k = 0; k < d; k++)
            out[row * d + k] = in[row * d + k] / sqrt(sum / (double)d + 1e-6) * w[k];
    }
    free(w);
}

static void rope(const struct rig *r, double *x, int64_t n, int heads, double base) {
    int d = r->shape.head_dim, half = d / 2;
    for (int64_t row = 0; row < n * heads; row++)
        for (int k = 0; k < half; k++) {
            double angle = (double)(row / heads) * pow(base, -2.0 * k / d);
            double a = x[row * d + k], b = x[row * d + k + half];
            x[row * d + k] = a * cos(angle) - b * sin(angle);
            x[row * d + k + half] = b * cos(angle) + a * sin(angle);
        }
}

// p[j] = softmax over keys 0 .. last of q . k[j] / sqrt(d).
static void softmax(const double *q, const double *k, int64_t stride, int d, int64_t last,
                    double *p) {
    double max = -INFINITY, sum = 0;
    for (int64_t j = 0; j <= last; j++) {
        p[j] = 0;
        for (int i = 0; i < d; i++)
            p[j] += q[i] * k[j * stride + i];
        p[j] /= sqrt((double)d);
        max = p[j] > max ? p[j] : max;
    }
    for (int64_t j = 0; j <= last; j++)
        sum += p[j] = exp(p[j] - max);
    for (int64_t j = 0; j <= last; j++)
        p[j] /= sum;
}

struct reference {
    const struct rig *r;
    int64_t n, n_q;
    double base;
    double *h, *in, *q, *k, *v, *out, *p, *mass;
};

static void ref_score(struct reference *f) {
    const struct tiny_shape *s = &f->r->shape;
    int d = s->head_dim, group = s->heads / s->kv_heads;
    for (int64_t t = 0; t < f->n_q; t++)
        for (int h = 0; h < s->heads; h++) {
            int64_t row = f->n - f->n_q + t;
            softmax(f->q + (row * s->heads + h) * d, f->k + h / group * d, s->kv_heads * d, d, row,
                    f->p);
            for (int64_t j = 0; j <= row; j++)
                f->mass[t * f->n + j] = fmax(f->mass[t * f->n + j], f->p[j]);
        }
}

static void ref_attend(struct reference *f) {
    const struct tiny_shape *s = &f->r->shape;
    int d = s->head_dim, group = s->heads / s->kv_heads;
    rope(f->r, f->q, f->n, s->heads, f->base);
    rope(f->r, f->k, f->n, s->kv_heads, f->base);
    memset(f->out, 0, (size_t)(f->n * s->heads * d) * sizeof *f->out);
    for (int64_t row = 0; row < f->n * s->heads; row++) {
        int64_t pos = row / s->heads, kv = row % s->heads / group;
        softmax(f->q + row * d, f->k + kv * d, s->kv_heads * d, d, pos, f->p);
        for (int64_t j = 0; j <= pos; j++)
            for (int i = 0; i < d; i++)
                f->out[row * d + i] += f->p[j] * f->v[(j * s->kv_heads + kv) * d + i];
    }
}

static void ref_mlp(struct reference *f, int i) {
    const struct tiny_shape *s = &f->r->shape;
    double *g = malloc((size_t)(f->n * s->ffn) * sizeof *g),
           *u = malloc((size_t)(f->n * s->ffn) * sizeof *u);
    norm(f->r, i, "ffn_norm.weight", f->h, f->in, f->n, s->dim);
    times(f->r, i, "ffn_gate.weight", f->in, g, (int64_t[]){f->n, s->dim, s->ffn}, false);
    times(f->r, i, "ffn_up.weight", f->in, u, (int64_t[]){f->n, s->dim, s->ffn}, false);
    for (int64_t k = 0; k < f->n * s->ffn; k++)
        g[k] = g[k] / (1 + exp(-g[k])) * u[k];
    times(f->r, i, "ffn_down.weight", g, f->h, (int64_t[]){f->n, s->ffn, s->dim}, true);
    free(g);
    free(u);
}

static double *doubles(int64_t n) {
    double *d = calloc((size_t)n, sizeof *d);
    assert_non_null(d);
    return d;
}

// Scores of layers `from` .. layers - 1.
static void reference(const struct rig *r, const int32_t *ids, int64_t n, int64_t n_q, int from,
                      int layers, double *score) {
    const struct tiny_shape *s = &r->shape;
    int64_t q = n * s->heads * s->head_dim, kv = n * s->kv_heads * s->head_dim;
    struct reference f = {
        r,          n,           n_q,         0,          doubles(n * s->dim), doubles(n * s->dim),
        doubles(q), doubles(kv), doubles(kv), doubles(q), doubles(n),          doubles(n_q * n)};
    assert_int_equal(gguf_get_float(r->g, "qwen3.rope.freq_base", 0, &f.base, NULL), 0);
    double *table = tensor(r, -1, "token_embd.weight");
    for (int64_t i = 0; i < n; i++)
        memcpy(f.h + i * s->dim, table + ids[i] * s->dim, (size_t)s->dim * sizeof *f.h);
    free(table);
    for (int i = 0; i < layers; i++) {
        norm(r, i, "attn_norm.weight", f.h, f.in, n, s->dim);
        times(r, i, "attn_q.weight", f.in, f.q, (int64_t[]){n, s->dim, q / n}, false);
        times(r, i, "attn_k.weight", f.in, f.k, (int64_t[]){n, s->dim, kv / n}, false);
        times(r, i, "attn_v.weight", f.in, f.v, (int64_t[]){n, s->dim, kv / n}, false);
        norm(r, i, "attn_q_norm.weight", f.q, f.q, q / s->head_dim, s->head_dim);
        norm(r, i, "attn_k_norm.weight", f.k, f.k, kv / s->head_dim, s->head_dim);
        if (i >= from)
            ref_score(&f);
        ref_attend(&f);
        times(r, i, "attn_output.weight", f.out, f.h, (int64_t[]){n, q / n, s->dim}, true);
        ref_mlp(&f, i);
    }
    for (int64_t j = 0; j < n; j++) {
        score[j] = 0;
        for (int64_t t = 0; t < n_q; t++)
            score[j] += f.mass[t * n + j] / (double)n_q;
    }
    double *const all[] = {f.h, f.in, f.q, f.k, f.v, f.out, f.p, f.mass};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

static int32_t *random_ids(uint64_t seed, int64_t n) {
    struct rng g = {seed};
    int32_t *ids = malloc((size_t)n * sizeof *ids);
    for (int64_t i = 0; i < n; i++)
        ids[i] = (int32_t)rng_below(&g, 250);
    return ids;
}

// sqrt(sum of squared differences / sum of squares).
static double error_of(const float *got, const double *want, int64_t n) {
    double diff = 0, all = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)got[i] - want[i]) * ((double)got[i] - want[i]);
        all += want[i] * want[i];
    }
    return sqrt(diff / all);
}

static double score_error(struct rig *r, struct scorer *s, const struct score_options *o, int64_t n,
                          int64_t n_q) {
    int32_t *ids = random_ids((uint64_t)n, n);
    float *got = calloc((size_t)n, sizeof *got);
    double *want = doubles(n);
    int layers = o->layers ? o->layers : r->shape.layers;
    int from = o->last ? layers - o->last : 0;
    const struct score_call c = {ids, n, n - n_q, got};
    assert_int_equal(s->kind->score(s, &c, &r->e), 0);
    reference(r, ids, n, n_q, from, layers, want);
    double error = error_of(got, want, n);
    free(ids);
    free(got);
    free(want);
    return error;
}

// Block-sparse attention with alpha 0 attends to everything.
static struct score_options exact(bool dense) {
    struct score_options o = score_options_default();
    o.dense = dense;
    o.sparse.alpha = 0;
    o.chunk = 256;
    o.codec = KV_F32;
    return o;
}

#ifdef COPPICE_CHECKED // sums in doubles are for the release build; all rests and lengths remain
enum { STRIDE = 3 };
#else
enum { STRIDE = 1 };
#endif

static void test_sweep(void **state) {
    (void)state;
    static const int rest[] = {0, 1, 7, 8, 127};
    struct tiny_shape shape = tiny_shape_plain();
    shape.layers = 3;
    struct rig r;
    rig_open(&r, &shape);
    double worst = 0;
    // Modulo 128, and modulo the chunk these and 128 more.
    for (int k = 0; k < 2 * 4 * 5; k += STRIDE) {
        const struct score_options o = exact(k % 2);
        int n = 128 * (1 + k / 2 % 4) + rest[k / 8];
        struct scorer *s;
        assert_int_equal(score_open(&s, r.x, r.g, &o, &r.e), 0);
        double error = score_error(&r, s, &o, n, k % 3 ? 64 : 8);
        worst = error > worst ? error : worst;
        if (error > 2e-5)
            fail_msg("%d tokens, dense %d: error %.1e", n, k % 2, error);
        s->kind->destroy(s);
    }
    print_message("worst error %.1e\n", worst);
    rig_close(&r);
}

static void test_layers(void **state) {
    (void)state;
    static const int cases[][4] = {{1, 0, 40, 1}, {2, 0, 200, 9}, {3, 1, 130, 64}, {0, 2, 257, 20}};
    struct tiny_shape shape = tiny_shape_plain();
    struct rig r;
    rig_open(&r, &shape);
    int64_t weights = 0;
    for (int i = 0; i < 4; i++) {
        struct score_options o = exact(i % 2);
        o.layers = cases[i][0];
        o.last = cases[i][1];
        struct scorer *s;
        struct score_plan p;
        assert_int_equal(score_open(&s, r.x, r.g, &o, &r.e), 0);
        assert_true(score_error(&r, s, &o, cases[i][2], cases[i][3]) < 2e-5);
        assert_int_equal(score_plan_of(&p, r.x, r.g, &o, 1000, &r.e), 0);
        assert_true(p.weights > weights); // no more layers are loaded than are run
        weights = p.weights;
        s->kind->destroy(s);
    }
    rig_close(&r);
}

// Quantised weights, stored keys in f16, block-sparse as by default: close to the exact scores, the
// same for any number of threads and after other texts.
static void test_default(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain();
    shape.type = TYPE_Q8_0;
    struct rig r;
    rig_open(&r, &shape);
    struct score_options o = score_options_default();
    struct scorer *s, *other;
    struct exec *one;
    assert_int_equal(exec_create_cpu(&one, "scalar", 1, &r.e), 0);
    assert_int_equal(score_open(&s, r.x, r.g, &o, &r.e), 0);
    assert_int_equal(score_open(&other, one, r.g, &o, &r.e), 0);
    assert_true(score_error(&r, s, &o, 700, 30) < 0.05); // six blocks: all are seen
    enum { N = 2000, Q = 50 };
    int32_t *ids = random_ids(7, N);
    float *a = calloc(N, sizeof *a), *b = calloc(N, sizeof *b);
    assert_int_equal(s->kind->score(s, &(struct score_call){ids, N, N - Q, a}, &r.e), 0);
    assert_int_equal(other->kind->score(other, &(struct score_call){ids, N, N - Q, b}, &r.e), 0);
    assert_memory_equal(a, b, N * sizeof *a);
    for (int i = 0; i < N; i++)
        assert_true(a[i] >= 0 && a[i] <= 1);
    s->kind->destroy(s);
    other->kind->destroy(other);
    exec_destroy(one);
    free(ids);
    free(a);
    free(b);
    rig_close(&r);
}

// Scores of a text by a scorer that keeps what it computed are those of one that does not, bit for
// bit, however texts grow, are cut and changed; and blocks are taken where they can be.
struct keeping {
    struct scorer *kept, *fresh;
    float *a, *b;
    int64_t known; // tokens that were taken, of all texts
};

enum { KEPT_MAX = 128 * 14 };

static void same_scores(struct rig *r, struct keeping *k, const int32_t *ids, int64_t n,
                        int64_t n_q) {
    const struct score_call with = {ids, n, n - n_q, k->a}, without = {ids, n, n - n_q, k->b};
    assert_int_equal(k->kept->kind->score(k->kept, &with, &r->e), 0);
    assert_int_equal(k->fresh->kind->score(k->fresh, &without, &r->e), 0);
    assert_memory_equal(k->a, k->b, (size_t)n * sizeof *k->a);
    int64_t known = score_known(k->kept);
    assert_true(known % 128 == 0 && known >= 0 && known <= n - n_q);
    assert_int_equal(score_known(k->fresh), 0);
    k->known += known;
}

static void keeping_open(struct rig *r, struct keeping *k, struct score_options o, int64_t limit) {
    *k = (struct keeping){0};
    assert_int_equal(score_open(&k->fresh, r->x, r->g, &o, &r->e), 0);
    o.keep = limit;
    assert_int_equal(score_open(&k->kept, r->x, r->g, &o, &r->e), 0);
    k->a = calloc(KEPT_MAX, sizeof *k->a);
    k->b = calloc(KEPT_MAX, sizeof *k->b);
}

static void keeping_close(struct keeping *k) {
    k->kept->kind->destroy(k->kept);
    k->fresh->kind->destroy(k->fresh);
    free(k->a);
    free(k->b);
}

enum { STEPS = TEST_LONG ? 16 : 8 };

// Texts of a random walk: grown, cut, changed somewhere, begun anew.
static void walk(struct rig *r, const struct score_options *o, int64_t limit, uint64_t seed) {
    static const int rest[] = {0, 1, 7, 8, 127};
    struct rng g = {seed};
    struct keeping k;
    int32_t *ids = random_ids(seed, KEPT_MAX);
    keeping_open(r, &k, *o, limit);
    for (int i = 0; i < STEPS; i++) {
        int64_t n = 128 * (1 + (int64_t)rng_below(&g, 9)) + rest[rng_below(&g, 5)];
        int64_t n_q = 1 + (int64_t)rng_below(&g, SCORE_QUERIES);
        if (rng_below(&g, 3) == 0)
            ids[rng_below(&g, (uint32_t)n)] = (int32_t)rng_below(&g, 250);
        if (rng_below(&g, 12) == 0)
            ids[0] = (int32_t)rng_below(&g, 250);
        same_scores(r, &k, ids, n, n_q);
        assert_true(score_held(k.kept) <= limit);
    }
    assert_true(k.known > 128 * STEPS / 2);
    keeping_close(&k);
    free(ids);
}

static void test_kept(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain();
    shape.layers = 3;
    struct rig r;
    rig_open(&r, &shape);
    struct score_options o = score_options_default();
    o.chunk = 256;
    walk(&r, &o, 1 << 26, 1);
    o.sparse.alpha = 0.9f; // most blocks are left out
    walk(&r, &o, 1 << 26, 2);
    walk(&r, &o, 1500 << 10, 3); // about one long text
    o.sparse.density = 0.3f;
    walk(&r, &o, 1 << 26, 4);
    o.sparse.density = 0;
    o.layers = 2;
    o.last = 1;
    walk(&r, &o, 1 << 26, 5);
    o = score_options_default();
    o.dense = true;
    walk(&r, &o, 1 << 26, 6);
    rig_close(&r);
}

// A conversation takes all but its last blocks; two that begin alike stay both; nothing is kept
// that the limit has no room for.
static void test_kept_turns(void **state) {
    (void)state;
    const struct tiny_shape shape = tiny_shape_plain();
    struct rig r;
    struct keeping k;
    rig_open(&r, &shape);
    int32_t *ids = random_ids(9, KEPT_MAX), *other = random_ids(9, KEPT_MAX);
    keeping_open(&r, &k, score_options_default(), 1 << 26);
    other[128 * 3] ^= 1;
    same_scores(&r, &k, ids, 128 * 9 + 5, 20);
    assert_int_equal(score_known(k.kept), 0);
    same_scores(&r, &k, ids, 128 * 12, 20);
    assert_int_equal(score_known(k.kept), 128 * 8); // the last two of ten see everything
    same_scores(&r, &k, other, 128 * 12, 20);
    assert_int_equal(score_known(k.kept), 128 * 3);
    same_scores(&r, &k, ids, 128 * 13 + 1, 20);
    assert_int_equal(score_known(k.kept), 128 * 10);
    same_scores(&r, &k, other, 128 * 13 + 1, 20);
    assert_int_equal(score_known(k.kept), 128 * 10);
    keeping_close(&k);
    keeping_open(&r, &k, score_options_default(), 1000);
    same_scores(&r, &k, ids, 128 * 9, 20);
    same_scores(&r, &k, ids, 128 * 9, 20);
    assert_int_equal(score_known(k.kept), 0);
    assert_int_equal(score_held(k.kept), 0);
    keeping_close(&k);
    free(ids);
    free(other);
    rig_close(&r);
}

// The shape of Qwen3 0.6B in BF16 at 131,072 tokens: below 3 GB.
static void test_memory(void **state) {
    (void)state;
    const struct model_params m = {.n_layers = 28,
                                   .dim = 1024,
                                   .ffn = 3072,
                                   .vocab = 151936,
                                   .n_heads = 16,
                                   .n_kv = 8,
                                   .head_dim = 128};
    int64_t layer = 1024 * (2048 + 1024 + 1024) + 2048 * 1024 + 3 * 1024 * 3072;
    struct score_options o = score_options_default();
    struct score_plan p = score_plan_shape(&m, NULL, &o, 131072, 28 * layer * 2);
    print_message("weights %.3f, hidden %.3f, keys %.3f, pages %.3f, chunk %.3f, blocks %.3f, "
                  "mass %.3f, in all %.3f GB\n",
                  (double)p.weights / 1e9, (double)p.hidden / 1e9, (double)p.keys / 1e9,
                  (double)p.pages / 1e9, (double)p.chunk / 1e9, (double)p.blocks / 1e9,
                  (double)p.mass / 1e9, (double)p.total / 1e9);
    assert_true(p.total <= 3000000000);
    assert_int_equal(p.hidden, 131072LL * 1024 * 4);
    assert_int_equal(p.pages, 2LL * 131072 * 1024 * 2);
}

static void refuse(struct rig *r, const struct score_options *o, int code, const char *words) {
    struct scorer *s;
    int rc = score_open(&s, r->x, r->g, o, &r->e);
    assert_int_equal(rc, code);
    assert_null(s);
    if (!strstr(r->e.text, words))
        fail_msg("'%s' does not say '%s'", r->e.text, words);
}

static void test_refused(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct score_options o = score_options_default();
    struct rig r;
    rig_open(&r, &shape); // another architecture
    refuse(&r, &o, ERR_UNSUPPORTED, "qwen35");
    rig_close(&r);
    shape = tiny_shape_plain();
    rig_open(&r, &shape);
    o.chunk = 100;
    refuse(&r, &o, ERR_USAGE, "multiple of 128");
    o = score_options_default();
    o.sparse.alpha = 2;
    refuse(&r, &o, ERR_USAGE, "alpha");
    o = score_options_default();
    o.layers = -1;
    refuse(&r, &o, ERR_USAGE, "layers");
    o = score_options_default();
    struct scorer *s;
    assert_int_equal(score_open(&s, r.x, r.g, &o, &r.e), 0);
    int32_t ids[100] = {0};
    float out[100];
    assert_int_equal(s->kind->score(s, &(struct score_call){ids, 100, 100, out}, &r.e), ERR_USAGE);
    assert_int_equal(s->kind->score(s, &(struct score_call){ids, 100, 35, out}, &r.e), ERR_USAGE);
    ids[50] = 5000;
    assert_int_equal(s->kind->score(s, &(struct score_call){ids, 100, 36, out}, &r.e),
                     ERR_MISMATCH);
    s->kind->destroy(s);
    rig_close(&r);
}

// Every file with one tensor renamed is refused by its name, the old or the new one.
static void test_missing(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain();
    shape.layers = 2;
    struct rig r;
    rig_open(&r, &shape);
    FILE *f = fopen(r.path, "rb");
    static char bytes[1 << 21];
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_true(n < sizeof bytes);
    static const char *const names[] = {"token_embd.weight", "blk.0.attn_q.weight",
                                        "blk.1.attn_k.weight", "blk.0.ffn_down.weight",
                                        "blk.1.attn_k_norm.weight"};
    const struct score_options o = score_options_default();
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *at = memmem(bytes, n, names[i], strlen(names[i]));
        assert_non_null(at);
        at[strlen(names[i]) - 1] = 'x';
        struct gguf *g;
        struct scorer *s;
        assert_int_equal(gguf_open_memory(&g, bytes, n, &r.e), 0);
        assert_true(score_open(&s, r.x, g, &o, &r.e) < 0);
        at[strlen(names[i]) - 1] = '\0'; // one that is missing, or the one that should not be there
        assert_non_null(strstr(r.e.text, at));
        gguf_close(g);
        at[strlen(names[i]) - 1] = 't';
    }
    rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sweep),      cmocka_unit_test(test_layers),
        cmocka_unit_test(test_default),    cmocka_unit_test(test_kept),
        cmocka_unit_test(test_kept_turns), cmocka_unit_test(test_memory),
        cmocka_unit_test(test_refused),    cmocka_unit_test(test_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
