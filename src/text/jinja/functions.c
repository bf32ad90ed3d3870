// SPDX-License-Identifier: Apache-2.0
// The functions that every template has, and the tests of `is`.
#include <string.h>
#include <time.h>

#include "text/jinja/eval.h"
#include "text/jinja/iterate.h"
#include "text/jinja/repr.h"

enum { RANGE_MAX = 100000 }; // as in jinja2's sandbox

static int call_range(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    struct jinja_range *r = jinja_alloc(c, sizeof *r);
    int64_t a[3] = {0, 0, 1};
    int n = 0, rc = r ? 0 : c->e.code;
    for (; !rc && n < 3 && call->a[n].kind; n++)
        rc = jinja_require_int(c, call->a[n], "an argument of range()", a + n);
    if (rc)
        return rc;
    *r = (struct jinja_range){.start = n > 1 ? a[0] : 0, .stop = n > 1 ? a[1] : a[0], .step = a[2]};
    if (r->step == 0)
        return jinja_fail(c, ERR_USAGE, "range() arg 3 must not be zero");
    __int128 span = r->step > 0 ? (__int128)r->stop - r->start : (__int128)r->start - r->stop;
    __int128 step = r->step > 0 ? r->step : -(__int128)r->step;
    __int128 count = span > 0 ? (span - 1) / step + 1 : 0;
    if (count > RANGE_MAX)
        return jinja_fail(c, ERR_USAGE, "a range of more than %d items is too big", RANGE_MAX);
    r->n = (int64_t)count;
    *out = (struct jinja_value){.kind = JINJA_RANGE, .as.p = r};
    return 0;
}

static int call_dict(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    const struct jinja_args *args = call->args;
    if (args->n > 1)
        return jinja_fail(c, ERR_USAGE, "dict expected at most 1 argument, got %d", args->n);
    *out = jinja_dict(c, false);
    int rc = out->kind ? 0 : c->e.code;
    if (!rc && args->n == 1 && args->pos[0].kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, args->pos[0]);
    if (!rc && args->n == 1 && args->pos[0].kind == JINJA_DICT) {
        *out = jinja_copy(c, args->pos[0]);
        rc = out->kind ? 0 : c->e.code;
    } else if (!rc && args->n == 1) {
        rc = jinja_fail(c, ERR_USAGE, "a dictionary made of pairs is not supported here");
    }
    for (int i = 0; i < args->n_named && !rc; i++)
        rc = jinja_dict_set(c, out->as.m, args->named[i].key, args->named[i].value);
    return rc;
}

static int call_namespace(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    int rc = call_dict(c, call, out);
    for (size_t i = 0; !rc && i < out->as.m->n; i++) {
        struct jinja_value key = out->as.m->entries[i].key;
        if (key.kind == JINJA_STRING && key.as.s->bytes[0] == '_')
            rc = jinja_fail(c, ERR_USAGE, "a namespace cannot have the attribute '%.60s'",
                            key.as.s->bytes);
    }
    if (!rc) {
        out->kind = JINJA_NAMESPACE;
        out->as.m->untrusted = false;
    }
    return rc;
}

static int call_raise(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    int rc = jinja_to_string(c, call->a[0], out);
    if (rc)
        return rc;
    return jinja_fail(c, ERR_USAGE, "%.*s", out->as.s->n > 400 ? 400 : (int)out->as.s->n,
                      out->as.s->n ? out->as.s->bytes : "raise_exception without a text");
}

// What Python's strftime makes of a time without a zone: %z and %Z are empty; and %f, microseconds,
// which the C library does not have, is always 0.
static int expand_format(struct jinja_context *c, const struct jinja_string *s,
                         struct jinja_value *out) {
    size_t mark = jinja_mark(c), plain = 0;
    int rc = 0;
    for (size_t i = 0; i + 1 < s->n && !rc; i++) {
        if (s->bytes[i] != '%')
            continue;
        char what = s->bytes[i + 1];
        if (what == 'f' || what == 'z' || what == 'Z') {
            rc = jinja_put_range(c, s, plain, i);
            if (!rc && what == 'f')
                rc = jinja_puts(c, "000000");
            plain = i + 2;
        }
        i++;
    }
    if (!rc)
        rc = jinja_put_range(c, s, plain, s->n);
    return rc ? rc : jinja_take(c, mark, out);
}

static int call_strftime(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    struct jinja_value format;
    struct tm now = c->now;
    time_t t = time(NULL);
    char text[1024];
    if (call->a[0].kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "strftime_now() takes a format string, not '%s'",
                          jinja_type(call->a[0]));
    if (!c->has_now && !localtime_r(&t, &now))
        return jinja_fail(c, ERR_STATE, "the system does not tell the local time");
    int rc = expand_format(c, call->a[0].as.s, &format);
    if (rc)
        return rc;
    size_t n = format.as.s->n ? strftime(text, sizeof text, format.as.s->bytes, &now) : 0;
    *out = jinja_string(c, text, n, !jinja_all_trusted(format.as.s));
    return out->kind ? 0 : c->e.code;
}

const struct jinja_builtin jinja_functions[] = {
    {"range", call_range, "start stop step", 1},  {"dict", call_dict, NULL, 0},
    {"namespace", call_namespace, NULL, 0},       {"raise_exception", call_raise, "message", 1},
    {"strftime_now", call_strftime, "format", 1}, {NULL, NULL, NULL, 0},
};

