// SPDX-License-Identifier: Apache-2.0
// sample and head_topk against a sort of the whole vocabulary, masks, biases, log-probabilities of
// chosen and of given tokens, and the law of the draws.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "opcheck/families.h"
#include "ops/rowmath.h"

enum { SEEN = 40, BIASED = 60, MAX_VOCAB = 5000 };

struct draw {
    int64_t vocab;
    float *logits;
    struct sample_row s;
    int32_t seen[SEEN], count[SEEN];
    struct logit_bias bias[BIASED];
    uint32_t allow[(MAX_VOCAB + 31) / 32];
};

// Masks of all kinds: everything, about half, a few, one token.
static void mask_init(struct draw *d, struct rng *r) {
    enum { WORDS = sizeof d->allow / sizeof d->allow[0] };
    int kind = (int)rng_below(r, 4);
    for (int i = 0; i < WORDS; i++) {
        uint32_t word = (uint32_t)(rng_next(r) >> 32);
        d->allow[i] = kind == 0 ? 0xFFFFFFFFu : kind == 1 ? word : 0;
    }
    for (int i = 0; i < (kind == 2 ? 20 : 1); i++) {
        int64_t id = between(r, 0, d->vocab - 1);
        d->allow[id / 32] |= 1u << (id % 32);
    }
    d->s.allow = d->allow;
}

// Biases of some tokens, those with penalties among them; one in four forbids its token.
static void bias_init(struct draw *d, struct rng *r) {
    int64_t max = d->vocab < BIASED ? d->vocab : BIASED, step = d->vocab / max;
    d->s.n_bias = (int32_t)between(r, 1, max);
    d->s.bias = d->bias;
    for (int32_t i = 0; i < d->s.n_bias; i++) {
        int64_t id = rng_below(r, 2) ? i * step : i * step + between(r, 0, step - 1);
        float bias = (float)between(r, -20, 20) / 2;
        d->bias[i] = (struct logit_bias){(int32_t)id, rng_below(r, 4) ? bias : -INFINITY};
    }
}

static void draw_init(struct draw *d, struct rng *r) {
    static const int sizes[] = {1, 2, 17, 300, 2048, 2049, MAX_VOCAB};
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
    if (rng_below(r, 3) == 0)
        mask_init(d, r);
    if (rng_below(r, 3) == 0)
        bias_init(d, r);
}

// Choices for n rows of host logits.
static void run_sample(struct check *c, struct exec *x, const float *logits, int64_t n,
                       int64_t vocab, const struct sample_row *rows, int32_t *choice) {
    struct buffers r;
    buffers_open(&r, c, x);
    const float *in = buffers_in(&r, logits, (size_t)(n * vocab) * sizeof *logits);
    exec_ops(x)->sample(x, in, n, vocab, rows, choice);
    buffers_close(&r);
}

// Tokens of a list, with and without gaps; NULL: there is no list. To be freed.
static int32_t *tokens_of(struct rng *r, int64_t n) {
    if (rng_below(r, 2))
        return NULL;
    int32_t *tokens = malloc((size_t)n * sizeof *tokens), next = (int32_t)rng_below(r, 9);
    for (int64_t i = 0; i < n; i++) {
        tokens[i] = next;
        next += rng_below(r, 9) ? 1 : 1 + (int32_t)rng_below(r, 200);
    }
    return tokens;
}

// a->logits and ids_of: host.
static void run_topk(struct check *c, struct exec *x, const struct topk_args *a) {
    struct topk_args on = *a;
    struct buffers r;
    buffers_open(&r, c, x);
    on.logits = buffers_in(&r, a->logits, (size_t)(a->n * a->vocab) * sizeof *a->logits);
    if (a->ids_of)
        on.ids_of = buffers_in(&r, a->ids_of, (size_t)a->vocab * sizeof *a->ids_of);
    exec_ops(x)->head_topk(x, &on);
    buffers_close(&r);
}

