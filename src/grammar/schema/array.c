// SPDX-License-Identifier: Apache-2.0
// Arrays of a schema: items by their place (prefixItems), the others (items), and how many.
#include <stdlib.h>

#include "base/num.h"
#include "grammar/schema/schema.h"

static uint32_t item_at(struct schema *s, const struct conj *c, int64_t place) {
    struct conj item = {0};
    schema_item(s, c, place, &item);
    return schema_rule(s, &item);
}

// Whether items have to be counted by what they are.
static bool counted(struct schema *s, const struct conj *c, int64_t max) {
    bool any = false;
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = c->list[i].schema, *rest = json_get(v, "unevaluatedItems");
        bool none = json_num(json_get(v, "minContains"), 1) == 0 && !json_has(v, "maxContains");
        bool different = json_bool(json_get(v, "uniqueItems"), false);
        any |=
            (different && (max == BUILD_ENDLESS || max > 1)) || (json_has(v, "contains") && !none);
        if (json_has(v, "prefixItems") && json_kind_of(json_get(v, "prefixItems")) != JSON_ARRAY)
            schema_fail(s, ERR_FORMAT, v, "prefixItems", "it must be an array of schemas");
        for (int64_t k = 0; rest && !json_bool(rest, false) && k < c->count; k++)
            if (json_has(c->list[k].schema, "contains") && conj_within(c, k, i))
                schema_fail(s, ERR_UNSUPPORTED, v, "unevaluatedItems",
                            "together with contains it is not supported");
    }
    return any;
}

uint32_t schema_array(struct schema *s, const struct conj *c) {
    struct build *b = s->b;
    int64_t min = schema_count(s, c, "minItems", true, 0);
    int64_t max = schema_count(s, c, "maxItems", false, BUILD_ENDLESS), places = 0;
    bool counts = counted(s, c, max);
    for (int64_t i = 0; i < c->count; i++)
        places = max_i64(places, (int64_t)json_len(schema_prefix(c->list[i].schema)));
    if (max != BUILD_ENDLESS)
        places = min_i64(places, max);
    if (max != BUILD_ENDLESS && max < min)
        return BUILD_NEVER;
    uint32_t space = build_json_space(b), comma = build_json_comma(b);
    if (counts) {
        uint32_t inner[] = {build_text(b, "["), schema_counted(s, c, min, max), space,
                            build_text(b, "]")};
        return build_seq(b, inner, 4);
    }
    uint32_t other = max == places ? (uint32_t)BUILD_NEVER : item_at(s, c, -1), x;
    uint32_t next = build_cat(b, comma, other);
    if (places == 0) { // the first one has no comma
        int64_t more = max == BUILD_ENDLESS ? max : max_i64(max - 1, 0);
        x = build_cat(b, space,
                      build_cat(b, other, build_repeat(b, next, max_i64(min - 1, 0), more)));
        x = max == 0 ? (uint32_t)BUILD_EMPTY : x;
    } else {
        x = build_repeat(b, next, max_i64(min - places, 0),
                         max == BUILD_ENDLESS ? max : max - places);
    }
    for (int64_t i = places - 1; i >= 0 && !b->e.code; i--) {
        if (i + 1 >= min && i + 1 < places)
            x = build_or(b, BUILD_EMPTY, x);
        x = build_seq(b, (uint32_t[]){i ? comma : space, item_at(s, c, i), x}, 3);
        x = i ? build_shared(b, x) : x;
    }
    if (min == 0)
        x = build_or(b, BUILD_EMPTY, x);
    uint32_t all[] = {build_text(b, "["), x, space, build_text(b, "]")};
    return build_seq(b, all, 4);
}

// The conditions of an item of an array. An array of schemas in `items`, as older drafts have it,
// counts as prefixItems.

const struct json *schema_prefix(const struct json *v) {
    const struct json *prefix = json_get(v, "prefixItems"), *items = json_get(v, "items");
    return prefix ? prefix : json_kind_of(items) == JSON_ARRAY ? items : NULL;
}

