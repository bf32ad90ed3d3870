// SPDX-License-Identifier: Apache-2.0
// See tools.h.
#include "serve/conversation/tools.h"

#include <string.h>

#include "serve/request/params.h"

enum { MAX_NAME = 256 }; // bytes

// Whether calls can be written with the name, in each family's marks.
static bool is_word(struct words name) {
    bool good = true;
    for (size_t i = 0; i < name.n; i++)
        good = good && (unsigned char)name.s[i] >= ' ' && name.s[i] != '<' && name.s[i] != '>';
    return good;
}

static bool add_tool(struct request_tools *r, const struct conversation_tool *t,
                     struct api_error *x) {
    struct err e = {0};
    if (t->kind == TOOL_OTHER || t->name.n == 0)
        return true;
    if (t->name.n > MAX_NAME)
        return api_refuse(x, "tools",
                          "the name of a tool, '%.40s...', has %zu bytes and may have %d",
                          t->name.s, t->name.n, MAX_NAME);
    if (!is_word(t->name))
        return api_refuse(x, "tools",
                          "the name of a tool, '%.64s', may not have control characters, < or >",
                          t->name.s);
    if (!tool_set_add(&r->set, t->name.s, t->name.n, t->schema, t->kind == TOOL_CUSTOM, &e))
        return true;
    api_error_of(x, &e);
    return false;
}

// The tools that are chosen stay.
static void keep_tools_if(struct request_tools *r,
                          bool (*chosen)(const struct tool *, const void *), const void *arg) {
    int kept = 0;
    for (int i = 0; i < r->set.n; i++) {
        struct tool one = r->set.list[i];
        if (!chosen(&one, arg))
            continue;
        r->set.list[i] = r->set.list[kept];
        r->set.list[kept++] = one;
    }
    tool_set_cut(&r->set, kept);
}

static bool is_named(const struct tool *t, const void *arg) {
    const struct words *name = arg;
    return t->n == name->n && !memcmp(t->name, name->s, t->n);
}

static bool choose_name(struct request_tools *r, struct words name, struct api_error *x) {
    if (!name.s)
        return api_refuse(x, "tool_choice",
                          "tool_choice names no tool: Messages and Responses have its name in "
                          "tool_choice.name, Chat Completions in tool_choice.function.name");
    if (!tool_set_find(&r->set, name.s, name.n))
        return api_refuse(x, "tool_choice",
                          "tool_choice names '%.64s', and the tools of the request have none of "
                          "that name",
                          name.s);
    keep_tools_if(r, is_named, &name);
    r->required = r->one_call = true;
    return true;
}

static bool choose_word(struct request_tools *r, struct words word, struct api_error *x) {
    if (words_equal(word, "none"))
        tool_set_cut(&r->set, 0);
    else if (words_equal(word, "required") || words_equal(word, "any"))
        r->required = true;
    else if (!words_equal(word, "auto"))
        return api_refuse(x, "tool_choice",
                          "tool_choice is '%.40s' and must be none, auto, required, or an object "
                          "that names a tool",
                          word.s);
    return true;
}

static struct words choice_name(const struct json *v) {
    static const char *const inner[] = {"function", "custom"};
    struct words name = words_of(json_get(v, "name"));
    for (int i = 0; i < 2 && !name.s; i++)
        name = words_of(json_get(json_get(v, inner[i]), "name"));
    return name;
}

static bool is_allowed(const struct tool *t, const void *arg) {
    for (size_t i = 0; i < json_len(arg); i++) {
        struct words name = choice_name(json_at(arg, i));
        if (name.s && is_named(t, &name))
            return true;
    }
    return false;
}

// Templates see all tools all the same.
static bool choose_allowed(struct request_tools *r, const struct json *v, struct api_error *x) {
    const struct json *inner = json_get(v, "allowed_tools");
    const struct json *from = json_kind_of(inner) == JSON_OBJECT ? inner : v;
    struct words mode = words_of(json_get(from, "mode"));
    if (json_len(json_get(from, "tools")) > PARAMS_MAX_TOOLS)
        return api_refuse(x, "tool_choice", "tool_choice allows %zu tools and may allow %d",
                          json_len(json_get(from, "tools")), PARAMS_MAX_TOOLS);
    keep_tools_if(r, is_allowed, json_get(from, "tools"));
    return !mode.s || choose_word(r, mode, x);
}

static bool choose_raw(struct request_tools *r, const struct json *v, struct api_error *x) {
    static const char *const words[] = {"none", "auto", "any", "required"};
    struct words type = words_of(json_get(v, "type"));
    if (!type.s || words_equal(type, "function") || words_equal(type, "custom"))
        return choose_name(r, choice_name(v), x);
    if (words_equal(type, "allowed_tools"))
        return choose_allowed(r, v, x);
    for (int i = 0; i < 4; i++)
        if (words_equal(type, words[i]))
            return choose_word(r, type, x);
    return true; // a tool of a provider's own: the model decides
}

static bool choose_tools(struct request_tools *r, const struct conversation *v,
                         struct api_error *x) {
    switch (v->choice.kind) {
    case CHOICE_NONE:
        tool_set_cut(&r->set, 0);
        return true;
    case CHOICE_REQUIRED:
        r->required = true;
        return true;
    case CHOICE_NAMED:
        return choose_name(r, v->choice.name, x);
    case CHOICE_ALLOWED:
        return choose_raw(r, v->choice.raw, x);
    default:
        return true;
    }
}

bool request_tools_take(struct request_tools *r, const struct conversation *v,
                        struct api_error *x) {
    *r = (struct request_tools){.one_call = v->parallel < 0};
    for (int i = 0; i < v->n_tools; i++)
        if (!add_tool(r, &v->tools[i], x))
            return false;
    if (!choose_tools(r, v, x))
        return false;
    if (r->required && r->set.n == 0)
        return api_refuse(x, "tool_choice",
                          "tool_choice requires a call, and the request has no tools to call");
    return true;
}

void request_tools_fini(struct request_tools *r) {
    tool_set_fini(&r->set);
    *r = (struct request_tools){0};
}
