// SPDX-License-Identifier: Apache-2.0
// From messages that have been checked to those that a template takes. Every message is copied into
// the rendering's values and changed there; the strings of the request stay marked as such. Names
// of roles are the template's own words: they are known ones.
#include "text/chat/impl.h"

#include <stdio.h>
#include <string.h>

#include "base/num.h"

struct repair {
    const struct chat_template *t;
    struct jinja_context *c;
    struct jinja_value list;  // what was made so far
    struct jinja_value calls; // ids of calls so far, to the names of their functions
    struct jinja_value ids;   // ids of the request to those that the template takes
    struct jinja_value older; // id of the last call in the older form, whose results name no id
    int64_t n_calls;
    struct err *e;
};

static struct jinja_value template_words(const struct repair *r, const char *text) {
    return jinja_string(r->c, text, strlen(text), false);
}

static void put_member(const struct repair *r, struct jinja_value m, const char *key,
                       struct jinja_value v) {
    jinja_put_member(r->c, m, key, v);
}

// Parts of text become one string, with a line end between them.
static int join_parts(const struct repair *r, const struct json *v, struct jinja_value *out) {
    struct str s = {0};
    str_puts(&s, "");
    for (size_t k = 0; k < json_len(v); k++) {
        size_t n = 0;
        const char *text = json_str(chat_part_text(json_at(v, k)), &n);
        if (k > 0)
            str_putc(&s, '\n');
        str_append(&s, text ? text : "", n);
    }
    int rc = s.failed ? err_set(r->e, ERR_MEMORY, "no memory for the text of a message") : 0;
    if (!rc)
        *out = jinja_string(r->c, s.data, s.len, true);
    str_fini(&s);
    return rc;
}

static struct jinja_value text_part(const struct repair *r, struct jinja_value text) {
    struct jinja_value part = jinja_dict(r->c, true);
    put_member(r, part, "type", template_words(r, "text"));
    put_member(r, part, "text", text);
    return part;
}

// A list of parts as templates accept it.
static struct jinja_value list_parts(const struct repair *r, const struct json *v) {
    struct jinja_value list = jinja_list(r->c, true);
    for (size_t k = 0; k < json_len(v); k++)
        jinja_append(r->c, list,
                     text_part(r, jinja_from_json(r->c, chat_part_text(json_at(v, k)), true)));
    return list;
}

static int put_content(const struct repair *r, const struct json *v, struct jinja_value m,
                       enum chat_role role, bool has_calls) {
    enum chat_parts parts = r->t->traits.parts[role];
    struct jinja_value out = jinja_none();
    int rc = 0;
    if (json_kind_of(v) == JSON_ARRAY && parts != CHAT_PARTS_JOIN)
        out = list_parts(r, v);
    else if (json_kind_of(v) == JSON_ARRAY)
        rc = join_parts(r, v, &out);
    else if (json_kind_of(v) == JSON_STRING)
        out = jinja_from_json(r->c, v, true);
    else if (!(has_calls && r->t->traits.null_content))
        out = template_words(r, "");
    size_t n = 0;
    if (out.kind == JINJA_STRING)
        jinja_bytes(out, &n);
    if (has_calls && r->t->traits.null_content && out.kind == JINJA_STRING && n == 0)
        out = jinja_none();
    if (parts == CHAT_PARTS_NEED && out.kind == JINJA_STRING) {
        struct jinja_value list = jinja_list(r->c, true);
        jinja_append(r->c, list, text_part(r, out));
        out = list;
    }
    put_member(r, m, "content", out);
    return rc;
}

static const char *const reasoning_names[] = {"reasoning_content", "thinking", "reasoning"};

// Reasoning of an earlier reply, whatever the client calls it, under the names that templates read.
static void put_reasoning_names(const struct repair *r, const struct json *from,
                                struct jinja_value m) {
    const struct json *text = NULL;
    for (int i = 0; i < 3; i++) {
        const struct json *v = json_get(from, reasoning_names[i]);
        if (!text && json_kind_of(v) == JSON_STRING && json_str(v, NULL)[0])
            text = v;
        jinja_remove_member(m, reasoning_names[i]);
    }
    for (int i = 0; text && i < 3; i++)
        put_member(r, m, reasoning_names[i], jinja_from_json(r->c, text, true));
}

