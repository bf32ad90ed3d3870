// SPDX-License-Identifier: Apache-2.0
// const and enum: the values that all of them name, as far as the other keywords allow them; and
// whether two alternatives of a oneOf can hold for one value.
#include "grammar/schema/schema.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"

enum { MAX_VALUES = 100000, MAX_COMPARED = 1 << 22 };

// ---- a value as it is written

struct written {
    struct build *b;
    uint32_t x;
    size_t count;
};

static uint32_t write_value(struct build *b, const struct json *v);

static void add_part(struct written *w, uint32_t part) {
    uint32_t before = w->count++ ? build_json_comma(w->b) : build_json_space(w->b);
    w->x = build_seq(w->b, (uint32_t[]){w->x, before, part}, 3);
}

static int write_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct written *w = arg;
    uint32_t parts[] = {build_json_name(w->b, key, n), build_json_colon(w->b),
                        write_value(w->b, v)};
    add_part(w, build_seq(w->b, parts, 3));
    return w->b->e.code;
}

static uint32_t write_value(struct build *b, const struct json *v) {
    build_work(b, 1);
    enum json_kind kind = json_kind_of(v);
    struct written w = {.b = b, .x = BUILD_EMPTY};
    size_t n;
    const char *text;
    if (kind == JSON_STRING) {
        text = json_str(v, &n);
        return build_json_quote(b, text, n);
    }
    if (kind == JSON_INT || kind == JSON_DOUBLE) {
        text = json_number_text(v);
        return text ? build_text(b, text) : build_fail(b, ERR_MEMORY, "no memory for a schema");
    }
    if (kind == JSON_NULL || kind == JSON_BOOL)
        return build_text(b, kind == JSON_NULL ? "null" : json_bool(v, false) ? "true" : "false");
    if (kind == JSON_OBJECT)
        json_each(v, write_member, &w);
    for (size_t i = 0; kind == JSON_ARRAY && i < json_len(v) && !b->e.code; i++)
        add_part(&w, write_value(b, json_at(v, i)));
    uint32_t all[] = {build_text(b, kind == JSON_ARRAY ? "[" : "{"), w.x, build_json_space(b),
                      build_text(b, kind == JSON_ARRAY ? "]" : "}")};
    return build_seq(b, all, 4);
}

// ---- which values

static bool in_enum(struct schema *s, const struct json *schema, const struct json *v) {
    const struct json *list = json_get(schema, "enum");
    if (json_has(schema, "const") && !json_same(s->b, json_get(schema, "const"), v))
        return false;
    if (!list)
        return true;
    for (size_t i = 0; i < json_len(list); i++)
        if (json_same(s->b, json_at(list, i), v))
            return true;
    return false;
}

bool schema_listed(struct schema *s, const struct json *schema, const char *text, size_t n) {
    const struct json *list = json_get(schema, "enum"), *one = json_get(schema, "const");
    bool found = !list;
    size_t bytes;
    build_work(s->b, (int64_t)json_len(list));
    for (size_t i = 0; i < json_len(list) && !found; i++) {
        const char *value = json_str(json_at(list, i), &bytes);
        found = value && bytes == n && !memcmp(value, text, n);
    }
    const char *value = json_str(one, &bytes);
    return found &&
           (!json_has(schema, "const") || (value && bytes == n && !memcmp(value, text, n)));
}

static bool constrained(const struct conj *c, int type) {
    static const char *const strings[] = {"pattern", "minLength", "maxLength", "format", "not"};
    static const char *const others[] = {"properties",
                                         "required",
                                         "additionalProperties",
                                         "patternProperties",
                                         "propertyNames",
                                         "minProperties",
                                         "maxProperties",
                                         "items",
                                         "prefixItems",
                                         "minItems",
                                         "maxItems",
                                         "uniqueItems",
                                         "contains",
                                         "additionalItems",
                                         "unevaluatedItems",
                                         "unevaluatedProperties"};
    bool string = type == TYPE_STRING;
    size_t n = string ? sizeof strings / sizeof *strings : sizeof others / sizeof *others;
    for (int64_t i = 0; i < c->count; i++)
        for (size_t k = 0; k < n; k++)
            if (json_has(c->list[i].schema, (string ? strings : others)[k]))
                return true;
    return false;
}

