// SPDX-License-Identifier: Apache-2.0
// Requests of the public interface: defaults filled in, tokens handed on as whole characters, the
// reply reduced to what stays valid without an owner.
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

// What a request's callbacks need.
struct call {
    const struct coppice_request *r;
    const struct tokenizer *t; // NULL: none
    const struct reply *y;
    float logprobs[TREE_MAX_DEPTH + 1]; // of the tokens at hand
    struct utf8_stream utf8;
    struct str raw, text;
    bool no_memory;
};

static int hand_on(struct call *c, const int32_t *ids, int64_t n) {
    struct coppice_piece piece = {.ids = ids, .n = n, .text = "", .bytes = c->text.len};
    c->no_memory = c->raw.failed || c->text.failed;
    if (c->text.len)
        piece.text = c->text.data;
    for (int64_t i = 0; c->r->logprobs && i < n; i++)
        c->logprobs[i] = logprobs_at(&c->y->logprobs, c->y->n - n + i).chosen;
    piece.logprobs = c->r->logprobs && n ? c->logprobs : NULL;
    return c->no_memory || c->r->tokens(c->r->arg, &piece);
}

static int on_tokens(void *arg, const int32_t *ids, int64_t n) {
    struct call *c = arg;
    str_clear(&c->raw);
    str_clear(&c->text);
    for (int64_t i = 0; c->t && i < n; i++)
        tokenizer_decode(c->t, ids[i], false, &c->raw);
    if (c->raw.len)
        utf8_stream_push(&c->utf8, c->raw.data, c->raw.len, &c->text);
    return hand_on(c, ids, n);
}

static int on_progress(void *arg, int64_t done, int64_t total) {
    const struct call *c = arg;
    return c->r->progress(c->r->arg, done, total);
}

static enum speculate how(const struct coppice_request *r, bool draft) {
    switch (r->speculate) {
    case COPPICE_SPECULATE_TREE:
        return SPECULATE_TREE;
    case COPPICE_SPECULATE_CHAIN:
        return SPECULATE_CHAIN;
    case COPPICE_SPECULATE_LOOKUP:
        return SPECULATE_LOOKUP;
    case COPPICE_SPECULATE_OFF:
        return SPECULATE_OFF;
    default:
        return draft ? SPECULATE_TREE : SPECULATE_OFF;
    }
}

static int check(const struct coppice_request *r, const struct coppice_model *m, struct err *e) {
    if (r->max_tokens < 0)
        return err_set(e, ERR_USAGE, "max_tokens is %lld; 0 is as many as the context holds",
                       (long long)r->max_tokens);
    if (r->speculate < COPPICE_SPECULATE_AUTO || r->speculate > COPPICE_SPECULATE_OFF)
        return err_set(e, ERR_USAGE, "%d is no enum coppice_speculate", r->speculate);
    if (r->budget != COPPICE_BUDGET_AUTO && (r->budget < 0 || r->budget > m->max_budget))
        return err_set(
            e, ERR_USAGE,
            "a budget of %d guesses is not within 0 to %d; load with a larger max_budget",
            r->budget, m->max_budget);
    return 0;
}

static void fill_sampling(const struct coppice_request *r, struct sample_params *p) {
    p->temperature = r->temperature;
    p->top_k = r->top_k;
    p->top_p = r->top_p != 0 ? r->top_p : p->top_p;
    p->min_p = r->min_p;
    p->repeat = r->repeat_penalty != 0 ? r->repeat_penalty : p->repeat;
    p->frequency = r->frequency_penalty;
    p->presence = r->presence_penalty;
    p->window = r->penalty_window ? r->penalty_window : p->window;
    p->seed = r->seed;
}

// The biases as a sampler takes them; the caller frees them.
static int fill_bias(const struct coppice_request *r, struct sample_params *p, struct err *e) {
    if (r->n_bias < 0 || r->n_bias > SAMPLER_MAX_BIAS)
        return err_set(e, ERR_USAGE, "n_bias is %lld; it must be within 0 to %d",
                       (long long)r->n_bias, SAMPLER_MAX_BIAS);
    if (!r->n_bias)
        return 0;
    if (!r->bias_ids || !r->bias)
        return err_set(e, ERR_USAGE, "n_bias is %lld, and bias_ids or bias is missing",
                       (long long)r->n_bias);
    struct logit_bias *bias = malloc((size_t)r->n_bias * sizeof *bias);
    if (!bias)
        return err_set(e, ERR_MEMORY, "no memory for %lld biases", (long long)r->n_bias);
    for (int64_t i = 0; i < r->n_bias; i++)
        bias[i] = (struct logit_bias){r->bias_ids[i], r->bias[i]};
    p->bias = bias;
    p->n_bias = r->n_bias;
    return 0;
}

