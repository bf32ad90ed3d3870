// SPDX-License-Identifier: Apache-2.0
// Reading single keywords: what $ref names ("#", JSON pointers of RFC 6901, and anchors within the
// document; nothing is ever fetched), the places of schemas for the sentences of errors, values
// compared as schemas compare them, and what all members of a conjunction say of counts and types.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "grammar/schema/schema.h"

struct anchor {
    struct build *b;
    const char *name;
    const struct json *found;
};

static void find_anchor(struct anchor *a, const struct json *at);

static int anchor_in(void *arg, const char *key, size_t n, const struct json *v) {
    struct anchor *a = arg;
    bool value =
        (n == 4 && memcmp(key, "enum", n) == 0) || (n == 5 && memcmp(key, "const", n) == 0);
    if (!value)
        find_anchor(a, v);
    return a->found || a->b->e.code;
}

static void find_anchor(struct anchor *a, const struct json *at) {
    if (!build_work(a->b, 3))
        return;
    if (json_kind_of(at) == JSON_OBJECT) {
        static const char *const names[] = {"$anchor", "$dynamicAnchor", "$id"};
        for (int i = 0; i < 3; i++) {
            const char *name = json_str(json_get(at, names[i]), NULL);
            if (name && i == 2) // draft 7
                name = *name == '#' ? name + 1 : NULL;
            if (name && strcmp(name, a->name) == 0)
                a->found = at;
        }
        if (!a->found)
            json_each(at, anchor_in, a);
    }
    for (size_t i = 0; json_kind_of(at) == JSON_ARRAY && i < json_len(at) && !a->found; i++)
        find_anchor(a, json_at(at, i));
}

// Undoes %XX.
static void decode_percent(struct str *out, const char *s) {
    for (; *s; s++) {
        bool coded = *s == '%' && hex_digit(s[1]) >= 0 && hex_digit(s[2]) >= 0;
        str_putc(out, coded ? (char)(hex_digit(s[1]) * 16 + hex_digit(s[2])) : *s);
        s += coded ? 2 : 0;
    }
}

// The child that the next part of a pointer names; *p goes on to the '/' after it, or the end.
static const struct json *child_of(const struct json *at, const char **p, struct str *name) {
    str_clear(name);
    str_puts(name, "");
    for (; **p && **p != '/'; ++*p) {
        bool coded = **p == '~' && ((*p)[1] == '0' || (*p)[1] == '1');
        str_putc(name, !coded ? **p : (*p)[1] == '0' ? '~' : '/');
        *p += coded;
    }
    if (name->failed)
        return NULL;
    if (json_kind_of(at) != JSON_ARRAY)
        return json_kind_of(at) == JSON_OBJECT ? json_get(at, name->data) : NULL;
    char *end;
    unsigned long i = strtoul(name->data, &end, 10);
    bool is = name->len && *end == '\0' && name->data[0] >= '0' && name->data[0] <= '9';
    return is && i < json_len(at) ? json_at(at, i) : NULL;
}

const struct json *schema_target(struct schema *s, const struct json *at, const char *ref) {
    const char *id = json_str(json_get(s->root, "$id"), NULL), *p;
    struct str text = {0}, name = {0};
    const struct json *found = s->root;
    size_t n = id ? strcspn(id, "#") : 0;
    if (n && strncmp(ref, id, n) == 0)
        ref += n;
    if (*ref && *ref != '#') {
        schema_fail(s, ERR_UNSUPPORTED, at, "$ref",
                    "references to other documents are not supported; put the schema into $defs");
        return NULL;
    }
    build_work(s->b, 4 + (int64_t)strlen(ref));
    decode_percent(&text, *ref ? ref + 1 : ref);
    str_puts(&text, "");
    p = text.data;
    if (!text.failed && *p && *p != '/') {
        struct anchor a = {.b = s->b, .name = p};
        find_anchor(&a, s->root);
        found = a.found;
    }
    while (!text.failed && found && *p == '/') {
        p++;
        found = child_of(found, &p, &name);
    }
    if (text.failed || name.failed)
        build_fail(s->b, ERR_MEMORY, "no memory for a schema");
    else if (!found)
        schema_fail(s, ERR_FORMAT, at, "$ref", "nothing is there where it points to");
    str_fini(&text);
    str_fini(&name);
    return found;
}

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
static void find_path(struct schema *s, const struct json *at, struct finder *f) {
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
    find_path(s, at, &f);
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
    find_path(s, at, &f);
    s->looked += f.looked;
    str_append(path, f.path.len ? f.path.data : "", f.path.len);
    str_fini(&f.path);
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
