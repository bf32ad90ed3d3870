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

static bool is_type(const char *type, const char *what) {
    return type && !strcmp(type, what);
}

static const char *block_type(const struct json *block) {
    return json_str(json_get(block, "type"), NULL);
}

static bool check_block_string(const struct json *block, const char *place, const char *member,
                               struct api_error *x) {
    const struct json *v = json_get(block, member + 1);
    return json_kind_of(v) == JSON_STRING || api_refuse_kind(x, place, member, v, "a string");
}

static bool check_call_block(const struct json *block, const char *place, struct api_error *x) {
    const struct json *input = json_get(block, "input");
    if (!check_block_string(block, place, ".id", x) ||
        !check_block_string(block, place, ".name", x))
        return false;
    return !input || json_kind_of(input) == JSON_OBJECT ||
           api_refuse_kind(x, place, ".input", input, "an object");
}

static bool check_result_block(const struct json *block, const char *place, struct api_error *x) {
    const struct json *content = json_get(block, "content");
    enum json_kind k = json_kind_of(content);
    if (!check_block_string(block, place, ".tool_use_id", x))
        return false;
    return k == JSON_STRING || k == JSON_ARRAY || k == JSON_NULL ||
           api_refuse_kind(x, place, ".content", content, "a string or an array of blocks");
}

// What the user shows must be words: an answer without it would be a wrong one.
static bool check_media_block(const struct json *block, const char *place, struct api_error *x) {
    const char *type = block_type(block), *source = block_type(json_get(block, "source"));
    if (is_type(type, "document") && (is_type(source, "text") || is_type(source, "content")))
        return true;
    return api_refuse(x, place, "%s is %s %.40s, and this model reads text only", place,
                      is_type(type, "image") ? "an" : "a", type);
}

// A tool that the client runs needs a name: without one the model would never see it. Those of
// Anthropic's servers have a type of their own and no schema.
static bool is_tool(const struct json *t) {
    const struct json *schema = json_get(t, "input_schema"), *kind = json_get(t, "type");
    bool client = !kind || schema || is_type(block_type(t), "custom") ||
                  is_type(block_type(t), "freeform") || find_known(block_type(t)) >= 0;
    size_t n = 0;
    return json_kind_of(t) == JSON_OBJECT && !is_type(block_type(t), "function") &&
           (!kind || json_kind_of(kind) == JSON_STRING) &&
           (!schema || json_kind_of(schema) == JSON_OBJECT) &&
           (!client || (json_str(json_get(t, "name"), &n) && n > 0));
}

static bool check_block(const struct json *block, bool answer, const char *place,
                        struct api_error *x) {
    const char *type = block_type(block);
    if (json_kind_of(block) != JSON_OBJECT)
        return api_refuse(x, place, "%s is %s and must be a block", place, json_kind_name(block));
    if (!type)
        return api_refuse_kind(x, place, ".type", json_get(block, "type"), "a string");
    if (is_type(type, "text"))
        return check_block_string(block, place, ".text", x);
    bool theirs = is_type(type, "thinking") || is_type(type, "redacted_thinking") ||
                  is_type(type, "tool_use");
    if (answer ? is_type(type, "tool_result") : theirs)
        return api_refuse(x, place, "%s is of type %.40s, which stands in messages of the %s only",
                          place, type, answer ? "user" : "assistant");
    if (answer && is_type(type, "tool_use"))
        return check_call_block(block, place, x);
    if (answer && is_type(type, "thinking"))
        return check_block_string(block, place, ".thinking", x);
    if (!answer && is_type(type, "tool_result"))
        return check_result_block(block, place, x);
    const struct json *definition = json_get(json_get(block, "tool"), "definition");
    if (!answer && is_type(type, "tool_addition") && definition && !is_tool(definition))
        return api_refuse(x, place,
                          "%s.tool.definition must have a name and an object as "
                          "input_schema",
                          place);
    if (!answer && (is_type(type, "image") || is_type(type, "document")))
        return check_media_block(block, place, x);
    return true;
}

