// SPDX-License-Identifier: Apache-2.0
// Choosing tokens. A choice is argmax over the kept set of logit / T + Gumbel noise (rule E4;
// arXiv 1611.01144 section 2): the noise is a function of (seed, position, id), so no state and no
// sum over the sorted vocabulary is needed. The kept set of top-k and top-p is a cut in the order
// (score descending, id ascending): a short list where that holds it, and otherwise found by radix
// selection over the bits of the scores. Rows are read in blocks, so that biases and penalties need
// no copy of the row. What a mask does not allow scores minus infinity, and an allowed token
// that does so comes before it.
#include <math.h>

#include "base/rng.h"
#include "ops/cpu/cpu.h"

enum { BLOCK = 2048, LIST = 1024 };

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
static uint32_t order_key(float z) {
    uint32_t bits;
    float y = z == z ? z + 0.0f : -INFINITY; // -0 becomes 0
    memcpy(&bits, &y, 4);
    return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

static float penalised(const struct sample_row *s, float x, int32_t count) {
    x = x > 0 ? x / s->repeat : x * s->repeat;
    return x - (s->frequency * (float)count + s->presence);
}

static bool allowed(const struct sample_row *s, int64_t id) {
    return !s->allow || (s->allow[id / 32] >> (id % 32) & 1);
}

// Minus infinity for those of 32 scores that are not allowed: the fewer of both kinds are touched.
static void mask_word(uint32_t word, float *z) {
    float kept[32];
    if (word == 0xFFFFFFFFu)
        return;
    if (__builtin_popcount(word) > 16) {
        for (uint32_t left = ~word; left; left &= left - 1)
            z[__builtin_ctz(left)] = -INFINITY;
        return;
    }
    memcpy(kept, z, sizeof kept);
    for (int i = 0; i < 32; i++)
        z[i] = -INFINITY;
    for (uint32_t left = word; left; left &= left - 1)
        z[__builtin_ctz(left)] = kept[__builtin_ctz(left)];
}

// The same for the tokens of [at, at + n); at is a multiple of 32.
static void mask_scores(const uint32_t *allow, int64_t at, float *z, int64_t n) {
    int64_t whole = n & ~(int64_t)31;
    for (int64_t i = 0; i < whole; i += 32)
        mask_word(allow[(at + i) / 32], z + i);
    for (int64_t i = whole; i < n; i++)
        if (!(allow[(at + i) / 32] >> (i % 32) & 1))
            z[i] = -INFINITY;
}

// Whether no token of [at, at + BLOCK) is allowed.
static bool none_of(const struct source *r, int64_t at) {
    int64_t words = (r->vocab - at < BLOCK ? r->vocab - at : BLOCK) / 32;
    uint32_t any = 0;
    if (!r->s->allow)
        return false;
    for (int64_t i = 0; i < words; i++)
        any |= r->s->allow[at / 32 + i];
    return !any && (r->vocab - at >= BLOCK || words * 32 == r->vocab - at);
}

// The first bias of a token from id `at` on.
static int32_t first_bias(const struct sample_row *s, int64_t at) {
    int32_t lo = 0, hi = s->n_bias;
    while (lo < hi) {
        int32_t mid = lo + (hi - lo) / 2;
        if (s->bias[mid].id < at)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

// The scores of ids [at, at + n): biases, penalties, temperature, mask. Returns n.
static int64_t load_scores(const struct source *r, int64_t at, float *z) {
    const struct sample_row *s = r->s;
    int64_t n = r->vocab - at < BLOCK ? r->vocab - at : BLOCK;
    memcpy(z, r->logits + at, (size_t)n * sizeof *z);
    for (int32_t i = first_bias(s, at); i < s->n_bias && s->bias[i].id < at + n; i++)
        z[s->bias[i].id - at] += s->bias[i].bias;
    if (s->repeat != 1 || s->frequency != 0 || s->presence != 0)
        for (int32_t i = 0; i < s->n_seen; i++)
            if (s->seen[i] >= at && s->seen[i] < at + n)
                z[s->seen[i] - at] = penalised(s, z[s->seen[i] - at], s->seen_count[i]);
    if (s->temperature > 0 && s->temperature != 1)
        for (int64_t i = 0; i < n; i++)
            z[i] /= s->temperature;
    if (s->allow)
        mask_scores(s->allow, at, z, n);
    return n;
}

// The first token that is allowed, or -1.
static int64_t first_allowed(const struct source *r) {
    for (int64_t id = 0; id < r->vocab; id++)
        if (allowed(r->s, id))
            return id;
    return -1;
}

static int64_t best_token(const struct source *r, float *maximum) {
    float z[BLOCK];
    int64_t best = first_allowed(r);
    *maximum = -INFINITY;
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        if (none_of(r, at))
            continue;
        int64_t n = load_scores(r, at, z);
        for (int64_t i = 0; i < n; i++) {
            int64_t span = n - i < 64 ? n - i : 64;
            if (i % 64 == 0 && r->row->max(z + i, span) <= *maximum) {
                i += span - 1;
            } else if (z[i] > *maximum) {
                *maximum = z[i];
                best = at + i;
            }
        }
    }
    return best;
}

// What an element counts towards a cut: 1, or its unnormalised probability.
static const float *probability_weights(const struct source *r, bool mass, float max,
                                        const float *z, int64_t n, float *e) {
    if (mass)
        r->row->exp_sum(e, z, max, n);
    else
        for (int64_t i = 0; i < n; i++)
            e[i] = 1;
    return e;
}

struct select {
    bool mass;    // probabilities or counts
    float max;    // the largest score
    double share; // of the kept mass; or the count
};

// Weight per value of one byte of the key, over elements inside `old` whose higher bytes match.
static void histogram(const struct source *r, const struct select *sel, const struct cut *old,
                      uint32_t prefix, int shift, double bins[256]) {
    float z[BLOCK], e[BLOCK];
    uint32_t mask_scores = shift == 24 ? 0 : 0xFFFFFFFFu << (shift + 8);
    memset(bins, 0, 256 * sizeof *bins);
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load_scores(r, at, z);
        probability_weights(r, sel->mass, sel->max, z, n, e);
        for (int64_t i = 0; i < n; i++) {
            uint32_t key = order_key(z[i]);
            if ((key & mask_scores) == prefix && inside(old, key, at + i))
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
        int64_t n = load_scores(r, at, z);
        probability_weights(r, sel->mass, sel->max, z, n, e);
        for (int64_t i = 0; i < n; i++) {
            if (order_key(z[i]) != key || !inside(old, key, at + i))
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

// Takes score of id as the best so far; equal scores go to the lower id.
struct winner {
    float score;
    int64_t id; // -1: none yet
};

static void consider(struct winner *w, float score, int64_t id) {
    if (score > w->score || w->id < 0 || (score == w->score && id < w->id))
        *w = (struct winner){score, id};
}

static float least_share(const struct sample_row *s) {
    return s->min_p < 1 ? s->min_p : 1;
}

// The whole vocabulary, or what a radix cut and min_p keep of it.
static int32_t draw_whole_row(const struct source *r, float maximum, const struct cut *cut) {
    const struct sample_row *s = r->s;
    uint64_t key = rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos);
    float z[BLOCK], score[BLOCK], least = least_share(s);
    struct winner w = {-INFINITY, -1};
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load_scores(r, at, z);
        r->row->gumbel(score, key, at, n);
        for (int64_t i = 0; i < n; i++)
            score[i] += z[i];
        for (int64_t i = 0; i < n; i++) {
            if (i % 64 == 0 && r->row->max(score + i, n - i < 64 ? n - i : 64) < w.score) {
                i += 63;
                continue;
            }
            if (score[i] >= w.score && inside(cut, order_key(z[i]), at + i) &&
                (least <= 0 || row_exp(z[i] - maximum) >= least))
                consider(&w, score[i], at + i);
        }
    }
    return (int32_t)(w.id < 0 ? 0 : w.id);
}

// A short list of the best elements; sorted, or a heap with the first element on top.
struct list {
    float z[LIST];
    int32_t id[LIST];
    int n;
};

static bool before(const struct list *l, int a, int b) {
    return l->z[a] > l->z[b] || (l->z[a] == l->z[b] && l->id[a] < l->id[b]);
}

static void swap_entries(struct list *l, int a, int b) {
    float z = l->z[a];
    int32_t id = l->id[a];
    l->z[a] = l->z[b];
    l->id[a] = l->id[b];
    l->z[b] = z;
    l->id[b] = id;
}

static void sift_down(struct list *l, int at) {
    for (;;) {
        int top = at;
        for (int c = 2 * at + 1; c <= 2 * at + 2 && c < l->n; c++)
            top = before(l, c, top) ? c : top;
        if (top == at)
            return;
        swap_entries(l, at, top);
        at = top;
    }
}

// Elements of at least `least`, as a heap; false when they are too many. sum: of exp(z - max)
// over the whole vocabulary.
static bool gather_list(const struct source *r, float least, float maximum, struct list *l,
                        double *sum) {
    float z[BLOCK];
    l->n = 0;
    *sum = 0;
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load_scores(r, at, z);
        *sum += (double)r->row->exp_sum(NULL, z, maximum, n);
        for (int64_t i = 0; i < n; i++) {
            if (i % 64 == 0 && r->row->max(z + i, n - i < 64 ? n - i : 64) < least) {
                i += 63;
                continue;
            }
            if (z[i] < least)
                continue;
            if (l->n == LIST)
                return false;
            l->z[l->n] = z[i];
            l->id[l->n++] = (int32_t)(at + i);
        }
    }
    for (int i = l->n / 2 - 1; i >= 0; i--)
        sift_down(l, i);
    return true;
}

// The k best elements as a heap whose top is the last of them: a reversed order, by negation.
static void gather_best(const struct source *r, int k, struct list *l) {
    float z[BLOCK];
    l->n = 0;
    for (int64_t at = 0; at < r->vocab; at += BLOCK) {
        int64_t n = load_scores(r, at, z);
        for (int64_t i = 0; i < n; i++) {
            if (i % 64 == 0 && l->n == k &&
                r->row->max(z + i, n - i < 64 ? n - i : 64) <= -l->z[0]) {
                i += 63;
                continue;
            }
            if (l->n == k && !(z[i] > -l->z[0]))
                continue; // equal scores: the earlier id stays
            int c = l->n < k ? l->n++ : 0;
            l->z[c] = -z[i];
            l->id[c] = -(int32_t)(at + i);
            for (; c > 0 && before(l, c, (c - 1) / 2); c = (c - 1) / 2)
                swap_entries(l, c, (c - 1) / 2);
            sift_down(l, c);
        }
    }
    for (int i = 0; i < l->n; i++) {
        l->z[i] = -l->z[i];
        l->id[i] = -l->id[i];
    }
    for (int i = l->n / 2 - 1; i >= 0; i--)
        sift_down(l, i);
}

// Draws among the first elements of a heap until their mass reaches `mass`.
static int32_t draw_list(const struct source *r, float max, struct list *l, double mass) {
    const struct sample_row *s = r->s;
    uint64_t key = rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos);
    struct winner w = {-INFINITY, -1};
    double sum = 0;
    while (l->n > 0 && (w.id < 0 || sum < mass)) {
        float share = row_exp(l->z[0] - max);
        if (w.id >= 0 && share < least_share(s))
            break;
        consider(&w, l->z[0] + row_gumbel(key, l->id[0]), l->id[0]);
        sum += (double)share;
        swap_entries(l, 0, --l->n);
        sift_down(l, 0);
    }
    return (int32_t)w.id;
}

static int32_t choose_token(const struct source *r) {
    const struct sample_row *s = r->s;
    float max;
    int64_t best = best_token(r, &max);
    if (!(s->temperature > 0) || max == -INFINITY)
        return (int32_t)best;
    bool top_k = s->top_k > 0 && s->top_k < r->vocab, top_p = s->top_p < 1;
    double share = s->top_p > 0 ? (double)s->top_p : 0, sum = 0;
    struct cut cut = {0, INT64_MAX};
    struct list l;
    if (top_k && s->top_k <= LIST) {
        gather_best(r, s->top_k, &l);
        for (int i = 0; i < l.n; i++)
            sum += (double)row_exp(l.z[i] - max);
        return draw_list(r, max, &l, top_p ? share * sum : INFINITY);
    }
    // All elements below `max - depth` together weigh less than what top-p drops at least.
    float depth = row_log((float)r->vocab / (1 - (float)share) + 1);
    if (top_p && !top_k && gather_list(r, max - depth, max, &l, &sum))
        return draw_list(r, max, &l, share * sum);
    if (top_k)
        narrow(r, &(struct select){false, max, s->top_k}, &cut);
    if (top_p)
        narrow(r, &(struct select){true, max, share}, &cut);
    return draw_whole_row(r, max, &cut);
}

static void log_probabilities(const struct source *r, int32_t choice, struct sample_logprobs *p) {
    float lse = cpu_row_topk(r->row, r->logits, r->vocab, p->n, p->ids, p->logp);
    p->chosen = choice < 0 ? -INFINITY : r->logits[choice] - lse;
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
        a->choice[i] = r.s->given ? r.s->token : choose_token(&r);
        if (r.s->logprobs)
            log_probabilities(&r, a->choice[i], r.s->logprobs);
    }
}

