// SPDX-License-Identifier: Apache-2.0
// What the scorer's memory is: counted for a plan, and taken for a text.
#include <stdlib.h>

#include "base/num.h"
#include "compress/score/impl.h"

// A text's tokens are counted in 32 bits, and a scorer's positions beyond that mean nothing.
enum { TOKENS_MAX = 1 << 24 };

static int64_t chunk_of(const struct score_options *o) {
    return o->chunk ? o->chunk : SCORE_CHUNK;
}

static int64_t act_bytes(const struct exec *x, int64_t n, int64_t k) {
    return x ? exec_act_bytes(x, n, k) : 2 * n * k;
}

static int64_t page_bytes(const struct model_params *m, const struct score_options *o) {
    return 2 * KV_PAGE * m->n_kv * kv_codec_bytes(o->codec, m->head_dim);
}

struct score_plan score_plan_shape(const struct model_params *m, const struct exec *x,
                                   const struct score_options *o, int64_t n, int64_t weights) {
    int64_t c = chunk_of(o), d = m->head_dim, q = m->n_heads * d, kv = m->n_kv * d, f = 4;
    n = round_up(n, c); // as it is taken
    int64_t pages = ceil_div(n, KV_PAGE), blocks = sparse_blocks(n), own = c / SPARSE_BLOCK;
    struct score_plan p = {
        .weights = weights,
        .hidden = n * m->dim * f,
        .keys = n * kv * f,
        .pages = pages * page_bytes(m, o),
        .chunk = (2 * c * q + c * kv + SCORE_QUERIES * q) * f + act_bytes(x, c, m->dim) +
                 act_bytes(x, c, q) + act_bytes(x, c, m->ffn),
        .blocks = o->dense ? 0 : blocks * kv * f + own * m->n_heads * (2 * blocks + 1) * f,
        .mass = 2 * SCORE_QUERIES * n * f,
    };
    p.total = p.weights + p.hidden + p.keys + p.pages + p.chunk + p.blocks + p.mass;
    return p;
}

void score_release(struct model_scorer *s) {
    const struct ops *ops = exec_ops(s->x);
    struct score_text *t = &s->t;
    void *const device[] = {t->h,     t->k,      t->mass,  t->work, t->pages,
                            t->means, t->blocks, t->count, t->list};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        if (device[i])
            ops->free(s->x, device[i]);
    free(t->pos);
    free(t->slots);
    free(t->page_of);
    exec_host_free(s->x, s->host);
    s->host = NULL;
    *t = (struct score_text){0};
}

static bool take_device(struct model_scorer *s, int64_t n) {
    const struct model_params *m = &s->p;
    struct score_text *t = &s->t;
    int64_t kv = m->n_kv * m->head_dim, f = 4, pages = ceil_div(n, KV_PAGE);
    int64_t blocks = sparse_blocks(n), own = chunk_of(&s->o) / SPARSE_BLOCK * m->n_heads;
    struct {
        void **at;
        int64_t bytes;
    } all[] = {
        {(void **)&t->h, n * m->dim * f},
        {(void **)&t->k, n * kv * f},
        {(void **)&t->mass, SCORE_QUERIES * n * f},
        {(void **)&t->work, SCORE_QUERIES * n * f},
        {(void **)&t->pages, pages * s->layout.page_bytes},
        {(void **)&t->means, s->o.dense ? 0 : blocks * kv * f},
        {(void **)&t->blocks, s->o.dense ? 0 : own * blocks * f},
        {(void **)&t->count, s->o.dense ? 0 : own * f},
        {(void **)&t->list, s->o.dense ? 0 : own * blocks * f},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].bytes)
            continue;
        *all[i].at = exec_alloc(s->x, ARENA_WORK, (size_t)all[i].bytes);
        if (!*all[i].at)
            return false;
    }
    return true;
}

static bool take_host(struct model_scorer *s, int64_t n) {
    struct score_text *t = &s->t;
    int64_t pages = ceil_div(n, KV_PAGE);
    t->pos = calloc((size_t)n, sizeof *t->pos);
    t->slots = calloc((size_t)n, sizeof *t->slots);
    t->page_of = calloc((size_t)pages, sizeof *t->page_of);
    s->host = exec_host_alloc(s->x, (size_t)(SCORE_QUERIES * n) * sizeof *s->host);
    if (!t->pos || !t->slots || !t->page_of || !s->host)
        return false;
    for (int64_t i = 0; i < pages; i++)
        t->page_of[i] = t->pages + i * s->layout.page_bytes;
    for (int64_t i = 0; i < n; i++) {
        t->pos[i] = i;
        t->slots[i] = (struct kv_slot){t->page_of[i / KV_PAGE], (int32_t)(i % KV_PAGE)};
    }
    return true;
}

struct exec_limits score_limits(const struct model_scorer *s, int64_t n) {
    struct exec_limits l = {.rows = s->o.chunk,
                            .seqs = 1,
                            .context = n,
                            .n_heads = s->p.n_heads,
                            .head_dim = s->p.head_dim};
    exec_limits_join(&l, &s->load.limits);
    return l;
}

int score_reserve(struct model_scorer *s, int64_t n, struct err *e) {
    if (n > TOKENS_MAX)
        return err_set(e, ERR_LIMIT, "the text has %lld tokens for the scorer; at most %d are read",
                       (long long)n, TOKENS_MAX);
    if (n <= s->t.cap)
        return 0;
    score_release(s);
    exec_trim(s->x); // what was too small for this text is of no use to it
    n = round_up(n, s->o.chunk);
    const struct exec_limits l = score_limits(s, n);
    int rc = exec_reserve(s->x, &l, e);
    if (rc)
        return rc;
    if (!take_device(s, n) || !take_host(s, n)) {
        struct score_plan p = score_plan_shape(&s->p, s->x, &s->o, n, s->load.weight_bytes);
        score_release(s);
        return err_set(e, ERR_MEMORY,
                       "no memory to score %lld tokens, which takes %.2f GB beside the scorer's "
                       "%.2f GB of weights",
                       (long long)n, (double)(p.total - p.weights) / 1e9, (double)p.weights / 1e9);
    }
    s->t.cap = n;
    return 0;
}
