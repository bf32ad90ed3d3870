// SPDX-License-Identifier: Apache-2.0
// Reader of Anthropic's Messages; see interfaces.h.
#include "serve/conversation/interfaces.h"

#include <stdio.h>
#include <string.h>

#include "text/chat/read.h"

static const struct {
    const char *prefix, *description, *schema; // ' in place of "
} known[] = {
    {"bash_", "Runs a command in a shell that stays open, and gives back what it printed.",
     "{'type':'object','properties':{'command':{'type':'string','description':'The command.'},"
     "'restart':{'type':'boolean','description':'true: begin a new shell instead.'}}}"},
    {"text_editor_", "Looks at files and changes them.",
     "{'type':'object','properties':{'command':{'type':'string','enum':['view','create',"
     "'str_replace','insert']},'path':{'type':'string'},'file_text':{'type':'string'},'old_str':{"
     "'type':'string'},'new_str':{'type':'string'},'insert_line':{'type':'integer'},"
     "'insert_text':{'type':'string'},'view_range':{'type':'array','items':{'type':'integer'}}},"
     "'required':['command','path']}"},
    {"memory_", "Keeps notes in files below /memories.",
     "{'type':'object','properties':{'command':{'type':'string','enum':['view','create',"
     "'str_replace','insert','delete','rename']},'path':{'type':'string'},'file_text':{'type':"
     "'string'},'old_str':{'type':'string'},'new_str':{'type':'string'},'insert_line':{'type':"
     "'integer'},'insert_text':{'type':'string'},'old_path':{'type':'string'},'new_path':{'type':"
     "'string'},'view_range':{'type':'array','items':{'type':'integer'}}},'required':['command']}"},
};

enum { KNOWN = sizeof known / sizeof known[0] };

static int find_known(const char *type) {
    for (int i = 0; type && i < KNOWN; i++)
        if (!strncmp(type, known[i].prefix, strlen(known[i].prefix)))
            return i;
    return -1;
}

// All schemas, as an array that v owns; NULL with x filled: no memory.
static const struct json *parse_schemas(struct conversation *v, struct api_error *x) {
    struct str s = {0};
    struct json *parsed = NULL;
    const struct json *out = NULL;
    str_putc(&s, '[');
    for (int i = 0; i < KNOWN; i++) {
        str_puts(&s, i ? "," : "");
        for (const char *c = known[i].schema; *c; c++)
            str_putc(&s, *c == '\'' ? '"' : *c);
    }
    str_putc(&s, ']');
    if (!s.failed && !json_parse(&parsed, s.data, s.len, NULL))
        out = conversation_adopt(v, parsed);
    if (!out)
        api_fail(x, 503, NULL, "no memory for the tools");
    str_fini(&s);
    return out;
}

bool conversation_know_tools(struct conversation *v, struct api_error *x) {
    const struct json *schemas = NULL;
    for (int i = 0; i < v->n_tools; i++) {
        struct conversation_tool *t = &v->tools[i];
        int own = t->kind == TOOL_OTHER ? find_known(json_str(json_get(t->raw, "type"), NULL)) : -1;
        struct words name = words_of(json_get(t->raw, "name"));
        if (own < 0 || !name.s)
            continue;
        if (!schemas && !(schemas = parse_schemas(v, x)))
            return false;
        *t = (struct conversation_tool){.kind = TOOL_FUNCTION,
                                        .name = name,
                                        .description = words_of_text(known[own].description),
                                        .schema = json_at(schemas, (size_t)own),
                                        .raw = t->raw};
    }
    return true;
}

// Members that have a name in the form; the others are extras.
static const char *const of_message[] = {"role", "content", NULL};
static const char *const of_thought[] = {"type", "thinking", "summary", "signature", "data", NULL};
static const char *const of_call[] = {"type", "id", "name", "input", "custom", NULL};
static const char *const of_result[] = {"type",     "tool_use_id", "content",
                                        "is_error", "custom",      NULL};