// A text of JSON as a value; the text itself when it is none, or no object.
static int parse_arguments(const struct repair *r, const struct json *v, struct jinja_value *out) {
    size_t n;
    const char *text = json_str(v, &n);
    const struct json_rules rules = {.values = 1 << 20, .objects = 1 << 16, .big_integers = true};
    struct json *parsed = NULL;
    int rc = n > 0 ? json_parse_with(&parsed, text, n, &rules, r->e) : 0;
    if (rc == ERR_MEMORY)
        return rc;
    bool object = !rc && json_kind_of(parsed) == JSON_OBJECT;
    *out = n == 0 ? jinja_dict(r->c, true) : jinja_from_json(r->c, object ? parsed : v, true);
    json_free(parsed);
    return 0;
}

static int put_arguments(const struct repair *r, const struct json *v,
                         struct jinja_value function) {
    enum json_kind kind = json_kind_of(v);
    struct jinja_value out = {0};
    int rc = 0;
    if (r->t->traits.text_arguments && kind == JSON_OBJECT)
        rc = jinja_json(r->c, jinja_from_json(r->c, v, true), &out, r->e);
    else if (r->t->traits.text_arguments)
        out = kind == JSON_NULL ? template_words(r, "{}") : jinja_from_json(r->c, v, true);
    else if (kind == JSON_STRING)
        rc = parse_arguments(r, v, &out);
    else
        out = kind == JSON_NULL ? jinja_dict(r->c, true) : jinja_from_json(r->c, v, true);
    if (!rc)
        put_member(r, function, "arguments", out);
    return rc;
}

static bool is_short(const char *id) {
    size_t n = 0;
    while ((id[n] >= '0' && id[n] <= '9') || (id[n] >= 'a' && id[n] <= 'z') ||
           (id[n] >= 'A' && id[n] <= 'Z'))
        n++;
    return n == 9 && !id[n];
}

// Ids as the template takes them, one for each of the request's.
static struct jinja_value take_id(struct repair *r, const struct json *id) {
    char made[24];
    const char *text = json_str(id, NULL);
    struct jinja_value out = jinja_from_json(r->c, id, true);
    if (text && (!r->t->traits.short_ids || is_short(text)))
        return out;
    // Nine characters, of which the number is the last eight; beyond that they repeat.
    snprintf(made, sizeof made, r->t->traits.short_ids ? "c%08lld" : "call_%lld",
             (long long)(r->n_calls % 100000000));
    out = jinja_string(r->c, made, strlen(made), true);
    if (text)
        put_member(r, r->ids, text, out);
    return out;
}

static int put_tool_call(struct repair *r, const struct json *call, struct jinja_value list) {
    const struct json *from = json_get(call, "function");
    const char *id = json_str(json_get(call, "id"), NULL);
    struct jinja_value out = jinja_from_json(r->c, call, true);
    struct jinja_value function = jinja_member(out, "function");
    put_member(r, out, "type", template_words(r, "function"));
    put_member(r, out, "id", take_id(r, json_get(call, "id")));
    if (id)
        put_member(r, r->calls, id, jinja_member(function, "name"));
    r->n_calls++;
    jinja_append(r->c, list, out);
    return put_arguments(r, json_get(from, "arguments"), function);
}

static int put_calls(struct repair *r, const struct json *calls, struct jinja_value m) {
    struct jinja_value list = jinja_list(r->c, true);
    int rc = 0;
    jinja_remove_member(m, "tool_calls");
    for (size_t k = 0; k < json_len(calls) && !rc; k++)
        rc = put_tool_call(r, json_at(calls, k), list);
    if (json_len(calls) > 0)
        put_member(r, m, "tool_calls", list);
    return rc;
}

