// SPDX-License-Identifier: Apache-2.0
// The negation of a schema: a choice of the negations of its keywords, each for the type that it
// belongs to; those of parts of it are left to be made when they are needed. Two forms of `not`
// stay as they are, since schema_string holds them: strings that are not in a list, or do not match
// a pattern.
#include <stdlib.h>
#include <string.h>

#include "base/vec.h"
#include "grammar/schema/schema.h"

enum { MAX_NUMBERS = 64 };

struct negation {
    struct schema *s;
    struct json_writer *w;
    const struct json *v; // the schema that is negated
    int depth;
};

// ---- pieces of schemas

// {"type": type
static void schema_open_type(struct json_writer *w, const char *type) {
    jw_begin(w, '{');
    jw_key_str(w, "type", type);
}

// {"not": v}
static void schema_put_not(struct json_writer *w, const struct json *v) {
    jw_begin(w, '{');
    jw_key_value(w, "not", v);
    jw_end(w, '}');
}

static void schema_put_list(struct json_writer *w, const char *key, const char *name, size_t n) {
    jw_key_begin(w, key, '[');
    jw_str(w, name, n);
    jw_end(w, ']');
}

// "properties": {name: false}, or what is not `never`.
static void schema_put_property(struct json_writer *w, const char *name, size_t n,
                                const struct json *never) {
    char *key = strndup(name, n);
    jw_key_begin(w, "properties", '{');
    w->out.failed |= !key;
    jw_key(w, key ? key : "");
    free(key);
    if (never)
        schema_put_not(w, never);
    else
        jw_bool(w, false);
    jw_end(w, '}');
}

// {key: [ , up to the end of both.
static void open_list(struct json_writer *w, const char *key) {
    jw_begin(w, '{');
    jw_key_begin(w, key, '[');
}

static void close_list(struct json_writer *w) {
    jw_end(w, ']');
    jw_end(w, '}');
}

// {"allOf": [condition or its negation, to which the caller adds what follows from it.
static void open_case(struct json_writer *w, const struct json *condition, bool holds) {
    open_list(w, "allOf");
    if (holds)
        jw_value(w, condition);
    else
        schema_put_not(w, condition);
}

// ---- values

static int by_value(const void *a, const void *b) {
    long double x = schema_real(*(const struct json *const *)a, 0);
    long double y = schema_real(*(const struct json *const *)b, 0);
    return (x > y) - (x < y);
}

// Numbers between, below and above those that are left out.
static void other_numbers(struct json_writer *w, const struct json **v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    for (int i = 0; i <= n; i++) {
        schema_open_type(w, "number");
        if (i > 0)
            jw_key_value(w, "exclusiveMinimum", v[i - 1]);
        if (i < n)
            jw_key_value(w, "exclusiveMaximum", v[i]);
        jw_end(w, '}');
    }
}

static void other_strings(struct json_writer *w, const struct json *const *values, size_t n) {
    size_t bytes;
    schema_open_type(w, "string");
    jw_key_begin(w, "not", '{');
    jw_key_begin(w, "enum", '[');
    for (size_t i = 0; i < n; i++) {
        const char *text = json_str(values[i], &bytes);
        if (text)
            jw_str(w, text, bytes);
    }
    jw_end(w, ']');
    jw_end(w, '}');
    jw_end(w, '}');
}

static void put_types(struct json_writer *w, int types) {
    static const struct {
        int type;
        const char *name;
    } names[] = {{TYPE_NULL, "null"},     {TYPE_BOOL, "boolean"}, {TYPE_NUMBER, "number"},
                 {TYPE_STRING, "string"}, {TYPE_ARRAY, "array"},  {TYPE_OBJECT, "object"}};
    if (!types)
        return;
    open_list(w, "type");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if ((types & names[i].type) == names[i].type)
            jw_cstr(w, names[i].name);
    close_list(w);
}

static void other_values(struct negation *o, const char *key, const struct json *const *values,
                         size_t n) {
    const struct json *numbers[MAX_NUMBERS];
    int types = 0, count = 0;
    bool yes = false, no = false;
    for (size_t i = 0; i < n; i++) {
        int type = schema_type_of(values[i]);
        types |= type & TYPE_NUMBER ? TYPE_NUMBER : type;
        yes |= type == TYPE_BOOL && json_bool(values[i], false);
        no |= type == TYPE_BOOL && !json_bool(values[i], true);
        if (type & TYPE_NUMBER && count == MAX_NUMBERS)
            schema_fail(o->s, ERR_LIMIT, o->v, key, "more than 64 numbers are not left out");
        else if (type & TYPE_NUMBER)
            numbers[count++] = values[i];
        if (type & (TYPE_ARRAY | TYPE_OBJECT))
            schema_fail(o->s, ERR_UNSUPPORTED, o->v, key,
                        "arrays and objects that are not to be are not supported");
    }
    put_types(o->w, TYPE_ANY & ~types);
    if (types & TYPE_STRING)
        other_strings(o->w, values, n);
    if (types & TYPE_NUMBER)
        other_numbers(o->w, numbers, count);
    if (types & TYPE_BOOL && yes != no) {
        jw_begin(o->w, '{');
        jw_key_bool(o->w, "const", no);
        jw_end(o->w, '}');
    }
}