static const char *const of_tool[] = {"type",   "name",   "description", "input_schema",
                                      "strict", "format", NULL};

static bool is_block(const struct json *block, const char *type) {
    return words_equal(words_of(json_get(block, "type")), type);
}

// Blocks by type; `of`: the role whose messages only may have them, or any.
static const struct block_form {
    const char *type;
    enum conversation_kind kind;
    enum conversation_role of;
} forms[] = {
    {"text", PART_TEXT, CONVERSATION_ROLES},
    {"refusal", PART_REFUSAL, CONVERSATION_ROLES},
    {"thinking", PART_REASONING, CONVERSATION_ASSISTANT},
    {"redacted_thinking", PART_REASONING, CONVERSATION_ASSISTANT},
    {"tool_use", PART_CALL, CONVERSATION_ASSISTANT},
    {"tool_result", PART_RESULT, CONVERSATION_USER},
};

static const struct block_form *find_form(const struct json *block) {
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (is_block(block, forms[i].type))
            return &forms[i];
    return NULL;
}

static bool is_misplaced(const struct block_form *f, bool answer) {
    return f && f->of != CONVERSATION_ROLES && (f->of == CONVERSATION_ASSISTANT) != answer;
}

// A document whose words came with it; others are media.
static bool is_readable(const struct json *block) {
    const struct json *source = json_get(block, "source");
    return is_block(block, "document") && (is_block(source, "text") || is_block(source, "content"));
}

static enum conversation_kind block_kind(const struct json *block, bool answer) {
    const struct block_form *f = find_form(block);
    bool text = json_kind_of(json_get(block, "text")) == JSON_STRING;
    if (json_kind_of(block) == JSON_STRING || (!json_get(block, "type") && text))
        return PART_TEXT;
    if (f && !is_misplaced(f, answer) && (f->kind != PART_TEXT || text))
        return f->kind;
    return conversation_is_media(conversation_type_of(block)) && !is_readable(block) ? PART_MEDIA
                                                                                     : PART_OTHER;
}

// Of a block where no call and no result can stand.
static enum conversation_kind inner_kind(const struct json *block) {
    enum conversation_kind kind = block_kind(block, false);
    return kind == PART_RESULT ? PART_OTHER : kind;
}

// A tool that the client runs needs a name: without one the model would never see it. Those of
// Anthropic's servers have a type of their own and no schema.
static bool is_tool(const struct json *t) {
    const struct json *schema = json_get(t, "input_schema"), *kind = json_get(t, "type");
    bool client = !kind || schema || is_block(t, "custom") || is_block(t, "freeform") ||
                  find_known(json_str(kind, NULL)) >= 0;
    return json_kind_of(t) == JSON_OBJECT && !is_block(t, "function") &&
           (!kind || json_kind_of(kind) == JSON_STRING) &&
           (!schema || json_kind_of(schema) == JSON_OBJECT) &&
           (!client || words_of(json_get(t, "name")).n > 0);
}

struct reader {
    struct conversation *v;
    struct api_error *x;
    char place[64]; // of what is looked at
};

static bool has_string(const struct reader *r, const struct json *block, const char *member) {
    const struct json *v = json_get(block, member + 1);
    return json_kind_of(v) == JSON_STRING || api_refuse_kind(r->x, r->place, member, v, "a string");
}

static bool check_call_block(const struct reader *r, const struct json *block) {
    const struct json *input = json_get(block, "input");
    return has_string(r, block, ".id") && has_string(r, block, ".name") &&
           (!input || json_kind_of(input) == JSON_OBJECT ||
            api_refuse_kind(r->x, r->place, ".input", input, "an object"));
}

static bool check_result_block(const struct reader *r, const struct json *block) {
    const struct json *content = json_get(block, "content");
    enum json_kind k = json_kind_of(content);
    return has_string(r, block, ".tool_use_id") &&
           (k == JSON_STRING || k == JSON_ARRAY || k == JSON_NULL ||
            api_refuse_kind(r->x, r->place, ".content", content, "a string or an array of blocks"));
}

