// SPDX-License-Identifier: Apache-2.0
// Attention over long contexts in the shapes of real models: against doubles on a sample of rows,
// rule E2 between chunks of a prompt, trees and single rows, and times. Keys and values are drawn
// from a pool of random rows, and every position has one query, so that a row of any forest can be
// compared with the same position in another.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "ops/kv/rotate.h"
#include "support/device.h"

enum { POOL = 512, ROWS_MAX = 1024 };

// What fp16 queries add to a device's relative error: scores are off by up to 2^-11 of themselves,
// and weights by as much as scores are, absolutely.
static const double HALF_QUERY = 1.0 / 2048;

struct shape {
    int n_heads, n_kv, head_dim, mask;
    int64_t window;
    enum kv_codec_id codec_k, codec_v;
    bool gated;
    float sharp; // size of the queries: 1 spreads the weights, 8 gathers them on few keys
};

// Longer keys than values can be have their first OPS_HEAD_MAX as values, as latents have.
static bool is_latent(const struct shape *s) {
    return s->head_dim > OPS_HEAD_MAX;
}

static int value_dim(const struct shape *s) {
    return is_latent(s) ? OPS_HEAD_MAX : s->head_dim;
}

// Floats of a row's queries, with the gates after them.
static int64_t query_width(const struct shape *s) {
    return (int64_t)s->n_heads * s->head_dim * (s->gated ? 2 : 1);
}

// Positions that have queries of their own.
static int64_t query_count(const struct shape *s, int64_t total) {
    int64_t max = is_latent(s) ? 600 : 4096;
    return total < max ? total : max;
}

static const struct shape target_27b = {24, 4, 256, ATTEND_PATH, 0, KV_F16, KV_F16, true, 1};
static const struct shape deepseek_v2_lite = {16, 1, 576, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1};
static const struct shape deepseek_v3 = {128, 1, 576, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1};
static const struct shape smollm2_135m = {9, 3, 64, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1};
static const struct shape llama_8b = {32, 8, 128, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1};
static const struct shape draft_27b = {32, 8, 128, ATTEND_BLOCK, 0, KV_F16, KV_F16, false, 1};

// Positions 0 .. total-1 in pages, and room for rows in flight after them.
struct world {
    struct check *c;
    struct shape s;
    struct kv_layout layout;
    int64_t total, n_pages; // pages: positions, then ROWS_MAX slots
    unsigned char *image;   // host [n_pages][page_bytes]
    unsigned char **pages;  // device
    float *query;           // host [total][n_heads][2 head_dim]: query, gate
    struct buffers buffers;
    float *q; // device [ROWS_MAX][n_heads][2 head_dim]
    // The present forest.
    struct forest f;
    struct kv_slot slot[ROWS_MAX];
};

static struct kv_row image_row(const struct world *w, int64_t at, int layer, bool value, int head) {
    const struct kv_layout *l = &w->layout;
    return kv_row_at(l, value ? &l->v : &l->k, w->image + at / KV_PAGE * l->page_bytes, layer, head,
                     (int)(at % KV_PAGE));
}

// Keys are left rotated where they are: queries are taken as rotated alike.
static void read_row(const struct world *w, int64_t at, bool value, int head, float *x) {
    struct kv_row row = image_row(w, at, 0, value, head);
    int dim = value ? value_dim(&w->s) : w->s.head_dim;
    kv_codec_of(value ? w->s.codec_v : w->s.codec_k)->decode(row.codes, row.scales, x, dim);
    if (value && w->layout.rotate_v)
        kv_rotate_back(x, dim, w->layout.rotate_v);
}

// Some rows of K, or of V, stored: codes, then scales.
struct pool {
    const struct kv_plane *plane;
    unsigned char *codes, *scales;
};

static void pool_init(struct pool *p, struct world *w, struct rng *r, bool value) {
    const struct kv_codec *c = kv_codec_of(value ? w->s.codec_v : w->s.codec_k);
    float x[OPS_KEY_MAX];
    p->plane = value ? &w->layout.v : &w->layout.k;
    p->codes = malloc((size_t)(POOL * p->plane->code_row));
    p->scales = malloc((size_t)(POOL * p->plane->scale_row + 1));
    for (int i = 0; i < POOL; i++) {
        fill_random(r, x, w->s.head_dim, value ? 1 : 2);
        c->encode(x, p->codes + i * p->plane->code_row, p->scales + i * p->plane->scale_row,
                  w->s.head_dim);
    }
}

