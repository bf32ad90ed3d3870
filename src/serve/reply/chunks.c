// SPDX-License-Identifier: Apache-2.0
// Answers in chunks; see chunks.h.
#include "serve/reply/chunks.h"

#include <stdlib.h>

#include "serve/completion/write.h"
#include "serve/http/sse.h"

static struct answer_head head_of(const struct completion *c, const char *object) {
    return (struct answer_head){.id = c->id,
                                .object = object,
                                .model = c->p.model ? c->p.model : c->s->model,
                                .created = c->created};
}

static void open_chunk(struct completion *c, struct json_writer *w) {
    struct answer_head h = head_of(c, c->d->form->chunk_object);
    answer_open(w, &h);
    jw_key(w, "choices");
    jw_begin(w, '[');
}

static void put_chunk(struct completion *c, const struct answer_choice *a) {
    struct json_writer *w = &c->s->json;
    open_chunk(c, w);
    c->d->form->chunk(w, a);
    jw_end(w, ']');
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

// A reply that called tools and was not cut off ends by that.
static const char *finish_of(const struct completion *c, const struct choice *k) {
    const char *finish = answer_finish(k->end.reason);
    const char *called = c->p.functions ? "function_call" : "tool_calls";
    return k->items.calls > 0 && finish[0] == 's' ? called : finish;
}

void chunks_finish(struct completion *c, struct choice *k) {
    struct json_writer *w = &c->s->json;
    struct answer_choice a = {.index = k->index, .finish = finish_of(c, k)};
    open_chunk(c, w);
    c->d->form->chunk(w, &a);
    jw_end(w, ']');
    if (c->open == 0) {
        struct answer_totals t = completion_totals(c);
        answer_timings(w, &t);
        completion_extra(c, w);
    }
    jw_end(w, '}');
    sse_write(&c->s->out, NULL, w);
}

void chunks_start(struct completion *c) {
    int n = c->prepared ? c->n_choices : (int)c->p.n; // only chats have roles: one prompt
    for (int i = 0; i < n && c->d->form->roles; i++) {
        struct answer_choice a = {.index = i, .role = true, .content = {"", 0}};
        put_chunk(c, &a);
    }
}

void chunks_alive(struct completion *c) {
    struct answer_choice a = {0};
    for (int i = 0; c->prepared && i < c->n_choices; i++)
        if (!c->choices[i].ended) {
            a.index = i;
            break;
        }
    put_chunk(c, &a);
}

void chunks_begin(struct completion *c, struct choice *k, const struct answer_item *it) {
    struct answer_call call = {
        .index = it->call, .id = it->id, .name = it->name.data, .custom = it->custom};
    struct answer_choice a = {
        .index = k->index, .calls = &call, .n_calls = 1, .older = c->p.functions != NULL};
    if (it->kind == ITEM_CALL)
        put_chunk(c, &a);
}

void chunks_delta(struct completion *c, struct choice *k, const struct answer_item *it,
                  const struct answer_piece *p) {
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

void chunks_end(struct completion *c) {
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

void chunks_error(struct completion *c, const struct api_error *why) {
    api_error_write(&c->s->json, why, API_OPENAI, NULL);
    sse_write(&c->s->out, NULL, &c->s->json);
}

static struct answer_text text_of(const struct str *s) {
    return s->len ? (struct answer_text){s->data, s->len} : (struct answer_text){0};
}

static struct answer_call call_of(const struct answer_item *it) {
    return (struct answer_call){.index = it->call,
                                .id = it->id,
                                .name = it->name.data,
                                .custom = it->custom,
                                .text = text_of(&it->text)};
}

static void put_choice(struct completion *c, struct choice *k, struct json_writer *w) {
    struct answer_choice a = {.index = k->index,
                              .role = c->d->form->roles,
                              .finish = finish_of(c, k),
                              .older = c->p.functions != NULL};
    struct answer_logprobs span[2];
    struct str words[2] = {0}; // reasoning, content
    struct answer_call *calls = calloc((size_t)k->items.calls + 1, sizeof *calls);
    w->out.failed |= !calls;
    for (int i = 0; i < k->items.n; i++) {
        const struct answer_item *it = &k->items.at[i];
        if (it->kind == ITEM_CALL && calls)
            calls[a.n_calls++] = call_of(it);
        else if (it->kind != ITEM_CALL && it->text.len)
            str_append(&words[it->kind == ITEM_TEXT], it->text.data, it->text.len);
    }
    a.calls = calls;
    a.reasoning = text_of(&words[0]);
    a.content = text_of(&words[1]);
    a.n_logprobs = completion_logprobs(c, k, c->p.echo, span);
    a.logprobs = a.n_logprobs ? span : NULL;
    c->d->form->whole(w, &a);
    w->out.failed |= words[0].failed || words[1].failed;
    str_fini(&words[0]);
    str_fini(&words[1]);
    free(calls);
}

void chunks_whole(struct completion *c, struct json_writer *w) {
    struct answer_head h = head_of(c, c->d->form->object);
    struct answer_totals t = completion_totals(c);
    answer_open(w, &h);
    jw_key(w, "choices");
    jw_begin(w, '[');
    for (int i = 0; i < c->n_choices; i++)
        put_choice(c, &c->choices[i], w);
    jw_end(w, ']');
    answer_usage(w, &t);
    answer_timings(w, &t);
    completion_extra(c, w);
    jw_end(w, '}');
}
