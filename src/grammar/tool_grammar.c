// SPDX-License-Identifier: Apache-2.0
// See tool_grammar.h. Each call is written from the family's row of text/tools/formats.c, so that
// reader and grammar cannot drift apart.
#include "grammar/tool_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/expression/expr.h"
#include "text/tools/formats.h"

// The size of the grammar of a schema; zero states: no grammar holds it.
struct size {
    int64_t states, steps;
};

// Which schemas grammars hold: found out once for all parts. What one schema may take is bounded by
// its size, and what all of them take by theirs together.
struct verdicts {
    struct map known; // of a schema at its place -> its index in list
    struct arena arena;
    struct size *list;
    int64_t count, cap;
    struct grammar_work all; // of finding out
    int64_t written;         // steps of the parts themselves
};

struct writer {
    struct build *b;
    const struct tool_format *f;
    enum tool_family family;
    struct verdicts *verdicts;
    struct size *spent;                     // of all schemas that are held
    const struct tool_grammar_tool *strict; // whose schema must be held; NULL: any value will do
};

// States that the schemas of all tools may need; steps of one part with all of them.
enum { LIMIT_STATES = 1 << 19, LIMIT_STEPS = 2 * GRAMMAR_STEPS_MAX };

static const char freeform_schema[] =
    "{\"type\":\"object\",\"properties\":{\"input\":{\"type\":\"string\"}},\"required\":"
    "[\"input\"],\"additionalProperties\":false}";

static bool is_object(const struct json *schema) {
    const char *type = json_str(json_get(schema, "type"), NULL);
    return type && !strcmp(type, "object");
}

// How the strings of a parameter stand in a call; zeroed: as JSON.
struct bare {
    const char *end;
    unsigned others;
};

static uint32_t value_of(struct build *b, const struct json *schema, const struct bare *bare) {
    return bare->end ? build_schema_bare(b, schema, bare->end, bare->others)
                     : build_schema(b, schema);
}

// How JSON is written in the calls of a family, and schemas are taken.
static struct grammar_json how_of(const struct writer *w) {
    bool gemma = w->f->args == TOOL_ARGS_GEMMA;
    return (struct grammar_json){.space = gemma ? GRAMMAR_SPACE_COMPACT : GRAMMAR_SPACE_FREE,
                                 .one_of_as_any = !w->strict,
                                 .declared_only = true,
                                 .marks = w->f->quote};
}

static struct size try_to_hold(const struct writer *w, const struct json *schema,
                               const struct bare *bare, struct err *e) {
    const struct grammar_json how = how_of(w);
    struct verdicts *v = w->verdicts;
    struct grammar_work work = {.cancel = v->all.cancel};
    struct grammar *g = NULL;
    struct build *b = NULL;
    work.max = min_i64(grammar_steps(schema_bytes(schema)), v->all.max - v->all.steps);
    if (work.max <= 0 || build_create(&b, &work, 0, e))
        return (struct size){0};
    build_json_how(b, &how);
    build_finish(b, value_of(b, schema, bare), &g, e);
    build_destroy(b);
    v->all.steps += work.steps;
    struct size size = {g ? g->node_count : 0, work.steps};
    grammar_unref(g);
    return size;
}

static uint32_t refuse_strict(const struct writer *w, const char *why) {
    return build_fail(w->b, ERR_UNSUPPORTED,
                      "the tool '%.64s' is strict, and no grammar holds its parameters: %s",
                      w->strict->name, why);
}

// Whether a grammar holds the schema; without one any value will do, or where the tool is strict,
// none. So it is where the tools' schemas together would take too long. of: by what it is known in
// other parts.
static bool holds(const struct writer *w, const struct json *schema, const struct bare *bare,
                  const struct json *of) {
    struct verdicts *v = w->verdicts;
    const struct {
        const struct json *of;
        const char *end;
        uint64_t others;
    } key = {of, bare->end, bare->others};
    uint32_t at = (uint32_t)v->count;
    struct err e = {.text = "the schemas of all tools together are too large"};
    if (!map_find(&v->known, (const char *)&key, sizeof key, &at)) {
        char *kept = arena_strndup(&v->arena, (const char *)&key, sizeof key);
        if (!kept || vec_reserve(&v->list, &v->cap, v->count + 1, sizeof *v->list, &w->b->e) ||
            map_insert(&v->known, kept, sizeof key, at) < 0) {
            build_fail(w->b, ERR_MEMORY, "no memory for the schemas of tools");
            return false;
        }
        v->list[v->count++] = try_to_hold(w, schema, bare, &e);
        if (e.code == ERR_CANCELLED)
            build_fail(w->b, e.code, "%s", e.text);
    }
    const struct size size = v->list[at];
    bool fits = size.states && w->spent->states + size.states <= LIMIT_STATES &&
                w->spent->steps + size.steps <= v->all.max;
    w->spent->states += fits ? size.states : 0;
    w->spent->steps += fits ? size.steps : 0;
    if (!fits && w->strict)
        refuse_strict(w, e.text);
    return fits;
}