// the schema of the others, or NULL
static const struct json *schema_others(const struct json *v) {
    const struct json *items = json_get(v, "items");
    return json_kind_of(items) == JSON_ARRAY ? json_get(v, "additionalItems") : items;
}

// Does another part of member u in place say what the item must be?
static bool item_is_evaluated(struct schema *s, const struct conj *c, int64_t u, int64_t place) {
    build_work(s->b, c->count * c->count);
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = c->list[i].schema;
        bool says = (place >= 0 && place < (int64_t)json_len(schema_prefix(v))) ||
                    schema_others(v) || (i != u && json_has(v, "unevaluatedItems"));
        if (says && conj_within(c, i, u))
            return true;
    }
    return false;
}

void schema_item(struct schema *s, const struct conj *c, int64_t place, struct conj *item) {
    build_work(s->b, 4 * c->count);
    for (int64_t i = 0; i < c->count; i++) {
        const struct json *v = c->list[i].schema, *prefix = schema_prefix(v);
        bool named = place >= 0 && place < (int64_t)json_len(prefix);
        const struct json *one = named ? json_at(prefix, (size_t)place) : schema_others(v);
        if (one || named)
            conj_add(s, item, one);
        if (json_has(v, "unevaluatedItems") && !item_is_evaluated(s, c, i, place))
            conj_add(s, item, json_get(v, "unevaluatedItems"));
    }
}

// Arrays under contains and uniqueItems: items are counted, by rules for "what comes after
// that many items, of which that many count".

enum { MAX_RULES = 65536, SETS = 8, COUNTED = 1024 };

struct counted {
    struct schema *s;
    uint32_t comma, space;
    int64_t min, max;                   // items
    int64_t contains_min, contains_max; // of these, those that count
    uint32_t item, counts;              // any item, or one that does not count; one that does
    struct build_grid rules;
    int64_t n_counted;        // states of that count
    uint32_t values[COUNTED]; // of uniqueItems
    int64_t n_values;
};

static uint32_t count_item(struct counted *o, bool first, uint32_t item, uint32_t rest) {
    return build_seq(o->s->b, (uint32_t[]){first ? o->space : o->comma, item, rest}, 3);
}

// ---- contains

static int64_t next_count(int64_t n, int64_t min, int64_t max) {
    return min_i64(n + 1, max == BUILD_ENDLESS ? min : max);
}

static uint32_t after_counted(void *arg, int64_t items, int64_t counted) {
    struct counted *o = arg;
    uint32_t x = items >= o->min && counted >= o->contains_min ? BUILD_EMPTY : BUILD_NEVER;
    int64_t next =
        next_count(items, max_i64(o->min, 1), o->max); // the first is distinguished from others
    if (o->max != BUILD_ENDLESS && items >= o->max)
        return x;
    bool first = items == 0;
    x = build_or(o->s->b, x,
                 count_item(o, first, o->item, build_grid_call(&o->rules, next, counted)));
    if (o->contains_max == BUILD_ENDLESS ? counted >= o->contains_min : counted >= o->contains_max)
        return x;
    int64_t more = next_count(counted, o->contains_min, o->contains_max);
    return build_or(o->s->b, x,
                    count_item(o, first, o->counts, build_grid_call(&o->rules, next, more)));
}

static uint32_t write_counted(struct counted *o, uint32_t (*write)(void *, int64_t, int64_t),
                              int64_t of_i, int64_t of_k) {
    if (o->s->b->e.code || of_i > MAX_RULES || of_k > MAX_RULES || of_i * of_k > MAX_RULES)
        return build_fail(o->s->b, ERR_LIMIT, "items are counted in more than 65,536 ways");
    o->rules = (struct build_grid){o->s->b, write, o, of_i, of_k, NULL};
    return build_grid(&o->rules);
}

