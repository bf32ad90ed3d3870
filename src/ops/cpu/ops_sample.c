// SPDX-License-Identifier: Apache-2.0
// Choosing tokens. A choice is argmax over the kept set of logit / T + Gumbel noise (DESIGN E4,
// arXiv 1611.01144 section 2): the noise is a function of (seed, position, id), so no state and no
// sum over the sorted vocabulary is needed. The kept set of top-k and top-p is a cut in the order
// (score descending, id ascending), found by radix selection over the bits of the scores. Rows are
// read in blocks, so that penalties need no copy of the row.
#include <math.h>

#include "base/rng.h"
#include "ops/cpu/cpu.h"

enum { BLOCK = 2048 };

struct source {
    const struct row_kernels *row;
    const float *logits;
    int64_t vocab;
    const struct sample_row *s;
};

// Elements that come first in the order: larger key, or the same key and id <= last.
struct cut {
    uint32_t key;
    int64_t last;
};

static bool inside(const struct cut *c, uint32_t key, int64_t id) {
    return key > c->key || (key == c->key && id <= c->last);
}

// Unsigned integers in the order of the floats; NaN counts as the least.
static uint32_t key_of(float z) {
    uint32_t bits;
    float y = z == z ? z + 0.0f : -INFINITY; // -0 becomes 0
    memcpy(&bits, &y, 4);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float penalised(const struct sample_row *s, float x, int32_t count) {
    x = x > 0 ? x / s->repeat : x * s->repeat;
    return x - (s->frequency * (float)count + s->presence);
}

// The scores of ids [at, at + n): penalties, then temperature. Returns n.
static int64_t load(const struct source *r, int64_t at, float *z) {
    const struct sample_row *s = r->s;
    int64_t n = r->vocab - at < BLOCK ? r->vocab - at : BLOCK;
    memcpy(z, r->logits + at, (size_t)n * sizeof *z);
    if (s->repeat != 1 || s->frequency != 0 || s->presence != 0)
        for (int32_t i = 0; i < s->n_seen; i++)
            if (s->seen[i] >= at && s->seen[i] < at + n)
                z[s->seen[i] - at] = penalised(s, z[s->seen[i] - at], s->seen_count[i]);
    if (s->temperature > 0 && s->temperature != 1)
        for (int64_t i = 0; i < n; i++)
            z[i] /= s->temperature;
    return n;
}

static int64_t best_of(const struct source *r, float *most) {
    float z[BLOCK];
    int64_t best = 0;
    *most = -INFINITY;
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load(r, at, z);
        for (int64_t i = 0; i < n; i += 64) {
            int64_t stop = i + 64 < n ? i + 64 : n;
            if (r->row->max(z + i, stop - i) <= *most)
                continue;
            for (int64_t j = i; j < stop; j++)
                if (z[j] > *most) {
                    *most = z[j];
                    best = at + j;
                }
        }
    }
    return best;
}

// What an element counts towards a cut: 1, or its unnormalised probability.
static const float *weights(const struct source *r, bool mass, float most, const float *z,
                            int64_t n, float *e) {
    if (mass)
        r->row->exp_sum(e, z, most, n);
    else
        for (int64_t i = 0; i < n; i++)
            e[i] = 1;
    return e;
}

struct select {
    bool mass;    // probabilities or counts
    float most;   // the largest score
    double share; // of the kept mass; or the count
};

// Weight per value of one byte of the key, over elements inside `old` whose higher bytes match.
static void histogram(const struct source *r, const struct select *sel, const struct cut *old,
                      uint32_t prefix, int shift, double bins[256]) {
    float z[BLOCK], e[BLOCK];
    uint32_t mask = shift == 24 ? 0 : 0xFFFFFFFFu << (shift + 8);
    memset(bins, 0, 256 * sizeof *bins);
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load(r, at, z);
        weights(r, sel->mass, sel->most, z, n, e);
        for (int64_t i = 0; i < n; i++) {
            uint32_t key = key_of(z[i]);
            if ((key & mask) == prefix && inside(old, key, at + i))
                bins[key >> shift & 255] += (double)e[i];
        }
    }
}

// The id of the element with this key at which the weight still missing is reached.
static int64_t last_equal(const struct source *r, const struct select *sel, const struct cut *old,
                          uint32_t key, double missing) {
    float z[BLOCK], e[BLOCK];
    int64_t last = -1;
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load(r, at, z);
        weights(r, sel->mass, sel->most, z, n, e);
        for (int64_t i = 0; i < n; i++) {
            if (key_of(z[i]) != key || !inside(old, key, at + i))
                continue;
            if (last >= 0 && missing <= 0)
                return last;
            last = at + i;
            missing -= (double)e[i];
        }
    }
    return last;
}

// Narrows the cut to the shortest prefix of the order that holds the wanted weight.
static void narrow(const struct source *r, const struct select *sel, struct cut *cut) {
    double bins[256], above = 0, target = sel->share;
    uint32_t key = 0;
    for (int shift = 24; shift >= 0; shift -= 8) {
        histogram(r, sel, cut, key, shift, bins);
        if (shift == 24 && sel->mass) {
            double total = 0;
            for (int b = 255; b >= 0; b--)
                total += bins[b];
            target *= total;
        }
        int pick = -1;
        for (int b = 255; b >= 0; b--) {
            if (bins[b] <= 0)
                continue;
            if (pick >= 0 && above + bins[pick] >= target)
                break;
            above += pick >= 0 ? bins[pick] : 0;
            pick = b;
        }
        key |= (uint32_t)(pick < 0 ? 0 : pick) << shift;
    }
    cut->last = last_equal(r, sel, cut, key, target - above);
    cut->key = key;
}

