// SPDX-License-Identifier: Apache-2.0
// Prompt lookup as a drafter: what followed the longest repetition of the newest tokens, as one
// chain. It needs no model and costs almost nothing; the chain's log-probability per token grows
// with the length of the repetition. First the index.
#include "spec/draft/lookup.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/rng.h"
#include "spec/draft/drafter.h"

struct lookup {
    int64_t n, cap;
    int32_t *tokens; // [cap]
    // Positions count from 1 here, and 0 is none, so that memory which is never used costs nothing.
    int32_t *prev; // [cap] the position before with the same hash
    int32_t *head; // [mask + 1] newest position with this hash
    uint64_t mask;
};

int lookup_create(struct lookup **out, int64_t max_len, struct err *e) {
    uint64_t buckets = 16;
    while (buckets < (uint64_t)max_len)
        buckets *= 2;
    struct lookup *l = calloc(1, sizeof *l);
    if (l) {
        l->cap = max_len;
        l->mask = buckets - 1;
        l->tokens = calloc((size_t)max_len, sizeof *l->tokens);
        l->prev = calloc((size_t)max_len, sizeof *l->prev);
        l->head = calloc(buckets, sizeof *l->head);
    }
    if (!l || !l->tokens || !l->prev || !l->head) {
        lookup_destroy(l);
        return err_set(e, ERR_MEMORY, "no memory to index %lld tokens for lookup drafting",
                       (long long)max_len);
    }
    *out = l;
    return 0;
}

void lookup_destroy(struct lookup *l) {
    if (!l)
        return;
    free(l->tokens);
    free(l->prev);
    free(l->head);
    free(l);
}

// The list that the pair ending at position i (>= 1) belongs to.
static int32_t *bucket_of(const struct lookup *l, int64_t i) {
    uint64_t h = rng_hash(0, (uint32_t)l->tokens[i - 1], (uint32_t)l->tokens[i], 0);
    return &l->head[h & l->mask];
}

static void append_token(struct lookup *l, int32_t token) {
    if (l->n >= l->cap)
        return;
    int64_t i = l->n++;
    l->tokens[i] = token;
    if (i == 0)
        return;
    int32_t *b = bucket_of(l, i);
    l->prev[i] = *b;
    *b = (int32_t)i + 1;
}

// Drops the last token; its position heads its list because later ones are gone already.
static void drop_last(struct lookup *l) {
    int64_t i = --l->n;
    if (i > 0)
        *bucket_of(l, i) = l->prev[i];
}

void lookup_update(struct lookup *l, const int32_t *tokens, int64_t len, int32_t last) {
    int64_t same = 0;
    if (l->n && l->n <= len && !memcmp(l->tokens, tokens, (size_t)l->n * sizeof *tokens))
        same = l->n; // it has only grown
    while (same < l->n && same < len && l->tokens[same] == tokens[same])
        same++;
    if (same == len && same < l->n && l->tokens[same] == last)
        same++;
    while (l->n > same)
        drop_last(l);
    for (int64_t i = l->n; i < len; i++)
        append_token(l, tokens[i]);
    if (l->n == len)
        append_token(l, last);
}

// How many tokens ending at i agree with those at the list's end.
static int match_length(const struct lookup *l, int64_t i) {
    int m = 0;
    while (m < LOOKUP_MAX_MATCH && i - m >= 0 && l->tokens[i - m] == l->tokens[l->n - 1 - m])
        m++;
    return m;
}

int lookup_find(const struct lookup *l, int max, int32_t *out, int *match) {
    int64_t last = l->n - 1, best = -1;
    *match = 0;
    if (last < 1)
        return 0;
    int32_t i = l->prev[last] - 1;
    for (int tries = 0; i >= 0 && tries < LOOKUP_MAX_TRIES; tries++, i = l->prev[i] - 1) {
        int m = match_length(l, i);
        if (m <= *match)
            continue;
        *match = m;
        best = i;
        if (m == LOOKUP_MAX_MATCH)
            break;
    }
    if (*match < LOOKUP_MIN_MATCH)
        return *match = 0;
    for (int d = 0; d < max; d++) {
        int64_t from = best + 1 + d;
        out[d] = from <= last ? l->tokens[from] : out[from - last - 1];
    }
    return max;
}

float lookup_logp(int match) {
    return logf((float)match / ((float)match + 1.5f));
}

struct draft_lookup {
    struct lookup *index;
    int32_t ids[TREE_MAX_DEPTH];
};

static void lookup_drafter_destroy(void *self) {
    struct draft_lookup *d = self;
    lookup_destroy(d->index);
    free(d);
}

static int lookup_drafter_create(void **self, const struct draft_config *c, struct err *e) {
    struct draft_lookup *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for the lookup drafter");
    int rc = lookup_create(&d->index, model_max_ctx(c->model) + 1, e);
    if (rc) {
        free(d);
        return rc;
    }
    *self = d;
    return 0;
}

static int lookup_drafter_max_depth(const void *self) {
    (void)self;
    return TREE_MAX_DEPTH;
}

static int lookup_drafter_propose(void *self, const struct draft_request *r, int members,
                                  struct proposal *const *proposals, struct err *e) {
    (void)members, (void)e;
    struct draft_lookup *d = self;
    struct proposal *p = proposals[0];
    lookup_update(d->index, sequence_tokens(r->seq), sequence_len(r->seq), r->root);
    int max = min_i32(r->max_depth, TREE_MAX_DEPTH);
    int match;
    int n = lookup_find(d->index, max, d->ids, &match);
    if (n < 1 || p->n_chains >= TREE_MAX_CHAINS)
        return 0;
    p->chains[p->n_chains++] = (struct draft_chain){d->ids, n, lookup_logp(match)};
    return 0;
}

const struct drafter_class drafter_lookup = {"lookup",
                                             lookup_drafter_create,
                                             lookup_drafter_destroy,
                                             lookup_drafter_max_depth,
                                             lookup_drafter_propose,
                                             .shared = false,
                                             .free = true};