static void pool_row(const struct pool *p, int64_t i, struct kv_row to) {
    memcpy(to.codes, p->codes + i * p->plane->code_row, (size_t)p->plane->code_row);
    memcpy(to.scales, p->scales + i * p->plane->scale_row, (size_t)p->plane->scale_row);
}

// Rows of a position, picked by a random number.
static void fill_rows(struct world *w, int64_t at, int layer, int head, const struct pool *k,
                      const struct pool *v, uint64_t pick) {
    pool_row(k, (int64_t)(pick >> 40) % POOL, image_row(w, at, layer, false, head));
    if (!is_latent(&w->s))
        pool_row(v, (int64_t)(pick >> 20) % POOL, image_row(w, at, layer, true, head));
}

static void fill_image(struct world *w, struct rng *r) {
    const struct kv_layout *l = &w->layout;
    struct pool k, v;
    pool_init(&k, w, r, false);
    pool_init(&v, w, r, true);
    for (int64_t at = 0; at < w->n_pages * KV_PAGE; at++)
        for (int layer = 0; layer < l->s.n_layers; layer++)
            for (int h = 0; h < l->s.n_heads; h++)
                fill_rows(w, at, layer, h, &k, &v, rng_next(r));
    free(k.codes);
    free(k.scales);
    free(v.codes);
    free(v.scales);
}

static struct kv_layout layout_of(const struct shape *s, int n_layers) {
    return kv_layout_for((struct kv_shape){n_layers, s->n_kv, s->head_dim, value_dim(s),
                                           is_latent(s), s->codec_k, s->codec_v});
}

static void world_init(struct world *w, struct check *c, struct shape s, int64_t total,
                       int layers) {
    memset(w, 0, sizeof *w);
    w->c = c;
    w->s = s;
    w->total = total;
    w->n_pages = (total + KV_PAGE - 1) / KV_PAGE + ROWS_MAX / KV_PAGE;
    w->layout = layout_of(&s, layers);
    size_t bytes = (size_t)(w->n_pages * w->layout.page_bytes);
    int64_t per = query_width(&s), queries = query_count(&s, total);
    w->image = malloc(bytes);
    w->pages = malloc((size_t)w->n_pages * sizeof *w->pages);
    w->query = malloc((size_t)(queries * per) * sizeof *w->query);
    if (!w->image || !w->pages || !w->query)
        abort();
    fill_image(w, &c->rng);
    fill_random(&c->rng, w->query, queries * per, 2 * s.sharp);
    buffers_open(&w->buffers, c, c->exec);
    unsigned char *device = buffers_own(&w->buffers, w->image, bytes);
    for (int64_t p = 0; p < w->n_pages; p++)
        w->pages[p] = device + p * w->layout.page_bytes;
    w->q = buffers_own(&w->buffers, NULL, (size_t)(ROWS_MAX * per) * sizeof(float));
}

static void world_fini(struct world *w) {
    buffers_close(&w->buffers);
    free(w->image);
    free(w->pages);
    free(w->query);
}

// Where position or slot `at` of the image is on the device.
static struct kv_slot slot_at(const struct world *w, int64_t at) {
    return (struct kv_slot){w->pages[at / KV_PAGE], (int32_t)(at % KV_PAGE)};
}

static const float *query_of(const struct world *w, int64_t pos) {
    return w->query + pos % query_count(&w->s, w->total) * query_width(&w->s);
}

static void add_row(struct world *w, int32_t parent, int64_t pos, int64_t at) {
    struct forest *f = &w->f;
    int64_t i = f->rows.n++;
    f->parent[i] = parent;
    f->pos[i] = pos;
    f->seq[i] = 0;
    f->token[i] = 0;
    w->slot[i] = slot_at(w, at);
}

// Rows len .. len + n - 1 as a prompt has them: stored in their pages.
static void make_chain(struct world *w, int64_t len, int n) {
    forest_clear(&w->f);
    for (int i = 0; i < n; i++)
        add_row(w, i - 1, len + i, len + i);
}