void cpu_sample(struct exec *x, const float *logits, int64_t n, int64_t vocab,
                const struct sample_row *rows, int32_t *choice) {
    struct sample_run a = {cpu_of(x), logits, vocab, rows, choice};
    cpu_run(cpu_of(x), n, vocab, sample_rows, &a);
}

// head_topk: the best tokens of each row with their log-probabilities, as drafts need them. One
// pass over the row keeps a running maximum, the sum of exponentials and a sorted short list.

struct topk_run {
    const struct row_kernels *row;
    const struct topk_args *a;
};

// The k best so far, sorted.
struct best {
    int32_t *ids;
    float *score;
    int n, k;
};

static bool enters(const struct best *b, float score) {
    return b->n < b->k || (b->k && score > b->score[b->n - 1]);
}

// Puts an element in its place; equal scores keep the order in which they came.
static void insert(struct best *b, float score, int64_t id) {
    int at = b->n < b->k ? b->n++ : b->k - 1;
    for (; at > 0 && b->score[at - 1] < score; at--) {
        b->score[at] = b->score[at - 1];
        b->ids[at] = b->ids[at - 1];
    }
    b->score[at] = score;
    b->ids[at] = (int32_t)id;
}

// The noise of elements at .. at + n - 1, by runs of tokens that follow each other.
static void noise_block(const struct topk_run *u, uint64_t key, int64_t at, int64_t n, float *z) {
    const int32_t *ids = u->a->ids_of ? u->a->ids_of + at : NULL;
    for (int64_t j = 0, run; j < n; j += run) {
        run = ids ? 1 : n;
        while (ids && j + run < n && ids[j + run] == ids[j] + run)
            run++;
        u->row->gumbel(z + j, key, ids ? ids[j] : at, run);
    }
}

