// SPDX-License-Identifier: Apache-2.0
// Reader and writer of chat completions' conversations; see interfaces.h.
#include "serve/conversation/interfaces.h"

#include <stdio.h>
#include <string.h>

#include "text/chat/chat.h"

// Members that have a name in the form; the others are extras.
static const char *const of_message[] = {"role", "content", NULL};
static const char *const of_answer[] = {"role",          "content",   "reasoning_content",
                                        "thinking",      "reasoning", "tool_calls",
                                        "function_call", "refusal",   NULL};
static const char *const of_answer_detailed[] = {
    "role",       "content",           "reasoning_content", "thinking", "reasoning",
    "tool_calls", "reasoning_details", "function_call",     "refusal",  NULL};
static const char *const of_result[] = {"role",     "content", "tool_call_id",
                                        "is_error", "type",    NULL};
static const char *const of_text[] = {"type", "text", NULL};
static const char *const of_refusal[] = {"type", "refusal", NULL};
static const char *const of_call[] = {"id", "type", "function", "custom", NULL};
static const char *const of_detail[] = {"type", "text", "summary", "data", "signature", NULL};
static const char *const of_tool[] = {"type", "function", "custom", NULL};
static const char *const of_function[] = {"name",   "description", "parameters",
                                          "strict", "type",        NULL};
static const char *const of_custom[] = {"name", "description", "format", "type", NULL};

static bool is_text(const char *type) {
    return !type[0] || !strcmp(type, "text") || !strcmp(type, "input_text") ||
           !strcmp(type, "output_text");
}

// A part of a content into p, which is of no kind as yet.
static void read_chat_part(struct conversation *v, const struct json *from,
                           struct conversation_part *p) {
    const char *type = conversation_type_of(from);
    bool string = json_kind_of(from) == JSON_STRING;
    if (!p)
        return;
    p->kind = PART_OTHER;
    if (string || (is_text(type) && json_kind_of(json_get(from, "text")) == JSON_STRING)) {
        p->kind = PART_TEXT;
        p->text = words_of(string ? from : json_get(from, "text"));
        extras_take(v, &p->extras, from, of_text);
    } else if ((!strcmp(type, "refusal") || !type[0]) &&
               json_kind_of(json_get(from, "refusal")) == JSON_STRING) {
        p->kind = PART_REFUSAL;
        p->text = words_of(json_get(from, "refusal"));
        extras_take(v, &p->extras, from, of_refusal);
    } else {
        if (chat_is_media(type))
            p->kind = PART_MEDIA;
        p->raw = from;
    }
}

// The parts of a content into a turn, or into a result where there is one.
static void read_chat_content(struct conversation *v, const struct json *content,
                              struct conversation_turn *t, struct conversation_part *result) {
    size_t n = json_kind_of(content) == JSON_STRING ? 1 : json_len(content);
    bool list = json_kind_of(content) == JSON_ARRAY;
    if (json_kind_of(content) == JSON_OBJECT)
        return;
    for (size_t i = 0; i < n; i++) {
        struct conversation_part *p = result ? conversation_inner(v, result, PART_OTHER)
                                             : conversation_part(v, t, PART_OTHER);
        read_chat_part(v, list ? json_at(content, i) : content, p);
    }
}

static struct words reasoning_of(const struct json *m) {
    static const char *const names[] = {"reasoning_content", "thinking", "reasoning"};
    for (int i = 0; i < 3; i++) {
        struct words w = words_of(json_get(m, names[i]));
        if (w.n)
            return w;
    }
    return (struct words){0};
}

// Whether reasoning_details says what the reasoning does, and more.
static bool is_detailed(const struct json *m) {
    const struct json *list = json_get(m, "reasoning_details");
    struct words all = reasoning_of(m);
    size_t at = 0;
    if (json_kind_of(list) != JSON_ARRAY || json_len(list) == 0)
        return false;
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *d = json_at(list, i);
        struct words w = words_of(json_get(d, "text"));
        if (strncmp(conversation_type_of(d), "reasoning.", 10) != 0 || at + w.n > all.n ||
            (w.n && memcmp(w.s, all.s + at, w.n) != 0))
            return false;
        at += w.n;
    }
    return at == all.n;
}