static uint32_t seq(const struct writer *w, uint32_t a, uint32_t b, uint32_t c) {
    const uint32_t parts[] = {a, b, c};
    return build_seq(w->b, parts, 3);
}

static uint32_t text(const struct writer *w, const char *s) {
    return build_text(w->b, s);
}

static uint32_t maybe(const struct writer *w, uint32_t part) {
    return build_or(w->b, BUILD_EMPTY, part);
}

// A parameter's schema by itself, and with a type (NULL: none): references lead into those
// definitions of the whole that are usually referred to.
static int schema_of(const struct json *property, const struct json *whole, const char *type,
                     struct json **out, struct err *e) {
    static const char *const definitions[] = {"$defs", "definitions"};
    struct json_writer w = {0};
    jw_begin(&w, '{');
    if (type)
        jw_key_str(&w, "type", type);
    jw_key_begin(&w, "allOf", '[');
    jw_value(&w, property);
    jw_end(&w, ']');
    for (int i = 0; i < 2; i++)
        if (json_get(whole, definitions[i]))
            jw_key_value(&w, definitions[i], json_get(whole, definitions[i]));
    jw_end(&w, '}');
    const struct json_rules rules = {.depth = 256, .big_integers = true};
    int rc = w.out.failed ? err_set(e, ERR_MEMORY, "no memory for the schema of a parameter")
                          : json_parse_with(out, w.out.data, w.out.len, &rules, e);
    str_fini(&w.out);
    return rc;
}

// One object. A schema that has no type means objects only, whatever else it would allow.
static uint32_t arguments(const struct writer *w, const struct json *schema) {
    struct json *object = NULL;
    struct err e = {0};
    if (schema && !json_get(schema, "type") && schema_of(schema, schema, "object", &object, &e))
        return build_fail(w->b, e.code, "%s", e.text);
    const struct json *whole = object ? object : schema;
    bool held = is_object(whole) && holds(w, whole, &(struct bare){0}, schema);
    uint32_t x = held ? build_schema(w->b, whole) : build_json_object(w->b);
    json_free(object);
    return x;
}

// ---- pairs of tags

static int says_nothing(void *arg, const char *key, size_t n, const struct json *v) {
    static const char *const words[] = {"type",     "description", "title",      "default",
                                        "examples", "$comment",    "deprecated", "readOnly"};
    (void)arg;
    (void)n;
    (void)v;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (!strcmp(key, words[i]))
            return 0;
    return 1;
}

// The value of a parameter with what its schema says of it; BUILD_NEVER: no grammar holds that.
static uint32_t held_value(const struct writer *w, const struct json *property,
                           const struct json *whole, const struct bare *bare) {
    struct json *schema = NULL;
    struct err e = {0};
    int rc = schema_of(property, whole, NULL, &schema, &e);
    if (rc)
        return build_fail(w->b, rc, "%s", e.text);
    uint32_t value =
        holds(w, schema, bare, property) ? value_of(w->b, schema, bare) : (uint32_t)BUILD_NEVER;
    json_free(schema);
    return value;
}

// From after the opening tag to after the closing one.
static uint32_t tagged_value(const struct writer *w, unsigned types, const struct json *property,
                             const struct json *whole) {
    const char *line = w->f->lines ? "\n" : "", *end = w->f->value_end;
    bool string = types & TOOL_STRING;
    const struct bare bare = {string ? end : NULL, types & ~(unsigned)TOOL_STRING};
    uint32_t value = BUILD_NEVER;
    if (!string || json_each(property, says_nothing, NULL))
        value = held_value(w, property, whole, &bare);
    if (value == BUILD_NEVER && string)
        return build_cat(w->b, text(w, line), build_until(w->b, end));
    if (value == BUILD_NEVER)
        value = build_json_value(w->b);
    return seq(w, build_cat(w->b, text(w, line), value), text(w, line), text(w, end));
}

