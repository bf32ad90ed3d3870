// SPDX-License-Identifier: Apache-2.0
// Whether messages are of the form that conversations are read from: roles, contents, parts and
// calls, each refused by its place. See chat.h.
#include <stdio.h>
#include <string.h>

#include "text/chat/impl.h"

struct check {
    const struct json *message;
    size_t i;         // its number
    bool interface;   // see chat_check
    const char *role; // of the message
    char *place;      // of what is looked at
    struct err *e;
};

// member: of the place, may be missing; "": an element, may be null.
static int refuse_kind(const struct check *c, const char *member, const struct json *v,
                       const char *wanted) {
    return err_set(c->e, ERR_FORMAT, "%s%s is %s and must be %s", c->place, member,
                   v || !member[0] ? json_kind_name(v) : "missing", wanted);
}

bool chat_is_media(const char *type) {
    static const char *const kinds[] = {"image_url",   "input_image", "image",      "input_audio",
                                        "audio",       "audio_url",   "video_url",  "video",
                                        "input_video", "file",        "input_file", "document"};
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++)
        if (!strcmp(kinds[i], type))
            return true;
    return false;
}

const struct json *chat_part_text(const struct json *part) {
    const struct json *text = json_kind_of(part) == JSON_STRING ? part : json_get(part, "text");
    return text ? text : json_get(part, "refusal");
}

// Parts with a text or a refusal are words; other kinds that carry neither are not.
static int check_part(const struct check *c, const struct json *part, size_t k) {
    const struct json *type = json_get(part, "type"), *text = chat_part_text(part);
    const char *name = json_str(type, NULL);
    snprintf(c->place, CHAT_PLACE_NAME, "messages[%zu].content[%zu]", c->i, k);
    if (json_kind_of(part) == JSON_STRING)
        return 0;
    if (json_kind_of(part) != JSON_OBJECT)
        return refuse_kind(c, "", part, "a text part");
    if (!name && type)
        return refuse_kind(c, ".type", type, "a string");
    if (chat_is_media(name) && strcmp(name, "document") != 0)
        return err_set(c->e, ERR_FORMAT, "%s is of type %.40s, and this model reads text only",
                       c->place, name);
    return json_kind_of(text) == JSON_STRING ? 0 : refuse_kind(c, ".text", text, "a string");
}

static int check_content(const struct check *c) {
    const struct json *content = json_get(c->message, "content");
    enum json_kind k = json_kind_of(content);
    bool may_lack = !c->interface || !strcmp(c->role, "assistant") || !strcmp(c->role, "function");
    int rc = 0;
    snprintf(c->place, CHAT_PLACE_NAME, "messages[%zu].content", c->i);
    if (k == JSON_STRING || (k == JSON_NULL && may_lack))
        return 0;
    if (k != JSON_ARRAY)
        return err_set(c->e, ERR_FORMAT, "%s is %s and must be a string or an array of text parts",
                       c->place, content ? json_kind_name(content) : "missing or null");
    for (size_t i = 0; i < json_len(content) && !rc; i++)
        rc = check_part(c, json_at(content, i), i);
    return rc;
}

static int check_arguments(const struct check *c, const char *member, const struct json *arguments,
                           bool objects) {
    enum json_kind k = json_kind_of(arguments);
    if (k == JSON_NULL || k == JSON_STRING || (objects && k == JSON_OBJECT))
        return 0;
    return refuse_kind(c, member, arguments, "a string of JSON");
}

