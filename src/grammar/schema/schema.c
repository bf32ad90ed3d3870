// SPDX-License-Identifier: Apache-2.0
// Rules of conjunctions: choices first, then one alternative for each type. What no grammar here
// can hold is refused by name, with its place.
#include "grammar/schema/schema.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"

static void check_one_of(struct schema *s, const struct json *v, const struct json *list) {
    if (s->b->how.one_of_as_any)
        return;
    if (json_len(list) > 64)
        schema_fail(s, ERR_LIMIT, v, "oneOf", "it has more than 64 alternatives; use anyOf");
    for (size_t i = 0; i < json_len(list) && !s->b->e.code; i++)
        for (size_t k = 0; k < i && !s->b->e.code; k++)
            if (schema_overlap(s, json_at(list, k), json_at(list, i)))
                schema_fail(s, ERR_UNSUPPORTED, v, "oneOf",
                            "two alternatives may hold at once; tell them apart by type or by a "
                            "const of one property in each, or use anyOf");
}

// The alternatives of a member's anyOf or oneOf, each with all other members.
static uint32_t write_alternatives(struct schema *s, const struct conj *c, int64_t at,
                                   uint32_t choice, const struct json *list) {
    const struct json *v = c->list[at].schema, *words;
    const char *tag = choice == SCHEMA_ONE_OF ? schema_tag(s, v, list) : NULL;
    if (choice == SCHEMA_ONE_OF && !tag)
        check_one_of(s, v, list);
    size_t n = json_len(list);
    uint32_t *parts = calloc(n, sizeof *parts);
    if (!parts)
        return build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    for (size_t k = 0; k < n && !s->b->e.code; k++) {
        struct conj one = {.never = c->never};
        if (!build_work(s->b, 1) ||
            vec_reserve(&one.list, &one.cap, c->count, sizeof *one.list, &s->b->e))
            break;
        memcpy(one.list, c->list, (size_t)c->count * sizeof *c->list);
        one.count = c->count;
        one.list[at].done |= choice;
        conj_choose(s, &one, json_at(list, k), at);
        if (tag && (words = schema_tagged(s, v, json_at(list, k), tag)))
            conj_choose(s, &one, words, at);
        parts[k] = schema_rule(s, &one);
    }
    uint32_t x = build_alt(s->b, parts, n);
    free(parts);
    return x;
}

// Makes the first choice that is still to be made; false: there is none.
static bool write_first_choice(struct schema *s, const struct conj *c, uint32_t *x) {
    for (int64_t i = 0; i < c->count; i++) {
        const struct member *m = &c->list[i];
        bool any = json_has(m->schema, "anyOf") && !(m->done & SCHEMA_ANY_OF);
        bool one = json_has(m->schema, "oneOf") && !(m->done & SCHEMA_ONE_OF);
        if (!any && !one)
            continue;
        const char *keyword = any ? "anyOf" : "oneOf";
        const struct json *list = json_get(m->schema, keyword);
        *x = BUILD_NEVER;
        if (json_kind_of(list) != JSON_ARRAY || json_len(list) == 0) {
            schema_fail(s, ERR_FORMAT, m->schema, keyword, "it must be an array with alternatives");
            return true;
        }
        *x = write_alternatives(s, c, i, any ? SCHEMA_ANY_OF : SCHEMA_ONE_OF, list);
        return true;
    }
    return false;
}

// Keywords that would say nothing with a value of another kind.
static void check_kinds(struct schema *s, const struct conj *c) {
    enum { NUMBER, NUMBER_OR_BOOL, BOOL, STRING };
    static const char *const must[] = {"a number", "a number, or true or false next to the bound",
                                       "true or false", "a string"};
    static const struct {
        const char *key;
        int kind;
    } words[] = {{"minimum", NUMBER},
                 {"maximum", NUMBER},
                 {"exclusiveMinimum", NUMBER_OR_BOOL},
                 {"exclusiveMaximum", NUMBER_OR_BOOL},
                 {"uniqueItems", BOOL},
                 {"format", STRING}};
    for (int64_t i = 0; i < c->count; i++)
        for (size_t k = 0; k < sizeof words / sizeof *words; k++) {
            const struct json *v = json_get(c->list[i].schema, words[k].key);
            enum json_kind kind = json_kind_of(v);
            bool number = kind == JSON_INT || kind == JSON_DOUBLE, boolean = kind == JSON_BOOL;
            bool good[] = {number, number || boolean, boolean, kind == JSON_STRING};
            char what[64];
            snprintf(what, sizeof what, "it must be %s", must[words[k].kind]);
            if (v && !good[words[k].kind])
                schema_fail(s, ERR_FORMAT, c->list[i].schema, words[k].key, what);
        }
}

