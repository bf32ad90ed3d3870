// SPDX-License-Identifier: Apache-2.0
// What an item of an array must be. An array of schemas in `items`, as older drafts have it, counts
// as prefixItems.
#include "grammar/schema/schema.h"

const struct json *schema_prefix(const struct json *v) {
    const struct json *prefix = json_get(v, "prefixItems"), *items = json_get(v, "items");
    return prefix ? prefix : json_kind_of(items) == JSON_ARRAY ? items : NULL;
}

const struct json *schema_others(const struct json *v) {
    const struct json *items = json_get(v, "items");
    return json_kind_of(items) == JSON_ARRAY ? json_get(v, "additionalItems") : items;
}

// Does another part of member u in place say what the item must be?
static bool evaluated(struct schema *s, const struct conj *c, int64_t u, int64_t place) {
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
        if (json_has(v, "unevaluatedItems") && !evaluated(s, c, i, place))
            conj_add(s, item, json_get(v, "unevaluatedItems"));
    }
}
