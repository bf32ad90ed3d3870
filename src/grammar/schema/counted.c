// SPDX-License-Identifier: Apache-2.0
// Arrays under contains and uniqueItems: items are counted, by rules for "what comes behind so many
// items, of which so many count".
#include <stdlib.h>

#include "base/num.h"
#include "grammar/schema/schema.h"

enum { MOST_RULES = 65536, SETS = 8, COUNTED = 1024 };

// Rules by a number each, made when they are called for the first time.
struct counted {
    struct schema *s;
    uint32_t comma, space;
    int64_t min, max;           // items
    int64_t least, most;        // of these, those that count
    uint32_t item, counts;      // any item, or one that does not count; one that does
    uint32_t *rules;            // rule + 1
    int64_t n_items, n_counted; // states of each count
    uint32_t values[COUNTED];   // of uniqueItems
    int64_t n_values;
};

static uint32_t state(struct counted *o, int64_t a, int64_t b, int64_t of_b) {
    size_t at = (size_t)(a * of_b + b);
    if (!o->rules[at])
        o->rules[at] = build_rule(o->s->b, "") + 1;
    return build_call(o->s->b, o->rules[at] - 1);
}

static uint32_t step(struct counted *o, bool first, uint32_t item, uint32_t rest) {
    return build_seq(o->s->b, (uint32_t[]){first ? o->space : o->comma, item, rest}, 3);
}

// ---- contains

static int64_t next_count(int64_t n, int64_t least, int64_t most) {
    return min_i64(n + 1, most == BUILD_ENDLESS ? least : most);
}

static uint32_t behind(struct counted *o, int64_t items, int64_t counted) {
    uint32_t x = items >= o->min && counted >= o->least ? BUILD_EMPTY : BUILD_NEVER;
    int64_t next = next_count(items, max_i64(o->min, 1), o->max); // the first is told from others
    if (o->max != BUILD_ENDLESS && items >= o->max)
        return x;
    bool first = items == 0;
    x = build_or(o->s->b, x, step(o, first, o->item, state(o, next, counted, o->n_counted)));
    if (o->most == BUILD_ENDLESS ? counted >= o->least : counted >= o->most)
        return x;
    int64_t more = next_count(counted, o->least, o->most);
    return build_or(o->s->b, x, step(o, first, o->counts, state(o, next, more, o->n_counted)));
}

static uint32_t run(struct counted *o, uint32_t (*write)(struct counted *, int64_t, int64_t),
                    int64_t of_a, int64_t of_b) {
    struct build *b = o->s->b;
    if (b->e.code || of_a > MOST_RULES || of_b > MOST_RULES || of_a * of_b > MOST_RULES)
        return build_fail(b, ERR_LIMIT, "items are counted in more than 65,536 ways");
    o->rules = calloc((size_t)(of_a * of_b), sizeof *o->rules);
    if (!o->rules)
        return build_fail(b, ERR_MEMORY, "no memory for a schema");
    uint32_t x = state(o, 0, 0, of_b);
    for (int64_t i = 0; i < of_a && !b->e.code; i++)
        for (int64_t k = 0; k < of_b; k++)
            if (o->rules[i * of_b + k])
                build_define(b, o->rules[i * of_b + k] - 1, write(o, i, k));
    free(o->rules);
    return x;
}

static uint32_t contains(struct counted *o, const struct conj *c, const struct json *v) {
    const struct json *what = json_get(v, "contains"), *no;
    struct conj with = {0}, without = {0};
    struct conj own = {.list = &(struct member){.schema = v}, .count = 1};
    o->least = schema_count(o->s, &own, "minContains", true, 1);
    o->most = schema_count(o->s, &own, "maxContains", false, BUILD_ENDLESS);
    if (o->most != BUILD_ENDLESS && o->most < o->least)
        return BUILD_NEVER;
    schema_item(o->s, c, -1, &with);
    conj_add(o->s, &with, what);
    schema_item(o->s, c, -1, &without);
    if (o->most != BUILD_ENDLESS && (no = schema_in_words(o->s, WORDS_NOT, what)))
        conj_add(o->s, &without, no);
    o->counts = schema_rule(o->s, &with);
    o->item = schema_rule(o->s, &without);
    o->n_items = (o->max == BUILD_ENDLESS ? max_i64(o->min, 1) : o->max) + 1;
    o->n_counted = (o->most == BUILD_ENDLESS ? o->least : o->most) + 1;
    return run(o, behind, o->n_items, o->n_counted);
}

// ---- uniqueItems

// a: the values that came already, as bits.
static uint32_t behind_set(struct counted *o, int64_t a, int64_t b) {
    int64_t n = __builtin_popcountll((uint64_t)a);
    uint32_t x = n >= o->min ? BUILD_EMPTY : BUILD_NEVER;
    (void)b;
    for (int64_t i = 0; i < o->n_values && (o->max == BUILD_ENDLESS || n < o->max); i++)
        if (!(a >> i & 1))
            x = build_or(o->s->b, x,
                         step(o, n == 0, o->values[i], state(o, a | INT64_C(1) << i, 0, 1)));
    return x;
}

