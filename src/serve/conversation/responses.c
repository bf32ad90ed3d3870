// SPDX-License-Identifier: Apache-2.0
// Reader and writer of conversations of the Responses interface; see interfaces.h.
#include "serve/conversation/interfaces.h"

#include <stdio.h>
#include <string.h>

#include "text/chat/read.h"

static const char *const of_message[] = {"type", "role", "content", NULL};
static const char *const of_text[] = {"type", "text", NULL};
static const char *const of_refusal[] = {"type", "refusal", NULL};
static const char *const of_reasoning[] = {"type", "summary", "content", "encrypted_content", NULL};
static const char *const of_call[] = {"type", "call_id", "name", "arguments", NULL};
static const char *const of_custom_call[] = {"type", "call_id", "name", "input", NULL};
static const char *const of_result[] = {"type", "call_id", "output", "is_error", NULL};

struct reader {
    struct conversation *v;
    struct api_error *x;
    char place[48]; // of the item that is being read
};

static bool is_result(const char *type) {
    size_t n = strlen(type);
    return n > 7 && !strcmp(type + n - 7, "_output");
}

// Lists that hold nothing say nothing: annotations and logprobs of texts.
static void drop_empty_lists(struct extras *x) {
    int n = 0;
    for (int i = 0; i < x->n; i++)
        if (json_kind_of(x->at[i].value) != JSON_ARRAY || json_len(x->at[i].value) > 0)
            x->at[n++] = x->at[i];
    x->n = n;
}

static enum conversation_kind part_kind(const struct json *part) {
    static const char *const texts[] = {"", "text", "input_text", "output_text", NULL};
    const char *type = conversation_type_of(part);
    if (json_kind_of(part) == JSON_STRING ||
        (words_among(texts, type) && json_kind_of(json_get(part, "text")) == JSON_STRING))
        return PART_TEXT;
    if (!strcmp(type, "refusal") && json_kind_of(json_get(part, "refusal")) == JSON_STRING)
        return PART_REFUSAL;
    return conversation_is_media(type) ? PART_MEDIA : PART_OTHER;
}

// A string or an array of parts, into a turn or into a result.
static bool read_item_content(struct reader *r, const struct json *content, const char *name,
                              struct conversation_turn *t, struct conversation_part *result) {
    enum json_kind k = json_kind_of(content);
    bool list = k == JSON_ARRAY;
    if (k != JSON_STRING && !list && (k != JSON_NULL || result))
        return api_refuse(r->x, r->place, "%s.%s is %s and must be a string or an array of parts",
                          r->place, name, content ? json_kind_name(content) : "missing");
    size_t n = list ? json_len(content) : k == JSON_STRING;
    for (size_t i = 0; i < n; i++) {
        const struct json *part = list ? json_at(content, i) : content;
        if (json_kind_of(part) != JSON_OBJECT && json_kind_of(part) != JSON_STRING)
            return api_refuse(r->x, r->place, "%s.%s[%zu] is %s and must be a part", r->place, name,
                              i, json_kind_name(part));
        enum conversation_kind kind = part_kind(part);
        struct conversation_part *p =
            result ? conversation_inner(r->v, result, kind) : conversation_part(r->v, t, kind);
        conversation_fill(r->v, p, part);
        if (p && kind == PART_TEXT)
            drop_empty_lists(&p->extras);
    }
    return true;
}

static bool read_message_item(struct reader *r, const struct json *item) {
    struct words name = words_of(json_get(item, "role"));
    struct extras extras = {0};
    enum conversation_role role = conversation_role_of(item);
    if (role == CONVERSATION_ROLES || role == CONVERSATION_TOOL)
        return api_refuse(r->x, r->place,
                          "%s.role is '%.40s' and must be system, developer, user or assistant",
                          r->place, name.s ? name.s : "");
    struct conversation_turn *t = conversation_turn(r->v, role, PART_TEXT);
    extras_take(r->v, &extras, item, of_message);
    if (t && extras.n)
        t->extras = extras;
    return read_item_content(r, json_get(item, "content"), "content", t, NULL);
}

// The texts of a list of parts as one, with an empty line between them; absent without any.
static struct words join_texts(struct reader *r, const struct json *list) {
    struct str all = {0};
    bool any = false;
    for (size_t i = 0; i < json_len(list); i++) {
        struct words w = words_of(json_get(json_at(list, i), "text"));
        if (!w.s)
            continue;
        str_puts(&all, any ? "\n\n" : "");
        str_append(&all, w.s, w.n);
        any = true;
    }
    return any ? conversation_take(r->v, &all) : (struct words){0};
}

