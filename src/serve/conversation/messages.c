// SPDX-License-Identifier: Apache-2.0
// Reader and writer of Anthropic's Messages; see messages.h.
#include "serve/conversation/messages.h"

#include <string.h>

// Members that have a name in the form; the others are extras.
static const char *const of_message[] = {"role", "content", NULL};
static const char *const of_text[] = {"type", "text", NULL};
static const char *const of_refusal[] = {"type", "refusal", NULL};
static const char *const of_thought[] = {"type", "thinking", "summary", "signature", "data", NULL};
static const char *const of_call[] = {"type", "id", "name", "input", "custom", NULL};
static const char *const of_result[] = {"type",     "tool_use_id", "content",
                                        "is_error", "custom",      NULL};
static const char *const of_tool[] = {"type",   "name",   "description", "input_schema",
                                      "strict", "format", NULL};

static bool is(const struct json *block, const char *type) {
    return words_equal(words_of(json_get(block, "type")), type);
}

// A document whose words came with it; others are media.
static bool is_readable(const struct json *block) {
    const struct json *source = json_get(block, "source");
    return is(block, "document") && (is(source, "text") || is(source, "content"));
}

static enum conversation_kind kind_of(const struct json *block, bool answer) {
    static const struct {
        const char *type;
        enum conversation_kind kind;
    } answers[] = {{"thinking", PART_REASONING},
                   {"redacted_thinking", PART_REASONING},
                   {"tool_use", PART_CALL}};
    for (size_t i = 0; answer && i < sizeof answers / sizeof answers[0]; i++)
        if (is(block, answers[i].type))
            return answers[i].kind;
    if (!answer && is(block, "tool_result"))
        return PART_RESULT;
    bool plain = is(block, "text") || !json_get(block, "type");
    if (json_kind_of(block) == JSON_STRING ||
        (plain && json_kind_of(json_get(block, "text")) == JSON_STRING))
        return PART_TEXT;
    if (is(block, "refusal"))
        return PART_REFUSAL;
    const char *type = json_str(json_get(block, "type"), NULL);
    return conversation_is_media(type) && !is_readable(block) ? PART_MEDIA : PART_OTHER;
}

// Of a block where no call and no result can stand.
static enum conversation_kind inner_kind(const struct json *block) {
    enum conversation_kind kind = kind_of(block, false);
    return kind == PART_RESULT ? PART_OTHER : kind;
}

static void read_content(struct conversation *v, const struct json *from,
                         struct conversation_part *p) {
    if (!p)
        return;
    if (p->kind == PART_TEXT) {
        p->text = words_of(json_kind_of(from) == JSON_STRING ? from : json_get(from, "text"));
        extras_take(v, &p->extras, from, of_text);
    } else if (p->kind == PART_REFUSAL) {
        p->text = words_of(json_get(from, "refusal"));
        extras_take(v, &p->extras, from, of_refusal);
    } else {
        p->raw = from;
    }
}

static void read_thought(struct conversation *v, const struct json *from,
                         struct conversation_part *p) {
    p->text = words_of(json_get(from, "thinking"));
    p->summary = words_of(json_get(from, "summary"));
    p->signature = words_of(json_get(from, is(from, "thinking") ? "signature" : "data"));
    extras_take(v, &p->extras, from, of_thought);
}

static void read_call(struct conversation *v, const struct json *from,
                      struct conversation_part *p) {
    const struct json *input = json_get(from, "input");
    struct json_writer w = {0};
    p->id = words_of(json_get(from, "id"));
    p->name = words_of(json_get(from, "name"));
    p->custom = json_bool(json_get(from, "custom"), false);
    p->text = words_of(input);
    extras_take(v, &p->extras, from, of_call);
    if (p->custom || json_kind_of(input) == JSON_STRING)
        return;
    if (!input) {
        p->text = words_of_text("{}");
        return;
    }
    jw_value(&w, input);
    p->object = true;
    p->raw = input;
    if (!w.out.failed)
        p->text = conversation_copy(v, w.out.data, w.out.len);
    v->failed |= w.out.failed;
    str_fini(&w.out);
}

// A content, of which a string is one block.
static size_t count(const struct json *content) {
    enum json_kind k = json_kind_of(content);
    return k == JSON_STRING ? 1 : k == JSON_ARRAY ? json_len(content) : 0;
}

