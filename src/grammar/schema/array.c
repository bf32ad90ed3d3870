// SPDX-License-Identifier: Apache-2.0
// Arrays of a schema: items by their place (prefixItems), the others (items), and how many.
#include "grammar/schema/schema.h"

#include <stdlib.h>

#include "base/num.h"

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
                            "beside contains it is not supported");
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
