// SPDX-License-Identifier: Apache-2.0
// A small JSON reader behind base/json/json.h, for the golden fixtures on machines without json-c.
// It trusts its text (fixtures of this repository): what the engine reads from strangers goes
// through base/json/json.c.
#include <stdlib.h>
#include <string.h>

#include "base/json/json.h"

struct json {
    enum json_kind kind;
    bool truth;
    int64_t whole;
    double number;
    char *text; // of a string or number
    size_t len; // of a string; items
    char **keys;
    struct json **items;
};

struct reader {
    const char *p, *end;
};

static struct json *value(struct reader *r);

static void space(struct reader *r) {
    while (r->p < r->end && memchr(" \t\r\n", *r->p, 4))
        r->p++;
}

static bool take(struct reader *r, char c) {
    space(r);
    bool there = r->p < r->end && *r->p == c;
    r->p += there;
    return there;
}

// The bytes of one character after a backslash at *c, which moves to its last byte. Surrogates do
// not occur in fixtures.
static size_t escaped(const char **c, char *out) {
    static const char from[] = "nrtbf", to[] = "\n\r\t\b\f";
    const char *short_form = strchr(from, **c);
    if (**c != 'u') {
        *out = short_form ? to[short_form - from] : **c;
        return 1;
    }
    char hex[5] = {(*c)[1], (*c)[2], (*c)[3], (*c)[4], 0};
    *c += 4;
    unsigned code = (unsigned)strtoul(hex, NULL, 16);
    size_t n = code < 0x80 ? 1 : code < 0x800 ? 2 : 3;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)(n == 1 ? code : code | (n == 2 ? 0xC0 : 0xE0));
    return n;
}

static char *string(struct reader *r, size_t *len) {
    const char *from = ++r->p;
    while (r->p < r->end && *r->p != '"')
        r->p += *r->p == '\\' ? 2 : 1;
    if (r->p >= r->end)
        return NULL;
    char *s = malloc((size_t)(r->p - from) + 1);
    if (!s)
        return NULL;
    *len = 0;
    for (const char *c = from; c < r->p; c++) {
        if (*c == '\\') {
            c++;
            *len += escaped(&c, s + *len);
        } else {
            s[(*len)++] = *c;
        }
    }
    s[*len] = 0;
    r->p++;
    return s;
}

static bool add(struct json *v, char *key, struct json *item) {
    size_t room = (v->len + 1) * sizeof(void *);
    char **keys = realloc(v->keys, room);
    v->keys = keys ? keys : v->keys;
    struct json **items = realloc(v->items, room);
    v->items = items ? items : v->items;
    if (!keys || !items || !item) {
        free(key);
        json_free(item);
        return false;
    }
    v->keys[v->len] = key;
    v->items[v->len++] = item;
    return true;
}

static bool members(struct reader *r, struct json *v, char close) {
    if (take(r, close))
        return true;
    do {
        size_t len;
        char *key = NULL;
        space(r);
        if (v->kind == JSON_OBJECT && r->p < r->end) {
            key = *r->p == '"' ? string(r, &len) : NULL;
            if (!key)
                return false;
            if (!take(r, ':')) {
                free(key);
                return false;
            }
        }
        if (!add(v, key, value(r)))
            return false;
    } while (take(r, ','));
    return take(r, close);
}

static bool number(struct reader *r, struct json *v) {
    char copy[64] = {0}, *end;
    size_t n = 0;
    while (r->p + n < r->end && n < sizeof copy - 1 && strchr("+-.eE0123456789", r->p[n]))
        n++;
    memcpy(copy, r->p, n);
    v->kind = strpbrk(copy, ".eE") ? JSON_DOUBLE : JSON_INT;
    v->whole = strtoll(copy, &end, 10);
    v->number = strtod(copy, &end);
    v->text = strdup(copy);
    r->p += n;
    return n > 0 && *end == 0 && v->text;
}