// A parameter with its tags.
static uint32_t tagged_one(const struct writer *w, uint32_t name, unsigned types,
                           const struct json *property, const struct json *whole) {
    const struct tool_format *f = w->f;
    uint32_t tag = seq(w, text(w, f->key), name, text(w, f->key_end));
    if (f->value)
        tag = seq(w, tag, maybe(w, text(w, "\n")), text(w, f->value));
    uint32_t value = tagged_value(w, types, property, whole);
    return seq(w, tag, value, f->lines ? text(w, "\n") : maybe(w, text(w, "\n")));
}

// Whether a schema has members that its own `properties` does not list: those of what it refers to
// or is put together of, and where it lists none, any.
static bool lists_elsewhere(const struct json *schema) {
    static const char *const lists[] = {"allOf", "anyOf", "oneOf"};
    static const char *const parts[] = {"$ref", "then", "else", "dependentSchemas"};
    bool more = json_len(json_get(schema, "properties")) == 0 &&
                (json_kind_of(json_get(schema, "additionalProperties")) == JSON_OBJECT ||
                 json_bool(json_get(schema, "additionalProperties"), false) ||
                 json_get(schema, "patternProperties"));
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        more |= json_get(schema, parts[i]) != NULL;
    for (size_t k = 0; k < sizeof lists / sizeof *lists; k++) {
        const struct json *list = json_get(schema, lists[k]);
        for (size_t i = 0; i < json_len(list); i++)
            more |= json_has(json_at(list, i), "properties") || lists_elsewhere(json_at(list, i));
    }
    return more;
}

struct members {
    const struct writer *w;
    const struct tool *tool;
    const struct json *schema;
    uint32_t all;
};

static bool is_required(const struct json *schema, const char *key) {
    const struct json *list = json_get(schema, "required");
    for (size_t i = 0; i < json_len(list); i++) {
        const char *name = json_str(json_at(list, i), NULL);
        if (name && !strcmp(name, key))
            return true;
    }
    return false;
}

static int put_tagged(void *arg, const char *key, size_t n, const struct json *property) {
    struct members *m = arg;
    const struct writer *w = m->w;
    const struct tool_format *f = w->f;
    if (memmem(key, n, f->key_end, strlen(f->key_end))) { // the reader would take less for its name
        if (is_required(m->schema, key))
            build_fail(w->b, ERR_UNSUPPORTED,
                       "tools: the parameter '%.64s' of '%.64s' cannot be written in calls of this "
                       "model, where names end at %s",
                       key, m->tool->name, f->key_end);
        return 0;
    }
    uint32_t one = tagged_one(w, build_bytes(w->b, key, n), tool_param_types(m->tool, key, n),
                              property, m->schema);
    m->all = build_cat(w->b, m->all, is_required(m->schema, key) ? one : maybe(w, one));
    return 0;
}

// Parameters in the order of the schema, after the name up to the closing mark; after them any
// others, where the schema has more than it lists.
static uint32_t tagged_call(const struct writer *w, const struct tool *tool,
                            const struct json *schema) {
    struct members m = {.w = w, .tool = tool, .schema = schema, .all = BUILD_EMPTY};
    json_each(json_get(schema, "properties"), put_tagged, &m);
    if (lists_elsewhere(schema)) {
        const struct json *others = json_get(schema, "additionalProperties");
        uint32_t one = tagged_one(w, build_word(w->b), tool->others, others, schema);
        m.all = build_cat(w->b, m.all, build_repeat(w->b, one, 0, BUILD_ENDLESS));
    }
    uint32_t line = w->f->lines ? text(w, "\n") : maybe(w, text(w, "\n"));
    return seq(w, line, m.all, text(w, w->f->close));
}

// ---- strict tools

// The conditions of a schema on an object as a whole; parameters between tags are written one by
// one.
static bool held_one_by_one(const struct writer *w, const struct json *schema) {
    static const char *const whole[] = {"$ref",
                                        "$dynamicRef",
                                        "allOf",
                                        "anyOf",
                                        "oneOf",
                                        "not",
                                        "if",
                                        "const",
                                        "enum",
                                        "minProperties",
                                        "maxProperties",
                                        "propertyNames",
                                        "dependencies",
                                        "dependentRequired",
                                        "dependentSchemas",
                                        "patternProperties",
                                        "unevaluatedProperties"};
    const struct json *required = json_get(schema, "required");
    char why[256] = "";
    for (size_t i = 0; i < sizeof whole / sizeof *whole && !why[0]; i++)
        if (json_get(schema, whole[i]))
            snprintf(why, sizeof why,
                     "the schema at '#/%s': calls of this model are not held to it there",
                     whole[i]);
    for (size_t i = 0; i < json_len(required) && !why[0]; i++) {
        const char *name = json_str(json_at(required, i), NULL);
        if (name && !json_has(json_get(schema, "properties"), name))
            snprintf(why, sizeof why, "the schema at '#/required': properties do not list '%.64s'",
                     name);
    }
    if (why[0])
        refuse_strict(w, why);
    return !why[0];
}

