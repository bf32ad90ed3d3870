// SPDX-License-Identifier: Apache-2.0
// Filters over single values.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/builtins/tables.h"
#include "text/jinja/value/access.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/text.h"

static int filter_default(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    bool replace = call->self.kind == JINJA_UNDEFINED ||
                   (jinja_is_true(call->a[1]) && !jinja_is_true(call->self));
    *out = !replace ? call->self : call->a[0].kind ? call->a[0] : jinja_text(c, "");
    return out->kind ? 0 : c->e.code;
}

// int() of text: an integer of that base (JINJA_ABSENT: 10), else a float cut, else the default.
static int int_of_text(struct jinja_context *c, const struct jinja_string *s,
                       struct jinja_value base, struct jinja_value *out) {
    double d;
    int64_t b = !base.kind ? 10 : jinja_is_integer(base) ? jinja_as_int(base) : 1;
    struct jinja_value v;
    if (jinja_charge(c, s->n / 4))
        return c->e.code;
    if ((b == 0 || (b >= 2 && b <= 36)) && jinja_parse_integer(c, s->bytes, s->n, (int)b, &v))
        *out = v;
    else if (!c->e.code && jinja_parse_float(s->bytes, s->n, &d) && isfinite(d))
        return jinja_cut(c, d, out);
    return c->e.code;
}

static int filter_int(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    struct jinja_value v = call->self;
    int rc = 0;
    *out = call->a[0].kind ? call->a[0] : jinja_int(0);
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    if (v.kind == JINJA_STRING)
        rc = int_of_text(c, v.as.s, call->a[1], out);
    else if (v.kind == JINJA_FLOAT)
        rc = isfinite(v.as.d) ? jinja_cut(c, v.as.d, out) : 0;
    else if (v.kind == JINJA_BIG || v.kind == JINJA_INT)
        *out = v;
    else if (v.kind == JINJA_BOOL)
        *out = jinja_int(v.as.b);
    out->untrusted |= v.kind == JINJA_STRING ? !jinja_all_trusted(v.as.s) : v.untrusted;
    return rc;
}

static int filter_float(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    struct jinja_value v = call->self;
    double d;
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    *out = call->a[0].kind ? call->a[0] : jinja_float(0, false);
    if (v.kind == JINJA_STRING && jinja_parse_float(v.as.s->bytes, v.as.s->n, &d))
        *out = jinja_float(d, !jinja_all_trusted(v.as.s));
    else if (jinja_is_number(v))
        *out = jinja_float(jinja_as_double(v), v.untrusted);
    return 0;
}

static int filter_abs(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    struct jinja_value v = call->self;
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    if (!jinja_is_number(v))
        return jinja_fail(c, ERR_USAGE, "bad operand type for abs(): '%s'", jinja_type(v));
    *out = v.kind == JINJA_BOOL ? jinja_int(v.as.b) : v;
    if (v.kind == JINJA_FLOAT)
        out->as.d = fabs(v.as.d);
    else if (jinja_as_int(v) < 0)
        return jinja_negate(c, v, out);
    return 0;
}

// round(d, places) of Python: halves of the exact binary value go to the even digit.
static double round_to(double d, int64_t places) {
    char text[400];
    if (!isfinite(d) || places > 320)
        return d;
    if (places < -308)
        return copysign(0, d);
    if (places >= 0) {
        snprintf(text, sizeof text, "%.*f", (int)(places > 340 ? 340 : places), d);
        return strtod(text, NULL);
    }
    double unit = pow(10, (double)-places), r = rint(d / unit) * unit;
    return r;
}