static const struct json *at(const struct json *content, size_t i) {
    return json_kind_of(content) == JSON_ARRAY ? json_at(content, i) : content;
}

static void read_result(struct conversation *v, const struct json *from,
                        struct conversation_part *p) {
    const struct json *content = json_get(from, "content");
    p->id = words_of(json_get(from, "tool_use_id"));
    p->is_error = json_bool(json_get(from, "is_error"), false);
    p->custom = json_bool(json_get(from, "custom"), false);
    extras_take(v, &p->extras, from, of_result);
    for (size_t i = 0; i < count(content); i++)
        read_content(v, at(content, i), conversation_inner(v, p, inner_kind(at(content, i))));
}

static void read_block(struct conversation *v, const struct json *from,
                       struct conversation_part *p) {
    if (!p)
        return;
    if (p->kind == PART_REASONING)
        read_thought(v, from, p);
    else if (p->kind == PART_CALL)
        read_call(v, from, p);
    else if (p->kind == PART_RESULT)
        read_result(v, from, p);
    else
        read_content(v, from, p);
}

static int rank_of(enum conversation_kind kind) {
    return kind == PART_REASONING ? 0 : kind == PART_CALL ? 2 : 1;
}

static void read_answer(struct conversation *v, const struct json *m) {
    const struct json *content = json_get(m, "content");
    struct extras extras = {0};
    extras_take(v, &extras, m, of_message);
    enum conversation_kind kind = PART_TEXT, last;
    size_t n = count(content);
    if (n && (kind = kind_of(at(content, 0), true)) == PART_CALL && extras.n)
        kind = PART_TEXT;
    struct conversation_turn *t = conversation_turn(v, CONVERSATION_ASSISTANT, kind);
    for (size_t i = 0; t && i < n; i++) {
        last = kind;
        kind = kind_of(at(content, i), true);
        if (rank_of(kind) < rank_of(last))
            t = conversation_turn(v, CONVERSATION_ASSISTANT, kind);
        read_block(v, at(content, i), conversation_part(v, t, kind));
    }
    if (t && extras.n)
        t->extras = extras;
}

// Words of others; results of tools are turns of their own.
static void read_words(struct conversation *v, const struct json *m, enum conversation_role role) {
    const struct json *content = json_get(m, "content");
    struct conversation_turn *t = NULL;
    size_t n = count(content);
    if (role == CONVERSATION_SYSTEM && !content)
        return;
    for (size_t i = 0; i < n && !v->failed; i++) {
        const struct json *block = at(content, i);
        bool item = is(block, "tool_item");
        enum conversation_kind kind = item ? PART_OTHER : kind_of(block, false);
        bool result = kind == PART_RESULT || item;
        enum conversation_role of = result ? CONVERSATION_TOOL : role;
        if (!t || t->role != of)
            t = conversation_turn(v, of, kind);
        read_block(v, item ? json_get(block, "item") : block, conversation_part(v, t, kind));
    }
    if (!t)
        t = conversation_turn(v, role, PART_TEXT);
    struct extras extras = {0};
    extras_take(v, &extras, m, of_message);
    if (t && extras.n)
        t->extras = extras;
}

void conversation_read_messages(struct conversation *v, const struct json *body) {
    const struct json *system = json_get(body, "system"), *messages = json_get(body, "messages");
    struct conversation_turn *t = NULL;
    if (count(system))
        t = conversation_turn(v, CONVERSATION_SYSTEM, PART_TEXT);
    for (size_t i = 0; t && i < count(system); i++)
        read_content(v, at(system, i), conversation_part(v, t, inner_kind(at(system, i))));
    for (size_t i = 0; i < json_len(messages) && !v->failed; i++) {
        const struct json *m = json_at(messages, i);
        enum conversation_role role = conversation_role_of(m);
        if (role == CONVERSATION_ASSISTANT)
            read_answer(v, m);
        else
            read_words(v, m, role);
    }
}

static int tristate(const struct json *v) {
    return json_kind_of(v) != JSON_BOOL ? 0 : json_bool(v, false) ? 1 : -1;
}

