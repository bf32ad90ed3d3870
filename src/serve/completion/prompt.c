// SPDX-License-Identifier: Apache-2.0
// From conversations to prompts; see prompt.h.
#include "serve/completion/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/completion/constraint.h"

struct answer_share {
    struct service *s;
    uint64_t session;
    double share;
};

static void note_share(void *arg) {
    struct answer_share *n = arg;
    adapt_note(&n->s->adapt, n->session, n->share);
    free(n);
}

struct prefill_options prompt_compression(struct service *s, uint64_t session) {
    struct prefill_options o = s->o->prefill;
    if (o.adapt && session)
        prefill_adapt(&o, adapt_keep(&s->adapt, session));
    return o;
}

void prompt_note_answer(struct service *s, uint64_t session, const struct answer_totals *t) {
    double share = t->drafted > 0 ? adapt_share(t->tokens - t->choices, t->steps) : -1;
    struct answer_share *n = share >= 0 ? malloc(sizeof *n) : NULL;
    if (!n)
        return;
    *n = (struct answer_share){s, session, share};
    if (workers_run(s->shorteners, 0, note_share, n, NULL))
        free(n);
}

static bool ends_in_answer(const struct conversation *v) {
    const struct conversation_turn *last = v->n_turns ? &v->turns[v->n_turns - 1] : NULL;
    bool called = false;
    for (int i = 0; last && i < last->n_parts; i++)
        called |= last->parts[i].kind == PART_CALL;
    return last && last->role == CONVERSATION_ASSISTANT && !called;
}

static struct chat_input make_input(const struct params *p, const struct conversation *v) {
    return (struct chat_input){.said = v,
                               .documents = p->documents,
                               .kwargs = p->kwargs,
                               .thinking = p->thinking < 0 ? 0
                                           : p->thinking   ? 1
                                                           : -1,
                               .effort = p->effort,
                               .add_generation_prompt = p->continue_last > 0 || p->open_reply >= 0,
                               .keep_last = p->continue_last < 0,
                               .cancel = p->client};
}

// Makes v plain. tools: what the reply may call; NULL: of no interest, and they and the choice of
// them are checked all the same. With tool_choice none the prompt has all tools, too: it stays as
// it was. False with x filled.
static bool make_plain(struct conversation *v, struct request_tools *tools, struct api_error *x) {
    struct request_tools checked = {0}; // a prompt alone is refused for what its answer would be
    bool ok = conversation_plain(v, x) && request_tools_take(tools ? tools : &checked, v, x);
    request_tools_fini(&checked);
    return ok;
}

// Renders a plain conversation. False with x filled; chat_text_fini in any case.
static bool render_plain(const struct service *s, const struct params *p,
                         const struct conversation *v, struct chat_text *out, struct api_error *x) {
    const struct chat_input in = make_input(p, v);
    struct err e = {0};
    int rc;
    if (!s->chat) {
        api_fail(x, 400, "no_chat_template", "%s", s->chat_error.text);
        return false;
    }
    if (p->continue_last > 0 && !ends_in_answer(v))
        rc = err_set(&e, ERR_USAGE,
                     "continue_final_message is true, but the last message is not the "
                     "assistant's words; let such a message be the last or leave the field out");
    else
        rc = chat_render(s->chat, &in, out, &e);
    if (rc)
        api_error_of(x, &e);
    if (rc && x->status == 400)
        snprintf(x->param, sizeof x->param, "messages");
    return rc == 0;
}

bool prompt_render(const struct service *s, const struct params *p, struct conversation *v,
                   struct chat_text *out, struct api_error *x) {
    return make_plain(v, NULL, x) && render_plain(s, p, v, out, x);
}

// Places where other conversations are likely to part, for the prefix cache.
static void find_places(const struct service *s, const struct params *p,
                        const struct conversation *v, const struct chat_text *text,
                        struct completion_prompt *prompt) {
    const struct chat_input in = make_input(p, v);
    prompt->n_positions = 0;
    if (s->o->engine.cache.ram > 0)
        prompt->n_positions = chat_split_positions(s->chat, &in, text, s->tokenizer,
                                                   &prompt->tokens, prompt->positions);
}

// The text of a plain conversation, and its tokens with the places where others may part from
// them.
static bool encode_plain(const struct service *s, const struct params *p,
                         const struct conversation *v, struct chat_text *text,
                         struct completion_prompt *out, struct api_error *x) {
    struct err e = {0};
    if (!render_plain(s, p, v, text, x))
        return false;
    int rc = chat_encode(s->tokenizer, text, &out->tokens, &e);
    out->over = rc == ERR_LIMIT && out->tokens.max;
    if (rc && !out->over) {
        api_error_of(x, &e);
        return false;
    }
    if (!rc)
        find_places(s, p, v, text, out);
    out->in_reasoning = text->in_reasoning;
    return true;
}

bool prompt_encode(const struct service *s, const struct params *p, struct conversation *v,
                   struct completion_prompt *out, struct api_error *x) {
    return make_plain(v, NULL, x) && prompt_encode_plain(s, p, v, out, x);
}

bool prompt_encode_plain(const struct service *s, const struct params *p,
                         const struct conversation *v, struct completion_prompt *out,
                         struct api_error *x) {
    struct chat_text text = {0};
    bool ok = encode_plain(s, p, v, &text, out, x);
    chat_text_fini(&text);
    return ok;
}

// The prompt of c's conversation.
static bool encode_prompt(struct completion *c) {
    struct chat_text text = {0};
    bool ok = encode_plain(c->s, &c->p, &c->said, &text, c->prompts, &c->error);
    if (ok) {
        c->family = chat_template_reasoning(c->s->chat);
        str_clear(&c->rendered);
        if (c->s->o->log_prompts)
            str_append(&c->rendered, text.text.data, text.text.len);
    }
    chat_text_fini(&text);
    return ok;
}

void prompt_bound(const struct completion *c, struct completion_prompt *prompt) {
    prompt->tokens.cancel = &c->client;
    if (!c->s->shorteners)
        token_list_bound(&prompt->tokens, c->s->n_ctx);
}

bool prompt_make(struct completion *c) {
    return c->d->read(c->s, &c->p, c->body, &c->said, &c->error) && prompt_make_of(c);
}

bool prompt_make_of(struct completion *c) {
    if (!make_plain(&c->said, &c->tools, &c->error))
        return false;
    if (c->s->chat) {
        c->tools.family = chat_template_calls(c->s->chat);
        c->tools.format = c->said.n_tools > 0 ? chat_template_tool_format(c->s->chat) : NULL;
    }
    c->prompts = calloc(1, sizeof *c->prompts);
    if (!c->prompts) {
        api_fail(&c->error, 503, NULL, "no memory for the prompt");
        return false;
    }
    c->n_prompts = 1;
    prompt_bound(c, c->prompts);
    atomic_store(&c->readable, true);
    return encode_prompt(c) && (c->prompts->over || constrain_tools(c));
}

bool prompt_shorten(struct completion *c) {
    const struct server_options *o = c->s->o;
    const struct prefill_options how = prompt_compression(c->s, c->p.session);
    struct prefill_report *r = &c->compression;
    struct err e = {0};
    int64_t from = r->from;
    if (prefill_conversation(o->compressor, &how, &c->said, from, r, &e)) {
        api_error_of(&c->error, &e);
        return false;
    }
    r->from = r->to = from;
    if (r->reason)
        return true;
    token_list_fini(&c->prompts->tokens);
    prompt_bound(c, c->prompts);
    bool ok = encode_prompt(c);
    r->to = (int64_t)c->prompts->tokens.count;
    return ok;
}
