// SPDX-License-Identifier: Apache-2.0
// The check of what Anthropic's clients send; see messages.h.
#include <stdio.h>
#include <string.h>

#include "serve/conversation/check.h"
#include "serve/conversation/messages.h"
#include "serve/request/fields.h"

static bool wrong(struct api_error *x, const char *place, const char *member, const struct json *v,
                  const char *wanted) {
    return api_refuse(x, place, "%s%s is %s and must be %s", place, member,
                      v ? fields_kind_name(v) : "missing", wanted);
}

static bool is(const char *type, const char *what) {
    return type && !strcmp(type, what);
}

static const char *type_of(const struct json *block) {
    return json_str(json_get(block, "type"), NULL);
}

static bool check_string(const struct json *block, const char *place, const char *member,
                         struct api_error *x) {
    const struct json *v = json_get(block, member + 1);
    return json_kind_of(v) == JSON_STRING || wrong(x, place, member, v, "a string");
}

static bool check_call(const struct json *block, const char *place, struct api_error *x) {
    const struct json *input = json_get(block, "input");
    if (!check_string(block, place, ".id", x) || !check_string(block, place, ".name", x))
        return false;
    return !input || json_kind_of(input) == JSON_OBJECT ||
           wrong(x, place, ".input", input, "an object");
}

static bool check_result(const struct json *block, const char *place, struct api_error *x) {
    const struct json *content = json_get(block, "content");
    enum json_kind k = json_kind_of(content);
    if (!check_string(block, place, ".tool_use_id", x))
        return false;
    return k == JSON_STRING || k == JSON_ARRAY || k == JSON_NULL ||
           wrong(x, place, ".content", content, "a string or an array of blocks");
}

// What the user shows must be words: an answer without it would be a wrong one.
static bool check_media(const struct json *block, const char *place, struct api_error *x) {
    const char *type = type_of(block), *source = type_of(json_get(block, "source"));
    if (is(type, "document") && (is(source, "text") || is(source, "content")))
        return true;
    return api_refuse(x, place, "%s is %s %.40s, and this model reads text only", place,
                      is(type, "image") ? "an" : "a", type);
}

// A tool that the client runs needs a name: without one the model would never see it. Those of
// Anthropic's servers have a type of their own and no schema.
static bool is_tool(const struct json *t) {
    const struct json *schema = json_get(t, "input_schema"), *kind = json_get(t, "type");
    bool client = !kind || schema || is(type_of(t), "custom") || is(type_of(t), "freeform") ||
                  conversation_knows_tool(type_of(t));
    size_t n = 0;
    return json_kind_of(t) == JSON_OBJECT && !is(type_of(t), "function") &&
           (!kind || json_kind_of(kind) == JSON_STRING) &&
           (!schema || json_kind_of(schema) == JSON_OBJECT) &&
           (!client || (json_str(json_get(t, "name"), &n) && n > 0));
}

static bool check_block(const struct json *block, bool answer, const char *place,
                        struct api_error *x) {
    const char *type = type_of(block);
    if (json_kind_of(block) != JSON_OBJECT)
        return wrong(x, place, "", block, "a block");
    if (!type)
        return wrong(x, place, ".type", json_get(block, "type"), "a string");
    if (is(type, "text"))
        return check_string(block, place, ".text", x);
    bool theirs = is(type, "thinking") || is(type, "redacted_thinking") || is(type, "tool_use");
    if (answer ? is(type, "tool_result") : theirs)
        return api_refuse(x, place, "%s is of type %.40s, which stands in messages of the %s only",
                          place, type, answer ? "user" : "assistant");
    if (answer && is(type, "tool_use"))
        return check_call(block, place, x);
    if (answer && is(type, "thinking"))
        return check_string(block, place, ".thinking", x);
    if (!answer && is(type, "tool_result"))
        return check_result(block, place, x);
    const struct json *definition = json_get(json_get(block, "tool"), "definition");
    if (!answer && is(type, "tool_addition") && definition && !is_tool(definition))
        return api_refuse(x, place,
                          "%s.tool.definition must have a name and an object as "
                          "input_schema",
                          place);
    if (!answer && (is(type, "image") || is(type, "document")))
        return check_media(block, place, x);
    return true;
}

static bool check_content(const struct json *content, bool answer, size_t m, struct api_error *x) {
    char place[64];
    snprintf(place, sizeof place, "messages[%zu]", m);
    if (json_kind_of(content) == JSON_STRING)
        return true;
    if (json_kind_of(content) != JSON_ARRAY)
        return wrong(x, place, ".content", content, "a string or an array of blocks");
    for (size_t i = 0; i < json_len(content); i++) {
        snprintf(place, sizeof place, "messages[%zu].content[%zu]", m, i);
        if (!check_block(json_at(content, i), answer, place, x))
            return false;
    }
    return true;
}

static bool check_message(const struct json *message, size_t m, struct api_error *x) {
    const char *role = json_str(json_get(message, "role"), NULL);
    char place[48];
    snprintf(place, sizeof place, "messages[%zu]", m);
    if (json_kind_of(message) != JSON_OBJECT)
        return wrong(x, place, "", message, "an object");
    if (!role)
        return wrong(x, place, ".role", json_get(message, "role"), "a string");
    if (!is(role, "user") && !is(role, "assistant") && !is(role, "system"))
        return api_refuse(x, place, "%s.role is '%.40s' and must be user or assistant", place,
                          role);
    if (is(role, "system") && !json_get(message, "content") &&
        json_len(json_get(message, "output_config")) > 0)
        return true; // it sets something and says nothing
    return check_content(json_get(message, "content"), is(role, "assistant"), m, x);
}

static bool check_system(const struct json *system, struct api_error *x) {
    enum json_kind k = json_kind_of(system);
    if (k == JSON_NULL || k == JSON_STRING)
        return true;
    if (k != JSON_ARRAY)
        return wrong(x, "system", "", system, "a string or an array of text blocks");
    for (size_t i = 0; i < json_len(system); i++)
        if (!json_str(json_get(json_at(system, i), "text"), NULL) ||
            !is(type_of(json_at(system, i)), "text"))
            return api_refuse(x, "system", "system[%zu] is no text block", i);
    return true;
}

static bool check_tools(const struct json *tools, struct api_error *x) {
    for (size_t i = 0; i < json_len(tools); i++)
        if (!is_tool(json_at(tools, i)))
            return api_refuse(x, "tools",
                              "tools[%zu] must have a name and an object as input_schema", i);
    return true;
}

bool messages_body_check(const struct json *body, struct api_error *x) {
    const struct json *messages = json_get(body, "messages");
    size_t n = json_len(messages);
    if (n > MESSAGES_MAX)
        return api_refuse(x, "messages", "messages has %zu elements and may have %d at most", n,
                          MESSAGES_MAX);
    if (!check_system(json_get(body, "system"), x) || !check_tools(json_get(body, "tools"), x))
        return false;
    for (size_t i = 0; i < n; i++)
        if (!check_message(json_at(messages, i), i, x))
            return false;
    return true;
}
