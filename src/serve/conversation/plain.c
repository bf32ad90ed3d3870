// SPDX-License-Identifier: Apache-2.0
// Conversations for templates; see plain.h.
#include "serve/conversation/plain.h"

#include <stdio.h>
#include <string.h>

#include "base/map.h"
#include "serve/conversation/interfaces.h"
#include "serve/reply/opaque.h"

// Lines that clients put in front of their instructions and that change with each request: left in
// a prompt, it would be different from its first tokens on, and all of it would have to be read
// again. Claude Code: its version and a checksum of the request.
static const char billing[] = "x-anthropic-billing-header:";

// Bytes of such lines at the beginning of a text, their line ends among them.
static size_t volatile_length(const char *s, size_t n) {
    size_t at = 0, len = sizeof billing - 1;
    while (n - at >= len && memcmp(s + at, billing, len) == 0) {
        const char *end = memchr(s + at, '\n', n - at);
        at = end ? (size_t)(end + 1 - s) : n;
    }
    return at;
}

static const char *where_of(const struct conversation *v) {
    return v->where ? v->where : "messages";
}

// The id of a call, of kinds that have no name here, too.
static struct words call_id(const struct conversation_part *p) {
    struct words id = p->kind == PART_CALL ? p->id : (struct words){0};
    if (p->kind == PART_OTHER) {
        id = words_of(json_get(p->raw, "call_id"));
        id = id.s ? id : words_of(json_get(p->raw, "id"));
    }
    return id;
}

// In the words that OpenAI's servers have for it, which clients look for.
static bool refuse_lost_result(const char *where, struct words id, struct api_error *x) {
    api_refuse(x, where,
               "No tool call found for function call output with call_id %.64s in %s: send the "
               "call, too, or leave the result out",
               id.s, where);
    struct err clean;
    err_set(&clean, 0, "%.64s", id.s);
    snprintf(x->lost_call, sizeof x->lost_call, "%.67s", clean.text);
    return false;
}

// Refuses a result with an id that no call before it has, as official interfaces do, so that a
// client that has lost a call learns of it. A result without an id belongs to whatever stands
// before it. Any size of conversation in about the time of reading it.
static bool check_result_ids(const struct conversation *v, struct api_error *x) {
    struct map calls = {0};
    uint32_t any;
    bool ok = true;
    for (int i = 0; i < v->n_turns && ok; i++)
        for (int k = 0; k < v->turns[i].n_parts && ok; k++) {
            const struct conversation_part *p = &v->turns[i].parts[k];
            struct words id = call_id(p);
            if (id.n && map_insert(&calls, id.s, id.n, 0) < 0) {
                api_fail(x, 503, NULL, "no memory for the conversation");
                ok = false;
            }
            if (ok && p->kind == PART_RESULT && p->id.n &&
                !map_find(&calls, p->id.s, p->id.n, &any))
                ok = refuse_lost_result(where_of(v), p->id, x);
        }
    map_fini(&calls);
    return ok;
}

struct plain {
    const struct conversation *from; // turns and tools as they came
    struct conversation *to;         // the same conversation, with new ones
    struct api_error *x;
    int turn; // that is being read
};

// The text after volatile lines; absent where nothing is left.
static struct words without_volatile(struct words t) {
    size_t n = volatile_length(t.s, t.n);
    return n == t.n ? (struct words){0} : (struct words){t.s + n, t.n - n};
}

static void add_line(struct str *out, const struct json *text) {
    struct words t = words_of(text);
    if (!t.n)
        return;
    str_puts(out, out->len ? "\n" : "");
    str_append(out, t.s, t.n);
}

// The words of a block within others, as far as it has any: of documents and of what was found by
// a search.
static void add_words(struct str *out, const struct json *raw, int depth) {
    static const char *const inner[] = {"source", "content"};
    if (depth > 8)
        return;
    if (json_kind_of(raw) == JSON_ARRAY)
        for (size_t i = 0; i < json_len(raw); i++)
            add_words(out, json_at(raw, i), depth + 1);
    add_line(out, raw);
    add_line(out, json_get(raw, "title"));
    add_line(out, json_get(raw, "context"));
    add_line(out, json_get(raw, "text"));
    if (words_equal(words_of(json_get(raw, "type")), "text"))
        add_line(out, json_get(raw, "data"));
    for (size_t i = 0; i < 2; i++)
        add_words(out, json_get(raw, inner[i]), depth + 1);
}