uint32_t schema_value(struct schema *s, const struct conj *c, int types, const struct json *from,
                      const struct json *v) {
    int type = schema_type_of(v);
    if (!(type & types) || !build_work(s->b, 4 * c->count))
        return BUILD_NEVER;
    for (int64_t i = 0; i < c->count; i++)
        if ((c->list[i].schema != from || json_has(from, "const")) &&
            !in_enum(s, c->list[i].schema, v))
            return BUILD_NEVER;
    if (type & TYPE_NUMBER && !schema_number_ok(c, v))
        return BUILD_NEVER;
    if (type == TYPE_STRING && schema_is_bare(c)) {
        size_t n = 0;
        const char *text = json_str(v, &n);
        return schema_bare_value(s, c, text, n);
    }
    uint32_t x = write_value(s->b, v);
    if (type == TYPE_STRING && constrained(c, type))
        return build_and(s->b, x, s->b->how.marks ? schema_marked(s, c) : schema_string(s, c));
    if (type & (TYPE_ARRAY | TYPE_OBJECT) && constrained(c, type))
        return schema_fail(s, ERR_UNSUPPORTED, c->list[0].schema, NULL,
                           "const and enum of arrays and objects are not supported together with "
                           "keywords for arrays and objects");
    return x;
}

uint32_t schema_values(struct schema *s, const struct conj *c, int types) {
    const struct json *first = NULL, *list = NULL;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = c->list[i].schema;
        if (json_has(v, "enum") && json_kind_of(json_get(v, "enum")) != JSON_ARRAY)
            return schema_fail(s, ERR_FORMAT, v, "enum", "it must be an array");
        if (!first && (json_has(v, "const") || json_has(v, "enum")))
            first = v;
    }
    if (json_has(first, "const"))
        return schema_value(s, c, types, first, json_get(first, "const"));
    list = json_get(first, "enum");
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = c->list[i].schema;
        if (v != first && json_len(json_get(v, "enum")) * json_len(list) > MAX_COMPARED)
            return schema_fail(s, ERR_LIMIT, v, "enum",
                               "two long lists of values hold at once; write out what is in both");
    }
    if (json_len(list) > MAX_VALUES)
        return schema_fail(s, ERR_LIMIT, first, "enum", "it has more than 100,000 values");
    uint32_t *parts = calloc(json_len(list) + 1, sizeof *parts);
    if (!parts)
        return build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    for (size_t i = 0; i < json_len(list) && !s->b->e.code; i++)
        parts[i] = schema_value(s, c, types, first, json_at(list, i));
    uint32_t x = build_alt(s->b, parts, json_len(list));
    free(parts);
    return x;
}

// ---- overlaps

// The values that a schema names by itself; NULL: it names none. *one: a const.
static const struct json *named(const struct conj *c, bool *one) {
    for (int64_t i = 0; i < c->count; i++) {
        *one = json_has(c->list[i].schema, "const");
        if (*one)
            return c->list[i].schema;
        if (json_has(c->list[i].schema, "enum"))
            return json_get(c->list[i].schema, "enum");
    }
    return NULL;
}

static const struct json *named_at(const struct json *values, bool one, size_t i) {
    return one ? json_get(values, "const") : json_at(values, i);
}

static bool share_values(struct schema *s, const struct conj *a, const struct conj *b) {
    bool one_a, one_b;
    const struct json *va = named(a, &one_a), *vb = named(b, &one_b);
    if (!va || !vb)
        return true;
    size_t na = one_a ? 1 : json_len(va), nb = one_b ? 1 : json_len(vb);
    if (na * nb > 1 << 16)
        return true;
    for (size_t i = 0; i < na; i++)
        for (size_t k = 0; k < nb; k++)
            if (json_same(s->b, named_at(va, one_a, i), named_at(vb, one_b, k)))
                return true;
    return false;
}

// Types of a conjunction, of its choices too, and of the values that it names.
static int possible_types(struct schema *s, const struct conj *c, int depth) {
    int types = schema_types(s, c), values = 0;
    bool one;
    const struct json *list = named(c, &one);
    build_work(s->b, c->count + (list && !one ? (int64_t)json_len(list) : 1));
    for (size_t i = 0; list && i < (one ? 1 : json_len(list)); i++)
        values |= schema_type_of(named_at(list, one, i));
    types &= list ? values : TYPE_ANY;
    for (int64_t i = 0; i < c->count && depth < 4 && !s->b->e.code; i++) {
        const struct json *any = json_get(c->list[i].schema, "anyOf");
        any = any ? any : json_get(c->list[i].schema, "oneOf");
        int some = 0;
        for (size_t k = 0; k < json_len(any) && k < 64; k++) {
            struct conj alternative = {0};
            if (!build_work(s->b, 1))
                return 0;
            conj_add(s, &alternative, json_at(any, k));
            some |= alternative.never ? 0 : possible_types(s, &alternative, depth + 1);
            conj_fini(&alternative);
        }
        types &= any && json_len(any) <= 64 ? some : TYPE_ANY;
    }
    return c->never ? 0 : types;
}