static bool read_reasoning_item(struct reader *r, const struct json *item) {
    struct conversation_turn *t = conversation_turn(r->v, CONVERSATION_ASSISTANT, PART_REASONING);
    struct conversation_part *p = conversation_part(r->v, t, PART_REASONING);
    if (!p)
        return true;
    p->text = join_texts(r, json_get(item, "content"));
    p->summary = join_texts(r, json_get(item, "summary"));
    p->signature = words_of(json_get(item, "encrypted_content"));
    extras_take(r->v, &p->extras, item, of_reasoning);
    return true;
}

static bool read_call_item(struct reader *r, const struct json *item, bool custom) {
    struct conversation_turn *t = conversation_turn(r->v, CONVERSATION_ASSISTANT, PART_CALL);
    struct conversation_part *p = conversation_part(r->v, t, PART_CALL);
    if (!p)
        return true;
    p->custom = custom;
    p->id = words_of(json_get(item, "call_id"));
    p->name = words_of(json_get(item, "name"));
    p->text = words_of(json_get(item, custom ? "input" : "arguments"));
    extras_take(r->v, &p->extras, item, custom ? of_custom_call : of_call);
    if (!p->name.s)
        return api_refuse(r->x, r->place, "%s.name is missing", r->place);
    return true;
}

static bool read_result_item(struct reader *r, const struct json *item, bool custom) {
    struct conversation_turn *t = conversation_turn(r->v, CONVERSATION_TOOL, PART_RESULT);
    struct conversation_part *p = conversation_part(r->v, t, PART_RESULT);
    if (!p)
        return true;
    p->custom = custom;
    p->id = words_of(json_get(item, "call_id"));
    p->is_error = json_bool(json_get(item, "is_error"), false);
    extras_take(r->v, &p->extras, item, of_result);
    return read_item_content(r, json_get(item, "output"), "output", NULL, p);
}

static bool read_other_item(struct reader *r, const struct json *item, const char *type) {
    bool result = is_result(type);
    struct conversation_turn *t =
        conversation_turn(r->v, result ? CONVERSATION_TOOL : CONVERSATION_ASSISTANT, PART_OTHER);
    struct conversation_part *p = conversation_part(r->v, t, PART_OTHER);
    if (p)
        p->raw = item;
    return true;
}

static bool read_item(struct reader *r, const struct json *item) {
    const char *type = conversation_type_of(item);
    if (json_kind_of(item) != JSON_OBJECT)
        return api_refuse(r->x, r->place, "%s is %s and must be an object", r->place,
                          json_kind_name(item));
    if (!strcmp(type, "message") || !type[0])
        return read_message_item(r, item);
    if (!strcmp(type, "reasoning"))
        return read_reasoning_item(r, item);
    if (!strcmp(type, "function_call") || !strcmp(type, "custom_tool_call"))
        return read_call_item(r, item, type[0] == 'c');
    if (!strcmp(type, "function_call_output") || !strcmp(type, "custom_tool_call_output"))
        return read_result_item(r, item, type[0] == 'c');
    return read_other_item(r, item, type);
}

bool conversation_read_responses(struct conversation *v, const struct json *input,
                                 struct api_error *x) {
    struct reader r = {.v = v, .x = x, .place = "input"};
    v->where = "input";
    if (json_kind_of(input) == JSON_STRING)
        return read_item_content(&r, input, "", conversation_turn(v, CONVERSATION_USER, PART_TEXT),
                                 NULL);
    if (json_kind_of(input) != JSON_ARRAY)
        return api_refuse_kind(x, "input", "", input, "a string or an array of items");
    for (size_t i = 0; i < json_len(input) && !v->failed; i++) {
        snprintf(r.place, sizeof r.place, "input[%zu]", i);
        if (!read_item(&r, json_at(input, i)))
            return false;
    }
    return true;
}