// A tree of n rows after len: the positions from len on are its spine, at most 32 deep, and other
// rows branch off it anywhere. Rows are in scratch slots; where[] says which row a position of the
// spine is.
static int make_tree(struct world *w, int64_t len, int n, int32_t *where) {
    int64_t scratch = w->total + (KV_PAGE - w->total % KV_PAGE) % KV_PAGE;
    int spine = 0;
    forest_clear(&w->f);
    for (int i = 0; i < n; i++) {
        int64_t at = scratch + (int64_t)i * 37 % n;
        int32_t parent = i ? (int32_t)between(&w->c->rng, 0, i - 1) : -1;
        bool grow = spine < 32 && (i == 0 || rng_below(&w->c->rng, 2));
        if (!grow && w->f.pos[parent] - len >= 31)
            parent = 0;
        int64_t pos = grow ? len + spine : w->f.pos[parent] + 1;
        if (grow) {
            struct kv_slot from = slot_at(w, pos), to = slot_at(w, at);
            parent = spine ? where[spine - 1] : -1;
            where[spine++] = i;
            exec_ops(w->c->exec)->kv_copy(w->c->exec, &w->layout, &to, &from, 1);
        }
        add_row(w, parent, pos, at);
    }
    return spine;
}

static void put_queries(struct world *w) {
    int64_t per = query_width(&w->s), n = w->f.rows.n;
    float *q = malloc((size_t)(n * per) * sizeof *q);
    int dim = w->s.head_dim, heads = w->s.n_heads, each = w->s.gated ? 2 * dim : dim;
    // Queries lie apart, gates after them.
    for (int64_t i = 0; i < n; i++)
        for (int h = 0; h < heads; h++) {
            const float *from = query_of(w, w->f.pos[i]) + h * each;
            memcpy(q + (i * heads + h) * dim, from, (size_t)dim * sizeof *q);
            if (w->s.gated)
                memcpy(q + ((n + i) * heads + h) * dim, from + dim, (size_t)dim * sizeof *q);
        }
    buffers_put(&w->buffers, w->q, q, (size_t)(n * per) * sizeof *q);
    free(q);
}

static void call_attend(struct world *w, int64_t len, int layer, struct act *act) {
    const struct shape *s = &w->s;
    struct kv_view view = {w->pages, len};
    struct attend_args a = {.shape = {.n_heads = s->n_heads,
                                      .n_kv = s->n_kv,
                                      .dk = s->head_dim,
                                      .dv = value_dim(s),
                                      .scale = 1 / sqrtf((float)s->head_dim),
                                      .mask = s->mask,
                                      .window = s->window},
                            .q = w->q,
                            .gate = s->gated ? w->q + w->f.rows.n * s->n_heads * s->head_dim : NULL,
                            .gate_stride = s->head_dim,
                            .layout = &w->layout,
                            .layer = layer,
                            .seqs = &view,
                            .store = w->slot,
                            .out = act};
    exec_ops(w->c->exec)->attend(w->c->exec, &a, &w->f.rows);
}

static struct act *new_act(const struct world *w) {
    struct act *act;
    struct err e;
    if (exec_ops(w->c->exec)
            ->act_create(w->c->exec, w->f.rows.n, (int64_t)w->s.n_heads * value_dim(&w->s), &act,
                         &e))
        abort();
    return act;
}

// All rows of the present forest, in layer 0: [rows][n_heads * value_dim], to be freed.
static float *attend_rows(struct world *w, int64_t len) {
    int64_t k = (int64_t)w->s.n_heads * value_dim(&w->s), n = w->f.rows.n;
    float *out = malloc((size_t)(n * k) * sizeof *out);
    struct act *act = new_act(w);
    put_queries(w);
    call_attend(w, len, 0, act);
    if (w->c->device)
        device_read_wide(w->c->exec, act, n, k, out);
    else
        read_act(w->c->exec, act, n, k, out);
    exec_ops(w->c->exec)->act_destroy(w->c->exec, act);
    return out;
}

