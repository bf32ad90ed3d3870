// SPDX-License-Identifier: Apache-2.0
// Attention whose rows choose blocks of keys (struct sparse_rule): choices and outputs against
// doubles, levels against scalar, one call against pieces of any length, and alpha = 0 against
// attention to everything, to the bit.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "ops/kv/rotate.h"

enum { B = SPARSE_BLOCK, MOST = 2700, CASES = 10 };

// Cases: longer ones with heads of 64, 128 and 256, and with latents of 512 values whose keys are
// 576, where a device has kernels for many rows.
static int cases(const struct check *c) {
    return c->device && !c->brief ? CASES + 8 : CASES;
}

// One text; all keys and values are in its pages, and a call says how many of them count.
struct text {
    struct attend_shape shape;
    struct sparse_rule rule;
    struct kv_layout layout;
    int64_t len, end; // positions, and those that choose
    int64_t blocks;   // that there is room for
    size_t bytes;
    unsigned char *image; // host [pages][page_bytes]
    float *q;             // host [len][n_heads][dk]
    // What a run gave.
    float *out;       // [len][n_heads * dv]
    uint32_t *chosen; // [len][n_heads][blocks / 32]
};

static void *room(size_t bytes) {
    void *p = calloc(1, bytes + 1);
    if (!p)
        abort();
    return p;
}

static void fill_pages(struct text *t, struct rng *r) {
    float way[OPS_KEY_MAX], x[OPS_KEY_MAX];
    const struct kv_layout *l = &t->layout;
    for (int h = 0; h < t->shape.n_kv; h++)
        for (int64_t pos = 0; pos < t->len; pos++) {
            unsigned char *page = t->image + pos / KV_PAGE * l->page_bytes;
            int slot = (int)(pos % KV_PAGE), d = t->shape.dk;
            struct kv_row k = kv_row_at(l, &l->k, page, 0, h, slot);
            struct kv_row v = kv_row_at(l, &l->v, page, 0, h, slot);
            if (pos % B == 0)
                fill_random(r, way, d, 4);
            fill_random(r, x, d, 1);
            for (int i = 0; i < d; i++)
                x[i] += way[i];
            kv_codec_of(l->s.codec_k)->encode(x, k.codes, k.scales, d);
            fill_random(r, x, d, 1);
            if (!l->s.v_in_k)
                kv_codec_of(l->s.codec_v)->encode(x, v.codes, v.scales, d);
        }
}

static void text_init(struct text *t, struct check *c, int i) {
    static const float alphas[] = {0.3f, 0.02f, 1, 0.12f, 0};
    static const int64_t rests[] = {0, 1, 7, 8, 127};
    struct rng *r = &c->rng;
    int n_kv = (int)between(r, 1, 2), d = 32 * (int)between(r, 1, 4);
    if (i >= CASES)
        d = 64 << i % 3;
    *t = (struct text){.rule = {true, alphas[i % 5], (int)between(r, 0, 1), (int)between(r, 0, 2)}};
    t->shape = (struct attend_shape){
        .n_heads = n_kv * (int)between(r, 1, 3), .n_kv = n_kv, .dk = d, .dv = d, .scale = 0.15f};
    const enum kv_codec_id k = codec_for(c, (enum kv_codec_id)rng_below(r, KV_CODEC_COUNT));
    const enum kv_codec_id v = codec_for(c, (enum kv_codec_id)rng_below(r, KV_CODEC_COUNT));
    t->layout = kv_layout_for((struct kv_shape){1, n_kv, d, d, false, k, v});
    t->len = B * between(r, 1, 7) + rests[i % 5];
    if (i >= CASES) {
        t->shape.n_heads = n_kv * (int)between(r, 4, 7);
        t->len = B * between(r, 12, 20) + rests[i % 5];
    }
    if (i >= CASES + 6) {
        d = OPS_KEY_MAX;
        t->shape.n_heads = 4 * (int)between(r, 3, 8);
        t->shape.n_kv = n_kv = 1;
        t->shape.dk = d;
        t->shape.dv = OPS_HEAD_MAX;
        t->shape.scale = 0.1f;
        t->layout = kv_layout_for((struct kv_shape){1, 1, d, OPS_HEAD_MAX, true, KV_F16, KV_F16});
    }
    t->end = rng_below(r, 2) ? t->len : between(r, t->len / 2, t->len);
    t->blocks = 32 * between(r, 1, 2);
    t->bytes = (size_t)((t->len / KV_PAGE + 1) * t->layout.page_bytes);
    t->image = room(t->bytes);
    fill_pages(t, r);
    t->q = random_floats(r, t->len * t->shape.n_heads * d, 2);
    t->out = room((size_t)(t->len * t->shape.n_heads * t->shape.dv) * sizeof(float));
    t->chosen = room((size_t)(t->len * t->shape.n_heads * t->blocks / 8));
}