// What the user shows must be words: an answer without it would be a wrong one.
static bool check_user_block(const struct reader *r, const struct json *block) {
    const struct json *definition = json_get(json_get(block, "tool"), "definition");
    bool image = is_block(block, "image");
    if (is_block(block, "tool_addition") && definition && !is_tool(definition))
        return api_refuse(r->x, r->place,
                          "%s.tool.definition must have a name and an object as "
                          "input_schema",
                          r->place);
    if (image || (is_block(block, "document") && !is_readable(block)))
        return api_refuse(r->x, r->place, "%s is %s %.40s, and this model reads text only",
                          r->place, image ? "an" : "a", conversation_type_of(block));
    return true;
}

static bool check_block(const struct reader *r, const struct json *block, bool answer) {
    const struct block_form *f = find_form(block);
    if (json_kind_of(block) != JSON_OBJECT)
        return api_refuse(r->x, r->place, "%s is %s and must be a block", r->place,
                          json_kind_name(block));
    if (!has_string(r, block, ".type"))
        return false;
    if (is_misplaced(f, answer))
        return api_refuse(r->x, r->place,
                          "%s is of type %.40s, which stands in messages of the %s only", r->place,
                          f->type, conversation_roles[f->of]);
    if (!f)
        return answer || check_user_block(r, block);
    return f->kind == PART_TEXT   ? has_string(r, block, ".text")
           : f->kind == PART_CALL ? check_call_block(r, block)
           : f->kind == PART_RESULT
               ? check_result_block(r, block)
               : !is_block(block, "thinking") || has_string(r, block, ".thinking");
}

static void read_thought(struct conversation *v, const struct json *from,
                         struct conversation_part *p) {
    p->text = words_of(json_get(from, "thinking"));
    p->summary = words_of(json_get(from, "summary"));
    p->signature = words_of(json_get(from, is_block(from, "thinking") ? "signature" : "data"));
    extras_take(v, &p->extras, from, of_thought);
}

static void read_call_block(struct conversation *v, const struct json *from,
                            struct conversation_part *p) {
    const struct json *input = json_get(from, "input");
    p->id = words_of(json_get(from, "id"));
    p->name = words_of(json_get(from, "name"));
    p->custom = json_bool(json_get(from, "custom"), false);
    p->text = input || p->custom ? words_of(input) : words_of_text("{}");
    extras_take(v, &p->extras, from, of_call);
    p->object = !p->custom && json_kind_of(input) == JSON_OBJECT;
    if (p->object) {
        p->raw = input;
        p->text = conversation_printed(v, input);
    }
}

// A content, of which a string is one block.
static size_t block_count(const struct json *content) {
    enum json_kind k = json_kind_of(content);
    return k == JSON_STRING ? 1 : k == JSON_ARRAY ? json_len(content) : 0;
}

static const struct json *block_at(const struct json *content, size_t i) {
    return json_kind_of(content) == JSON_ARRAY ? json_at(content, i) : content;
}

static void read_result_block(struct conversation *v, const struct json *from,
                              struct conversation_part *p) {
    const struct json *content = json_get(from, "content");
    p->id = words_of(json_get(from, "tool_use_id"));
    p->is_error = json_bool(json_get(from, "is_error"), false);
    p->custom = json_bool(json_get(from, "custom"), false);
    extras_take(v, &p->extras, from, of_result);
    for (size_t i = 0; i < block_count(content); i++)
        conversation_fill(v, conversation_inner(v, p, inner_kind(block_at(content, i))),
                          block_at(content, i));
}

static void read_block(struct conversation *v, const struct json *from,
                       struct conversation_part *p) {
    if (!p)
        return;
    if (p->kind == PART_REASONING)
        read_thought(v, from, p);
    else if (p->kind == PART_CALL)
        read_call_block(v, from, p);
    else if (p->kind == PART_RESULT)
        read_result_block(v, from, p);
    else
        conversation_fill(v, p, from);
}

