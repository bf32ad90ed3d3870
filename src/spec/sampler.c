// SPDX-License-Identifier: Apache-2.0
// Sampling parameters to sample rows. A row's penalty window is gathered backwards
// (its path, then committed tokens) and counted in a table over the vocabulary, which is cleared
// again by the list of distinct tokens.
#include "spec/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "spec/tree/ddtree.h"

struct sampler {
    struct sample_row model; // the request's part of every row
    int max_rows;
    int64_t window; // 0: no penalties
    struct sample_row *rows;
    struct sample_row noise[TREE_MAX_DEPTH];
    int32_t *count;          // [vocab] occurrences in the window at hand
    int32_t *seen;           // [max_rows][window]
    int32_t *seen_count;     // [max_rows][window]
    int32_t *order;          // [window] the window's tokens, newest first
    struct logit_bias *bias; // [n_bias] by token id
    int vocab;
    bool forbids;             // a bias is minus infinity
    struct logit_bias *early; // [n_early] of positions below `from`: with late tokens forbidden
    int32_t n_early;
    int64_t from;
};

void sample_params_init(struct sample_params *p) {
    *p = (struct sample_params){.top_p = 1, .repeat = 1, .window = 64};
}

static int check_bias(const struct sample_params *p, int64_t vocab, struct err *e) {
    int64_t forbidden = 0;
    if (p->n_bias < 0 || p->n_bias > SAMPLER_MAX_BIAS)
        return err_set(e, ERR_USAGE, "%lld tokens with a logit bias; at most %d are possible",
                       (long long)p->n_bias, SAMPLER_MAX_BIAS);
    for (int64_t i = 0; i < p->n_bias; i++) {
        const struct logit_bias *b = &p->bias[i];
        if (b->id < 0 || b->id >= vocab)
            return err_set(e, ERR_MISMATCH,
                           "token id %d, which has a logit bias, is not within 0 to %lld", b->id,
                           (long long)vocab - 1);
        forbidden += b->bias == -INFINITY;
        if (!(fabsf(b->bias) <= 10000) && b->bias != -INFINITY)
            return err_set(e, ERR_USAGE,
                           "the logit bias %g of token %d is neither within -10000 to 10000 nor "
                           "minus infinity, which forbids it",
                           (double)b->bias, b->id);
    }
    if (p->n_late < 0 || p->n_late > SAMPLER_MAX_BIAS)
        return err_set(e, ERR_USAGE, "%lld late tokens; at most %d are possible",
                       (long long)p->n_late, SAMPLER_MAX_BIAS);
    for (int64_t i = 0; i < p->n_late; i++)
        if (p->late[i] < 0 || p->late[i] >= vocab)
            return err_set(e, ERR_MISMATCH, "late token id %d is not within 0 to %lld", p->late[i],
                           (long long)vocab - 1);
    return forbidden + p->n_late < vocab
               ? 0
               : err_set(e, ERR_USAGE, "logit biases and late tokens forbid every token");
}

