// SPDX-License-Identifier: Apache-2.0
// The decoding loop of the exactness test; see gen.h.
#include "property/gen.h"

#include <stdlib.h>
#include <string.h>

struct gen {
    const struct gen_request *r;
    const struct gen_way *w;
    struct gen_result *out;
    struct features *f;
    struct step *step;
    struct sequence *seq;
    struct drafter *drafters[STEP_MAX_DRAFTERS];
    struct budget *budget; // NULL: a fixed one
    struct price *price;   // with it
    struct checkpoint *saved;
    struct rng rng;
};

static bool is_stop(void *arg, int32_t token) {
    return token == ((const struct gen_request *)arg)->stop;
}

static int feed(struct gen *g, const int32_t *tokens, int64_t n, int32_t *chosen, struct err *e) {
    int rc = 0;
    for (int64_t done = 0; done < n && !rc;) {
        int64_t now = n - done < g->w->chunk ? n - done : g->w->chunk;
        bool last = done + now == n;
        rc = step_feed(g->step, g->seq, tokens + done, now, last ? chosen : NULL, e);
        done += now;
    }
    return rc;
}

// Feeds again what the sequence held beyond its present length.
static int feed_rest(struct gen *g, const int32_t *tokens, int64_t len, struct err *e) {
    int64_t from = sequence_len(g->seq);
    if (from && memcmp(sequence_tokens(g->seq), tokens, (size_t)from * sizeof *tokens) != 0)
        return err_set(e, ERR_STATE, "the kept tokens are not those that were there");
    return feed(g, tokens + from, len - from, NULL, e);
}

static int cut_back(struct gen *g, const int32_t *tokens, int64_t len, struct err *e) {
    int64_t back = rng_below(&g->rng, 40), kept;
    int rc = sequence_truncate(g->seq, back < len ? len - back : 0, &kept, e);
    if (!rc && kept != sequence_len(g->seq))
        rc = err_set(e, ERR_STATE, "the kept length is not the sequence's length");
    g->f->count[FEATURE_TRUNCATED]++;
    return rc ? rc : feed_rest(g, tokens, len, e);
}

static int save(struct gen *g, struct err *e) {
    checkpoint_destroy(g->saved);
    g->saved = NULL;
    return sequence_checkpoint(g->seq, &g->saved, e);
}

// Goes back to the checkpoint, sometimes in a sequence that is new.
static int restore(struct gen *g, const int32_t *tokens, int64_t len, struct err *e) {
    int rc = 0;
    if (rng_below(&g->rng, 2)) {
        sequence_destroy(g->seq);
        g->seq = NULL;
        rc = model_sequence(g->w->model, &g->seq, e);
    }
    if (!rc)
        rc = sequence_restore(g->seq, g->saved, e);
    if (!rc && sequence_len(g->seq) != checkpoint_len(g->saved))
        rc = err_set(e, ERR_STATE, "the restored length is not the checkpoint's");
    g->f->count[FEATURE_RESTORED]++;
    return rc ? rc : feed_rest(g, tokens, len, e);
}

// Continues with a copy after the original went another way.
static int fork_off(struct gen *g, const int32_t *tokens, int64_t len, struct err *e) {
    struct sequence *copy = NULL;
    int rc = sequence_fork(g->seq, &copy, e);
    if (rc)
        return rc;
    int64_t n = 1 + rng_below(&g->rng, 5), kept;
    if (rng_below(&g->rng, 2))
        rc = sequence_truncate(g->seq, len / 2, &kept, e);
    if (!rc && len + n < model_max_ctx(g->w->model))
        rc = feed(g, tokens, n < len ? n : len, NULL, e);
    sequence_destroy(g->seq);
    g->seq = copy;
    g->f->count[FEATURE_FORKED]++;
    return rc;
}

static int operate(struct gen *g, struct err *e) {
    int64_t len = sequence_len(g->seq);
    size_t bytes = (size_t)len * sizeof(int32_t);
    int32_t *tokens = malloc(bytes);
    if (!tokens)
        return err_set(e, ERR_MEMORY, "no memory for %lld tokens", (long long)len);
    memcpy(tokens, sequence_tokens(g->seq), bytes);
    int rc = 0;
    switch (rng_below(&g->rng, 16)) {
    case 0:
        rc = cut_back(g, tokens, len, e);
        break;
    case 1:
        rc = save(g, e);
        break;
    case 2:
        if (g->saved)
            rc = restore(g, tokens, len, e);
        break;
    case 3:
        rc = fork_off(g, tokens, len, e);
        break;
    default:
        break;
    }
    free(tokens);
    return rc;
}

static void hash_tree(uint64_t *hash, const struct ddtree *t) {
    *hash = rng_hash(*hash, (uint64_t)t->n, 0, 0);
    for (int i = 1; i < t->n; i++)
        *hash = rng_hash(*hash, (uint64_t)t->token[i], (uint64_t)t->parent[i], 0);
}

