// SPDX-License-Identifier: Apache-2.0
// Checks the conversation of a request; see check.h.
#include "serve/conversation/check.h"

#include <stdio.h>
#include <string.h>

#include "serve/request/fields.h"

static bool one_of(const char *s, const char *const *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!strcmp(s, list[i]))
            return true;
    return false;
}
#define ONE_OF(s, list) one_of(s, list, sizeof(list) / sizeof((list)[0]))

static const char *const roles[] = {"system", "developer", "user", "assistant", "tool", "function"};
static const char *const media[] = {"image_url",   "input_image", "image",     "input_audio",
                                    "audio",       "audio_url",   "video_url", "video",
                                    "input_video", "file",        "input_file"};

// Parts with a text or a refusal are words; other kinds that carry neither are not.
static bool check_part(const struct json *part, size_t m, size_t i, struct api_error *x) {
    char place[48];
    snprintf(place, sizeof place, "messages[%zu].content[%zu]", m, i);
    if (json_kind_of(part) == JSON_STRING)
        return true;
    const char *type = json_str(json_get(part, "type"), NULL);
    const struct json *text = json_get(part, "text");
    if (json_kind_of(part) != JSON_OBJECT)
        return api_refuse(x, place, "%s is %s and must be a text part", place,
                          fields_kind_name(part));
    if (!type && json_get(part, "type"))
        return api_refuse(x, place, "%s.type is %s and must be a string", place,
                          fields_kind_name(json_get(part, "type")));
    if (type && ONE_OF(type, media))
        return api_refuse(x, place, "%s is of type %.40s, and this model reads text only", place,
                          type);
    if (!text)
        text = json_get(part, "refusal");
    if (json_kind_of(text) != JSON_STRING)
        return api_refuse(x, place, "%s.text is %s and must be a string", place,
                          text ? fields_kind_name(text) : "missing");
    return true;
}

static bool check_content(const struct json *message, const char *role, size_t m,
                          struct api_error *x) {
    const struct json *content = json_get(message, "content");
    char place[48];
    snprintf(place, sizeof place, "messages[%zu].content", m);
    enum json_kind k = json_kind_of(content);
    bool may_lack = !strcmp(role, "assistant") || !strcmp(role, "function");
    if (k == JSON_STRING || (k == JSON_NULL && may_lack))
        return true;
    if (k != JSON_ARRAY)
        return api_refuse(x, place, "%s is %s and must be a string or an array of text parts",
                          place, content ? fields_kind_name(content) : "missing or null");
    for (size_t i = 0; i < json_len(content); i++)
        if (!check_part(json_at(content, i), m, i, x))
            return false;
    return true;
}

// A call of a custom tool, whose input is free text.
static bool check_custom(const struct json *custom, const char *place, struct api_error *x) {
    const struct json *input = json_get(custom, "input");
    if (!json_str(json_get(custom, "name"), NULL))
        return api_refuse(x, place, "%s.custom.name is missing", place);
    return json_kind_of(input) == JSON_NULL || json_kind_of(input) == JSON_STRING ||
           api_refuse(x, place, "%s.custom.input is %s and must be a string", place,
                      fields_kind_name(input));
}

static bool check_call(const struct json *call, size_t m, size_t i, struct api_error *x) {
    char place[64];
    snprintf(place, sizeof place, "messages[%zu].tool_calls[%zu]", m, i);
    const struct json *f = json_get(call, "function");
    const struct json *arguments = json_get(f, "arguments");
    if (json_kind_of(call) != JSON_OBJECT)
        return api_refuse(x, place, "%s is %s and must be an object", place,
                          fields_kind_name(call));
    if (json_kind_of(json_get(call, "custom")) == JSON_OBJECT)
        return check_custom(json_get(call, "custom"), place, x);
    if (!json_str(json_get(f, "name"), NULL) && !json_str(json_get(call, "name"), NULL))
        return api_refuse(x, place, "%s.function.name is missing", place);
    enum json_kind k = json_kind_of(arguments);
    if (k != JSON_NULL && k != JSON_STRING && k != JSON_OBJECT)
        return api_refuse(x, place, "%s.function.arguments is %s and must be a string of JSON",
                          place, fields_kind_name(arguments));
    return true;
}

static bool check_calls(const struct json *message, size_t m, struct api_error *x) {
    const struct json *calls = json_get(message, "tool_calls");
    char place[48];
    if (json_kind_of(calls) == JSON_NULL)
        return true;
    snprintf(place, sizeof place, "messages[%zu].tool_calls", m);
    if (json_kind_of(calls) != JSON_ARRAY)
        return api_refuse(x, place, "%s is %s and must be an array", place,
                          fields_kind_name(calls));
    for (size_t i = 0; i < json_len(calls); i++)
        if (!check_call(json_at(calls, i), m, i, x))
            return false;
    return true;
}

// A call of the older form.
static bool check_older_call(const struct json *message, size_t m, struct api_error *x) {
    const struct json *call = json_get(message, "function_call");
    enum json_kind k = json_kind_of(json_get(call, "arguments"));
    char place[64];
    if (json_kind_of(call) == JSON_NULL)
        return true;
    snprintf(place, sizeof place, "messages[%zu].function_call", m);
    if (!json_str(json_get(call, "name"), NULL))
        return api_refuse(x, place, "%s.name is missing", place);
    return k == JSON_NULL || k == JSON_STRING ||
           api_refuse(x, place, "%s.arguments is %s and must be a string of JSON", place,
                      fields_kind_name(json_get(call, "arguments")));
}

static bool check_message(const struct json *message, size_t m, struct api_error *x) {
    char place[48];
    snprintf(place, sizeof place, "messages[%zu]", m);
    if (json_kind_of(message) != JSON_OBJECT)
        return api_refuse(x, place, "%s is %s and must be an object", place,
                          fields_kind_name(message));
    const struct json *role = json_get(message, "role");
    const char *name = json_str(role, NULL);
    snprintf(place, sizeof place, "messages[%zu].role", m);
    if (!name)
        return api_refuse(x, place, "%s is %s and must be a string", place,
                          role ? fields_kind_name(role) : "missing");
    if (!ONE_OF(name, roles))
        return api_refuse(x, place,
                          "%s is '%.40s' and must be system, developer, user, assistant or tool",
                          place, name);
    return check_content(message, name, m, x) && check_calls(message, m, x) &&
           check_older_call(message, m, x);
}

bool messages_check(const struct json *messages, struct api_error *x) {
    size_t n = json_len(messages);
    if (n > MESSAGES_MAX)
        return api_refuse(x, "messages", "messages has %zu elements and may have %d at most", n,
                          MESSAGES_MAX);
    for (size_t i = 0; i < n; i++)
        if (!check_message(json_at(messages, i), i, x))
            return false;
    return true;
}