// What stands for a part that is no text: its own words where it has some, else its name.
static struct words text_in_place(struct plain *r, const struct json *raw) {
    struct words text = words_of(json_get(raw, "text"));
    const char *type = json_str(json_get(raw, "type"), NULL);
    struct str all = {0};
    if (text.s)
        return text;
    add_words(&all, raw, 0);
    if (!all.len)
        str_printf(&all, "[%.60s]", type ? type : "unknown");
    return conversation_take(r->to, &all);
}

// {"input": text}, the arguments of a call of a custom tool.
static struct words input_object(struct plain *r, struct words text) {
    struct json_writer w = {0};
    jw_begin(&w, '{');
    jw_key_text(&w, "input", text.s, text.n);
    jw_end(&w, '}');
    return conversation_take(r->to, &w.out);
}

// Arguments as templates read them, an object: what is none, as when a call was cut off, is one
// text.
static struct words arguments_object(struct plain *r, struct words text) {
    const struct json_rules rules = {.depth = 256, .big_integers = true};
    struct json *v = NULL;
    bool blank = text.n == strspn(text.s ? text.s : "", " \t\r\n");
    int rc = blank ? 0 : json_parse_with(&v, text.s, text.n, &rules, NULL);
    bool object = !rc && json_kind_of(v) == JSON_OBJECT;
    r->to->failed |= rc == ERR_MEMORY; // that is not to say that it is no object
    json_free(v);
    return object ? text : blank ? words_of_text("{}") : input_object(r, text);
}

static bool refuse_media(struct plain *r, int part, const struct json *raw) {
    char place[64];
    const char *type = json_str(json_get(raw, "type"), NULL);
    snprintf(place, sizeof place, "%s[%d].content[%d]", where_of(r->to), r->turn, part);
    return api_refuse(r->x, place, "%s is of type %.40s, and this model reads text only", place,
                      type);
}

static bool ends_in(const char *s, const char *end) {
    size_t n = strlen(s), m = strlen(end);
    return n > m && !strcmp(s + n - m, end);
}

// The members of an item of an unknown kind that say something: not what every item has, nothing
// empty.
struct summary {
    struct json_writer w; // all of them, in an object
    const char *const *usual;
    const struct json *only; // the usual one
    int n, n_usual;
};

static int summarise_member(void *arg, const char *key, size_t n, const struct json *v) {
    static const char *const every[] = {"type", "id", "call_id", "caller", NULL};
    struct summary *t = arg;
    enum json_kind k = json_kind_of(v);
    bool done = !strcmp(key, "status") &&
                (words_equal(words_of(v), "completed") || words_equal(words_of(v), "in_progress"));
    (void)n;
    if (k == JSON_NULL || words_among(every, key) || done ||
        ((k == JSON_ARRAY || k == JSON_OBJECT) && json_len(v) == 0))
        return 0;
    t->n++;
    if (words_among(t->usual, key)) {
        t->n_usual++;
        t->only = v;
    }
    jw_key_value(&t->w, key, v);
    return 0;
}

// What an item says: its usual member where that is all, else *all, an object of all of them. NULL
// where there is more, or nothing.
static const struct json *summarise_item(struct plain *r, const struct json *raw,
                                         const char *const *usual, struct words *all) {
    struct summary t = {.usual = usual};
    jw_begin(&t.w, '{');
    json_each(raw, summarise_member, &t);
    jw_end(&t.w, '}');
    *all = (struct words){0};
    if (t.n > 0 && (t.n > 1 || t.n_usual == 0) && !t.w.out.failed)
        *all = conversation_copy(r->to, t.w.out.data, t.w.out.len);
    r->to->failed |= t.w.out.failed;
    str_fini(&t.w.out);
    return all->s ? NULL : t.only;
}

// Makes p a call of a kind that is unknown here: its name, and what its members say. False: it is
// none.
static bool make_unknown_call(struct plain *r, struct conversation_part *p) {
    static const char *const asked[] = {"arguments", "action", "operation", "input", NULL};
    const char *type = conversation_type_of(p->raw);
    struct words all;
    if (!ends_in(type, "_call"))
        return false;
    const struct json *what = summarise_item(r, p->raw, asked, &all);
    *p = (struct conversation_part){.kind = PART_CALL,
                                    .id = call_id(p),
                                    .name = conversation_copy(r->to, type, strlen(type) - 5),
                                    .text = all.s ? all
                                            : json_kind_of(what) == JSON_OBJECT
                                                ? conversation_printed(r->to, what)
                                            : what ? input_object(r, words_of(what))
                                                   : words_of_text("{}")};
    return true;
}