// The writer for one tool. A strict one's schema is looked at as a whole first.
static struct writer writer_of(const struct writer *w, const struct tool_grammar_tool *t) {
    struct writer one = *w;
    const struct json *schema = t->freeform ? NULL : t->schema;
    bool strict = t->strict && schema;
    bool parts = w->f->args == TOOL_ARGS_TAGGED;
    one.strict = strict ? t : NULL;
    const struct grammar_json how = how_of(&one);
    build_json_how(w->b, &how);
    if (strict && json_get(schema, "type") && !is_object(schema))
        refuse_strict(&one, "the schema at '#/type': it must be \"object\"");
    else if (strict && parts && held_one_by_one(&one, schema))
        (void)holds(&one, schema, &(struct bare){0}, schema); // for an error with the whole place
    return one;
}

// ---- calls

#define FIRST_KEY "{\"name\":"

// The object around name and arguments as templates lay it out, so that most of it is forced; from
// after its first key.
static uint32_t named_rest(const struct writer *w, const struct tool_grammar_tool *t,
                           const struct json *schema) {
    char key[16];
    snprintf(key, sizeof key, "\"%s\":", w->f->arguments);
    uint32_t blank = maybe(w, text(w, " ")), line = maybe(w, text(w, "\n"));
    uint32_t head = build_cat(w->b, blank, build_json_quote(w->b, t->name, t->n));
    uint32_t args = seq(w, seq(w, text(w, ","), blank, text(w, key)), blank, arguments(w, schema));
    uint32_t object = seq(w, head, args, text(w, "}"));
    return w->f->close[0] ? build_cat(w->b, object, build_cat(w->b, line, text(w, w->f->close)))
                          : object;
}

static uint32_t named_call(const struct writer *w, const struct tool_grammar_tool *t,
                           const struct json *schema) {
    uint32_t object = build_cat(w->b, text(w, FIRST_KEY), named_rest(w, t, schema));
    return w->f->close[0] ? build_cat(w->b, maybe(w, text(w, "\n")), object) : object;
}

static uint32_t any_text(struct build *b) {
    static const struct build_chars chars[] = {{0, 0x10FFFF}};
    return build_repeat(b, build_class(b, chars, 1, BUILD_PLAIN), 0, BUILD_ENDLESS);
}

// Llama's calls have no mark, so an object with a name may be one or any text: it is one as soon as
// parameters follow the name of a tool.
static uint32_t named_or_text(const struct writer *w, const struct tool_grammar_tool *tools, int n,
                              const struct json *freeform) {
    uint32_t calls = BUILD_NEVER, names = BUILD_NEVER, any = any_text(w->b);
    uint32_t blanks = build_repeat(
        w->b, build_or(w->b, build_range(w->b, ' ', ' '), build_range(w->b, '\t', '\r')), 0,
        BUILD_ENDLESS);
    for (int i = 0; i < n; i++) {
        const struct json *schema = tools[i].freeform ? freeform : tools[i].schema;
        const struct writer one = writer_of(w, &tools[i]);
        calls = build_or(w->b, calls, named_rest(&one, &tools[i], schema));
        names = build_or(w->b, names, build_json_quote(w->b, tools[i].name, tools[i].n));
    }
    const uint32_t like[] = {blanks, names, blanks, text(w, ","), blanks, text(w, "\"parameters\""),
                             any};
    return build_or(w->b, calls,
                    build_without(w->b, any, build_seq(w->b, like, sizeof like / sizeof *like)));
}

// The text between the name and an object.
static uint32_t follows_name(const struct writer *w) {
    switch (w->family) {
    case TOOLS_HARMONY:
        return seq(w, maybe(w, text(w, "<|channel|>commentary")),
                   maybe(w, build_or(w->b, text(w, " json"), text(w, " <|constrain|>json"))),
                   text(w, "<|message|>"));
    case TOOLS_KIMI: {
        uint32_t digits = build_repeat(w->b, build_range(w->b, '0', '9'), 1, 3);
        return seq(w, text(w, ":"), digits, text(w, w->f->name_end[0]));
    }
    default:
        return text(w, w->f->keep_end ? "" : w->f->name_end[0]);
    }
}

