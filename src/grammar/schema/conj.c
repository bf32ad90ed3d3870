// SPDX-License-Identifier: Apache-2.0
// Conjunctions, and what their members say together; schema.h says what they are.
#include <stdlib.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/schema/schema.h"

enum { MAX_RULES = 20000, MAX_MEMBERS = 2000 };

void conj_fini(struct conj *c) {
    free(c->list);
    *c = (struct conj){0};
}

static void add_one(struct schema *s, struct conj *c, const struct json *v, int64_t from,
                    uint32_t flags) {
    if (json_kind_of(v) == JSON_BOOL) {
        c->never |= !json_bool(v, true);
        return;
    }
    if (json_kind_of(v) != JSON_OBJECT) {
        schema_fail(s, ERR_FORMAT, v, NULL, "a schema must be an object, true or false");
        return;
    }
    if (!build_work(s->b, 24 + c->count / 4))
        return;
    for (int64_t i = 0; i < c->count; i++)
        if (c->list[i].schema == v)
            return;
    if (c->count >= MAX_MEMBERS)
        schema_fail(s, ERR_LIMIT, v, NULL, "more than 2,000 schemas must hold at once");
    else if (!s->b->e.code &&
             !vec_reserve(&c->list, &c->cap, c->count + 1, sizeof *c->list, &s->b->e))
        c->list[c->count++] = (struct member){.schema = v, .done = flags, .from = (int32_t)from};
}

// Keywords that are said in other words.
static void take_words(struct schema *s, struct conj *c, const struct json *v, int64_t at) {
    bool dependent = json_has(v, "dependentRequired") || json_has(v, "dependentSchemas") ||
                     json_has(v, "dependencies");
    bool ends = json_has(v, "then") || json_has(v, "else");
    const struct json *words;
    if (json_has(v, "not") && !schema_plain_not(v) &&
        (words = schema_in_words(s, WORDS_NOT, json_get(v, "not"))))
        add_one(s, c, words, at, SCHEMA_NEGATED);
    if (json_has(v, "if") && ends && (words = schema_in_words(s, WORDS_IF, v)))
        add_one(s, c, words, at, 0);
    if (dependent && (words = schema_in_words(s, WORDS_DEPENDENT, v)))
        add_one(s, c, words, at, 0);
}

static void take_in(struct schema *s, struct conj *c, const struct json *v, int64_t at) {
    const struct json *ref = json_get(v, "$ref"), *all = json_get(v, "allOf");
    if (json_has(v, "$dynamicRef") || json_has(v, "$recursiveRef"))
        schema_fail(s, ERR_UNSUPPORTED, v, NULL, "$dynamicRef and $recursiveRef are not supported");
    if (ref && !json_str(ref, NULL))
        schema_fail(s, ERR_FORMAT, v, "$ref", "it must be a string");
    else if (ref)
        add_one(s, c, schema_target(s, v, json_str(ref, NULL)), at, 0);
    if (all && json_kind_of(all) != JSON_ARRAY)
        schema_fail(s, ERR_FORMAT, v, "allOf", "it must be an array");
    for (size_t i = 0; all && i < json_len(all) && !s->b->e.code; i++)
        add_one(s, c, json_at(all, i), at, 0);
    take_words(s, c, v, at);
}

void conj_choose(struct schema *s, struct conj *c, const struct json *v, int64_t from) {
    int64_t at = c->count;
    add_one(s, c, v, from, 0);
    for (; at < c->count && !s->b->e.code; at++)
        take_in(s, c, c->list[at].schema, at);
}

void conj_add(struct schema *s, struct conj *c, const struct json *v) {
    conj_choose(s, c, v, -1);
}

bool conj_within(const struct conj *c, int64_t i, int64_t u) {
    for (; i >= 0 && i != u; i = c->list[i].from)
        if (c->list[i].done & SCHEMA_NEGATED)
            return false;
    return i == u;
}

uint32_t schema_rule(struct schema *s, struct conj *c) {
    size_t bytes = (size_t)c->count * sizeof *c->list;
    uint32_t rule = 0;
    if (!build_work(s->b, 16 + 4 * c->count) || c->never || c->count == 0) {
        uint32_t x = c->never || s->b->e.code ? (uint32_t)BUILD_NEVER : build_json_value(s->b);
        conj_fini(c);
        return x;
    }
    if (map_find(&s->rules, (const char *)c->list, bytes, &rule)) {
        conj_fini(c);
        return build_call(s->b, rule);
    }
    if (s->made++ >= MAX_RULES)
        schema_fail(s, ERR_LIMIT, c->list[c->count - 1].schema, NULL,
                    "the schema has more than 20,000 combinations of parts; use fewer anyOf and "
                    "oneOf next to each other");
    struct err *e = &s->b->e;
    char *key = arena_strndup(&s->arena, (const char *)c->list, bytes);
    rule = build_rule(s->b, "");
    if (!key || (!e->code && map_insert(&s->rules, key, bytes, rule) < 0))
        build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    if (e->code || vec_reserve(&s->open, &s->open_cap, s->open_count + 1, sizeof *s->open, e)) {
        conj_fini(c);
        return BUILD_NEVER;
    }
    s->open[s->open_count++] = (struct open_rule){*c, rule};
    *c = (struct conj){0};
    return build_call(s->b, rule);
}