// A call in the older form, which is the only one of its message.
static int put_older_call(struct repair *r, const struct json *call, struct jinja_value m) {
    struct jinja_value list = jinja_list(r->c, true), out = jinja_dict(r->c, true);
    struct jinja_value function = jinja_dict(r->c, true);
    r->older = take_id(r, NULL);
    r->n_calls++;
    put_member(r, out, "type", template_words(r, "function"));
    put_member(r, out, "id", r->older);
    put_member(r, function, "name", jinja_from_json(r->c, json_get(call, "name"), true));
    put_member(r, out, "function", function);
    jinja_append(r->c, list, out);
    jinja_remove_member(m, "function_call");
    put_member(r, m, "tool_calls", list);
    return put_arguments(r, json_get(call, "arguments"), function);
}

// A result: its id as that of the call was changed, and the name of what was called.
static void put_tool_result(const struct repair *r, const struct json *from, struct jinja_value m) {
    const char *id = json_str(json_get(from, "tool_call_id"), NULL);
    struct jinja_value changed = id ? jinja_member(r->ids, id) : (struct jinja_value){0};
    struct jinja_value name = id ? jinja_member(r->calls, id) : (struct jinja_value){0};
    if (changed.kind == JINJA_STRING)
        put_member(r, m, "tool_call_id", changed);
    if (name.kind == JINJA_STRING && json_kind_of(json_get(from, "name")) == JSON_NULL)
        put_member(r, m, "name", name);
    if (!id && r->older.kind == JINJA_STRING)
        put_member(r, m, "tool_call_id", r->older);
}

// Members that are null count as absent.
static int drop_null(void *arg, const char *key, size_t n, const struct json *v) {
    struct jinja_value *m = arg;
    (void)n;
    if (json_kind_of(v) == JSON_NULL)
        jinja_remove_member(*m, key);
    return 0;
}

static int take_message(struct repair *r, const struct json *m, enum chat_role *role) {
    const struct json *calls = json_get(m, "tool_calls"), *content = json_get(m, "content");
    const struct json *older = json_get(m, "function_call");
    *role = chat_role_of(json_get(m, "role"));
    if (*role == CHAT_ROLES)
        return err_set(r->e, ERR_FORMAT, "a message has no role that is known");
    if (*role == CHAT_DEVELOPER && !r->t->traits.developer)
        *role = CHAT_SYSTEM;
    bool in_older = json_kind_of(older) == JSON_OBJECT && json_len(calls) == 0;
    bool has_calls = *role == CHAT_ASSISTANT && (json_len(calls) > 0 || in_older);
    struct jinja_value out = jinja_from_json(r->c, m, true);
    json_each(m, drop_null, &out);
    put_member(r, out, "role", template_words(r, chat_roles[*role]));
    if (*role == CHAT_ASSISTANT)
        put_reasoning_names(r, m, out);
    bool thought = jinja_member(out, "reasoning_content").kind == JINJA_STRING;
    if (has_calls && thought && r->t->traits.one_of_both)
        content = NULL;
    int rc = put_content(r, content, out, *role, has_calls);
    if (!rc && *role == CHAT_ASSISTANT)
        rc = in_older ? put_older_call(r, older, out) : put_calls(r, calls, out);
    if (*role == CHAT_TOOL)
        put_tool_result(r, m, out);
    jinja_append(r->c, r->list, out);
    return rc;
}

// The words of a message, whatever its form.
static void append_words(struct str *out, struct jinja_value content) {
    size_t n;
    if (content.kind == JINJA_STRING) {
        const char *text = jinja_bytes(content, &n);
        str_append(out, text, n);
    }
    for (size_t i = 0; content.kind == JINJA_LIST && i < jinja_count(content); i++)
        append_words(out, jinja_member(jinja_at(content, i), "text"));
}

static bool is_role(struct jinja_value m, enum chat_role role) {
    size_t n;
    const char *name = jinja_bytes(jinja_member(m, "role"), &n);
    return name && !strcmp(name, chat_roles[role]);
}

static struct jinja_value as_content(const struct repair *r, const struct str *text,
                                     enum chat_role role) {
    struct jinja_value s = jinja_string(r->c, text->data, text->len, true);
    if (r->t->traits.parts[role] != CHAT_PARTS_NEED)
        return s;
    struct jinja_value list = jinja_list(r->c, true);
    jinja_append(r->c, list, text_part(r, s));
    return list;
}

