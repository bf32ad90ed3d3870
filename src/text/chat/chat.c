// SPDX-License-Identifier: Apache-2.0
// Templates of chat.h: where they come from, what is kept of them, and requests through them.
#include "text/chat/chat.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/chat/impl.h"
#include "text/tools/write.h"

// For models that come without a template and whose vocabulary has its marks.
static const char chatml[] =
    "{%- for m in messages %}"
    "{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{% endif %}";

static void token_text(const struct tokenizer *t, int32_t id, struct str *out) {
    str_puts(out, "");
    if (id >= 0)
        tokenizer_decode(t, id, true, out);
}

static void describe_where_lost(struct chat_template *t) {
    t->traits.described = t->traits.tools_lost && tool_family_describable(t->calls);
}

static int create_template(struct chat_template **out, const char *text, size_t n,
                           const struct tokenizer *t, struct err *e) {
    struct chat_template *c = calloc(1, sizeof *c);
    *out = NULL;
    if (!c)
        return err_set(e, ERR_MEMORY, "no memory for a chat template; free some memory");
    str_append(&c->text, text, n);
    str_puts(&c->bos, "");
    str_puts(&c->eos, "");
    int rc = 0;
    if (t) {
        token_text(t, tokenizer_bos(t), &c->bos);
        token_text(t, tokenizer_eos(t), &c->eos);
        c->has_tokens = true;
        rc = tokenizer_user_defined(t, text, n, &c->guarded, e);
    }
    if (!rc && (c->text.failed || c->bos.failed || c->eos.failed))
        rc = err_set(e, ERR_MEMORY, "no memory for a chat template of %zu bytes", n);
    if (!rc)
        rc = jinja_compile(&c->program, c->text.data, c->text.len, e);
    c->family = reasoning_of_template(text, n);
    c->calls = tool_family_of_template(text, n);
    if (!rc)
        rc = chat_probe(c, e);
    describe_where_lost(c);
    if (rc)
        chat_template_free(c);
    else
        *out = c;
    return rc;
}

// Whether nothing but white space is in a template: it would print none of a conversation.
static bool is_empty(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && strchr(" \t\r\n", text[i]))
        i++;
    return i == n;
}

int chat_template_create(struct chat_template **out, const char *text, size_t n,
                         const struct tokenizer *t, struct err *e) {
    *out = NULL;
    if (!utf8_valid(text, n))
        return err_set(e, ERR_FORMAT, "the chat template is not UTF-8; convert it");
    if (is_empty(text, n))
        return err_set(e, ERR_FORMAT, "the chat template is empty; leave it out or write one");
    return create_template(out, text, n, t, e);
}

static int built_in(struct chat_template **out, const struct tokenizer *t, struct err *e) {
    static const char *const marks[] = {"<|im_start|>", "<|im_end|>"};
    for (int i = 0; i < 2; i++)
        if (tokenizer_find(t, marks[i], strlen(marks[i])) < 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "the model has no chat template, and its vocabulary no %s for ChatML; "
                           "give one with --chat-template-file, or use 'generate' with a prompt "
                           "in the model's own form",
                           marks[i]);
    return create_template(out, chatml, sizeof chatml - 1, t, e);
}

int chat_template_of_gguf(struct chat_template **out, const struct gguf *g,
                          const struct tokenizer *t, struct err *e) {
    static const char key[] = "tokenizer.chat_template", tool_key[] = "tokenizer.chat_template."
                                                                      "tool_use";
    const char *text = NULL, *tool_use = NULL;
    size_t n, n_tool;
    *out = NULL;
    int rc = gguf_get_str(g, key, &text, &n, e);
    if (!rc)
        rc = gguf_get_str(g, tool_key, &tool_use, &n_tool, e);
    if (rc)
        return rc;
    if (!text || is_empty(text, n))
        rc = built_in(out, t, e);
    else if ((rc = chat_template_create(out, text, n, t, e)) != 0)
        return err_prefix(e, "%s", key);
    if (!rc && tool_use && !is_empty(tool_use, n_tool) &&
        (rc = chat_template_create(&(*out)->tool_use, tool_use, n_tool, t, e))) {
        chat_template_free(*out);
        *out = NULL;
        return err_prefix(e, "%s", tool_key);
    }
    return rc;
}

