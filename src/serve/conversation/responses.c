// SPDX-License-Identifier: Apache-2.0
// Reader of conversations of the Responses interface; see responses.h. The writer is
// write_responses.c.
#include "serve/conversation/responses.h"

#include <stdio.h>
#include <string.h>

#include "serve/conversation/responses_impl.h"
#include "serve/request/fields.h"

const char *const responses_of_message[] = {"type", "role", "content", NULL};
const char *const responses_of_text[] = {"type", "text", NULL};
const char *const responses_of_refusal[] = {"type", "refusal", NULL};
const char *const responses_of_reasoning[] = {"type", "summary", "content", "encrypted_content",
                                              NULL};
const char *const responses_of_call[] = {"type", "call_id", "name", "arguments", NULL};
const char *const responses_of_custom_call[] = {"type", "call_id", "name", "input", NULL};
const char *const responses_of_result[] = {"type", "call_id", "output", "is_error", NULL};
const char *const responses_of_function[] = {"type",       "name",   "description",
                                             "parameters", "strict", NULL};
const char *const responses_of_custom[] = {"type", "name", "description", "format", NULL};

struct reader {
    struct conversation *v;
    struct api_error *x;
    char place[48]; // of the item that is being read
};

static const char *type_of(const struct json *v) {
    const char *type = json_str(json_get(v, "type"), NULL);
    return type ? type : "";
}

bool responses_is_result(const char *type) {
    size_t n = strlen(type);
    return n > 7 && !strcmp(type + n - 7, "_output");
}

// Lists that hold nothing tell nothing: annotations and logprobs of texts.
static void take_text_extras(struct reader *r, struct conversation_part *p,
                             const struct json *from) {
    struct extras all = {0}, *out = &p->extras;
    extras_take(r->v, &all, from, responses_of_text);
    *out = all;
    out->n = 0;
    for (int i = 0; i < all.n; i++)
        if (json_kind_of(all.at[i].value) != JSON_ARRAY || json_len(all.at[i].value) > 0)
            out->at[out->n++] = all.at[i];
}

static void read_part(struct reader *r, const struct json *from, struct conversation_part *p) {
    const char *type = type_of(from);
    bool string = json_kind_of(from) == JSON_STRING;
    if (!p)
        return;
    p->kind = PART_OTHER;
    bool text = !type[0] || !strcmp(type, "text") || !strcmp(type, "input_text") ||
                !strcmp(type, "output_text");
    if (string || (text && json_kind_of(json_get(from, "text")) == JSON_STRING)) {
        p->kind = PART_TEXT;
        p->text = words_of(string ? from : json_get(from, "text"));
        if (!string)
            take_text_extras(r, p, from);
    } else if (!strcmp(type, "refusal") && json_kind_of(json_get(from, "refusal")) == JSON_STRING) {
        p->kind = PART_REFUSAL;
        p->text = words_of(json_get(from, "refusal"));
        extras_take(r->v, &p->extras, from, responses_of_refusal);
    } else {
        if (conversation_is_media(type))
            p->kind = PART_MEDIA;
        p->raw = from;
    }
}

// A string or an array of parts, into a turn or into a result.
static bool read_content(struct reader *r, const struct json *content, const char *name,
                         struct conversation_turn *t, struct conversation_part *result) {
    enum json_kind k = json_kind_of(content);
    bool list = k == JSON_ARRAY;
    if (k != JSON_STRING && !list && (k != JSON_NULL || result))
        return api_refuse(r->x, r->place, "%s.%s is %s and must be a string or an array of parts",
                          r->place, name, content ? fields_kind_name(content) : "missing");
    size_t n = list ? json_len(content) : k == JSON_STRING;
    for (size_t i = 0; i < n; i++) {
        const struct json *part = list ? json_at(content, i) : content;
        if (json_kind_of(part) != JSON_OBJECT && json_kind_of(part) != JSON_STRING)
            return api_refuse(r->x, r->place, "%s.%s[%zu] is %s and must be a part", r->place, name,
                              i, fields_kind_name(part));
        read_part(r, part,
                  result ? conversation_inner(r->v, result, PART_OTHER)
                         : conversation_part(r->v, t, PART_OTHER));
    }
    return true;
}

