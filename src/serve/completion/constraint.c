// SPDX-License-Identifier: Apache-2.0
// What a reply is held to: calls of tools, the format of the reply, the end of reasoning; see
// constraint.h. Grammars are compiled outside of the lock.
#include "serve/completion/constraint.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "engine/session/structured.h"
#include "grammar/tool_grammar.h"
#include "serve/workers.h"
#include "spec/constraint/grammar.h"
#include "spec/constraint/thinking_limit.h"

enum { MAX_KEPT = 8 };

struct tool_constraints {
    const struct tokenizer *t;
    enum tool_family calls;
    enum reasoning_family family;
    int64_t model_vocab;
    pthread_mutex_t making; // held while the vocabulary is made
    struct grammar_vocab *vocab;
    struct constraint_store kept;
    bool looked;            // for tokens that are marks of calls
    struct constraint *ban; // keeps them out; NULL: there are none
};

int tool_constraints_create(struct tool_constraints **out, const struct tool_constraints_of *o,
                            struct err *e) {
    struct tool_constraints *k = calloc(1, sizeof *k);
    if (!k)
        return err_set(e, ERR_MEMORY, "no memory for constraints of calls");
    k->t = o->t;
    k->calls = o->calls;
    k->family = o->family;
    k->model_vocab = o->model_vocab;
    pthread_mutex_init(&k->making, NULL);
    constraint_store_init(&k->kept, MAX_KEPT);
    *out = k;
    return 0;
}

void tool_constraints_destroy(struct tool_constraints *k) {
    if (!k)
        return;
    constraint_store_fini(&k->kept);
    grammar_vocab_destroy(k->vocab);
    pthread_mutex_destroy(&k->making);
    free(k);
}

// The text of a token as the reader of calls sees it: control tokens where they are marks of calls.
static void token_bytes(void *arg, int32_t id, struct str *out) {
    const struct tool_constraints *k = arg;
    size_t before = out->len;
    tokenizer_decode(k->t, id, false, out);
    if (out->failed || out->len > before)
        return;
    if (k->family == REASONING_HARMONY)
        reasoning_decode(k->family, k->t, id, out);
    else
        tokenizer_decode(k->t, id, true, out);
    bool mark = !out->failed && out->len > before &&
                (k->family == REASONING_HARMONY ||
                 tool_family_mark(k->calls, out->data + before, out->len - before));
    if (!mark && !out->failed && out->len > before) {
        out->len = before;
        out->data[before] = 0;
    }
}

static bool token_ends(void *arg, int32_t id) {
    const struct tool_constraints *k = arg;
    return tokenizer_is_eog(k->t, id);
}

static int make_vocab(struct tool_constraints *k, const struct grammar_vocab **out, struct err *e) {
    const struct grammar_tokens tokens = {tokenizer_size(k->t), token_bytes, token_ends, k};
    pthread_mutex_lock(&k->making);
    int rc = k->vocab ? 0 : grammar_vocab_create(&k->vocab, &tokens, e);
    pthread_mutex_unlock(&k->making);
    *out = k->vocab;
    return rc;
}

void tool_rules_write(struct json_writer *w, const struct tool_rules *r) {
    jw_begin(w, '{');
    jw_key_bool(w, "required", r->required);
    jw_key_bool(w, "several", r->several);
    jw_key_bool(w, "none", r->none);
    jw_key_bool(w, "inside", r->inside);
    jw_key_str(w, "opening", r->opening);
    jw_key_begin(w, "tools", '[');
    for (int i = 0; i < r->n; i++) {
        jw_begin(w, '{');
        jw_key_text(w, "name", r->tools[i].name, r->tools[i].n);
        jw_key_bool(w, "freeform", r->tools[i].freeform);
        jw_key_bool(w, "strict", r->tools[i].strict);
        jw_key_value(w, "schema", r->tools[i].schema);
        jw_end(w, '}');
    }
    jw_end(w, ']');
    if (r->format) {
        jw_key_bool(w, "format_strict", r->format_strict);
        jw_key_value(w, "format", r->format);
    }
    jw_end(w, '}');
}

static int make_tools_key(const struct tool_rules *w, struct str *key, struct err *e) {
    struct json_writer json = {0};
    tool_rules_write(&json, w);
    *key = json.out;
    return key->failed ? err_set(e, ERR_MEMORY, "no memory for constraints of calls") : 0;
}