// Scores of a block: logits, or logit / T + noise.
static const float *score_block(const struct topk_run *u, int64_t i, int64_t at, int64_t n,
                                float *z) {
    const float *logits = u->a->logits + i * u->a->vocab + at;
    if (!u->a->noise || !(u->a->noise[i].temperature > 0))
        return logits;
    const struct sample_row *s = &u->a->noise[i];
    noise_block(u, rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos), at, n, z);
    for (int64_t j = 0; j < n; j++)
        z[j] += logits[j] / s->temperature;
    return z;
}

// The elements of a block that belong to the best; spans of 64 without one are passed over.
static void scan_block(const struct row_kernels *r, const float *score, int64_t n, int64_t at,
                       struct best *b) {
    for (int64_t j = 0; j < n; j++) {
        int64_t span = n - j < 64 ? n - j : 64;
        if (j % 64 == 0 && !enters(b, r->max(score + j, span)))
            j += span - 1;
        else if (enters(b, score[j]))
            insert(b, score[j], at + j);
    }
}

// Row i of a call: the best into b, then their log-probabilities. Returns the log of the sum of
// e^score.
static float topk_row(const struct topk_run *u, int64_t i, struct best b) {
    const struct topk_args *a = u->a;
    float z[BLOCK], maximum = -INFINITY, sum = 0;
    for (int64_t at = 0; at < a->vocab; at += BLOCK) {
        int64_t n = a->vocab - at < BLOCK ? a->vocab - at : BLOCK;
        const float *score = score_block(u, i, at, n, z);
        float top = u->row->max(score, n);
        if (top > maximum) {
            sum *= row_exp(maximum - top);
            maximum = top;
        }
        sum += u->row->exp_sum(NULL, score, maximum, n);
        scan_block(u->row, score, n, at, &b);
    }
    float lse = maximum + row_log(sum);
    for (int j = 0; j < b.k; j++) {
        b.score[j] = j < b.n ? b.score[j] - lse : -INFINITY;
        b.ids[j] = j < b.n ? b.ids[j] : -1; // fewer tokens than k
    }
    return lse;
}

float cpu_row_topk(const struct row_kernels *r, const float *logits, int64_t vocab, int k,
                   int32_t *ids, float *logp) {
    const struct topk_args a = {.logits = logits, .vocab = vocab};
    const struct topk_run u = {r, &a};
    return topk_row(&u, 0, (struct best){ids, logp, 0, k});
}

static void topk_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct topk_run *u = arg;
    const struct topk_args *a = u->a;
    for (int64_t i = begin; i < end; i++)
        topk_row(u, i, (struct best){a->ids + i * a->k, a->logp + i * a->k, 0, a->k});
}

void cpu_head_topk(struct exec *x, const struct topk_args *a) {
    struct topk_run u = {&cpu_of(x)->row, a};
    cpu_run(cpu_of(x), a->n, a->noise ? a->vocab * 2 : a->vocab, topk_rows, &u);
}
