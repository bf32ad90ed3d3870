// SPDX-License-Identifier: Apache-2.0
// Where in a schema something stands, for the sentences of errors, and values of JSON compared as
// schemas compare them.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "grammar/schema/schema.h"

// ---- places

enum { LOOKED_AT = 1 << 18 }; // values, before a place goes without its name

struct finder {
    const struct json *target;
    struct str path;
    int64_t looked;
};

static bool find_place(struct finder *f, const struct json *at);

static int find_in_member(void *arg, const char *key, size_t n, const struct json *v) {
    struct finder *f = arg;
    size_t before = f->path.len;
    str_putc(&f->path, '/');
    for (size_t i = 0; i < n; i++) {
        if (key[i] == '~' || key[i] == '/')
            str_puts(&f->path, key[i] == '~' ? "~0" : "~1");
        else
            str_putc(&f->path, key[i]);
    }
    if (find_place(f, v))
        return 1;
    f->path.len = before;
    return 0;
}

static bool find_place(struct finder *f, const struct json *at) {
    if (at == f->target)
        return true;
    if (f->looked++ >= LOOKED_AT)
        return false;
    if (json_kind_of(at) == JSON_OBJECT)
        return json_each(at, find_in_member, f) != 0;
    for (size_t i = 0; json_kind_of(at) == JSON_ARRAY && i < json_len(at); i++) {
        size_t before = f->path.len;
        str_printf(&f->path, "/%zu", i);
        if (find_place(f, json_at(at, i)))
            return true;
        f->path.len = before;
    }
    return false;
}

// The place of `at`, or of the schema that it was made of.
static void find(struct schema *s, const struct json *at, struct finder *f) {
    f->target = at;
    if (!at || find_place(f, s->root))
        return;
    for (int64_t i = 0; i < s->worded_count; i++) {
        f->path.len = 0;
        f->target = at;
        if (find_place(f, s->worded[i].doc)) {
            at = f->target = s->worded[i].of;
            f->path.len = 0;
            if (find_place(f, s->root))
                return;
            i = -1; // made of what was made itself
        }
    }
    f->path.len = 0;
}

uint32_t schema_fail(struct schema *s, int code, const struct json *at, const char *keyword,
                     const char *what) {
    struct finder f = {0};
    if (s->b->e.code)
        return BUILD_NEVER;
    find(s, at, &f);
    int n = (int)min_size(f.path.len, 200);
    build_fail(s->b, code, "the schema at '#%.*s%s%s': %s", n, n ? f.path.data : "",
               keyword ? "/" : "", keyword ? keyword : "", what);
    str_fini(&f.path);
    return BUILD_NEVER;
}

// ---- values

struct same {
    struct build *b;
    const struct json *other;
};

static int same_member(void *arg, const char *key, size_t n, const struct json *v) {
    const struct same *s = arg;
    (void)n;
    return !json_has(s->other, key) || !json_same(s->b, v, json_get(s->other, key));
}

long double schema_real(const struct json *v, long double otherwise) {
    enum json_kind kind = json_kind_of(v);
    if (kind == JSON_INT && json_int(v, 0) == json_int(v, 1)) // it has no more than 64 bits
        return json_int(v, 0);
    return kind == JSON_INT || kind == JSON_DOUBLE ? json_num(v, 0) : otherwise;
}

static bool same_number(const struct json *a, const struct json *b, bool whole) {
    if (schema_real(a, 0) != schema_real(b, 0))
        return false;
    const char *ta = json_number_text(a), *tb = json_number_text(b);
    return !whole || json_int(a, 0) == json_int(a, 1) || (ta && tb && strcmp(ta, tb) == 0);
}

bool json_same(struct build *build, const struct json *a, const struct json *b) {
    enum json_kind ka = json_kind_of(a), kb = json_kind_of(b);
    size_t na, nb;
    if (!build_work(build, 4))
        return false;
    if ((ka == JSON_INT || ka == JSON_DOUBLE) && (kb == JSON_INT || kb == JSON_DOUBLE))
        return same_number(a, b, ka == JSON_INT && kb == JSON_INT);
    if (ka != kb)
        return false;
    if (ka == JSON_STRING) {
        const char *sa = json_str(a, &na), *sb = json_str(b, &nb);
        return na == nb && memcmp(sa, sb, na) == 0;
    }
    if (ka == JSON_BOOL)
        return json_bool(a, false) == json_bool(b, false);
    if (ka != JSON_ARRAY && ka != JSON_OBJECT)
        return true;
    if (json_len(a) != json_len(b))
        return false;
    if (ka == JSON_OBJECT)
        return json_each(a, same_member, &(struct same){build, b}) == 0;
    for (size_t i = 0; i < json_len(a); i++)
        if (!json_same(build, json_at(a, i), json_at(b, i)))
            return false;
    return true;
}

int schema_type_of(const struct json *v) {
    static const int types[] = {
        [JSON_NULL] = TYPE_NULL,       [JSON_BOOL] = TYPE_BOOL,     [JSON_INT] = TYPE_INT,
        [JSON_DOUBLE] = TYPE_FRACTION, [JSON_STRING] = TYPE_STRING, [JSON_ARRAY] = TYPE_ARRAY,
        [JSON_OBJECT] = TYPE_OBJECT};
    enum json_kind kind = json_kind_of(v);
    if (kind == JSON_DOUBLE && json_num(v, 0) == floor(json_num(v, 0)))
        return TYPE_INT;
    return types[kind];
}

void schema_place(struct schema *s, const struct json *at, struct str *path) {
    struct finder f = {0};
    find(s, at, &f);
    s->looked += f.looked;
    str_append(path, f.path.len ? f.path.data : "", f.path.len);
    str_fini(&f.path);
}
