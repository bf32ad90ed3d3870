// SPDX-License-Identifier: Apache-2.0
// Prompts decoded by guessing, several side by side, and plainly, each alone; see verify.h.
#include <stdlib.h>

#include "base/num.h"
#include "cli/bench/bench.h"
#include "cli/verify/verify.h"

// Prompts that are decoded side by side.
struct crowd {
    struct verify *v;
    const struct bench_prompt *p; // [n]
    int n;
    struct token_list *ids; // [n]
    struct request *r;      // [n]
    struct reply *guessed;  // [n]
};

static int fill_request(struct crowd *c, int i, struct constraint *held, struct err *e) {
    const struct verify *v = c->v;
    const struct options *o = &v->a->opt;
    struct request *r = &c->r[i];
    decode_request(v->a, v->s, r);
    if (!r->auto_budget)
        r->tree.budget = min_i32(r->tree.budget, model_max_verify(session_model(v->s)) / c->n - 1);
    if (c->p[i].max_tokens && !options_given(o, OPT_MAX_TOKENS))
        r->max_tokens = c->p[i].max_tokens;
    else if (c->p[i].max_tokens)
        r->max_tokens = min_i64(r->max_tokens, c->p[i].max_tokens);
    r->logit_hash = true;
    r->constraint = held;
    r->prompt = c->p[i].ids;
    r->n_prompt = c->p[i].n_ids;
    if (r->prompt)
        return 0;
    token_list_bound(&c->ids[i], model_max_ctx(session_model(v->s)));
    int rc = session_encode(v->s, c->p[i].text, c->p[i].len, &c->ids[i], e);
    r->prompt = c->ids[i].ids;
    r->n_prompt = (int64_t)c->ids[i].count;
    return rc ? err_prefix(e, "prompt %s", c->p[i].id) : 0;
}

static int compare_plain(struct crowd *c, int i, struct err *e) {
    struct request r = c->r[i];
    struct reply plain = {0};
    const struct reply *guessed = &c->guessed[i];
    r.how = SPECULATE_OFF;
    int rc = session_generate(c->v->s, &r, &plain, e);
    struct verdict x = {
        .id = c->p[i].id, .choice = -1, .tokens = plain.n, .hashed = true, .at = -1};
    for (int64_t t = 0; !rc && x.at < 0 && t < max_i64(plain.n, guessed->n); t++)
        if (t >= plain.n || t >= guessed->n || plain.ids[t] != guessed->ids[t])
            x.at = t;
    if (x.at >= 0)
        x.why = "plain decoding gives another token";
    else if (!bench_equal(&plain, guessed))
        x.why = "the tokens are equal and the logits that decided are not";
    if (!rc)
        rc = verify_show(c->v, &x, e);
    reply_fini(&plain);
    return rc;
}

static int run_crowd(struct crowd *c, struct constraint *held, struct err *e) {
    int rc = 0;
    for (int i = 0; i < c->n && !rc; i++)
        rc = fill_request(c, i, held, e);
    if (!rc)
        rc = session_generate_many(c->v->s, c->r, c->n, c->guessed, NULL, e);
    for (int i = 0; i < c->n && !rc && !cli_interrupted(); i++)
        rc = compare_plain(c, i, e);
    for (int i = 0; i < c->n; i++) {
        reply_fini(&c->guessed[i]);
        token_list_fini(&c->ids[i]);
        c->ids[i] = (struct token_list){0};
        c->guessed[i] = (struct reply){0};
    }
    return rc;
}

int verify_prompts(struct verify *v, const char *path, struct err *e) {
    struct bench_prompts all = {0};
    struct constraint *held = NULL;
    int max = (int)options_int(&v->a->opt, OPT_PARALLEL);
    struct crowd c = {.v = v};
    c.ids = calloc((size_t)max, sizeof *c.ids);
    c.r = calloc((size_t)max, sizeof *c.r);
    c.guessed = calloc((size_t)max, sizeof *c.guessed);
    int rc = c.ids && c.r && c.guessed ? bench_prompts_read(&all, path, e)
                                       : err_set(e, ERR_MEMORY, "no memory for %d requests", max);
    if (!rc && options_given(&v->a->opt, OPT_VERIFY_ID))
        rc = err_set(e, ERR_USAGE,
                     "--id names an answer of serve --keep-requests, and %s has prompts", path);
    if (!rc)
        rc = decode_constraint(v->a, v->s, &held, e);
    for (size_t i = 0; i < all.n && !rc && !cli_interrupted(); i += (size_t)c.n) {
        c.p = all.prompts + i;
        c.n = (int)min_i64(max, (int64_t)(all.n - i));
        rc = run_crowd(&c, held, e);
    }
    constraint_drop(held);
    free(c.ids);
    free(c.r);
    free(c.guessed);
    bench_prompts_fini(&all);
    return rc;
}