// What the new text is held to; *out: to be dropped, or NULL.
static int fill_constraint(const struct coppice_request *r, const struct session *s,
                           struct constraint **out, struct err *e) {
    static const enum structured_form forms[] = {STRUCTURED_GBNF, STRUCTURED_REGEX,
                                                 STRUCTURED_SCHEMA};
    static const char *const names[] = {"grammar", "regex", "json_schema"};
    const char *const texts[] = {r->grammar, r->regex, r->json_schema};
    int given = -1;
    *out = NULL;
    for (int i = 0; i < 3; i++) {
        if (texts[i] && given >= 0)
            return err_set(e, ERR_USAGE, "a reply is held to a %s or a %s, not to both",
                           names[given], names[i]);
        given = texts[i] ? i : given;
    }
    if (given < 0)
        return 0;
    struct structured w = {.form = forms[given], .text = texts[given], .n = strlen(texts[given])};
    int rc = structured_make(session_structured(s), &w, out, e);
    return rc ? err_prefix(e, "%s", names[given]) : 0;
}

static void fill(struct request *q, const struct coppice_request *r,
                 const struct coppice_model *m) {
    request_init(q);
    q->max_tokens = r->max_tokens ? r->max_tokens : INT64_MAX;
    q->ignore_eos = r->ignore_end;
    q->how = how(r, session_draft(m->s) != NULL);
    q->auto_budget = r->budget == COPPICE_BUDGET_AUTO || r->budget == 0;
    q->tree.budget = q->auto_budget ? m->max_budget : r->budget;
    if (q->tree.budget > m->max_budget)
        q->tree.budget = m->max_budget;
    if (r->min_prob != 0)
        q->tree.min_prob = r->min_prob > 0 ? r->min_prob : 0;
    else
        q->tree.min_prob = q->auto_budget ? 0 : 0.1;
    q->logit_hash = r->logit_hash;
    q->logprobs = r->logprobs && r->tokens ? 0 : -1;
    fill_sampling(r, &q->sample);
}

static void describe(const struct reply *y, struct coppice_result *out) {
    struct coppice_result result = {.end = (int)y->end,
                                    .tokens = y->n,
                                    .prompt_tokens = y->fed,
                                    .passes = y->steps,
                                    .guesses = y->drafted,
                                    .prompt_ms = y->ms.prompt,
                                    .decode_ms =
                                        y->ms.draft + y->ms.verify + y->ms.sample + y->ms.commit,
                                    .logit_hash = y->hash};
    api_give(out, &result, sizeof result);
}

int coppice_generate(struct coppice_sequence *s, const struct coppice_request *request,
                     struct coppice_result *out, struct coppice_error *error) {
    struct err e = {0};
    struct coppice_request r;
    struct request q;
    struct reply y = {0};
    struct call c = {.r = &r, .t = session_tokenizer(s->m->s), .y = &y};
    int rc = api_take(&r, sizeof r, request, "coppice_request", &e);
    if (!rc)
        rc = check(&r, s->m, &e);
    if (rc)
        return api_result(rc, &e, error);
    fill(&q, &r, s->m);
    rc = fill_bias(&r, &q.sample, &e);
    if (!rc)
        rc = fill_constraint(&r, s->m->s, &q.constraint, &e);
    if (rc) {
        free((void *)q.sample.bias);
        return api_result(rc, &e, error);
    }
    q.tokens = r.tokens ? on_tokens : NULL;
    q.progress = r.progress ? on_progress : NULL;
    q.tokens_arg = q.progress_arg = &c;
    rc = transcript_generate(s->t, &q, &y, &e);
    free((void *)q.sample.bias);
    constraint_drop(q.constraint);
    str_clear(&c.text);
    utf8_stream_end(&c.utf8, &c.text);
    if (c.text.len && !c.no_memory)
        hand_on(&c, NULL, 0);
    if (!rc && c.no_memory)
        rc = err_set(&e, ERR_MEMORY, "no memory for the text of the reply");
    describe(&y, out);
    str_fini(&c.raw);
    str_fini(&c.text);
    reply_fini(&y);
    return api_result(rc, &e, error);
}

int coppice_sequence_run(struct coppice_sequence *s, int (*progress)(void *, int64_t, int64_t),
                         void *arg, struct coppice_error *error) {
    struct err e = {0};
    struct request q;
    struct reply y;
    request_init(&q);
    q.max_tokens = 0;
    q.progress = progress;
    q.progress_arg = arg;
    int rc = transcript_generate(s->t, &q, &y, &e);
    reply_fini(&y);
    return api_result(rc, &e, error);
}
