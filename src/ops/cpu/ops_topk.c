// SPDX-License-Identifier: Apache-2.0
// head_topk: the best tokens of each row with their log-probabilities, as drafts need them. One
// pass over the row keeps a running maximum, the sum of exponentials and a sorted short list.
#include <math.h>

#include "ops/cpu/cpu.h"

enum { BLOCK = 2048 };

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