static uint32_t by_types(struct schema *s, const struct conj *c) {
    int types = schema_types(s, c);
    bool values = false;
    check_kinds(s, c);
    for (int64_t i = 0; i < c->count; i++)
        values |= json_has(c->list[i].schema, "const") || json_has(c->list[i].schema, "enum");
    if (values)
        return schema_values(s, c, types);
    uint32_t list[8], n = 0;
    if (types & TYPE_OBJECT)
        list[n++] = schema_object(s, c);
    if (types & TYPE_ARRAY)
        list[n++] = schema_array(s, c);
    if (types & TYPE_STRING)
        list[n++] = schema_is_bare(c) ? schema_bare(s, c)
                    : s->b->how.marks ? schema_marked(s, c)
                                      : schema_string(s, c);
    if (types & TYPE_INT)
        list[n++] = schema_number(s, c, !(types & TYPE_FRACTION));
    if (types & TYPE_BOOL)
        list[n++] = build_or(s->b, build_text(s->b, "true"), build_text(s->b, "false"));
    if (types & TYPE_NULL)
        list[n++] = build_text(s->b, "null");
    return build_alt(s->b, list, n);
}

static void write_rule(struct schema *s, struct open_rule *o) {
    uint32_t x = BUILD_NEVER;
    if (build_work(s->b, 8 * o->c.count) && !write_first_choice(s, &o->c, &x) &&
        build_work(s->b, 320 * o->c.count)) // keywords are looked up in every member
        x = by_types(s, &o->c);
    if (s->b->e.code && strncmp(s->b->e.text, "the schema at", 13) != 0) {
        struct err e = s->b->e; // said again with its place
        s->b->e.code = 0;
        schema_fail(s, e.code, o->c.list[o->c.count - 1].schema, NULL, e.text);
    }
    if (x == BUILD_NEVER && !s->never)
        s->never = o->c.list[o->c.count - 1].schema;
    build_define(s->b, o->rule, x);
    conj_fini(&o->c);
}

// For the sentence when nothing can satisfy the grammar: where the first contradiction is.
static void tell_place(struct schema *s) {
    struct str path = {0};
    schema_place(s, s->never ? s->never : s->root, &path); // it never ends
    if (!s->b->place[0])
        snprintf(s->b->place, sizeof s->b->place, ": nothing fits the schema at '#%.*s'%s",
                 (int)min_size(path.len, 200), path.len ? path.data : "",
                 s->lowered ? "; a maxLength together with a pattern counts as 1024 at most" : "");
    str_fini(&path);
}

static uint32_t write_schema(struct schema *given) {
    struct schema s = *given;
    struct build *b = s.b;
    struct conj c = {0};
    conj_add(&s, &c, s.root);
    bool never = c.never;
    if (s.bare && c.count > 0)
        c.list[0].done |= SCHEMA_BARE;
    bool any = s.bare && c.count == 0 && !never;
    if (!s.bare)
        s.bare = b->how.marks;
    uint32_t x = any ? build_text_without(b, s.bare, 0, BUILD_ENDLESS) : schema_rule(&s, &c);
    while (s.open_count > 0) {
        struct open_rule o = s.open[--s.open_count];
        write_rule(&s, &o);
    }
    if (never && !b->e.code)
        schema_fail(&s, ERR_MISMATCH, s.root, NULL, "no value can satisfy it");
    tell_place(&s);
    free(s.open);
    schema_words_fini(&s);
    map_fini(&s.rules);
    arena_fini(&s.arena);
    return x;
}

uint32_t build_schema(struct build *b, const struct json *schema) {
    return write_schema(&(struct schema){.b = b, .root = schema});
}

uint32_t build_schema_bare(struct build *b, const struct json *schema, const char *end,
                           unsigned others) {
    return write_schema(&(struct schema){.b = b, .root = schema, .bare = end, .others = others});
}

static int add_bytes(void *arg, const char *key, size_t n, const struct json *v) {
    (void)key;
    *(size_t *)arg += n + schema_bytes(v);
    return 0;
}

size_t schema_bytes(const struct json *v) {
    size_t bytes = 2, n = 0;
    if (json_str(v, &n))
        bytes += n;
    else if (json_kind_of(v) == JSON_OBJECT)
        json_each(v, add_bytes, &bytes);
    for (size_t i = 0; json_kind_of(v) == JSON_ARRAY && i < json_len(v); i++)
        bytes += schema_bytes(json_at(v, i));
    return bytes;
}

int grammar_from_schema(struct grammar **out, const struct json *schema,
                        const struct grammar_json *how, struct grammar_work *work, struct err *e) {
    struct build *b;
    *out = NULL;
    int rc = build_create(&b, work, schema_bytes(schema), e);
    if (rc)
        return rc;
    if (how)
        build_json_how(b, how);
    rc = build_finish(b, build_schema(b, schema), out, e);
    build_destroy(b);
    return rc;
}
