// SPDX-License-Identifier: Apache-2.0
// head_topk: the best tokens of each row with their log-probabilities, as drafts need them. One
// pass over the row keeps a running maximum, the sum of exponentials and a sorted short list.
#include <math.h>

#include "ops/cpu/cpu.h"

enum { BLOCK = 2048 };

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

// Scores of a block: logits, or logit / T + noise.
static const float *score_block(const struct topk_run *u, int64_t i, int64_t at, int64_t n,
                                float *z) {
    const float *logits = u->a->logits + i * u->a->vocab + at;
    if (!u->a->noise || !(u->a->noise[i].temperature > 0))
        return logits;
    const struct sample_row *s = &u->a->noise[i];
    u->row->gumbel(z, rng_mix(rng_mix(s->seed) ^ (uint64_t)s->pos), at, n);
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
    float z[BLOCK], most = -INFINITY, sum = 0;
    for (int64_t at = 0; at < a->vocab; at += BLOCK) {
        int64_t n = a->vocab - at < BLOCK ? a->vocab - at : BLOCK;
        const float *score = score_block(u, i, at, n, z);
        float top = u->row->max(score, n);
        if (top > most) {
            sum *= row_exp(most - top);
            most = top;
        }
        sum += u->row->exp_sum(NULL, score, most, n);
        scan_block(u->row, score, n, at, &b);
    }
    float lse = most + row_log(sum);
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
