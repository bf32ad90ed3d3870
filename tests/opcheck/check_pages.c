// SPDX-License-Identifier: Apache-2.0
// key_bounds and page_scores against scalar, against doubles, and alone against in company: every
// codec, several layers and groups of heads, more pages than a launch takes. Bounds are the least
// and the largest stored value, to the bit, on devices too.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"

enum { CASES = 18, LAYERS = 2 };

struct pages_case {
    struct kv_layout layout;
    int n_heads, layer;
    int64_t n, bounds; // pages; numbers of a page's bounds
    unsigned char *image;
    float *q;
};

static void case_init(struct pages_case *m, struct check *c, int i) {
    static const int64_t pages[] = {1, 2, 7, 33, 300};
    struct rng *r = &c->rng;
    const int n_kv = (int)between(r, 1, 3), d = 32 * (int)between(r, 1, 8);
    const enum kv_codec_id k = codec_for(c, (enum kv_codec_id)(i % KV_CODEC_COUNT));
    m->layout = kv_layout_for((struct kv_shape){LAYERS, n_kv, d, d, false, k, KV_F16});
    m->n_heads = n_kv * (int)between(r, 1, 5);
    m->layer = (int)between(r, 0, LAYERS - 1);
    m->n = pages[i % 5];
    m->bounds = (int64_t)n_kv * 2 * d;
    m->image = calloc((size_t)m->n, (size_t)m->layout.page_bytes);
    m->q = random_floats(r, (int64_t)m->n_heads * d, 2);
    for (int64_t row = 0; row < m->n * n_kv * KV_PAGE; row++) {
        const int64_t page = row / (n_kv * KV_PAGE), at = row % (n_kv * KV_PAGE);
        float x[OPS_KEY_MAX];
        fill_random(r, x, d, 3);
        struct kv_row to =
            kv_row_at(&m->layout, &m->layout.k, m->image + page * m->layout.page_bytes, m->layer,
                      (int)(at / KV_PAGE), (int)(at % KV_PAGE));
        kv_codec_of(k)->encode(x, to.codes, to.scales, d);
    }
}

static void case_fini(struct pages_case *m) {
    free(m->image);
    free(m->q);
}

static struct page_scores_args scores_of(const struct pages_case *m) {
    const struct kv_shape *s = &m->layout.s;
    return (struct page_scores_args){.n_heads = m->n_heads,
                                     .n_kv = s->n_heads,
                                     .dk = s->dk,
                                     .scale = 0.125f,
                                     .n = m->n,
                                     .stride = m->n};
}

// Both ops over pages in calls of up to `once`.
static void run_pages(struct check *c, const struct pages_case *m, struct exec *x, int64_t once,
                      float *bounds, float *scores) {
    struct page_scores_args s = scores_of(m);
    unsigned char **page = calloc((size_t)m->n, sizeof *page);
    struct buffers r;
    buffers_open(&r, c, x);
    unsigned char *image = buffers_in(&r, m->image, (size_t)(m->n * m->layout.page_bytes));
    float *to = buffers_io(&r, bounds, (size_t)(m->n * m->bounds) * sizeof *to);
    float *out = buffers_io(&r, scores, (size_t)(m->n * m->n_heads) * sizeof *out);
    s.q = buffers_in(&r, m->q, (size_t)(m->n_heads * m->layout.s.dk) * sizeof *m->q);
    for (int64_t i = 0; i < m->n; i++)
        page[i] = image + i * m->layout.page_bytes;
    for (int64_t i = 0; i < m->n; i += once) {
        s.n = once < m->n - i ? once : m->n - i;
        s.bounds = to + i * m->bounds;
        s.out = out + i;
        exec_ops(x)->key_bounds(x, &(struct key_bounds_args){.layout = &m->layout,
                                                             .layer = m->layer,
                                                             .pages = page + i,
                                                             .n = s.n,
                                                             .out = to + i * m->bounds});
        exec_ops(x)->page_scores(x, &s);
    }
    buffers_close(&r);
    free(page);
}

// By the definition.
static void plain_bounds(const struct pages_case *m, float *out) {
    const struct kv_layout *l = &m->layout;
    float x[OPS_KEY_MAX];
    for (int64_t i = 0; i < m->n * l->s.n_heads; i++)
        for (int slot = 0; slot < KV_PAGE; slot++) {
            float *low = out + i * 2 * l->s.dk, *high = low + l->s.dk;
            const struct kv_row row =
                kv_row_at(l, &l->k, m->image + i / l->s.n_heads * l->page_bytes, m->layer,
                          (int)(i % l->s.n_heads), slot);
            kv_codec_of(l->s.codec_k)->decode(row.codes, row.scales, x, l->s.dk);
            for (int d = 0; d < l->s.dk; d++) {
                low[d] = slot ? fminf(low[d], x[d]) : x[d];
                high[d] = slot ? fmaxf(high[d], x[d]) : x[d];
            }
        }
}

static void plain_scores(const struct pages_case *m, const float *bounds, float *out) {
    const struct page_scores_args s = scores_of(m);
    for (int h = 0; h < s.n_heads; h++)
        for (int64_t p = 0; p < s.n; p++) {
            const float *low = bounds + p * m->bounds + h / (s.n_heads / s.n_kv) * 2 * s.dk;
            double sum = 0;
            for (int d = 0; d < s.dk; d++) {
                const double q = (double)m->q[h * s.dk + d];
                sum += fmax(q * (double)low[d], q * (double)low[s.dk + d]);
            }
            out[h * s.n + p] = (float)(sum * (double)s.scale);
        }
}

enum way { LEVELS, DOUBLES, ALONE };

static void compare(struct check *c, enum way way) {
    if (!CHECK_HAS(c, key_bounds) || !CHECK_HAS(c, page_scores))
        return;
    struct tally bounds = {0}, scores = {0};
    for (int i = 0; i < CASES; i++) {
        struct pages_case m;
        case_init(&m, c, i);
        const int64_t nb = m.n * m.bounds, ns = m.n * m.n_heads;
        float *b[2], *s[2];
        for (int k = 0; k < 2; k++) {
            b[k] = random_floats(&c->rng, nb, 1);
            s[k] = random_floats(&c->rng, ns, 1);
        }
        if (way == DOUBLES) {
            plain_bounds(&m, b[0]);
            plain_scores(&m, b[0], s[0]);
        } else {
            run_pages(c, &m, way == ALONE ? c->exec : c->spec, way == ALONE ? 1 : m.n, b[0], s[0]);
        }
        run_pages(c, &m, way == ALONE ? c->other : c->exec, m.n, b[1], s[1]);
        tally_add(&bounds, b[0], b[1], nb);
        tally_add(&scores, s[0], s[1], ns);
        for (int k = 0; k < 2; k++) {
            free(b[k]);
            free(s[k]);
        }
        case_fini(&m);
    }
    static const char *const shapes[] = {"18 shapes", "18 shapes, doubles", "pages alone"};
    report(c, bounds.differ == 0, "key_bounds", shapes[way], "%lld values differ (exact)",
           (long long)bounds.differ);
    if (way == LEVELS)
        report_tally(c, &scores, true, 1e-6, "page_scores", shapes[way]);
    else
        report(c, way == ALONE ? scores.differ == 0 : scores.error < 1e-6, "page_scores",
               shapes[way], "relative error %.1e, %lld values differ", scores.error,
               (long long)scores.differ);
}

void check_pages(struct check *c) {
    compare(c, LEVELS);
}

void check_pages_rule(struct check *c) {
    compare(c, ALONE);
}

void check_pages_double(struct check *c) {
    compare(c, DOUBLES);
}