static bool
    requires(struct schema *s, const struct conj *c, const char *name)
{
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *list = json_get(c->list[i].schema, "required");
        build_work(s->b, 1 + (int64_t)json_len(list));
        for (size_t k = 0; k < json_len(list); k++) {
            const char *one = json_str(json_at(list, k), NULL);
            if (one && strcmp(one, name) == 0)
                return true;
        }
    }
    return false;
}

struct pair_of {
    struct schema *s;
    const struct conj *a, *b;
    bool apart;
};

static void add_property(struct schema *s, const struct conj *c, const char *name,
                         struct conj *value) {
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *own = json_get(c->list[i].schema, "properties");
        const struct json *rest = json_get(c->list[i].schema, "additionalProperties");
        if (own && json_has(own, name))
            conj_add(s, value, json_get(own, name));
        else if (rest && !json_has(c->list[i].schema, "patternProperties"))
            conj_add(s, value, rest);
    }
}

// A property that one of the two requires and that cannot be the same in both.
static int tells_apart(void *arg, const char *key, size_t n, const struct json *v) {
    struct pair_of *p = arg;
    struct conj a = {0}, b = {0};
    (void)n;
    (void)v;
    if (!requires(p->s, p->a, key) && !requires(p->s, p->b, key))
        return 0;
    add_property(p->s, p->a, key, &a);
    add_property(p->s, p->b, key, &b);
    p->apart = a.never || b.never || !share_values(p->s, &a, &b) ||
               !(possible_types(p->s, &a, 0) & possible_types(p->s, &b, 0));
    conj_fini(&a);
    conj_fini(&b);
    return p->apart;
}

bool schema_overlap(struct schema *s, const struct json *one, const struct json *other) {
    struct conj a = {0}, b = {0};
    struct pair_of p = {.s = s, .a = &a, .b = &b};
    conj_add(s, &a, one);
    conj_add(s, &b, other);
    int types = possible_types(s, &a, 0) & possible_types(s, &b, 0);
    bool overlap = types && share_values(s, &a, &b);
    for (int k = 0; k < 2 && types == TYPE_OBJECT; k++)
        for (int64_t i = 0; i < (k ? b : a).count && overlap; i++) {
            json_each(json_get((k ? b : a).list[i].schema, "properties"), tells_apart, &p);
            overlap = !p.apart;
        }
    conj_fini(&a);
    conj_fini(&b);
    return overlap;
}

// ---- tags

enum { TAGS = 16, TAGGED = 1024 }; // properties that are tried; alternatives

struct tags {
    struct schema *s;
    const struct json *v, *list; // the schema, and its alternatives
    struct conj *parts;          // [alternative]
    int *types;                  // that each may have
    int tried;
    const char *found;
};

struct mapping {
    const char *ref, *key;
};

static int maps(void *arg, const char *key, size_t n, const struct json *v) {
    struct mapping *m = arg;
    const char *to = json_str(v, NULL), *name = strrchr(m->ref, '/');
    (void)n;
    if (to && (!strcmp(to, m->ref) || (name && !strcmp(to, name + 1))))
        m->key = key;
    return m->key != NULL;
}

static const char *discriminator(const struct json *v) {
    const struct json *d = json_get(v, "discriminator");
    const char *name = json_str(d, NULL);
    return name ? name : json_str(json_get(d, "propertyName"), NULL);
}

// The value that a discriminator means where the property itself names none: that of the mapping,
// or the property's default, or the name of what is referred to.
static const char *meant(const struct json *v, const struct json *one, const struct conj *value) {
    const struct json *mapping = json_get(json_get(v, "discriminator"), "mapping");
    struct mapping m = {.ref = json_str(json_get(one, "$ref"), NULL)};
    if (m.ref && mapping)
        json_each(mapping, maps, &m);
    for (int64_t i = 0; i < value->count && !m.key; i++)
        m.key = json_str(json_get(value->list[i].schema, "default"), NULL);
    const char *name = m.ref ? strrchr(m.ref, '/') : NULL;
    return m.key ? m.key : name && !mapping ? name + 1 : NULL;
}

