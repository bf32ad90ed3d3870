// SPDX-License-Identifier: Apache-2.0
// Which pages of a text its reply sees, where the rule of views leaves a choice (state/view.h): by
// the queries of the newest row before the rows that will see them, in up to LAYERS layers that
// are spread evenly over those which see everything. A page's score in a head is the largest that a
// key within the bounds of its keys could have (ops/args/pages.h); a head gives each page a share,
// the softmax over its pages, so that heads whose scores are large in general do not outvote the
// others; a page's score is the sum of its shares over heads and layers. All of that is a function
// of the text, the row's queries and stored keys, whatever else was in the pass (rule E).
//
// Bounds are made anew for each choice, once in KV_PAGE tokens: that reads the keys once, which
// a row's attention does each time, and leaves nothing to be kept besides keys and values.
#include <math.h>
#include <stdlib.h>

#include "base/num.h"
#include "models/model_impl.h"
#include "ops/rowmath.h"

enum { LAYERS = MODEL_PAGES_LAYERS, AT_ONCE = 256 }; // the latter: pages with room for bounds

static bool sees_all(const struct model *m, const struct layer *y) {
    return y->full && !m->groups[y->group].window;
}

// Queries of a layer as attention takes them.
static int n_heads(const struct model *m, const struct layer *y) {
    return m->params.mla.kv_lora > 0 ? m->params.mla.n_heads : y->shape.n_heads;
}

static float scale_of(const struct model *m, const struct layer *y) {
    return m->params.mla.kv_lora > 0 ? m->params.mla.scale : y->shape.scale;
}

// Numbers of the layers that choose.
static void find_layers(struct model *m) {
    struct model_pages *g = &m->pages;
    int n = 0, i = 0;
    for (int l = 0; l < m->params.n_layers; l++)
        n += sees_all(m, &m->layers[l]);
    g->n_layers = min_i32(n, LAYERS);
    for (int l = 0; l < m->params.n_layers && g->n_layers; l++) {
        struct layer *y = &m->layers[l];
        if (!sees_all(m, y))
            continue;
        const struct kv_shape *s = &m->groups[y->group].layout.s;
        i++;
        if (i * g->n_layers / n == (i - 1) * g->n_layers / n)
            continue;
        y->chooses = i * g->n_layers / n;
        g->layer[y->chooses - 1] = y;
        g->heads = max_i32(g->heads, n_heads(m, y));
        g->width = max_i64(g->width, (int64_t)n_heads(m, y) * s->dk);
        g->bounds_row = max_i64(g->bounds_row, (int64_t)s->n_heads * 2 * s->dk);
    }
}

static int make_host(struct model_pages *g, int64_t pages, const struct view_rule *r,
                     struct err *e) {
    g->row = calloc((size_t)g->rows, sizeof *g->row);
    g->host = calloc((size_t)(g->n_layers * g->heads * pages), sizeof *g->host);
    g->total = calloc((size_t)pages, sizeof *g->total);
    g->order = calloc((size_t)pages, sizeof *g->order);
    g->chosen = calloc((size_t)r->chosen, sizeof *g->chosen);
    return g->row && g->host && g->total && g->order && g->chosen
               ? 0
               : err_set(e, ERR_MEMORY, "no memory for choosing among %lld pages",
                         (long long)pages);
}

int model_pages_init(struct model *m, bool dry, struct err *e) {
    const struct view_rule *r = &m->options.view;
    struct model_pages *g = &m->pages;
    const int64_t pages = view_candidates(r, m->options.max_ctx);
    find_layers(m);
    if (r->pool && !g->n_layers)
        return err_set(e, ERR_UNSUPPORTED,
                       "no layer of this model sees the whole text, so that --kv-pool would change "
                       "nothing; leave it out");
    if (!r->chosen || pages <= r->chosen)
        return 0;
    if (m->x && !(exec_ops(m->x)->key_bounds && exec_ops(m->x)->page_scores))
        return err_set(e, ERR_UNSUPPORTED,
                       "--kv-pool-policy qk is not there for this device; use lru, or --device "
                       "cpu");
    g->rows = m->options.max_verify + m->options.max_seqs;
    int rc = load_buffer(&m->load, g->n_layers * g->rows * g->width, &g->q, e);
    if (!rc)
        rc = load_buffer(&m->load, AT_ONCE * g->bounds_row, &g->bounds, e);
    if (!rc)
        rc = load_buffer(&m->load, g->n_layers * g->heads * pages, &g->scores, e);
    return rc || dry ? rc : make_host(g, pages, r, e);
}

void model_pages_fini(struct model *m) {
    struct model_pages *g = &m->pages;
    free(g->row);
    free(g->host);
    free(g->total);
    free(g->order);
    free(g->chosen);
}