static void read_details(struct conversation *v, const struct json *list,
                         struct conversation_turn *t) {
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *d = json_at(list, i);
        struct conversation_part *p = conversation_part(v, t, PART_REASONING);
        if (!p)
            return;
        p->text = words_of(json_get(d, "text"));
        p->summary = words_of(json_get(d, "summary"));
        p->signature = words_of(json_get(d, "signature"));
        if (!p->signature.s)
            p->signature = words_of(json_get(d, "data"));
        extras_take(v, &p->extras, d, of_detail);
    }
}

static void read_chat_call(struct conversation *v, const struct json *from,
                           struct conversation_turn *t) {
    struct conversation_part *p = conversation_part(v, t, PART_CALL);
    const struct json *custom = json_get(from, "custom"), *f = json_get(from, "function");
    if (!p)
        return;
    p->id = words_of(json_get(from, "id"));
    p->custom = json_kind_of(custom) == JSON_OBJECT;
    if (p->custom) {
        p->name = words_of(json_get(custom, "name"));
        p->text = words_of(json_get(custom, "input"));
    } else {
        const struct json *arguments = json_get(f, "arguments");
        p->name = words_of(json_get(f, "name"));
        if (!p->name.s)
            p->name = words_of(json_get(from, "name"));
        p->text = words_of(arguments);
        if (json_kind_of(arguments) == JSON_OBJECT) {
            p->object = true;
            p->raw = arguments;
            p->text = conversation_printed(v, arguments);
        }
    }
    extras_take(v, &p->extras, from, of_call);
}

// The older form, in which a result names the function alone: the calls get ids here.
static void read_older_call(struct conversation *v, const struct json *call,
                            struct conversation_turn *t) {
    struct conversation_part *p =
        json_kind_of(call) == JSON_OBJECT ? conversation_part(v, t, PART_CALL) : NULL;
    char id[40];
    if (!p)
        return;
    int n = snprintf(id, sizeof id, "call_older_%d_%d", v->n_turns, t->n_parts);
    p->id = conversation_copy(v, id, (size_t)n);
    p->name = words_of(json_get(call, "name"));
    p->text = words_of(json_get(call, "arguments"));
}

// The call that a result in the older form is of: the last one, when it is of that function.
static const struct conversation_part *older_call(const struct conversation *v,
                                                  const struct json *result) {
    const struct conversation_turn *t = v->n_turns ? &v->turns[v->n_turns - 1] : NULL;
    const struct conversation_part *p = t && t->n_parts ? &t->parts[t->n_parts - 1] : NULL;
    struct words name = words_of(json_get(result, "name"));
    bool fits = p && p->kind == PART_CALL && name.s && p->name.n == name.n &&
                !memcmp(p->name.s, name.s, name.n);
    return fits ? p : NULL;
}

static void read_chat_answer(struct conversation *v, const struct json *m) {
    bool detailed = is_detailed(m);
    struct words reasoning = reasoning_of(m), declined = words_of(json_get(m, "refusal"));
    const struct json *calls = json_get(m, "tool_calls"), *older = json_get(m, "function_call");
    bool called = json_len(calls) > 0 || json_kind_of(older) == JSON_OBJECT;
    struct extras extras = {0};
    extras_take(v, &extras, m, detailed ? of_answer_detailed : of_answer);
    enum conversation_kind first = PART_TEXT;
    if (reasoning.n || detailed)
        first = PART_REASONING;
    else if (extras.n == 0 && json_len(json_get(m, "content")) == 0 &&
             json_kind_of(json_get(m, "content")) != JSON_STRING && !declined.n && called)
        first = PART_CALL;
    struct conversation_turn *t = conversation_turn(v, CONVERSATION_ASSISTANT, first);
    if (!t)
        return;
    if (detailed) {
        read_details(v, json_get(m, "reasoning_details"), t);
    } else if (reasoning.n) {
        struct conversation_part *p = conversation_part(v, t, PART_REASONING);
        if (p)
            p->text = reasoning;
    }
    if (extras.n)
        t->extras = extras;
    read_chat_content(v, json_get(m, "content"), t, NULL);
    if (declined.n) {
        struct conversation_part *p = conversation_part(v, t, PART_REFUSAL);
        if (p)
            p->text = declined;
    }
    for (size_t i = 0; i < json_len(calls); i++)
        read_chat_call(v, json_at(calls, i), t);
    read_older_call(v, older, t);
}

