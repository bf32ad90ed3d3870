// SPDX-License-Identifier: Apache-2.0
// sample and head_topk against a sort of the whole vocabulary, and the law of the draws.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck.h"
#include "ops/rowmath.h"

enum { SEEN = 40 };

struct draw {
    int64_t vocab;
    float *logits;
    struct sample_row s;
    int32_t seen[SEEN], count[SEEN];
};

static void draw_init(struct draw *d, struct rng *r) {
    static const int sizes[] = {1, 2, 17, 300, 2048, 2049, 5000};
    static const float temperatures[] = {0, 0.3f, 0.8f, 1, 1.5f};
    d->vocab = sizes[rng_below(r, 7)];
    d->logits = malloc((size_t)d->vocab * 4);
    fill_random(r, d->logits, d->vocab, rng_below(r, 2) ? 8 : 0.5f);
    if (rng_below(r, 2)) // many equal scores
        for (int64_t i = 0; i < d->vocab; i++)
            d->logits[i] = rintf(d->logits[i] * 2) / 2;
    d->s = (struct sample_row){
        .pos = between(r, 0, 100000),
        .seed = rng_next(r),
        .temperature = temperatures[rng_below(r, 5)],
        .top_k = rng_below(r, 2) ? (int32_t)between(r, 0, rng_below(r, 3) ? 50 : 3000) : 0,
        .top_p = rng_below(r, 2) ? (float)between(r, 0, 100) / 100 : 1,
        .min_p = rng_below(r, 3) ? 0 : (float)between(r, 1, 60) / 100,
        .repeat = 1,
        .seen = d->seen,
        .seen_count = d->count};
    if (rng_below(r, 2)) {
        d->s.repeat = 1.3f;
        d->s.frequency = 0.2f;
        d->s.presence = 0.4f;
        d->s.n_seen = (int32_t)between(r, 0, d->vocab < SEEN ? d->vocab : SEEN);
    }
    for (int32_t i = 0; i < d->s.n_seen; i++) {
        d->seen[i] = (int32_t)(i * (d->vocab / d->s.n_seen));
        d->count[i] = (int32_t)between(r, 1, 5);
    }
}

struct ranked {
    float score;
    int32_t id;
};

static int by_rank(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id - y->id;
}

static struct ranked *ranked_scores(const struct draw *d) {
    struct ranked *v = malloc((size_t)d->vocab * sizeof *v);
    float *z = malloc((size_t)d->vocab * 4);
    memcpy(z, d->logits, (size_t)d->vocab * 4);
    for (int32_t i = 0; i < d->s.n_seen; i++) {
        float *x = &z[d->seen[i]];
        *x = *x > 0 ? *x / d->s.repeat : *x * d->s.repeat;
        *x -= d->s.frequency * (float)d->count[i] + d->s.presence;
    }
    for (int64_t i = 0; i < d->vocab; i++)
        v[i] = (struct ranked){d->s.temperature > 0 ? z[i] / d->s.temperature : z[i], (int32_t)i};
    free(z);
    qsort(v, (size_t)d->vocab, sizeof *v, by_rank);
    return v;
}

// How many of the ranked are kept, and whether the last decision was too close to call in floats.
static int64_t kept(const struct draw *d, const struct ranked *v, bool *close) {
    int64_t n = d->s.top_k > 0 && d->s.top_k < d->vocab ? d->s.top_k : d->vocab, keep = n;
    double total = 0, sum = 0, top = (double)v[0].score;
    for (int64_t i = 0; i < n; i++)
        total += exp((double)v[i].score - top);
    if (d->s.top_p < 1)
        for (keep = 0; keep < n && (keep == 0 || sum < (double)d->s.top_p * total); keep++) {
            sum += exp((double)v[keep].score - top);
            *close = *close || fabs(sum / total - (double)d->s.top_p) < 1e-5;
        }
    int64_t least = 0;
    while (least < keep && exp((double)v[least].score - top) >= (double)d->s.min_p) {
        double p = exp((double)v[least].score - top);
        *close = *close || (d->s.min_p > 0 && fabs(p / (double)d->s.min_p - 1) < 1e-5);
        least++;
    }
    return least;
}