// Rows before which what is seen changes, where something is left out then.
void model_pages_begin(struct model *m, const struct forest *f, struct sequence *const *seqs) {
    const struct view_rule *r = &m->options.view;
    struct model_pages *g = &m->pages;
    g->n = 0;
    if (!r->chosen)
        return;
    for (int64_t i = 0; i < f->n; i++)
        if (f->pos[i] + 1 == sequence_view_end(seqs[f->seq[i]]) && view_skipped(r, f->pos[i] + 1))
            g->row[g->n++] = (int32_t)i;
}

struct kept_rows model_pages_keep(const struct model *m, const struct layer *y) {
    const struct model_pages *g = &m->pages;
    if (!y->chooses || !g->n)
        return (struct kept_rows){0};
    return (struct kept_rows){g->q + (y->chooses - 1) * g->rows * g->width, g->row, g->n};
}

// Sees to it that the first n pages of s can be read in the groups of layers that choose, wherever
// they are; places of a pass are not needed any more.
static void place_pages(struct model *m, struct sequence *s, int64_t n) {
    for (int i = 0; i < m->n_groups; i++) {
        struct model_group *y = &m->groups[i];
        kv_place(&s->kv[i]);
        y->views[0] = kv_view_of(&s->kv[i]);
        if (!y->stream)
            continue;
        y->stream->n_pages[0] = n;
        (void)kv_stream_begin(y->stream, y->pool, y->views, 1);
    }
}

// Scores of pages 1 .. n in a layer, for the queries that are kept in place `at`.
static void score_layer(struct model *m, const struct layer *y, int64_t at, int64_t n) {
    struct model_pages *g = &m->pages;
    const struct model_group *group = &m->groups[y->group];
    const struct kv_shape *k = &group->layout.s;
    const int64_t i = y->chooses - 1;
    unsigned char *const *pages =
        (group->stream ? kv_stream_layer(group->stream, y->index) : group->views)->pages + 1;
    struct page_scores_args c = {.n_heads = n_heads(m, y),
                                 .n_kv = k->n_heads,
                                 .dk = k->dk,
                                 .scale = scale_of(m, y),
                                 .stride = n,
                                 .q = g->q + i * g->rows * g->width + at * n_heads(m, y) * k->dk,
                                 .bounds = g->bounds};
    for (int64_t page = 0; page < n; page += AT_ONCE) {
        c.n = min_i64(n - page, AT_ONCE);
        c.out = g->scores + i * g->heads * n + page;
        exec_ops(m->x)->key_bounds(m->x, &(struct key_bounds_args){.layout = &group->layout,
                                                                   .layer = y->index,
                                                                   .pages = pages + page,
                                                                   .n = c.n,
                                                                   .out = g->bounds});
        exec_ops(m->x)->page_scores(m->x, &c);
    }
}

// Adds the shares of a head.
static void add_shares(const float *score, int64_t n, double *total) {
    float max = -INFINITY;
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        max = score[i] > max ? score[i] : max;
    for (int64_t i = 0; i < n; i++)
        sum += (double)row_exp(score[i] - max);
    for (int64_t i = 0; i < n; i++)
        total[i] += (double)row_exp(score[i] - max) / sum;
}

// How much attention a choice holds (recall.h): the softmax over all keys of a text in double
// precision from stored keys, a layer and a page at a time; what is kept of a head are its sums
// over pages.

void model_recall_begin(struct model *m) {
    m->pages.recalls = m->options.view.chosen > 0;
}

struct model_recall model_recall_of(const struct model *m) {
    return m->pages.recall;
}

// Attention of one row in one layer.
struct layer_mass {
    const struct kv_layout *layout;
    int layer, n_heads;
    float scale;
    int64_t len, pages; // positions that the row sees, and the pages that they are in
    float *q;           // [n_heads][dk]
    double *mass;       // [n_heads][pages] logarithms of sums of e^score
    unsigned char *page;
};

// A page's logarithm in each head: largest score and sum beside it.
static void add_page(struct layer_mass *y, int64_t page) {
    const struct kv_shape *s = &y->layout->s;
    const int n = (int)min_i64(KV_PAGE, y->len - page * KV_PAGE);
    float k[OPS_KEY_MAX];
    for (int h = 0; h < y->n_heads; h++) {
        double score[KV_PAGE], max = -INFINITY, sum = 0;
        for (int i = 0; i < n; i++) {
            const struct kv_row row =
                kv_row_at(y->layout, &y->layout->k, y->page, 0, h / (y->n_heads / s->n_heads), i);
            kv_codec_of(s->codec_k)->decode(row.codes, row.scales, k, s->dk);
            score[i] = 0;
            for (int d = 0; d < s->dk; d++)
                score[i] += (double)y->q[h * s->dk + d] * (double)k[d];
            score[i] *= (double)y->scale;
            max = fmax(max, score[i]);
        }
        for (int i = 0; i < n; i++)
            sum += exp(score[i] - max);
        y->mass[h * y->pages + page] = max + log(sum);
    }
}