static bool check_blocks(const struct json *content, bool answer, size_t m, struct api_error *x) {
    char place[64];
    snprintf(place, sizeof place, "messages[%zu]", m);
    if (json_kind_of(content) == JSON_STRING)
        return true;
    if (json_kind_of(content) != JSON_ARRAY)
        return api_refuse_kind(x, place, ".content", content, "a string or an array of blocks");
    for (size_t i = 0; i < json_len(content); i++) {
        snprintf(place, sizeof place, "messages[%zu].content[%zu]", m, i);
        if (!check_block(json_at(content, i), answer, place, x))
            return false;
    }
    return true;
}

static bool check_turn_message(const struct json *message, size_t m, struct api_error *x) {
    const char *role = json_str(json_get(message, "role"), NULL);
    char place[48];
    snprintf(place, sizeof place, "messages[%zu]", m);
    if (json_kind_of(message) != JSON_OBJECT)
        return api_refuse(x, place, "%s is %s and must be an object", place,
                          json_kind_name(message));
    if (!role)
        return api_refuse_kind(x, place, ".role", json_get(message, "role"), "a string");
    if (!is_type(role, "user") && !is_type(role, "assistant") && !is_type(role, "system"))
        return api_refuse(x, place, "%s.role is '%.40s' and must be user or assistant", place,
                          role);
    if (is_type(role, "system") && !json_get(message, "content") &&
        json_len(json_get(message, "output_config")) > 0)
        return true; // it sets something and says nothing
    return check_blocks(json_get(message, "content"), is_type(role, "assistant"), m, x);
}

static bool check_system_blocks(const struct json *system, struct api_error *x) {
    enum json_kind k = json_kind_of(system);
    if (k == JSON_NULL || k == JSON_STRING)
        return true;
    if (k != JSON_ARRAY)
        return api_refuse_kind(x, "system", "", system, "a string or an array of text blocks");
    for (size_t i = 0; i < json_len(system); i++)
        if (!json_str(json_get(json_at(system, i), "text"), NULL) ||
            !is_type(block_type(json_at(system, i)), "text"))
            return api_refuse(x, "system", "system[%zu] is no text block", i);
    return true;
}

static bool check_tool_list(const struct json *tools, struct api_error *x) {
    for (size_t i = 0; i < json_len(tools); i++)
        if (!is_tool(json_at(tools, i)))
            return api_refuse(x, "tools",
                              "tools[%zu] must have a name and an object as input_schema", i);
    return true;
}

// Members that have a name in the form; the others are extras.
static const char *const of_message[] = {"role", "content", NULL};
static const char *const of_text[] = {"type", "text", NULL};
static const char *const of_refusal[] = {"type", "refusal", NULL};
static const char *const of_thought[] = {"type", "thinking", "summary", "signature", "data", NULL};
static const char *const of_call[] = {"type", "id", "name", "input", "custom", NULL};
static const char *const of_result[] = {"type",     "tool_use_id", "content",
                                        "is_error", "custom",      NULL};
static const char *const of_tool[] = {"type",   "name",   "description", "input_schema",
                                      "strict", "format", NULL};

static bool is_block(const struct json *block, const char *type) {
    return words_equal(words_of(json_get(block, "type")), type);
}

// A document whose words came with it; others are media.
static bool is_readable(const struct json *block) {
    const struct json *source = json_get(block, "source");
    return is_block(block, "document") && (is_block(source, "text") || is_block(source, "content"));
}

static enum conversation_kind block_kind(const struct json *block, bool answer) {
    static const struct {
        const char *type;
        enum conversation_kind kind;
    } answers[] = {{"thinking", PART_REASONING},
                   {"redacted_thinking", PART_REASONING},
                   {"tool_use", PART_CALL}};
    for (size_t i = 0; answer && i < sizeof answers / sizeof answers[0]; i++)
        if (is_block(block, answers[i].type))
            return answers[i].kind;
    if (!answer && is_block(block, "tool_result"))
        return PART_RESULT;
    bool plain = is_block(block, "text") || !json_get(block, "type");
    if (json_kind_of(block) == JSON_STRING ||
        (plain && json_kind_of(json_get(block, "text")) == JSON_STRING))
        return PART_TEXT;
    if (is_block(block, "refusal"))
        return PART_REFUSAL;
    const char *type = json_str(json_get(block, "type"), NULL);
    return conversation_is_media(type) && !is_readable(block) ? PART_MEDIA : PART_OTHER;
}

// Of a block where no call and no result can stand.
static enum conversation_kind inner_kind(const struct json *block) {
    enum conversation_kind kind = block_kind(block, false);
    return kind == PART_RESULT ? PART_OTHER : kind;
}