static bool is_system(struct jinja_value m) {
    return is_role(m, CHAT_SYSTEM) || is_role(m, CHAT_DEVELOPER);
}

// The first message of the assistant; their number where there is none.
static size_t first_answer(const struct repair *r) {
    size_t i = 0;
    while (i < jinja_count(r->list) && !is_role(jinja_at(r->list, i), CHAT_ASSISTANT))
        i++;
    return i;
}

static void add_words(struct str *out, struct jinja_value m) {
    if (out->len)
        str_puts(out, "\n\n");
    append_words(out, jinja_member(m, "content"));
}

// The words of the system messages before the first answer, with an empty line between them.
static void system_words(const struct repair *r, struct str *out) {
    size_t answer = first_answer(r);
    str_puts(out, "");
    for (size_t i = 0; i < answer; i++)
        if (is_system(jinja_at(r->list, i)))
            add_words(out, jinja_at(r->list, i));
}

// The first message of a role among the first n, or none.
static struct jinja_value first_of(const struct repair *r, enum chat_role role, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (is_role(jinja_at(r->list, i), role))
            return jinja_at(r->list, i);
    return (struct jinja_value){0};
}

static int no_message_memory(const struct repair *r) {
    return err_set(r->e, ERR_MEMORY, "no memory for the system messages");
}

// Words of the system, messages [from, to), after the last message of the list: at the end of the
// user's or a tool's, else kept for the next one.
static int take_late(const struct repair *r, struct jinja_value list, size_t from, size_t to,
                     struct str *kept) {
    size_t n = jinja_count(list);
    struct jinja_value last = n ? jinja_at(list, n - 1) : (struct jinja_value){0};
    bool tool = n && is_role(last, CHAT_TOOL), user = n && is_role(last, CHAT_USER);
    struct str text = {0};
    struct str *into = tool || user ? &text : kept;
    if (into == &text)
        add_words(&text, last);
    for (size_t i = from; i < to; i++)
        add_words(into, jinja_at(r->list, i));
    str_puts(into, "");
    int rc = into->failed ? no_message_memory(r) : 0;
    if (!rc && into == &text)
        put_member(r, last, "content", as_content(r, &text, tool ? CHAT_TOOL : CHAT_USER));
    str_fini(&text);
    return rc;
}

// A message of these words alone.
static struct jinja_value new_message(const struct repair *r, enum chat_role role,
                                      const struct str *text) {
    struct jinja_value m = jinja_dict(r->c, true);
    put_member(r, m, "role", template_words(r, chat_roles[role]));
    put_member(r, m, "content", as_content(r, text, role));
    return m;
}

// What was kept stands before the words of the user, or is a message of theirs. m: the next one of
// the conversation; absent at its end.
static int put_late(const struct repair *r, struct jinja_value list, struct jinja_value m,
                    struct str *kept) {
    bool user = m.kind != JINJA_ABSENT && is_role(m, CHAT_USER);
    if (kept->len == 0)
        return 0;
    if (user) {
        add_words(kept, m);
    } else {
        jinja_append(r->c, list, new_message(r, CHAT_USER, kept));
    }
    int rc = kept->failed ? no_message_memory(r) : 0;
    if (!rc && user)
        put_member(r, m, "content", as_content(r, kept, CHAT_USER));
    str_clear(kept);
    return rc;
}