static int round_int(struct jinja_context *c, struct jinja_value v, int64_t places,
                     struct jinja_value *out) {
    *out = v.kind == JINJA_BOOL ? jinja_int(v.as.b) : v;
    if (places >= 0 || v.kind == JINJA_BIG)
        return 0;
    int64_t unit = 1, i = jinja_as_int(v);
    for (; places < 0; places++)
        if (__builtin_mul_overflow(unit, 10, &unit)) {
            *out = jinja_int(0);
            return 0;
        }
    int64_t rest = ((i % unit) + unit) % unit, low = i - rest, half = unit / 2;
    bool up = rest > half || (rest == half && (low / unit) % 2 != 0);
    if (__builtin_add_overflow(low, up ? unit : 0, &out->as.i))
        return jinja_fail(c, ERR_LIMIT, "the template calculates with an integer beyond 64 bits");
    return 0;
}

static int filter_round(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    struct jinja_value v = call->self, method = call->a[1];
    int64_t places = 0;
    bool up = jinja_is_text(method, "ceil"), down = jinja_is_text(method, "floor");
    int rc = call->a[0].kind ? jinja_want_int(c, call->a[0], "the precision of round", &places) : 0;
    if (rc)
        return rc;
    if (method.kind && !up && !down && !jinja_is_text(method, "common"))
        return jinja_fail(c, ERR_USAGE, "method must be common, ceil or floor");
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    if (!jinja_is_number(v))
        return jinja_fail(c, ERR_USAGE, "type %s doesn't define __round__ method", jinja_type(v));
    if (!up && !down && v.kind != JINJA_FLOAT)
        return round_int(c, v, places, out);
    double d = jinja_as_double(v), scale = pow(10, (double)places);
    if ((up || down) && !isfinite(d * scale))
        return jinja_fail(c, ERR_USAGE, "cannot convert float infinity to integer");
    if (up || down)
        d = (up ? ceil(d * scale) : floor(d * scale)) / scale;
    else
        d = round_to(d, places);
    *out = jinja_float(d, v.untrusted);
    return 0;
}

static int filter_attr(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    if (call->a[0].kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "attr wants the name of an attribute");
    return jinja_get_own_attribute(c, call->self, call->a[0], out);
}

static int filter_filesize(struct jinja_context *c, const struct jinja_call *call,
                           struct jinja_value *out) {
    static const char letters[] = "kMGTPEZY";
    bool binary = jinja_is_true(call->a[0]);
    double bytes = jinja_as_double(call->self), base = binary ? 1024 : 1000, unit = base;
    char text[64];
    if (call->self.kind == JINJA_STRING &&
        !jinja_parse_float(call->self.as.s->bytes, call->self.as.s->n, &bytes))
        return jinja_fail(c, ERR_USAGE, "filesizeformat wants a number");
    if (call->self.kind != JINJA_STRING && !jinja_is_number(call->self))
        return jinja_fail(c, ERR_USAGE, "filesizeformat wants a number, not '%s'",
                          jinja_type(call->self));
    if (!isfinite(bytes))
        return jinja_fail(c, ERR_USAGE, "filesizeformat wants a finite number");
    int i = 0;
    for (; i < 7 && bytes >= unit * base; i++)
        unit *= base;
    if (bytes == 1)
        snprintf(text, sizeof text, "1 Byte");
    else if (bytes < base)
        snprintf(text, sizeof text, "%.0f Bytes", trunc(bytes) + 0.0); // no "-0"
    else
        snprintf(text, sizeof text, "%.1f %c%sB", bytes / unit, binary && i == 0 ? 'K' : letters[i],
                 binary ? "i" : "");
    *out = jinja_text(c, text);
    return out->kind ? 0 : c->e.code;
}

const struct jinja_builtin jinja_filters_other[] = {
    {"default", filter_default, "default_value boolean", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"int", filter_int, "default base", 0},
    {"float", filter_float, "default", 0},
    {"abs", filter_abs, "", 0},
    {"round", filter_round, "precision method", 0},
    {"attr", filter_attr, "name", 1},
    {"filesizeformat", filter_filesize, "binary", 0},
    {NULL, NULL, NULL, 0},
};