static void read_tool(struct conversation *v, const struct json *from) {
    const struct json *schema = json_get(from, "input_schema");
    bool custom = is(from, "freeform");
    bool plain = json_kind_of(json_get(from, "type")) == JSON_NULL || is(from, "custom");
    struct conversation_tool *t = conversation_tool(v, custom            ? TOOL_CUSTOM
                                                       : plain || schema ? TOOL_FUNCTION
                                                                         : TOOL_OTHER);
    if (!t)
        return;
    t->raw = from;
    if (t->kind == TOOL_OTHER)
        return;
    t->name = words_of(json_get(from, "name"));
    t->description = words_of(json_get(from, "description"));
    t->schema = custom ? NULL : schema;
    t->format = custom ? json_get(from, "format") : NULL;
    t->strict = tristate(json_get(from, "strict"));
    extras_take(v, &t->extras, from, of_tool);
}

// What a turn of the system changes about the tools of that name: all of them are offered again,
// or none is.
static void offer_tools(struct conversation *v, struct words name, bool withdrawn) {
    for (int i = 0; name.s && i < v->n_tools; i++) {
        struct words own = words_of(json_get(v->tools[i].raw, "name"));
        if (own.s && own.n == name.n && !memcmp(own.s, name.s, name.n))
            v->tools[i].withdrawn = withdrawn;
    }
}

static void change_tools(struct conversation *v, const struct json *block) {
    const struct json *tool = json_get(block, "tool"), *definition = json_get(tool, "definition");
    bool adds = is(block, "tool_addition");
    if (!adds && !is(block, "tool_removal"))
        return;
    struct words name = words_of(json_get(definition ? definition : tool, "name"));
    offer_tools(v, name, !adds || definition);
    if (adds && definition)
        read_tool(v, definition);
}

// Tools are told of in front of all turns, so that those count which are offered in the end.
static void read_changes(struct conversation *v, const struct json *messages) {
    int n = 0;
    for (size_t i = 0; i < json_len(messages) && !v->failed; i++) {
        const struct json *m = json_at(messages, i), *content = json_get(m, "content");
        if (conversation_role_of(m) != CONVERSATION_SYSTEM || json_kind_of(content) != JSON_ARRAY)
            continue;
        for (size_t k = 0; k < json_len(content) && !v->failed; k++)
            change_tools(v, json_at(content, k));
    }
    for (int i = 0; i < v->n_tools; i++)
        if (!v->tools[i].withdrawn)
            v->tools[n++] = v->tools[i];
    v->n_tools = n;
}

static const char *const choices[] = {"", "auto", "none", "any", "tool"};

void conversation_read_messages_tools(struct conversation *v, const struct json *body) {
    const struct json *tools = json_get(body, "tools"), *choice = json_get(body, "tool_choice");
    for (size_t i = 0; i < json_len(tools) && !v->failed; i++)
        read_tool(v, json_at(tools, i));
    read_changes(v, json_get(body, "messages"));
    for (int i = 1; i <= CHOICE_NAMED; i++)
        if (is(choice, choices[i]))
            v->choice.kind = (enum conversation_choice)i;
    if (v->choice.kind == CHOICE_NAMED) {
        v->choice.name = words_of(json_get(choice, "name"));
        v->choice.custom = json_bool(json_get(choice, "custom"), false);
    }
    v->parallel = -tristate(json_get(choice, "disable_parallel_tool_use"));
}

static void put_text(struct json_writer *w, const struct conversation_part *p) {
    bool refusal = p->kind == PART_REFUSAL;
    jw_key_str(w, "type", refusal ? "refusal" : "text");
    words_put(w, refusal ? "refusal" : "text", p->text.s ? p->text : words_of_text(""));
    extras_put(w, &p->extras, refusal ? of_refusal : of_text);
}

static void put_thought(struct json_writer *w, const struct conversation_part *p) {
    bool readable = p->text.s || p->summary.s;
    jw_key_str(w, "type", readable ? "thinking" : "redacted_thinking");
    words_put(w, "thinking", p->text);
    words_put(w, "summary", p->summary);
    words_put(w, readable ? "signature" : "data", p->signature);
    extras_put(w, &p->extras, of_thought);
}

// Arguments are an object here; a text that is none stays one.
static void put_input(struct json_writer *w, const struct conversation_part *p) {
    static const struct json_rules rules = {.depth = 512, .big_integers = true};
    struct json *parsed = NULL;
    struct err e = {0};
    const struct json *object = p->object ? p->raw : NULL;
    if (!object && !p->custom && p->text.s &&
        !json_parse_with(&parsed, p->text.s, p->text.n, &rules, &e) &&
        json_kind_of(parsed) == JSON_OBJECT)
        object = parsed;
    w->out.failed |= e.code == ERR_MEMORY;
    if (object) {
        jw_key(w, "input");
        jw_value(w, object);
    } else {
        words_put(w, "input", p->text);
    }
    json_free(parsed);
}