static void other_enum(struct negation *o, const struct json *list) {
    size_t n = json_len(list);
    const struct json **values = calloc(n + 1, sizeof *values);
    if (!values) {
        build_fail(o->s->b, ERR_MEMORY, "no memory for a schema");
        return;
    }
    for (size_t i = 0; i < n; i++)
        values[i] = json_at(list, i);
    other_values(o, "enum", values, n);
    free(values);
}

// ---- keywords

static void not_type(struct negation *o, const struct json *v) {
    struct conj c = {.list = &(struct member){.schema = o->v}, .count = 1};
    int types = schema_types(o->s, &c);
    (void)v;
    if (types & TYPE_NUMBER) // numbers that are no integers have no name
        types |= TYPE_NUMBER;
    put_types(o->w, TYPE_ANY & ~types);
}

static void not_const(struct negation *o, const struct json *v) {
    other_values(o, "const", &v, 1);
}

static void not_required(struct negation *o, const struct json *v) {
    for (size_t i = 0; i < json_len(v); i++) {
        size_t n;
        const char *name = json_str(json_at(v, i), &n);
        if (!name)
            continue;
        schema_open_type(o->w, "object");
        schema_put_property(o->w, name, n, NULL);
        jw_end(o->w, '}');
    }
}

static int not_property(void *arg, const char *key, size_t n, const struct json *v) {
    struct negation *o = arg;
    schema_open_type(o->w, "object");
    schema_put_list(o->w, "required", key, n);
    if (json_kind_of(v) != JSON_BOOL || json_bool(v, false))
        schema_put_property(o->w, key, n, v);
    jw_end(o->w, '}');
    return 0;
}

static void not_properties(struct negation *o, const struct json *v) {
    json_each(v, not_property, o);
}

static void not_pattern(struct negation *o, const struct json *v) {
    schema_open_type(o->w, "string");
    jw_key_begin(o->w, "not", '{');
    jw_key_value(o->w, "pattern", v);
    jw_end(o->w, '}');
    jw_end(o->w, '}');
}

static void not_any_of(struct negation *o, const struct json *v) {
    open_list(o->w, "allOf");
    for (size_t i = 0; i < json_len(v); i++)
        schema_put_not(o->w, json_at(v, i));
    close_list(o->w);
}

static void not_all_of(struct negation *o, const struct json *v) {
    for (size_t i = 0; i < json_len(v); i++)
        schema_put_not(o->w, json_at(v, i));
}

static void not_not(struct negation *o, const struct json *v) {
    jw_value(o->w, v);
}

static void not_ref(struct negation *o, const struct json *v) {
    const char *ref = json_str(v, NULL);
    const struct json *target = ref ? schema_target(o->s, o->v, ref) : NULL;
    if (target)
        schema_negate(o->s, o->w, target, o->depth + 1);
}

static void not_items(struct negation *o, const struct json *v) {
    if (json_kind_of(v) == JSON_ARRAY || json_has(o->v, "prefixItems")) {
        schema_fail(o->s, ERR_UNSUPPORTED, o->v, "items",
                    "within not, items by their places are not supported");
        return;
    }
    schema_open_type(o->w, "array");
    jw_key(o->w, "contains");
    schema_put_not(o->w, v);
    jw_end(o->w, '}');
}

static void not_contains(struct negation *o, const struct json *v) {
    if (json_has(o->v, "minContains") || json_has(o->v, "maxContains")) {
        schema_fail(o->s, ERR_UNSUPPORTED, o->v, "contains",
                    "within not, minContains and maxContains are not supported");
        return;
    }
    schema_open_type(o->w, "array");
    jw_key(o->w, "items");
    schema_put_not(o->w, v);
    jw_end(o->w, '}');
}

static int not_dependent(void *arg, const char *key, size_t n, const struct json *v) {
    struct negation *o = arg;
    for (size_t i = 0; i < (json_kind_of(v) == JSON_ARRAY ? json_len(v) : 1); i++) {
        size_t bytes;
        const char *name = json_str(json_at(v, i), &bytes);
        schema_open_type(o->w, "object");
        schema_put_list(o->w, "required", key, n);
        if (json_kind_of(v) != JSON_ARRAY) {
            jw_key_value(o->w, "not", v);
        } else {
            schema_put_property(o->w, name ? name : "", name ? bytes : 0, NULL);
        }
        jw_end(o->w, '}');
    }
    return 0;
}

