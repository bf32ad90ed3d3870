// SPDX-License-Identifier: Apache-2.0
// The tests of `is`.
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/builtins/tables.h"
#include "text/jinja/eval/iterate.h"
#include "text/jinja/eval/operators.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/text.h"
#include "text/tokenizer/norm.h"

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
        {"callable", 1u << JINJA_MACRO | 1u << JINJA_METHOD | 1u << JINJA_FUNCTION |
                         1u << JINJA_LOOP | 1u << JINJA_JOINER | 1u << JINJA_UNDEFINED},
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
                        int64_t want, struct jinja_value *out) {
    bool same = false;
    int rc = jinja_operate(c, '%', v, by, out);
    if (!rc)
        rc = jinja_equal(c, *out, jinja_int(want), &same);
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

// Python's islower and isupper: there is a cased letter, and none of the other case.
static int test_case(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    bool upper = strcmp(call->name, "upper") == 0, cased = false, good = true;
    struct jinja_value text;
    int rc = jinja_to_string(c, call->self, &text);
    if (rc)
        return rc;
    const struct jinja_string *s = text.as.s;
    rc = jinja_charge(c, s->n / 16);
    for (size_t at = 0; at < s->n && !rc;) {
        uint32_t code;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        unsigned what = norm_class(code);
        cased |= (what & NORM_CASED) != 0;
        good &= !(what & (NORM_CASED ^ (upper ? NORM_UPPER : NORM_LOWER)));
        at += (size_t)(len > 0 ? len : 1);
    }
    *out = jinja_bool(cased && good);
    return rc;
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

static int test_escaped(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    (void)c;
    return answer(out, call->self.kind == JINJA_STRING && call->self.as.s->markup);
}

static int test_filter(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    (void)c;
    return answer(out, call->self.kind == JINJA_STRING && jinja_find_filter(call->self));
}

static int test_test(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    (void)c;
    return answer(out, call->self.kind == JINJA_STRING && jinja_find_test(call->self));
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
    {"lower", test_case, "", 0},
    {"upper", test_case, "", 0},
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
    {"escaped", test_escaped, "", 0},
    {"filter", test_filter, "", 0},
    {"test", test_test, "", 0},
    {NULL, NULL, NULL, 0},
};
