// SPDX-License-Identifier: Apache-2.0
// qk_norm_rope_store and attend over committed pages and forests: against doubles, between levels,
// and rule E: a row of a tree gives the bits that it gives alone after its ancestors are committed.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "ops/kv/rotate.h"

enum { SEQS = 64, PAGES = 6, LAYERS = 2, LAYER = 1, STORE_PAGES = 4, FEW = 16 };

// Relative errors of a device. Queries are f32 all the way; stored keys are rounded to their type
// after sums in another order, which turns a value to its neighbour now and then; outputs become
// fp16 activations.
static const double DEVICE_QUERY = 1e-5, DEVICE_STORED = 1e-3, DEVICE_ATTEND = 1e-3;

struct setting {
    int seqs, n_heads, n_kv, head_dim, rope_dims, mask;
    int64_t window;
    enum kv_codec_id codec_k, codec_v;
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

static struct kv_row head_row(const struct kv_layout *l, unsigned char *page, bool value, int head,
                              int slot) {
    return kv_row_at(l, value ? &l->v : &l->k, page, LAYER, head, slot);
}

// The stored row of a key or value as floats: keys rotated as queries are, values as they were
// before a rotation.
static void read_row(const struct kv_layout *l, struct kv_slot at, bool value, int head, float *x) {
    struct kv_row row = head_row(l, at.page, value, head, at.slot);
    int dim = value ? l->s.dv : l->s.dk;
    kv_codec_of(value ? l->s.codec_v : l->s.codec_k)->decode(row.codes, row.scales, x, dim);
    if (value && l->rotate_v)
        kv_rotate_back(x, dim, l->rotate_v);
}

static void fill_page(struct scene *c, struct rng *r, unsigned char *page) {
    const struct kv_layout *l = &c->layout;
    float x[OPS_HEAD_MAX];
    for (int h = 0; h < l->s.n_heads; h++)
        for (int slot = 0; slot < KV_PAGE; slot++)
            for (int value = 0; value < 2; value++) {
                int dim = value ? l->s.dv : l->s.dk;
                struct kv_row row = head_row(l, page, value, h, slot);
                fill_random(r, x, dim, value ? 1 : 2);
                kv_codec_of(value ? l->s.codec_v : l->s.codec_k)
                    ->encode(x, row.codes, row.scales, dim);
            }
}

static struct setting random_setting(struct check *c) {
    struct rng *r = &c->rng;
    static const int dims[] = {32, 64, 96, 128, 160, 192, 256};
    struct setting s = {
        .seqs = 2, .n_kv = (int)between(r, 1, 3), .head_dim = dims[rng_below(r, 7)]};
    s.n_heads = s.n_kv * (int)between(r, 1, 4);
    s.rope_dims = rng_below(r, 2) ? s.head_dim : s.head_dim / 4;
    s.window = rng_below(r, 2) ? between(r, 1, 150) : 0;
    s.codec_k = codec_for(c, (enum kv_codec_id)rng_below(r, KV_CODEC_COUNT));
    s.codec_v = codec_for(c, (enum kv_codec_id)rng_below(r, KV_CODEC_COUNT));
    s.gated = rng_below(r, 2);
    return s;
}

// rows: about how many a sequence gets.
static void scene_init(struct scene *c, struct rng *r, struct setting s, enum forest_kind kind,
                       int rows) {
    memset(c, 0, sizeof *c);
    c->s = s;
    c->layout = kv_layout_for(
        (struct kv_shape){LAYERS, s.n_kv, s.head_dim, s.head_dim, false, s.codec_k, s.codec_v});
    forest_clear(&c->f);
    for (int q = 0; q < s.seqs; q++) {
        int64_t len = rng_below(r, 4) ? between(r, 0, 230) : 64 * between(r, 0, 3) + q % 2;
        int64_t first = s.window > 0 && len >= s.window ? (len - s.window) / KV_PAGE : 0;
        for (int p = 0; p < PAGES; p++) {
            if (p < first) // below the window: never read
                continue;
            c->pages[q][p] = calloc(1, (size_t)c->layout.page_bytes);
            fill_page(c, r, c->pages[q][p]);
        }
        c->views[q] = (struct kv_view){c->pages[q], len};
        forest_grow(&c->f, r, kind, q, len, (int)between(r, 1, rows));
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

// The scene in an exec's memory. Keys and values of its rows are stored by stage_store, which also
// brings the stored pages back to the scene, for references that read them.
struct stage {
    struct scene *w;
    struct exec *x;
    struct buffers buffers;
    unsigned char *pages[SEQS][PAGES], *stores[STORE_PAGES];
    struct kv_view views[SEQS];
    struct kv_slot slot[1024];
    float *q, *k, *v, *q_norm, *k_norm, *q_out;
};

static void stage_init(struct stage *t, struct check *c, struct scene *w, struct exec *x) {
    const struct setting *s = &w->s;
    size_t page = (size_t)w->layout.page_bytes, n = (size_t)w->f.rows.n * sizeof(float);
    memset(t, 0, sizeof *t);
    t->w = w;
    t->x = x;
    buffers_open(&t->buffers, c, x);
    for (int q = 0; q < s->seqs; q++) {
        for (int p = 0; p < PAGES; p++)
            if (w->pages[q][p])
                t->pages[q][p] = buffers_in(&t->buffers, w->pages[q][p], page);
        t->views[q] = (struct kv_view){t->pages[q], w->views[q].len};
    }
    for (int p = 0; p < STORE_PAGES; p++)
        t->stores[p] = buffers_own(&t->buffers, w->stores[p], page);
    for (int64_t i = 0; i < w->f.rows.n; i++)
        for (int p = 0; p < STORE_PAGES; p++)
            if (w->slot[i].page == w->stores[p])
                t->slot[i] = (struct kv_slot){t->stores[p], w->slot[i].slot};
    t->q = buffers_in(&t->buffers, w->q, n * (size_t)(s->n_heads * 2 * s->head_dim));
    t->k = buffers_in(&t->buffers, w->k, n * (size_t)(s->n_kv * s->head_dim));
    t->v = buffers_in(&t->buffers, w->v, n * (size_t)(s->n_kv * s->head_dim));
    t->q_norm = buffers_in(&t->buffers, w->q_norm, (size_t)s->head_dim * sizeof(float));
    t->k_norm = buffers_in(&t->buffers, w->k_norm, (size_t)s->head_dim * sizeof(float));
    t->q_out = buffers_own(&t->buffers, NULL, n * (size_t)(s->n_heads * s->head_dim));
}

static void stage_fini(struct stage *t) {
    buffers_close(&t->buffers);
}

static void call_store(struct stage *t) {
    const struct setting *s = &t->w->s;
    struct qk_args a = {.n_heads = s->n_heads,
                        .n_kv = s->n_kv,
                        .dk = s->head_dim,
                        .dv = s->head_dim,
                        .rope = {.dims = s->rope_dims, .base = 1e6f},
                        .eps = 1e-6f,
                        .q_norm = t->q_norm,
                        .k_norm = t->k_norm,
                        .q = t->q,
                        .q_stride = 2 * s->head_dim,
                        .k = t->k,
                        .v = t->v,
                        .layout = &t->w->layout,
                        .layer = LAYER,
                        .store = t->slot,
                        .q_out = t->q_out};
    exec_ops(t->x)->qk_norm_rope_store(t->x, &a, &t->w->f.rows);
}

// q_out: host [n][n_heads][head_dim], or NULL.
static void stage_store(struct stage *t, float *q_out) {
    const struct setting *s = &t->w->s;
    call_store(t);
    for (int p = 0; p < STORE_PAGES; p++)
        buffers_get(&t->buffers, t->w->stores[p], t->stores[p], (size_t)t->w->layout.page_bytes);
    if (q_out)
        buffers_get(&t->buffers, q_out, t->q_out,
                    (size_t)(t->w->f.rows.n * s->n_heads * s->head_dim) * sizeof *q_out);
}

// The rows to attend for, and where their inputs are in the exec's memory.
struct query {
    const struct rows *rows;
    const struct kv_view *views;
    const struct kv_slot *slots;
    const float *q, *gate; // from row `first` on
    int64_t first;
};

// All rows of the scene, with queries as the store op left them.
static struct query stage_query(const struct stage *t) {
    return (struct query){&t->w->f.rows, t->views, t->slot, t->q_out, t->q + t->w->s.head_dim, 0};
}

static void call_attend(const struct stage *t, struct query in, struct act *act) {
    const struct setting *s = &t->w->s;
    struct attend_args a = {.shape = {.n_heads = s->n_heads,
                                      .n_kv = s->n_kv,
                                      .dk = s->head_dim,
                                      .dv = s->head_dim,
                                      .scale = 1 / sqrtf((float)s->head_dim),
                                      .mask = s->mask,
                                      .window = s->window},
                            .q = in.q,
                            .gate = s->gated ? in.gate : NULL,
                            .gate_stride = 2 * s->head_dim,
                            .layout = &t->w->layout,
                            .layer = LAYER,
                            .seqs = in.views,
                            .store = in.slots,
                            .first = in.first,
                            .out = act};
    exec_ops(t->x)->attend(t->x, &a, in.rows);
}

static struct act *new_act(struct exec *x, int64_t n, int64_t k) {
    struct act *act;
    struct err e;
    if (exec_ops(x)->act_create(x, n, k, &act, &e))
        abort();
    return act;
}

// out: host [rows from `first` on][n_heads * head_dim].
static void stage_attend(const struct stage *t, struct query in, float *out) {
    int64_t k = (int64_t)t->w->s.n_heads * t->w->s.head_dim, n = in.rows->n - in.first;
    struct act *act = new_act(t->x, n, k);
    call_attend(t, in, act);
    read_act(t->x, act, n, k, out);
    exec_ops(t->x)->act_destroy(t->x, act);
}

static bool has_attend(struct check *c) {
    const bool norm = CHECK_HAS(c, qk_norm_rope_store), attend = CHECK_HAS(c, attend);
    const bool copy = CHECK_HAS(c, kv_copy); // each says so where it is missing
    return norm && attend && copy;
}

static void describe(const struct setting *s, char *text, size_t size) {
    snprintf(text, size, "%d/%dx%d %s/%s w%lld", s->n_heads, s->n_kv, s->head_dim,
             kv_codec_of(s->codec_k)->name, kv_codec_of(s->codec_v)->name, (long long)s->window);
}

// Keys and values that the scene's rows stored, as f32: [rows][K, V][n_kv][head_dim].
static float *stored_values(const struct scene *w) {
    const struct setting *s = &w->s;
    int64_t dim = s->head_dim, at = 0;
    float *out = malloc((size_t)(w->f.rows.n * 2 * s->n_kv * dim) * sizeof *out);
    for (int64_t i = 0; i < w->f.rows.n; i++)
        for (int value = 0; value < 2; value++)
            for (int h = 0; h < s->n_kv; h++, at += dim)
                read_row(&w->layout, w->slot[i], value, h, out + at);
    return out;
}

// Bytes of the store pages that differ from kept ones (of another level).
static int64_t page_differences(const struct scene *w, unsigned char *const *kept) {
    int64_t differ = 0;
    for (int p = 0; p < STORE_PAGES; p++)
        for (int64_t i = 0; i < w->layout.page_bytes; i++)
            differ += kept[p][i] != w->stores[p][i];
    return differ;
}

struct attend_tally {
    struct tally queries, stored, out;
    int64_t bytes; // of pages, between CPU levels
    bool guards;
};

static void compare_scene(struct check *c, struct scene *w, struct attend_tally *t) {
    int64_t n = w->f.rows.n * w->s.n_heads * w->s.head_dim;
    int64_t n_kv = w->f.rows.n * 2 * w->s.n_kv * w->s.head_dim;
    struct guarded q[2], out[2];
    unsigned char *kept[STORE_PAGES];
    float *values[2];
    size_t bytes = (size_t)w->layout.page_bytes;
    for (int e = 0; e < 2; e++) {
        struct stage g;
        q[e] = guarded_new(n);
        out[e] = guarded_new(n);
        stage_init(&g, c, w, e ? c->exec : c->spec);
        stage_store(&g, q[e].p);
        stage_attend(&g, stage_query(&g), out[e].p);
        stage_fini(&g);
        values[e] = stored_values(w);
        for (int p = 0; p < STORE_PAGES && e == 0; p++) {
            kept[p] = memcpy(malloc(bytes), w->stores[p], bytes);
            memset(w->stores[p], 0, bytes);
        }
    }
    t->bytes += page_differences(w, kept);
    tally_add(&t->queries, q[0].p, q[1].p, n);
    tally_add(&t->stored, values[0], values[1], n_kv);
    tally_add(&t->out, out[0].p, out[1].p, n);
    for (int e = 0; e < 2; e++) {
        t->guards = guarded_free(&q[e]) && guarded_free(&out[e]) && t->guards;
        free(values[e]);
    }
    for (int p = 0; p < STORE_PAGES; p++)
        free(kept[p]);
}

// Stored values and outputs of two levels.
void check_attend(struct check *c) {
    struct attend_tally t = {.guards = true};
    enum { PAIRS = KV_CODEC_COUNT * KV_CODEC_COUNT };
    if (!has_attend(c))
        return;
    for (int i = 0; i < PAIRS; i++) {
        const int k = i % KV_CODEC_COUNT, v = i / KV_CODEC_COUNT;
        if (c->brief && (k + v) % 3)
            continue;
        struct scene *w = malloc(sizeof *w);
        struct setting s = random_setting(c);
        s.codec_k = codec_for(c, (enum kv_codec_id)k);
        s.codec_v = codec_for(c, (enum kv_codec_id)v);
        s.mask = i % 3 == 2 ? ATTEND_BLOCK : ATTEND_PATH;
        scene_init(w, &c->rng, s, (k + v) % 2 ? CHAIN : TREE, i % 4 || c->brief ? 20 : 100);
        compare_scene(c, w, &t);
        scene_fini(w);
        free(w);
    }
    if (!c->device)
        t.stored.differ += t.bytes;
    report_tally(c, &t.queries, t.guards, DEVICE_QUERY, "qk_store: queries", "pairs of codecs");
    report_tally(c, &t.stored, t.guards, DEVICE_STORED, "qk_store: pages", "pairs of codecs");
    report_tally(c, &t.out, t.guards, DEVICE_ATTEND, "attend", "pairs of codecs");
}

// Row i alone, with its ancestors committed: copies pages, puts the ancestors in their places.
static int64_t alone_differences(struct stage *t, int32_t i, const float *all) {
    const struct scene *w = t->w;
    const struct setting *s = &w->s;
    int32_t path[1024], seq = w->f.seq[i];
    int n = forest_path(&w->f, i, path);
    int64_t k = (int64_t)s->n_heads * s->head_dim, len = w->views[seq].len;
    unsigned char *pages[PAGES] = {0};
    struct buffers r;
    buffers_open(&r, t->buffers.c, t->x);
    for (int p = 0; p < PAGES; p++)
        if (w->pages[seq][p])
            pages[p] = buffers_own(&r, w->pages[seq][p], (size_t)w->layout.page_bytes);
    for (int a = 0; a + 1 < n; a++) {
        int64_t pos = len + a;
        struct kv_slot to = {pages[pos / KV_PAGE], (int32_t)(pos % KV_PAGE)};
        if (to.page)
            exec_ops(t->x)->kv_copy(t->x, &w->layout, &to, &t->slot[path[a]], 1);
    }
    struct kv_view view = {pages, len + n - 1};
    int32_t token = 0, parent = -1, zero = 0;
    struct rows one = {1, &token, &parent, &zero, &w->f.pos[i], 0};
    struct guarded out = guarded_new(k);
    const float *gate = t->q + (int64_t)i * s->n_heads * 2 * s->head_dim + s->head_dim;
    stage_attend(t, (struct query){&one, &view, &t->slot[i], t->q_out + i * k, gate, 0}, out.p);
    int64_t diff = bit_differences(out.p, all + i * k, k) + !guarded_free(&out);
    buffers_close(&r);
    return diff;
}

// The rows at least `depth` below their sequences' committed ones, after all others, which are
// ancestors only: as where a tree grows level by level. Their queries are q, their gates w->q.
static int64_t level_differences(struct stage *t, int64_t depth, const float *q, const float *all) {
    const struct scene *w = t->w;
    const struct setting *s = &w->s;
    const struct rows *r = &w->f.rows;
    const int64_t k = (int64_t)s->n_heads * s->head_dim;
    int32_t order[1024], place[1024], parent[1024], seq[1024], token[1024] = {0};
    int64_t pos[1024], n = 0, first = 0, diff = 0;
    struct kv_slot slots[1024];
    for (int deep = 0; deep < 2; deep++) {
        for (int32_t i = 0; i < r->n; i++)
            if ((r->pos[i] - w->views[r->seq[i]].len >= depth) == deep) {
                place[i] = (int32_t)n;
                order[n++] = i;
            }
        first = deep ? first : n;
    }
    float *q2 = malloc((size_t)((n - first) * k + 1) * sizeof *q2);
    float *gate = malloc((size_t)((n - first) * 2 * k + 1) * sizeof *gate);
    for (int64_t i = 0; i < n; i++) {
        const int32_t from = order[i];
        parent[i] = r->parent[from] < 0 ? -1 : place[r->parent[from]];
        seq[i] = r->seq[from];
        pos[i] = r->pos[from];
        slots[i] = t->slot[from];
        if (i < first)
            continue;
        memcpy(q2 + (i - first) * k, q + from * k, (size_t)k * sizeof *q2);
        memcpy(gate + (i - first) * 2 * k, w->q + from * 2 * k, (size_t)(2 * k) * sizeof *gate);
    }
    if (first < n) {
        struct rows rows = {n, token, parent, seq, pos, exec_pass(t->x)};
        struct guarded out = guarded_new((n - first) * k);
        struct buffers b;
        buffers_open(&b, t->buffers.c, t->x);
        const float *at = buffers_in(&b, q2, (size_t)((n - first) * k) * sizeof *q2);
        const float *gates = buffers_in(&b, gate, (size_t)((n - first) * 2 * k) * sizeof *gate);
        stage_attend(t, (struct query){&rows, t->views, slots, at, gates + s->head_dim, first},
                     out.p);
        for (int64_t i = first; i < n; i++)
            diff += bit_differences(out.p + (i - first) * k, all + order[i] * k, k);
        diff += !guarded_free(&out);
        buffers_close(&b);
    }
    free(q2);
    free(gate);
    return diff;
}

// Stores, pages and outputs of some rows by themselves, on the other exec.
static int64_t other_differences(struct check *c, struct scene *w, const float *q,
                                 const float *all) {
    int64_t n = w->f.rows.n * w->s.n_heads * w->s.head_dim;
    float *q2 = malloc((size_t)n * sizeof *q2), *all2 = malloc((size_t)n * sizeof *all2);
    struct stage t;
    stage_init(&t, c, w, c->other);
    stage_store(&t, q2);
    stage_attend(&t, stage_query(&t), all2);
    stage_fini(&t);
    int64_t diff = bit_differences(q, q2, n) + bit_differences(all, all2, n);
    free(q2);
    free(all2);
    return diff;
}

// Two sequences with many rows, or up to 64 with few. The second call is as another layer's.
void check_attend_rule(struct check *c) {
    int64_t diff = 0, seen = 0, levels = 0;
    if (!has_attend(c))
        return;
    for (int i = 0; i < FEW + 6; i += c->brief ? 3 : 1) {
        struct scene *w = malloc(sizeof *w);
        struct setting s = random_setting(c);
        s.seqs = i < FEW ? 2 : i == FEW ? SEQS : (int)between(&c->rng, 3, c->brief ? 12 : SEQS);
        scene_init(w, &c->rng, s, i % 2 ? CHAIN : TREE, i >= FEW ? 1 + i % 3 : i % 4 ? 30 : 100);
        w->f.rows.pass = exec_pass(c->exec);
        int64_t n = w->f.rows.n * w->s.n_heads * w->s.head_dim;
        float *q = malloc((size_t)n * 4), *all = malloc((size_t)n * 4);
        struct stage t;
        stage_init(&t, c, w, c->exec);
        stage_store(&t, q);
        stage_attend(&t, stage_query(&t), all);
        stage_attend(&t, stage_query(&t), all);
        diff += other_differences(c, w, q, all);
        for (int32_t row = 0; row < w->f.rows.n;
             row += (int32_t)between(&c->rng, 1, c->brief ? 70 : 9), seen++)
            diff += alone_differences(&t, row, all);
        for (int64_t depth = 1; depth < 20; depth += depth < 3 ? 1 : c->brief ? 9 : 4)
            levels += level_differences(&t, depth, q, all);
        stage_fini(&t);
        free(q);
        free(all);
        scene_fini(w);
        free(w);
    }
    report(c, diff == 0, "attend: rule E2", "rows of forests, alone",
           "%lld values differ in %lld rows", (long long)diff, (long long)seen);
    report(c, levels == 0, "attend: rule E2", "levels of forests", "%lld values differ",
           (long long)levels);
    check_attend_long_rule(c);
    check_turn_rule(c);
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
        read_row(&w->layout, at, false, kv, k + (int64_t)n * s->head_dim);
        read_row(&w->layout, at, true, kv, v + (int64_t)n++ * s->head_dim);
    }
    for (int32_t a = 0; a < r->n; a++) {
        bool sees = s->mask == ATTEND_BLOCK && r->seq[a] == r->seq[i];
        for (int32_t b = i; b >= 0 && !sees && s->mask == ATTEND_PATH; b = r->parent[b])
            sees = a == b;
        int64_t away = r->pos[i] - r->pos[a];
        if (!sees || (s->window > 0 && (away >= s->window || -away >= s->window)))
            continue;
        read_row(&w->layout, w->slot[a], false, kv, k + (int64_t)n * s->head_dim);
        read_row(&w->layout, w->slot[a], true, kv, v + (int64_t)n++ * s->head_dim);
    }
    return n;
}

// One head of one row in doubles; returns its error relative to what the weighted values sum up to
// without their signs, since what rounding leaves does not shrink where values cancel.
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
        double o = 0, all = 0, g = (double)w->q[2 * at + dim + d];
        double gate = s->gated ? 1 / (1 + exp(-g)) : 1;
        for (int j = 0; j < n; j++) {
            o += gate * p[j] / sum * (double)v[j * dim + d];
            all += gate * p[j] / sum * fabs((double)v[j * dim + d]);
        }
        err += ((double)out[at + d] - o) * ((double)out[at + d] - o);
        size += all * all;
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
    float own[OPS_HEAD_MAX];
    memcpy(own, q + ((int64_t)i * s->n_heads + head) * dim, (size_t)dim * sizeof *own);
    if (w->layout.rotate_k)
        kv_rotate_back(own, dim, w->layout.rotate_k);
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
        double e = fabs(y[d] - (double)own[d]);
        worst = e > worst ? e : worst;
    }
    return worst;
}