static void not_dependents(struct negation *o, const struct json *v) {
    json_each(v, not_dependent, o);
}

static void not_if(struct negation *o, const struct json *v) {
    static const char *const ends[] = {"then", "else"};
    for (int i = 0; i < 2; i++) {
        const struct json *end = json_get(o->v, ends[i]);
        if (!end)
            continue;
        open_case(o->w, v, i == 0);
        schema_put_not(o->w, end);
        close_list(o->w);
    }
}

// Keywords whose negation is another bound of the same type.
static void not_bound(struct negation *o, const char *key, const struct json *v) {
    static const struct {
        const char *key, *type, *other;
        int step; // for counts
    } bounds[] = {{"minimum", "number", "exclusiveMaximum", 0},
                  {"maximum", "number", "exclusiveMinimum", 0},
                  {"exclusiveMinimum", "number", "maximum", 0},
                  {"exclusiveMaximum", "number", "minimum", 0},
                  {"minLength", "string", "maxLength", -1},
                  {"maxLength", "string", "minLength", 1},
                  {"minItems", "array", "maxItems", -1},
                  {"maxItems", "array", "minItems", 1},
                  {"minProperties", "object", "maxProperties", -1},
                  {"maxProperties", "object", "minProperties", 1}};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        if (strcmp(bounds[i].key, key) != 0)
            continue;
        if (json_kind_of(v) != JSON_INT && json_kind_of(v) != JSON_DOUBLE)
            schema_fail(o->s, ERR_UNSUPPORTED, o->v, key, "within not, it must be a number");
        double n = json_num(v, 0) + bounds[i].step;
        if (bounds[i].step && n < 0)
            return;
        schema_open_type(o->w, bounds[i].type);
        if (bounds[i].step)
            jw_key_num(o->w, bounds[i].other, n);
        else // as it was spelt: no double holds every whole number
            jw_key_value(o->w, bounds[i].other, v);
        jw_end(o->w, '}');
        return;
    }
}

static int not_keyword(void *arg, const char *key, size_t n, const struct json *v) {
    static const struct {
        const char *key;
        void (*put)(struct negation *, const struct json *);
    } known[] = {{"type", not_type},
                 {"const", not_const},
                 {"enum", other_enum},
                 {"required", not_required},
                 {"properties", not_properties},
                 {"pattern", not_pattern},
                 {"anyOf", not_any_of},
                 {"allOf", not_all_of},
                 {"not", not_not},
                 {"$ref", not_ref},
                 {"items", not_items},
                 {"contains", not_contains},
                 {"dependentRequired", not_dependents},
                 {"dependentSchemas", not_dependents},
                 {"dependencies", not_dependents},
                 {"if", not_if}};
    static const char *const refused[] = {
        "oneOf",           "prefixItems", "additionalProperties", "patternProperties",
        "propertyNames",   "uniqueItems", "unevaluatedItems",     "unevaluatedProperties",
        "additionalItems", "multipleOf",  "$dynamicRef",          "format"};
    struct negation *o = arg;
    (void)n;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].key, key)) {
            known[i].put(o, v);
            return o->s->b->e.code;
        }
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        if (!strcmp(refused[i], key))
            schema_fail(o->s, ERR_UNSUPPORTED, o->v, key,
                        "within not, this keyword is not supported");
    not_bound(o, key, v);
    return o->s->b->e.code;
}

// Writes a schema that holds where v does not.
void schema_negate(struct schema *s, struct json_writer *w, const struct json *v, int depth) {
    struct negation o = {.s = s, .w = w, .v = v, .depth = depth};
    if (json_kind_of(v) == JSON_BOOL) {
        jw_bool(w, !json_bool(v, true));
        return;
    }
    if (json_kind_of(v) != JSON_OBJECT || depth > SCHEMA_DEEPEST) {
        schema_fail(s, depth > SCHEMA_DEEPEST ? ERR_LIMIT : ERR_FORMAT, v, NULL,
                    depth > SCHEMA_DEEPEST ? "references within not lead too far"
                                           : "a schema must be an object, true or false");
        jw_bool(w, false);
        return;
    }
    open_list(w, "anyOf");
    jw_bool(w, false);
    json_each(v, not_keyword, &o);
    close_list(w);
}

// Schemas that say in other words what not, if, dependentRequired and dependentSchemas request:
// choices between schemas, so that nothing after them has to handle these keywords. Each is made
// once.

enum { MAX_BYTES = 8 << 20, MAX_DEPENDENT = 10 };

static void choose_if(struct json_writer *w, const struct json *v) {
    for (int i = 0; i < 2; i++) {
        const char *end = i ? "else" : "then";
        open_case(w, json_get(v, "if"), i == 0);
        if (json_has(v, end))
            jw_value(w, json_get(v, end));
        else
            jw_bool(w, true);
        close_list(w);
    }
}

