// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope_store and attend over committed pages and forests: against doubles, between levels,
// and rule E: a row of a tree gives the bits that it gives alone after its ancestors are committed.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck.h"

enum { SEQS = 2, PAGES = 6, LAYERS = 2, LAYER = 1, STORE_PAGES = 4 };

struct setting {
    int n_heads, n_kv, head_dim, rope_dims, mask;
    int64_t window;
    uint32_t type_k, type_v;
    bool gated;
};

// One forest over sequences whose committed keys lie in pages.
struct scene {
    struct setting s;
    struct kv_layout layout;
    unsigned char *pages[SEQS][PAGES], *stores[STORE_PAGES];
    struct kv_view views[SEQS];
    struct kv_slot slot[1024];
    struct forest f;
    float *q, *k, *v, *q_norm, *k_norm;
};

static float *random_floats(struct rng *r, int64_t n, float scale) {
    float *p = malloc((size_t)n * sizeof *p);
    if (!p)
        abort();
    fill_random(r, p, n, scale);
    return p;
}

static unsigned char *head_row(const struct kv_layout *l, unsigned char *page, bool value, int head,
                               int slot) {
    unsigned char *p = page + LAYER * l->layer_bytes;
    if (!value)
        return p + (head * KV_PAGE + slot) * l->k_bytes;
    return p + l->n_heads * KV_PAGE * l->k_bytes + (head * KV_PAGE + slot) * l->v_bytes;
}

static void fill_page(struct scene *c, struct rng *r, unsigned char *page) {
    const struct kv_layout *l = &c->layout;
    float x[OPS_HEAD_MAX];
    for (int h = 0; h < l->n_heads; h++)
        for (int slot = 0; slot < KV_PAGE; slot++)
            for (int value = 0; value < 2; value++) {
                fill_random(r, x, l->head_dim, value ? 1 : 2);
                quant_format(value ? l->type_v : l->type_k)
                    ->quantize(x, head_row(l, page, value, h, slot), l->head_dim);
            }
}

static struct setting random_setting(struct rng *r) {
    static const int dims[] = {32, 64, 96, 128, 256};
    static const uint32_t types[] = {TYPE_F32, TYPE_F16, TYPE_BF16, TYPE_Q8_0};
    struct setting s = {.n_kv = (int)between(r, 1, 3), .head_dim = dims[rng_below(r, 5)]};
    s.n_heads = s.n_kv * (int)between(r, 1, 4);
    s.rope_dims = rng_below(r, 2) ? s.head_dim : s.head_dim / 4;
    s.window = rng_below(r, 2) ? between(r, 1, 150) : 0;
    s.type_k = types[rng_below(r, 4)];
    s.type_v = types[rng_below(r, 4)];
    s.gated = rng_below(r, 2);
    return s;
}

// rows: about how many a sequence gets.
static void scene_init(struct scene *c, struct rng *r, struct setting s, enum forest_kind kind,
                       int rows) {
    memset(c, 0, sizeof *c);
    c->s = s;
    kv_layout_init(&c->layout, LAYERS, s.n_kv, s.head_dim, s.type_k, s.type_v);
    forest_clear(&c->f);
    for (int q = 0; q < SEQS; q++) {
        int64_t len =
            between(r, 0, 3) ? between(r, 0, 230) : 64 * between(r, 0, 3) + between(r, 0, 1);
        int64_t first = s.window > 0 && len >= s.window ? (len - s.window) / KV_PAGE : 0;
        for (int p = 0; p < PAGES; p++) {
            if (p < first) // below the window: never read
                continue;
            c->pages[q][p] = calloc(1, (size_t)c->layout.page_bytes);
            fill_page(c, r, c->pages[q][p]);
        }
        c->views[q] = (struct kv_view){c->pages[q], len};
        forest_add(&c->f, r, kind, q, len, (int)between(r, 1, rows));
    }
    for (int p = 0; p < STORE_PAGES; p++)
        c->stores[p] = calloc(1, (size_t)c->layout.page_bytes);
    for (int64_t i = 0; i < c->f.rows.n; i++)
        c->slot[i] = (struct kv_slot){c->stores[i / KV_PAGE], (int32_t)(i * 7 % KV_PAGE)};
    int64_t n = c->f.rows.n;
    c->q = random_floats(r, n * s.n_heads * 2 * s.head_dim, 2);
    c->k = random_floats(r, n * s.n_kv * s.head_dim, 2);
    c->v = random_floats(r, n * s.n_kv * s.head_dim, 1);
    c->q_norm = random_floats(r, s.head_dim, 2);
    c->k_norm = random_floats(r, s.head_dim, 2);
}

