// SPDX-License-Identifier: Apache-2.0
// Completions: the forms of `prompt`; see completions.h.
#include "serve/api/completions.h"

#include <stdio.h>
#include <stdlib.h>

#include "serve/completion/session_ratio.h"
#include "serve/conversation/prompt.h"
#include "serve/reply/chunks.h"
#include "serve/request/fields.h"

static bool fail(struct api_error *x, const struct err *e) {
    api_error_of(x, e);
    if (x->status == 400)
        snprintf(x->param, sizeof x->param, "prompt");
    return false;
}

bool api_token_ids(const struct json *array, int vocab, const char *name, struct token_list *out,
                   struct api_error *x) {
    struct err e = {0};
    for (size_t i = 0; i < json_len(array); i++) {
        const struct json *v = json_at(array, i);
        int64_t id = json_int(v, -1);
        if (json_kind_of(v) != JSON_INT)
            return api_refuse(x, name, "%s[%zu] is %s and must be a token id", name, i,
                              fields_kind_name(v));
        if (id < 0 || id >= vocab)
            return api_refuse(x, name, "%s[%zu] is no token id; they are 0 to %d", name, i,
                              vocab - 1);
        if (token_list_push(out, (int32_t)id, &e)) {
            api_error_of(x, &e);
            return false;
        }
    }
    return true;
}

static bool add_text(struct completion *c, const char *s, size_t n,
                     struct completion_prompt *prompt) {
    struct token_list *out = &prompt->tokens;
    const struct tokenizer *t = c->s->tokenizer;
    struct err e = {0};
    int rc = 0;
    if (!t)
        return api_refuse(&c->error, "prompt", "the model's file has no tokenizer: send token ids");
    if (tokenizer_add_bos(t) || (n == 0 && tokenizer_bos(t) >= 0))
        rc = token_list_push(out, tokenizer_bos(t), &e);
    if (!rc)
        rc = tokenizer_encode(t, s, n, true, out, &e);
    if (!rc && c->s->o->log_prompts)
        str_append(&c->rendered, s, n);
    prompt->over = rc == ERR_LIMIT && out->most;
    return rc == 0 || prompt->over || fail(&c->error, &e);
}

static bool add_prompt(struct completion *c, const struct json *v) {
    struct completion_prompt *prompt = &c->prompts[c->n_prompts++];
    struct token_list *out = &prompt->tokens;
    size_t n = 0;
    const char *s = json_str(v, &n);
    bool ok;
    if (s)
        chat_prompt_bound(c, prompt);
    if (s)
        ok = add_text(c, s, n, prompt);
    else if (json_kind_of(v) == JSON_ARRAY)
        ok = api_token_ids(v, c->s->limits.vocab, "prompt", out, &c->error);
    else
        ok = api_refuse(&c->error, "prompt", "prompt holds %s and must hold strings or token ids",
                        fields_kind_name(v));
    if (ok && out->count == 0 && !prompt->over)
        ok = api_refuse(&c->error, "prompt", "prompt is empty: it needs a token to go on from");
    return ok;
}

static bool prepare(struct completion *c) {
    const struct json *v = c->p.prompt;
    bool many = json_kind_of(v) == JSON_ARRAY && json_kind_of(json_at(v, 0)) != JSON_INT;
    size_t n = many ? json_len(v) : 1;
    atomic_store(&c->readable, true);
    if (n == 0)
        return api_refuse(&c->error, "prompt", "prompt is an empty array");
    if (n > PARAMS_MAX_CHOICES)
        return api_refuse(&c->error, "prompt", "prompt holds %zu prompts and may hold %d at most",
                          n, PARAMS_MAX_CHOICES);
    c->prompts = calloc(n, sizeof *c->prompts);
    if (!c->prompts) {
        api_fail(&c->error, 503, NULL, "no memory for %zu prompts", n);
        return false;
    }
    for (size_t i = 0; i < n; i++)
        if (!add_prompt(c, many ? json_at(v, i) : v))
            return false;
    return true;
}

// Of a prompt that is one text.
static bool shorten(struct completion *c) {
    const struct server_options *o = c->s->o;
    const struct prefill_options how = session_ratio_options(c->s, c->p.session);
    struct prefill_report *r = &c->compression;
    struct compress_part text = {0};
    struct str kept = {0};
    struct err e = {0};
    int64_t from = r->from;
    text.text = json_str(c->p.prompt, &text.n);
    if (prefill_text(o->compressor, &how, &text, from, &kept, r, &e)) {
        str_fini(&kept);
        return fail(&c->error, &e);
    }
    r->from = r->to = from;
    bool ok = true;
    if (!r->reason) {
        token_list_fini(&c->prompts->tokens);
        chat_prompt_bound(c, c->prompts);
        str_clear(&c->rendered);
        ok = add_text(c, kept.data ? kept.data : "", kept.len, c->prompts);
        r->to = (int64_t)c->prompts->tokens.count;
    }
    str_fini(&kept);
    return ok;
}

static const struct chunk_form form = {
    .object = "text_completion",
    .chunk_object = "text_completion",
    .chunk = answer_completion,
    .whole = answer_completion,
};

const struct dialect api_completions_dialect = {
    .endpoint = ENDPOINT_COMPLETIONS,
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .prepare = prepare,
    .shorten = shorten,
    .start = chunks_start,
    .item_delta = chunks_delta,
    .finish = chunks_finish,
    .end = chunks_end,
    .error = chunks_error,
    .alive = chunks_alive,
    .whole = chunks_whole,
    .form = &form,
};