static void read_older_result(struct conversation *v, const struct json *m,
                              const struct conversation_part *call) {
    static const char *const of_older[] = {"role", "name", "content", NULL};
    struct words id = call->id; // before the turns may move
    struct conversation_turn *t = conversation_turn(v, CONVERSATION_TOOL, PART_RESULT);
    struct conversation_part *p = conversation_part(v, t, PART_RESULT);
    if (!p)
        return;
    p->id = id;
    read_chat_content(v, json_get(m, "content"), NULL, p);
    extras_take(v, &p->extras, m, of_older);
}

static void read_chat_result(struct conversation *v, const struct json *m) {
    struct conversation_turn *t = conversation_turn(v, CONVERSATION_TOOL, PART_RESULT);
    bool item = json_kind_of(json_get(m, "item")) == JSON_OBJECT;
    struct conversation_part *p = conversation_part(v, t, item ? PART_OTHER : PART_RESULT);
    if (!p)
        return;
    if (item) {
        p->raw = json_get(m, "item");
        return;
    }
    p->id = words_of(json_get(m, "tool_call_id"));
    p->is_error = json_bool(json_get(m, "is_error"), false);
    p->custom = !strcmp(conversation_type_of(m), "custom");
    read_chat_content(v, json_get(m, "content"), NULL, p);
    extras_take(v, &p->extras, m, of_result);
}

bool conversation_read_chat(struct conversation *v, const struct json *messages,
                            struct api_error *x) {
    size_t n = json_len(messages);
    char place[CHAT_PLACE_NAME];
    struct err e = {0};
    if (n > MESSAGES_MAX)
        return api_refuse(x, "messages", "messages has %zu elements and may have %d at most", n,
                          MESSAGES_MAX);
    if (chat_check(messages, true, place, &e))
        return api_refuse(x, place, "%s", e.text);
    for (size_t i = 0; i < n && !v->failed; i++) {
        const struct json *m = json_at(messages, i);
        enum conversation_role role = conversation_role_of(m);
        if (role == CONVERSATION_ASSISTANT) {
            read_chat_answer(v, m);
        } else if (role == CONVERSATION_TOOL) {
            read_chat_result(v, m);
        } else if (role == CONVERSATION_FUNCTION && older_call(v, m)) {
            read_older_result(v, m, older_call(v, m));
        } else {
            struct conversation_turn *t = conversation_turn(v, role, PART_TEXT);
            read_chat_content(v, json_get(m, "content"), t, NULL);
            if (t)
                extras_take(v, &t->extras, m, of_message);
        }
    }
    return true;
}

// The member of that name of a tool or a choice of the same type, in the form of chat completions;
// itself in the flat form of Responses, where name and parameters stand next to the type.
static const struct json *declaration_in(const struct json *from, const char *type) {
    const struct json *inner = json_get(from, type);
    return json_kind_of(inner) == JSON_OBJECT ? inner : from;
}