// Values from a on, in their order, behind b of them.
static uint32_t behind_value(struct counted *o, int64_t a, int64_t b) {
    if (a == o->n_values || (o->max != BUILD_ENDLESS && b >= o->max))
        return b >= o->min ? BUILD_EMPTY : BUILD_NEVER;
    int64_t next = min_i64(b + 1, o->n_counted - 1);
    uint32_t with = step(o, b == 0, o->values[a], state(o, a + 1, next, o->n_counted));
    return build_or(o->s->b, state(o, a + 1, b, o->n_counted), with);
}

static bool came_before(struct build *b, const struct json *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (json_same(b, json_at(list, i), json_at(list, n)))
            return true;
    return false;
}

// The values that an item may have; false: they are not listed.
static bool list_values(struct counted *o, const struct conj *item) {
    int types = schema_types(o->s, item);
    const struct json *from = NULL;
    for (int64_t i = 0; i < item->count; i++) {
        const struct json *v = item->list[i].schema;
        if (json_has(v, "anyOf") || json_has(v, "oneOf"))
            return false;
        if (!from && (json_has(v, "const") || json_kind_of(json_get(v, "enum")) == JSON_ARRAY))
            from = v;
    }
    if (!from) {
        bool few = (types & ~(TYPE_BOOL | TYPE_NULL)) == 0;
        if (few && types & TYPE_NULL)
            o->values[o->n_values++] = build_text(o->s->b, "null");
        for (int i = 0; few && types & TYPE_BOOL && i < 2; i++)
            o->values[o->n_values++] = build_text(o->s->b, i ? "true" : "false");
        return few;
    }
    const struct json *list = json_get(from, "enum");
    bool one = json_has(from, "const");
    for (size_t i = 0; i < (one ? 1 : json_len(list)) && !o->s->b->e.code; i++) {
        if (!one && came_before(o->s->b, list, i))
            continue;
        if (o->n_values == COUNTED)
            return false;
        uint32_t x =
            schema_value(o->s, item, types, from, one ? json_get(from, "const") : json_at(list, i));
        if (x != BUILD_NEVER)
            o->values[o->n_values++] = x;
    }
    return true;
}

static uint32_t unique(struct counted *o, const struct conj *c, const struct json *v) {
    struct conj item = {0};
    schema_item(o->s, c, -1, &item);
    bool listed = item.never || (item.count > 0 && list_values(o, &item));
    conj_fini(&item);
    if (!listed)
        return schema_fail(o->s, ERR_UNSUPPORTED, v, "uniqueItems",
                           "it is supported beside items with an enum of at most 1,024 values, or "
                           "a maxItems of 1");
    if (o->n_values <= SETS)
        return run(o, behind_set, INT64_C(1) << o->n_values, 1);
    o->n_counted =
        min_i64(max_i64(o->max == BUILD_ENDLESS ? 0 : o->max, max_i64(o->min, 1)), o->n_values) + 1;
    if (o->min > o->n_values)
        return BUILD_NEVER;
    if (o->max >= o->n_values)
        o->max = BUILD_ENDLESS;
    return run(o, behind_value, o->n_values + 1, o->n_counted);
}

uint32_t schema_counted(struct schema *s, const struct conj *c, int64_t min, int64_t max) {
    const struct json *with = NULL, *different = NULL;
    bool places = false;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = c->list[i].schema;
        bool none = json_num(json_get(v, "minContains"), 1) == 0 && !json_has(v, "maxContains");
        places |= json_has(v, "prefixItems") || json_kind_of(json_get(v, "items")) == JSON_ARRAY;
        if (json_has(v, "contains") && !none) {
            if (with)
                return schema_fail(s, ERR_UNSUPPORTED, v, "contains",
                                   "more than one at one place are not supported");
            with = v;
        }
        if (json_bool(json_get(v, "uniqueItems"), false))
            different = v;
    }
    if (with && (places || different))
        return schema_fail(s, ERR_UNSUPPORTED, with, "contains",
                           "beside prefixItems and uniqueItems it is not supported");
    if (places)
        return schema_fail(s, ERR_UNSUPPORTED, different, "uniqueItems",
                           "beside prefixItems it is supported only with a maxItems of 1");
    struct counted *o = calloc(1, sizeof *o);
    if (!o)
        return build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    o->s = s;
    o->comma = build_shared(s->b, build_json_comma(s->b));
    o->space = build_shared(s->b, build_json_space(s->b));
    o->min = min;
    o->max = max;
    uint32_t x = with ? contains(o, c, with) : unique(o, c, different);
    free(o);
    return x;
}
