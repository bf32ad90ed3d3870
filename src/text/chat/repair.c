// SPDX-License-Identifier: Apache-2.0
// From the turns and tools of a conversation to the values that a template takes. Every message is
// put into the rendering's values and changed there; the strings of the request stay marked as
// such. Names of roles are the template's own words: they are known ones.
#include "text/chat/impl.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "text/tools/write.h"

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

// What a request says, absent as nothing.
static struct jinja_value said(struct jinja_context *c, struct words w) {
    return jinja_string(c, w.s ? w.s : "", w.n, true);
}

static void add_text(struct jinja_context *c, struct jinja_value m, const char *key,
                     struct words w) {
    if (w.s)
        jinja_put_untrusted_member(c, m, key, said(c, w));
}

static void add_json(struct jinja_context *c, struct jinja_value m, const char *key,
                     const struct json *v) {
    if (v)
        jinja_put_untrusted_member(c, m, key, jinja_from_json(c, v, true));
}

static void add_bool(struct jinja_context *c, struct jinja_value m, const char *key, bool b) {
    struct jinja_value v = jinja_bool(b);
    v.untrusted = true;
    jinja_put_untrusted_member(c, m, key, v);
}

static void add_extras(struct jinja_context *c, struct jinja_value m, const struct extras *x,
                       const char *const *known) {
    for (int i = 0; i < x->n; i++)
        if (!words_among(known, x->at[i].key))
            add_json(c, m, x->at[i].key, x->at[i].value);
}

static bool is_text(const struct conversation_part *p) {
    return p->kind == PART_TEXT || p->kind == PART_REFUSAL;
}

// The content of a message: parts, of which texts count.
struct content {
    const struct conversation_part *parts;
    int n, texts;
    bool list; // of parts, else one text or nothing
};

static struct content content_of(const struct conversation_message *from) {
    struct content x = {from->parts, from->n_parts, 0,
                        from->result ? from->result->list : from->turn->list};
    for (int i = 0; i < x.n; i++) {
        x.texts += is_text(&x.parts[i]);
        x.list |= x.texts > 1 || x.parts[i].kind == PART_REFUSAL;
    }
    return x;
}

