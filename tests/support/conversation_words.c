// SPDX-License-Identifier: Apache-2.0
// The writers of the three interfaces that the server does without; see conversation_words.h.
#include "support/conversation_words.h"

#include <stdio.h>
#include <string.h>

#include "serve/conversation/interfaces.h"
#include "text/chat/impl.h"

static const char *const none[] = {NULL};
static const char *const of_text[] = {"type", "text", NULL};
static const char *const of_refusal[] = {"type", "refusal", NULL};
static const char *const of_detail[] = {"type", "text", "summary", "data", "signature", NULL};
static const char *const of_function[] = {"name",   "description", "parameters",
                                          "strict", "type",        NULL};
static const char *const of_custom[] = {"name", "description", "format", "type", NULL};

static void put_chat_part(struct json_writer *w, const struct conversation_part *p) {
    bool refusal = p->kind == PART_REFUSAL;
    if (p->raw) {
        jw_value(w, p->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", refusal ? "refusal" : "text");
    jw_key_text(w, refusal ? "refusal" : "text", p->text.s, p->text.n);
    extras_put(w, &p->extras, refusal ? of_refusal : of_text);
    jw_end(w, '}');
}

// Parts of content: none is null, one plain text a string, others a list.
static void put_chat_content(struct json_writer *w, const struct conversation_part *parts, int n) {
    const struct conversation_part *only = NULL;
    int contents = 0;
    for (int i = 0; i < n; i++)
        if (conversation_is_content(&parts[i])) {
            contents++;
            only = &parts[i];
        }
    jw_key(w, "content");
    if (contents == 0) {
        jw_null(w);
    } else if (contents == 1 && only->kind == PART_TEXT && only->extras.n == 0) {
        jw_str(w, only->text.s, only->text.n);
    } else {
        jw_begin(w, '[');
        for (int i = 0; i < n; i++)
            if (conversation_is_content(&parts[i]))
                put_chat_part(w, &parts[i]);
        jw_end(w, ']');
    }
}

static void put_detail(struct json_writer *w, const struct conversation_part *p) {
    jw_begin(w, '{');
    jw_key_str(w, "type",
               p->text.s      ? "reasoning.text"
               : p->summary.s ? "reasoning.summary"
                              : "reasoning.encrypted");
    words_put(w, "text", p->text);
    words_put(w, "summary", p->summary);
    words_put(w, p->text.s || p->summary.s ? "signature" : "data", p->signature);
    extras_put(w, &p->extras, of_detail);
    jw_end(w, '}');
}

// Reasoning as one text, and part by part where that says more. Returns whether it did.
static bool put_chat_reasoning(struct json_writer *w, const struct conversation_turn *t) {
    struct str text = {0};
    int n = 0;
    bool more = false;
    for (int i = 0; i < t->n_parts; i++) {
        const struct conversation_part *p = &t->parts[i];
        if (p->kind != PART_REASONING)
            continue;
        n++;
        more |= p->summary.s || p->signature.s || p->extras.n || !p->text.n;
        if (p->text.n)
            str_append(&text, p->text.s, p->text.n);
    }
    if (text.len) {
        jw_key_text(w, "reasoning_content", text.data, text.len);
    }
    w->out.failed |= text.failed;
    str_fini(&text);
    if (n < 2 && !more)
        return false;
    jw_key_begin(w, "reasoning_details", '[');
    for (int i = 0; i < t->n_parts; i++)
        if (t->parts[i].kind == PART_REASONING)
            put_detail(w, &t->parts[i]);
    jw_end(w, ']');
    return true;
}

static void put_chat_call(struct json_writer *w, const struct conversation_part *p) {
    const char *kind = p->custom ? "custom" : "function";
    jw_begin(w, '{');
    words_put(w, "id", p->id);
    jw_key_str(w, "type", kind);
    jw_key_begin(w, kind, '{');
    words_put(w, "name", p->name);
    if (p->object) {
        jw_key_value(w, "arguments", p->raw);
    } else {
        words_put(w, p->custom ? "input" : "arguments", p->text);
    }
    jw_end(w, '}');
    extras_put(w, &p->extras, chat_members[OF_CALL]);
    jw_end(w, '}');
}

static void put_chat_calls(struct json_writer *w, const struct conversation_turn *t) {
    bool any = false;
    for (int i = 0; i < t->n_parts; i++) {
        if (t->parts[i].kind != PART_CALL)
            continue;
        if (!any) {
            jw_key_begin(w, "tool_calls", '[');
        }
        any = true;
        put_chat_call(w, &t->parts[i]);
    }
    if (any)
        jw_end(w, ']');
}

static void put_chat_result(struct json_writer *w, const struct conversation_part *p) {
    jw_begin(w, '{');
    jw_key_str(w, "role", "tool");
    if (p->kind == PART_RESULT) {
        words_put(w, "tool_call_id", p->id);
        if (p->custom)
            jw_key_str(w, "type", "custom");
        if (p->is_error)
            jw_key_bool(w, "is_error", true);
        put_chat_content(w, p->parts, p->n_parts);
        extras_put(w, &p->extras, chat_members[OF_RESULT]);
    } else {
        jw_key_str(w, "content", "");
        jw_key_value(w, "item", p->raw);
    }
    jw_end(w, '}');
}

static void put_chat_turn(struct json_writer *w, const struct conversation_turn *t) {
    bool answer = t->role == CONVERSATION_ASSISTANT, detailed = false;
    if (t->role == CONVERSATION_TOOL) {
        for (int i = 0; i < t->n_parts; i++)
            put_chat_result(w, &t->parts[i]);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "role", conversation_roles[t->role]);
    if (answer)
        detailed = put_chat_reasoning(w, t);
    put_chat_content(w, t->parts, t->n_parts);
    if (answer)
        put_chat_calls(w, t);
    extras_put(w, &t->extras,
               !answer    ? chat_members[OF_MESSAGE]
               : detailed ? chat_members[OF_DETAILED_ANSWER]
                          : chat_members[OF_ANSWER]);
    jw_end(w, '}');
}

void conversation_write_chat(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < v->n_turns; i++)
        put_chat_turn(w, &v->turns[i]);
    jw_end(w, ']');
}

static void put_chat_tool(struct json_writer *w, const struct conversation_tool *t) {
    bool custom = t->kind == TOOL_CUSTOM;
    if (t->kind == TOOL_OTHER || t->chat) {
        jw_value(w, t->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", custom ? "custom" : "function");
    jw_key_begin(w, custom ? "custom" : "function", '{');
    words_put(w, "name", t->name);
    words_put(w, "description", t->description);
    if (custom ? t->format : t->schema) {
        jw_key_value(w, custom ? "format" : "parameters", custom ? t->format : t->schema);
    }
    if (t->strict)
        jw_key_bool(w, "strict", t->strict > 0);
    extras_put(w, &t->extras, custom ? of_custom : of_function);
    jw_end(w, '}');
    jw_end(w, '}');
}

void conversation_write_chat_tools(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < v->n_tools; i++)
        put_chat_tool(w, &v->tools[i]);
    jw_end(w, ']');
}

struct json *conversation_tools_of_template(const struct conversation *v) {
    struct jinja_context *c = NULL;
    struct jinja_value list, text;
    struct json *out = NULL;
    size_t n;
    if (!jinja_context_create(&c, NULL, NULL) && !chat_tools(c, v, &list, NULL) &&
        !jinja_json(c, list, &text, NULL)) {
        const char *bytes = jinja_bytes(text, &n);
        (void)json_parse(&out, bytes, n, NULL);
    }
    jinja_context_free(c);
    return out;
}

void conversation_write_chat_choice(const struct conversation *v, struct json_writer *w) {
    static const char *const plain[] = {NULL, "auto", "none", "required"};
    const char *kind = v->choice.custom ? "custom" : "function";
    switch (v->choice.kind) {
    case CHOICE_NAMED:
        jw_begin(w, '{');
        jw_key_str(w, "type", kind);
        jw_key(w, kind);
        jw_begin(w, '{');
        words_put(w, "name", v->choice.name);
        jw_end(w, '}');
        jw_end(w, '}');
        break;
    case CHOICE_ALLOWED:
        jw_value(w, v->choice.raw);
        break;
    case CHOICE_UNSAID:
        jw_null(w);
        break;
    default:
        jw_cstr(w, plain[v->choice.kind]);
    }
}

static void put_responses_tool(struct json_writer *w, const struct conversation_tool *t) {
    bool custom = t->kind == TOOL_CUSTOM;
    if (t->kind == TOOL_OTHER) {
        jw_value(w, t->raw);
        return;
    }
    jw_begin(w, '{');
    jw_key_str(w, "type", custom ? "custom" : "function");
    words_put(w, "name", t->name);
    words_put(w, "description", t->description);
    if (custom ? t->format : t->schema) {
        jw_key(w, custom ? "format" : "parameters");
        jw_value(w, custom ? t->format : t->schema);
    }
    if (t->strict)
        jw_key_bool(w, "strict", t->strict > 0);
    extras_put(w, &t->extras, none);
    jw_end(w, '}');
}

void conversation_write_responses_tools(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < v->n_tools; i++)
        put_responses_tool(w, &v->tools[i]);
    jw_end(w, ']');
}

void conversation_write_responses_choice(const struct conversation *v, struct json_writer *w) {
    static const char *const plain[] = {NULL, "auto", "none", "required"};
    switch (v->choice.kind) {
    case CHOICE_NAMED:
        jw_begin(w, '{');
        jw_key_str(w, "type", v->choice.custom ? "custom" : "function");
        words_put(w, "name", v->choice.name);
        jw_end(w, '}');
        break;
    case CHOICE_ALLOWED:
        jw_value(w, v->choice.raw);
        break;
    case CHOICE_UNSAID:
        jw_null(w);
        break;
    default:
        jw_cstr(w, plain[v->choice.kind]);
    }
}

static const char *const choices[] = {"", "auto", "none", "any", "tool"};

static void put_text(struct json_writer *w, const struct conversation_part *p) {
    bool refusal = p->kind == PART_REFUSAL;
    jw_key_str(w, "type", refusal ? "refusal" : "text");
    words_put(w, refusal ? "refusal" : "text", p->text.s ? p->text : words_of_text(""));
    extras_put(w, &p->extras, none);
}

static void put_thought(struct json_writer *w, const struct conversation_part *p) {
    bool readable = p->text.s || p->summary.s;
    jw_key_str(w, "type", readable ? "thinking" : "redacted_thinking");
    words_put(w, "thinking", p->text);
    words_put(w, "summary", p->summary);
    words_put(w, readable ? "signature" : "data", p->signature);
    extras_put(w, &p->extras, none);
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
    extras_put(w, &p->extras, none);
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
    extras_put(w, &p->extras, none);
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
    extras_put(w, &t->extras, none);
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
    extras_put(w, &t->extras, none);
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

struct comparison {
    struct str *where;
    bool differs, failed; // memory was short
};

static bool same_words(struct words a, struct words b) {
    return !a.s == !b.s && a.n == b.n && (a.n == 0 || !memcmp(a.s, b.s, a.n));
}

// JSON as written, which has one spelling for each value that was read.
static bool same_json(struct comparison *c, const struct json *a, const struct json *b) {
    struct json_writer x = {0}, y = {0};
    jw_value(&x, a);
    jw_value(&y, b);
    c->failed |= x.out.failed || y.out.failed;
    bool same = !c->failed && x.out.len == y.out.len && !memcmp(x.out.data, y.out.data, x.out.len);
    str_fini(&x.out);
    str_fini(&y.out);
    return same;
}

static bool same_extras(struct comparison *c, const struct extras *a, const struct extras *b) {
    bool same = a->n == b->n;
    for (int i = 0; i < a->n && same; i++) {
        int k = 0;
        while (k < b->n && strcmp(a->at[i].key, b->at[k].key) != 0)
            k++;
        same = k < b->n && same_json(c, a->at[i].value, b->at[k].value);
    }
    return same;
}

// Notes the first difference, at `place` and in `what` of it.
static void expect(struct comparison *c, bool same, const char *place, const char *what) {
    if (same || c->differs)
        return;
    c->differs = true;
    str_printf(c->where, "%s%s%s", place, what[0] ? "." : "", what);
}

static void compare_part(struct comparison *c, const struct conversation_part *a,
                         const struct conversation_part *b, const char *place) {
    expect(c, a->kind == b->kind, place, "kind");
    expect(c, same_words(a->text, b->text), place, "text");
    expect(c, same_words(a->summary, b->summary), place, "summary");
    expect(c, same_words(a->signature, b->signature), place, "signature");
    expect(c, same_words(a->id, b->id), place, "id");
    expect(c, same_words(a->name, b->name), place, "name");
    expect(c, a->custom == b->custom, place, "custom");
    expect(c, a->is_error == b->is_error, place, "is_error");
    expect(c, a->kind == PART_CALL || same_json(c, a->raw, b->raw), place, "raw");
    expect(c, same_extras(c, &a->extras, &b->extras), place, "extras");
    expect(c, a->n_parts == b->n_parts, place, "n_parts");
}

static void compare_turn(struct comparison *c, const struct conversation_turn *a,
                         const struct conversation_turn *b, const char *place) {
    char inner[128];
    expect(c, a->role == b->role, place, "role");
    expect(c, same_extras(c, &a->extras, &b->extras), place, "extras");
    expect(c, a->n_parts == b->n_parts, place, "n_parts");
    for (int i = 0; i < a->n_parts && !c->differs; i++) {
        const struct conversation_part *p = &a->parts[i], *q = &b->parts[i];
        snprintf(inner, sizeof inner, "%s.parts[%d]", place, i);
        compare_part(c, p, q, inner);
        for (int k = 0; k < p->n_parts && !c->differs; k++) {
            snprintf(inner, sizeof inner, "%s.parts[%d].parts[%d]", place, i, k);
            compare_part(c, &p->parts[k], &q->parts[k], inner);
        }
    }
}

static void compare_tool(struct comparison *c, const struct conversation_tool *a,
                         const struct conversation_tool *b, const char *place) {
    expect(c, a->kind == b->kind, place, "kind");
    expect(c, same_words(a->name, b->name), place, "name");
    expect(c, same_words(a->description, b->description), place, "description");
    expect(c, same_json(c, a->schema, b->schema), place, "schema");
    expect(c, same_json(c, a->format, b->format), place, "format");
    expect(c, a->strict == b->strict, place, "strict");
    expect(c, a->kind != TOOL_OTHER || same_json(c, a->raw, b->raw), place, "raw");
    expect(c, same_extras(c, &a->extras, &b->extras), place, "extras");
}

int conversation_differs(const struct conversation *a, const struct conversation *b,
                         struct str *where, struct err *e) {
    struct comparison c = {.where = where};
    char place[64];
    str_clear(where);
    for (int i = 0; i < a->n_turns && i < b->n_turns && !c.differs; i++) {
        snprintf(place, sizeof place, "turns[%d]", i);
        compare_turn(&c, &a->turns[i], &b->turns[i], place);
    }
    expect(&c, a->n_turns == b->n_turns, "n_turns", "");
    for (int i = 0; i < a->n_tools && i < b->n_tools && !c.differs; i++) {
        snprintf(place, sizeof place, "tools[%d]", i);
        compare_tool(&c, &a->tools[i], &b->tools[i], place);
    }
    expect(&c, a->n_tools == b->n_tools, "n_tools", "");
    expect(&c, a->choice.kind == b->choice.kind, "choice.kind", "");
    expect(&c, same_words(a->choice.name, b->choice.name), "choice.name", "");
    expect(&c, a->choice.custom == b->choice.custom, "choice.custom", "");
    expect(&c, same_json(&c, a->choice.raw, b->choice.raw), "choice.raw", "");
    expect(&c, a->parallel == b->parallel, "parallel", "");
    return where->failed || c.failed ? err_set(e, ERR_MEMORY, "no memory for a difference") : 0;
}