static uint32_t contains_items(struct counted *o, const struct conj *c, const struct json *v) {
    const struct json *what = json_get(v, "contains"), *no;
    struct conj with = {0}, without = {0};
    struct conj own = {.list = &(struct member){.schema = v}, .count = 1};
    o->contains_min = schema_count(o->s, &own, "minContains", true, 1);
    o->contains_max = schema_count(o->s, &own, "maxContains", false, BUILD_ENDLESS);
    if (o->contains_max != BUILD_ENDLESS && o->contains_max < o->contains_min)
        return BUILD_NEVER;
    schema_item(o->s, c, -1, &with);
    conj_add(o->s, &with, what);
    schema_item(o->s, c, -1, &without);
    if (o->contains_max != BUILD_ENDLESS && (no = schema_in_words(o->s, WORDS_NOT, what)))
        conj_add(o->s, &without, no);
    o->counts = schema_rule(o->s, &with);
    o->item = schema_rule(o->s, &without);
    int64_t n_items = (o->max == BUILD_ENDLESS ? max_i64(o->min, 1) : o->max) + 1;
    int64_t n_counted = (o->contains_max == BUILD_ENDLESS ? o->contains_min : o->contains_max) + 1;
    return write_counted(o, after_counted, n_items, n_counted);
}

// ---- uniqueItems

// a: the values that came already, as bits.
static uint32_t after_set(void *arg, int64_t a, int64_t b) {
    struct counted *o = arg;
    int64_t n = __builtin_popcountll((uint64_t)a);
    uint32_t x = n >= o->min ? BUILD_EMPTY : BUILD_NEVER;
    (void)b;
    for (int64_t i = 0; i < o->n_values && (o->max == BUILD_ENDLESS || n < o->max); i++)
        if (!(a >> i & 1))
            x = build_or(o->s->b, x,
                         count_item(o, n == 0, o->values[i],
                                    build_grid_call(&o->rules, a | INT64_C(1) << i, 0)));
    return x;
}

// Values from a on, in their order, after b of them.
static uint32_t after_value(void *arg, int64_t a, int64_t b) {
    struct counted *o = arg;
    if (a == o->n_values || (o->max != BUILD_ENDLESS && b >= o->max))
        return b >= o->min ? BUILD_EMPTY : BUILD_NEVER;
    int64_t next = min_i64(b + 1, o->n_counted - 1);
    uint32_t with = count_item(o, b == 0, o->values[a], build_grid_call(&o->rules, a + 1, next));
    return build_or(o->s->b, build_grid_call(&o->rules, a + 1, b), with);
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

static uint32_t unique_items(struct counted *o, const struct conj *c, const struct json *v) {
    struct conj item = {0};
    schema_item(o->s, c, -1, &item);
    bool listed = item.never || (item.count > 0 && list_values(o, &item));
    conj_fini(&item);
    if (!listed)
        return schema_fail(
            o->s, ERR_UNSUPPORTED, v, "uniqueItems",
            "it is supported together with items with an enum of at most 1,024 values, or "
            "a maxItems of 1");
    if (o->n_values <= SETS)
        return write_counted(o, after_set, INT64_C(1) << o->n_values, 1);
    o->n_counted =
        min_i64(max_i64(o->max == BUILD_ENDLESS ? 0 : o->max, max_i64(o->min, 1)), o->n_values) + 1;
    if (o->min > o->n_values)
        return BUILD_NEVER;
    if (o->max >= o->n_values)
        o->max = BUILD_ENDLESS;
    return write_counted(o, after_value, o->n_values + 1, o->n_counted);
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
                           "together with prefixItems and uniqueItems it is not supported");
    if (places)
        return schema_fail(s, ERR_UNSUPPORTED, different, "uniqueItems",
                           "together with prefixItems it is supported only with a maxItems of 1");
    struct counted *o = calloc(1, sizeof *o);
    if (!o)
        return build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    o->s = s;
    o->comma = build_shared(s->b, build_json_comma(s->b));
    o->space = build_shared(s->b, build_json_space(s->b));
    o->min = min;
    o->max = max;
    uint32_t x = with ? contains_items(o, c, with) : unique_items(o, c, different);
    free(o);
    return x;
}
