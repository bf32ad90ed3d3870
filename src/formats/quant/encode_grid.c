// SPDX-License-Identifier: Apache-2.0
// Encoders of the types that index a codebook. For each group that shares a scale, trial scales
// from a range and then least-squares ones are judged by an exact search for all entries; the
// factor of the block is the one whose multiples lie nearest to all groups' scales, counted by
// how much each matters; at last the multiples around each scale are tried with that factor.
#include "formats/quant/encode_grid.h"
#include "formats/quant/codebook.h"
#include "formats/quant/grid.h"
#include "formats/quant/impl.h"
#include "formats/quant/search.h"

enum { TRIALS = 9, REFITS = 3 };

// What a group of values has at one scale.
struct pick {
    float cost, xv, vv; // error; sums of w x v and w v v, v being the codes
    uint16_t index[8];
    unsigned char less[8]; // IQ1: values lie below the entries, not above
};

// A group and its weights; magnitudes, except for IQ1.
struct values {
    float a[32], w[32];
};

struct search {
    const struct grid_type *t;
    struct codebook book;
    int8_t code[2][8]; // what digits stand for: [less][digit]
};

// Entry e of the group at this scale, with the codes of one kind.
static float try_entry(const struct search *s, const struct values *g, int e, float scale, int less,
                       struct pick *p) {
    const int n = s->t->values, digits = n == 8 ? 3 : 8;
    const float *a = g->a + n * e, *w = g->w + n * e;
    codebook_costs cost;
    float least;
    for (int j = 0; j < n; j++) {
        for (int d = 0; d < digits; d++) {
            float off = a[j] - scale * (float)s->code[less][d];
            cost[j][d] = w[j] * off * off;
        }
    }
    p->index[e] = (uint16_t)codebook_nearest(&s->book, cost, p->index[e], &least);
    p->less[e] = (unsigned char)less;
    return least;
}

// Entries [e, e + n) with the kind of codes that suits them all best.
static float try_span(const struct search *s, const struct values *g, int e, float scale,
                      struct pick *p) {
    int n = s->t->span ? s->t->span : 1;
    struct pick other = *p;
    float above = 0.0f, below = 0.0f;
    for (int i = e; i < e + n; i++)
        above += try_entry(s, g, i, scale, 0, p);
    if (!s->t->span)
        return above;
    for (int i = e; i < e + n; i++)
        below += try_entry(s, g, i, scale, 1, &other);
    if (below < above)
        *p = other;
    return below < above ? below : above;
}

// All entries of the group; p holds those to begin with. Gives up where it is worse than most.
static bool try_scale(const struct search *s, const struct values *g, float scale, float most,
                      struct pick *p) {
    const int n = s->t->values, count = s->t->group / n;
    p->cost = p->xv = p->vv = 0.0f;
    for (int e = 0; e < count; e += s->t->span ? s->t->span : 1) {
        p->cost += try_span(s, g, e, scale, p);
        if (!(p->cost < most))
            return false;
    }
    for (int i = 0; i < s->t->group; i++) {
        int e = i / n, d = codebook_digit(&s->book, p->index[e], i % n);
        float v = (float)s->code[p->less[e]][d];
        p->xv += g->w[i] * g->a[i] * v;
        p->vv += g->w[i] * v * v;
    }
    return true;
}

// The best real scale of a group. Trials run from where the largest magnitude is the largest code
// down to where smaller ones count for more.
static float search_scale(const struct search *s, const struct values *g, struct pick *best) {
    float most = 0.0f, found = 0.0f, top = (float)s->code[0][s->t->values == 8 ? 2 : 7];
    for (int i = 0; i < s->t->group; i++)
        most = fabsf(g->a[i]) > most ? fabsf(g->a[i]) : most;
    struct pick p = {0};
    *best = (struct pick){.cost = INFINITY};
    if (most < QUANT_NEGLIGIBLE)
        return 0.0f;
    float scale = s->t->from * most / top;
    for (int k = 0; k < TRIALS; k++, scale *= s->t->step) {
        if (try_scale(s, g, scale, best->cost, &p)) {
            *best = p;
            found = scale;
        }
    }
    for (int k = 0; k < REFITS && best->xv > 0.0f && best->vv > 0.0f; k++) {
        scale = best->xv / best->vv;
        p = *best;
        if (!try_scale(s, g, scale, best->cost, &p))
            break;
        found = scale;
        *best = p;
    }
    return found;
}

// With seven signs for eight values: where their product would be wrong, the value that costs least
// counts as one on the other side of zero.
static void repair_signs(float *a, const float *w, unsigned char *signs) {
    int weakest = 0;
    if (!(__builtin_popcount(*signs) & 1))
        return;
    for (int j = 1; j < 8; j++)
        if (w[j] * a[j] < w[weakest] * a[weakest])
            weakest = j;
    a[weakest] = -a[weakest];
    *signs ^= (unsigned char)(1u << weakest);
}

