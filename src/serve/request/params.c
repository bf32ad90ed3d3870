// SPDX-License-Identifier: Apache-2.0
// Parameters of a request, and the reading of an object by rows of a field table: kind and range
// are checked here, in one way for all fields; see params.h.
#include "serve/request/params.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

enum { IGNORED_MAX = 1024 }; // bytes of the names of an answer's header

void params_fini(struct params *p) {
    stop_set_fini(&p->stops);
    free(p->bias);
    free(p->stop_ids);
    str_fini(&p->ignored);
    free(p->model);
    str_fini(&p->format_text);
    *p = (struct params){0};
}

void params_ignore(struct params *p, const char *place) {
    static const char more[] = ", ...";
    struct str *out = &p->ignored;
    if (out->len + 2 + strlen(place) + sizeof more > IGNORED_MAX) {
        if (out->len >= sizeof more && strcmp(out->data + out->len - sizeof more + 1, more) != 0)
            str_puts(out, more);
        return;
    }
    str_puts(out, out->len ? ", " : "");
    for (const char *c = place; *c; c++) {
        bool plain = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') ||
                     (*c >= '0' && *c <= '9') || strchr("_.-[]", *c);
        str_putc(out, plain ? *c : '?');
    }
}

// A number within the row's bounds; whole where integer.
static bool check_field_number(const struct field *f, const struct json *v, bool whole, double *out,
                               struct api_error *x) {
    enum json_kind k = json_kind_of(v);
    double d = json_num(v, 0);
    if (k != JSON_INT && (k != JSON_DOUBLE || (whole && d != floor(d))))
        return api_refuse_kind(x, f->name, "", v, whole ? "an integer" : "a number");
    if (!(d >= f->lo && d <= f->hi))
        return api_refuse(x, f->name, "%s is %.17g and must be within %.17g to %.17g", f->name, d,
                          f->lo, f->hi);
    *out = d;
    return true;
}

static bool check_field_string(const struct field *f, const struct json *v, struct api_error *x) {
    size_t n = 0;
    const char *s = json_str(v, &n);
    if (!s)
        return api_refuse_kind(x, f->name, "", v, "a string");
    if (f->hi > 0 && utf8_count(s, n) > (size_t)f->hi)
        return api_refuse(x, f->name, "%s has %zu characters and may have %.0f", f->name,
                          utf8_count(s, n), f->hi);
    return true;
}

static bool check_field_kind(const struct field *f, const struct json *v, double *number,
                             struct api_error *x) {
    enum json_kind k = json_kind_of(v);
    switch (f->kind) {
    case FIELD_BOOL:
        return k == JSON_BOOL || api_refuse_kind(x, f->name, "", v, "true or false");
    case FIELD_INT:
        return check_field_number(f, v, true, number, x);
    case FIELD_NUM:
        return check_field_number(f, v, false, number, x);
    case FIELD_STRING:
        return check_field_string(f, v, x);
    case FIELD_ARRAY:
        return k == JSON_ARRAY || api_refuse_kind(x, f->name, "", v, "an array");
    case FIELD_OBJECT:
        return k == JSON_OBJECT || api_refuse_kind(x, f->name, "", v, "an object");
    case FIELD_ANY:
        break;
    }
    return true;
}

static bool read_field(struct params *p, const struct field *f, const struct json *v,
                       const struct params_limits *l, struct api_error *x) {
    double number = 0;
    char *place = (char *)p + f->offset;
    if (!check_field_kind(f, v, &number, x))
        return false;
    if (f->read)
        return f->read(&(struct reading){p, f, v, l, x});
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
        if (!read_field(p, &rows[i], v, l, x))
            return false;
    }
    return true;
}
