// SPDX-License-Identifier: Apache-2.0
// Reader of the messages of chat completions: roles, contents, parts and calls are checked here and
// nowhere else, each refused by its place, and become turns; see read.h.
#include "text/chat/read.h"

#include <stdio.h>
#include <string.h>

#include "text/chat/impl.h"

const char *const chat_members[][10] = {
    [OF_MESSAGE] = {"role", "content"},
    [OF_ANSWER] = {"role", "content", "reasoning_content", "thinking", "reasoning", "tool_calls",
                   "function_call", "refusal"},
    [OF_DETAILED_ANSWER] = {"role", "content", "reasoning_content", "thinking", "reasoning",
                            "tool_calls", "function_call", "refusal", "reasoning_details"},
    [OF_RESULT] = {"role", "content", "tool_call_id", "is_error", "type"},
    [OF_CALL] = {"id", "type", "function", "custom"},
};

struct reader {
    struct conversation *v;
    bool request; // see conversation_read
    const struct json *message;
    size_t i; // its number
    enum conversation_role role;
    struct conversation_turn *answer; // where calls go; NULL: an assistant's message only has some
    char *place;                      // of what is looked at
    struct err *e;
};

// member: of the place, may be missing; "": an element, may be null.
static int refuse_kind(const struct reader *r, const char *member, const struct json *v,
                       const char *wanted) {
    return err_set(r->e, ERR_FORMAT, "%s%s is %s and must be %s", r->place, member,
                   v || !member[0] ? json_kind_name(v) : "missing", wanted);
}

bool conversation_is_media(const char *type) {
    static const char *const kinds[] = {
        "image_url", "input_image", "image", "input_audio", "audio",    "audio_url", "video_url",
        "video",     "input_video", "file",  "input_file",  "document", NULL};
    return type && words_among(kinds, type);
}

// The text of a part of a content; NULL: it has none.
static const struct json *part_text(const struct json *part) {
    const struct json *text = json_kind_of(part) == JSON_STRING ? part : json_get(part, "text");
    return text ? text : json_get(part, "refusal");
}

// Parts with a text or a refusal are words; other kinds that carry neither are not.
static int check_part(const struct reader *r, const struct json *part, size_t k) {
    const struct json *type = json_get(part, "type"), *text = part_text(part);
    const char *name = json_str(type, NULL);
    snprintf(r->place, CONVERSATION_PLACE, "messages[%zu].content[%zu]", r->i, k);
    if (json_kind_of(part) == JSON_STRING)
        return 0;
    if (json_kind_of(part) != JSON_OBJECT)
        return refuse_kind(r, "", part, "a text part");
    if (!name && type)
        return refuse_kind(r, ".type", type, "a string");
    if (conversation_is_media(name) && strcmp(name, "document") != 0)
        return err_set(r->e, ERR_FORMAT, "%s is of type %.40s, and this model reads text only",
                       r->place, name);
    return json_kind_of(text) == JSON_STRING ? 0 : refuse_kind(r, ".text", text, "a string");
}

// What a string or a part that has been checked is.
static enum conversation_kind part_kind(const struct reader *r, const struct json *part) {
    static const char *const texts[] = {"", "text", "input_text", "output_text", NULL};
    const char *type = conversation_type_of(part);
    bool refusal = json_kind_of(json_get(part, "refusal")) == JSON_STRING;
    bool text = part_text(part) != json_get(part, "refusal");
    if (!r->request)
        return text ? PART_TEXT : PART_REFUSAL;
    if (words_among(texts, type) && text)
        return PART_TEXT;
    if (refusal && (!type[0] || !strcmp(type, "refusal")))
        return PART_REFUSAL;
    return conversation_is_media(type) ? PART_MEDIA : PART_OTHER;
}