static void scene_fini(struct scene *c) {
    for (int q = 0; q < SEQS; q++)
        for (int p = 0; p < PAGES; p++)
            free(c->pages[q][p]);
    for (int p = 0; p < STORE_PAGES; p++)
        free(c->stores[p]);
    free(c->q);
    free(c->k);
    free(c->v);
    free(c->q_norm);
    free(c->k_norm);
}

static void store_keys(struct scene *c, struct exec *x, float *q_out) {
    const struct setting *s = &c->s;
    struct qk_args a = {.n_heads = s->n_heads,
                        .n_kv = s->n_kv,
                        .head_dim = s->head_dim,
                        .rope_dims = s->rope_dims,
                        .rope_base = 1e6f,
                        .eps = 1e-6f,
                        .q_norm = c->q_norm,
                        .k_norm = c->k_norm,
                        .q = c->q,
                        .q_stride = 2 * s->head_dim,
                        .k = c->k,
                        .v = c->v,
                        .layout = &c->layout,
                        .layer = LAYER,
                        .store = c->slot,
                        .q_out = q_out};
    exec_ops(x)->qk_norm_rope_store(x, &a, &c->f.rows);
}

// The floats of an activation, by a product with the identity.
static void read_act(struct exec *x, const struct act *act, int64_t n, int64_t k, float *out) {
    float *one = calloc((size_t)(k * k), sizeof *one);
    struct tensor t = {
        .name = "one", .type = TYPE_F32, .n_dims = 2, .ne = {k, k, 1, 1}, .data = one};
    struct weight *w;
    struct err e;
    for (int64_t i = 0; i < k; i++)
        one[i * k + i] = 1;
    if (exec_ops(x)->weight_create(x, &t, &w, &e))
        abort();
    exec_ops(x)->linear(x, &(struct linear_job){w, out, false}, 1, act, n);
    exec_ops(x)->weight_destroy(x, w);
    free(one);
}

// The rows to attend for, and where their inputs are.
struct query {
    const struct rows *rows;
    const struct kv_view *views;
    const struct kv_slot *slots;
    const float *q, *gate;
};

// All rows of the scene, with queries as the store op left them.
static struct query scene_query(const struct scene *c, const float *q) {
    return (struct query){&c->f.rows, c->views, c->slot, q, c->q + c->s.head_dim};
}

static void run_attend(const struct scene *c, struct exec *x, struct query in, float *out) {
    const struct setting *s = &c->s;
    const struct rows *rows = in.rows;
    int64_t k = (int64_t)s->n_heads * s->head_dim;
    struct act *act;
    struct err e;
    if (exec_ops(x)->act_create(x, rows->n, k, &act, &e))
        abort();
    struct attend_args a = {.n_heads = s->n_heads,
                            .n_kv = s->n_kv,
                            .head_dim = s->head_dim,
                            .scale = 1 / sqrtf((float)s->head_dim),
                            .mask = s->mask,
                            .window = s->window,
                            .q = in.q,
                            .gate = s->gated ? in.gate : NULL,
                            .gate_stride = 2 * s->head_dim,
                            .layout = &c->layout,
                            .layer = LAYER,
                            .seqs = in.views,
                            .store = in.slots,
                            .out = act};
    exec_ops(x)->attend(x, &a, rows);
    read_act(x, act, rows->n, k, out);
    exec_ops(x)->act_destroy(x, act);
}

static void describe(const struct setting *s, char *text, size_t size) {
    snprintf(text, size, "%d/%dx%d %s/%s w%lld", s->n_heads, s->n_kv, s->head_dim,
             quant_format(s->type_k)->name, quant_format(s->type_v)->name, (long long)s->window);
}

// Keeps copies of the store pages, or counts the pages that differ from them.
static int compare_stores(const struct scene *w, unsigned char *kept[STORE_PAGES], bool keep) {
    size_t bytes = (size_t)w->layout.page_bytes;
    int differ = 0;
    for (int p = 0; p < STORE_PAGES; p++)
        if (keep)
            kept[p] = memcpy(malloc(bytes), w->stores[p], bytes);
        else
            differ += memcmp(kept[p], w->stores[p], bytes) != 0;
    return differ;
}

