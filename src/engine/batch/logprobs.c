// SPDX-License-Identifier: Apache-2.0
// Blocks of log-probabilities; see logprobs.h. A block has those of BLOCK tokens: of the tokens
// themselves, then the ids of the best ones, then theirs.
#include "engine/batch/logprobs.h"

#include <stdlib.h>
#include <string.h>

enum { BLOCK = 128 };

int logprobs_init(struct logprobs *l, int n_best, int64_t most, struct err *e) {
    *l = (struct logprobs){.n_best = n_best, .most = most};
    l->blocks = calloc((size_t)(most / BLOCK + 1), sizeof *l->blocks);
    if (!l->blocks)
        return err_set(e, ERR_MEMORY, "no memory for the log-probabilities of %lld tokens",
                       (long long)most);
    return 0;
}

void logprobs_fini(struct logprobs *l) {
    for (int64_t i = 0; i < l->n; i += BLOCK)
        free(l->blocks[i / BLOCK]);
    free(l->blocks);
    *l = (struct logprobs){0};
}

static float *chosen_of(const struct logprobs *l, int64_t i) {
    return (float *)l->blocks[i / BLOCK] + i % BLOCK;
}

static int32_t *ids_of(const struct logprobs *l, int64_t i) {
    return (int32_t *)l->blocks[i / BLOCK] + BLOCK + i % BLOCK * l->n_best;
}

static float *best_of(const struct logprobs *l, int64_t i) {
    return (float *)l->blocks[i / BLOCK] + BLOCK + (BLOCK + i % BLOCK) * l->n_best;
}

int logprobs_add(struct logprobs *l, const struct sample_logprobs *p, struct err *e) {
    size_t cells = BLOCK * (size_t)(1 + 2 * l->n_best), best = (size_t)l->n_best;
    int64_t i = l->n;
    if (i == l->most)
        return err_set(e, ERR_STATE, "log-probabilities of more than the %lld tokens announced",
                       (long long)l->most);
    if (i % BLOCK == 0)
        l->blocks[i / BLOCK] = malloc(cells * sizeof(float));
    if (!l->blocks[i / BLOCK])
        return err_set(e, ERR_MEMORY, "no memory for the log-probabilities behind %lld tokens",
                       (long long)i);
    *chosen_of(l, i) = p->chosen;
    memcpy(ids_of(l, i), p->ids, best * sizeof *p->ids);
    memcpy(best_of(l, i), p->logp, best * sizeof *p->logp);
    l->n++;
    return 0;
}

struct token_logprobs logprobs_at(const struct logprobs *l, int64_t i) {
    return (struct token_logprobs){
        .chosen = *chosen_of(l, i), .n = l->n_best, .ids = ids_of(l, i), .logp = best_of(l, i)};
}