// The words of a result's contents.
static void make_plain_contents(struct plain *r, struct conversation_part *result) {
    struct conversation_part *from = result->parts;
    int n = result->n_parts;
    result->parts = NULL;
    result->n_parts = result->cap_parts = 0;
    for (int i = 0; i < n; i++) {
        struct conversation_part *q = conversation_inner(r->to, result, PART_TEXT);
        if (q)
            q->text = from[i].raw ? text_in_place(r, from[i].raw) : from[i].text;
    }
}

static void make_unknown_result(struct plain *r, struct conversation_part *p) {
    static const char *const usual[] = {"output", NULL};
    struct words all;
    const struct json *raw = p->raw, *output = summarise_item(r, raw, usual, &all);
    struct words text = all.s ? all : words_of(output);
    if (!text.s)
        text = output ? conversation_printed(r->to, output) : text_in_place(r, raw);
    *p = (struct conversation_part){.kind = PART_RESULT, .id = call_id(p)};
    struct conversation_part *q = conversation_inner(r->to, p, PART_TEXT);
    if (q)
        q->text = text;
}

// What was encoded here is what was thought, whatever words a client has put with it.
static void make_plain_reasoning(struct plain *r, struct conversation_part *p) {
    struct words text = p->text.n ? p->text : p->summary;
    struct str opened = {0};
    if (p->signature.n && opaque_decode(p->signature.s, p->signature.n, &opened) && opened.len)
        text = conversation_copy(r->to, opened.data, opened.len);
    r->to->failed |= opened.failed;
    str_fini(&opened);
    *p = (struct conversation_part){.kind = PART_REASONING, .text = text};
}

// Group and name of a tool in one word.
static struct words join_name(struct conversation *v, struct words group, struct words name) {
    bool parted = group.n >= 2 && !memcmp(group.s + group.n - 2, "__", 2);
    struct str s = {0};
    str_append(&s, group.s, group.n);
    str_puts(&s, parted ? "" : "__");
    str_append(&s, name.s ? name.s : "", name.n);
    return conversation_take(v, &s);
}

// The name that a call has among the plain tools.
static struct words plain_call_name(struct plain *r, const struct conversation_part *p) {
    for (int i = 0; i < p->extras.n; i++) {
        struct words group = words_of(p->extras.at[i].value);
        if (!strcmp(p->extras.at[i].key, "namespace") && group.n)
            return join_name(r->to, group, p->name);
    }
    return p->name;
}

static bool is_group(const struct json *tool) {
    return words_equal(words_of(json_get(tool, "type")), "namespace") &&
           words_of(json_get(tool, "name")).n > 0 &&
           json_kind_of(json_get(tool, "tools")) == JSON_ARRAY;
}

bool conversation_part_name(const struct json *tools, struct words *name, struct words *group) {
    for (size_t i = 0; i < json_len(tools); i++) {
        const struct json *list = json_get(json_at(tools, i), "tools");
        struct words in = words_of(json_get(json_at(tools, i), "name"));
        for (size_t k = 0; is_group(json_at(tools, i)) && k < json_len(list); k++) {
            struct words own = words_of(json_get(json_at(list, k), "name"));
            size_t mid = in.n >= 2 && !memcmp(in.s + in.n - 2, "__", 2) ? 0 : 2;
            if (!own.n || name->n != in.n + mid + own.n || memcmp(name->s, in.s, in.n) != 0 ||
                memcmp(name->s + in.n, "__", mid) != 0 ||
                memcmp(name->s + in.n + mid, own.s, own.n) != 0)
                continue;
            *name = own;
            *group = in;
            return true;
        }
    }
    return false;
}

// The tools of a group as tools of their own.
static void add_group_tools(struct plain *r, const struct json *group) {
    const struct json *list = json_get(group, "tools");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *from = json_at(list, i);
        struct words name = words_of(json_get(from, "name"));
        struct words type = words_of(json_get(from, "type"));
        bool custom = words_equal(type, "custom");
        struct conversation_tool *t = NULL;
        if (name.n && (custom || !type.s || words_equal(type, "function")))
            t = conversation_tool(r->to, custom ? TOOL_CUSTOM : TOOL_FUNCTION);
        if (!t)
            continue;
        t->name = join_name(r->to, words_of(json_get(group, "name")), name);
        t->description = words_of(json_get(from, "description"));
        t->schema = custom ? NULL : json_get(from, "parameters");
        t->format = custom ? json_get(from, "format") : NULL;
    }
}

// A part of a kind that says nothing to the model, such as a summary only its maker can read.
static bool is_mute(const struct conversation_turn *t, const struct conversation_part *p) {
    return p->kind == PART_OTHER && t->role == CONVERSATION_ASSISTANT && t->n_parts == 1 &&
           t->extras.n == 0 && !json_str(json_get(p->raw, "text"), NULL) &&
           !ends_in(conversation_type_of(p->raw), "_call");
}