// One head of a row whose keys are the image's rows at[0..n), in doubles: its relative error.
static double head_error(const struct world *w, int64_t pos, int head, const int64_t *at, int64_t n,
                         const float *out) {
    int dim = w->s.head_dim, dv = value_dim(&w->s), kv = head / (w->s.n_heads / w->s.n_kv);
    const float *q = query_of(w, pos) + head * (w->s.gated ? 2 * dim : dim);
    double sum = 0, err = 0, size = 0, o[OPS_HEAD_MAX] = {0};
    float x[OPS_KEY_MAX];
    for (int64_t j = 0; j < n; j++) {
        double p = 0;
        read_row(w, at[j], false, kv, x);
        for (int d = 0; d < dim; d++)
            p += (double)q[d] * (double)x[d];
        p = exp(p / sqrt((double)dim));
        sum += p;
        read_row(w, at[j], true, kv, x);
        for (int d = 0; d < dv; d++)
            o[d] += p * (double)x[d];
    }
    for (int d = 0; d < dv; d++) {
        double y = o[d] / sum / (w->s.gated ? 1 + exp(-(double)q[dim + d]) : 1);
        err += ((double)out[head * dv + d] - y) * ((double)out[head * dv + d] - y);
        size += y * y;
    }
    return isfinite(err) ? sqrt(err / (size + 1e-30)) : INFINITY;
}

// Worst of a sample of rows of a chain after len that was attended as out.
static double chain_error(struct world *w, int64_t len, const float *out) {
    const struct shape *s = &w->s;
    int64_t n = w->f.rows.n, *at = malloc((size_t)w->total * sizeof *at);
    double worst = 0;
    for (int t = 0; t < 6; t++) {
        int64_t i = t ? between(&w->c->rng, 0, n - 1) : n - 1, pos = len + i, keys = 0;
        int64_t last = s->mask == ATTEND_BLOCK ? len + n - 1 : pos;
        for (int64_t p = 0; p <= last; p++)
            if (s->window == 0 || llabs(pos - p) < s->window)
                at[keys++] = p;
        for (int h = (int)between(&w->c->rng, 0, 3); h < s->n_heads; h += 5) {
            double e = head_error(w, pos, h, at, keys, out + i * s->n_heads * value_dim(s));
            worst = e > worst ? e : worst;
        }
    }
    free(at);
    return worst;
}

static void describe(const struct shape *s, int64_t len, int64_t n, char *text, size_t size) {
    snprintf(text, size, "%d/%dx%d %s/%s w%lld %lld+%lld", s->n_heads, s->n_kv, s->head_dim,
             kv_codec_of(s->codec_k)->name, kv_codec_of(s->codec_v)->name, (long long)s->window,
             (long long)len, (long long)n);
}