// Store bytes and outputs of two levels.
void check_attend(struct check *c) {
    int64_t diff = 0, stored = 0;
    bool guards = true;
    enum { CASES = 24 };
    for (int i = 0; i < CASES; i++) {
        struct scene *w = malloc(sizeof *w);
        struct setting s = random_setting(&c->rng);
        s.mask = i % 3 == 2 ? ATTEND_BLOCK : ATTEND_PATH;
        scene_init(w, &c->rng, s, i % 2 ? CHAIN : TREE, i % 4 ? 20 : 100);
        int64_t n = w->f.rows.n * s.n_heads * s.head_dim;
        struct guarded q[2], out[2];
        unsigned char *kept[STORE_PAGES];
        for (int e = 0; e < 2; e++) {
            struct exec *x = e ? c->exec : c->spec;
            q[e] = guarded_new(n);
            out[e] = guarded_new(n);
            store_keys(w, x, q[e].p);
            stored += compare_stores(w, kept, e == 0);
            run_attend(w, x, scene_query(w, q[e].p), out[e].p);
        }
        diff += bit_differences(q[0].p, q[1].p, n) + bit_differences(out[0].p, out[1].p, n);
        for (int e = 0; e < 2; e++)
            guards = guarded_free(&q[e]) && guarded_free(&out[e]) && guards;
        for (int p = 0; p < STORE_PAGES; p++)
            free(kept[p]);
        scene_fini(w);
        free(w);
    }
    report(c, diff == 0 && stored == 0 && guards, "qk_store, attend", "24 forests",
           "%lld values, %lld pages differ (exact)", (long long)diff, (long long)stored);
}

// Row i alone, with its ancestors committed: copies pages, puts the ancestors in their places.
static int64_t alone_differences(struct scene *w, struct exec *x, int32_t i, const float *q,
                                 const float *all) {
    const struct setting *s = &w->s;
    int32_t path[1024], seq = w->f.seq[i];
    int n = forest_path(&w->f, i, path);
    int64_t k = (int64_t)s->n_heads * s->head_dim, len = w->views[seq].len;
    unsigned char *pages[PAGES] = {0};
    for (int p = 0; p < PAGES; p++)
        if (w->pages[seq][p])
            pages[p] = memcpy(malloc((size_t)w->layout.page_bytes), w->pages[seq][p],
                              (size_t)w->layout.page_bytes);
    for (int t = 0; t + 1 < n; t++) {
        int64_t pos = len + t;
        struct kv_slot to = {pages[pos / KV_PAGE], (int32_t)(pos % KV_PAGE)};
        if (to.page)
            exec_ops(x)->kv_copy(x, &w->layout, &to, &w->slot[path[t]], 1);
    }
    struct kv_view view = {pages, len + n - 1};
    int32_t token = 0, parent = -1, zero = 0;
    struct rows one = {1, &token, &parent, &zero, &w->f.pos[i]};
    struct guarded out = guarded_new(k);
    const float *gate = w->q + (int64_t)i * s->n_heads * 2 * s->head_dim + s->head_dim;
    run_attend(w, x, (struct query){&one, &view, &w->slot[i], q + i * k, gate}, out.p);
    int64_t diff = bit_differences(out.p, all + i * k, k) + !guarded_free(&out);
    for (int p = 0; p < PAGES; p++)
        free(pages[p]);
    return diff;
}

void check_attend_rule(struct check *c) {
    int64_t diff = 0, seen = 0;
    struct exec *three = NULL;
    struct err e;
    if (exec_create_cpu(&three, c->level, 3, &e))
        abort();
    for (int i = 0; i < 16; i++) {
        struct scene *w = malloc(sizeof *w);
        scene_init(w, &c->rng, random_setting(&c->rng), i % 2 ? CHAIN : TREE, i % 4 ? 30 : 100);
        int64_t n = w->f.rows.n * w->s.n_heads * w->s.head_dim;
        float *q = malloc((size_t)n * 4), *all = malloc((size_t)n * 4);
        store_keys(w, three, q);
        run_attend(w, three, scene_query(w, q), all);
        for (int32_t row = 0; row < w->f.rows.n; row += (int32_t)between(&c->rng, 1, 9)) {
            diff += alone_differences(w, c->exec, row, q, all);
            seen++;
        }
        free(q);
        free(all);
        scene_fini(w);
        free(w);
    }
    exec_destroy(three);
    report(c, diff == 0, "attend: rule E2", "rows of forests, alone",
           "%lld values differ in %lld rows", (long long)diff, (long long)seen);
}