static int check_call(const struct check *c, const struct json *call, size_t k) {
    const struct json *f = json_get(call, "function"), *custom = json_get(call, "custom");
    const struct json *input = json_get(custom, "input");
    snprintf(c->place, CHAT_PLACE_NAME, "messages[%zu].tool_calls[%zu]", c->i, k);
    if (json_kind_of(call) != JSON_OBJECT)
        return refuse_kind(c, "", call, "an object");
    if (json_kind_of(custom) == JSON_OBJECT && c->interface) { // of a tool that takes free text
        if (!json_str(json_get(custom, "name"), NULL))
            return err_set(c->e, ERR_FORMAT, "%s.custom.name is missing", c->place);
        return json_kind_of(input) == JSON_NULL || json_kind_of(input) == JSON_STRING
                   ? 0
                   : refuse_kind(c, ".custom.input", input, "a string");
    }
    if (!json_str(json_get(f, "name"), NULL) &&
        !(c->interface && json_str(json_get(call, "name"), NULL)))
        return err_set(c->e, ERR_FORMAT, "%s.function.name is missing", c->place);
    return check_arguments(c, ".function.arguments", json_get(f, "arguments"), true);
}

static int check_calls(const struct check *c) {
    const struct json *calls = json_get(c->message, "tool_calls");
    int rc = 0;
    snprintf(c->place, CHAT_PLACE_NAME, "messages[%zu].tool_calls", c->i);
    if (json_kind_of(calls) != JSON_ARRAY && json_kind_of(calls) != JSON_NULL)
        return refuse_kind(c, "", calls, "an array");
    for (size_t i = 0; i < json_len(calls) && !rc; i++)
        rc = check_call(c, json_at(calls, i), i);
    return rc;
}

// A call of the older form.
static int check_older_call(const struct check *c) {
    const struct json *call = json_get(c->message, "function_call");
    snprintf(c->place, CHAT_PLACE_NAME, "messages[%zu].function_call", c->i);
    if (json_kind_of(call) == JSON_NULL)
        return 0;
    if (!json_str(json_get(call, "name"), NULL))
        return err_set(c->e, ERR_FORMAT, "%s.name is missing", c->place);
    return check_arguments(c, ".arguments", json_get(call, "arguments"), !c->interface);
}

static int check_message(struct check *c) {
    snprintf(c->place, CHAT_PLACE_NAME, "messages[%zu]", c->i);
    if (json_kind_of(c->message) != JSON_OBJECT)
        return refuse_kind(c, "", c->message, "an object");
    const struct json *role = json_get(c->message, "role");
    snprintf(c->place, CHAT_PLACE_NAME, "messages[%zu].role", c->i);
    c->role = json_str(role, NULL);
    if (!c->role)
        return err_set(c->e, ERR_FORMAT, "%s is %s and must be a string", c->place,
                       role ? json_kind_name(role) : "missing");
    if (chat_role_of(role) == CHAT_ROLES)
        return err_set(c->e, ERR_FORMAT,
                       "%s is '%.40s' and must be system, developer, user, assistant or tool",
                       c->place, c->role);
    int rc = check_content(c);
    rc = rc ? rc : check_calls(c);
    return rc ? rc : check_older_call(c);
}

const char *const chat_roles[CHAT_ROLES] = {
    [CHAT_SYSTEM] = "system",       [CHAT_DEVELOPER] = "developer", [CHAT_USER] = "user",
    [CHAT_ASSISTANT] = "assistant", [CHAT_TOOL] = "tool",
};

enum chat_role chat_role_of(const struct json *role) {
    size_t n = 0;
    const char *name = json_str(role, &n);
    int k = 0;
    if (name && n == 8 && !memcmp(name, "function", n))
        return CHAT_TOOL;
    while (k < CHAT_ROLES &&
           !(name && strlen(chat_roles[k]) == n && !memcmp(name, chat_roles[k], n)))
        k++;
    return (enum chat_role)k;
}

int chat_check(const struct json *messages, bool interface, char place[static CHAT_PLACE_NAME],
               struct err *e) {
    struct check c = {.interface = interface, .place = place, .e = e};
    int rc = 0;
    for (; c.i < json_len(messages) && !rc; c.i++) {
        c.message = json_at(messages, c.i);
        rc = check_message(&c);
    }
    return rc;
}