// The blocks of a message; results of tools are turns of their own, and what comes in another order
// than that of a turn begins the next one.
static bool read_blocks(struct reader *r, const struct json *m, enum conversation_role role,
                        size_t number) {
    const struct json *content = json_get(m, "content");
    bool answer = role == CONVERSATION_ASSISTANT;
    enum conversation_kind kind = PART_TEXT, last;
    struct conversation_turn *t = NULL;
    struct extras extras = {0};
    extras_take(r->v, &extras, m, of_message);
    for (size_t i = 0; i < block_count(content); i++) {
        const struct json *block = block_at(content, i);
        snprintf(r->place, sizeof r->place, "messages[%zu].content[%zu]", number, i);
        if (json_kind_of(content) == JSON_ARRAY && !check_block(r, block, answer))
            return false;
        bool item = !answer && is_block(block, "tool_item");
        last = kind;
        kind = item ? PART_OTHER : block_kind(block, answer);
        enum conversation_role of = item || kind == PART_RESULT ? CONVERSATION_TOOL : role;
        if (!t || t->role != of || (answer && conversation_rank(kind) < conversation_rank(last)))
            t = conversation_turn(
                r->v, of, answer && i == 0 && extras.n && kind == PART_CALL ? PART_TEXT : kind);
        read_block(r->v, item ? json_get(block, "item") : block, conversation_part(r->v, t, kind));
    }
    if (!t)
        t = conversation_turn(r->v, role, PART_TEXT);
    if (t && extras.n)
        t->extras = extras;
    return true;
}

static bool read_message(struct reader *r, const struct json *m, size_t i) {
    const struct json *content = json_get(m, "content");
    enum conversation_role role = conversation_role_of(m);
    snprintf(r->place, sizeof r->place, "messages[%zu]", i);
    if (json_kind_of(m) != JSON_OBJECT)
        return api_refuse(r->x, r->place, "%s is %s and must be an object", r->place,
                          json_kind_name(m));
    if (!has_string(r, m, ".role"))
        return false;
    if (role != CONVERSATION_USER && role != CONVERSATION_ASSISTANT && role != CONVERSATION_SYSTEM)
        return api_refuse(r->x, r->place, "%s.role is '%.40s' and must be user or assistant",
                          r->place, json_str(json_get(m, "role"), NULL));
    if (role == CONVERSATION_SYSTEM && !content && json_len(json_get(m, "output_config")) > 0)
        return true; // it sets something and says nothing
    if (json_kind_of(content) != JSON_STRING && json_kind_of(content) != JSON_ARRAY)
        return api_refuse_kind(r->x, r->place, ".content", content,
                               "a string or an array of blocks");
    return read_blocks(r, m, role, i);
}

static bool read_system(struct reader *r, const struct json *system) {
    enum json_kind k = json_kind_of(system);
    size_t n = block_count(system);
    if (k != JSON_NULL && k != JSON_STRING && k != JSON_ARRAY)
        return api_refuse_kind(r->x, "system", "", system, "a string or an array of text blocks");
    struct conversation_turn *t =
        n ? conversation_turn(r->v, CONVERSATION_SYSTEM, PART_TEXT) : NULL;
    for (size_t i = 0; i < n; i++) {
        const struct json *block = block_at(system, i);
        if (k == JSON_ARRAY && (!is_block(block, "text") || !words_of(json_get(block, "text")).s))
            return api_refuse(r->x, "system", "system[%zu] is no text block", i);
        conversation_fill(r->v, conversation_part(r->v, t, PART_TEXT), block);
    }
    return true;
}