static bool read_message(struct reader *r, const struct json *item) {
    struct words name = words_of(json_get(item, "role"));
    struct extras extras = {0};
    int role = 0;
    while (role < CONVERSATION_ROLES && !words_equal(name, conversation_roles[role]))
        role++;
    if (role == CONVERSATION_ROLES || role == CONVERSATION_TOOL)
        return api_refuse(r->x, r->place,
                          "%s.role is '%.40s' and must be system, developer, user or assistant",
                          r->place, name.s ? name.s : "");
    struct conversation_turn *t = conversation_turn(r->v, (enum conversation_role)role, PART_TEXT);
    extras_take(r->v, &extras, item, responses_of_message);
    if (t && extras.n)
        t->extras = extras;
    return read_content(r, json_get(item, "content"), "content", t, NULL);
}

// The texts of a list of parts as one, with an empty line between them; absent without any.
static struct words join(struct reader *r, const struct json *list) {
    struct str all = {0};
    struct words out = {0};
    bool any = false;
    for (size_t i = 0; i < json_len(list); i++) {
        struct words w = words_of(json_get(json_at(list, i), "text"));
        if (!w.s)
            continue;
        str_puts(&all, any ? "\n\n" : "");
        str_append(&all, w.s, w.n);
        any = true;
    }
    if (any && !all.failed)
        out = conversation_copy(r->v, all.data, all.len);
    r->v->failed |= all.failed;
    str_fini(&all);
    return out;
}

static bool read_reasoning(struct reader *r, const struct json *item) {
    struct conversation_turn *t = conversation_turn(r->v, CONVERSATION_ASSISTANT, PART_REASONING);
    struct conversation_part *p = conversation_part(r->v, t, PART_REASONING);
    if (!p)
        return true;
    p->text = join(r, json_get(item, "content"));
    p->summary = join(r, json_get(item, "summary"));
    p->signature = words_of(json_get(item, "encrypted_content"));
    extras_take(r->v, &p->extras, item, responses_of_reasoning);
    return true;
}

static bool read_call(struct reader *r, const struct json *item, bool custom) {
    struct conversation_turn *t = conversation_turn(r->v, CONVERSATION_ASSISTANT, PART_CALL);
    struct conversation_part *p = conversation_part(r->v, t, PART_CALL);
    if (!p)
        return true;
    p->custom = custom;
    p->id = words_of(json_get(item, "call_id"));
    p->name = words_of(json_get(item, "name"));
    p->text = words_of(json_get(item, custom ? "input" : "arguments"));
    extras_take(r->v, &p->extras, item, custom ? responses_of_custom_call : responses_of_call);
    if (!p->name.s)
        return api_refuse(r->x, r->place, "%s.name is missing", r->place);
    return true;
}

static bool read_result(struct reader *r, const struct json *item, bool custom) {
    struct conversation_turn *t = conversation_turn(r->v, CONVERSATION_TOOL, PART_RESULT);
    struct conversation_part *p = conversation_part(r->v, t, PART_RESULT);
    if (!p)
        return true;
    p->custom = custom;
    p->id = words_of(json_get(item, "call_id"));
    p->is_error = json_bool(json_get(item, "is_error"), false);
    extras_take(r->v, &p->extras, item, responses_of_result);
    return read_content(r, json_get(item, "output"), "output", NULL, p);
}

static bool read_other(struct reader *r, const struct json *item, const char *type) {
    bool result = responses_is_result(type);
    struct conversation_turn *t =
        conversation_turn(r->v, result ? CONVERSATION_TOOL : CONVERSATION_ASSISTANT, PART_OTHER);
    struct conversation_part *p = conversation_part(r->v, t, PART_OTHER);
    if (p)
        p->raw = item;
    return true;
}