static void text_fini(struct text *t) {
    free(t->image);
    free(t->q);
    free(t->out);
    free(t->chosen);
}

// Rows [from, from + n) as a chain after `from` committed ones.
static void run_piece(struct check *c, struct exec *x, struct text *t, struct attend_args *a,
                      unsigned char **pages, int64_t from, int64_t n) {
    static struct kv_slot store[MOST];
    static int32_t parent[MOST], zero[MOST];
    static int64_t pos[MOST];
    int64_t queries = (int64_t)t->shape.n_heads * t->shape.dk, words = t->blocks / 32;
    int64_t width = (int64_t)t->shape.n_heads * t->shape.dv;
    struct kv_view view = {.pages = pages, .len = from};
    struct rows rows = {.n = n, .token = zero, .parent = parent, .seq = zero, .pos = pos};
    struct buffers r;
    buffers_open(&r, c, x);
    for (int64_t i = 0; i < n; i++) {
        parent[i] = (int32_t)i - 1;
        pos[i] = from + i;
        store[i] = (struct kv_slot){pages[pos[i] / KV_PAGE], (int32_t)(pos[i] % KV_PAGE)};
    }
    struct attend_choice choice = {.rule = t->rule, .end = &t->end, .blocks = t->blocks};
    size_t means = (size_t)(t->blocks * t->shape.n_kv * t->shape.dk) * sizeof(float);
    size_t bits = (size_t)(n * t->shape.n_heads * words) * sizeof(uint32_t);
    uint32_t *chosen = t->chosen + from * t->shape.n_heads * words;
    choice.means = buffers_own(&r, NULL, means);
    choice.chosen = buffers_own(&r, chosen, bits);
    a->choice = t->rule.on ? &choice : NULL;
    a->q = buffers_in(&r, t->q + from * queries, (size_t)(n * queries) * sizeof(float));
    a->seqs = &view;
    a->store = store;
    a->out = act_new(x, n, width);
    exec_ops(x)->attend(x, a, &rows);
    read_act(x, a->out, n, width, t->out + from * width);
    if (t->rule.on)
        buffers_get(&r, chosen, choice.chosen, bits);
    exec_ops(x)->act_destroy(x, a->out);
    buffers_close(&r);
}

// The whole text in pieces of up to `piece` rows.
static void run_text(struct check *c, struct exec *x, struct text *t, int64_t piece) {
    unsigned char *pages[MOST / KV_PAGE + 1];
    struct attend_args a = {.shape = t->shape, .layout = &t->layout};
    struct buffers r;
    buffers_open(&r, c, x);
    unsigned char *image = buffers_in(&r, t->image, t->bytes);
    for (int64_t i = 0; i * KV_PAGE < t->len; i++)
        pages[i] = image + i * t->layout.page_bytes;
    for (int64_t from = 0; from < t->len; from += piece)
        run_piece(c, x, t, &a, pages, from, piece < t->len - from ? piece : t->len - from);
    buffers_close(&r);
}