static int answer(struct jinja_value *out, bool yes) {
    *out = jinja_bool(yes);
    return 0;
}

static int test_kind(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    static const struct {
        const char *name;
        uint32_t kinds;
    } rows[] = {
        {"undefined", 1u << JINJA_UNDEFINED},
        {"none", 1u << JINJA_NONE},
        {"boolean", 1u << JINJA_BOOL},
        {"integer", 1u << JINJA_INT | 1u << JINJA_BIG},
        {"float", 1u << JINJA_FLOAT},
        {"number", 1u << JINJA_BOOL | 1u << JINJA_INT | 1u << JINJA_BIG | 1u << JINJA_FLOAT},
        {"string", 1u << JINJA_STRING},
        {"mapping", 1u << JINJA_DICT},
        {"callable",
         1u << JINJA_MACRO | 1u << JINJA_METHOD | 1u << JINJA_FUNCTION | 1u << JINJA_UNDEFINED},
        {"sequence", 1u << JINJA_UNDEFINED | 1u << JINJA_STRING | 1u << JINJA_LIST |
                         1u << JINJA_TUPLE | 1u << JINJA_DICT | 1u << JINJA_RANGE},
    };
    (void)c;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, call->name) == 0)
            return answer(out, (rows[i].kinds >> call->self.kind) & 1);
    return answer(out, call->self.kind != JINJA_UNDEFINED); // defined
}

static int test_iterable(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    (void)c;
    return answer(out, jinja_is_iterable(call->self) || call->self.kind == JINJA_LOOP);
}

static int test_truth(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    (void)c;
    return answer(out, call->self.kind == JINJA_BOOL &&
                           call->self.as.b == (strcmp(call->name, "true") == 0));
}

static int remainder_is(struct jinja_context *c, struct jinja_value v, struct jinja_value by,
                        int64_t expected, struct jinja_value *out) {
    bool same = false;
    int rc = jinja_operate(c, '%', v, by, out);
    if (!rc)
        rc = jinja_equal(c, *out, jinja_int(expected), &same);
    *out = jinja_bool(same);
    return rc;
}

static int test_odd(struct jinja_context *c, const struct jinja_call *call,
                    struct jinja_value *out) {
    return remainder_is(c, call->self, jinja_int(2), 1, out);
}

static int test_even(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    return remainder_is(c, call->self, jinja_int(2), 0, out);
}

static int test_divisible(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    return remainder_is(c, call->self, call->a[0], 0, out);
}

static int test_equal(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    bool same = false;
    int rc = jinja_equal(c, call->self, call->a[0], &same);
    *out = jinja_bool(same == (strcmp(call->name, "ne") != 0 && strcmp(call->name, "!=") != 0));
    return rc;
}

static int test_order(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    int order = 0;
    bool less = call->name[0] == 'l' || call->name[0] == '<';
    bool or_equal = strcmp(call->name, "le") == 0 || strcmp(call->name, "ge") == 0;
    const char *op = less ? (or_equal ? "<=" : "<") : or_equal ? ">=" : ">";
    int rc = jinja_order(c, call->self, call->a[0], op, &order);
    *out = jinja_bool(order == (less ? -1 : 1) || (or_equal && order == 0));
    return rc;
}

static int test_in(struct jinja_context *c, const struct jinja_call *call,
                   struct jinja_value *out) {
    bool found = false;
    int rc = jinja_contains(c, call->a[0], call->self, &found);
    *out = jinja_bool(found);
    return rc;
}

// The same object: for numbers and text, which have no identity here, the same value.
static int test_same(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    struct jinja_value a = call->self, b = call->a[0];
    bool same = false;
    int rc = 0;
    if (a.kind == b.kind && a.kind <= JINJA_STRING && a.kind != JINJA_UNDEFINED)
        rc = jinja_equal(c, a, b, &same);
    else
        same = a.kind == b.kind && a.as.p == b.as.p;
    *out = jinja_bool(same);
    return rc;
}

const struct jinja_builtin jinja_tests[] = {
    {"defined", test_kind, "", 0},
    {"undefined", test_kind, "", 0},
    {"none", test_kind, "", 0},
    {"boolean", test_kind, "", 0},
    {"integer", test_kind, "", 0},
    {"float", test_kind, "", 0},
    {"number", test_kind, "", 0},
    {"string", test_kind, "", 0},
    {"mapping", test_kind, "", 0},
    {"callable", test_kind, "", 0},
    {"sequence", test_kind, "", 0},
    {"iterable", test_iterable, "", 0},
    {"true", test_truth, "", 0},
    {"false", test_truth, "", 0},
    {"odd", test_odd, "", 0},
    {"even", test_even, "", 0},
    {"divisibleby", test_divisible, "num", 1},
    {"eq", test_equal, "other", 1},
    {"equalto", test_equal, "other", 1},
    {"==", test_equal, "other", 1},
    {"ne", test_equal, "other", 1},
    {"!=", test_equal, "other", 1},
    {"lt", test_order, "other", 1},
    {"lessthan", test_order, "other", 1},
    {"<", test_order, "other", 1},
    {"le", test_order, "other", 1},
    {"gt", test_order, "other", 1},
    {"greaterthan", test_order, "other", 1},
    {">", test_order, "other", 1},
    {"ge", test_order, "other", 1},
    {"in", test_in, "seq", 1},
    {"sameas", test_same, "other", 1},
    {NULL, NULL, NULL, 0},
};