int sample_params_check(const struct sample_params *p, int64_t vocab, struct err *e) {
    if (!(p->temperature >= 0 && p->temperature <= 100))
        return err_set(e, ERR_USAGE, "temperature %g is not within 0 to 100", p->temperature);
    if (p->top_k < 0 || p->top_k > INT32_MAX)
        return err_set(e, ERR_USAGE, "top-k %lld is negative or too large; 0 keeps all tokens",
                       (long long)p->top_k);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return err_set(e, ERR_USAGE, "top-p %g is not above 0 and at most 1", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return err_set(e, ERR_USAGE, "min-p %g is not within 0 to 1", p->min_p);
    if (!(p->repeat > 0 && p->repeat <= 100))
        return err_set(e, ERR_USAGE, "repetition penalty %g is not above 0 and at most 100",
                       p->repeat);
    if (!(fabs(p->frequency) <= 100) || !(fabs(p->presence) <= 100))
        return err_set(e, ERR_USAGE, "frequency penalty %g or presence penalty %g is beyond 100",
                       p->frequency, p->presence);
    if (p->window < 0 || p->window > SAMPLER_MAX_WINDOW)
        return err_set(e, ERR_USAGE, "penalty window %lld is not within 0 to %d tokens",
                       (long long)p->window, SAMPLER_MAX_WINDOW);
    return check_bias(p, vocab, e);
}

static int by_id(const void *a, const void *b) {
    const struct logit_bias *x = a, *y = b;
    return (x->id > y->id) - (x->id < y->id);
}

// Gives the rows the biases in the order of their tokens.
static int take_bias(struct sampler *s, const struct sample_params *p, struct err *e) {
    size_t bytes = (size_t)p->n_bias * sizeof *s->bias;
    if (!bytes)
        return 0;
    s->bias = malloc(bytes);
    if (!s->bias)
        return err_set(e, ERR_MEMORY, "no memory for %lld logit biases", (long long)p->n_bias);
    memcpy(s->bias, p->bias, bytes);
    qsort(s->bias, (size_t)p->n_bias, sizeof *s->bias, by_id);
    for (int64_t i = 1; i < p->n_bias; i++)
        if (s->bias[i].id == s->bias[i - 1].id)
            return err_set(e, ERR_USAGE, "token %d has more than one logit bias", s->bias[i].id);
    for (int64_t i = 0; i < p->n_bias; i++)
        s->forbids |= s->bias[i].bias == -INFINITY;
    s->model.bias = s->bias;
    s->model.n_bias = (int32_t)p->n_bias;
    return 0;
}

// The biases with late tokens among them, in the order of their tokens.
static int take_late(struct sampler *s, const struct sample_params *p, struct err *e) {
    int32_t n = 0;
    if (!p->n_late)
        return 0;
    s->early = malloc((size_t)(p->n_late + p->n_bias) * sizeof *s->early);
    if (!s->early)
        return err_set(e, ERR_MEMORY, "no memory for %lld late tokens", (long long)p->n_late);
    for (int64_t i = 0; i < p->n_late; i++)
        s->early[n++] = (struct logit_bias){.id = p->late[i], .bias = -INFINITY};
    for (int64_t i = 0; i < p->n_bias; i++)
        s->early[n++] = s->bias[i];
    qsort(s->early, (size_t)n, sizeof *s->early, by_id);
    for (int32_t i = 0; i < n; i++) {
        struct logit_bias b = s->early[i];
        if (s->n_early && s->early[s->n_early - 1].id == b.id)
            s->early[s->n_early - 1].bias = -INFINITY; // one of them is late
        else
            s->early[s->n_early++] = b;
    }
    s->from = p->from;
    return 0;
}

int sampler_create(struct sampler **out, const struct sample_params *p, int max_rows, int vocab,
                   struct err *e) {
    int rc = sample_params_check(p, vocab, e);
    if (rc)
        return rc;
    struct sampler *s = calloc(1, sizeof *s);
    if (!s)
        goto memory;
    s->max_rows = max_rows;
    s->vocab = vocab;
    s->model = (struct sample_row){.seed = rng_hash(p->seed, p->choice, 0, 0),
                                   .temperature = (float)p->temperature,
                                   .top_k = (int32_t)p->top_k,
                                   .top_p = (float)p->top_p,
                                   .min_p = (float)p->min_p,
                                   .repeat = (float)p->repeat,
                                   .frequency = (float)p->frequency,
                                   .presence = (float)p->presence};
    rc = take_bias(s, p, e);
    if (!rc)
        rc = take_late(s, p, e);
    if (rc)
        goto out;
    bool penalties = p->repeat != 1 || p->frequency != 0 || p->presence != 0;
    s->window = penalties ? p->window : 0;
    s->rows = calloc((size_t)max_rows, sizeof *s->rows);
    if (!s->rows)
        goto memory;
    if (s->window) {
        size_t cells = (size_t)max_rows * (size_t)s->window;
        s->count = calloc((size_t)vocab, sizeof *s->count);
        s->seen = calloc(cells, sizeof *s->seen);
        s->seen_count = calloc(cells, sizeof *s->seen_count);
        s->order = calloc((size_t)s->window, sizeof *s->order);
        if (!s->count || !s->seen || !s->seen_count || !s->order)
            goto memory;
    }
    *out = s;
    return 0;
memory:
    rc = err_set(e, ERR_MEMORY, "no memory for sampling %d rows; use a smaller budget", max_rows);
out:
    sampler_destroy(s);
    return rc;
}

void sampler_destroy(struct sampler *s) {
    if (!s)
        return;
    free(s->rows);
    free(s->count);
    free(s->seen);
    free(s->seen_count);
    free(s->order);
    free(s->bias);
    free(s->early);
    free(s);
}

// The window that ends at row i: its path backwards, then committed tokens. Fills s->order and
// returns the number of tokens.
static int64_t window_of(struct sampler *s, const struct sampler_batch *b, int i) {
    int64_t n = 0;
    for (int32_t r = i; r >= 0 && n < s->window; r = b->parent[r])
        s->order[n++] = b->token[r];
    for (int64_t j = b->len - 1; j >= 0 && n < s->window; j--)
        s->order[n++] = b->committed[j];
    return n;
}

static void fill_seen(struct sampler *s, const struct sampler_batch *b, int row, int slot) {
    int64_t n = window_of(s, b, row);
    int32_t *seen = s->seen + slot * s->window;
    int32_t *seen_count = s->seen_count + slot * s->window;
    int32_t distinct = 0;
    for (int64_t j = 0; j < n; j++)
        if (s->count[s->order[j]]++ == 0)
            seen[distinct++] = s->order[j];
    for (int32_t j = 0; j < distinct; j++) {
        seen_count[j] = s->count[seen[j]];
        s->count[seen[j]] = 0;
    }
    s->rows[slot].seen = seen;
    s->rows[slot].seen_count = seen_count;
    s->rows[slot].n_seen = distinct;
}

const struct sample_row *sampler_row(struct sampler *s, const struct sampler_batch *b, int row,
                                     int slot) {
    s->rows[slot] = s->model;
    s->rows[slot].pos = b->len + 1;
    for (int32_t r = b->parent[row]; r >= 0; r = b->parent[r])
        s->rows[slot].pos++;
    if (s->early && s->rows[slot].pos < s->from) {
        s->rows[slot].bias = s->early;
        s->rows[slot].n_bias = s->n_early;
    }
    if (s->window)
        fill_seen(s, b, row, slot);
    return &s->rows[slot];
}

static bool is_allowed(const struct sample_row *r, int32_t id) {
    return r->allow[id / 32] >> (id % 32) & 1;
}

// Whether the mask allows more tokens than the biases forbid of these.
static bool leaves_one(const struct sample_row *r, int vocab) {
    int64_t left = 0;
    for (int32_t at = 0; at < vocab; at += 32) {
        uint32_t bits = r->allow[at / 32];
        if (vocab - at < 32)
            bits &= (1u << (vocab - at)) - 1;
        left += __builtin_popcount(bits);
    }
    for (int32_t i = 0; i < r->n_bias; i++)
        left -= r->bias[i].bias == -INFINITY && is_allowed(r, r->bias[i].id);
    return left > 0;
}

void sampler_yield(const struct sampler *s, struct sample_row *row) {
    bool early = row->bias && row->bias == s->early;
    if (!row->allow || !(early || s->forbids) || leaves_one(row, s->vocab))
        return;
    row->bias = s->bias;
    row->n_bias = s->model.n_bias;
    if (!s->forbids || (early && leaves_one(row, s->vocab)))
        return;
    row->bias = NULL;
    row->n_bias = 0;
}

const struct sample_row *sampler_noise(struct sampler *s, int64_t first_pos, int depth) {
    if (s->model.temperature <= 0)
        return NULL;
    for (int d = 0; d < depth; d++) {
        s->noise[d] = s->model;
        s->noise[d].pos = first_pos + d;
        s->noise[d].repeat = 1;
        s->noise[d].frequency = s->noise[d].presence = 0;
        s->noise[d].n_bias = 0;
    }
    return s->noise;
}