static void take_signs(const struct grid_type *t, float *a, const float *w, unsigned char *signs) {
    *signs = 0;
    for (int j = 0; j < 8; j++) {
        *signs |= (unsigned char)((unsigned)(a[j] < 0.0f) << j);
        a[j] = fabsf(a[j]);
    }
    if (t->parity)
        repair_signs(a, w, signs);
}

static float multiple(const struct grid_type *t, int scale) {
    return t->unit * (float)(2 * scale + 1);
}

static int nearest_multiple(const struct grid_type *t, float x) {
    float m = (x / t->unit - 1.0f) / 2.0f;
    return clamp_i32(m < (float)t->top ? round_even(m) : t->top, 0, t->top);
}

// The factor of the block, one that a half can hold.
static float search_factor(const struct grid_type *t, const float *scale, const struct pick *best,
                           int groups) {
    float most = 0.0f, found = 0.0f, least = INFINITY;
    for (int k = 0; k < groups; k++)
        most = scale[k] > most ? scale[k] : most;
    for (int trial = -8; trial <= 24 && most > 0.0f; trial++) {
        float d =
            f16_to_f32(f32_to_f16(most / multiple(t, t->top) * (1.0f + 0.02f * (float)trial)));
        float sum = 0.0f, inv = inverse_scale(d);
        for (int k = 0; k < groups; k++) {
            float off = scale[k] - d * multiple(t, nearest_multiple(t, scale[k] * inv));
            sum += best[k].vv * off * off;
        }
        if (sum < least) {
            least = sum;
            found = d;
        }
    }
    return found;
}

// The multiple of d that leaves the least error, of the nearest one and its neighbours.
static int settle_scale(const struct search *s, const struct values *g, float d, float scale,
                        struct pick *best) {
    int near = nearest_multiple(s->t, scale * inverse_scale(d)), found = near;
    struct pick from = *best;
    best->cost = INFINITY;
    for (int c = near - 1; c <= near + 1; c++) {
        struct pick p = from;
        if (c < 0 || c > s->t->top || !try_scale(s, g, d * multiple(s->t, c), best->cost, &p))
            continue;
        *best = p;
        found = c;
    }
    return found;
}

// Once the codes stand, the least-squares factor for them.
static float refit_factor(const struct grid_type *t, const struct pick *best, const int *scale,
                          float d) {
    float xv = 0.0f, vv = 0.0f;
    for (int k = 0; k < 256 / t->group; k++) {
        float m = multiple(t, scale[k]);
        xv += m * best[k].xv;
        vv += m * m * best[k].vv;
    }
    float fit = xv / vv;
    return vv > 0.0f && fit > 0.0f && fit <= 65504.0f ? fit : d;
}

static void weigh(const struct grid_type *t, const float *x, const float *importance,
                  struct values *g) {
    float w[256], spread = t->spread / 256.0f * quant_sum_squares(x, 256);
    if (importance)
        quant_importance_weights(x, importance, 256, spread, w);
    for (int i = 0; i < 256; i++) {
        g[i / t->group].w[i % t->group] = importance ? w[i] : x[i] * x[i] + 0.25f * spread;
        g[i / t->group].a[i % t->group] = x[i];
    }
}

static void encode_block(const struct search *s, const float *x, const float *importance,
                         unsigned char *b) {
    const struct grid_type *t = s->t;
    int groups = 256 / t->group;
    struct values g[16];
    struct pick best[16];
    struct grid_block out = {0};
    float scale[16];
    weigh(t, x, importance, g);
    for (int m = 0; m < 32 && !t->span; m++) {
        int k = 8 * m / t->group, at = 8 * m % t->group;
        take_signs(t, g[k].a + at, g[k].w + at, &out.signs[m]);
    }
    for (int k = 0; k < groups; k++)
        scale[k] = search_scale(s, &g[k], &best[k]);
    out.d = search_factor(t, scale, best, groups);
    for (int k = 0; k < groups && out.d > 0.0f; k++)
        out.scale[k] = settle_scale(s, &g[k], out.d, scale[k], &best[k]);
    if (out.d > 0.0f)
        out.d = refit_factor(t, best, out.scale, out.d);
    for (int i = 0; i < 256 / t->values; i++) {
        int k = i * t->values / t->group, e = i - k * t->group / t->values;
        out.index[i] = best[k].index[e];
        out.less[i] = best[k].less[e];
    }
    t->pack(&out, b);
}

void quant_grid_encode(const struct grid_type *t, const float *x, const float *importance,
                       void *blocks, int64_t n) {
    struct search s = {.t = t};
    unsigned char *b = blocks;
    codebook_init(&s.book, t->entry, t->entries, t->values);
    for (int d = 0; d < (t->values == 8 ? 3 : 8); d++) {
        s.code[0][d] = (int8_t)(t->digit[d] + (t->span ? 1 : 0));
        s.code[1][d] = (int8_t)(t->digit[d] - (t->span ? 1 : 0));
    }
    for (int64_t i = 0; i < n; i += 256, b += t->bytes)
        encode_block(&s, x + i, importance ? importance + i : NULL, b);
}