bool conversation_read_messages(struct conversation *v, const struct json *body,
                                struct api_error *x) {
    const struct json *messages = json_get(body, "messages"), *tools = json_get(body, "tools");
    struct reader r = {.v = v, .x = x};
    size_t n = json_len(messages);
    if (n > MESSAGES_MAX)
        return api_refuse(x, "messages", "messages has %zu elements and may have %d at most", n,
                          MESSAGES_MAX);
    if (!read_system(&r, json_get(body, "system")))
        return false;
    for (size_t i = 0; i < json_len(tools); i++)
        if (!is_tool(json_at(tools, i)))
            return api_refuse(x, "tools",
                              "tools[%zu] must have a name and an object as input_schema", i);
    for (size_t i = 0; i < n && !v->failed; i++)
        if (!read_message(&r, json_at(messages, i), i))
            return false;
    return true;
}

static void read_tool_block(struct conversation *v, const struct json *from) {
    const struct json *schema = json_get(from, "input_schema");
    bool custom = is_block(from, "freeform");
    bool plain = json_kind_of(json_get(from, "type")) == JSON_NULL || is_block(from, "custom");
    struct conversation_tool *t = conversation_tool(v, custom            ? TOOL_CUSTOM
                                                       : plain || schema ? TOOL_FUNCTION
                                                                         : TOOL_OTHER);
    if (!t)
        return;
    t->raw = from;
    if (t->kind == TOOL_OTHER)
        return;
    t->name = words_of(json_get(from, "name"));
    t->description = words_of(json_get(from, "description"));
    t->schema = custom ? NULL : schema;
    t->format = custom ? json_get(from, "format") : NULL;
    t->strict = words_tristate(json_get(from, "strict"));
    extras_take(v, &t->extras, from, of_tool);
}

// What a turn of the system changes about the tools of that name: all of them are offered again,
// or none is.
static void offer_tools(struct conversation *v, struct words name, bool withdrawn) {
    for (int i = 0; name.s && i < v->n_tools; i++) {
        struct words own = words_of(json_get(v->tools[i].raw, "name"));
        if (own.s && own.n == name.n && !memcmp(own.s, name.s, name.n))
            v->tools[i].withdrawn = withdrawn;
    }
}

static void change_tools(struct conversation *v, const struct json *block) {
    const struct json *tool = json_get(block, "tool"), *definition = json_get(tool, "definition");
    bool adds = is_block(block, "tool_addition");
    if (!adds && !is_block(block, "tool_removal"))
        return;
    struct words name = words_of(json_get(definition ? definition : tool, "name"));
    offer_tools(v, name, !adds || definition);
    if (adds && definition)
        read_tool_block(v, definition);
}

// Templates name tools before all turns, so that those count which are offered in the end.
static void read_changes(struct conversation *v, const struct json *messages) {
    int n = 0;
    for (size_t i = 0; i < json_len(messages) && !v->failed; i++) {
        const struct json *m = json_at(messages, i), *content = json_get(m, "content");
        if (conversation_role_of(m) != CONVERSATION_SYSTEM || json_kind_of(content) != JSON_ARRAY)
            continue;
        for (size_t k = 0; k < json_len(content) && !v->failed; k++)
            change_tools(v, json_at(content, k));
    }
    for (int i = 0; i < v->n_tools; i++)
        if (!v->tools[i].withdrawn)
            v->tools[n++] = v->tools[i];
    v->n_tools = n;
}

static const char *const choices[] = {"", "auto", "none", "any", "tool"};

void conversation_read_messages_tools(struct conversation *v, const struct json *body) {
    const struct json *tools = json_get(body, "tools"), *choice = json_get(body, "tool_choice");
    for (size_t i = 0; i < json_len(tools) && !v->failed; i++)
        read_tool_block(v, json_at(tools, i));
    read_changes(v, json_get(body, "messages"));
    for (int i = 1; i <= CHOICE_NAMED; i++)
        if (is_block(choice, choices[i]))
            v->choice.kind = (enum conversation_choice)i;
    if (v->choice.kind == CHOICE_NAMED) {
        v->choice.name = words_of(json_get(choice, "name"));
        v->choice.custom = json_bool(json_get(choice, "custom"), false);
    }
    v->parallel = -words_tristate(json_get(choice, "disable_parallel_tool_use"));
}