void check_attend_double(struct check *c) {
    if (!has_attend(c))
        return;
    double max = c->device ? DEVICE_ATTEND : 1e-5;
    for (int i = 0; i < 8; i++) {
        struct scene *w = malloc(sizeof *w);
        struct setting s = random_setting(c);
        s.mask = i % 3 == 2 ? ATTEND_BLOCK : ATTEND_PATH;
        s.window = i % 4 < 2 ? 0 : s.window;
        scene_init(w, &c->rng, s, i % 2 ? CHAIN : TREE, 40);
        int64_t n = w->f.rows.n * s.n_heads * s.head_dim;
        float *q = malloc((size_t)n * 4), *out = malloc((size_t)n * 4);
        float *k = malloc(1024 * OPS_HEAD_MAX * 4), *v = malloc(1024 * OPS_HEAD_MAX * 4);
        struct stage t;
        stage_init(&t, c, w, c->exec);
        stage_store(&t, q);
        stage_attend(&t, stage_query(&t), out);
        stage_fini(&t);
        double worst = 0, query = 0;
        for (int32_t row = 0; row < w->f.rows.n; row++)
            for (int h = 0; h < s.n_heads; h++) {
                double e = head_error(w, row, h, q, out, k, v), g = query_error(w, row, h, q);
                worst = e > worst || isnan(e) ? e : worst;
                query = g > query || isnan(g) ? g : query;
            }
        char text[64];
        describe(&s, text, sizeof text);
        report(c, worst < max && query < 1e-5, "attend / double", text,
               "relative %.1e (max %.1e), query %.1e (max 1e-5)%s", worst, max, query,
               s.mask == ATTEND_BLOCK ? ", block" : "");
        free(q);
        free(out);
        free(k);
        free(v);
        scene_fini(w);
        free(w);
    }
    check_attend_long_double(c);
    check_attend_forms(c);
}