static bool word(struct reader *r, struct json *v) {
    static const char *const words[] = {"null", "false", "true"};
    for (int i = 0; i < 3; i++) {
        size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->p) < n || memcmp(r->p, words[i], n) != 0)
            continue;
        v->kind = i ? JSON_BOOL : JSON_NULL;
        v->truth = i == 2;
        r->p += n;
        return true;
    }
    return number(r, v);
}

static struct json *value(struct reader *r) {
    struct json *v = calloc(1, sizeof *v);
    bool ok = false;
    space(r);
    if (!v || r->p >= r->end) {
        free(v);
        return NULL;
    }
    if (*r->p == '"') {
        v->kind = JSON_STRING;
        v->text = string(r, &v->len);
        ok = v->text != NULL;
    } else if (*r->p == '{' || *r->p == '[') {
        v->kind = *r->p++ == '{' ? JSON_OBJECT : JSON_ARRAY;
        ok = members(r, v, v->kind == JSON_OBJECT ? '}' : ']');
    } else {
        ok = word(r, v);
    }
    if (ok)
        return v;
    json_free(v);
    return NULL;
}

int json_parse_with(struct json **out, const char *text, size_t len, const struct json_rules *rules,
                    struct err *e) {
    (void)rules;
    struct reader r = {text, text + len};
    *out = value(&r);
    space(&r);
    if (*out && r.p == r.end)
        return 0;
    json_free(*out);
    *out = NULL;
    return err_set(e, ERR_FORMAT, "JSON text is wrong near byte %zu", (size_t)(r.p - text));
}

int json_parse(struct json **out, const char *text, size_t len, struct err *e) {
    return json_parse_with(out, text, len, &(struct json_rules){0}, e);
}

void json_free(struct json *v) {
    if (!v)
        return;
    for (size_t i = 0; i < v->len && v->items; i++) {
        free(v->keys[i]);
        json_free(v->items[i]);
    }
    free(v->text);
    free(v->keys);
    free(v->items);
    free(v);
}

enum json_kind json_kind_of(const struct json *v) {
    return v ? v->kind : JSON_NULL;
}

const struct json *json_get(const struct json *object, const char *key) {
    for (size_t i = 0; json_kind_of(object) == JSON_OBJECT && i < object->len; i++)
        if (!strcmp(object->keys[i], key))
            return object->items[i];
    return NULL;
}

size_t json_len(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_ARRAY || kind == JSON_OBJECT ? v->len : 0;
}

const struct json *json_at(const struct json *array, size_t i) {
    return json_kind_of(array) == JSON_ARRAY && i < array->len ? array->items[i] : NULL;
}

int json_each(const struct json *object, json_member_fn *fn, void *arg) {
    int rc = 0;
    for (size_t i = 0; json_kind_of(object) == JSON_OBJECT && i < object->len && !rc; i++)
        rc = fn(arg, object->keys[i], strlen(object->keys[i]), object->items[i]);
    return rc;
}

const char *json_str(const struct json *v, size_t *len) {
    if (json_kind_of(v) != JSON_STRING)
        return NULL;
    if (len)
        *len = v->len;
    return v->text;
}

int64_t json_int(const struct json *v, int64_t otherwise) {
    return json_kind_of(v) == JSON_INT ? v->whole : otherwise;
}

const char *json_number_text(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_INT || kind == JSON_DOUBLE ? v->text : NULL;
}

double json_num(const struct json *v, double otherwise) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_INT || kind == JSON_DOUBLE ? v->number : otherwise;
}

bool json_bool(const struct json *v, bool otherwise) {
    return json_kind_of(v) == JSON_BOOL ? v->truth : otherwise;
}

bool json_has(const struct json *object, const char *key) {
    return json_get(object, key) != NULL;
}

// Fixtures are read only: no document is built.
void json_build(struct json_builder *b, enum json_kind kind, const char *s, size_t n) {
    (void)kind, (void)s, (void)n;
    b->failed = true;
}

void json_build_shared(struct json_builder *b, const struct json *v) {
    (void)v;
    b->failed = true;
}

int json_built(struct json_builder *b, struct json **out, const char *what, struct err *e) {
    (void)b, (void)what;
    *out = NULL;
    return err_set(e, ERR_UNSUPPORTED, "this reader builds no documents");
}