static void put_call(struct json_writer *w, const struct conversation_part *p) {
    jw_key_str(w, "type", "tool_use");
    words_put(w, "id", p->id);
    words_put(w, "name", p->name);
    put_input(w, p);
    if (p->custom)
        jw_key_bool(w, "custom", true);
    extras_put(w, &p->extras, of_call);
}

static void put_part(struct json_writer *w, const struct conversation_part *p);

static void put_result(struct json_writer *w, const struct conversation_part *p) {
    jw_key_str(w, "type", "tool_result");
    words_put(w, "tool_use_id", p->id);
    if (p->is_error)
        jw_key_bool(w, "is_error", true);
    if (p->custom)
        jw_key_bool(w, "custom", true);
    jw_key(w, "content");
    jw_begin(w, '[');
    for (int i = 0; i < p->n_parts; i++)
        put_part(w, &p->parts[i]);
    jw_end(w, ']');
    extras_put(w, &p->extras, of_result);
}

static void put_part(struct json_writer *w, const struct conversation_part *p) {
    if (p->kind == PART_MEDIA || p->kind == PART_OTHER) {
        jw_value(w, p->raw);
        return;
    }
    jw_begin(w, '{');
    if (p->kind == PART_REASONING)
        put_thought(w, p);
    else if (p->kind == PART_CALL)
        put_call(w, p);
    else if (p->kind == PART_RESULT)
        put_result(w, p);
    else
        put_text(w, p);
    jw_end(w, '}');
}

static void put_turn(struct json_writer *w, const struct conversation_turn *t) {
    bool tool = t->role == CONVERSATION_TOOL;
    jw_begin(w, '{');
    jw_key_str(w, "role", tool ? "user" : conversation_roles[t->role]);
    jw_key(w, "content");
    jw_begin(w, '[');
    for (int i = 0; i < t->n_parts; i++) {
        bool item = tool && t->parts[i].kind == PART_OTHER;
        if (item) {
            jw_begin(w, '{');
            jw_key_str(w, "type", "tool_item");
            jw_key(w, "item");
        }
        put_part(w, &t->parts[i]);
        if (item)
            jw_end(w, '}');
    }
    jw_end(w, ']');
    extras_put(w, &t->extras, of_message);
    jw_end(w, '}');
}

void conversation_write_messages(const struct conversation *v, struct json_writer *w) {
    jw_key(w, "messages");
    jw_begin(w, '[');
    for (int i = 0; i < v->n_turns; i++)
        put_turn(w, &v->turns[i]);
    jw_end(w, ']');
}

static void put_tool(struct json_writer *w, const struct conversation_tool *t) {
    bool custom = t->kind == TOOL_CUSTOM;
    if (t->kind == TOOL_OTHER) {
        jw_value(w, t->raw);
        return;
    }
    jw_begin(w, '{');
    if (custom)
        jw_key_str(w, "type", "freeform");
    words_put(w, "name", t->name);
    words_put(w, "description", t->description);
    if (custom ? t->format : t->schema) {
        jw_key(w, custom ? "format" : "input_schema");
        jw_value(w, custom ? t->format : t->schema);
    }
    if (t->strict)
        jw_key_bool(w, "strict", t->strict > 0);
    extras_put(w, &t->extras, of_tool);
    jw_end(w, '}');
}

void conversation_write_messages_tools(const struct conversation *v, struct json_writer *w) {
    bool chosen = v->choice.kind != CHOICE_UNSAID && v->choice.kind != CHOICE_ALLOWED;
    if (v->n_tools) {
        jw_key(w, "tools");
        jw_begin(w, '[');
        for (int i = 0; i < v->n_tools; i++)
            put_tool(w, &v->tools[i]);
        jw_end(w, ']');
    }
    if (!chosen && !v->parallel)
        return;
    jw_key(w, "tool_choice");
    jw_begin(w, '{');
    if (chosen)
        jw_key_str(w, "type", choices[v->choice.kind]);
    words_put(w, "name", v->choice.name);
    if (v->choice.custom)
        jw_key_bool(w, "custom", true);
    if (v->parallel)
        jw_key_bool(w, "disable_parallel_tool_use", v->parallel < 0);
    jw_end(w, '}');
}