static int32_t sorted_choice(const struct draw *d, bool *close) {
    struct ranked *v = ranked_scores(d);
    int32_t best = v[0].id;
    int64_t n = d->s.temperature > 0 ? kept(d, v, close) : 0;
    float top = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = rng_mix(rng_mix(d->s.seed) ^ (uint64_t)d->s.pos);
        float score = v[i].score + row_gumbel(key, v[i].id);
        if (score > top || (score == top && v[i].id < best)) {
            top = score;
            best = v[i].id;
        }
    }
    free(v);
    return best;
}

void check_sample_double(struct check *c) {
    int wrong = 0, skipped = 0, sampled = 0;
    enum { CASES = 1500 };
    for (int i = 0; i < CASES; i++) {
        struct draw d;
        int32_t got, want;
        bool close = false;
        draw_init(&d, &c->rng);
        want = sorted_choice(&d, &close);
        exec_ops(c->exec)->sample(c->exec, d.logits, 1, d.vocab, &d.s, &got);
        wrong += got != want && !close;
        skipped += close;
        sampled += d.s.temperature > 0;
        free(d.logits);
    }
    report(c, wrong == 0 && skipped < CASES / 4 && sampled > CASES / 2, "sample / sort",
           "1500 rows", "%d wrong choices, %d too close to call", wrong, skipped);
    enum { KINDS = 6, DRAWS = 60000 };
    float logits[KINDS] = {1, 0.5f, -1, 0, 2, -8};
    struct sample_row s = {.temperature = 0.7f, .top_k = 5, .top_p = 1, .repeat = 1};
    int count[KINDS] = {0};
    double p[KINDS], total = 0, chi = 0;
    for (int i = 0; i < DRAWS; i++) {
        int32_t id;
        s.pos = i;
        s.seed = 99;
        exec_ops(c->exec)->sample(c->exec, logits, 1, KINDS, &s, &id);
        count[id]++;
    }
    for (int i = 0; i < KINDS; i++)
        total += p[i] = i == 5 ? 0 : exp((double)logits[i] / 0.7);
    for (int i = 0; i < 5; i++) {
        double want = (double)DRAWS * p[i] / total;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    // 18.5 is passed once in a thousand with four degrees of freedom.
    report(c, chi < 18.5 && count[5] == 0, "sample: law", "60000 draws",
           "chi square %.2f (max 18.5)", chi);
}

static int64_t topk_wrong(struct check *c, struct rng *r, bool noisy) {
    struct draw d;
    draw_init(&d, r);
    int k = (int)between(r, 1, d.vocab < 20 ? d.vocab : 20);
    d.s.n_seen = 0;
    d.s.repeat = 1;
    d.s.frequency = d.s.presence = 0;
    if (!noisy)
        d.s.temperature = 0;
    struct ranked *v = ranked_scores(&d);
    double total = 0;
    uint64_t key = rng_mix(rng_mix(d.s.seed) ^ (uint64_t)d.s.pos);
    for (int64_t i = 0; i < d.vocab && d.s.temperature > 0; i++)
        v[i].score += row_gumbel(key, v[i].id);
    qsort(v, (size_t)d.vocab, sizeof *v, by_rank);
    for (int64_t i = 0; i < d.vocab; i++)
        total += exp((double)v[i].score - (double)v[0].score);
    int32_t ids[20];
    float logp[20];
    struct topk_args top = {.logits = d.logits,
                            .n = 1,
                            .vocab = d.vocab,
                            .k = k,
                            .noise = noisy ? &d.s : NULL,
                            .ids = ids,
                            .logp = logp};
    exec_ops(c->exec)->head_topk(c->exec, &top);
    int64_t wrong = 0;
    for (int i = 0; i < k; i++) {
        double want = (double)v[i].score - (double)v[0].score - log(total);
        wrong += ids[i] != v[i].id || fabs((double)logp[i] - want) > 1e-5 * (1 + fabs(want));
    }
    free(v);
    free(d.logits);
    return wrong;
}

void check_sample_rule(struct check *c) {
    int64_t wrong = 0;
    for (int i = 0; i < 400; i++)
        wrong += topk_wrong(c, &c->rng, i % 2);
    report(c, wrong == 0, "head_topk / sort", "400 rows", "%lld wrong entries", (long long)wrong);
}

// Choices of two levels, many rows at a time.
void check_sample(struct check *c) {
    enum { ROWS = 12 };
    int diff = 0;
    for (int i = 0; i < 60; i++) {
        struct draw d, e[ROWS];
        struct sample_row s[ROWS];
        int32_t a[ROWS], b[ROWS], ia[ROWS * 5], ib[ROWS * 5];
        float pa[ROWS * 5], pb[ROWS * 5];
        draw_init(&d, &c->rng);
        float *logits = malloc((size_t)(d.vocab * ROWS) * 4);
        fill_random(&c->rng, logits, d.vocab * ROWS, 5);
        for (int r = 0; r < ROWS; r++) {
            draw_init(&e[r], &c->rng);
            s[r] = e[r].s;
            s[r].n_seen = 0;
            free(e[r].logits);
        }
        exec_ops(c->spec)->sample(c->spec, logits, ROWS, d.vocab, s, a);
        exec_ops(c->exec)->sample(c->exec, logits, ROWS, d.vocab, s, b);
        struct topk_args top = {.logits = logits,
                                .n = ROWS,
                                .vocab = d.vocab,
                                .k = 5,
                                .noise = s,
                                .ids = ia,
                                .logp = pa};
        exec_ops(c->spec)->head_topk(c->spec, &top);
        top.ids = ib;
        top.logp = pb;
        exec_ops(c->exec)->head_topk(c->exec, &top);
        for (int r = 0; r < ROWS; r++)
            diff += a[r] != b[r];
        diff += memcmp(ia, ib, sizeof ia) != 0 || memcmp(pa, pb, sizeof pa) != 0;
        free(logits);
        free(d.logits);
    }
    report(c, diff == 0, "sample, head_topk", "60 batches", "%d differ (exact)", diff);
}

void check_sample_time(struct check *c) {
    enum { ROWS = 16, VOCAB = 8192 };
    float *logits = malloc(ROWS * VOCAB * 4);
    struct sample_row s[ROWS];
    int32_t choice[ROWS], ids[ROWS * 8];
    float logp[ROWS * 8];
    fill_random(&c->rng, logits, ROWS * VOCAB, 8);
    for (int kind = 0; kind < 3; kind++) {
        static const char *const names[] = {"greedy", "T 0.8", "T 0.8 top-k 40 top-p 0.95"};
        double best[2] = {1e30, 1e30};
        for (int r = 0; r < ROWS; r++)
            s[r] = (struct sample_row){
                .pos = r, .temperature = kind ? 0.8f : 0, .top_p = 1, .repeat = 1, .top_k = 0};
        for (int r = 0; r < ROWS && kind >= 2; r++) {
            s[r].top_k = 40;
            s[r].top_p = 0.95f;
        }
        for (int t = 0; t < 30; t++) {
            double a = now_us();
            exec_ops(c->exec)->sample(c->exec, logits, ROWS, VOCAB, s, choice);
            double b = now_us();
            struct topk_args top = {.logits = logits,
                                    .n = ROWS,
                                    .vocab = VOCAB,
                                    .k = 8,
                                    .noise = kind ? s : NULL,
                                    .ids = ids,
                                    .logp = logp};
            exec_ops(c->exec)->head_topk(c->exec, &top);
            double d = now_us();
            best[0] = b - a < best[0] ? b - a : best[0];
            best[1] = d - b < best[1] ? d - b : best[1];
        }
        report(c, true, "time sample", names[kind], "16 x 8192: %8.1f us, top-8 %8.1f us", best[0],
               best[1]);
    }
    free(logits);
}