static void read_openai_tool(struct conversation *v, const struct json *from, bool chat) {
    const char *type = conversation_type_of(from);
    bool is_custom = !strcmp(type, "custom");
    bool is_function = !strcmp(type, "function") || (chat && !type[0]);
    const struct json *body =
        is_custom || is_function ? declaration_in(from, is_custom ? "custom" : "function") : from;
    bool named = json_kind_of(json_get(body, "name")) == JSON_STRING;
    struct conversation_tool *t = conversation_tool(v, named && is_custom     ? TOOL_CUSTOM
                                                       : named && is_function ? TOOL_FUNCTION
                                                                              : TOOL_OTHER);
    if (!t)
        return;
    t->raw = from;
    if (t->kind == TOOL_OTHER)
        return;
    t->chat = chat && is_function && body != from;
    t->name = words_of(json_get(body, "name"));
    t->description = words_of(json_get(body, "description"));
    t->schema = is_function ? json_get(body, "parameters") : NULL;
    t->format = is_custom ? json_get(body, "format") : NULL;
    t->strict = is_function ? words_tristate(json_get(body, "strict")) : 0;
    extras_take(v, &t->extras, body, is_custom ? of_custom : of_function);
    if (chat && body != from)
        extras_take(v, &t->extras, from, of_tool);
}

static void read_openai_choice(struct conversation *v, const struct json *choice, bool chat) {
    static const char *const plain[] = {"auto", "none", "required"};
    struct words text = words_of(choice), name = {0};
    const char *type = conversation_type_of(choice);
    for (int i = 0; i < 3; i++)
        if (words_equal(text, plain[i]))
            v->choice.kind = (enum conversation_choice)(CHOICE_AUTO + i);
    if (v->choice.kind || json_kind_of(choice) == JSON_NULL)
        return;
    bool custom = !strcmp(type, "custom");
    if (custom || !strcmp(type, "function") || (chat && !type[0]))
        name = words_of(json_get(declaration_in(choice, custom ? "custom" : "function"), "name"));
    v->choice.kind = name.s ? CHOICE_NAMED : CHOICE_ALLOWED;
    v->choice.name = name;
    v->choice.custom = name.s && custom;
    if (!name.s)
        v->choice.raw = choice;
}

void conversation_read_tools(struct conversation *v, const struct json *tools,
                             const struct json *choice, const struct json *parallel, bool chat) {
    for (size_t i = 0; i < json_len(tools) && !v->failed; i++)
        read_openai_tool(v, json_at(tools, i), chat);
    read_openai_choice(v, choice, chat);
    v->parallel = words_tristate(parallel);
}

// The older form of tools and their choice: one call at most.
static void read_chat_functions(struct conversation *v, const struct json *functions,
                                const struct json *call) {
    for (size_t i = 0; i < json_len(functions) && !v->failed; i++) {
        const struct json *f = json_at(functions, i);
        struct conversation_tool *t = conversation_tool(v, TOOL_FUNCTION);
        if (!t)
            return;
        t->raw = f;
        t->name = words_of(json_get(f, "name"));
        t->description = words_of(json_get(f, "description"));
        t->schema = json_get(f, "parameters");
        extras_take(v, &t->extras, f, of_function);
    }
    v->choice.name = words_of(json_get(call, "name"));
    v->choice.kind = v->choice.name.s                      ? CHOICE_NAMED
                     : words_equal(words_of(call), "none") ? CHOICE_NONE
                                                           : CHOICE_AUTO;
    v->parallel = -1;
}

bool conversation_read_chat_body(struct conversation *v, const struct params *p,
                                 struct api_error *x) {
    if (!conversation_read_chat(v, p->messages, x))
        return false;
    conversation_read_tools(v, p->tools, p->tool_choice, p->parallel, true);
    if (p->functions)
        read_chat_functions(v, p->functions, p->function_call);
    return true;
}

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
    extras_put(w, &p->extras, of_call);
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
        extras_put(w, &p->extras, of_result);
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
    extras_put(w, &t->extras, !answer ? of_message : detailed ? of_answer_detailed : of_answer);
    jw_end(w, '}');
}

void conversation_write_chat(const struct conversation *v, struct json_writer *w) {
    jw_begin(w, '[');
    for (int i = 0; i < v->n_turns; i++)
        put_chat_turn(w, &v->turns[i]);
    jw_end(w, ']');
}

void conversation_write_chat_tool(const struct conversation_tool *t, struct json_writer *w) {
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