// Where the template takes system messages in front only: those before the first answer become one
// there, or stand before the words of the first user. Later ones stay at their place as words of
// its neighbour, or the prompt would change from its first tokens on with each of them.
static int merge_system(const struct repair *r, struct jinja_value *out) {
    bool never = r->t->traits.system == CHAT_SYSTEM_NEVER;
    struct jinja_value list = jinja_list(r->c, true);
    struct jinja_value into = first_of(r, CHAT_USER, jinja_count(r->list));
    size_t answer = first_answer(r);
    struct str text = {0}, kept = {0};
    system_words(r, &text);
    if (never && into.kind == JINJA_ABSENT && text.len && !text.failed)
        jinja_append(r->c, list, new_message(r, CHAT_USER, &text));
    if (never && into.kind != JINJA_ABSENT && text.len) {
        add_words(&text, into);
    } else if (!never) {
        struct jinja_value first = first_of(r, CHAT_SYSTEM, answer);
        into = first.kind != JINJA_ABSENT ? first : first_of(r, CHAT_DEVELOPER, answer);
        if (text.len)
            jinja_append(r->c, list, into);
    }
    int rc = text.failed ? no_message_memory(r) : 0;
    if (!rc && text.len && into.kind != JINJA_ABSENT)
        put_member(r, into, "content", as_content(r, &text, never ? CHAT_USER : CHAT_SYSTEM));
    str_fini(&text);
    for (size_t i = 0; i < jinja_count(r->list) && !rc; i++) {
        struct jinja_value m = jinja_at(r->list, i);
        size_t end = i; // of a run of the system's
        while (end < jinja_count(r->list) && is_system(jinja_at(r->list, end)))
            end++;
        if (end > i) {
            rc = i < answer ? 0 : take_late(r, list, i, end, &kept);
            i = end - 1;
            continue;
        }
        rc = put_late(r, list, m, &kept);
        jinja_append(r->c, list, m);
    }
    if (!rc)
        rc = put_late(r, list, (struct jinja_value){0}, &kept);
    str_fini(&kept);
    *out = list;
    return rc;
}

// Calls after the words of their message, for a template that has none.
static int say_calls(const struct repair *r, struct jinja_value m) {
    const struct tool_format *form = &tool_formats[TOOLS_HERMES];
    struct jinja_value calls = jinja_member(m, "tool_calls");
    struct str text = {0};
    int rc = 0;
    append_words(&text, jinja_member(m, "content"));
    for (size_t i = 0; i < jinja_count(calls) && !rc; i++) {
        struct jinja_value f = jinja_member(jinja_at(calls, i), "function"), name, arguments;
        struct jinja_value given = jinja_member(f, "arguments");
        size_t n_name = 0, n = 0;
        rc = jinja_json(r->c, jinja_member(f, "name"), &name, r->e);
        arguments = given;
        if (!rc && given.kind != JINJA_STRING)
            rc = jinja_json(r->c, given, &arguments, r->e);
        if (rc)
            break;
        const char *s = jinja_bytes(name, &n_name), *a = jinja_bytes(arguments, &n);
        str_printf(&text, "%s%s\n{\"name\": ", text.len ? "\n" : "", form->open);
        str_append(&text, s ? s : "", n_name);
        str_printf(&text, ", \"%s\": ", form->arguments);
        str_append(&text, a ? a : "", n);
        str_printf(&text, "}\n%s", form->close);
    }
    str_puts(&text, "");
    rc = rc ? rc : text.failed ? no_message_memory(r) : 0;
    if (!rc)
        put_member(r, m, "content", as_content(r, &text, CHAT_ASSISTANT));
    jinja_remove_member(m, "tool_calls");
    str_fini(&text);
    return rc;
}

// A result as words of the user, for a template without a place for results.
static int say_result(const struct repair *r, struct jinja_value *m) {
    struct str text = {0};
    str_puts(&text, "<tool_response>\n");
    append_words(&text, jinja_member(*m, "content"));
    str_puts(&text, "\n</tool_response>");
    int rc = text.failed ? no_message_memory(r) : 0;
    if (!rc)
        *m = new_message(r, CHAT_USER, &text);
    str_fini(&text);
    return rc;
}