static const struct attend_case {
    struct shape s;
    int64_t len;
    int n;
    bool device; // too long for a CPU level
} cases[] = {
    {{6, 2, 64, ATTEND_PATH, 0, KV_F16, KV_F16, true, 1}, 700, 90, false},
    {{4, 2, 96, ATTEND_PATH, 600, KV_F32, KV_F32, true, 1}, 1500, 70, false},
    {{6, 1, 128, ATTEND_BLOCK, 300, KV_Q8_0, KV_BF16, false, 1}, 900, 16, false},
    {{24, 4, 256, ATTEND_PATH, 0, KV_F16, KV_F16, true, 1}, 20000, 23, true},
    {{24, 4, 256, ATTEND_PATH, 0, KV_F16, KV_F16, true, 8}, 5000, 23, true},
    {{24, 4, 256, ATTEND_PATH, 0, KV_F16, KV_F16, true, 1}, 1000, 512, true},
    {{24, 4, 256, ATTEND_PATH, 0, KV_BF16, KV_Q8_0, true, 1}, 3000, 61, true},
    {{24, 4, 256, ATTEND_PATH, 0, KV_F32, KV_F16, true, 1}, 3000, 23, true},
    {{8, 4, 256, ATTEND_PATH, 0, KV_Q8_0, KV_Q8_0, true, 1}, 700, 512, true},
    {{8, 2, 128, ATTEND_PATH, 0, KV_Q4_0, KV_Q5_1, true, 1}, 900, 30, false},
    {{6, 2, 64, ATTEND_PATH, 300, KV_TQ3_0, KV_TQ3_0, false, 1}, 900, 30, false},
    {{24, 4, 256, ATTEND_PATH, 0, KV_Q4_0, KV_Q4_0, true, 1}, 6000, 23, true},
    {{24, 4, 256, ATTEND_PATH, 0, KV_Q5_0, KV_TQ3_0, true, 1}, 3000, 61, true},
    {{8, 4, 256, ATTEND_PATH, 0, KV_Q5_1, KV_Q4_1, true, 1}, 700, 512, true},
    {{32, 8, 128, ATTEND_PATH, 2048, KV_TQ3_0, KV_Q5_0, false, 1}, 6001, 256, true},
    {{32, 8, 128, ATTEND_BLOCK, 0, KV_Q4_1, KV_F16, false, 1}, 3000, 16, true},
    {{80, 2, 64, ATTEND_PATH, 0, KV_F16, KV_Q5_1, false, 1}, 1300, 40, true},
    {{80, 2, 64, ATTEND_PATH, 0, KV_F16, KV_BF16, false, 1}, 1300, 40, true},
    {{4, 1, 512, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1}, 1300, 40, true},
    {{3, 1, 576, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1}, 700, 70, false},
    {{16, 1, 576, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1}, 20000, 23, true},
    {{16, 1, 576, ATTEND_PATH, 0, KV_F16, KV_F16, false, 8}, 1000, 512, true},
    {{20, 1, 576, ATTEND_PATH, 0, KV_Q8_0, KV_Q8_0, false, 1}, 3000, 61, true},
    {{20, 1, 576, ATTEND_PATH, 0, KV_Q4_0, KV_Q4_0, false, 1}, 3000, 61, true},
    {{64, 1, 576, ATTEND_PATH, 0, KV_TQ3_0, KV_TQ3_0, false, 1}, 1300, 40, true},
    {{64, 1, 576, ATTEND_PATH, 0, KV_BF16, KV_BF16, false, 1}, 1300, 40, true},
    {{128, 1, 576, ATTEND_PATH, 0, KV_F16, KV_F16, false, 1}, 2500, 23, true},
    {{32, 8, 128, ATTEND_BLOCK, 0, KV_F16, KV_F16, false, 1}, 20000, 16, true},
    {{32, 8, 128, ATTEND_BLOCK, 2048, KV_F16, KV_F16, false, 1}, 6001, 16, true},
    {{32, 8, 128, ATTEND_PATH, 2048, KV_F16, KV_F16, false, 1}, 6001, 256, true},
};
enum { CASES = sizeof cases / sizeof cases[0] };

// Contexts of thousands of tokens are for devices, and not for a device under a memory checker.
static bool at_length(const struct check *c) {
    return c->device && !c->brief;
}

void check_attend_long_double(struct check *c) {
    for (int i = 0; i < CASES; i++) {
        const struct shape *s = &cases[i].s;
        if ((cases[i].device && !at_length(c)) || codec_for(c, s->codec_k) != s->codec_k ||
            codec_for(c, s->codec_v) != s->codec_v)
            continue;
        struct world *w = malloc(sizeof *w);
        world_init(w, c, cases[i].s, cases[i].len + cases[i].n, 1);
        make_chain(w, cases[i].len, cases[i].n);
        float *out = attend_rows(w, cases[i].len);
        double e = chain_error(w, cases[i].len, out);
        double max = c->device ? 1e-3 + (w->s.sharp - 1) * HALF_QUERY : 1e-5;
        char text[80];
        describe(&w->s, cases[i].len, cases[i].n, text, sizeof text);
        report(c, e <= max, "attend / double", text, "relative %.1e (max %.1e)", e, max);
        free(out);
        world_fini(w);
        free(w);
    }
}

// The positions of [begin, begin + n) in a prompt of chunks of `chunk` rows, into all[pos - begin].
static void by_chunks(struct world *w, int64_t begin, int n, int chunk, float *all) {
    int64_t k = (int64_t)w->s.n_heads * value_dim(&w->s);
    for (int i = 0; i < n; i += chunk) {
        int rows = n - i < chunk ? n - i : chunk;
        make_chain(w, begin + i, rows);
        float *out = attend_rows(w, begin + i);
        memcpy(all + i * k, out, (size_t)(rows * k) * sizeof *out);
        free(out);
    }
}

static bool has_scales(const struct shape *s) {
    return kv_codec_of(s->codec_k)->scale_bytes || kv_codec_of(s->codec_v)->scale_bytes;
}