static bool has_sample(struct check *c) {
    const bool sample = CHECK_HAS(c, sample), topk = CHECK_HAS(c, head_topk);
    return sample && topk; // each says so where it is missing
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

// The tokens that are allowed; *n: how many.
static struct ranked *ranked_scores(const struct draw *d, int64_t *n) {
    struct ranked *v = malloc((size_t)d->vocab * sizeof *v);
    float *z = malloc((size_t)d->vocab * 4);
    memcpy(z, d->logits, (size_t)d->vocab * 4);
    for (int32_t i = 0; i < d->s.n_bias; i++)
        z[d->bias[i].id] += d->bias[i].bias;
    for (int32_t i = 0; i < d->s.n_seen; i++) {
        float *x = &z[d->seen[i]];
        *x = *x > 0 ? *x / d->s.repeat : *x * d->s.repeat;
        *x -= d->s.frequency * (float)d->count[i] + d->s.presence;
    }
    *n = 0;
    for (int64_t i = 0; i < d->vocab; i++)
        if (!d->s.allow || (d->s.allow[i / 32] >> (i % 32) & 1))
            v[(*n)++] =
                (struct ranked){d->s.temperature > 0 ? z[i] / d->s.temperature : z[i], (int32_t)i};
    free(z);
    qsort(v, (size_t)*n, sizeof *v, by_rank);
    return v;
}

// How many of the ranked are kept, and whether the last decision was too close to call in floats.
static int64_t kept(const struct draw *d, const struct ranked *v, int64_t all, bool *close) {
    int64_t n = d->s.top_k > 0 && d->s.top_k < all ? d->s.top_k : all, keep = n;
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

// The choice by the sorted scores; *close: another one is as good within rounding. Only scores
// with noise round otherwise on a device.
static int32_t sorted_choice(const struct draw *d, bool device, bool *close) {
    int64_t all;
    struct ranked *v = ranked_scores(d, &all);
    int32_t best = v[0].id;
    int64_t n = d->s.temperature > 0 ? kept(d, v, all, close) : 0;
    float top = -INFINITY, second = -INFINITY;
    for (int64_t i = 0; i < n; i++) {
        uint64_t key = rng_mix(rng_mix(d->s.seed) ^ (uint64_t)d->s.pos);
        float score = v[i].score + row_gumbel(key, v[i].id);
        if (score > top || (score == top && v[i].id < best)) {
            second = top;
            top = score;
            best = v[i].id;
        } else if (score > second) {
            second = score;
        }
    }
    *close = *close || (device && top - second < 1e-5f * (1 + fabsf(top)));
    free(v);
    return best;
}

// Frequencies of six tokens, the last of which top-k has cut off.
static void check_law(struct check *c) {
    enum { KINDS = 6, DRAWS = 60000, BATCH = 500 };
    static const float one[KINDS] = {1, 0.5f, -1, 0, 2, -8};
    float logits[BATCH * KINDS];
    struct sample_row s[BATCH];
    int count[KINDS] = {0};
    double p[KINDS], total = 0, chi = 0;
    for (int i = 0; i < BATCH; i++)
        memcpy(logits + i * KINDS, one, sizeof one);
    for (int at = 0; at < DRAWS; at += BATCH) {
        int32_t id[BATCH];
        for (int i = 0; i < BATCH; i++)
            s[i] = (struct sample_row){.pos = at + i,
                                       .seed = 99,
                                       .temperature = 0.7f,
                                       .top_k = 5,
                                       .top_p = 1,
                                       .repeat = 1};
        run_sample(c, c->exec, logits, BATCH, KINDS, s, id);
        for (int i = 0; i < BATCH; i++)
            count[id[i]]++;
    }
    for (int i = 0; i < KINDS; i++)
        total += p[i] = i == 5 ? 0 : exp((double)one[i] / 0.7);
    for (int i = 0; i < 5; i++) {
        double want = (double)DRAWS * p[i] / total;
        chi += (count[i] - want) * (count[i] - want) / want;
    }
    // 18.5 is passed once in a thousand with four degrees of freedom.
    report(c, chi < 18.5 && count[5] == 0, "sample: law", "60000 draws",
           "chi square %.2f (max 18.5)", chi);
}

// Log-probabilities of a row in doubles: how many entries are wrong.
static int logprobs_wrong(const struct draw *d, bool device, int32_t choice,
                          const struct sample_logprobs *p) {
    struct draw plain = *d;
    double total = 0, allowed = device ? 3e-5 : 1e-5;
    int64_t all;
    plain.s = (struct sample_row){0};
    struct ranked *v = ranked_scores(&plain, &all);
    for (int64_t i = 0; i < all; i++)
        total += exp((double)v[i].score - (double)v[0].score);
    double lse = (double)v[0].score + log(total);
    double want = (double)d->logits[choice] - lse;
    int wrong = fabs((double)p->chosen - want) > allowed * (1 + fabs(want));
    for (int i = 0; i < p->n && i < all; i++) {
        want = (double)v[i].score - lse;
        wrong +=
            p->ids[i] != v[i].id || fabs((double)p->logp[i] - want) > allowed * (1 + fabs(want));
    }
    for (int64_t i = all; i < p->n; i++)
        wrong += p->ids[i] != -1 || p->logp[i] != -INFINITY;
    free(v);
    return wrong;
}

// Masks that leave next to nothing, at both kinds of temperature and with every filter.
static void check_masks(struct check *c) {
    enum { VOCAB = 300, ROWS = 12 };
    static float logits[ROWS * VOCAB];
    static const uint32_t none[10], two[10] = {1u << 7, [7] = 1u << 26}; // 7 and 250
    struct sample_logprobs p[ROWS];
    struct sample_row s[ROWS];
    int32_t choice[ROWS];
    int wrong = 0;
    for (int i = 0; i < ROWS; i++) {
        s[i] = (struct sample_row){.pos = i,
                                   .temperature = i % 2 ? 0.8f : 0,
                                   .top_k = i % 3 == 1 ? 4 : 0,
                                   .top_p = i % 3 == 2 ? 0.9f : 1,
                                   .repeat = 1,
                                   .allow = i < 6 ? none : two,
                                   .logprobs = &p[i]};
        p[i].n = 2;
        fill_random(&c->rng, logits + i * VOCAB, VOCAB, 4);
        logits[i * VOCAB + 7] = logits[i * VOCAB + 250] = -INFINITY;
    }
    run_sample(c, c->exec, logits, ROWS, VOCAB, s, choice);
    for (int i = 0; i < ROWS; i++)
        wrong += choice[i] != (i < 6 ? -1 : 7) || p[i].chosen != -INFINITY || p[i].ids[0] < 0;
    report(c, wrong == 0, "sample: masks", "nothing, and nothing likely", "%d wrong", wrong);
}

// What a bias forbids is not chosen, however likely and with whatever filter, as long as something
// else may be; penalties come after biases.
static void check_forbidden(struct check *c) {
    enum { VOCAB = 3000, ROWS = 24 };
    static float logits[ROWS * VOCAB];
    static struct logit_bias best[2] = {{700, -INFINITY}, {2900, -INFINITY}}, all[VOCAB], pushed[1];
    static const int32_t seen[1] = {1234}, count[1] = {1};
    struct sample_row s[ROWS];
    int32_t choice[ROWS];
    int wrong = 0;
    for (int i = 0; i < VOCAB; i++)
        all[i] = (struct logit_bias){i, i == 77 ? 0.0f : -INFINITY};
    pushed[0] = (struct logit_bias){1234, 30};
    for (int i = 0; i < ROWS; i++) {
        s[i] = (struct sample_row){.pos = i,
                                   .temperature = i % 2 ? 0.8f : 0,
                                   .top_k = i % 4 == 1 ? 4 : 0,
                                   .top_p = i % 4 == 3 ? 0.9f : 1,
                                   .min_p = i % 8 == 5 ? 0.1f : 0,
                                   .repeat = i % 3 == 2 ? 2.0f : 1,
                                   .seen = seen,
                                   .seen_count = count,
                                   .n_seen = 1,
                                   .bias = i % 3 == 0   ? best
                                           : i % 3 == 1 ? all
                                                        : pushed,
                                   .n_bias = i % 3 == 0   ? 2
                                             : i % 3 == 1 ? VOCAB
                                                          : 1};
        fill_random(&c->rng, logits + i * VOCAB, VOCAB, 1);
        logits[i * VOCAB + 700] = logits[i * VOCAB + 2900] = 40;
        logits[i * VOCAB + 1234] = -2; // 28 with its bias, and half of that with its penalty
        logits[i * VOCAB + 5] = i % 3 == 2 ? 14.5f : 0;
        if (i % 3 == 2)
            logits[i * VOCAB + 700] = logits[i * VOCAB + 2900] = 0;
    }
    run_sample(c, c->exec, logits, ROWS, VOCAB, s, choice);
    for (int i = 0; i < ROWS; i++)
        wrong += i % 3 == 0   ? choice[i] == 700 || choice[i] == 2900
                 : i % 3 == 1 ? choice[i] != 77
                              : choice[i] != 5 && s[i].temperature <= 0;
    report(c, wrong == 0, "sample: biases", "24 rows", "%d wrong", wrong);
}

// Rows whose token is known among others: it is what they give, with its log-probability.
static void check_given(struct check *c) {
    enum { VOCAB = 4099, ROWS = 150 }; // more than a launch of a device holds
    float *logits = malloc(sizeof *logits * ROWS * VOCAB);
    struct sample_logprobs p[ROWS], alone;
    struct sample_row s[ROWS];
    int32_t choice[ROWS], one;
    int wrong = 0;
    fill_random(&c->rng, logits, (int64_t)ROWS * VOCAB, 6);
    for (int i = 0; i < ROWS; i++) {
        p[i].n = alone.n = i % 7;
        s[i] = (struct sample_row){.pos = i,
                                   .temperature = 0.7f,
                                   .top_p = 1,
                                   .repeat = 1,
                                   .given = i < 3 || i % 4 > 0,
                                   .token = (int32_t)between(&c->rng, 0, VOCAB - 1),
                                   .logprobs = i % 3 ? &p[i] : NULL};
    }
    run_sample(c, c->exec, logits, ROWS, VOCAB, s, choice);
    for (int i = 0; i < ROWS; i++) {
        struct sample_row greedy = {.top_p = 1, .repeat = 1, .logprobs = &alone};
        struct draw d = {.vocab = VOCAB, .logits = logits + i * VOCAB};
        alone.n = p[i].n;
        wrong += s[i].given && choice[i] != s[i].token;
        if (!s[i].logprobs)
            continue;
        run_sample(c, c->exec, d.logits, 1, VOCAB, &greedy, &one);
        wrong += logprobs_wrong(&d, c->device, choice[i], &p[i]) ||
                 memcmp(alone.ids, p[i].ids, (size_t)alone.n * sizeof *alone.ids) != 0 ||
                 memcmp(alone.logp, p[i].logp, (size_t)alone.n * sizeof *alone.logp) != 0;
    }
    free(logits);
    report(c, wrong == 0, "sample: given tokens", "150 rows", "%d wrong", wrong);
}

void check_sample_double(struct check *c) {
    int wrong = 0, skipped = 0, sampled = 0, masked = 0, biased = 0, unlike = 0;
    const int cases = c->brief ? 100 : 1500;
    if (!has_sample(c))
        return;
    for (int i = 0; i < cases; i++) {
        struct draw d;
        int32_t got = -1, want;
        bool close = false;
        struct sample_logprobs p = {.n = (int)between(&c->rng, 0, 20)};
        draw_init(&d, &c->rng);
        want = sorted_choice(&d, c->device, &close);
        d.s.logprobs = i % 2 ? &p : NULL;
        run_sample(c, c->exec, d.logits, 1, d.vocab, &d.s, &got);
        wrong += got != want && !close;
        masked += d.s.allow != NULL;
        biased += d.s.n_bias > 0;
        unlike += i % 2 ? logprobs_wrong(&d, c->device, got, &p) : 0;
        skipped += close;
        sampled += d.s.temperature > 0;
        free(d.logits);
    }
    report(c,
           wrong == 0 && skipped < cases / 4 && sampled > cases / 2 && masked > cases / 5 &&
               biased > cases / 5,
           "sample / sort", c->brief ? "100 rows" : "1500 rows",
           "%d wrong choices, %d too close to call", wrong, skipped);
    report(c, unlike == 0, "sample / double", "log-probabilities of half", "%d wrong", unlike);
    check_masks(c);
    check_forbidden(c);
    check_given(c);
    check_law(c);
}

static int64_t topk_wrong(struct check *c, struct rng *r, bool noisy) {
    struct draw d;
    draw_init(&d, r);
    int k = (int)between(r, 1, d.vocab < 20 ? d.vocab : 20);
    d.s.n_seen = d.s.n_bias = 0;
    d.s.repeat = 1;
    d.s.frequency = d.s.presence = 0;
    if (!noisy)
        d.s.temperature = 0;
    d.s.allow = NULL;
    int64_t all;
    struct ranked *v = ranked_scores(&d, &all);
    double total = 0;
    uint64_t key = rng_mix(rng_mix(d.s.seed) ^ (uint64_t)d.s.pos);
    int32_t *tokens = tokens_of(r, d.vocab);
    for (int64_t i = 0; i < d.vocab && d.s.temperature > 0; i++)
        v[i].score += row_gumbel(key, tokens ? tokens[v[i].id] : v[i].id);
    qsort(v, (size_t)d.vocab, sizeof *v, by_rank);
    float *score = malloc((size_t)d.vocab * sizeof *score);
    for (int64_t i = 0; i < d.vocab; i++) {
        total += exp((double)v[i].score - (double)v[0].score);
        score[v[i].id] = v[i].score;
    }
    int32_t ids[20];
    float logp[20];
    struct topk_args top = {.logits = d.logits,
                            .n = 1,
                            .vocab = d.vocab,
                            .k = k,
                            .noise = noisy ? &d.s : NULL,
                            .ids_of = tokens,
                            .ids = ids,
                            .logp = logp};
    run_topk(c, c->exec, &top);
    int64_t wrong = 0;
    for (int i = 0; i < k; i++) {
        double want = (double)v[i].score - (double)v[0].score - log(total);
        bool known = ids[i] >= 0 && ids[i] < d.vocab;
        // Scores with noise round otherwise on a device, so neighbours in rank may change places.
        bool near =
            known && c->device && noisy && d.s.temperature > 0 &&
            fabs((double)(score[ids[i]] - v[i].score)) < 1e-5 * (1 + fabs((double)v[i].score));
        wrong += (ids[i] != v[i].id && !near) ||
                 fabs((double)logp[i] - want) > (c->device ? 3e-5 : 1e-5) * (1 + fabs(want));
    }
    free(tokens);
    free(score);
    free(v);
    free(d.logits);
    return wrong;
}

enum { ROWS = 12, BEST = 5 };

// Rows of logits with parameters of their own. Penalties look at lists of the row's draw.
struct batch {
    int64_t vocab;
    float *logits;
    int32_t *tokens; // of topk; NULL: no list
    struct draw draws[ROWS];
    struct sample_row rows[ROWS];
};

static void batch_init(struct batch *b, struct rng *r) {
    draw_init(&b->draws[0], r);
    b->vocab = b->draws[0].vocab;
    free(b->draws[0].logits);
    b->logits = malloc((size_t)(b->vocab * ROWS) * 4);
    fill_random(r, b->logits, b->vocab * ROWS, 5);
    b->tokens = tokens_of(r, b->vocab);
    for (int i = 0; i < ROWS; i++) {
        draw_init(&b->draws[i], r);
        free(b->draws[i].logits);
        b->rows[i] = b->draws[i].s;
        b->rows[i].given = i % 5 == 4;
        b->rows[i].token = (int32_t)between(r, 0, b->vocab - 1);
        if (b->draws[i].vocab > b->vocab) // its lists may name tokens that are not there
            b->rows[i].n_seen = b->rows[i].n_bias = 0;
    }
}

struct picks {
    int32_t choice[ROWS], ids[ROWS * BEST];
    float logp[ROWS * BEST];
    struct sample_logprobs logprobs[ROWS];
};

// All rows of a batch, `each` at a time.
static void run_batch(struct check *c, struct exec *x, const struct batch *b, int each,
                      struct picks *p) {
    struct sample_row rows[ROWS];
    memset(p, 0xFF, sizeof *p);
    memcpy(rows, b->rows, sizeof rows);
    for (int i = 0; i < ROWS; i++) {
        p->logprobs[i].n = i * 3 % 11;
        rows[i].logprobs = i % 4 ? &p->logprobs[i] : NULL;
    }
    for (int at = 0; at < ROWS; at += each) {
        int n = each < ROWS - at ? each : ROWS - at;
        struct topk_args top = {.logits = b->logits + at * b->vocab,
                                .n = n,
                                .vocab = b->vocab,
                                .k = BEST,
                                .noise = b->rows + at,
                                .ids_of = b->tokens,
                                .ids = p->ids + at * BEST,
                                .logp = p->logp + at * BEST};
        run_sample(c, x, top.logits, n, b->vocab, rows + at, p->choice + at);
        run_topk(c, x, &top);
    }
}

static int differing_rows(const struct picks *a, const struct picks *b) {
    int differ = 0;
    for (int i = 0; i < ROWS; i++)
        differ += a->choice[i] != b->choice[i] ||
                  memcmp(&a->logprobs[i], &b->logprobs[i], sizeof a->logprobs[i]) ||
                  memcmp(a->ids + i * BEST, b->ids + i * BEST, BEST * sizeof *a->ids) ||
                  memcmp(a->logp + i * BEST, b->logp + i * BEST, BEST * sizeof *a->logp);
    return differ;
}

// A choice does not depend on the rows next to it.
void check_sample_rule(struct check *c) {
    int64_t wrong = 0, differ = 0;
    if (!has_sample(c))
        return;
    const int batches = c->brief ? 4 : 40;
    for (int i = 0; i < 10 * batches; i++)
        wrong += topk_wrong(c, &c->rng, i % 2);
    report(c, wrong == 0, "head_topk / sort", c->brief ? "40 rows" : "400 rows",
           "%lld wrong entries", (long long)wrong);
    for (int i = 0; i < batches; i++) {
        struct batch b;
        struct picks all, some;
        batch_init(&b, &c->rng);
        run_batch(c, c->exec, &b, ROWS, &all);
        run_batch(c, c->other, &b, (int)between(&c->rng, 1, ROWS), &some);
        differ += differing_rows(&all, &some);
        free(b.logits);
        free(b.tokens);
    }
    report(c, differ == 0, "sample: rule E1", c->brief ? "4 batches" : "40 batches",
           "%lld of %d rows differ", (long long)differ, batches * ROWS);
}

// Choices of two levels, many rows at a time. A device's noise rounds otherwise: there, sorted
// scores are the judge (check_sample_double).
void check_sample(struct check *c) {
    int differ = 0;
    if (c->device || !has_sample(c))
        return;
    for (int i = 0; i < 60; i++) {
        struct batch b;
        struct picks want, got;
        batch_init(&b, &c->rng);
        run_batch(c, c->spec, &b, ROWS, &want);
        run_batch(c, c->exec, &b, ROWS, &got);
        differ += differing_rows(&want, &got);
        free(b.logits);
        free(b.tokens);
    }
    report(c, differ == 0, "sample, head_topk", "60 batches", "%d differ (exact)", differ);
}

struct sample_call {
    struct exec *x;
    float *logits;
    int64_t vocab;
    struct sample_row rows[16];
    bool noisy;
    int k;
};

static void sample_turn(void *arg, int turn) {
    const struct sample_call *t = arg;
    int32_t choice[16];
    (void)turn;
    exec_ops(t->x)->sample(t->x, t->logits, 16, t->vocab, t->rows, choice);
}

static void topk_turn(void *arg, int turn) {
    const struct sample_call *t = arg;
    int32_t ids[16 * 16];
    float logp[16 * 16];
    struct topk_args top = {.logits = t->logits,
                            .n = 16,
                            .vocab = t->vocab,
                            .k = t->k,
                            .noise = t->noisy ? t->rows : NULL,
                            .ids = ids,
                            .logp = logp};
    (void)turn;
    exec_ops(t->x)->head_topk(t->x, &top);
}

void check_sample_time(struct check *c) {
    static const char *const names[] = {"greedy", "T 0.8", "T 0.8 top-k 40 top-p 0.95"};
    struct sample_call t = {.x = c->exec, .vocab = c->device ? 248320 : 8192, .k = 8};
    struct buffers r;
    if (!has_sample(c))
        return;
    float *logits = malloc((size_t)(16 * t.vocab) * sizeof *logits);
    fill_random(&c->rng, logits, 16 * t.vocab, 8);
    buffers_open(&r, c, c->exec);
    t.logits = buffers_in(&r, logits, (size_t)(16 * t.vocab) * sizeof *logits);
    for (int kind = 0; kind < 3; kind++) {
        char shape[64];
        t.noisy = kind > 0;
        for (int i = 0; i < 16; i++)
            t.rows[i] = (struct sample_row){.pos = i,
                                            .temperature = kind ? 0.8f : 0,
                                            .top_k = kind == 2 ? 40 : 0,
                                            .top_p = kind == 2 ? 0.95f : 1,
                                            .repeat = 1};
        snprintf(shape, sizeof shape, "16 x %lld %s", (long long)t.vocab, names[kind]);
        report_time(c, "sample", shape, time_call(c, sample_turn, &t), 64.0 * (double)t.vocab);
        report_time(c, "head_topk", shape, time_call(c, topk_turn, &t), 64.0 * (double)t.vocab);
    }
    t.noisy = false;
    t.k = 16;
    if (c->device) { // as many candidates as warps of a row with so few tokens
        t.vocab = 49152;
        report_time(c, "head_topk", "16 x 49152, 16 of each", time_call(c, topk_turn, &t),
                    64.0 * (double)t.vocab);
    }
    buffers_close(&r);
    free(logits);
}