static bool has_choice(struct check *c) {
    const struct kv_layout l =
        kv_layout_for((struct kv_shape){1, 1, 64, 64, false, KV_F16, KV_F16});
    const struct attend_choice choice = {.rule = {.on = true}};
    const struct attend_args a = {
        .shape = {.n_heads = 1, .n_kv = 1, .dk = 64, .dv = 64}, .layout = &l, .choice = &choice};
    return check_takes(c, &(struct ops_needs){.attend = &a}, "attend, choosing");
}

static void describe(const struct text *t, char *shape, size_t n) {
    snprintf(shape, n, "%d/%d heads of %d, %lld, alpha %g", t->shape.n_heads, t->shape.n_kv,
             t->shape.dk, (long long)t->len, (double)t->rule.alpha);
}

// The text once more, on another exec or in other pieces, by a rule that may be off.
static int64_t differences(struct check *c, struct exec *x, const struct text *t, int64_t piece,
                           bool rule) {
    struct text y = *t;
    int64_t n = t->len * t->shape.n_heads * t->shape.dv;
    y.out = room((size_t)n * sizeof(float));
    y.chosen = room((size_t)(t->len * t->shape.n_heads * t->blocks / 8));
    y.rule.on = rule;
    run_text(c, x, &y, piece);
    n = bit_differences(t->out, y.out, n);
    free(y.out);
    free(y.chosen);
    return n;
}

void check_choice(struct check *c) {
    for (int i = 0; has_choice(c) && !c->device && i < CASES; i += c->brief ? 3 : 1) {
        struct text t;
        char shape[64];
        text_init(&t, c, i);
        describe(&t, shape, sizeof shape);
        run_text(c, c->spec, &t, t.len);
        int64_t n = differences(c, c->exec, &t, t.len, true);
        report(c, n == 0, "attend, choosing", shape, "%lld values differ (exact)", (long long)n);
        text_fini(&t);
    }
}

void check_choice_rule(struct check *c) {
    static const int64_t pieces[] = {1, 7, 16, 64, 127, 128, 129, 300};
    for (int i = 0; has_choice(c) && i < cases(c); i += c->brief ? 3 : 1) {
        struct text t;
        char shape[64];
        text_init(&t, c, i);
        describe(&t, shape, sizeof shape);
        run_text(c, c->exec, &t, t.len);
        int64_t piece =
            i < CASES ? pieces[(uint32_t)i % 7 + rng_below(&c->rng, 2)] : between(&c->rng, 60, 700);
        int64_t n = differences(c, c->other, &t, piece, true);
        report(c, n == 0, "choosing, pieces", shape, "%lld values differ (exact), pieces of %lld",
               (long long)n, (long long)piece);
        n = differences(c, c->exec, &t, t.len, false);
        report(c, t.rule.alpha == 0 ? n == 0 : n > 0 || t.rule.alpha < 1 || t.len < 5 * B,
               "choosing, everything", shape, "%lld values differ from dense", (long long)n);
        text_fini(&t);
    }
}

// Doubles.

struct errors {
    double out;
    int64_t choices, kept, all;
};

// K or V of one head, [len][dk].
static double *decoded(const struct text *t, bool value, int head) {
    const struct kv_layout *l = &t->layout;
    double *y = room((size_t)(t->len * t->shape.dk) * sizeof *y);
    int dim = value ? t->shape.dv : t->shape.dk;
    float x[OPS_KEY_MAX];
    for (int64_t pos = 0; pos < t->len; pos++) {
        unsigned char *page = t->image + pos / KV_PAGE * l->page_bytes;
        struct kv_row row =
            kv_row_at(l, value ? &l->v : &l->k, page, 0, head, (int)(pos % KV_PAGE));
        kv_codec_of(value ? l->s.codec_v : l->s.codec_k)->decode(row.codes, row.scales, x, dim);
        if (value && l->rotate_v)
            kv_rotate_back(x, dim, l->rotate_v);
        for (int i = 0; i < dim; i++)
            y[pos * t->shape.dk + i] = (double)x[i];
    }
    return y;
}