static void count_step(struct gen *g, int64_t before, const struct walk *w) {
    int64_t *count = g->f->count;
    const struct ddtree *t = step_tree(g->step);
    int64_t after = before + w->count;
    int deepest = 0;
    for (int i = 0; i < t->n; i++)
        deepest = t->depth[i] > deepest ? t->depth[i] : deepest;
    count[FEATURE_ACCEPT + w->count]++;
    count[FEATURE_BASE_CROSSING] += w->count > 1 && before / 32 != after / 32;
    count[FEATURE_PAGE_CROSSING] += w->count > 1 && before / 64 != after / 64;
    count[FEATURE_SPLIT_TREE] += before / 32 != (before + deepest) / 32;
    count[FEATURE_END + w->end] += w->count > 1;
    if (w->end == END_STOP)
        count[FEATURE_STOP_INSIDE] +=
            ddtree_child(t, w->path[w->count - 1], w->chosen[w->count - 1]) >= 0;
    for (int i = 1; i < w->count; i++) {
        int first = w->path[i - 1] + 1; // the first child in index order
        while (t->parent[first] != w->path[i - 1])
            first++;
        if (w->path[i] != first) {
            count[FEATURE_BRANCHED]++;
            break;
        }
    }
}

static struct walk_limits limits_of(const struct gen *g) {
    return (struct walk_limits){.tokens_left = g->r->max_tokens - g->out->n,
                                .context_left = g->r->max_ctx - g->r->n_prompt - g->out->n,
                                .stop = is_stop,
                                .stop_arg = (void *)g->r};
}

static void take(struct gen *g, const struct walk *w) {
    memcpy(g->out->ids + g->out->n, w->chosen, (size_t)w->count * sizeof *w->chosen);
    g->out->n += w->count;
    g->out->end = w->end;
}

static int decode(struct gen *g, struct err *e) {
    struct gen_result *out = g->out;
    static const struct ddtree only = {.n = 1, .parent = {-1}};
    struct walk w;
    int32_t first = 0;
    int rc = feed(g, g->r->prompt, g->r->n_prompt, &first, e);
    if (rc)
        return rc;
    struct walk_limits l = limits_of(g);
    walk_tree(&only, &first, &l, &w);
    take(g, &w);
    while (out->end == END_NONE) {
        if (g->w->surgery && (rc = operate(g, e)))
            return rc;
        int64_t before = sequence_len(g->seq);
        int32_t root = out->ids[out->n - 1];
        l = limits_of(g);
        rc = step_run(g->step, g->seq, root, &l, &w, e);
        if (rc)
            return rc;
        if (sequence_len(g->seq) != before + w.count)
            return err_set(e, ERR_STATE, "a step committed another number of rows than it says");
        hash_tree(&out->trees, step_tree(g->step));
        count_step(g, before, &w);
        take(g, &w);
    }
    return 0;
}

static int prepare(struct gen *g, struct err *e) {
    const struct gen_way *w = g->w;
    struct step_config c = {.model = w->model,
                            .n_drafters = w->n_kinds,
                            .tree = w->tree,
                            .share_noise = w->share_noise,
                            .sample = g->r->sample,
                            .hash = true};
    struct draft_config d = w->oracle;
    d.model = w->model;
    d.dflash = w->dflash;
    d.max_k = w->tree.k;
    int rc = w->choose ? budget_create(&g->budget, e) : 0;
    if (!rc && w->choose)
        rc = price_create(&g->price, PRICE_CPU, e);
    c.budget = g->budget;
    c.price = g->price;
    for (int i = 0; i < w->n_kinds && !rc; i++) {
        rc = drafter_create(&g->drafters[i], w->kinds[i], &d, e);
        c.drafters[i] = g->drafters[i];
    }
    if (!rc)
        rc = step_create(&g->step, &c, e);
    if (!rc)
        rc = model_sequence(w->model, &g->seq, e);
    return rc;
}

int gen_run(const struct gen_request *r, const struct gen_way *w, struct gen_result *out,
            struct features *f, struct err *e) {
    struct gen g = {.r = r, .w = w, .out = out, .f = f, .rng = {w->seed}};
    out->n = 0;
    out->trees = 0;
    f->count[FEATURE_CHOSEN] += w->choose;
    out->end = END_NONE;
    int rc = prepare(&g, e);
    if (!rc)
        rc = decode(&g, e);
    if (!rc)
        out->hash = step_hash(g.step);
    step_destroy(g.step);
    price_destroy(g.price);
    budget_destroy(g.budget);
    checkpoint_destroy(g.saved);
    sequence_destroy(g.seq);
    for (int i = 0; i < w->n_kinds; i++)
        drafter_destroy(g.drafters[i]);
    return rc;
}
