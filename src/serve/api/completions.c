// SPDX-License-Identifier: Apache-2.0
// The older interfaces of OpenAI: POST /v1/chat/completions, and POST /v1/completions with its
// prompts as text or token ids. Both are answered in chunks with `choices`, or one object with
// them, in the names and order that their clients read. The writer is of the loop thread only.
#include "serve/api/handlers.h"

#include <stdio.h>
#include <stdlib.h>

#include "serve/completion/prompt.h"
#include "serve/completion/write.h"
#include "serve/conversation/interfaces.h"
#include "serve/http/sse.h"

static bool is_chat(const struct completion *c) {
    return c->d->endpoint == ENDPOINT_CHAT;
}

// Opens the answer's object and writes what all of them begin with.
static void open_answer(struct json_writer *w, const struct completion *c, const char *chat) {
    jw_begin(w, '{');
    jw_key_str(w, "id", c->id);
    jw_key_str(w, "object", is_chat(c) ? chat : "text_completion");
    jw_key_int(w, "created", c->created);
    jw_key_str(w, "model", c->p.model ? c->p.model : c->s->model);
}

// An element of `choices` of a chunk.
static void put_chunk_choice(const struct completion *c, const struct answer_choice *a) {
    if (is_chat(c))
        answer_delta(&c->s->json, a);
    else
        answer_completion(&c->s->json, a);
}

static void open_chunk(struct completion *c, struct json_writer *w) {
    open_answer(w, c, "chat.completion.chunk");
    jw_key_begin(w, "choices", '[');
}

