// SPDX-License-Identifier: Apache-2.0
// Encoders of the types that index a codebook, and of the ternary types, which need no search. For
// each group that shares a scale, trial scales from a range and then least-squares ones are judged
// by an exact search for all entries, which passes over most of them because the upper half alone
// already costs more than the best one so far; the factor of the block is the one whose multiples
// lie nearest to all groups' scales, counted by how much each matters; at last the multiples around
// each scale are tried with that factor.
#include <stdlib.h>

#include "formats/quant/grid.h"
#include "formats/quant/impl.h"
#include "formats/quant/search.h"

enum { CODEBOOK_BUCKETS = 81 };

// Entries as in the files, sorted by their upper halves: a bucket has those with the same one.
struct codebook {
    const uint16_t *entry;
    int values; // of an entry: 8 of three digits, or 4 of eight
    int n;      // buckets
    struct codebook_bucket {
        uint16_t upper, from, to;
    } bucket[CODEBOOK_BUCKETS];
};

// What each digit of each value of an entry would add to the error.
typedef float codebook_costs[8][8]; // [values][digits]

// The digit of value j of an entry.
static int codebook_digit(const struct codebook *c, int index, int j) {
    return c->values == 8 ? c->entry[index] >> 2 * j & 3 : c->entry[index] >> 3 * j & 7;
}

// The costs of both halves of an entry are tables; an entry costs the sum of one of each.
enum { HALF_CODES = 256 }; // four digits of two bits, or two of three

static int half_bits(const struct codebook *c) {
    return c->values == 8 ? 8 : 6;
}

// entry: [n], ascending; values: 8 or 4.
static void codebook_init(struct codebook *c, const uint16_t *entry, int n, int values) {
    *c = (struct codebook){.entry = entry, .values = values};
    for (int i = 0; i < n; i++) {
        uint16_t upper = (uint16_t)(entry[i] >> half_bits(c));
        if (!c->n || c->bucket[c->n - 1].upper != upper)
            c->bucket[c->n++] = (struct codebook_bucket){upper, (uint16_t)i, (uint16_t)i};
        c->bucket[c->n - 1].to = (uint16_t)(i + 1);
    }
}

// Sums of the costs of four values with three digits each, by the digits in two bits.
static void sums_of_four(const float (*cost)[8], float *sum) {
    float pair[16] = {0};
    for (int b = 0; b < 3; b++)
        for (int a = 0; a < 3; a++)
            pair[4 * b + a] = cost[0][a] + cost[1][b];
    for (int d = 0; d < 3; d++) {
        for (int c = 0; c < 3; c++) {
            float high = cost[2][c] + cost[3][d], *to = sum + 64 * d + 16 * c;
            for (int k = 0; k < 11; k++) // 3, 7 and 11 are no digits
                to[k] = pair[k] + high;
        }
    }
}

static void sums_of_two(const float (*cost)[8], float *sum) {
    for (int b = 0; b < 8; b++)
        for (int a = 0; a < 8; a++)
            sum[8 * b + a] = cost[0][a] + cost[1][b];
}

static float least_of(const float (*cost)[8], int values, int digits) {
    float sum = 0.0f;
    for (int j = 0; j < values; j++) {
        float min = cost[j][0];
        for (int d = 1; d < digits; d++)
            min = cost[j][d] < min ? cost[j][d] : min;
        sum += min;
    }
    return sum;
}

// The index of an entry with the least sum of costs, and that sum. first: an index to begin with;
// any will do, a good one saves time.
static int codebook_nearest(const struct codebook *c, const codebook_costs cost, int first,
                            float *min) {
    float lower[HALF_CODES] = {0}, upper[HALF_CODES] = {0};
    int half = c->values / 2, mask = (1 << half_bits(c)) - 1, found = first;
    if (c->values == 8) {
        sums_of_four(cost, lower);
        sums_of_four(cost + 4, upper);
    } else {
        sums_of_two(cost, lower);
        sums_of_two(cost + 2, upper);
    }
    float below = least_of(cost, half, c->values == 8 ? 3 : 8);
    float best = lower[c->entry[first] & mask] + upper[c->entry[first] >> half_bits(c)];
    for (int b = 0; b < c->n; b++) {
        const struct codebook_bucket *k = &c->bucket[b];
        float base = upper[k->upper];
        if (!(base + below < best))
            continue;
        for (int i = k->from; i < k->to; i++) {
            float sum = base + lower[c->entry[i] & mask];
            if (sum < best) {
                best = sum;
                found = i;
            }
        }
    }
    *min = best;
    return found;
}