void chat_template_free(struct chat_template *t) {
    if (!t)
        return;
    chat_template_free(t->tool_use);
    jinja_free(t->program);
    token_list_fini(&t->guarded);
    str_fini(&t->text);
    str_fini(&t->bos);
    str_fini(&t->eos);
    str_fini(&t->closing);
    free(t);
}

const char *chat_template_text(const struct chat_template *t, size_t *n) {
    *n = t->text.len;
    return t->text.data;
}

static const struct chat_template *with_tools(const struct chat_template *t) {
    return t->tool_use ? t->tool_use : t;
}

enum tool_family chat_template_calls(const struct chat_template *t) {
    return with_tools(t)->calls;
}

bool chat_template_loses_tools(const struct chat_template *t) {
    return with_tools(t)->traits.tools_lost;
}

const char *chat_template_tool_format(const struct chat_template *t) {
    t = with_tools(t);
    return t->traits.described ? tool_formats[t->calls].name : t->traits.tools_lost ? "none" : NULL;
}

// Everything of tools in the words of a family.
static void describe_all(struct chat_template *t, enum tool_family f) {
    t->calls = f;
    t->traits.described = t->traits.plain_calls = t->traits.plain_results = true;
}

int chat_template_set_tool_format(struct chat_template *t, const char *format, struct err *e) {
    enum tool_family f = tool_family_of_name(format);
    if (!strcmp(format, "auto"))
        return 0;
    if (!strcmp(format, "none")) {
        t->traits.described = false;
        if (t->tool_use)
            t->tool_use->traits.described = false;
        return 0;
    }
    if (f == TOOLS_FAMILIES || !tool_family_describable(f))
        return err_set(e, ERR_USAGE,
                       "tools cannot be described in the format '%.40s'; take auto, none, or a "
                       "family such as hermes or qwen",
                       format);
    describe_all(t, f);
    if (t->tool_use)
        describe_all(t->tool_use, f);
    return 0;
}

const char *chat_template_closing(const struct chat_template *t, size_t *n) {
    *n = t->closing.len;
    return t->closing.len ? t->closing.data : NULL;
}

enum reasoning_family chat_template_reasoning(const struct chat_template *t) {
    return t->family;
}

static const struct chat_template *choose_template(const struct chat_template *t, bool tools) {
    return t->tool_use && tools ? t->tool_use : t;
}

void chat_text_fini(struct chat_text *x) {
    str_fini(&x->text);
    free(x->spans);
    *x = (struct chat_text){0};
}

// Whether the bytes [from, to) of a text are all white space where the template wrote them.
static bool only_blanks(const struct chat_text *x, size_t from, size_t to) {
    size_t k = 0;
    for (size_t i = from; i < to; i++) {
        while (x->spans[k].end <= i)
            k++;
        if (x->spans[k].trusted && !strchr(" \t\r\n", x->text.data[i]))
            return false;
    }
    return true;
}

// The last place where the template itself opened a block, after it.
static bool last_opening(const struct chat_text *x, const char *mark, size_t *after) {
    size_t begin = 0, len = strlen(mark);
    bool found = false;
    for (size_t k = 0; k < x->n_spans; begin = x->spans[k++].end) {
        const char *at = x->text.data + begin;
        size_t left = x->spans[k].end - begin;
        while (x->spans[k].trusted && (at = memmem(at, left, mark, len)) != NULL) {
            at += len;
            left = x->spans[k].end - (size_t)(at - x->text.data);
            *after = (size_t)(at - x->text.data);
            found = true;
        }
    }
    return found;
}

// The prompt ends in an open block when the template wrote nothing visible after its mark; words
// after it are the beginning of a reply that is continued.
static bool ends_in_reasoning(const struct chat_template *t, const struct chat_text *x) {
    const char *open = reasoning_opening(t->family), *close = reasoning_closing(t->family);
    size_t from;
    if (!open || x->text.len == 0 || !last_opening(x, open, &from))
        return false;
    const char *rest = x->text.data + from;
    return only_blanks(x, from, x->text.len) &&
           !memmem(rest, x->text.len - from, close, strlen(close));
}

