// SPDX-License-Identifier: Apache-2.0
// What a request for text asks of the engine; see submit.h.
#include "serve/completion/submit.h"

#include <stdlib.h>

#include "serve/completion/warm.h"

// Engine thread: asked for each token in order, so that the reply ends at the very one that
// completes a stop string.
static bool is_last(void *arg, int32_t id) {
    struct choice *k = arg;
    bool last = reply_text_push(&k->asked, id);
    reply_pieces_clear(&k->asked.pieces);
    return last;
}

static void fill_request(struct completion *c, struct choice *k, struct stream_options *o) {
    const struct completion_prompt *prompt = &c->prompts[k->index / (int)c->p.n];
    const struct service *s = c->s;
    struct request *r = &o->r;
    int64_t room = s->n_ctx - (int64_t)prompt->tokens.count;
    o->trees = c->p.trees;
    o->places = (struct cache_places){prompt->places, prompt->n_places};
    *r = s->defaults;
    r->prompt = prompt->tokens.ids;
    r->n_prompt = (int64_t)prompt->tokens.count;
    r->max_tokens = c->p.max_tokens < 0 || c->p.max_tokens > room ? room : c->p.max_tokens;
    r->ignore_eos = c->p.ignore_eos;
    r->stop_ids = c->p.stop_ids;
    r->n_stop_ids = c->p.n_stop_ids;
    r->min_tokens = c->p.min_tokens;
    r->sample = c->p.sample;
    r->sample.choice = (uint64_t)(k->index % (int)c->p.n);
    r->sample.bias = c->p.bias;
    r->sample.n_bias = c->p.n_bias;
    r->how = c->p.how;
    r->logit_hash = c->p.logit_hash;
    r->constraint = c->constraint;
    if (c->p.logprobs)
        r->logprobs = (int)c->p.top_logprobs;
    r->prompt_logprobs = c->p.logprobs && c->p.echo;
    if (c->p.stops.n > 0 || c->tools.one_call) {
        r->stop = is_last;
        r->stop_arg = k;
    }
}

// Hands the choices of one prompt to the engine.
static int submit_prompt(struct completion *c, int first, stream_notify_fn *notify, struct err *e) {
    int n = (int)c->p.n;
    struct stream_options *o = calloc((size_t)n, sizeof *o);
    struct stream **out = calloc((size_t)n, sizeof *out);
    int rc = o && out ? 0 : err_set(e, ERR_MEMORY, "no memory for %d answers", n);
    for (int i = 0; i < n && !rc; i++) {
        o[i] = (struct stream_options){.notify = notify, .notify_arg = c};
        fill_request(c, &c->choices[first + i], &o[i]);
    }
    if (!rc)
        rc = engine_submit_choices(c->s->engine, o, n, out, e);
    for (int i = 0; i < n && !rc; i++)
        c->choices[first + i].stream = out[i];
    free(o);
    free(out);
    return rc;
}

bool completion_submit(struct completion *c, stream_notify_fn *notify) {
    struct err e = {0};
    int rc = 0;
    warm_yield(c->s);
    for (int i = 0; i < c->n_choices && !rc; i += (int)c->p.n)
        rc = submit_prompt(c, i, notify, &e);
    c->open = c->n_choices;
    if (!rc)
        return true;
    api_error_of(&c->error, &e);
    if (rc == ERR_LIMIT) {
        api_fail(&c->error, 429, "queue_full", "%s", e.text);
        c->error.retry_after = 1;
    }
    return false;
}

int completion_text(struct choice *k, struct reply_text *out, struct err *e) {
    const struct completion *c = k->c;
    const struct reply_form form = {.family = c->family,
                                    .inside = c->prompts[k->index / (int)c->p.n].in_reasoning,
                                    .stops = &c->p.stops,
                                    .tools = &c->tools.set,
                                    .calls = c->tools.family,
                                    .sure = c->tools.sure,
                                    .only = c->tools.sure && c->tools.required &&
                                            !c->p.ignore_eos && c->tools.family != TOOLS_HARMONY,
                                    .one_call = c->tools.one_call,
                                    .stop_ids = c->p.stop_ids,
                                    .n_stop_ids = c->p.n_stop_ids,
                                    .keeps_stop = c->p.keeps_stop,
                                    .min_tokens = c->p.min_tokens};
    return reply_text_init(out, c->s->tokenizer, &form, e);
}

static int make_choice(struct completion *c, int i, struct err *e) {
    struct choice *k = &c->choices[i];
    k->c = c;
    k->index = i;
    int rc = completion_text(k, &k->text, e);
    return rc ? rc : completion_text(k, &k->asked, e);
}

bool completion_choices(struct completion *c) {
    struct err e = {0};
    int n = c->n_prompts * (int)c->p.n, rc = 0;
    if (n > PARAMS_MAX_CHOICES)
        return api_refuse(&c->error, "n", "%d prompts with n %lld are %d answers; %d are the most",
                          c->n_prompts, (long long)c->p.n, n, PARAMS_MAX_CHOICES);
    c->choices = calloc((size_t)n, sizeof *c->choices);
    if (!c->choices)
        rc = err_set(&e, ERR_MEMORY, "no memory for %d answers", n);
    else
        c->n_choices = n;
    for (int i = 0; i < n && !rc; i++)
        rc = make_choice(c, i, &e);
    if (rc)
        api_error_of(&c->error, &e);
    return rc == 0;
}

bool completion_fits(struct completion *c) {
    const char *field = c->d->endpoint == ENDPOINT_COMPLETIONS ? "prompt"
                        : c->d->endpoint == ENDPOINT_RESPONSES ? "input"
                                                               : "messages";
    for (int i = 0; i < c->n_prompts; i++) {
        const struct completion_prompt *p = &c->prompts[i];
        int64_t n = (int64_t)(p->over ? p->tokens.most + 1 : p->tokens.count), most = c->s->n_ctx;
        if (n + (c->p.max_tokens != 0) <= most)
            continue;
        api_refuse(&c->error, field,
                   "the prompt is too long: it has %s%lld tokens, and the context has room for "
                   "%lld with the answer",
                   p->over ? "at least " : "", (long long)n, (long long)most);
        c->error.code = "context_length_exceeded";
        c->error.n_prompt = n;
        c->error.n_ctx = most;
        return false;
    }
    return true;
}