// From now on there is room for all keys and values as fp16.
static void make_room(struct world *w) {
    const struct exec_limits l = {.rows = ROWS_MAX,
                                  .seqs = 1,
                                  .context = w->total,
                                  .n_heads = w->s.n_heads,
                                  .head_dim = w->s.head_dim,
                                  .fp16_kv = w->n_pages * KV_PAGE * w->s.n_kv *
                                             (w->s.head_dim + value_dim(&w->s)) * 2};
    struct err e;
    if (exec_reserve(w->c->exec, &l, &e))
        report(w->c, false, "attend", "room for fp16", "%s", e.text);
}

// Bits that differ when the positions are computed in other company; counts values compared.
static int64_t company_differences(struct world *w, int64_t begin, int n, int64_t *compared) {
    int64_t k = (int64_t)w->s.n_heads * value_dim(&w->s), differ = 0;
    float *all = malloc((size_t)(n * k) * sizeof *all), *other = malloc((size_t)(n * k) * 4);
    int32_t where[32];
    by_chunks(w, begin, n, n, all);
    if (w->c->device && has_scales(&w->s)) {
        make_room(w);
        by_chunks(w, begin, n, n, other);
        differ += bit_differences(all, other, n * k);
        *compared += n * k;
    }
    int chunks[] = {64, (int)between(&w->c->rng, 2, 40), (int)between(&w->c->rng, 65, 200)};
    for (int i = 0; i < 3; i++) {
        by_chunks(w, begin, n, chunks[i], other);
        differ += bit_differences(all, other, n * k);
        *compared += n * k;
    }
    for (int i = 0; i < (w->c->brief ? 2 : 12); i++) {
        int64_t at = between(&w->c->rng, 0, n - 1);
        by_chunks(w, begin + at, 1, 1, other);
        differ += bit_differences(all + at * k, other, k);
        at = between(&w->c->rng, 0, n - 33 > 0 ? n - 33 : 0);
        int spine = make_tree(w, begin + at, i % 2 ? 23 : 100, where);
        float *out = attend_rows(w, begin + at);
        for (int j = 0; j < spine && at + j < n; j++, *compared += k)
            differ += bit_differences(all + (at + j) * k, out + where[j] * k, k);
        free(out);
        *compared += k;
    }
    free(all);
    free(other);
    return differ;
}

static void check_company(struct check *c, const struct attend_case *a) {
    struct world *w = malloc(sizeof *w);
    int n = at_length(c) ? 512 : 80;
    int64_t begin = a->len - 200, compared = 0;
    world_init(w, c, a->s, begin + n + 33, 1);
    int64_t differ = company_differences(w, begin, n, &compared);
    char text[80];
    describe(&w->s, begin, n, text, sizeof text);
    report(c, differ == 0, "attend: chunks, trees", text, "%lld of %lld values differ",
           (long long)differ, (long long)compared);
    world_fini(w);
    free(w);
}

// Codecs with scales on a device of their own, whose scratch memory is small at first.
void check_attend_long_rule(struct check *c) {
    struct exec *const usual = c->exec;
    struct err e;
    for (int i = 0; i < CASES; i++) {
        const bool own = c->device && has_scales(&cases[i].s);
        if ((cases[i].device && !at_length(c)) || cases[i].s.mask == ATTEND_BLOCK)
            continue;
        if (own && device_open(&c->exec, c->level, 0, &e)) {
            report(c, false, "attend: chunks, trees", "a device", "%s", e.text);
            c->exec = usual;
            continue;
        }
        check_company(c, &cases[i]);
        if (own && exec_status(c->exec, &e))
            report(c, false, "attend: chunks, trees", "device", "%s", e.text);
        if (own)
            exec_destroy(c->exec);
        c->exec = usual;
    }
}

struct timed {
    struct world *w;
    struct act *act;
    int64_t len;
};

static void attend_turn(void *arg, int turn) {
    struct timed *t = arg;
    call_attend(t->w, t->len, turn % t->w->layout.s.n_layers, t->act);
}

// Bytes of keys and values that must be read, and of rows read and written.
static double floor_bytes(const struct world *w, int64_t len) {
    int64_t n = w->f.rows.n, keys = len + n;
    if (w->s.window > 0 && keys > w->s.window + n)
        keys = w->s.window + n;
    double row =
        (double)w->s.n_heads * (w->s.head_dim * (w->s.gated ? 8 : 4) + value_dim(&w->s) * 2);
    return (double)(keys * w->s.n_kv * kv_layout_row(&w->layout)) + (double)n * row;
}