static int32_t draw(const struct source *r, float most, const struct cut *cut, bool all) {
    const struct sample_row *s = r->s;
    uint64_t key = rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos);
    float z[BLOCK], noise[BLOCK], top = -INFINITY, least = s->min_p < 1 ? s->min_p : 1;
    int64_t best = -1;
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load(r, at, z);
        if (all)
            r->row->gumbel(noise, key, at, n);
        for (int64_t i = 0; i < n; i++) {
            if (!all && !inside(cut, key_of(z[i]), at + i))
                continue;
            if (least > 0 && row_exp(z[i] - most) < least)
                continue;
            float score = z[i] + (all ? noise[i] : row_gumbel(key, at + i));
            if (score > top || best < 0) {
                top = score;
                best = at + i;
            }
        }
    }
    return (int32_t)(best < 0 ? 0 : best);
}

static int32_t choose(const struct source *r) {
    const struct sample_row *s = r->s;
    float most;
    int64_t best = best_of(r, &most);
    if (!(s->temperature > 0))
        return (int32_t)best;
    struct cut cut = {0, INT64_MAX};
    bool top_k = s->top_k > 0 && s->top_k < r->vocab, top_p = s->top_p < 1;
    if (top_k)
        narrow(r, &(struct select){false, most, s->top_k}, &cut);
    if (top_p)
        narrow(r, &(struct select){true, most, s->top_p > 0 ? (double)s->top_p : 0}, &cut);
    return draw(r, most, &cut, !top_k && !top_p);
}

struct sample_run {
    const struct cpu *cpu;
    const float *logits;
    int64_t vocab;
    const struct sample_row *rows;
    int32_t *choice;
};

static void sample_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct sample_run *a = arg;
    for (int64_t i = begin; i < end; i++) {
        struct source r = {&a->cpu->row, a->logits + i * a->vocab, a->vocab, &a->rows[i]};
        a->choice[i] = choose(&r);
    }
}

void cpu_sample(struct exec *x, const float *logits, int64_t n, int64_t vocab,
                const struct sample_row *rows, int32_t *choice) {
    struct sample_run a = {cpu_of(x), logits, vocab, rows, choice};
    cpu_run(cpu_of(x), n, vocab, sample_rows, &a);
}

struct topk_run {
    const struct cpu *cpu;
    const float *logits;
    int64_t vocab;
    int k;
    const struct sample_row *noise;
    int32_t *ids;
    float *logp;
};

// Inserts into the k best of which n are there; equal scores keep their order. Returns the new n.
static int insert(int32_t *ids, float *best, int n, int k, float score, int64_t id) {
    int at = n < k ? n : k - 1;
    for (; at > 0 && best[at - 1] < score; at--) {
        best[at] = best[at - 1];
        ids[at] = ids[at - 1];
    }
    best[at] = score;
    ids[at] = (int32_t)id;
    return n < k ? n + 1 : k;
}

// Scores of a block: logits, or logit / T + noise.
static const float *score_block(const struct topk_run *a, int64_t i, int64_t at, int64_t n,
                                float *z) {
    const float *logits = a->logits + i * a->vocab + at;
    if (!a->noise || !(a->noise[i].temperature > 0))
        return logits;
    const struct sample_row *s = &a->noise[i];
    a->cpu->row.gumbel(z, rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos), at, n);
    for (int64_t j = 0; j < n; j++)
        z[j] += logits[j] / s->temperature;
    return z;
}

static void topk_row(const struct topk_run *a, int64_t i) {
    const struct row_kernels *r = &a->cpu->row;
    int32_t *ids = a->ids + i * a->k;
    float *best = a->logp + i * a->k, z[BLOCK], most = -INFINITY, sum = 0;
    int have = 0;
    for (int64_t at = 0; at < a->vocab; at += BLOCK) {
        int64_t n = a->vocab - at < BLOCK ? a->vocab - at : BLOCK;
        const float *score = score_block(a, i, at, n, z);
        float top = r->max(score, n);
        if (top > most) {
            sum *= row_exp(most - top);
            most = top;
        }
        sum += r->exp_sum(NULL, score, most, n);
        for (int64_t j = 0; j < n; j += 64) {
            int64_t stop = j + 64 < n ? j + 64 : n;
            if (have == a->k && r->max(score + j, stop - j) <= best[have - 1])
                continue;
            for (int64_t c = j; c < stop; c++)
                if (have < a->k || score[c] > best[have - 1])
                    have = insert(ids, best, have, a->k, score[c], at + c);
        }
    }
    float lse = most + row_log(sum);
    for (int j = 0; j < a->k; j++) {
        best[j] = j < have ? best[j] - lse : -INFINITY;
        ids[j] = j < have ? ids[j] : -1; // fewer tokens than k
    }
}

static void topk_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        topk_row(arg, i);
}

void cpu_head_topk(struct exec *x, const float *logits, int64_t n, int64_t vocab, int k,
                   const struct sample_row *noise, int32_t *ids, float *logp) {
    struct topk_run a = {cpu_of(x), logits, vocab, k, noise, ids, logp};
    cpu_run(cpu_of(x), n, noise ? vocab * 2 : vocab, topk_rows, &a);
}