// The share of a head's attention on the first page, those of a list, and all from `newest` on.
static double share(const double *mass, int64_t pages, const int32_t *list, int64_t n,
                    int64_t newest) {
    double max = -INFINITY, all = 0;
    for (int64_t i = 0; i < pages; i++)
        max = fmax(max, mass[i]);
    for (int64_t i = 0; i < pages; i++)
        all += exp(mass[i] - max);
    double seen = exp(mass[0] - max);
    for (int64_t i = 0; i < n; i++)
        seen += exp(mass[list[i]] - max);
    for (int64_t i = max_i64(newest, 1); i < pages; i++)
        seen += exp(mass[i] - max);
    return seen / all;
}

static bool measure_layer(struct model *m, const struct layer *layer, int64_t at,
                          struct layer_mass *y) {
    const struct model_group *group = &m->groups[layer->group];
    const int64_t width = (int64_t)y->n_heads * group->layout.s.dk;
    y->layout = &group->layout;
    y->layer = layer->index;
    y->q = malloc((size_t)width * sizeof *y->q);
    y->mass = malloc((size_t)(y->n_heads * y->pages) * sizeof *y->mass);
    y->page = malloc((size_t)group->layout.layer_bytes);
    if (!y->q || !y->mass || !y->page)
        return false;
    exec_ops(m->x)->download(
        m->x, y->q, m->pages.q + (layer->chooses - 1) * m->pages.rows * m->pages.width + at * width,
        (size_t)width * sizeof *y->q);
    const struct kv_view *view =
        group->stream ? kv_stream_layer(group->stream, y->layer) : group->views;
    for (int64_t i = 0; i < y->pages; i++) {
        exec_ops(m->x)->download(m->x, y->page,
                                 view->pages[i] + y->layer * group->layout.layer_bytes,
                                 (size_t)group->layout.layer_bytes);
        add_page(y, i);
    }
    return true;
}

static void add_recall(struct model *m, const struct sequence *s, int64_t at) {
    struct model_pages *g = &m->pages;
    const struct view_rule *r = &s->spec.view;
    const int64_t len = sequence_len(s), page = len / KV_PAGE, before = (len - 1) / KV_PAGE;
    const int32_t *list = view_choices_at(&s->choices, r, page);
    const int32_t *old = len - 1 >= s->sparse_end ? view_choices_at(&s->choices, r, before) : NULL;
    const int64_t tail = view_candidates(r, len) + 1, was = view_candidates(r, len - 1) + 1;
    double sum[3] = {0, 0, 0};
    int64_t heads = 0;
    for (int i = 0; i < g->n_layers; i++) {
        const struct layer *y = g->layer[i];
        struct layer_mass w = {.n_heads = n_heads(m, y),
                               .scale = scale_of(m, y),
                               .len = len,
                               .pages = ceil_div(len, KV_PAGE)};
        const bool there = measure_layer(m, y, at, &w);
        for (int h = 0; there && h < w.n_heads; h++, heads++) {
            const double *mass = w.mass + h * w.pages;
            sum[0] += share(mass, w.pages, list, r->chosen, tail);
            sum[1] += old ? share(mass, w.pages, old, r->chosen, was) : 0;
            sum[2] += share(mass, w.pages, NULL, 0, tail - r->chosen);
        }
        free(w.q);
        free(w.mass);
        free(w.page);
    }
    if (!heads)
        return;
    g->recall.n++;
    g->recall.n_last += old != NULL;
    g->recall.chosen += sum[0] / (double)heads;
    g->recall.last += sum[1] / (double)heads;
    g->recall.newest += sum[2] / (double)heads;
}

void model_pages_choose(struct model *m, struct sequence *s, int32_t row) {
    struct model_pages *g = &m->pages;
    if (!sequence_must_choose(s))
        return;
    const int64_t n = view_candidates(&s->spec.view, sequence_len(s));
    int at = 0;
    while (at < g->n - 1 && g->row[at] != row)
        at++;
    place_pages(m, s, g->recalls ? ceil_div(sequence_len(s), KV_PAGE) : n + 1);
    for (int i = 0; i < g->n_layers; i++)
        score_layer(m, g->layer[i], at, n);
    exec_ops(m->x)->download(m->x, g->host, g->scores,
                             (size_t)(g->n_layers * g->heads * n) * sizeof *g->host);
    for (int64_t i = 0; i < n; i++)
        g->total[i] = 0;
    for (int i = 0; i < g->n_layers; i++)
        for (int h = 0; h < n_heads(m, g->layer[i]); h++)
            add_shares(g->host + (i * g->heads + h) * n, n, g->total);
    view_pick(&s->spec.view, g->total, n, g->order, g->chosen);
    sequence_choose(s, g->chosen);
    if (g->recalls)
        add_recall(m, s, at);
}