static int compile_tools(struct tool_constraints *k, const struct tool_rules *w,
                         struct constraint **out, struct err *e) {
    struct tool_grammar g = {0};
    const struct grammar_vocab *vocab;
    struct grammar_trigger triggers[TOOL_GRAMMAR_MARKS];
    struct grammar_constraint o = {.tokenizer = k->t,
                                   .model_vocab = k->model_vocab,
                                   .triggers = triggers,
                                   .required = w->required || w->format};
    struct grammar_work work = {.cancel = w->cancel};
    const struct tool_grammar_how how = {.several = w->several,
                                         .otherwise = w->format,
                                         .otherwise_strict = w->format_strict,
                                         .work = &work};
    int rc = make_vocab(k, &vocab, e);
    if (!rc && w->none)
        rc = tool_grammar_refuse(&g, k->calls, e);
    else if (!rc)
        rc = tool_grammar_create(&g, k->calls, w->tools, w->n, &how, e);
    const char *closing = reasoning_closing(k->family);
    o.vocab = vocab;
    if (!rc && (o.required || w->none)) {
        o.whole = w->inside ? NULL : g.whole;
        o.opening = w->opening;
        triggers[0] = (struct grammar_trigger){
            .marker = closing, .n_marker = closing ? strlen(closing) : 0, .grammar = g.whole};
        triggers[0].rest = true;
        o.n_triggers = closing && (w->inside || w->opening);
    } else if (!rc) {
        for (; o.n_triggers < g.n; o.n_triggers++)
            triggers[o.n_triggers] =
                (struct grammar_trigger){.marker = g.marks[o.n_triggers],
                                         .n_marker = strlen(g.marks[o.n_triggers]),
                                         .grammar = g.rest[o.n_triggers],
                                         .first = g.first[o.n_triggers]};
    }
    if (!rc)
        rc = grammar_constraint_create(out, &o, e);
    tool_grammar_fini(&g);
    return rc;
}

int tool_constraint_make(struct tool_constraints *k, const struct tool_rules *w,
                         struct constraint **out, struct err *e) {
    struct str key = {0};
    int rc = make_tools_key(w, &key, e);
    if (!rc)
        *out = constraint_store_find(&k->kept, &key);
    if (!rc && !*out) {
        rc = compile_tools(k, w, out, e);
        if (!rc)
            constraint_store_keep(&k->kept, &key, *out);
    }
    str_fini(&key);
    return rc;
}

static const struct conversation_tool *find_declaration(const struct conversation *v,
                                                        const struct tool *t) {
    for (int i = 0; i < v->n_tools; i++)
        if (v->tools[i].kind != TOOL_OTHER && v->tools[i].name.n == t->n &&
            !memcmp(v->tools[i].name.s, t->name, t->n))
            return &v->tools[i];
    return NULL;
}

// What the line of a request that is kept says of its constraint (serve/completion/keep.c).

static void note_tools(struct completion *c, const struct tool_rules *r, bool held) {
    struct json_writer w = {0};
    if (!c->s->kept)
        return;
    tool_rules_write(&w, r);
    str_fini(&c->rules.tools);
    c->rules.tools = w.out;
    c->rules.tools_held = held;
}

static void note_format(struct completion *c, const struct structured *s) {
    struct json_writer w = {0};
    if (!c->s->kept)
        return;
    jw_begin(&w, '{');
    jw_key_str(&w, "form", structured_form_name(s->form));
    jw_key_text(&w, "text", s->text, s->n);
    jw_key_str(&w, "opening", s->opening);
    jw_key_str(&w, "closing", s->closing);
    jw_key_bool(&w, "inside", s->inside);
    jw_key_bool(&w, "one_of_as_any", s->one_of_as_any);
    jw_end(&w, '}');
    str_fini(&c->rules.format);
    c->rules.format = w.out;
}

static void note_thinking(struct completion *c, const struct thinking_limit *o) {
    struct json_writer w = {0};
    if (!c->s->kept)
        return;
    jw_begin(&w, '{');
    jw_key_bool(&w, "inside", o->inside);
    jw_key_int(&w, "tokens", o->tokens);
    jw_key_text(&w, "closing", o->closing, o->n_closing);
    jw_end(&w, '}');
    str_fini(&c->rules.thinking);
    c->rules.thinking = w.out;
}