static void time_shape(struct check *c, struct shape s, int64_t len, const int *counts, int n) {
    struct world *w = malloc(sizeof *w);
    int64_t rows = counts[n - 1];
    struct kv_layout one = layout_of(&s, 1);
    int64_t bytes = (len + rows) / KV_PAGE * one.page_bytes + 1; // of a layer; turn over 150 MB
    int layers = bytes > 150000000 ? 1 : (int)(150000000 / bytes + 1);
    world_init(w, c, s, len + rows, layers < 16 ? layers : 16);
    if (c->device && has_scales(&s))
        make_room(w);
    for (int i = 0; i < n; i++) {
        char text[80];
        int32_t where[32];
        struct timed t = {.w = w, .len = len};
        if (s.mask == ATTEND_PATH && counts[i] < 128)
            make_tree(w, len, counts[i], where);
        else
            make_chain(w, len, counts[i]);
        put_queries(w);
        t.act = new_act(w);
        describe(&s, len, counts[i], text, sizeof text);
        report_time(c, "attend", text, time_call(c, attend_turn, &t), floor_bytes(w, len));
        exec_ops(c->exec)->act_destroy(c->exec, t.act);
    }
    world_fini(w);
    free(w);
}

// Latents of 512 values with keys of 64 after them.
static void time_latents(struct check *c) {
    static const int steps[] = {1, 23}, prompt[] = {512};
    const struct shape all[] = {deepseek_v2_lite, deepseek_v3};
    for (int i = 0; i < 2; i++) {
        time_shape(c, all[i], 512, steps, 2);
        time_shape(c, all[i], 4096, steps, 2);
        time_shape(c, all[i], 16384, steps, 2);
        time_shape(c, all[i], 8192, prompt, 1);
    }
}

void check_attend_long_time(struct check *c) {
    // 704 rows of the 27B shape are a block on each multiprocessor of an H200.
    static const int steps[] = {1, 8, 23, 61}, prompt[] = {512, 704}, block[] = {16}, tree[] = {23},
                     both[] = {1, 23};
    static const enum kv_codec_id types[][2] = {
        {KV_BF16, KV_BF16}, {KV_Q8_0, KV_Q8_0}, {KV_F32, KV_F32},    {KV_Q5_1, KV_Q5_1},
        {KV_Q4_0, KV_Q4_0}, {KV_Q8_0, KV_Q4_0}, {KV_TQ3_0, KV_TQ3_0}};
    if (!c->device) {
        const struct shape small[] = {smollm2_135m, llama_8b};
        for (int i = 0; i < 2; i++) {
            time_shape(c, small[i], 512, steps, 3);
            time_shape(c, small[i], 2048, steps, 3);
            time_shape(c, small[i], 6000, steps, 3);
        }
        struct shape q8 = llama_8b;
        q8.codec_k = q8.codec_v = KV_Q8_0;
        time_shape(c, q8, 2048, steps, 3);
        time_shape(c, target_27b, 2048, steps, 3);
        return;
    }
    time_shape(c, target_27b, 512, steps, 4);
    time_latents(c);
    time_shape(c, target_27b, 4096, steps, 4);
    time_shape(c, target_27b, 20000, steps, 4);
    time_shape(c, target_27b, 65536, both, 2);
    time_shape(c, target_27b, 131072, both, 2);
    time_shape(c, target_27b, 0, prompt, 1);
    time_shape(c, target_27b, 8192, prompt, 2);
    time_shape(c, target_27b, 16384, prompt, 2);
    time_shape(c, target_27b, 65536, prompt, 2);
    time_shape(c, target_27b, 131072, prompt, 2);
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct shape s = target_27b;
        s.codec_k = types[i][0];
        s.codec_v = types[i][1];
        time_shape(c, s, 20000, tree, 1);
        if (kv_codec_of(s.codec_k)->scale_bytes) {
            time_shape(c, s, 65536, both, 2);
            time_shape(c, s, 8192, prompt, 2);
            time_shape(c, s, 65536, prompt, 2);
        }
    }
    struct shape window = draft_27b;
    window.window = 2048;
    time_shape(c, draft_27b, 4096, block, 1);
    time_shape(c, draft_27b, 512, block, 1);
    time_shape(c, draft_27b, 16384, block, 1);
    time_shape(c, window, 20000, block, 1);
}