// The parts of the message's content into a turn, or into a result where there is one.
static int read_content(const struct reader *r, struct conversation_turn *t,
                        struct conversation_part *result) {
    const struct json *content = json_get(r->message, "content");
    enum json_kind k = json_kind_of(content);
    bool may_lack =
        !r->request || r->role == CONVERSATION_ASSISTANT || r->role == CONVERSATION_FUNCTION;
    size_t n = k == JSON_ARRAY ? json_len(content) : 1;
    snprintf(r->place, CONVERSATION_PLACE, "messages[%zu].content", r->i);
    if (k == JSON_NULL && may_lack)
        return 0;
    if (k != JSON_STRING && k != JSON_ARRAY)
        return err_set(r->e, ERR_FORMAT, "%s is %s and must be a string or an array of text parts",
                       r->place, content ? json_kind_name(content) : "missing or null");
    for (size_t i = 0; i < n; i++) {
        const struct json *part = k == JSON_ARRAY ? json_at(content, i) : content;
        int rc = check_part(r, part, i);
        if (rc)
            return rc;
        enum conversation_kind kind = part_kind(r, part);
        conversation_fill(r->v,
                          result ? conversation_inner(r->v, result, kind)
                                 : conversation_part(r->v, t, kind),
                          part);
    }
    if (k == JSON_ARRAY && !r->request && (result || t))
        *(result ? &result->list : &t->list) = true;
    return 0;
}

static void read_arguments(const struct reader *r, const struct json *arguments,
                           struct conversation_part *p) {
    p->text = words_of(arguments);
    p->object = json_kind_of(arguments) == JSON_OBJECT;
    if (p->object) {
        p->raw = arguments;
        p->text = conversation_printed(r->v, arguments);
    }
}

static int check_arguments(const struct reader *r, const char *member, const struct json *arguments,
                           bool objects) {
    enum json_kind k = json_kind_of(arguments);
    if (k == JSON_NULL || k == JSON_STRING || (objects && k == JSON_OBJECT))
        return 0;
    return refuse_kind(r, member, arguments, "a string of JSON");
}

static int check_call(const struct reader *r, const struct json *call, size_t k, bool custom) {
    const struct json *f = json_get(call, custom ? "custom" : "function");
    const struct json *input = json_get(f, "input");
    snprintf(r->place, CONVERSATION_PLACE, "messages[%zu].tool_calls[%zu]", r->i, k);
    if (json_kind_of(call) != JSON_OBJECT)
        return refuse_kind(r, "", call, "an object");
    if (!json_str(json_get(f, "name"), NULL) &&
        (custom || !r->request || !json_str(json_get(call, "name"), NULL)))
        return err_set(r->e, ERR_FORMAT, "%s.%s.name is missing", r->place,
                       custom ? "custom" : "function");
    if (!custom)
        return check_arguments(r, ".function.arguments", json_get(f, "arguments"), true);
    return json_kind_of(input) == JSON_NULL || json_kind_of(input) == JSON_STRING
               ? 0
               : refuse_kind(r, ".custom.input", input, "a string");
}

static int read_call(const struct reader *r, const struct json *call, size_t k) {
    bool custom = r->request && json_kind_of(json_get(call, "custom")) == JSON_OBJECT;
    const struct json *f = json_get(call, custom ? "custom" : "function");
    int rc = check_call(r, call, k, custom);
    struct conversation_part *p = rc ? NULL : conversation_part(r->v, r->answer, PART_CALL);
    if (!p)
        return rc;
    p->id = words_of(json_get(call, "id"));
    p->custom = custom;
    p->name = words_of(json_get(f, "name"));
    if (!p->name.s)
        p->name = words_of(json_get(call, "name"));
    if (custom)
        p->text = words_of(json_get(f, "input"));
    else
        read_arguments(r, json_get(f, "arguments"), p);
    if (r->request)
        extras_take(r->v, &p->extras, call, chat_members[OF_CALL]);
    else
        p->as_came = call;
    return 0;
}

static int read_calls(const struct reader *r) {
    const struct json *calls = json_get(r->message, "tool_calls");
    int rc = 0;
    snprintf(r->place, CONVERSATION_PLACE, "messages[%zu].tool_calls", r->i);
    if (json_kind_of(calls) != JSON_ARRAY && json_kind_of(calls) != JSON_NULL)
        return refuse_kind(r, "", calls, "an array");
    for (size_t i = 0; i < json_len(calls) && !rc; i++)
        rc = read_call(r, json_at(calls, i), i);
    return rc;
}