static void read_text_block(struct conversation *v, const struct json *from,
                            struct conversation_part *p) {
    if (!p)
        return;
    if (p->kind == PART_TEXT) {
        p->text = words_of(json_kind_of(from) == JSON_STRING ? from : json_get(from, "text"));
        extras_take(v, &p->extras, from, of_text);
    } else if (p->kind == PART_REFUSAL) {
        p->text = words_of(json_get(from, "refusal"));
        extras_take(v, &p->extras, from, of_refusal);
    } else {
        p->raw = from;
    }
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
    p->text = words_of(input);
    extras_take(v, &p->extras, from, of_call);
    if (p->custom || json_kind_of(input) == JSON_STRING)
        return;
    if (!input) {
        p->text = words_of_text("{}");
        return;
    }
    p->object = true;
    p->raw = input;
    p->text = conversation_printed(v, input);
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
        read_text_block(v, block_at(content, i),
                        conversation_inner(v, p, inner_kind(block_at(content, i))));
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
        read_text_block(v, from, p);
}

static void read_answer_message(struct conversation *v, const struct json *m) {
    const struct json *content = json_get(m, "content");
    struct extras extras = {0};
    extras_take(v, &extras, m, of_message);
    enum conversation_kind kind = PART_TEXT, last;
    size_t n = block_count(content);
    if (n && (kind = block_kind(block_at(content, 0), true)) == PART_CALL && extras.n)
        kind = PART_TEXT;
    struct conversation_turn *t = conversation_turn(v, CONVERSATION_ASSISTANT, kind);
    for (size_t i = 0; t && i < n; i++) {
        last = kind;
        kind = block_kind(block_at(content, i), true);
        if (conversation_rank(kind) < conversation_rank(last))
            t = conversation_turn(v, CONVERSATION_ASSISTANT, kind);
        read_block(v, block_at(content, i), conversation_part(v, t, kind));
    }
    if (t && extras.n)
        t->extras = extras;
}

// Words of others; results of tools are turns of their own.
static void read_words_message(struct conversation *v, const struct json *m,
                               enum conversation_role role) {
    const struct json *content = json_get(m, "content");
    struct conversation_turn *t = NULL;
    size_t n = block_count(content);
    if (role == CONVERSATION_SYSTEM && !content)
        return;
    for (size_t i = 0; i < n && !v->failed; i++) {
        const struct json *block = block_at(content, i);
        bool item = is_block(block, "tool_item");
        enum conversation_kind kind = item ? PART_OTHER : block_kind(block, false);
        bool result = kind == PART_RESULT || item;
        enum conversation_role of = result ? CONVERSATION_TOOL : role;
        if (!t || t->role != of)
            t = conversation_turn(v, of, kind);
        read_block(v, item ? json_get(block, "item") : block, conversation_part(v, t, kind));
    }
    if (!t)
        t = conversation_turn(v, role, PART_TEXT);
    struct extras extras = {0};
    extras_take(v, &extras, m, of_message);
    if (t && extras.n)
        t->extras = extras;
}

bool conversation_read_messages(struct conversation *v, const struct json *body,
                                struct api_error *x) {
    const struct json *system = json_get(body, "system"), *messages = json_get(body, "messages");
    struct conversation_turn *t = NULL;
    size_t n = json_len(messages);
    if (n > MESSAGES_MAX)
        return api_refuse(x, "messages", "messages has %zu elements and may have %d at most", n,
                          MESSAGES_MAX);
    if (!check_system_blocks(system, x) || !check_tool_list(json_get(body, "tools"), x))
        return false;
    if (block_count(system))
        t = conversation_turn(v, CONVERSATION_SYSTEM, PART_TEXT);
    for (size_t i = 0; t && i < block_count(system); i++)
        read_text_block(v, block_at(system, i),
                        conversation_part(v, t, inner_kind(block_at(system, i))));
    for (size_t i = 0; i < n; i++) {
        const struct json *m = json_at(messages, i);
        enum conversation_role role = conversation_role_of(m);
        if (!check_turn_message(m, i, x))
            return false;
        if (!v->failed && role == CONVERSATION_ASSISTANT)
            read_answer_message(v, m);
        else if (!v->failed)
            read_words_message(v, m, role);
    }
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