// 256 values: d * (2 scale + 1) * unit times the digits' codes of the entries.
struct grid_block {
    float d;
    int scale[16];
    uint16_t index[64];
    unsigned char signs[32]; // of eight values each; set: negative
    unsigned char less[64];  // IQ1: codes lie one below the entry's, not one above
};

struct grid_type {
    int bytes; // of a block
    const uint16_t *entry;
    int entries, values; // in the codebook; of an entry
    const int8_t *digit; // what the digits of an entry stand for
    int group;           // values that share a scale
    int top;             // scales are 0 .. top
    float unit;
    bool parity;      // an even number of eight values is negative
    int span;         // IQ1: entries that lie on the same side of their codes; 0 for others
    float spread;     // of the mean square, in the weights
    float from, step; // trial scales: the first one, the next by the one before
    void (*pack)(const struct grid_block *g, unsigned char *b);
};

enum { TRIALS = 9, REFITS = 3 };

// The choice of entries for a group of values at one scale.
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
    float min;
    for (int j = 0; j < n; j++) {
        for (int d = 0; d < digits; d++) {
            float off = a[j] - scale * (float)s->code[less][d];
            cost[j][d] = w[j] * off * off;
        }
    }
    p->index[e] = (uint16_t)codebook_nearest(&s->book, cost, p->index[e], &min);
    p->less[e] = (unsigned char)less;
    return min;
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