// A call from after its mark on.
static uint32_t call_of(const struct writer *w, const struct tool_grammar_tool *t,
                        const struct tool *tool, const struct json *schema) {
    const struct tool_format *f = w->f;
    if (f->args == TOOL_ARGS_NAMED)
        return named_call(w, t, schema);
    uint32_t name = build_bytes(w->b, t->name, t->n);
    if (f->prefix)
        name = build_cat(w->b, text(w, f->prefix), name);
    name = build_cat(w->b, name, follows_name(w));
    if (f->args == TOOL_ARGS_TAGGED)
        return build_cat(w->b, name, tagged_call(w, tool, schema));
    bool framed = w->family == TOOLS_HARMONY;
    uint32_t args =
        seq(w, name, arguments(w, schema), text(w, f->before_close ? f->before_close : ""));
    return framed ? args : build_cat(w->b, args, text(w, f->close));
}

static uint32_t calls(const struct writer *w, const struct tool_grammar_tool *tools,
                      const struct tool_set *set, const struct json *freeform) {
    uint32_t all = BUILD_NEVER;
    for (int i = 0; i < set->n; i++) {
        const struct json *schema = tools[i].freeform ? freeform : tools[i].schema;
        const struct writer of_tool = writer_of(w, &tools[i]);
        uint32_t one = call_of(&of_tool, &tools[i], &set->list[i], schema);
        all = all == BUILD_NEVER ? one : build_or(w->b, all, one);
    }
    return build_shared(w->b, all);
}

// The beginning of a call; harmony's is the header, which the reader of reasoning frames.
static const char *mark_of(const struct writer *w) {
    if (w->family == TOOLS_HARMONY)
        return HARMONY_TO;
    return w->family == TOOLS_LLAMA ? w->f->section : w->f->open;
}

// From after a section's mark to its end: for those that call by it.
static uint32_t in_section(const struct writer *w, uint32_t call, bool several) {
    const struct tool_format *f = w->f;
    uint32_t blank = maybe(w, text(w, w->family == TOOLS_MISTRAL_LIST ? " " : "\n"));
    uint32_t list = call;
    if (several && f->between)
        list = build_cat(
            w->b, call,
            build_repeat(w->b, seq(w, text(w, f->between), blank, call), 0, BUILD_ENDLESS));
    uint32_t open = text(w, f->list ? f->list : f->open);
    return seq(w, build_cat(w->b, blank, open), list,
               seq(w, BUILD_EMPTY, f->list ? BUILD_EMPTY : blank, text(w, f->section_end)));
}

// A reply of calls, from its first byte on.
static uint32_t whole_of(const struct writer *w, uint32_t call, bool several) {
    const struct tool_format *f = w->f;
    uint32_t blanks = build_repeat(w->b, text(w, "\n"), 0, 2), one, all;
    if (f->own_section)
        one = build_cat(w->b, text(w, f->section), in_section(w, call, several));
    else
        one = w->family == TOOLS_LLAMA ? call : build_cat(w->b, text(w, mark_of(w)), call);
    all = one;
    if (several && !f->single && !f->list) {
        uint32_t next = build_cat(w->b, f->adjacent ? BUILD_EMPTY : maybe(w, text(w, "\n")), one);
        all = build_cat(w->b, one, build_repeat(w->b, next, 0, BUILD_ENDLESS));
    }
    if (f->section && !f->own_section && !f->single)
        all = seq(w, text(w, f->section), all, text(w, f->section_end));
    return w->family == TOOLS_HARMONY ? all : build_cat(w->b, blanks, all);
}

struct source {
    const struct tool_grammar_tool *tools;
    const struct tool_set *set;
    const struct json *freeform;
    enum tool_family family;
    bool several;
    const struct json *otherwise;
    bool otherwise_strict;
    struct verdicts *verdicts;
};

enum part { AFTER_MARK, AFTER_SECTION, AFTER_KEY, WHOLE };