// Keys that row i sees, decoded: appended to k and v, [n][head_dim].
static int visible(const struct scene *w, int32_t i, int kv, float *k, float *v) {
    const struct setting *s = &w->s;
    const struct rows *r = &w->f.rows;
    const struct kv_view *view = &w->views[r->seq[i]];
    int n = 0;
    for (int64_t p = 0; p < view->len; p++) {
        if (s->window > 0 && r->pos[i] - p >= s->window)
            continue;
        struct kv_slot at = {view->pages[p / KV_PAGE], (int32_t)(p % KV_PAGE)};
        quant_format(s->type_k)->dequantize(head_row(&w->layout, at.page, false, kv, at.slot),
                                            k + (int64_t)n * s->head_dim, s->head_dim);
        quant_format(s->type_v)->dequantize(head_row(&w->layout, at.page, true, kv, at.slot),
                                            v + (int64_t)n++ * s->head_dim, s->head_dim);
    }
    for (int32_t a = 0; a < r->n; a++) {
        bool sees = s->mask == ATTEND_BLOCK && r->seq[a] == r->seq[i];
        for (int32_t b = i; b >= 0 && !sees && s->mask == ATTEND_PATH; b = r->parent[b])
            sees = a == b;
        int64_t away = r->pos[i] - r->pos[a];
        if (!sees || (s->window > 0 && (away >= s->window || -away >= s->window)))
            continue;
        const struct kv_slot *at = &w->slot[a];
        quant_format(s->type_k)->dequantize(head_row(&w->layout, at->page, false, kv, at->slot),
                                            k + (int64_t)n * s->head_dim, s->head_dim);
        quant_format(s->type_v)->dequantize(head_row(&w->layout, at->page, true, kv, at->slot),
                                            v + (int64_t)n++ * s->head_dim, s->head_dim);
    }
    return n;
}

// One head of one row in doubles; returns its relative error.
static double head_error(const struct scene *w, int32_t i, int head, const float *q,
                         const float *out, float *k, float *v) {
    const struct setting *s = &w->s;
    int dim = s->head_dim, n = visible(w, i, head / (s->n_heads / s->n_kv), k, v);
    int64_t at = ((int64_t)i * s->n_heads + head) * dim;
    double *p = calloc((size_t)n, sizeof *p), sum = 0, err = 0, size = 0;
    for (int j = 0; j < n; j++) {
        for (int d = 0; d < dim; d++)
            p[j] += (double)q[at + d] * (double)k[j * dim + d];
        p[j] = exp(p[j] / sqrt((double)dim));
        sum += p[j];
    }
    for (int d = 0; d < dim; d++) {
        double o = 0, g = (double)w->q[2 * at + dim + d];
        for (int j = 0; j < n; j++)
            o += p[j] / sum * (double)v[j * dim + d];
        if (s->gated)
            o /= 1 + exp(-g);
        err += ((double)out[at + d] - o) * ((double)out[at + d] - o);
        size += o * o;
    }
    free(p);
    return sqrt(err / (size + 1e-30));
}

// Query norm and rotary embedding of one head in doubles.
static double query_error(const struct scene *w, int32_t i, int head, const float *q) {
    const struct setting *s = &w->s;
    int dim = s->head_dim, pairs = s->rope_dims / 2;
    const float *x = w->q + ((int64_t)i * s->n_heads + head) * 2 * dim;
    double y[OPS_HEAD_MAX], sum = 0, worst = 0;
    for (int d = 0; d < dim; d++)
        sum += (double)x[d] * (double)x[d];
    for (int d = 0; d < dim; d++)
        y[d] = (double)x[d] / sqrt(sum / dim + 1e-6) * (double)w->q_norm[d];
    for (int d = 0; d < pairs; d++) {
        double angle = (double)w->f.pos[i] * pow(1e6, -2.0 * d / s->rope_dims), a = y[d];
        y[d] = a * cos(angle) - y[d + pairs] * sin(angle);
        y[d + pairs] = y[d + pairs] * cos(angle) + a * sin(angle);
    }
    for (int d = 0; d < dim; d++) {
        double e = fabs(y[d] - (double)q[((int64_t)i * s->n_heads + head) * dim + d]);
        worst = e > worst ? e : worst;
    }
    return worst;
}

