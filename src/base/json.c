// SPDX-License-Identifier: Apache-2.0
// JSON; see json.h. Reading is json-c in strict mode, with the gaps closed here by a scan of the
// text: foreign characters and words, raw control characters in strings, NUL in a key, numbers like
// 01 or 1. and those that are not finite or integers beyond 64 bits, and text after the value.
// The writer is in json_writer.c. No other file includes json-c.
#include "base/json.h"

#define json_bool jsonc_bool // json-c's type of that name would hide our function
#include <json-c/json.h>
#undef json_bool
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { DEPTH_MAX = 128 };

// struct json is never defined: a value is json-c's own object under our name.
static struct json_object *raw(const struct json *v) {
    return (struct json_object *)(uintptr_t)v;
}

static const struct json *ours(struct json_object *o) {
    return (const struct json *)o;
}

static bool all_finite(struct json_object *o) {
    if (json_object_is_type(o, json_type_double))
        return isfinite(json_object_get_double(o));
    if (json_object_is_type(o, json_type_array)) {
        for (size_t i = 0; i < json_object_array_length(o); i++)
            if (!all_finite(json_object_array_get_idx(o, i)))
                return false;
    } else if (json_object_is_type(o, json_type_object)) {
        json_object_object_foreach(o, key, member) {
            (void)key;
            if (!all_finite(member))
                return false;
        }
    }
    return true;
}

static size_t digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

// Whether the n digits fit 64 bits: unsigned for positive numbers, signed for negative ones.
static bool fits(const char *s, size_t n, bool negative) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
            return false;
    return !negative || v <= (uint64_t)INT64_MAX + 1;
}

// Length of the number at s by RFC 8259's grammar; 0 when it breaks it, or is an integer beyond 64
// bits, which json-c would clamp.
static size_t scan_number(const char *s, size_t n) {
    size_t i = s[0] == '-', whole = digits(s + i, n - i);
    if (whole == 0 || (whole > 1 && s[i] == '0'))
        return 0;
    i += whole;
    if ((i == n || !memchr(".eE", s[i], 3)) && !fits(s + i - whole, whole, s[0] == '-'))
        return 0;
    if (i < n && s[i] == '.') {
        size_t part = digits(s + i + 1, n - i - 1);
        if (part == 0)
            return 0;
        i += 1 + part;
    }
    if (i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        i += i < n && (s[i] == '+' || s[i] == '-');
        size_t part = digits(s + i, n - i);
        if (part == 0)
            return 0;
        i += part;
    }
    return i;
}

// Length of the string at s with its quotes (all of n when it does not end), 0 when it holds a
// raw control character or is a key with a NUL, which json-c would cut.
static size_t scan_string(const char *s, size_t n) {
    bool nul = false;
    size_t i = 1;
    for (; i < n && s[i] != '"'; i++) {
        if ((unsigned char)s[i] < 32)
            return 0;
        if (s[i] != '\\')
            continue;
        i++;
        nul |= n - i >= 5 && memcmp(s + i, "u0000", 5) == 0;
    }
    if (i >= n)
        return n;
    size_t after = ++i;
    while (nul && after < n && memchr(" \t\r\n", s[after], 4))
        after++;
    return nul && after < n && s[after] == ':' ? 0 : i;
}

// Length of true, false or null at s, 0 when it is none of them.
static size_t scan_word(const char *s, size_t n) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);
        if (n >= len && memcmp(s, words[i], len) == 0)
            return len;
    }
    return 0;
}

// Finds what some version of json-c lets pass although the grammar forbids it. json-c checks the
// rest.
static int scan(const char *text, size_t n, struct err *e) {
    size_t step;
    for (size_t i = 0; i < n; i += step) {
        step = 1;
        if (text[i] == '"')
            step = scan_string(text + i, n - i);
        else if (text[i] == '-' || (text[i] >= '0' && text[i] <= '9'))
            step = scan_number(text + i, n - i);
        else if (!memchr("{}[]:, \t\r\n", text[i], 10))
            step = scan_word(text + i, n - i);
        if (step == 0)
            return err_set(e, ERR_FORMAT, "JSON text is wrong in what begins at byte %zu", i);
    }
    return 0;
}

static bool only_space(const char *text, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (!memchr(" \t\r\n", text[i], 4))
            return false;
    return true;
}

