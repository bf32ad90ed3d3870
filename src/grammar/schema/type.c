// SPDX-License-Identifier: Apache-2.0
// What all members of a conjunction say of counts and of types.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "grammar/schema/schema.h"

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