// A part of a turn of the system that changes what tools there are, which the tools themselves
// show.
static bool is_change(const struct conversation_turn *t, const struct conversation_part *p) {
    struct words type = words_of(json_get(p->raw, "type"));
    return p->kind == PART_OTHER && t->role == CONVERSATION_SYSTEM &&
           (words_equal(type, "tool_addition") || words_equal(type, "tool_removal"));
}

static bool is_all_changes(const struct conversation_turn *t) {
    int n = 0;
    while (n < t->n_parts && is_change(t, &t->parts[n]))
        n++;
    return n > 0 && n == t->n_parts;
}

// Makes a part of a turn plain.
static bool make_plain_part(struct plain *r, const struct conversation_turn *t,
                            struct conversation_part *p, int i) {
    switch (p->kind) {
    case PART_MEDIA:
        return refuse_media(r, i, p->raw);
    case PART_REASONING:
        make_plain_reasoning(r, p);
        break;
    case PART_RESULT:
        make_plain_contents(r, p);
        break;
    case PART_CALL:
        p->name = plain_call_name(r, p);
        if (p->custom)
            p->text = input_object(r, p->text);
        else if (!p->object)
            p->text = arguments_object(r, p->text);
        p->custom = false;
        break;
    case PART_OTHER:
        if (t->role == CONVERSATION_TOOL)
            make_unknown_result(r, p);
        else if (t->role != CONVERSATION_ASSISTANT || !make_unknown_call(r, p))
            *p = (struct conversation_part){.kind = PART_TEXT, .text = text_in_place(r, p->raw)};
        break;
    default:
        p->extras = (struct extras){0};
    }
    return true;
}

// Words of the system that were for the turn before the user's next one only.
static bool is_over(const struct plain *r, const struct conversation_turn *t) {
    bool brief = false;
    for (int i = 0; t->role == CONVERSATION_SYSTEM && i < t->extras.n; i++)
        brief |= !strcmp(t->extras.at[i].key, "clear_at") &&
                 words_equal(words_of(t->extras.at[i].value), "next_user_message");
    for (int i = r->turn + 1; brief && i < r->from->n_turns; i++) {
        enum conversation_role role = r->from->turns[i].role;
        if (role == CONVERSATION_USER || role == CONVERSATION_TOOL)
            return true;
    }
    return false;
}

static bool make_plain_turn(struct plain *r, const struct conversation_turn *from) {
    if ((from->n_parts == 1 && is_mute(from, from->parts)) || is_over(r, from) ||
        is_all_changes(from))
        return true;
    // Turns stay what they are: the form has them apart for a reason.
    enum conversation_kind first = from->n_parts ? from->parts[0].kind : PART_TEXT;
    struct conversation_turn *t = conversation_turn(r->to, from->role, first);
    bool ok = true;
    if (!t)
        return true;
    t->extras = from->extras;
    for (int i = 0; i < from->n_parts && ok; i++) {
        struct conversation_part p = from->parts[i];
        bool noisy = p.kind == PART_TEXT && p.text.n && r->turn == 0;
        if (noisy)
            p.text = without_volatile(p.text);
        if ((noisy && !p.text.s) || is_change(from, &p))
            continue;
        ok = make_plain_part(r, from, &p, i);
        if (p.kind == PART_REASONING && !p.text.n)
            continue;
        struct conversation_part *out = conversation_part(r->to, t, p.kind);
        if (out)
            *out = p;
    }
    return ok;
}

static void make_plain_tools(struct plain *r) {
    for (int i = 0; i < r->from->n_tools; i++) {
        const struct conversation_tool *from = &r->from->tools[i];
        struct conversation_tool *t = NULL;
        if (from->kind != TOOL_OTHER)
            t = conversation_tool(r->to, from->kind);
        else if (is_group(from->raw))
            add_group_tools(r, from->raw);
        if (t)
            *t = *from;
    }
}

bool conversation_plain(struct conversation *v, struct api_error *x) {
    const struct conversation from = *v;
    struct plain r = {.from = &from, .to = v, .x = x};
    if (!check_result_ids(v, x))
        return false;
    v->turns = NULL;
    v->tools = NULL;
    v->n_turns = v->cap_turns = v->n_tools = v->cap_tools = 0;
    for (; r.turn < from.n_turns; r.turn++)
        if (!make_plain_turn(&r, &from.turns[r.turn]))
            return false;
    make_plain_tools(&r);
    if (v->failed)
        api_fail(x, 503, NULL, "no memory for the conversation");
    return !v->failed;
}