// Notes that alternative i is known by a value; false: another one is, too.
static bool note(struct schema *s, struct map *seen, const struct json *v, const char *text,
                 size_t i) {
    struct json_writer w = {0};
    uint32_t other = (uint32_t)i;
    enum json_kind kind = text ? JSON_STRING : json_kind_of(v);
    if (kind == JSON_DOUBLE || kind == JSON_ARRAY || kind == JSON_OBJECT) // equal in several forms
        return false;
    if (text)
        jw_str(&w, text, strlen(text));
    else
        jw_value(&w, v);
    char *kept = w.out.failed ? NULL : arena_strndup(&s->arena, w.out.data, w.out.len);
    if (!kept || (!map_find(seen, kept, w.out.len, &other) &&
                  map_insert(seen, kept, w.out.len, (uint32_t)i) < 0))
        build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    build_work(s->b, 16 + (int64_t)w.out.len / 8);
    str_fini(&w.out);
    return other == i && !s->b->e.code;
}

static bool notes(const struct tags *t, struct map *seen, const char *name, size_t i) {
    const char *tag = discriminator(t->v), *text = NULL;
    struct conj value = {0};
    bool one, good = true;
    add_property(t->s, &t->parts[i], name, &value);
    const struct json *list = named(&value, &one);
    if (!list && tag && !strcmp(tag, name))
        text = meant(t->v, json_at(t->list, i), &value);
    size_t n = list && !one ? json_len(list) : 1;
    for (size_t k = 0; k < n && good; k++)
        good = (list || text) && note(t->s, seen, list ? named_at(list, one, k) : NULL, text, i);
    conj_fini(&value);
    return good;
}

static int tells_all(void *arg, const char *key, size_t n, const struct json *v) {
    struct tags *t = arg;
    struct map seen = {0};
    bool good = true;
    (void)n;
    if (v && !json_has(v, "const") && !json_has(v, "enum") && !json_has(v, "$ref") &&
        !json_has(v, "allOf"))
        return 0;
    for (size_t i = 0; i < json_len(t->list) && good; i++)
        good = !(t->types[i] & TYPE_OBJECT) || notes(t, &seen, key, i);
    map_fini(&seen);
    if (good)
        t->found = key;
    return good || ++t->tried >= TAGS || t->s->b->e.code;
}

// Do alternatives that are no objects keep apart?
static bool others_apart(const struct tags *t) {
    for (size_t i = 0; i < json_len(t->list); i++)
        for (size_t k = 0; k < i; k++)
            if (!((t->types[i] | t->types[k]) & TYPE_OBJECT) && t->types[i] & t->types[k] &&
                schema_overlap(t->s, json_at(t->list, k), json_at(t->list, i)))
                return false;
    return true;
}

static void look_for_tag(struct tags *t) {
    const char *name = discriminator(t->v);
    const struct conj *first = NULL;
    size_t objects = 0;
    for (size_t i = 0; i < json_len(t->list) && !t->s->b->e.code; i++) {
        conj_add(t->s, &t->parts[i], json_at(t->list, i));
        t->types[i] = possible_types(t->s, &t->parts[i], 0);
        if (t->types[i] & TYPE_OBJECT && objects++ == 0)
            first = &t->parts[i];
    }
    if (objects < 2 || t->s->b->e.code || !others_apart(t))
        return;
    if (name && tells_all(t, name, strlen(name), NULL) && t->found)
        return;
    for (int64_t i = 0; i < first->count && !t->found && t->tried < TAGS; i++)
        json_each(json_get(first->list[i].schema, "properties"), tells_all, t);
}

const char *schema_tag(struct schema *s, const struct json *v, const struct json *list) {
    size_t n = json_len(list);
    struct tags t = {.s = s, .v = v, .list = list};
    if (n > TAGGED)
        return NULL;
    t.parts = calloc(n + 1, sizeof *t.parts);
    t.types = calloc(n + 1, sizeof *t.types);
    if (t.parts && t.types)
        look_for_tag(&t);
    else
        build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    for (size_t i = 0; i < n && t.parts; i++)
        conj_fini(&t.parts[i]);
    free(t.parts);
    free(t.types);
    return s->b->e.code ? NULL : t.found;
}

const struct json *schema_tagged(struct schema *s, const struct json *v, const struct json *one,
                                 const char *name) {
    const char *tag = discriminator(v);
    struct conj c = {0}, value = {0};
    bool single;
    conj_add(s, &c, one);
    add_property(s, &c, name, &value);
    bool object = possible_types(s, &c, 0) & TYPE_OBJECT;
    s->tag = (struct tag){.name = name};
    if (tag && !strcmp(tag, name) && !named(&value, &single))
        s->tag.value = meant(v, one, &value);
    conj_fini(&c);
    conj_fini(&value);
    return object ? schema_in_words(s, WORDS_TAG, one) : NULL;
}