struct attend_call {
    struct stage stage;
    struct act *act;
};

static void store_turn(void *arg, int turn) {
    (void)turn;
    call_store(&((struct attend_call *)arg)->stage);
}

static void attend_turn(void *arg, int turn) {
    struct attend_call *t = arg;
    (void)turn;
    call_attend(&t->stage, stage_query(&t->stage), t->act);
}

void check_attend_time(struct check *c) {
    static const int counts[] = {1, 4, 16, 64};
    struct setting s = {2, 4, 2, 64, 64, ATTEND_PATH, 0, KV_F16, KV_F16, true};
    if (!has_attend(c))
        return;
    for (size_t i = 0; i < 4; i++) {
        struct scene *w = malloc(sizeof *w);
        struct attend_call t;
        int n = counts[i];
        do { // a chain of n rows after about 200 tokens
            scene_init(w, &c->rng, s, CHAIN, 1);
            if (w->views[0].len > 180)
                break;
            scene_fini(w);
        } while (true);
        int64_t len = w->views[0].len, k = (int64_t)s.n_heads * s.head_dim;
        forest_clear(&w->f);
        forest_grow(&w->f, &c->rng, CHAIN, 0, len, n);
        for (int j = 0; j < n; j++)
            w->slot[j] = (struct kv_slot){w->stores[0], j};
        free(w->q);
        free(w->k);
        free(w->v);
        w->q = random_floats(&c->rng, n * 2 * k, 1);
        w->k = random_floats(&c->rng, (int64_t)n * s.n_kv * s.head_dim, 1);
        w->v = random_floats(&c->rng, (int64_t)n * s.n_kv * s.head_dim, 1);
        stage_init(&t.stage, c, w, c->exec);
        t.act = new_act(c->exec, n, k);
        char text[64];
        snprintf(text, sizeof text, "4/2x64 F16 %lld keys n=%d", (long long)len, n);
        double kv = (double)kv_layout_row(&w->layout) * s.n_kv, each = (double)n;
        report_time(c, "qk_norm_rope_store", text, time_call(c, store_turn, &t),
                    each * (kv + 12 * (double)k + 8 * s.n_kv * s.head_dim));
        report_time(c, "attend", text, time_call(c, attend_turn, &t),
                    kv * ((double)len + each) + each * 10 * (double)k);
        exec_ops(c->exec)->act_destroy(c->exec, t.act);
        stage_fini(&t.stage);
        scene_fini(w);
        free(w);
    }
    check_attend_long_time(c);
}