// Calls of list[i], a message each, in front of their results, which follow it: *end is after
// them.
static void split_calls(const struct repair *r, struct jinja_value list, size_t i, size_t *end,
                        struct jinja_value out) {
    struct jinja_value m = jinja_at(list, i), calls = jinja_member(m, "tool_calls");
    struct jinja_value results = jinja_dict(r->c, true), placed = jinja_dict(r->c, true);
    size_t n;
    for (*end = i + 1; *end < jinja_count(list) && is_role(jinja_at(list, *end), CHAT_TOOL);
         ++*end) {
        const char *id = jinja_bytes(jinja_member(jinja_at(list, *end), "tool_call_id"), &n);
        if (id)
            put_member(r, results, id, jinja_at(list, *end));
    }
    for (size_t k = 0; k < jinja_count(calls); k++) {
        const struct str nothing = {.data = ""};
        struct jinja_value part = k ? new_message(r, CHAT_ASSISTANT, &nothing) : m;
        struct jinja_value one = jinja_list(r->c, true);
        const char *id = jinja_bytes(jinja_member(jinja_at(calls, k), "id"), &n);
        if (k && r->t->traits.null_content)
            put_member(r, part, "content", jinja_none());
        jinja_append(r->c, one, jinja_at(calls, k));
        put_member(r, part, "tool_calls", one);
        jinja_append(r->c, out, part);
        if (id && jinja_member(results, id).kind == JINJA_DICT) {
            jinja_append(r->c, out, jinja_member(results, id));
            put_member(r, placed, id, jinja_bool(true));
        }
    }
    for (size_t k = i + 1; k < *end; k++) {
        const char *id = jinja_bytes(jinja_member(jinja_at(list, k), "tool_call_id"), &n);
        if (!id || jinja_member(placed, id).kind == JINJA_ABSENT)
            jinja_append(r->c, out, jinja_at(list, k));
    }
}

// Puts messages that the template has no place for into the words of others.
static int place_messages(const struct repair *r, struct jinja_value *list) {
    const struct chat_traits *is = &r->t->traits;
    struct jinja_value out = jinja_list(r->c, true);
    size_t n = jinja_count(*list);
    bool spoken = false;
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        struct jinja_value m = jinja_at(*list, i);
        bool system = is_system(m), answer = is_role(m, CHAT_ASSISTANT);
        if (answer && is->plain_calls && jinja_count(jinja_member(m, "tool_calls")) > 0)
            rc = say_calls(r, m);
        if (!rc && is->plain_results && is_role(m, CHAT_TOOL))
            rc = say_result(r, &m);
        if (system && n == 1 && is->lone_system)
            put_member(r, m, "role", template_words(r, chat_roles[CHAT_USER]));
        if (answer && !spoken && is->user_first)
            jinja_append(r->c, out, new_message(r, CHAT_USER, &(struct str){.data = ""}));
        spoken = spoken || !system;
        if (answer && is->single_calls && jinja_count(jinja_member(m, "tool_calls")) > 1) {
            size_t end;
            split_calls(r, *list, i, &end, out);
            i = end - 1;
            continue;
        }
        jinja_append(r->c, out, m);
    }
    *list = out;
    return rc;
}

// The words of list[from, to) after those of an earlier message, and its reasoning likewise.
static int join_words(const struct repair *r, struct jinja_value into, struct jinja_value list,
                      size_t from, size_t to) {
    enum chat_role role = is_role(into, CHAT_TOOL)   ? CHAT_TOOL
                          : is_role(into, CHAT_USER) ? CHAT_USER
                                                     : CHAT_ASSISTANT;
    struct str text = {0};
    add_words(&text, into);
    for (size_t i = from; i < to; i++)
        add_words(&text, jinja_at(list, i));
    str_puts(&text, "");
    if (!text.failed)
        put_member(r, into, "content", as_content(r, &text, role));
    for (int k = 0; k < 3 && !text.failed; k++) {
        str_clear(&text);
        append_words(&text, jinja_member(into, reasoning_names[k]));
        for (size_t i = from; i < to; i++) {
            struct jinja_value thought = jinja_member(jinja_at(list, i), reasoning_names[k]);
            if (text.len && thought.kind == JINJA_STRING)
                str_puts(&text, "\n\n");
            append_words(&text, thought);
        }
        if (!text.failed && text.len)
            put_member(r, into, reasoning_names[k], jinja_string(r->c, text.data, text.len, true));
    }
    int rc = text.failed ? no_message_memory(r) : 0;
    str_fini(&text);
    return rc;
}

// Whether the template refuses m after the message `last`, so that its words go there.
static bool is_joined(const struct repair *r, struct jinja_value last, struct jinja_value m) {
    const struct chat_traits *is = &r->t->traits;
    if (is_role(m, CHAT_USER))
        return (is->join_users && is_role(last, CHAT_USER)) ||
               (is->user_after && is_role(last, CHAT_TOOL));
    return is->join_answers && is_role(m, CHAT_ASSISTANT) && is_role(last, CHAT_ASSISTANT) &&
           jinja_member(m, "tool_calls").kind == JINJA_ABSENT &&
           jinja_member(last, "tool_calls").kind == JINJA_ABSENT;
}