// *strict: one of the tools must be held to its schema.
static int constrain_to_tools(struct completion *c, const struct json *format, bool *strict,
                              struct err *e) {
    struct tool_set *set = &c->tools.set;
    bool may_think = c->p.thinking != 0;
    struct tool_rules w = {.n = set->n,
                           .none = set->n == 0,
                           .required = c->tools.required,
                           .several = !c->tools.one_call,
                           .format = format,
                           .format_strict = c->p.format_strict,
                           .cancel = &c->yield_check,
                           .inside = c->prompts->in_reasoning,
                           .opening = may_think ? reasoning_opening(c->family) : NULL};
    w.tools = calloc((size_t)set->n + 1, sizeof *w.tools);
    if (!w.tools)
        return err_set(e, ERR_MEMORY, "no memory for the tools of a request");
    for (int i = 0; i < set->n; i++) {
        const struct conversation_tool *t = find_declaration(&c->said, &set->list[i]);
        w.tools[i] = (struct tool_grammar_tool){.name = set->list[i].name,
                                                .n = set->list[i].n,
                                                .schema = t ? t->schema : NULL,
                                                .freeform = set->list[i].freeform,
                                                .strict = t && t->strict > 0};
        *strict |= w.tools[i].strict;
    }
    int rc = tool_constraint_make(c->s->tool_constraints, &w, &c->constraint, e);
    note_tools(c, &w, rc == 0);
    free(w.tools);
    return rc;
}

// The format that the request gives the reply, as a schema; json_free(*format).
static bool read_format(struct completion *c, struct json **format) {
    static const char object[] = "{\"type\":\"object\"}";
    const struct params *p = &c->p;
    bool schema = p->format == STRUCTURED_SCHEMA;
    struct grammar_work work = {.cancel = &c->yield_check};
    const struct grammar_json how = {.one_of_as_any = !p->format_strict};
    struct grammar *alone = NULL;
    struct err e = {0};
    int rc = schema && p->format_text.data
                 ? json_parse(format, p->format_text.data, p->format_text.len, &e)
                 : json_parse(format, object, sizeof object - 1, &e);
    workers_mark(c->s->workers);
    if (!rc) // alone, so that an error of it is not one of the tools
        rc = grammar_from_schema(&alone, *format, &how, &work, &e);
    grammar_unref(alone);
    if (rc == ERR_MEMORY || rc == ERR_CANCELLED)
        api_error_of(&c->error, &e);
    else if (rc)
        api_refuse(&c->error, p->format_field, "%s: %s", p->format_field, e.text);
    return !rc;
}

bool constrain_tools(struct completion *c) {
    struct json *format = NULL;
    struct err e = {0};
    bool formed = c->p.format_field[0] && !c->tools.required &&
                  (c->p.format == STRUCTURED_SCHEMA || c->p.format == STRUCTURED_OBJECT);
    if (c->constraint || !c->s->tool_constraints)
        return true;
    // Declared, and none is to be called: the prompt has the tools all the same.
    bool none = c->tools.set.n == 0;
    if (none && (c->said.n_tools == 0 || !tool_grammar_can_refuse(c->tools.family)))
        return true;
    if (formed && !read_format(c, &format)) {
        json_free(format);
        return false;
    }
    bool strict = false;
    workers_mark(c->s->workers);
    int rc = constrain_to_tools(c, format, &strict, &e);
    json_free(format);
    // Llama's calls need no mark: what is none of a grammar may begin there. Nor does the mark tell
    // within a text of another format.
    c->tools.constrained =
        !rc && !formed && !none && (c->tools.required || c->tools.family != TOOLS_LLAMA);
    bool needed = c->tools.required || formed || strict;
    if (!rc || (!needed && rc != ERR_MEMORY && rc != ERR_CANCELLED))
        return true;
    if (rc == ERR_UNSUPPORTED)
        api_refuse(&c->error, "tools", "%s", e.text);
    else
        api_error_of(&c->error, &e);
    return false;
}

