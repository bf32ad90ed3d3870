// SPDX-License-Identifier: Apache-2.0
// Conjunctions, and what their members say together; schema.h says what they are.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/vec.h"
#include "grammar/schema.h"

enum { MOST_RULES = 20000, MOST_MEMBERS = 2000 };

void conj_fini(struct conj *c) {
    free(c->list);
    *c = (struct conj){0};
}

static void add_one(struct schema *s, struct conj *c, const struct json *v) {
    if (json_kind_of(v) == JSON_BOOL) {
        c->never |= !json_bool(v, true);
        return;
    }
    if (json_kind_of(v) != JSON_OBJECT) {
        schema_fail(s, ERR_FORMAT, v, NULL, "a schema must be an object, true or false");
        return;
    }
    for (int64_t i = 0; i < c->count; i++)
        if (c->list[i].schema == v)
            return;
    if (c->count >= MOST_MEMBERS)
        schema_fail(s, ERR_LIMIT, v, NULL, "more than 2,000 schemas must hold at once");
    else if (!s->b->e.code &&
             !vec_reserve(&c->list, &c->cap, c->count + 1, sizeof *c->list, &s->b->e))
        c->list[c->count++] = (struct member){.schema = v};
}

static void take_in(struct schema *s, struct conj *c, const struct json *v) {
    const struct json *ref = json_get(v, "$ref"), *all = json_get(v, "allOf");
    if (json_has(v, "$dynamicRef") || json_has(v, "$recursiveRef"))
        schema_fail(s, ERR_UNSUPPORTED, v, NULL, "$dynamicRef and $recursiveRef are not supported");
    if (ref && !json_str(ref, NULL))
        schema_fail(s, ERR_FORMAT, v, "$ref", "it must be a string");
    else if (ref)
        add_one(s, c, schema_target(s, v, json_str(ref, NULL)));
    if (all && json_kind_of(all) != JSON_ARRAY)
        schema_fail(s, ERR_FORMAT, v, "allOf", "it must be an array");
    for (size_t i = 0; all && i < json_len(all) && !s->b->e.code; i++)
        add_one(s, c, json_at(all, i));
}

void conj_add(struct schema *s, struct conj *c, const struct json *v) {
    int64_t from = c->count;
    add_one(s, c, v);
    for (; from < c->count && !s->b->e.code; from++)
        take_in(s, c, c->list[from].schema);
}

uint32_t schema_rule(struct schema *s, struct conj *c) {
    size_t bytes = (size_t)c->count * sizeof *c->list;
    uint32_t rule = 0;
    if (s->b->e.code || c->never || c->count == 0) {
        uint32_t x = c->never || s->b->e.code ? (uint32_t)BUILD_NEVER : build_json_value(s->b);
        conj_fini(c);
        return x;
    }
    if (map_find(&s->rules, (const char *)c->list, bytes, &rule)) {
        conj_fini(c);
        return build_call(s->b, rule);
    }
    if (s->made++ >= MOST_RULES)
        schema_fail(s, ERR_LIMIT, c->list[c->count - 1].schema, NULL,
                    "the schema has more than 20,000 combinations of parts; use fewer anyOf and "
                    "oneOf beside each other");
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

int64_t schema_count(struct schema *s, const struct conj *c, const char *keyword, bool largest,
                     int64_t otherwise) {
    int64_t result = otherwise;
    bool any = false;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = json_get(c->list[i].schema, keyword);
        double number = json_num(v, -1);
        if (!v)
            continue;
        if (!(number >= 0) || number != floor(number)) {
            schema_fail(s, ERR_FORMAT, c->list[i].schema, keyword,
                        "it must be a whole number from 0");
            return otherwise;
        }
        int64_t n = (int64_t)fmin(number, 1e15);
        result = !any ? n : largest ? max_i64(result, n) : min_i64(result, n);
        any = true;
    }
    return result;
}

static int type_named(const char *name) {
    static const struct {
        const char *name;
        int type;
    } types[] = {{"null", TYPE_NULL},     {"boolean", TYPE_BOOL},  {"integer", TYPE_INT},
                 {"number", TYPE_NUMBER}, {"string", TYPE_STRING}, {"array", TYPE_ARRAY},
                 {"object", TYPE_OBJECT}};
    for (size_t i = 0; name && i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0)
            return types[i].type;
    return 0;
}

int schema_types(struct schema *s, const struct conj *c) {
    int types = TYPE_ANY;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = json_get(c->list[i].schema, "type");
        bool list = json_kind_of(v) == JSON_ARRAY;
        int here = 0;
        if (!v)
            continue;
        for (size_t k = 0; k < (list ? json_len(v) : 1); k++) {
            int type = type_named(json_str(list ? json_at(v, k) : v, NULL));
            here |= type;
            if (!type)
                schema_fail(s, ERR_FORMAT, c->list[i].schema, "type",
                            "types are null, boolean, integer, number, string, array and object");
        }
        types &= here;
    }
    return types;
}