// The property is not there, or it is and what depends on it holds.
static int put_dependent(void *arg, const char *key, size_t n, const struct json *v) {
    struct json_writer *w = arg;
    open_list(w, "anyOf");
    jw_begin(w, '{');
    schema_put_property(w, key, n, NULL);
    jw_end(w, '}');
    schema_open_type(w, "object");
    schema_put_list(w, "required", key, n);
    jw_key_begin(w, "allOf", '[');
    if (json_kind_of(v) == JSON_ARRAY) {
        jw_begin(w, '{');
        jw_key_value(w, "required", v);
        jw_end(w, '}');
    } else {
        jw_value(w, v);
    }
    close_list(w);
    close_list(w);
    return w->out.failed;
}

static void put_tag(struct json_writer *w, const struct tag *tag) {
    schema_open_type(w, "object");
    schema_put_list(w, "required", tag->name, strlen(tag->name));
    if (tag->value) {
        jw_key_begin(w, "properties", '{');
        jw_key_begin(w, tag->name, '{');
        jw_key_str(w, "const", tag->value);
        jw_end(w, '}');
        jw_end(w, '}');
    }
    jw_end(w, '}');
}

// ---- what is made, once for each schema

static void write_words(struct schema *s, struct json_writer *w, enum schema_words what,
                        const struct json *v) {
    static const char *const names[] = {"dependentRequired", "dependentSchemas", "dependencies"};
    if (what == WORDS_NOT) {
        schema_negate(s, w, v, 0);
        return;
    }
    if (what == WORDS_TAG) {
        put_tag(w, &s->tag);
        return;
    }
    open_list(w, what == WORDS_IF ? "anyOf" : "allOf");
    if (what == WORDS_IF)
        choose_if(w, v);
    for (size_t i = 0; what == WORDS_DEPENDENT && i < sizeof names / sizeof *names; i++) {
        const struct json *list = json_get(v, names[i]);
        if (list && json_kind_of(list) != JSON_OBJECT)
            schema_fail(s, ERR_FORMAT, v, names[i], "it must be an object");
        if (json_len(list) > MAX_DEPENDENT) // each doubles the forms that the object may have
            schema_fail(s, ERR_LIMIT, v, names[i], "it has more than 10 properties");
        json_each(list, put_dependent, w);
    }
    close_list(w);
}

// What a schema that is a reference only refers to: the same for all such references.
static const struct json *referred(struct schema *s, const struct json *v) {
    for (int i = 0; i < SCHEMA_DEEPEST && json_kind_of(v) == JSON_OBJECT && json_len(v) == 1; i++) {
        const char *ref = json_str(json_get(v, "$ref"), NULL);
        const struct json *to = ref ? schema_target(s, v, ref) : NULL;
        if (!to)
            break;
        v = to;
    }
    return v;
}

const struct json *schema_in_words(struct schema *s, enum schema_words what, const struct json *v) {
    struct json_writer w = {0};
    struct json *doc = NULL;
    if (what == WORDS_NOT)
        v = referred(s, v);
    build_work(s->b, s->worded_count / 4);
    for (int64_t i = 0; i < s->worded_count; i++)
        if (s->worded[i].of == v && s->worded[i].what == what)
            return s->worded[i].doc;
    write_words(s, &w, what, v);
    struct err *e = &s->b->e;
    s->worded_bytes += w.out.len;
    build_work(s->b, (int64_t)w.out.len * 4);
    if (w.out.failed)
        build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    else if (s->worded_bytes > MAX_BYTES)
        schema_fail(s, ERR_LIMIT, v, NULL,
                    "not, if and dependent keywords become more than 8 MB of choices");
    if (!e->code &&
        !vec_reserve(&s->worded, &s->worded_cap, s->worded_count + 1, sizeof *s->worded, e) &&
        !json_parse(&doc, w.out.data, w.out.len, e))
        s->worded[s->worded_count++] = (struct worded){doc, v, what};
    str_fini(&w.out);
    return doc;
}

void schema_words_fini(struct schema *s) {
    for (int64_t i = 0; i < s->worded_count; i++)
        json_free(s->worded[i].doc);
    free(s->worded);
}

bool schema_plain_not(const struct json *v) {
    const struct json *no = json_get(v, "not"), *list = json_get(no, "enum");
    const char *type = json_str(json_get(v, "type"), NULL);
    if (!type || strcmp(type, "string") != 0 || json_kind_of(no) != JSON_OBJECT ||
        json_len(no) != 1)
        return false;
    for (size_t i = 0; i < json_len(list); i++)
        if (!json_str(json_at(list, i), NULL))
            return false;
    return json_kind_of(list) == JSON_ARRAY || json_str(json_get(no, "pattern"), NULL);
}