static int render_variables(const struct chat_template *t, struct jinja_context *c,
                            struct chat_text *out, struct err *e) {
    struct jinja_output o = {0};
    int rc = jinja_render(t->program, c, &o, e);
    if (rc) {
        jinja_output_fini(&o);
        return rc;
    }
    *out = (struct chat_text){.text = o.text, .spans = o.spans, .n_spans = o.n_spans, .of = t};
    out->in_reasoning = ends_in_reasoning(t, out);
    return 0;
}

static int set_raw_variable(void *arg, const char *key, size_t n, const struct json *v) {
    struct jinja_context *c = arg;
    (void)n;
    jinja_set(c, key, jinja_from_json(c, v, true));
    return 0;
}

static void set_token(struct jinja_context *c, const char *name, const struct str *text) {
    jinja_set(c, name, jinja_string(c, text->data, text->len, false));
}

int chat_render_raw(const struct chat_template *t, const struct json *variables,
                    struct chat_text *out, struct err *e) {
    struct jinja_context *c = NULL;
    *out = (struct chat_text){0};
    if (json_kind_of(variables) != JSON_OBJECT)
        return err_set(e, ERR_FORMAT,
                       "what a template is rendered with is an object: {\"messages\": [...], ...}");
    const struct json *tools = json_get(variables, "tools");
    t = choose_template(t, json_kind_of(tools) == JSON_ARRAY && json_len(tools) > 0);
    int rc = jinja_context_create(&c, NULL, e);
    if (rc)
        return rc;
    if (t->bos.len)
        set_token(c, "bos_token", &t->bos);
    if (t->eos.len)
        set_token(c, "eos_token", &t->eos);
    json_each(variables, set_raw_variable, c);
    rc = render_variables(t, c, out, e);
    jinja_context_free(c);
    return rc;
}

// A request.

// Stands after the words of an assistant that are to be continued, to find where they end. The
// blank at its end shows whether the template trims what it prints.
static const char end_tag[] = "\xE2\x81\xA3"
                              "coppice continues here ";

enum { TAG_LENGTH = sizeof end_tag - 1 };

static int append_tag(struct jinja_context *c, struct jinja_value holder, const char *key,
                      struct err *e) {
    struct str s = {0};
    size_t n;
    const char *text = jinja_bytes(jinja_member(holder, key), &n);
    if (text)
        str_append(&s, text, n);
    str_append(&s, end_tag, TAG_LENGTH);
    int rc = s.failed ? err_set(e, ERR_MEMORY, "no memory to continue a message") : 0;
    if (!rc)
        jinja_put_member(c, holder, key, jinja_string(c, s.data, s.len, true));
    str_fini(&s);
    return rc;
}

static int tag_last_words(struct jinja_context *c, struct jinja_value last, struct err *e) {
    struct jinja_value content = jinja_member(last, "content");
    size_t n = jinja_count(content);
    return content.kind == JINJA_LIST && n > 0 ? append_tag(c, jinja_at(content, n - 1), "text", e)
                                               : append_tag(c, last, "content", e);
}

static void cut_text(struct chat_text *x, size_t n) {
    x->text.len = n;
    x->text.data[n] = 0;
    while (x->n_spans > 0 && (x->n_spans == 1 ? n == 0 : x->spans[x->n_spans - 2].end >= n))
        x->n_spans--;
    if (x->n_spans > 0)
        x->spans[x->n_spans - 1].end = n;
}

// Cuts the text where the end_tag stands.
static int cut_at_tag(struct chat_text *x, struct err *e) {
    const char *found = NULL, *at = x->text.data, *end = at + x->text.len;
    while (at && (at = memmem(at, (size_t)(end - at), end_tag, TAG_LENGTH - 1)) != NULL)
        found = at++;
    if (!found)
        return err_set(e, ERR_USAGE,
                       "the chat template does not print the last message, which is the "
                       "assistant's, so it cannot be continued; let a user's message be the last");
    size_t n = (size_t)(found - x->text.data);
    bool trimmed = x->text.len - n < TAG_LENGTH || found[TAG_LENGTH - 1] != ' ';
    while (trimmed && n > 0 && strchr(" \t\r\n", x->text.data[n - 1]))
        n--;
    cut_text(x, n);
    return 0;
}