// The texts as one, with a line end between them.
static int join_texts(const struct repair *r, const struct content *x, struct jinja_value *out) {
    struct str s = {0};
    str_puts(&s, "");
    for (int i = 0, n = 0; i < x->n; i++) {
        if (!is_text(&x->parts[i]))
            continue;
        str_puts(&s, n++ ? "\n" : "");
        str_append(&s, x->parts[i].text.s ? x->parts[i].text.s : "", x->parts[i].text.n);
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
static struct jinja_value list_parts(const struct repair *r, const struct content *x) {
    struct jinja_value list = jinja_list(r->c, true);
    for (int i = 0; i < x->n; i++)
        if (is_text(&x->parts[i]))
            jinja_append(r->c, list, text_part(r, said(r->c, x->parts[i].text)));
    return list;
}

static int put_content(const struct repair *r, const struct content *x, struct jinja_value m,
                       enum conversation_role role, bool has_calls) {
    enum chat_parts parts = r->t->traits.parts[role];
    struct jinja_value out = jinja_none();
    bool may_lack = has_calls && r->t->traits.null_content;
    size_t n = 0;
    int rc = 0;
    if (x->list && parts != CHAT_PARTS_JOIN)
        out = list_parts(r, x);
    else if (x->list || x->texts)
        rc = join_texts(r, x, &out);
    else if (!may_lack)
        out = template_words(r, "");
    if (out.kind == JINJA_STRING)
        jinja_bytes(out, &n);
    if (may_lack && out.kind == JINJA_STRING && n == 0)
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

// Reasoning of an earlier reply under the names that templates read.
static int put_reasoning_names(const struct repair *r, const struct conversation_turn *t,
                               struct jinja_value m) {
    struct str text = {0};
    for (int i = 0; i < t->n_parts; i++)
        if (t->parts[i].kind == PART_REASONING && t->parts[i].text.n)
            str_append(&text, t->parts[i].text.s, t->parts[i].text.n);
    for (int i = 0; i < 3; i++)
        jinja_remove_member(m, reasoning_names[i]);
    for (int i = 0; text.len && i < 3; i++)
        put_member(r, m, reasoning_names[i], jinja_string(r->c, text.data, text.len, true));
    int rc =
        text.failed ? err_set(r->e, ERR_MEMORY, "no memory for the reasoning of a message") : 0;
    str_fini(&text);
    return rc;
}

// A text of JSON as a value; the text itself when it is none, or no object.
static int parse_arguments(const struct repair *r, struct words text, struct jinja_value *out) {
    const struct json_rules rules = {.values = 1 << 20, .objects = 1 << 16, .big_integers = true};
    struct json *parsed = NULL;
    int rc = text.n > 0 ? json_parse_with(&parsed, text.s, text.n, &rules, r->e) : 0;
    if (rc == ERR_MEMORY)
        return rc;
    bool object = !rc && json_kind_of(parsed) == JSON_OBJECT;
    *out = text.n == 0 ? jinja_dict(r->c, true)
           : object    ? jinja_from_json(r->c, parsed, true)
                       : said(r->c, text);
    json_free(parsed);
    return 0;
}

static int put_arguments(const struct repair *r, const struct conversation_part *p,
                         struct jinja_value function) {
    struct jinja_value out = {0};
    int rc = 0;
    if (p->object)
        out = jinja_from_json(r->c, p->raw, true);
    if (r->t->traits.text_arguments && p->object)
        rc = jinja_json(r->c, out, &out, r->e);
    else if (r->t->traits.text_arguments)
        out = p->text.s ? said(r->c, p->text) : template_words(r, "{}");
    else if (!p->object)
        rc = parse_arguments(r, p->text, &out);
    if (!rc && (p->object || p->text.s))
        jinja_put_untrusted_member(r->c, function, "arguments", out);
    else if (!rc)
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
static struct jinja_value take_id(struct repair *r, struct words id) {
    char made[24];
    if (id.s && (!r->t->traits.short_ids || is_short(id.s)))
        return said(r->c, id);
    // Nine characters, of which the number is the last eight; beyond that they repeat.
    snprintf(made, sizeof made, r->t->traits.short_ids ? "c%08lld" : "call_%lld",
             (long long)(r->n_calls % 100000000));
    struct jinja_value out = jinja_string(r->c, made, strlen(made), true);
    if (id.s)
        put_member(r, r->ids, id.s, out);
    return out;
}

// A call whose values are still to come, at the places that they have then. All names of one in
// the older form are the template's.
static struct jinja_value begin_call(const struct repair *r, const struct conversation_part *p) {
    struct jinja_value out = jinja_dict(r->c, true), function = jinja_dict(r->c, true);
    void (*put)(struct jinja_context *, struct jinja_value, const char *, struct jinja_value) =
        p->older ? jinja_put_member : jinja_put_untrusted_member;
    if (p->id.s)
        put(r->c, out, "id", jinja_none());
    put(r->c, out, "type", jinja_none());
    if (p->older)
        put(r->c, out, "id", jinja_none());
    put(r->c, out, "function", function);
    put(r->c, function, "name", said(r->c, p->name));
    if (p->older)
        put(r->c, function, "arguments", jinja_none());
    add_extras(r->c, out, &p->extras, chat_members[OF_CALL]);
    return out;
}

static int put_tool_call(struct repair *r, const struct conversation_part *p,
                         struct jinja_value list) {
    struct jinja_value out =
        p->as_came ? jinja_from_json(r->c, p->as_came, true) : begin_call(r, p);
    struct jinja_value function = jinja_member(out, "function"), id = take_id(r, p->id);
    put_member(r, out, "type", template_words(r, "function"));
    put_member(r, out, "id", id);
    if (p->id.s)
        put_member(r, r->calls, p->id.s, jinja_member(function, "name"));
    if (p->older)
        r->older = id;
    r->n_calls++;
    jinja_append(r->c, list, out);
    return put_arguments(r, p, function);
}

static int put_calls(struct repair *r, const struct conversation_turn *t, struct jinja_value m) {
    struct jinja_value list = jinja_list(r->c, true);
    bool older = false; // then an empty list that came is replaced at its place
    int rc = 0;
    for (int i = 0; i < t->n_parts && !rc; i++) {
        if (t->parts[i].kind != PART_CALL)
            continue;
        older |= t->parts[i].older;
        rc = put_tool_call(r, &t->parts[i], list);
    }
    jinja_remove_member(m, older ? "function_call" : "tool_calls");
    if (jinja_count(list) > 0)
        put_member(r, m, "tool_calls", list);
    return rc;
}

// A result: its id as that of the call was changed, and the name of what was called.
static void put_tool_result(const struct repair *r, struct jinja_value m) {
    const char *id = jinja_bytes(jinja_member(m, "tool_call_id"), NULL);
    struct jinja_value changed = id ? jinja_member(r->ids, id) : (struct jinja_value){0};
    struct jinja_value name = id ? jinja_member(r->calls, id) : (struct jinja_value){0};
    if (changed.kind == JINJA_STRING)
        put_member(r, m, "tool_call_id", changed);
    if (name.kind == JINJA_STRING && jinja_member(m, "name").kind == JINJA_ABSENT)
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

// Reasoning part by part, where it has several.
static bool add_details(const struct repair *r, const struct conversation_turn *t,
                        struct jinja_value m) {
    struct jinja_value list = jinja_list(r->c, true);
    for (int i = 0; i < t->n_parts; i++) {
        struct jinja_value detail = jinja_dict(r->c, true);
        if (t->parts[i].kind != PART_REASONING)
            continue;
        add_text(r->c, detail, "type", words_of_text("reasoning.text"));
        add_text(r->c, detail, "text", t->parts[i].text);
        jinja_append(r->c, list, detail);
    }
    if (jinja_count(list) > 1)
        jinja_put_untrusted_member(r->c, m, "reasoning_details", list);
    return jinja_count(list) > 1;
}

// A message with what a template may read of it besides what is put later: as it came, or members
// at the places that they have in all interfaces.
static struct jinja_value begin_message(const struct repair *r,
                                        const struct conversation_message *from, bool content) {
    const struct conversation_turn *t = from->turn;
    const struct conversation_part *result = from->result;
    enum chat_members known = result ? OF_RESULT : OF_MESSAGE;
    if (t->as_came) {
        struct jinja_value m = jinja_from_json(r->c, t->as_came, true);
        json_each(t->as_came, drop_null, &m);
        return m;
    }
    struct jinja_value m = jinja_dict(r->c, true);
    jinja_put_untrusted_member(r->c, m, "role", jinja_none());
    if (t->role == CONVERSATION_ASSISTANT)
        known = add_details(r, t, m) ? OF_DETAILED_ANSWER : OF_ANSWER;
    if (result) {
        add_text(r->c, m, "tool_call_id", result->id);
        if (result->custom)
            add_text(r->c, m, "type", words_of_text("custom"));
        if (result->is_error)
            add_bool(r->c, m, "is_error", true);
    }
    if (content)
        jinja_put_untrusted_member(r->c, m, "content", jinja_none());
    add_extras(r->c, m, result ? &result->extras : &t->extras, chat_members[known]);
    return m;
}

static bool has_calls(const struct conversation_turn *t) {
    bool any = false;
    for (int i = 0; i < t->n_parts; i++)
        any |= t->parts[i].kind == PART_CALL;
    return any;
}

static enum conversation_role role_for(const struct repair *r, enum conversation_role role) {
    if (role == CONVERSATION_DEVELOPER && !r->t->traits.developer)
        return CONVERSATION_SYSTEM;
    return role == CONVERSATION_FUNCTION ? CONVERSATION_TOOL : role;
}

static int take_message(struct repair *r, const struct conversation_message *from) {
    const struct conversation_turn *t = from->turn;
    enum conversation_role role = role_for(r, t->role);
    bool answer = role == CONVERSATION_ASSISTANT, calls = answer && has_calls(t);
    struct content content = content_of(from);
    struct jinja_value m = begin_message(r, from, content.list || content.texts);
    put_member(r, m, "role", template_words(r, conversation_roles[role]));
    int rc = answer ? put_reasoning_names(r, t, m) : 0;
    bool thought = jinja_member(m, reasoning_names[0]).kind == JINJA_STRING;
    if (calls && thought && r->t->traits.one_of_both)
        content = (struct content){0};
    if (!rc)
        rc = put_content(r, &content, m, role, calls);
    if (!rc && answer)
        rc = put_calls(r, t, m);
    if (role == CONVERSATION_TOOL)
        put_tool_result(r, m);
    jinja_append(r->c, r->list, m);
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

static bool is_role(struct jinja_value m, enum conversation_role role) {
    size_t n;
    const char *name = jinja_bytes(jinja_member(m, "role"), &n);
    return name && !strcmp(name, conversation_roles[role]);
}

// A text as content in the form that the template takes.
static struct jinja_value content_value(const struct repair *r, struct jinja_value text,
                                        enum conversation_role role) {
    if (r->t->traits.parts[role] != CHAT_PARTS_NEED)
        return text;
    struct jinja_value list = jinja_list(r->c, true);
    jinja_append(r->c, list, text_part(r, text));
    return list;
}

static struct jinja_value as_content(const struct repair *r, const struct str *text,
                                     enum conversation_role role) {
    return content_value(r, jinja_string(r->c, text->data, text->len, true), role);
}

static bool is_system(struct jinja_value m) {
    return is_role(m, CONVERSATION_SYSTEM) || is_role(m, CONVERSATION_DEVELOPER);
}

// The first message of the assistant; their number where there is none.
static size_t first_answer(const struct repair *r) {
    size_t i = 0;
    while (i < jinja_count(r->list) && !is_role(jinja_at(r->list, i), CONVERSATION_ASSISTANT))
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
static struct jinja_value first_of(const struct repair *r, enum conversation_role role, size_t n) {
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
    bool tool = n && is_role(last, CONVERSATION_TOOL), user = n && is_role(last, CONVERSATION_USER);
    struct str text = {0};
    struct str *into = tool || user ? &text : kept;
    if (into == &text)
        add_words(&text, last);
    for (size_t i = from; i < to; i++)
        add_words(into, jinja_at(r->list, i));
    str_puts(into, "");
    int rc = into->failed ? no_message_memory(r) : 0;
    if (!rc && into == &text)
        put_member(r, last, "content",
                   as_content(r, &text, tool ? CONVERSATION_TOOL : CONVERSATION_USER));
    str_fini(&text);
    return rc;
}

// A message of these words alone.
static struct jinja_value new_message(const struct repair *r, enum conversation_role role,
                                      const struct str *text) {
    struct jinja_value m = jinja_dict(r->c, true);
    put_member(r, m, "role", template_words(r, conversation_roles[role]));
    put_member(r, m, "content", as_content(r, text, role));
    return m;
}

// What was kept stands before the words of the user, or is a message of theirs. m: the next one of
// the conversation; absent at its end.
static int put_late(const struct repair *r, struct jinja_value list, struct jinja_value m,
                    struct str *kept) {
    bool user = m.kind != JINJA_ABSENT && is_role(m, CONVERSATION_USER);
    if (kept->len == 0)
        return 0;
    if (user) {
        add_words(kept, m);
    } else {
        jinja_append(r->c, list, new_message(r, CONVERSATION_USER, kept));
    }
    int rc = kept->failed ? no_message_memory(r) : 0;
    if (!rc && user)
        put_member(r, m, "content", as_content(r, kept, CONVERSATION_USER));
    str_clear(kept);
    return rc;
}

// Where the template takes system messages in front only: those before the first answer become one
// there, or stand before the words of the first user. Later ones stay at their place as words of
// its neighbour, or the prompt would change from its first tokens on with each of them.
static int merge_system(const struct repair *r, struct jinja_value *out) {
    bool never = r->t->traits.system == CHAT_SYSTEM_NEVER;
    struct jinja_value list = jinja_list(r->c, true);
    struct jinja_value into = first_of(r, CONVERSATION_USER, jinja_count(r->list));
    size_t answer = first_answer(r);
    struct str text = {0}, kept = {0};
    system_words(r, &text);
    if (never && into.kind == JINJA_ABSENT && text.len && !text.failed)
        jinja_append(r->c, list, new_message(r, CONVERSATION_USER, &text));
    if (never && into.kind != JINJA_ABSENT && text.len) {
        add_words(&text, into);
    } else if (!never) {
        struct jinja_value first = first_of(r, CONVERSATION_SYSTEM, answer);
        into = first.kind != JINJA_ABSENT ? first : first_of(r, CONVERSATION_DEVELOPER, answer);
        if (text.len)
            jinja_append(r->c, list, into);
    }
    int rc = text.failed ? no_message_memory(r) : 0;
    if (!rc && text.len && into.kind != JINJA_ABSENT)
        put_member(r, into, "content",
                   as_content(r, &text, never ? CONVERSATION_USER : CONVERSATION_SYSTEM));
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

// A call as the writer of calls takes it.
static int call_text(const struct repair *r, struct jinja_value function,
                     struct tool_call_text *out) {
    struct jinja_value name = jinja_member(function, "name"), json = {0};
    struct jinja_value arguments = jinja_member(function, "arguments");
    int rc = jinja_json(r->c, name, &json, r->e);
    if (!rc && arguments.kind != JINJA_STRING)
        rc = jinja_json(r->c, arguments, &arguments, r->e);
    if (rc)
        return rc;
    const char *plain = jinja_bytes(name, &out->n_name);
    const char *quoted = jinja_bytes(json, &out->n_name_json);
    const char *text = jinja_bytes(arguments, &out->n_arguments);
    out->name = plain ? plain : "";
    out->name_json = quoted ? quoted : "";
    out->arguments = text ? text : "";
    return 0;
}

// Calls after the words of their message, for a template that has none.
static int say_calls(const struct repair *r, struct jinja_value m) {
    enum tool_family family = r->t->traits.described ? r->t->calls : TOOLS_HERMES;
    struct jinja_value calls = jinja_member(m, "tool_calls");
    size_t n = jinja_count(calls);
    struct tool_call_text *list = calloc(n + 1, sizeof *list);
    struct str text = {0};
    int rc = list ? 0 : no_message_memory(r);
    append_words(&text, jinja_member(m, "content"));
    str_puts(&text, text.len ? "\n" : "");
    for (size_t i = 0; i < n && !rc; i++)
        rc = call_text(r, jinja_member(jinja_at(calls, i), "function"), &list[i]);
    if (!rc)
        rc = tool_calls_write(&text, family, list, (int)n, r->e);
    rc = rc ? rc : text.failed ? no_message_memory(r) : 0;
    if (!rc)
        put_member(r, m, "content", as_content(r, &text, CONVERSATION_ASSISTANT));
    jinja_remove_member(m, "tool_calls");
    free(list);
    str_fini(&text);
    return rc;
}

// What the system is told of tools: the program's words, which are trusted as the template's are,
// around the declarations of the request, one a line.
static int description_of_tools(const struct repair *r, const struct conversation *v,
                                struct jinja_value *out) {
    struct jinja_value tools = {0}, text[3] = {{0}};
    struct str begin = {0}, end = {0};
    tool_description_begin(&begin);
    int rc = chat_tools(r->c, v, &tools, r->e);
    if (!rc)
        rc = tool_description_end(&end, r->t->calls, r->e);
    if (!rc && (begin.failed || end.failed))
        rc = no_message_memory(r);
    if (!rc) {
        text[0] = jinja_string(r->c, begin.data, begin.len, false);
        text[2] = jinja_string(r->c, end.data, end.len, false);
    }
    str_clear(&begin);
    for (size_t i = 0; !rc && i < jinja_count(tools); i++) {
        struct jinja_value line = {0};
        size_t n = 0;
        rc = jinja_json(r->c, jinja_at(tools, i), &line, r->e);
        const char *s = jinja_bytes(line, &n);
        str_append(&begin, s ? s : "", n);
        str_putc(&begin, '\n');
    }
    if (!rc && begin.failed)
        rc = no_message_memory(r);
    if (!rc) {
        text[1] = jinja_string(r->c, begin.data, begin.len, true);
        *out = jinja_joined(r->c, text, 3);
    }
    str_fini(&begin);
    str_fini(&end);
    return rc;
}

// The tools after the words of a system message in front, or as one, for a template that does not
// print them. It is made in any case and put where the template takes such messages.
static int describe_tools(struct repair *r, const struct conversation *v) {
    struct jinja_value list = jinja_list(r->c, true), told = {0};
    struct jinja_value first =
        jinja_count(r->list) ? jinja_at(r->list, 0) : (struct jinja_value){0};
    struct str before = {0};
    int rc = description_of_tools(r, v, &told);
    if (first.kind != JINJA_DICT || !is_system(first)) {
        first = jinja_dict(r->c, true);
        put_member(r, first, "role", template_words(r, conversation_roles[CONVERSATION_SYSTEM]));
        jinja_append(r->c, list, first);
    } else {
        append_words(&before, jinja_member(first, "content"));
        str_puts(&before, before.len ? "\n\n" : "");
    }
    if (!rc && before.failed)
        rc = no_message_memory(r);
    if (!rc && before.len) {
        const struct jinja_value parts[] = {jinja_string(r->c, before.data, before.len, true),
                                            told};
        told = jinja_joined(r->c, parts, 2);
    }
    for (size_t i = 0; i < jinja_count(r->list); i++)
        jinja_append(r->c, list, jinja_at(r->list, i));
    if (!rc)
        put_member(r, first, "content", content_value(r, told, CONVERSATION_SYSTEM));
    r->list = list;
    str_fini(&before);
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
        *m = new_message(r, CONVERSATION_USER, &text);
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
    for (*end = i + 1; *end < jinja_count(list) && is_role(jinja_at(list, *end), CONVERSATION_TOOL);
         ++*end) {
        const char *id = jinja_bytes(jinja_member(jinja_at(list, *end), "tool_call_id"), &n);
        if (id)
            put_member(r, results, id, jinja_at(list, *end));
    }
    for (size_t k = 0; k < jinja_count(calls); k++) {
        const struct str nothing = {.data = ""};
        struct jinja_value part = k ? new_message(r, CONVERSATION_ASSISTANT, &nothing) : m;
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
        bool system = is_system(m), answer = is_role(m, CONVERSATION_ASSISTANT);
        if (answer && is->plain_calls && jinja_count(jinja_member(m, "tool_calls")) > 0)
            rc = say_calls(r, m);
        if (!rc && is->plain_results && is_role(m, CONVERSATION_TOOL))
            rc = say_result(r, &m);
        if (system && n == 1 && is->lone_system)
            put_member(r, m, "role", template_words(r, conversation_roles[CONVERSATION_USER]));
        if (answer && !spoken && is->user_first)
            jinja_append(r->c, out, new_message(r, CONVERSATION_USER, &(struct str){.data = ""}));
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
    enum conversation_role role = is_role(into, CONVERSATION_TOOL)   ? CONVERSATION_TOOL
                                  : is_role(into, CONVERSATION_USER) ? CONVERSATION_USER
                                                                     : CONVERSATION_ASSISTANT;
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
    if (is_role(m, CONVERSATION_USER))
        return (is->join_users && is_role(last, CONVERSATION_USER)) ||
               (is->user_after && is_role(last, CONVERSATION_TOOL));
    return is->join_answers && is_role(m, CONVERSATION_ASSISTANT) &&
           is_role(last, CONVERSATION_ASSISTANT) &&
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

// Whether a turn is the assistant's and says nothing at all.
static bool is_empty_answer(const struct conversation_turn *t) {
    size_t n = 0;
    for (int i = 0; i < t->n_parts; i++)
        n += t->parts[i].text.n;
    return t->role == CONVERSATION_ASSISTANT && n == 0 && !has_calls(t);
}

// How many turns there are to render: there is no reply to go on with in an empty one.
static int count_turns(const struct chat_input *in) {
    int n = in->said->n_turns;
    while (in->add_generation_prompt && !in->keep_last && n > 1 &&
           is_empty_answer(&in->said->turns[n - 1]))
        n--;
    return n;
}

int chat_repair(const struct chat_template *t, struct jinja_context *c, const struct chat_input *in,
                struct jinja_value *out, struct jinja_value *last, struct err *e) {
    struct chat_template with = *t;
    struct repair r = {.t = &with, .c = c, .e = e};
    struct conversation_message m = {0};
    int n = count_turns(in), systems = 0, rc = 0;
    bool in_front = true;
    *last = (struct jinja_value){0};
    if (in->said->failed)
        return err_set(e, ERR_MEMORY, "no memory for the conversation");
    if (n == 0)
        return err_set(e, ERR_FORMAT, "messages must be a list of at least one message");
    r.list = jinja_list(c, true);
    r.calls = jinja_dict(c, true);
    r.ids = jinja_dict(c, true);
    bool describe = t->traits.described && in->said->n_tools > 0;
    with.traits.plain_results |= describe && t->traits.plain_calls; // both in one format
    while (!rc && conversation_next(in->said, &m) && m.at < n) {
        bool system = is_system_role(m.turn->role);
        rc = take_message(&r, &m);
        systems += system;
        in_front = in_front && (!system || m.at == 0);
    }
    if (!rc && describe)
        rc = describe_tools(&r, in->said);
    if (rc)
        return rc;
    systems += describe;
    const struct conversation_turn *end = &in->said->turns[n - 1];
    bool words_last = end->role == CONVERSATION_ASSISTANT && !has_calls(end);
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

// Tools.

// The arguments of a tool that takes free text.
static struct jinja_value input_schema(struct jinja_context *c) {
    struct jinja_value schema = jinja_dict(c, true), properties = jinja_dict(c, true);
    struct jinja_value input = jinja_dict(c, true), required = jinja_list(c, true);
    add_text(c, schema, "type", words_of_text("object"));
    add_text(c, input, "type", words_of_text("string"));
    jinja_put_untrusted_member(c, properties, "input", input);
    jinja_put_untrusted_member(c, schema, "properties", properties);
    jinja_append(c, required, said(c, words_of_text("input")));
    jinja_put_untrusted_member(c, schema, "required", required);
    return schema;
}

// A tool that takes free text, as a function with one argument.
static int custom_tool(struct jinja_context *c, const struct conversation_tool *t,
                       struct jinja_value f, struct err *e) {
    struct words definition = words_of(json_get(t->format, "definition"));
    struct str about = {0};
    if (t->description.n)
        str_append(&about, t->description.s, t->description.n);
    if (definition.n) {
        str_puts(&about, about.len ? "\n\n" : "");
        str_puts(&about, "The input has to match this grammar:\n");
        str_append(&about, definition.s, definition.n);
    }
    int rc = about.failed ? err_set(e, ERR_MEMORY, "no memory for the tools of a request") : 0;
    add_text(c, f, "name", t->name);
    add_text(c, f, "description", (struct words){about.data ? about.data : "", about.len});
    jinja_put_untrusted_member(c, f, "parameters", input_schema(c));
    str_fini(&about);
    return rc;
}

static void function_tool(struct jinja_context *c, const struct conversation_tool *t,
                          struct jinja_value f) {
    static const char *const known[] = {"name",   "description", "parameters",
                                        "strict", "type",        NULL};
    add_text(c, f, "name", t->name);
    add_text(c, f, "description", t->description);
    add_json(c, f, "parameters", t->schema);
    if (t->strict)
        add_bool(c, f, "strict", t->strict > 0);
    add_extras(c, f, &t->extras, known);
}

int chat_tools(struct jinja_context *c, const struct conversation *v, struct jinja_value *out,
               struct err *e) {
    int rc = 0;
    *out = jinja_list(c, true);
    for (int i = 0; i < v->n_tools && !rc; i++) {
        const struct conversation_tool *t = &v->tools[i];
        struct jinja_value tool = jinja_dict(c, true), f = jinja_dict(c, true);
        if (t->kind == TOOL_OTHER || t->chat) {
            jinja_append(c, *out, jinja_from_json(c, t->raw, true));
            continue;
        }
        add_text(c, tool, "type", words_of_text("function"));
        jinja_put_untrusted_member(c, tool, "function", f);
        jinja_append(c, *out, tool);
        if (t->kind == TOOL_CUSTOM)
            rc = custom_tool(c, t, f, e);
        else
            function_tool(c, t, f);
    }
    return rc;
}