static void put_item_part(struct json_writer *w, const struct conversation_part *p, bool answer) {
    bool refusal = p->kind == PART_REFUSAL;
    if (p->raw) {
        jw_value(w, p->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", refusal ? "refusal" : answer ? "output_text" : "input_text");
    jw_key_text(w, refusal ? "refusal" : "text", p->text.s, p->text.n);
    extras_put(w, &p->extras, refusal ? of_refusal : of_text);
    jw_end(w, '}');
}

static void put_texts(struct json_writer *w, const char *key, const char *type, struct words t) {
    jw_key_begin(w, key, '[');
    if (t.s) {
        jw_begin(w, '{');
        jw_key_str(w, "type", type);
        words_put(w, "text", t);
        jw_end(w, '}');
    }
    jw_end(w, ']');
}

static void put_reasoning_part(struct json_writer *w, const struct conversation_part *p) {
    jw_begin(w, '{');
    jw_key_str(w, "type", "reasoning");
    put_texts(w, "summary", "summary_text", p->summary);
    if (p->text.s)
        put_texts(w, "content", "reasoning_text", p->text);
    words_put(w, "encrypted_content", p->signature);
    extras_put(w, &p->extras, of_reasoning);
    jw_end(w, '}');
}

static void put_call_item(struct json_writer *w, const struct conversation_part *p) {
    jw_begin(w, '{');
    jw_key_str(w, "type", p->custom ? "custom_tool_call" : "function_call");
    words_put(w, "call_id", p->id);
    words_put(w, "name", p->name);
    words_put(w, p->custom ? "input" : "arguments", p->text);
    extras_put(w, &p->extras, p->custom ? of_custom_call : of_call);
    jw_end(w, '}');
}

static void put_result_item(struct json_writer *w, const struct conversation_part *p) {
    const struct conversation_part *only = p->n_parts == 1 ? p->parts : NULL;
    if (p->kind != PART_RESULT) {
        jw_value(w, p->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", p->custom ? "custom_tool_call_output" : "function_call_output");
    words_put(w, "call_id", p->id);
    jw_key(w, "output");
    if (only && only->kind == PART_TEXT && only->extras.n == 0) {
        jw_str(w, only->text.s, only->text.n);
    } else {
        jw_begin(w, '[');
        for (int i = 0; i < p->n_parts; i++)
            put_item_part(w, &p->parts[i], false);
        jw_end(w, ']');
    }
    if (p->is_error)
        jw_key_bool(w, "is_error", true);
    extras_put(w, &p->extras, of_result);
    jw_end(w, '}');
}

static void put_message_item(struct json_writer *w, const struct conversation_turn *t) {
    jw_begin(w, '{');
    jw_key_str(w, "type", "message");
    jw_key_str(w, "role", conversation_roles[t->role]);
    jw_key_begin(w, "content", '[');
    for (int i = 0; i < t->n_parts; i++)
        if (conversation_is_content(&t->parts[i]))
            put_item_part(w, &t->parts[i], t->role == CONVERSATION_ASSISTANT);
    jw_end(w, ']');
    extras_put(w, &t->extras, of_message);
    jw_end(w, '}');
}

// The one part that came as an item of its own, of a kind that is unknown; NULL: there is none.
static const struct conversation_part *find_loose_item(const struct conversation_turn *t) {
    static const char *const known[] = {"message",          "reasoning",      "function_call",
                                        "custom_tool_call", "item_reference", NULL};
    const struct conversation_part *only = NULL;
    for (int i = 0; i < t->n_parts; i++) {
        if (!conversation_is_content(&t->parts[i]))
            continue;
        if (only)
            return NULL;
        only = &t->parts[i];
    }
    if (!only || only->kind != PART_OTHER || t->extras.n)
        return NULL;
    const char *type = json_str(json_get(only->raw, "type"), NULL);
    if (!type || !type[0] || is_result(type))
        return NULL;
    for (int i = 0; known[i]; i++)
        if (!strcmp(type, known[i]))
            return NULL;
    return only;
}

static void put_answer_items(struct json_writer *w, const struct conversation_turn *t) {
    const struct conversation_part *loose = find_loose_item(t);
    bool message = t->extras.n || t->n_parts == 0;
    for (int i = 0; i < t->n_parts; i++) {
        message |= conversation_is_content(&t->parts[i]);
        if (t->parts[i].kind == PART_REASONING)
            put_reasoning_part(w, &t->parts[i]);
    }
    if (loose)
        jw_value(w, loose->raw);
    else if (message)
        put_message_item(w, t);
    for (int i = 0; i < t->n_parts; i++)
        if (t->parts[i].kind == PART_CALL)
            put_call_item(w, &t->parts[i]);
}

void conversation_write_responses(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < v->n_turns; i++) {
        const struct conversation_turn *t = &v->turns[i];
        if (t->role == CONVERSATION_ASSISTANT)
            put_answer_items(w, t);
        else if (t->role != CONVERSATION_TOOL)
            put_message_item(w, t);
        else
            for (int k = 0; k < t->n_parts; k++)
                put_result_item(w, &t->parts[k]);
    }
    jw_end(w, ']');
}