static void put_chunk(struct completion *c, const struct answer_choice *a) {
    struct json_writer *w = &c->s->json;
    open_chunk(c, w);
    put_chunk_choice(c, a);
    jw_end(w, ']');
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

// A reply that called tools and was not cut off ends by that.
static const char *finish_reason(const struct completion *c, const struct choice *k) {
    const char *finish = answer_finish(k->end.reason);
    const char *called = c->p.functions ? "function_call" : "tool_calls";
    return k->items.calls > 0 && finish[0] == 's' ? called : finish;
}

static void chunks_finish(struct completion *c, struct choice *k) {
    struct json_writer *w = &c->s->json;
    struct answer_choice a = {.index = k->index, .finish = finish_reason(c, k)};
    open_chunk(c, w);
    put_chunk_choice(c, &a);
    jw_end(w, ']');
    if (c->open == 0) {
        struct answer_totals t = completion_totals(c);
        answer_timings(w, &t);
        completion_extra(c, w);
    }
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

static void chunks_start(struct completion *c) {
    int n = c->prepared ? c->n_choices : (int)c->p.n; // only chats have roles: one prompt
    for (int i = 0; i < n && is_chat(c); i++) {
        struct answer_choice a = {.index = i, .role = true, .content = {"", 0}};
        put_chunk(c, &a);
    }
}

static void chunks_alive(struct completion *c) {
    struct answer_choice a = {0};
    for (int i = 0; c->prepared && i < c->n_choices; i++)
        if (!c->choices[i].ended) {
            a.index = i;
            break;
        }
    put_chunk(c, &a);
}

static void chunks_begin(struct completion *c, struct choice *k, const struct answer_item *it) {
    struct answer_call call = {
        .index = it->call, .id = it->id, .name = it->name.data, .custom = it->custom};
    struct answer_choice a = {
        .index = k->index, .calls = &call, .n_calls = 1, .older = c->p.functions != NULL};
    if (it->kind == ITEM_CALL)
        put_chunk(c, &a);
}

static void chunks_delta(struct completion *c, struct choice *k, const struct answer_item *it,
                         const struct item_text *p) {
    struct answer_choice a = {
        .index = k->index, .logprobs = p->logprobs, .n_logprobs = p->n_logprobs};
    struct answer_call call = {.index = it->call, .custom = it->custom, .text = p->text};
    if (it->kind == ITEM_CALL) {
        a.calls = &call;
        a.n_calls = p->text.n > 0;
        a.older = c->p.functions != NULL;
    } else if (it->kind == ITEM_REASONING)
        a.reasoning = p->text;
    else
        a.content = p->text;
    put_chunk(c, &a);
}

static void chunks_end(struct completion *c) {
    struct json_writer *w = &c->s->json;
    if (c->p.include_usage) {
        struct answer_totals t = completion_totals(c);
        open_chunk(c, w);
        jw_end(w, ']');
        answer_usage(w, &t);
        answer_timings(w, &t);
        jw_end(w, '}');
        sse_write(&c->s->out, NULL, w);
    }
    sse_done(&c->s->out);
}

static void chunks_error(struct completion *c, const struct api_error *why) {
    api_error_write(&c->s->json, why, API_OPENAI, NULL);
    sse_write(&c->s->out, NULL, &c->s->json);
}

static struct answer_text text_or_none(const struct str *s) {
    return s->len ? (struct answer_text){s->data, s->len} : (struct answer_text){0};
}

static struct answer_call whole_call(const struct answer_item *it) {
    return (struct answer_call){.index = it->call,
                                .id = it->id,
                                .name = it->name.data,
                                .custom = it->custom,
                                .text = text_or_none(&it->text)};
}

static void put_choice(struct completion *c, struct choice *k, struct json_writer *w) {
    struct answer_choice a = {.index = k->index,
                              .role = is_chat(c),
                              .finish = finish_reason(c, k),
                              .older = c->p.functions != NULL};
    struct answer_logprobs span[2];
    struct str words[2] = {0}; // reasoning, content
    struct answer_call *calls = calloc((size_t)k->items.calls + 1, sizeof *calls);
    w->out.failed |= !calls;
    for (int i = 0; i < k->items.n; i++) {
        const struct answer_item *it = &k->items.at[i];
        if (it->kind == ITEM_CALL && calls)
            calls[a.n_calls++] = whole_call(it);
        else if (it->kind != ITEM_CALL && it->text.len)
            str_append(&words[it->kind == ITEM_TEXT], it->text.data, it->text.len);
    }
    a.calls = calls;
    a.reasoning = text_or_none(&words[0]);
    a.content = text_or_none(&words[1]);
    a.n_logprobs = completion_logprobs(c, k, c->p.echo, span);
    a.logprobs = a.n_logprobs ? span : NULL;
    if (is_chat(c))
        answer_message(w, &a);
    else
        answer_completion(w, &a);
    w->out.failed |= words[0].failed || words[1].failed;
    str_fini(&words[0]);
    str_fini(&words[1]);
    free(calls);
}

static void chunks_whole(struct completion *c, struct json_writer *w) {
    struct answer_totals t = completion_totals(c);
    open_answer(w, c, "chat.completion");
    jw_key_begin(w, "choices", '[');
    for (int i = 0; i < c->n_choices; i++)
        put_choice(c, &c->choices[i], w);
    jw_end(w, ']');
    answer_usage(w, &t);
    answer_timings(w, &t);
    completion_extra(c, w);
    jw_end(w, '}');
}

static bool fail_prompt(struct api_error *x, const struct err *e) {
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
                              json_kind_name(v));
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

static bool add_prompt_text(struct completion *c, const char *s, size_t n,
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
    prompt->over = rc == ERR_LIMIT && out->max;
    return rc == 0 || prompt->over || fail_prompt(&c->error, &e);
}

static bool add_prompt(struct completion *c, const struct json *v) {
    struct completion_prompt *prompt = &c->prompts[c->n_prompts++];
    struct token_list *out = &prompt->tokens;
    size_t n = 0;
    const char *s = json_str(v, &n);
    bool ok;
    if (s)
        prompt_bound(c, prompt);
    if (s)
        ok = add_prompt_text(c, s, n, prompt);
    else if (json_kind_of(v) == JSON_ARRAY)
        ok = api_token_ids(v, c->s->limits.vocab, "prompt", out, &c->error);
    else
        ok = api_refuse(&c->error, "prompt", "prompt holds %s and must hold strings or token ids",
                        json_kind_name(v));
    if (ok && out->count == 0 && !prompt->over)
        ok = api_refuse(&c->error, "prompt", "prompt is empty: it needs a token to go on from");
    return ok;
}

static bool prepare_prompts(struct completion *c) {
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
static bool shorten_text(struct completion *c) {
    const struct server_options *o = c->s->o;
    const struct prefill_options how = prompt_compression(c->s, c->p.session);
    struct prefill_report *r = &c->compression;
    struct compress_part text = {0};
    struct str kept = {0};
    struct err e = {0};
    int64_t from = r->from;
    text.text = json_str(c->p.prompt, &text.n);
    if (prefill_text(o->compressor, &how, &text, from, &kept, r, &e)) {
        str_fini(&kept);
        return fail_prompt(&c->error, &e);
    }
    r->from = r->to = from;
    bool ok = true;
    if (!r->reason) {
        token_list_fini(&c->prompts->tokens);
        prompt_bound(c, c->prompts);
        str_clear(&c->rendered);
        ok = add_prompt_text(c, kept.data ? kept.data : "", kept.len, c->prompts);
        r->to = (int64_t)c->prompts->tokens.count;
    }
    str_fini(&kept);
    return ok;
}

const struct dialect api_completions_dialect = {
    .endpoint = ENDPOINT_COMPLETIONS,
    .path = "/v1/completions",
    .id_prefix = "cmpl-",
    .prepare = prepare_prompts,
    .shorten = shorten_text,
    .start = chunks_start,
    .item_delta = chunks_delta,
    .finish = chunks_finish,
    .end = chunks_end,
    .error = chunks_error,
    .alive = chunks_alive,
    .whole = chunks_whole,
};

static bool read_chat(struct service *s, struct params *p, const struct json *body,
                      struct conversation *v, struct api_error *x) {
    (void)s, (void)body;
    return conversation_read_chat_body(v, p, x);
}

const struct dialect api_chat_dialect = {
    .endpoint = ENDPOINT_CHAT,
    .path = "/v1/chat/completions",
    .id_prefix = "chatcmpl-",
    .read = read_chat,
    .prepare = prompt_make,
    .shorten = prompt_shorten,
    .start = chunks_start,
    .item_begin = chunks_begin,
    .item_delta = chunks_delta,
    .finish = chunks_finish,
    .end = chunks_end,
    .error = chunks_error,
    .alive = chunks_alive,
    .whole = chunks_whole,
};