static double dot(const float *q, const double *k, int d) {
    double s = 0;
    for (int i = 0; i < d; i++)
        s += (double)q[i] * k[i];
    return s;
}

static bool bit_of(const struct text *t, int64_t row, int h, int64_t b) {
    const uint32_t *w = t->chosen + (row * t->shape.n_heads + h) * (t->blocks / 32);
    return w[b / 32] >> b % 32 & 1;
}

// Whether the row's bits are what the rule gives; scores within 1e-4 of the bound may be either.
static void compare_choice(const struct text *t, const double *k, int64_t row, int h,
                           struct errors *e) {
    int d = t->shape.dk;
    int64_t m = row / B;
    double s[MOST / B + 1], max = -INFINITY, mean[OPS_KEY_MAX];
    for (int64_t b = 0; b < m; b++) {
        memset(mean, 0, sizeof mean);
        for (int64_t i = 0; i < B * d; i++)
            mean[i % d] += k[b * B * d + i] / B;
        s[b] = (double)t->shape.scale * dot(t->q + (row * t->shape.n_heads + h) * d, mean, d);
        max = fmax(max, s[b]);
    }
    for (int64_t b = 0; b <= m; b++) {
        double over = b < m ? s[b] - max - log((double)t->rule.alpha) : 1;
        bool want = b == m || over >= 0 || b < t->rule.sinks || m - b < t->rule.window;
        bool got = bit_of(t, row, h, b);
        e->choices += want != got && fabs(over) > 1e-4;
        e->kept += got;
        e->all++;
    }
}

static void compare_row(const struct text *t, const double *k, const double *v, int64_t row, int h,
                        struct errors *e) {
    int d = t->shape.dk, dv = t->shape.dv;
    const float *got = t->out + (row * t->shape.n_heads + h) * dv;
    double want[OPS_HEAD_MAX] = {0}, sum = 0, off = 0, size = 0;
    for (int64_t p = 0; p <= row; p++) {
        if (row < t->end && !bit_of(t, row, h, p / B))
            continue;
        double w = exp((double)t->shape.scale *
                       dot(t->q + (row * t->shape.n_heads + h) * d, k + p * d, d));
        sum += w;
        for (int i = 0; i < dv; i++)
            want[i] += w * v[p * d + i];
    }
    for (int i = 0; i < dv; i++) {
        off += pow((double)got[i] - want[i] / sum, 2);
        size += pow(want[i] / sum, 2);
    }
    double error = sqrt(off / size);
    e->out = error <= e->out ? e->out : isfinite(error) ? error : INFINITY;
}

// A sample of rows.
static void compare_head(struct check *c, const struct text *t, int h, struct errors *e) {
    int kv = h / (t->shape.n_heads / t->shape.n_kv);
    double *k = decoded(t, false, kv), *v = decoded(t, true, kv);
    for (int64_t row = 0; row < t->len;
         row += 1 + (int64_t)rng_below(&c->rng, t->len > B * 8 ? 160 : 40)) {
        if (row < t->end)
            compare_choice(t, k, row, h, e);
        compare_row(t, k, v, row, h, e);
    }
    free(k);
    free(v);
}

void check_choice_double(struct check *c) {
    for (int i = 0; has_choice(c) && i < cases(c); i += c->brief ? 3 : 1) {
        struct text t;
        struct errors e = {0};
        char shape[64];
        text_init(&t, c, i);
        describe(&t, shape, sizeof shape);
        run_text(c, c->exec, &t, i < CASES ? B * between(&c->rng, 1, 3) + 5 : t.len);
        for (int h = 0; h < t.shape.n_heads; h++)
            compare_head(c, &t, h, &e);
        report(c, e.choices == 0 && e.out <= (c->device ? 4e-3 : 1e-5), "choosing, doubles", shape,
               "out %.1e, %lld other choices, %.0f %% of blocks", e.out, (long long)e.choices,
               100 * (double)e.kept / (double)e.all);
        text_fini(&t);
    }
}
