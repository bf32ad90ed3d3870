// SPDX-License-Identifier: Apache-2.0
// Where the engine thread meets the prefix cache: a request that joins begins with what is known of
// its prompt, leaves checkpoints where other texts may part from it, and its state when it ends or
// has to give way.
#include <stdlib.h>

#include "engine/loop/impl.h"

static int64_t sparse_end_of(const struct request *r) {
    return r->sparse_end ? r->sparse_end : r->n_prompt;
}

bool cached_ready(struct engine *g, const struct stream *s) {
    const struct request *r = &s->o.r;
    bool prefixed = s->group && s->group->prefix;
    return !g->cache || r->prompt_logprobs || prefixed ||
           cache_ready(g->cache, r->prompt, r->n_prompt, sparse_end_of(r));
}

void cached_begin(struct engine *g, struct stream *s, struct sequence **own) {
    const struct request *r = &s->o.r;
    int64_t kept;
    bool made = !*own;
    s->cache = (struct cache_report){.why = CACHE_OFF, .here = -1, .there = -1};
    if (!g->cache || r->prompt_logprobs)
        return;
    if (made && model_sequence(session_model(g->session), own, NULL))
        return;
    s->cache = cache_restore(g->cache, r->prompt, r->n_prompt, sparse_end_of(r), *own);
    if (s->cache.cached && sequence_sparse(*own, sparse_end_of(r), NULL)) {
        (void)sequence_truncate(*own, 0, &kept, NULL);
        s->cache.cached = 0;
    }
    if (made && !s->cache.cached) {
        sequence_destroy(*own);
        *own = NULL;
    }
}

static void take(void *arg, struct checkpoint *c, const struct err *e) {
    struct stream *s = arg;
    (void)e;
    if (c)
        cache_put(s->engine->cache, c);
}

void cached_points(struct engine *g, struct stream *s, struct request *r, int64_t from) {
    if (!g->cache)
        return;
    s->engine = g;
    free(s->points);
    r->n_checkpoints =
        cache_points(g->cache, r->prompt, r->n_prompt, from, &s->o.places, &s->points);
    r->checkpoint_at = s->points;
    r->checkpoint = take;
    r->checkpoint_arg = s;
}

void cached_keep(struct engine *g, const struct stream *s) {
    const struct sequence *seq = job_sequence(s->job);
    struct checkpoint *c = NULL;
    if (!g->cache || sequence_resume(seq) == 0)
        return;
    if (!sequence_checkpoint(seq, &c, NULL))
        cache_put(g->cache, c);
}

void cached_again(struct engine *g, const struct stream *s) {
    struct sequence *seq = job_sequence(s->job);
    int64_t n;
    const int32_t *ids = job_text(s->job, &n);
    // What failed again may be this, and running the text is sure to come to an end.
    if (!g->cache || sequence_len(seq) || s->o.r.prompt_logprobs || s->faults > 1)
        return;
    (void)cache_restore(g->cache, ids, n, job_sparse_end(s->job), seq);
    (void)sequence_sparse(seq, job_sparse_end(s->job), NULL);
}
