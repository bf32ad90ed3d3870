// SPDX-License-Identifier: Apache-2.0
// Reading an object by rows of a field table: kind and range are checked here, in one way for all
// fields; see fields.h.
#include <math.h>

#include "base/utf8.h"
#include "serve/request/fields.h"

const char *fields_kind_name(const struct json *v) {
    switch (json_kind_of(v)) {
    case JSON_NULL:
        return "null";
    case JSON_BOOL:
        return "a boolean";
    case JSON_INT:
    case JSON_DOUBLE:
        return "a number";
    case JSON_STRING:
        return "a string";
    case JSON_ARRAY:
        return "an array";
    case JSON_OBJECT:
        return "an object";
    }
    return "nothing known";
}

static bool wrong_kind(const struct field *f, const struct json *v, const char *wanted,
                       struct api_error *x) {
    return api_refuse(x, f->name, "%s is %s and must be %s", f->name, fields_kind_name(v), wanted);
}

// A number within the row's bounds; whole where integer.
static bool check_number(const struct field *f, const struct json *v, bool whole, double *out,
                         struct api_error *x) {
    enum json_kind k = json_kind_of(v);
    double d = json_num(v, 0);
    if (k != JSON_INT && (k != JSON_DOUBLE || (whole && d != floor(d))))
        return wrong_kind(f, v, whole ? "an integer" : "a number", x);
    if (!(d >= f->lo && d <= f->hi))
        return api_refuse(x, f->name, "%s is %.17g and must be within %.17g to %.17g", f->name, d,
                          f->lo, f->hi);
    *out = d;
    return true;
}

static bool check_string(const struct field *f, const struct json *v, struct api_error *x) {
    size_t n = 0;
    const char *s = json_str(v, &n);
    if (!s)
        return wrong_kind(f, v, "a string", x);
    if (f->hi > 0 && utf8_count(s, n) > (size_t)f->hi)
        return api_refuse(x, f->name, "%s has %zu characters and may have %.0f", f->name,
                          utf8_count(s, n), f->hi);
    return true;
}

static bool check_kind(const struct field *f, const struct json *v, double *number,
                       struct api_error *x) {
    enum json_kind k = json_kind_of(v);
    switch (f->kind) {
    case FIELD_BOOL:
        return k == JSON_BOOL || wrong_kind(f, v, "true or false", x);
    case FIELD_INT:
        return check_number(f, v, true, number, x);
    case FIELD_NUM:
        return check_number(f, v, false, number, x);
    case FIELD_STRING:
        return check_string(f, v, x);
    case FIELD_ARRAY:
        return k == JSON_ARRAY || wrong_kind(f, v, "an array", x);
    case FIELD_OBJECT:
        return k == JSON_OBJECT || wrong_kind(f, v, "an object", x);
    case FIELD_ANY:
        break;
    }
    return true;
}

static bool read_one(struct params *p, const struct field *f, const struct json *v,
                     const struct params_limits *l, struct api_error *x) {
    double number = 0;
    char *place = (char *)p + f->offset;
    if (!check_kind(f, v, &number, x))
        return false;
    if (f->read)
        return f->read(p, f, v, l, x);
    switch (f->kind) {
    case FIELD_BOOL:
        *(bool *)place = json_bool(v, false);
        break;
    case FIELD_INT:
        *(int64_t *)place = (int64_t)number;
        break;
    case FIELD_NUM:
        *(double *)place = number;
        break;
    default:
        *(const struct json **)place = v;
    }
    return true;
}

bool fields_read(struct params *p, const struct field *rows, size_t n, const struct json *object,
                 enum endpoint endpoint, const struct params_limits *l, struct api_error *x) {
    for (size_t i = 0; i < n; i++) {
        const struct json *v = json_get(object, rows[i].name);
        if (!(rows[i].endpoints & endpoint) || json_kind_of(v) == JSON_NULL)
            continue;
        if (!read_one(p, &rows[i], v, l, x))
            return false;
    }
    return true;
}