// Turns that must not follow each other become one, a run of them at once.
static int join_turns(const struct repair *r, struct jinja_value *list) {
    struct jinja_value out = jinja_list(r->c, true);
    size_t n = jinja_count(*list);
    int rc = 0;
    for (size_t i = 0, end; i < n && !rc; i = end) {
        struct jinja_value m = jinja_at(*list, i);
        for (end = i + 1; end < n && is_joined(r, m, jinja_at(*list, end));)
            end++;
        if (end > i + 1)
            rc = join_words(r, m, *list, i + 1, end);
        jinja_append(r->c, out, m);
    }
    *list = out;
    return rc;
}

// Whether a message is the assistant's and says nothing at all.
static bool is_empty_answer(const struct json *m) {
    const char *role = json_str(json_get(m, "role"), NULL);
    const struct json *content = json_get(m, "content");
    size_t n = 0;
    if (json_kind_of(json_get(m, "function_call")) != JSON_NULL)
        return false;
    if (!role || strcmp(role, chat_roles[CHAT_ASSISTANT]) != 0 ||
        json_len(json_get(m, "tool_calls")) > 0)
        return false;
    for (int i = 0; i < 3 && n == 0; i++)
        json_str(json_get(m, reasoning_names[i]), &n);
    if (n == 0 && json_kind_of(content) == JSON_STRING)
        json_str(content, &n);
    for (size_t i = 0; json_kind_of(content) == JSON_ARRAY && i < json_len(content) && n == 0; i++)
        if (!json_str(chat_part_text(json_at(content, i)), &n))
            return false;
    enum json_kind kind = json_kind_of(content);
    return n == 0 && (kind == JSON_NULL || kind == JSON_STRING || kind == JSON_ARRAY);
}

// How many messages there are to render: there is no reply to go on with in an empty one.
static size_t count_messages(const struct chat_input *in) {
    size_t n = json_len(in->messages);
    while (in->add_generation_prompt && !in->keep_last && n > 1 &&
           is_empty_answer(json_at(in->messages, n - 1)))
        n--;
    return n;
}

int chat_repair(const struct chat_template *t, struct jinja_context *c, const struct chat_input *in,
                struct jinja_value *out, struct jinja_value *last, struct err *e) {
    struct repair r = {.t = t, .c = c, .e = e};
    const struct json *messages = in->messages;
    size_t n = count_messages(in), systems = 0;
    enum chat_role role = CHAT_USER;
    int rc = 0;
    bool in_front = true;
    *last = (struct jinja_value){0};
    if (json_kind_of(messages) != JSON_ARRAY || n == 0)
        return err_set(e, ERR_FORMAT, "messages must be a list of at least one message");
    r.list = jinja_list(c, true);
    r.calls = jinja_dict(c, true);
    r.ids = jinja_dict(c, true);
    for (size_t i = 0; i < n && !rc; i++) {
        rc = take_message(&r, json_at(messages, i), &role);
        bool system = role == CHAT_SYSTEM || role == CHAT_DEVELOPER;
        systems += system;
        in_front = in_front && (!system || i == 0);
    }
    if (rc)
        return rc;
    struct jinja_value m = jinja_at(r.list, n - 1);
    bool words_last = role == CHAT_ASSISTANT && jinja_member(m, "tool_calls").kind == JINJA_ABSENT;
    bool merge = t->traits.system == CHAT_SYSTEM_NEVER   ? systems > 0
                 : t->traits.system == CHAT_SYSTEM_FIRST ? !in_front
                                                         : false;
    rc = place_messages(&r, &r.list);
    *out = r.list;
    if (!rc && merge)
        rc = merge_system(&r, out);
    if (!rc)
        rc = join_turns(&r, out);
    if (!rc && words_last)
        *last = jinja_at(*out, jinja_count(*out) - 1);
    return rc;
}