// Feeds the text; json-c wants a NUL behind a bare number to see that it has ended.
static struct json_object *feed(struct json_tokener *t, const char *text, size_t len,
                                size_t *used) {
    struct json_object *o = json_tokener_parse_ex(t, text, (int)len);
    *used = json_tokener_get_parse_end(t);
    if (!o && json_tokener_get_error(t) == json_tokener_continue) {
        o = json_tokener_parse_ex(t, "", 1);
        *used = len;
    }
    return o;
}

int json_parse(struct json **out, const char *text, size_t len, struct err *e) {
    *out = NULL;
    if (len > INT_MAX - 1)
        return err_set(e, ERR_LIMIT, "JSON text of %zu bytes is too long; the limit is 2 GiB", len);
    int rc = scan(text, len, e);
    if (rc)
        return rc;
    struct json_tokener *t = json_tokener_new_ex(DEPTH_MAX);
    if (!t)
        return err_set(e, ERR_MEMORY, "out of memory for the JSON reader");
    json_tokener_set_flags(t, JSON_TOKENER_STRICT | JSON_TOKENER_VALIDATE_UTF8);
    size_t used = 0;
    struct json_object *o = feed(t, text, len, &used);
    enum json_tokener_error code = json_tokener_get_error(t);
    json_tokener_free(t);
    if (code == json_tokener_continue)
        rc = err_set(e, ERR_FORMAT, "JSON text ends in the middle of a value after %zu bytes", len);
    else if (code != json_tokener_success)
        rc = err_set(e, ERR_FORMAT, "JSON text is wrong near byte %zu: %s", used,
                     json_tokener_error_desc(code));
    else if (!only_space(text + used, len - used))
        rc = err_set(e, ERR_FORMAT, "JSON text has more after its value at byte %zu", used);
    else if (!all_finite(o))
        rc = err_set(e, ERR_FORMAT, "JSON text holds a number that is not finite");
    if (rc)
        json_object_put(o);
    else
        *out = (struct json *)o;
    return rc;
}

void json_free(struct json *root) {
    json_object_put(raw(root));
}

enum json_kind json_kind_of(const struct json *v) {
    switch (json_object_get_type(raw(v))) {
    case json_type_boolean:
        return JSON_BOOL;
    case json_type_int:
        return JSON_INT;
    case json_type_double:
        return JSON_DOUBLE;
    case json_type_string:
        return JSON_STRING;
    case json_type_array:
        return JSON_ARRAY;
    case json_type_object:
        return JSON_OBJECT;
    case json_type_null:
        break;
    }
    return JSON_NULL;
}

const struct json *json_get(const struct json *object, const char *key) {
    struct json_object *v = NULL;
    if (json_kind_of(object) == JSON_OBJECT)
        json_object_object_get_ex(raw(object), key, &v);
    return ours(v);
}

size_t json_len(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    if (kind == JSON_ARRAY)
        return json_object_array_length(raw(v));
    return kind == JSON_OBJECT ? (size_t)json_object_object_length(raw(v)) : 0;
}

const struct json *json_at(const struct json *array, size_t i) {
    return i < json_len(array) && json_kind_of(array) == JSON_ARRAY
               ? ours(json_object_array_get_idx(raw(array), i))
               : NULL;
}

int json_each(const struct json *object, json_member_fn *fn, void *arg) {
    if (json_kind_of(object) != JSON_OBJECT)
        return 0;
    json_object_object_foreach(raw(object), key, member) {
        int rc = fn(arg, key, strlen(key), ours(member));
        if (rc)
            return rc;
    }
    return 0;
}

const char *json_str(const struct json *v, size_t *len) {
    if (json_kind_of(v) != JSON_STRING)
        return NULL;
    if (len)
        *len = (size_t)json_object_get_string_len(raw(v));
    return json_object_get_string(raw(v));
}

int64_t json_int(const struct json *v, int64_t otherwise) {
    if (json_kind_of(v) != JSON_INT)
        return otherwise;
    // json-c clamps what does not fit; the unsigned reading tells a clamp from a true maximum.
    if (json_object_get_int64(raw(v)) == INT64_MAX && json_object_get_uint64(raw(v)) > INT64_MAX)
        return otherwise;
    return json_object_get_int64(raw(v));
}

double json_num(const struct json *v, double otherwise) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_INT || kind == JSON_DOUBLE ? json_object_get_double(raw(v)) : otherwise;
}

bool json_bool(const struct json *v, bool otherwise) {
    return json_kind_of(v) == JSON_BOOL ? json_object_get_boolean(raw(v)) != 0 : otherwise;
}
