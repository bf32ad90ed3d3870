// SPDX-License-Identifier: Apache-2.0
// From conversations to prompts; see prompt.h.
#include "serve/conversation/prompt.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "serve/completion/session_ratio.h"
#include "serve/completion/tool_constraint.h"

struct merge {
    struct json_writer *w;
    bool thinking, effort; // the request's own variables have them
};

static int merge_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct merge *m = arg;
    (void)n;
    m->thinking |= !strcmp(key, "enable_thinking");
    m->effort |= !strcmp(key, "reasoning_effort");
    jw_key(m->w, key);
    jw_value(m->w, v);
    return 0;
}

// The variables for the template: chat_template_kwargs, and behind them what other fields say of
// thinking. *out is NULL where there are none.
static int make_variables(const struct params *p, struct json **out, struct err *e) {
    struct json_writer w = {0};
    struct merge m = {.w = &w};
    *out = NULL;
    if (!p->kwargs && p->thinking < 0 && !p->effort[0])
        return 0;
    jw_begin(&w, '{');
    json_each(p->kwargs, merge_member, &m);
    if (p->thinking >= 0 && !m.thinking) {
        jw_key_bool(&w, "enable_thinking", p->thinking);
    }
    if (p->effort[0] && !m.effort) {
        jw_key_str(&w, "reasoning_effort", p->effort);
    }
    jw_end(&w, '}');
    int rc = w.out.failed ? err_set(e, ERR_MEMORY, "no memory for the template's variables")
                          : json_parse(out, w.out.data, w.out.len, e);
    str_fini(&w.out);
    return rc;
}

static bool ends_in_answer(const struct json *messages) {
    size_t n = json_len(messages);
    const struct json *last = n ? json_at(messages, n - 1) : NULL;
    const char *role = json_str(json_get(last, "role"), NULL);
    return role && !strcmp(role, "assistant") && json_len(json_get(last, "tool_calls")) == 0;
}

// What is rendered; *variables: json_free() it behind the use of *in.
static int make_input(const struct params *p, struct chat_input *in, struct json **variables,
                      struct err *e) {
    bool goes_on = p->continue_last > 0;
    *variables = NULL;
    if (goes_on && !ends_in_answer(p->messages))
        return err_set(e, ERR_USAGE,
                       "continue_final_message is true, but the last message is not the "
                       "assistant's words; let such a message be the last or leave the field out");
    int rc = make_variables(p, variables, e);
    *in = (struct chat_input){.messages = p->messages,
                              .tools = p->tools,
                              .documents = p->documents,
                              .kwargs = *variables,
                              .add_generation_prompt = goes_on || p->open_reply >= 0,
                              .keep_last = p->continue_last < 0,
                              .gone = p->client};
    return rc;
}

bool chat_prompt_render(const struct service *s, const struct params *p, struct chat_text *out,
                        struct api_error *x) {
    struct chat_input in;
    struct json *variables = NULL;
    struct err e = {0};
    if (!s->chat) {
        api_fail(x, 400, "no_chat_template", "%s", s->chat_error.text);
        return false;
    }
    int rc = make_input(p, &in, &variables, &e);
    if (!rc)
        rc = chat_render(s->chat, &in, out, &e);
    json_free(variables);
    if (rc)
        api_error_of(x, &e);
    if (rc && x->status == 400)
        snprintf(x->param, sizeof x->param, "messages");
    return rc == 0;
}

bool chat_prompt_take(struct params *p, const struct conversation *v, const char *where,
                      struct chat_words *out, struct request_tools *tools, struct api_error *x) {
    struct conversation plain = {0};
    struct request_tools checked = {0}; // a prompt alone is refused for what its answer would be
    bool ok = conversation_plain(v, where, &plain, x) &&
              request_tools_take(tools ? tools : &checked, &plain, x) &&
              conversation_words(&plain, out, x);
    request_tools_fini(&checked);
    conversation_fini(&plain);
    p->messages = out->messages;
    p->tools = out->tools; // with tool_choice none, too: the prompt stays as it was
    return ok;
}

// Places where other conversations are likely to part, for the prefix cache.
static void find_places(const struct service *s, const struct params *p,
                        const struct chat_text *text, struct completion_prompt *prompt) {
    struct chat_input in;
    struct json *variables = NULL;
    prompt->n_places = 0;
    if (s->o->engine.cache.ram > 0 && !make_input(p, &in, &variables, NULL))
        prompt->n_places =
            chat_places(s->chat, &in, text, s->tokenizer, &prompt->tokens, prompt->places);
    json_free(variables);
}

bool chat_prompt_encode(const struct service *s, const struct params *p, struct chat_text *text,
                        struct completion_prompt *out, struct api_error *x) {
    struct err e = {0};
    if (!chat_prompt_render(s, p, text, x))
        return false;
    int rc = chat_encode(s->tokenizer, text, &out->tokens, &e);
    out->over = rc == ERR_LIMIT && out->tokens.most;
    if (rc && !out->over) {
        api_error_of(x, &e);
        return false;
    }
    if (!rc)
        find_places(s, p, text, out);
    out->in_reasoning = text->in_reasoning;
    return true;
}

// The prompt of c's messages.
static bool make_prompt(struct completion *c) {
    struct chat_text text = {0};
    bool ok = chat_prompt_encode(c->s, &c->p, &text, c->prompts, &c->error);
    if (ok) {
        c->family = chat_template_reasoning(c->s->chat);
        str_clear(&c->rendered);
        if (c->s->o->log_prompts)
            str_append(&c->rendered, text.text.data, text.text.len);
    }
    chat_text_fini(&text);
    return ok;
}

void chat_prompt_bound(const struct completion *c, struct completion_prompt *prompt) {
    prompt->tokens.gone = &c->client;
    if (!c->s->shorteners)
        token_list_bound(&prompt->tokens, c->s->n_ctx);
}

bool chat_prompt_make(struct completion *c, const struct conversation *v, const char *where) {
    if (!chat_prompt_take(&c->p, v, where, &c->words, &c->tools, &c->error))
        return false;
    if (c->s->chat)
        c->tools.family = chat_template_calls(c->s->chat);
    c->prompts = calloc(1, sizeof *c->prompts);
    if (!c->prompts) {
        api_fail(&c->error, 503, NULL, "no memory for the prompt");
        return false;
    }
    c->n_prompts = 1;
    chat_prompt_bound(c, c->prompts);
    atomic_store(&c->readable, true);
    struct conversation tools = {0};
    conversation_plain_tools(v, &tools);
    bool ok = make_prompt(c) && (c->prompts->over || tool_constrain(c, &tools));
    conversation_fini(&tools);
    return ok;
}

bool chat_prompt_shorten(struct completion *c) {
    const struct server_options *o = c->s->o;
    const struct prefill_options how = session_ratio_options(c->s, c->p.session);
    struct prefill_report *r = &c->compression;
    struct json *shorter = NULL;
    struct err e = {0};
    int64_t from = r->from;
    if (prefill_messages(o->compressor, &how, c->p.messages, from, &shorter, r, &e)) {
        api_error_of(&c->error, &e);
        return false;
    }
    r->from = r->to = from;
    if (!shorter)
        return true;
    json_free(c->words.messages);
    c->p.messages = c->words.messages = shorter;
    token_list_fini(&c->prompts->tokens);
    chat_prompt_bound(c, c->prompts);
    bool ok = make_prompt(c);
    r->to = (int64_t)c->prompts->tokens.count;
    return ok;
}