bool constrain_format(struct completion *c) {
    const struct params *p = &c->p;
    const struct session *s = engine_session(c->s->engine);
    struct err e = {0};
    if (!p->format_field[0])
        return true;
    bool schema = p->format == STRUCTURED_SCHEMA || p->format == STRUCTURED_OBJECT;
    if (c->tools.set.n > 0 && (c->tools.required || (c->constraint && schema)))
        return true; // a call must come, or constrain_tools has seen to it
    if (c->tools.set.n > 0)
        return api_refuse(&c->error, p->format_field,
                          "%s together with tools that may be called is not supported: send "
                          "tool_choice none with it, a JSON schema, or leave one of them out",
                          p->format_field);
    if (!s) {
        api_fail(&c->error, 503, NULL, "the model is being loaded");
        return false;
    }
    struct structured w = {.form = p->format,
                           .text = p->format_text.data ? p->format_text.data : "",
                           .n = p->format_text.len,
                           .closing = reasoning_closing(c->family),
                           .inside = c->prompts->in_reasoning,
                           .one_of_as_any = !p->format_strict,
                           .cancel = &c->yield_check};
    if (p->thinking != 0)
        w.opening = reasoning_opening(c->family);
    workers_mark(c->s->workers);
    struct constraint *made = NULL;
    if (!structured_make(session_structured(s), &w, &made, &e)) {
        note_format(c, &w);
        constraint_drop(c->constraint); // that keeps calls out, which the format does
        c->constraint = made;
        return true;
    }
    if (e.code == ERR_MEMORY || e.code == ERR_CANCELLED) {
        api_error_of(&c->error, &e);
        return false;
    }
    return api_refuse(&c->error, p->format_field, "%s: %s", p->format_field, e.text);
}

// Of what may be thinking, in eighths.
static int64_t effort_eighths(const char *effort) {
    if (!strcmp(effort, "low") || !strcmp(effort, "minimal"))
        return 1;
    return !strcmp(effort, "medium") ? 4 : 8;
}

int64_t thinking_tokens(const struct params *p, int64_t max_reply) {
    int64_t limit = max_reply - min_i64(max_reply / 4, THINKING_REPLY);
    bool effort = p->effort[0] && strcmp(p->effort, "none") != 0;
    if (p->thinking == 0)
        return 0;
    if (p->thinking_tokens < 0 && !effort)
        return -1;
    if (effort)
        limit = limit * effort_eighths(p->effort) / 8;
    return p->thinking_tokens >= 0 ? min_i64(p->thinking_tokens, limit) : limit;
}

bool constrain_thinking(struct completion *c) {
    const struct completion_prompt *prompt = c->prompts;
    int64_t max_reply = c->s->n_ctx - (int64_t)prompt->tokens.count;
    struct thinking_limit o = {
        .t = c->s->tokenizer, .family = c->family, .inside = prompt->in_reasoning};
    struct constraint *limited = NULL;
    struct err e = {0};
    if (c->p.max_tokens >= 0)
        max_reply = min_i64(max_reply, c->p.max_tokens);
    if (c->family == REASONING_NONE || !o.t)
        return true;
    o.tokens = thinking_tokens(&c->p, max_reply);
    o.closing = chat_template_closing(c->s->chat, &o.n_closing);
    if (o.tokens < 0 || (c->p.thinking == 0 && !o.inside))
        return true;
    if (thinking_limit_create(&limited, &o, c->constraint, &e)) {
        api_error_of(&c->error, &e);
        return false;
    }
    note_thinking(c, &o);
    constraint_drop(c->constraint);
    c->constraint = limited;
    return true;
}

struct reply_rules completion_reply_rules(const struct choice *k) {
    const struct completion *c = k->c;
    return (struct reply_rules){.family = c->family,
                                .inside = c->prompts[k->index / (int)c->p.n].in_reasoning,
                                .stops = &c->p.stops,
                                .tools = &c->tools.set,
                                .calls = c->tools.family,
                                .constrained = c->tools.constrained,
                                .only = c->tools.constrained && c->tools.required &&
                                        !c->p.ignore_eos && c->tools.family != TOOLS_HARMONY,
                                .one_call = c->tools.one_call,
                                .stop_ids = c->p.stop_ids,
                                .n_stop_ids = c->p.n_stop_ids,
                                .keeps_stop = c->p.keeps_stop,
                                .min_tokens = c->p.min_tokens};
}