static int make(const struct source *s, enum part part, struct grammar **out, struct err *e) {
    struct grammar_work work = {.cancel = s->verdicts->all.cancel, .max = LIMIT_STEPS};
    struct size spent = {0};
    struct writer w = {.f = &tool_formats[s->family],
                       .family = s->family,
                       .verdicts = s->verdicts,
                       .spent = &spent};
    int rc = build_create(&w.b, &work, 0, e);
    if (rc)
        return rc;
    uint32_t call = calls(&w, s->tools, s->set, s->freeform);
    uint32_t root = part == WHOLE           ? whole_of(&w, call, s->several)
                    : part == AFTER_SECTION ? in_section(&w, call, s->several)
                    : part == AFTER_KEY     ? named_or_text(&w, s->tools, s->set->n, s->freeform)
                                            : call;
    if (part == WHOLE && s->otherwise) {
        const struct grammar_json form = {.one_of_as_any = !s->otherwise_strict};
        build_json_how(w.b, &form);
        root = build_or(w.b, root, build_schema(w.b, s->otherwise));
    }
    rc = build_finish(w.b, root, out, e);
    build_destroy(w.b);
    s->verdicts->written += work.steps;
    return rc;
}

static int make_set(const struct tool_grammar_tool *tools, int n, struct tool_set *set,
                    struct err *e) {
    int rc = 0;
    for (int i = 0; i < n && !rc; i++)
        rc = tool_set_add(set, tools[i].name, tools[i].n, tools[i].schema, tools[i].freeform, e);
    return rc;
}

static int add_mark(struct tool_grammar *g, const struct source *s, const char *mark,
                    enum part part, struct err *e) {
    g->marks[g->n] = mark;
    g->first[g->n] = part == AFTER_KEY;
    return make(s, part, &g->rest[g->n++], e);
}

int tool_grammar_create(struct tool_grammar *out, enum tool_family f,
                        const struct tool_grammar_tool *tools, int n,
                        const struct tool_grammar_how *how, struct err *e) {
    const struct writer w = {.f = &tool_formats[f], .family = f};
    struct json *freeform = NULL;
    struct tool_set set = {0};
    struct verdicts verdicts = {.all = {.cancel = how->work ? how->work->cancel : NULL}};
    size_t bytes = 0;
    *out = (struct tool_grammar){0};
    int rc = make_set(tools, n, &set, e);
    if (!rc)
        rc = json_parse(&freeform, freeform_schema, sizeof freeform_schema - 1, e);
    for (int i = 0; i < n; i++)
        bytes += schema_bytes(tools[i].schema);
    verdicts.all.max = grammar_steps(bytes);
    const struct source s = {.tools = tools,
                             .set = &set,
                             .freeform = freeform,
                             .family = f,
                             .several = how->several,
                             .otherwise = how->otherwise,
                             .otherwise_strict = how->otherwise_strict,
                             .verdicts = &verdicts};
    if (!rc && !w.f->list)
        rc = add_mark(out, &s, mark_of(&w), AFTER_MARK, e);
    if (!rc && w.f->own_section)
        rc = add_mark(out, &s, w.f->section, AFTER_SECTION, e);
    if (!rc && f == TOOLS_LLAMA)
        rc = add_mark(out, &s, FIRST_KEY, AFTER_KEY, e);
    if (!rc)
        rc = make(&s, WHOLE, &out->whole, e);
    if (how->work)
        how->work->steps += verdicts.all.steps + verdicts.written;
    json_free(freeform);
    tool_set_fini(&set);
    free(verdicts.list);
    map_fini(&verdicts.known);
    arena_fini(&verdicts.arena);
    return rc;
}

bool tool_grammar_can_refuse(enum tool_family f) {
    return f != TOOLS_HARMONY;
}

int tool_grammar_refuse(struct tool_grammar *out, enum tool_family f, struct err *e) {
    const struct tool_format *r = &tool_formats[f];
    const char *const marks[] = {r->section, r->section_end, r->open,     r->close,
                                 r->key,     r->value,       r->value_end};
    struct build *b = NULL;
    *out = (struct tool_grammar){0};
    int rc = build_create(&b, NULL, 0, e);
    if (rc)
        return rc;
    uint32_t any = any_text(b), calls = BUILD_NEVER;
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (marks[i] && strlen(marks[i]) > 3) // a bracket is none by itself
            calls = build_or(b, calls, build_text(b, marks[i]));
    uint32_t one = build_seq(b, (uint32_t[]){any, calls, any}, 3);
    rc = build_finish(b, build_without(b, any, one), &out->whole, e);
    build_destroy(b);
    return rc;
}

void tool_grammar_fini(struct tool_grammar *g) {
    for (int i = 0; i < g->n; i++)
        grammar_unref(g->rest[i]);
    grammar_unref(g->whole);
    *g = (struct tool_grammar){0};
}