// A call of the older form, whose result names the function alone: in requests it gets an id here.
static int read_older_call(const struct reader *r) {
    const struct json *call = json_get(r->message, "function_call");
    const struct json *arguments = json_get(call, "arguments");
    bool besides = !r->request && json_len(json_get(r->message, "tool_calls")) > 0;
    char id[40];
    snprintf(r->place, CONVERSATION_PLACE, "messages[%zu].function_call", r->i);
    if (json_kind_of(call) == JSON_NULL)
        return 0;
    if (!json_str(json_get(call, "name"), NULL))
        return err_set(r->e, ERR_FORMAT, "%s.name is missing", r->place);
    int rc = check_arguments(r, ".arguments", arguments, !r->request);
    struct conversation_part *p =
        rc || besides ? NULL : conversation_part(r->v, r->answer, PART_CALL);
    if (!p)
        return rc;
    int n = snprintf(id, sizeof id, "call_older_%d_%d", r->v->n_turns, r->answer->n_parts);
    if (r->request)
        p->id = conversation_copy(r->v, id, (size_t)n);
    p->older = !r->request;
    p->name = words_of(json_get(call, "name"));
    read_arguments(r, arguments, p);
    return 0;
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

static void read_details(const struct reader *r, const struct json *list,
                         struct conversation_turn *t) {
    static const char *const of_detail[] = {"type", "text", "summary", "data", "signature", NULL};
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *d = json_at(list, i);
        struct conversation_part *p = conversation_part(r->v, t, PART_REASONING);
        if (!p)
            return;
        p->text = words_of(json_get(d, "text"));
        p->summary = words_of(json_get(d, "summary"));
        p->signature = words_of(json_get(d, "signature"));
        if (!p->signature.s)
            p->signature = words_of(json_get(d, "data"));
        extras_take(r->v, &p->extras, d, of_detail);
    }
}

// The turn of an assistant's message in a request; extras: what it has besides.
static struct conversation_turn *answer_turn(const struct reader *r, struct extras *extras,
                                             bool detailed) {
    const struct json *m = r->message, *content = json_get(m, "content");
    bool called = json_len(json_get(m, "tool_calls")) > 0 ||
                  json_kind_of(json_get(m, "function_call")) == JSON_OBJECT;
    bool words = json_len(content) > 0 || json_kind_of(content) == JSON_STRING ||
                 words_of(json_get(m, "refusal")).n > 0;
    extras_take(r->v, extras, m, chat_members[detailed ? OF_DETAILED_ANSWER : OF_ANSWER]);
    return conversation_turn(r->v, CONVERSATION_ASSISTANT,
                             reasoning_of(m).n || detailed        ? PART_REASONING
                             : called && !words && extras->n == 0 ? PART_CALL
                                                                  : PART_TEXT);
}

static int read_answer(struct reader *r) {
    const struct json *m = r->message;
    struct words reasoning = reasoning_of(m), declined = words_of(json_get(m, "refusal"));
    bool detailed = r->request && is_detailed(m);
    struct extras extras = {0};
    struct conversation_turn *t =
        r->request ? answer_turn(r, &extras, detailed) : conversation_new_turn(r->v, r->role);
    struct conversation_part *p;
    if (!t)
        return 0;
    r->answer = t;
    if (!r->request)
        t->as_came = m;
    if (extras.n)
        t->extras = extras;
    if (detailed)
        read_details(r, json_get(m, "reasoning_details"), t);
    else if (reasoning.n && (p = conversation_part(r->v, t, PART_REASONING)))
        p->text = reasoning;
    int rc = read_content(r, t, NULL);
    if (!rc && r->request && declined.n && (p = conversation_part(r->v, t, PART_REFUSAL)))
        p->text = declined;
    return rc;
}

// The id of the call that a request's result in the older form is of: the last one, when it is of
// that function.
static bool find_older_call(const struct reader *r, struct words *id) {
    const struct conversation *v = r->v;
    const struct conversation_turn *t = v->n_turns ? &v->turns[v->n_turns - 1] : NULL;
    const struct conversation_part *p = t && t->n_parts ? &t->parts[t->n_parts - 1] : NULL;
    struct words name = words_of(json_get(r->message, "name"));
    bool fits = p && p->kind == PART_CALL && name.s && words_equal(p->name, name.s);
    *id = fits ? p->id : (struct words){0};
    return fits;
}

