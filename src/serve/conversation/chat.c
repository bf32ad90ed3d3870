// SPDX-License-Identifier: Apache-2.0
// Reader of chat completions' bodies; see interfaces.h.
#include "serve/conversation/interfaces.h"

#include <string.h>

#include "text/chat/read.h"

// Members of tools that have a name in the form; the others are extras.
static const char *const of_tool[] = {"type", "function", "custom", NULL};
static const char *const of_function[] = {"name",   "description", "parameters",
                                          "strict", "type",        NULL};
static const char *const of_custom[] = {"name", "description", "format", "type", NULL};

bool conversation_read_chat(struct conversation *v, const struct json *messages,
                            struct api_error *x) {
    size_t n = json_len(messages);
    char place[CONVERSATION_PLACE];
    struct err e = {0};
    if (n > MESSAGES_MAX)
        return api_refuse(x, "messages", "messages has %zu elements and may have %d at most", n,
                          MESSAGES_MAX);
    return !conversation_read(v, messages, true, place, &e) || api_refuse(x, place, "%s", e.text);
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