// All entries of the group; p holds those to begin with. Stops where its error reaches the limit.
static bool try_scale(const struct search *s, const struct values *g, float scale, float limit,
                      struct pick *p) {
    const int n = s->t->values, count = s->t->group / n;
    p->cost = p->xv = p->vv = 0.0f;
    for (int e = 0; e < count; e += s->t->span ? s->t->span : 1) {
        p->cost += try_span(s, g, e, scale, p);
        if (!(p->cost < limit))
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
    float largest = 0.0f, found = 0.0f, top = (float)s->code[0][s->t->values == 8 ? 2 : 7];
    for (int i = 0; i < s->t->group; i++)
        largest = fabsf(g->a[i]) > largest ? fabsf(g->a[i]) : largest;
    struct pick p = {0};
    *best = (struct pick){.cost = INFINITY};
    if (largest < QUANT_NEGLIGIBLE)
        return 0.0f;
    float scale = s->t->from * largest / top;
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
    float largest = 0.0f, found = 0.0f, min = INFINITY;
    for (int k = 0; k < groups; k++)
        largest = scale[k] > largest ? scale[k] : largest;
    for (int trial = -8; trial <= 24 && largest > 0.0f; trial++) {
        float d =
            f16_to_f32(f32_to_f16(largest / multiple(t, t->top) * (1.0f + 0.02f * (float)trial)));
        float sum = 0.0f, inv = inverse_scale(d);
        for (int k = 0; k < groups; k++) {
            float off = scale[k] - d * multiple(t, nearest_multiple(t, scale[k] * inv));
            sum += best[k].vv * off * off;
        }
        if (sum < min) {
            min = sum;
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

static void weigh_groups(const struct grid_type *t, const float *x, const float *importance,
                         struct values *g) {
    float w[256], spread = t->spread / 256.0f * quant_sum_squares(x, 256);
    if (importance)
        quant_importance_weights(x, importance, 256, spread, w);
    for (int i = 0; i < 256; i++) {
        g[i / t->group].w[i % t->group] = importance ? w[i] : x[i] * x[i] + 0.25f * spread;
        g[i / t->group].a[i % t->group] = x[i];
    }
}

static void encode_grid_block(const struct search *s, const float *x, const float *importance,
                              unsigned char *b) {
    const struct grid_type *t = s->t;
    int groups = 256 / t->group;
    struct values g[16];
    struct pick best[16];
    struct grid_block out = {0};
    float scale[16];
    weigh_groups(t, x, importance, g);
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

// n values, a multiple of 256, to blocks. importance: [n], or NULL.
static void encode_grid(const struct grid_type *t, const float *x, const float *importance,
                        void *blocks, int64_t n) {
    struct search s = {.t = t};
    unsigned char *b = blocks;
    codebook_init(&s.book, t->entry, t->entries, t->values);
    for (int d = 0; d < (t->values == 8 ? 3 : 8); d++) {
        s.code[0][d] = (int8_t)(t->digit[d] + (t->span ? 1 : 0));
        s.code[1][d] = (int8_t)(t->digit[d] - (t->span ? 1 : 0));
    }
    for (int64_t i = 0; i < n; i += 256, b += t->bytes)
        encode_grid_block(&s, x + i, importance ? importance + i : NULL, b);
}

static void store_u32(unsigned char *p, uint32_t v) {
    store_u16(p, (uint16_t)(v & 0xFFFF));
    store_u16(p + 2, (uint16_t)(v >> 16));
}

static void put_nibbles(const int *scale, int n, unsigned char *b) {
    for (int k = 0; k < n; k += 2)
        b[k / 2] = (unsigned char)(scale[k] | scale[k + 1] << 4);
}

// Four times seven signs and a scale.
static uint32_t signs_and_scale(const unsigned char *signs, int scale) {
    uint32_t w = (uint32_t)scale << 28;
    for (int m = 0; m < 4; m++)
        w |= (uint32_t)(signs[m] & 127) << 7 * m;
    return w;
}

static void pack_iq2_xxs(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int k = 0; k < 8; k++) {
        for (int m = 0; m < 4; m++)
            b[2 + 8 * k + m] = (unsigned char)g->index[4 * k + m];
        store_u32(b + 6 + 8 * k, signs_and_scale(g->signs + 4 * k, g->scale[k]));
    }
}

static void pack_iq2_xs(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int m = 0; m < 32; m++)
        store_u16(b + 2 + 2 * m, (uint16_t)(g->index[m] | (g->signs[m] & 127) << 9));
    put_nibbles(g->scale, 16, b + 66);
}

static void pack_iq2_s(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    memset(b + 66, 0, 8);
    for (int m = 0; m < 32; m++) {
        b[2 + m] = (unsigned char)(g->index[m] & 255);
        b[34 + m] = g->signs[m];
        b[66 + m / 4] |= (unsigned char)(g->index[m] >> 8 << 2 * (m % 4));
    }
    put_nibbles(g->scale, 16, b + 74);
}

static void pack_iq3_xxs(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int p = 0; p < 64; p++)
        b[2 + p] = (unsigned char)g->index[p];
    for (int k = 0; k < 8; k++)
        store_u32(b + 66 + 4 * k, signs_and_scale(g->signs + 4 * k, g->scale[k]));
}

static void pack_iq3_s(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    memset(b + 66, 0, 8);
    for (int p = 0; p < 64; p++) {
        b[2 + p] = (unsigned char)(g->index[p] & 255);
        b[66 + p / 8] |= (unsigned char)(g->index[p] >> 8 << p % 8);
    }
    memcpy(b + 74, g->signs, 32);
    put_nibbles(g->scale, 8, b + 106);
}

static void pack_iq1_s(const struct grid_block *g, unsigned char *b) {
    store_u16(b, f32_to_f16(g->d));
    for (int k = 0; k < 8; k++) {
        unsigned h = (unsigned)g->scale[k] << 12 | (unsigned)g->less[4 * k] << 15;
        for (int m = 0; m < 4; m++) {
            b[2 + 4 * k + m] = (unsigned char)(g->index[4 * k + m] & 255);
            h |= (unsigned)(g->index[4 * k + m] >> 8) << 3 * m;
        }
        store_u16(b + 34 + 2 * k, (uint16_t)h);
    }
}

static void pack_iq1_m(const struct grid_block *g, unsigned char *b) {
    uint16_t d = f32_to_f16(g->d);
    memset(b + 32, 0, 16);
    for (int m = 0; m < 32; m++) {
        unsigned n = (unsigned)(g->index[m] >> 8) | (unsigned)g->less[m] << 3;
        b[m] = (unsigned char)(g->index[m] & 255);
        b[32 + m / 2] |= (unsigned char)(n << 4 * (m % 2));
    }
    for (int k = 0; k < 4; k++) {
        unsigned s = (unsigned)(d >> 4 * k & 15) << 12;
        for (int i = 0; i < 4; i++)
            s |= (unsigned)g->scale[4 * k + i] << 3 * i;
        store_u16(b + 48 + 2 * k, (uint16_t)s);
    }
}

// Trial scales: `from` in units of the scale at which the largest value gets the largest code.
#define TYPE(type, name, book, n, of, ...)                                                         \
    static const struct grid_type type_##name = {.bytes = BYTES_##type,                            \
                                                 .entry = book,                                    \
                                                 .entries = n,                                     \
                                                 .digit = of,                                      \
                                                 .pack = pack_##name,                              \
                                                 __VA_ARGS__};                                     \
    void quant_encode_##name(const float *src, void *dst, int64_t n_) {                            \
        encode_grid(&type_##name, src, NULL, dst, n_);                                             \
    }                                                                                              \
    void quant_weighted_##name(const float *src, const float *importance, void *dst, int64_t n_) { \
        encode_grid(&type_##name, src, importance, dst, n_);                                       \
    }
#define OF_8 .values = 8, .unit = 0.125f

TYPE(IQ2_XXS, iq2_xxs, quant_grid_iq2_xxs, 256, quant_digits_iq2, OF_8, .group = 32, .top = 15,
     .parity = true, .spread = 1.0f, .from = 0.4f, .step = 1.13f)
TYPE(IQ2_XS, iq2_xs, quant_grid_iq2_xs, 512, quant_digits_iq2, OF_8, .group = 16, .top = 15,
     .parity = true, .spread = 1.0f, .from = 0.4f, .step = 1.13f)
TYPE(IQ2_S, iq2_s, quant_grid_iq2_s, 1024, quant_digits_iq2, OF_8, .group = 16, .top = 15,
     .spread = 2.0f, .from = 0.4f, .step = 1.13f)
TYPE(IQ3_XXS, iq3_xxs, quant_grid_iq3_xxs, 256, quant_digits_iq3_xxs, .values = 4, .unit = 0.25f,
     .group = 32, .top = 15, .parity = true, .spread = 2.0f, .from = 0.5f, .step = 1.1f)
TYPE(IQ3_S, iq3_s, quant_grid_iq3_s, 512, quant_digits_iq3_s, .values = 4, .unit = 1.0f,
     .group = 32, .top = 15, .spread = 2.0f, .from = 0.5f, .step = 1.1f)
TYPE(IQ1_S, iq1_s, quant_grid_iq1, 2048, quant_digits_iq1, OF_8, .group = 32, .top = 7, .span = 4,
     .spread = 2.0f, .from = 0.3f, .step = 1.15f)
TYPE(IQ1_M, iq1_m, quant_grid_iq1, 2048, quant_digits_iq1, OF_8, .group = 16, .top = 7, .span = 1,
     .spread = 2.0f, .from = 0.3f, .step = 1.15f)

// Ternary types: the largest k values as d or -d and the rest as 0. For any k the best d is the
// weighted mean of their sizes, and no other choice of values is better for that d.

struct sized {
    float size, w;
};

static int by_size(const void *a, const void *b) {
    float x = ((const struct sized *)a)->size, y = ((const struct sized *)b)->size;
    return (x < y) - (x > y);
}

// d, and the digits 0, 1, 2 of 256 values. Importances that are all 0 count as equal.
static float ternary(const float *x, const float *importance, unsigned char *digit) {
    struct sized v[256];
    float sum = 0.0f, weight = 0.0f, best = 0.0f, d = 0.0f, any = 0.0f;
    for (int i = 0; i < 256 && importance; i++)
        any += importance[i];
    for (int i = 0; i < 256; i++)
        v[i] = (struct sized){fabsf(x[i]), any > 0.0f ? importance[i] : 1.0f};
    qsort(v, 256, sizeof *v, by_size);
    for (int i = 0; i < 256; i++) {
        sum += v[i].w * v[i].size;
        weight += v[i].w;
        if (weight > 0.0f && sum * sum > best * weight) {
            best = sum * sum / weight;
            d = sum / weight;
        }
    }
    for (int i = 0; i < 256; i++)
        digit[i] = (unsigned char)(1 + (2.0f * x[i] > d) - (2.0f * x[i] < -d));
    return d;
}

// A byte stands for a fraction of 256; rounded up, so that no digit falls below itself.
static unsigned char five_digits(const unsigned char *digit, int side, int n) {
    unsigned sum = 0;
    for (int k = 0; k < 5; k++)
        sum = 3 * sum + (k < n ? digit[k * side] : 0u);
    return (unsigned char)((256 * sum + 242) / 243);
}

static void tq1_0_encode(const float *x, const float *importance, unsigned char *b) {
    unsigned char digit[256];
    store_u16(b + 52, f32_to_f16(ternary(x, importance, digit)));
    for (int i = 0; i < 32; i++)
        b[i] = five_digits(digit + i, 32, 5);
    for (int i = 0; i < 16; i++)
        b[32 + i] = five_digits(digit + 160 + i, 16, 5);
    for (int i = 0; i < 4; i++)
        b[48 + i] = five_digits(digit + 240 + i, 4, 4);
}

static void tq2_0_encode(const float *x, const float *importance, unsigned char *b) {
    unsigned char digit[256];
    store_u16(b + 64, f32_to_f16(ternary(x, importance, digit)));
    memset(b, 0, 64);
    for (int i = 0; i < 256; i++)
        b[32 * (i / 128) + i % 32] |= (unsigned char)(digit[i] << 2 * (i % 128 / 32));
}

QUANT_ENCODERS(TQ1_0, tq1_0)
QUANT_ENCODERS(TQ2_0, tq2_0)