static int set_keyword(void *arg, const char *key, size_t n, const struct json *v) {
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    struct jinja_context *c = arg;
    (void)n;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(key, own[i]))
            return 0;
    jinja_set(c, key, jinja_from_json(c, v, true));
    return 0;
}

static int check_documents(const struct json *v, struct err *e) {
    if (json_kind_of(v) != JSON_ARRAY && json_kind_of(v) != JSON_NULL)
        return err_set(e, ERR_FORMAT, "documents is not a list");
    for (size_t i = 0; i < json_len(v); i++)
        if (json_kind_of(json_at(v, i)) != JSON_OBJECT)
            return err_set(e, ERR_FORMAT, "documents[%zu] is not an object", i);
    return 0;
}

// A list of the request; without members it is as if it were not there.
static void set_list(const struct chat_template *t, struct jinja_context *c, const char *name,
                     struct jinja_value list) {
    if (jinja_count(list) > 0)
        jinja_set(c, name, list);
    else if (!t->traits.undefined_lists)
        jinja_set(c, name, jinja_none());
}

static int set_variables(const struct chat_template *t, const struct chat_input *in,
                         struct jinja_context *c, bool goes_on, struct err *e) {
    struct jinja_value tools;
    int rc = chat_tools(c, in->said, &tools, e);
    if (!rc)
        rc = check_documents(in->documents, e);
    if (!rc && json_kind_of(in->kwargs) != JSON_OBJECT && json_kind_of(in->kwargs) != JSON_NULL)
        rc = err_set(e, ERR_FORMAT, "chat_template_kwargs is not an object");
    if (rc)
        return rc;
    set_list(t, c, "tools", t->traits.described ? jinja_none() : tools);
    set_list(t, c, "documents", jinja_from_json(c, in->documents, true));
    jinja_set(c, "bos_token", jinja_string(c, t->bos.data, t->bos.len, false));
    jinja_set(c, "eos_token", jinja_string(c, t->eos.data, t->eos.len, false));
    jinja_set(c, "add_generation_prompt", jinja_bool(in->add_generation_prompt && !goes_on));
    if (json_kind_of(in->kwargs) == JSON_OBJECT)
        json_each(in->kwargs, set_keyword, c);
    struct jinja_value thinking = jinja_bool(in->thinking > 0);
    thinking.untrusted = true;
    if (in->thinking && !json_has(in->kwargs, "enable_thinking"))
        jinja_set(c, "enable_thinking", thinking);
    if (in->effort && in->effort[0] && !json_has(in->kwargs, "reasoning_effort"))
        jinja_set(c, "reasoning_effort", jinja_string(c, in->effort, strlen(in->effort), true));
    return 0;
}

int chat_render(const struct chat_template *t, const struct chat_input *in, struct chat_text *out,
                struct err *e) {
    struct jinja_context *c = NULL;
    struct jinja_value messages, last;
    *out = (struct chat_text){0};
    t = choose_template(t, in->said->n_tools > 0);
    int rc = jinja_context_create(&c, &(struct jinja_limits){.cancel = in->cancel}, e);
    if (!rc) {
        jinja_context_changes(c);
        rc = chat_repair(t, c, in, &messages, &last, e);
        if (jinja_failure(c, e)) // then it may have missed what is there
            rc = jinja_failure(c, e);
    }
    bool goes_on = !rc && last.kind == JINJA_DICT && in->add_generation_prompt && !in->keep_last;
    if (goes_on)
        rc = tag_last_words(c, last, e);
    if (!rc)
        rc = set_variables(t, in, c, goes_on, e);
    if (!rc) {
        jinja_set(c, "messages", messages);
        rc = render_variables(t, c, out, e);
    }
    if (!rc && out->text.len == 0)
        rc = err_set(e, ERR_USAGE,
                     "the chat template prints nothing for this conversation; use one that prints "
                     "its messages");
    if (!rc && goes_on) {
        rc = cut_at_tag(out, e);
        out->in_reasoning = !rc && ends_in_reasoning(t, out);
    }
    jinja_context_free(c);
    if (rc)
        chat_text_fini(out);
    return rc;
}
