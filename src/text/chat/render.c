// SPDX-License-Identifier: Apache-2.0
// A request through its template, and on to tokens; see chat.h.
#include <stdlib.h>
#include <string.h>

#include "text/chat/impl.h"

// Stands behind the words of an assistant that are to be continued, to find where they end. The
// blank at its end shows whether the template trims what it prints.
static const char tag[] = "\xE2\x81\xA3"
                          "coppice continues here ";
enum { TAG = sizeof tag - 1 };

static int append_tag(struct jinja_context *c, struct jinja_value holder, const char *key,
                      struct err *e) {
    struct str s = {0};
    size_t n;
    const char *text = jinja_bytes(jinja_member(holder, key), &n);
    if (text)
        str_append(&s, text, n);
    str_append(&s, tag, TAG);
    int rc = s.failed ? err_set(e, ERR_MEMORY, "no memory to continue a message") : 0;
    if (!rc)
        jinja_put_member(c, holder, key, jinja_string(c, s.data, s.len, true));
    str_fini(&s);
    return rc;
}

static int mark_end(struct jinja_context *c, struct jinja_value last, struct err *e) {
    struct jinja_value content = jinja_member(last, "content");
    size_t n = jinja_count(content);
    return content.kind == JINJA_LIST && n > 0 ? append_tag(c, jinja_at(content, n - 1), "text", e)
                                               : append_tag(c, last, "content", e);
}

static void cut(struct chat_text *x, size_t n) {
    x->text.len = n;
    x->text.data[n] = 0;
    while (x->n_spans > 0 && (x->n_spans == 1 ? n == 0 : x->spans[x->n_spans - 2].end >= n))
        x->n_spans--;
    if (x->n_spans > 0)
        x->spans[x->n_spans - 1].end = n;
}

// Cuts the text where the tag stands.
static int cut_at_tag(struct chat_text *x, struct err *e) {
    const char *found = NULL, *at = x->text.data, *end = at + x->text.len;
    while (at && (at = memmem(at, (size_t)(end - at), tag, TAG - 1)) != NULL)
        found = at++;
    if (!found)
        return err_set(e, ERR_USAGE,
                       "the chat template does not print the last message, which is the "
                       "assistant's, so it cannot be continued; let a user's message be the last");
    size_t n = (size_t)(found - x->text.data);
    bool trimmed = x->text.len - n < TAG || found[TAG - 1] != ' ';
    while (trimmed && n > 0 && strchr(" \t\r\n", x->text.data[n - 1]))
        n--;
    cut(x, n);
    return 0;
}

static int set_variable(void *arg, const char *key, size_t n, const struct json *v) {
    static const char *const own[] = {"messages", "tools", "documents", "add_generation_prompt"};
    struct jinja_context *c = arg;
    (void)n;
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (!strcmp(key, own[i]))
            return 0;
    jinja_set(c, key, jinja_from_json(c, v, true));
    return 0;
}

// A list of the request; without members it is as if it were not there.
static int set_list(const struct chat_template *t, struct jinja_context *c, const char *name,
                    const struct json *v, struct err *e) {
    if (json_kind_of(v) != JSON_ARRAY && json_kind_of(v) != JSON_NULL)
        return err_set(e, ERR_FORMAT, "%s is not a list", name);
    for (size_t i = 0; i < json_len(v); i++)
        if (json_kind_of(json_at(v, i)) != JSON_OBJECT)
            return err_set(e, ERR_FORMAT, "%s[%zu] is not an object", name, i);
    if (json_len(v) > 0)
        jinja_set(c, name, jinja_from_json(c, v, true));
    else if (!t->traits.undefined_lists)
        jinja_set(c, name, jinja_none());
    return 0;
}

static int set_variables(const struct chat_template *t, const struct chat_input *in,
                         struct jinja_context *c, bool goes_on, struct err *e) {
    int rc = set_list(t, c, "tools", in->tools, e);
    if (!rc)
        rc = set_list(t, c, "documents", in->documents, e);
    if (!rc && json_kind_of(in->kwargs) != JSON_OBJECT && json_kind_of(in->kwargs) != JSON_NULL)
        rc = err_set(e, ERR_FORMAT, "chat_template_kwargs is not an object");
    if (rc)
        return rc;
    jinja_set(c, "bos_token", jinja_string(c, t->bos.data, t->bos.len, false));
    jinja_set(c, "eos_token", jinja_string(c, t->eos.data, t->eos.len, false));
    jinja_set(c, "add_generation_prompt", jinja_bool(in->add_generation_prompt && !goes_on));
    if (json_kind_of(in->kwargs) == JSON_OBJECT)
        json_each(in->kwargs, set_variable, c);
    return 0;
}

int chat_render(const struct chat_template *t, const struct chat_input *in, struct chat_text *out,
                struct err *e) {
    struct jinja_context *c = NULL;
    struct jinja_value messages, last;
    *out = (struct chat_text){0};
    t = chat_choose(t, in->tools);
    int rc = jinja_context_create(&c, &(struct jinja_limits){.gone = in->gone}, e);
    if (!rc) {
        jinja_context_changes(c);
        rc = chat_repair(t, c, in, &messages, &last, e);
        if (jinja_failure(c, e)) // then it may have missed what is there
            rc = jinja_failure(c, e);
    }
    bool goes_on = !rc && last.kind == JINJA_DICT && in->add_generation_prompt && !in->keep_last;
    if (goes_on)
        rc = mark_end(c, last, e);
    if (!rc)
        rc = set_variables(t, in, c, goes_on, e);
    if (!rc) {
        jinja_set(c, "messages", messages);
        rc = chat_run(t, c, out, e);
    }
    if (!rc && out->text.len == 0)
        rc = err_set(e, ERR_USAGE,
                     "the chat template prints nothing for this conversation; use one that prints "
                     "its messages");
    if (!rc && goes_on) {
        rc = cut_at_tag(out, e);
        out->in_reasoning = !rc && chat_in_reasoning(t, out);
    }
    jinja_context_free(c);
    if (rc)
        chat_text_fini(out);
    return rc;
}

int chat_encode_from(const struct tokenizer *t, const struct chat_text *x, size_t from,
                     struct token_list *out, struct err *e) {
    const struct chat_template *of = x->of;
    struct special_span *spans = calloc(x->n_spans + 1, sizeof *spans);
    size_t n = 0;
    if (!spans)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a text");
    for (size_t i = 0; i < x->n_spans; i++)
        if (x->spans[i].end > from)
            spans[n++] = (struct special_span){x->spans[i].end - from, x->spans[i].trusted};
    const struct special_where w = {spans, n, of ? of->guarded.ids : NULL,
                                    of ? of->guarded.count : 0};
    const char *text = x->text.data ? x->text.data + from : "";
    int rc = tokenizer_encode_spans(t, text, x->text.len - from, &w, out, e);
    free(spans);
    return rc;
}

int chat_encode(const struct tokenizer *t, const struct chat_text *x, struct token_list *out,
                struct err *e) {
    size_t before = out->count;
    int32_t bos = tokenizer_bos(t);
    int rc = tokenizer_add_bos(t) ? token_list_push(out, bos, e) : 0;
    if (!rc)
        rc = chat_encode_from(t, x, 0, out, e);
    if (rc) {
        out->count = before;
        return rc;
    }
    // The template may have printed it.
    if (tokenizer_add_bos(t) && out->count > before + 1 && out->ids[before + 1] == bos) {
        out->count--;
        memmove(out->ids + before, out->ids + before + 1, (out->count - before) * sizeof *out->ids);
    }
    return 0;
}