static int read_result(const struct reader *r, struct words older_id) {
    static const char *const of_older[] = {"role", "name", "content", NULL};
    const struct json *m = r->message;
    bool older = r->role == CONVERSATION_FUNCTION;
    bool item = r->request && !older && json_kind_of(json_get(m, "item")) == JSON_OBJECT;
    struct conversation_turn *t = r->request
                                      ? conversation_turn(r->v, CONVERSATION_TOOL, PART_RESULT)
                                      : conversation_new_turn(r->v, CONVERSATION_TOOL);
    struct conversation_part *p = conversation_part(r->v, t, item ? PART_OTHER : PART_RESULT);
    if (!p)
        return 0;
    if (item)
        p->raw = json_get(m, "item");
    int rc = read_content(r, NULL, item ? NULL : p);
    if (item)
        return rc;
    p->id = older ? older_id : words_of(json_get(m, "tool_call_id"));
    p->is_error = !older && json_bool(json_get(m, "is_error"), false);
    p->custom = !older && !strcmp(conversation_type_of(m), "custom");
    if (r->request)
        extras_take(r->v, &p->extras, m, older ? of_older : chat_members[OF_RESULT]);
    else
        t->as_came = m;
    return rc;
}

static int read_words(const struct reader *r) {
    struct conversation_turn *t = conversation_new_turn(r->v, r->role);
    int rc = read_content(r, t, NULL);
    if (t && r->request)
        extras_take(r->v, &t->extras, r->message, chat_members[OF_MESSAGE]);
    else if (t)
        t->as_came = r->message;
    return rc;
}

static int read_message(struct reader *r) {
    const struct json *role = json_get(r->message, "role");
    struct words id = {0};
    snprintf(r->place, CONVERSATION_PLACE, "messages[%zu]", r->i);
    if (json_kind_of(r->message) != JSON_OBJECT)
        return refuse_kind(r, "", r->message, "an object");
    snprintf(r->place, CONVERSATION_PLACE, "messages[%zu].role", r->i);
    if (json_kind_of(role) != JSON_STRING)
        return err_set(r->e, ERR_FORMAT, "%s is %s and must be a string", r->place,
                       role ? json_kind_name(role) : "missing");
    r->role = conversation_role_of(r->message);
    r->answer = NULL;
    int rc;
    if (r->role == CONVERSATION_ROLES)
        rc = err_set(r->e, ERR_FORMAT,
                     "%s is '%.40s' and must be system, developer, user, assistant or tool",
                     r->place, json_str(role, NULL));
    else if (r->role == CONVERSATION_ASSISTANT)
        rc = read_answer(r);
    else if (r->role == CONVERSATION_TOOL ||
             (r->role == CONVERSATION_FUNCTION && r->request && find_older_call(r, &id)))
        rc = read_result(r, id);
    else
        rc = read_words(r);
    rc = rc ? rc : read_calls(r);
    return rc ? rc : read_older_call(r);
}

int conversation_read(struct conversation *v, const struct json *messages, bool request,
                      char place[static CONVERSATION_PLACE], struct err *e) {
    struct reader r = {.v = v, .request = request, .place = place, .e = e};
    int rc = 0;
    for (; r.i < json_len(messages) && !rc && !v->failed; r.i++) {
        r.message = json_at(messages, r.i);
        rc = read_message(&r);
    }
    return rc;
}

int conversation_read_raw_tools(struct conversation *v, const struct json *tools, struct err *e) {
    if (json_kind_of(tools) != JSON_ARRAY && json_kind_of(tools) != JSON_NULL)
        return err_set(e, ERR_FORMAT, "tools is not a list");
    for (size_t i = 0; i < json_len(tools) && !v->failed; i++) {
        if (json_kind_of(json_at(tools, i)) != JSON_OBJECT)
            return err_set(e, ERR_FORMAT, "tools[%zu] is not an object", i);
        struct conversation_tool *t = conversation_tool(v, TOOL_OTHER);
        if (t)
            t->raw = json_at(tools, i);
    }
    return 0;
}