void check_attend_double(struct check *c) {
    for (int i = 0; i < 8; i++) {
        struct scene *w = malloc(sizeof *w);
        struct setting s = random_setting(&c->rng);
        s.mask = i % 3 == 2 ? ATTEND_BLOCK : ATTEND_PATH;
        s.window = i % 4 < 2 ? 0 : s.window;
        scene_init(w, &c->rng, s, i % 2 ? CHAIN : TREE, 40);
        int64_t n = w->f.rows.n * s.n_heads * s.head_dim;
        float *q = malloc((size_t)n * 4), *out = malloc((size_t)n * 4);
        float *k = malloc(1024 * OPS_HEAD_MAX * 4), *v = malloc(1024 * OPS_HEAD_MAX * 4);
        store_keys(w, c->exec, q);
        run_attend(w, c->exec, scene_query(w, q), out);
        double worst = 0, query = 0;
        for (int32_t row = 0; row < w->f.rows.n; row++)
            for (int h = 0; h < s.n_heads; h++) {
                double e = head_error(w, row, h, q, out, k, v), g = query_error(w, row, h, q);
                worst = e > worst ? e : worst;
                query = g > query ? g : query;
            }
        char text[64];
        describe(&s, text, sizeof text);
        report(c, worst < 1e-5 && query < 1e-5, "attend / double", text,
               "relative %.1e, query %.1e (max 1e-5)%s", worst, query,
               s.mask == ATTEND_BLOCK ? ", block" : "");
        free(q);
        free(out);
        free(k);
        free(v);
        scene_fini(w);
        free(w);
    }
}

void check_attend_time(struct check *c) {
    static const int counts[] = {1, 4, 16, 64};
    struct setting s = {4, 2, 64, 64, ATTEND_PATH, 0, TYPE_F16, TYPE_F16, true};
    for (size_t i = 0; i < 4; i++) {
        struct scene *w = malloc(sizeof *w);
        scene_init(w, &c->rng, s, CHAIN, 1);
        forest_clear(&w->f);
        w->views[0].len = 300;
        forest_add(&w->f, &c->rng, CHAIN, 0, 300, counts[i]);
        for (int j = 0; j < counts[i]; j++)
            w->slot[j] = (struct kv_slot){w->stores[0], j};
        struct rng r = {1};
        int64_t n = (int64_t)counts[i] * s.n_heads * 2 * s.head_dim;
        float *q = random_floats(&r, n, 1), *out = random_floats(&r, n, 1);
        free(w->q);
        free(w->k);
        free(w->v);
        w->q = random_floats(&r, n, 1);
        w->k = random_floats(&r, n, 1);
        w->v = random_floats(&r, n, 1);
        struct act *act;
        struct err e;
        if (exec_ops(c->exec)->act_create(c->exec, counts[i], 256, &act, &e))
            abort();
        struct attend_args a = {.n_heads = 4,
                                .n_kv = 2,
                                .head_dim = 64,
                                .scale = 0.125f,
                                .q = q,
                                .gate = w->q + 64,
                                .gate_stride = 128,
                                .layout = &w->layout,
                                .layer = LAYER,
                                .seqs = w->views,
                                .store = w->slot,
                                .out = act};
        double best[2] = {1e30, 1e30};
        for (int t = 0; t < 50; t++) {
            double x = now_us();
            store_keys(w, c->exec, q);
            double y = now_us();
            exec_ops(c->exec)->attend(c->exec, &a, &w->f.rows);
            double z = now_us();
            best[0] = y - x < best[0] ? y - x : best[0];
            best[1] = z - y < best[1] ? z - y : best[1];
        }
        char text[64];
        snprintf(text, sizeof text, "4/2x64 F16 300 keys n=%d", counts[i]);
        report(c, true, "time attend", text, "qk_store %8.1f us, attend %8.1f us", best[0],
               best[1]);
        exec_ops(c->exec)->act_destroy(c->exec, act);
        free(q);
        free(out);
        scene_fini(w);
        free(w);
    }
}