static bool read_item(struct reader *r, const struct json *item) {
    const char *type = type_of(item);
    if (json_kind_of(item) != JSON_OBJECT)
        return api_refuse(r->x, r->place, "%s is %s and must be an object", r->place,
                          fields_kind_name(item));
    if (!strcmp(type, "message") || !type[0])
        return read_message(r, item);
    if (!strcmp(type, "reasoning"))
        return read_reasoning(r, item);
    if (!strcmp(type, "function_call") || !strcmp(type, "custom_tool_call"))
        return read_call(r, item, type[0] == 'c');
    if (!strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output"))
        return read_result(r, item, type[0] == 'c');
    return read_other(r, item, type);
}

bool conversation_read_responses(struct conversation *v, const struct json *input,
                                 struct api_error *x) {
    struct reader r = {.v = v, .x = x, .place = "input"};
    if (json_kind_of(input) == JSON_STRING)
        return read_content(&r, input, "", conversation_turn(v, CONVERSATION_USER, PART_TEXT),
                            NULL);
    if (json_kind_of(input) != JSON_ARRAY)
        return api_refuse(x, "input", "input is %s and must be a string or an array of items",
                          input ? fields_kind_name(input) : "missing");
    for (size_t i = 0; i < json_len(input) && !v->failed; i++) {
        snprintf(r.place, sizeof r.place, "input[%zu]", i);
        if (!read_item(&r, json_at(input, i)))
            return false;
    }
    return true;
}

static int tristate(const struct json *v) {
    return json_kind_of(v) != JSON_BOOL ? 0 : json_bool(v, false) ? 1 : -1;
}

// What a function or a custom tool is declared by: itself, or, in the form of chat completions, the
// object within it.
static const struct json *declaration_of(const struct json *from) {
    const char *type = type_of(from);
    bool own = !strcmp(type, "function") || !strcmp(type, "custom");
    const struct json *inner = own ? json_get(from, type) : NULL;
    return json_kind_of(inner) == JSON_OBJECT ? inner : from;
}

static void read_tool(struct conversation *v, const struct json *from) {
    const char *type = type_of(from);
    const struct json *body = declaration_of(from);
    bool named = json_kind_of(json_get(body, "name")) == JSON_STRING;
    enum tool_kind kind = named && !strcmp(type, "function") ? TOOL_FUNCTION
                          : named && !strcmp(type, "custom") ? TOOL_CUSTOM
                                                             : TOOL_OTHER;
    struct conversation_tool *t = conversation_tool(v, kind);
    if (!t)
        return;
    t->raw = from;
    if (kind == TOOL_OTHER)
        return;
    t->name = words_of(json_get(body, "name"));
    t->description = words_of(json_get(body, "description"));
    t->schema = kind == TOOL_FUNCTION ? json_get(body, "parameters") : NULL;
    t->format = kind == TOOL_CUSTOM ? json_get(body, "format") : NULL;
    t->strict = kind == TOOL_FUNCTION ? tristate(json_get(body, "strict")) : 0;
    extras_take(v, &t->extras, body,
                kind == TOOL_CUSTOM ? responses_of_custom : responses_of_function);
}

void conversation_read_responses_tools(struct conversation *v, const struct json *tools,
                                       const struct json *choice, const struct json *parallel) {
    static const char *const plain[] = {"auto", "none", "required"};
    const char *type = type_of(choice);
    struct words text = words_of(choice);
    for (size_t i = 0; i < json_len(tools) && !v->failed; i++)
        read_tool(v, json_at(tools, i));
    v->parallel = tristate(parallel);
    for (int i = 0; i < 3; i++)
        if (words_equal(text, plain[i]))
            v->choice.kind = (enum conversation_choice)(CHOICE_AUTO + i);
    if (v->choice.kind || json_kind_of(choice) == JSON_NULL)
        return;
    v->choice.custom = !strcmp(type, "custom");
    v->choice.name = words_of(json_get(declaration_of(choice), "name"));
    bool named = v->choice.name.s && (v->choice.custom || !strcmp(type, "function"));
    v->choice.kind = named ? CHOICE_NAMED : CHOICE_ALLOWED;
    if (!named) {
        v->choice.name = (struct words){0};
        v->choice.custom = false;
        v->choice.raw = choice;
    }
}
