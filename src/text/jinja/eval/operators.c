// SPDX-License-Identifier: Apache-2.0
// Operators; see operators.h.
#include "text/jinja/eval/operators.h"

#include <string.h>

#include "text/jinja/value/number.h"
#include "text/jinja/value/text.h"

static bool is_list(struct jinja_value v) {
    return v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
}

// A string beside one that is marked safe is escaped first.
static int put_beside(struct jinja_context *c, const struct jinja_string *s,
                      const struct jinja_string *other) {
    return other->markup && !s->markup ? jinja_put_escaped(c, s) : jinja_put_string(c, s);
}

static int join_text(struct jinja_context *c, const struct jinja_string *a,
                     const struct jinja_string *b, struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = put_beside(c, a, b);
    if (!rc)
        rc = put_beside(c, b, a);
    if (!rc)
        rc = jinja_take(c, mark, out);
    if (!rc && (a->markup || b->markup))
        ((struct jinja_string *)(uintptr_t)out->as.s)->markup = true;
    return rc;
}

static int join_lists(struct jinja_context *c, struct jinja_value a, struct jinja_value b,
                      struct jinja_value *out) {
    const struct jinja_list *x = a.as.l, *y = b.as.l;
    *out = jinja_tuple(c, x->n + y->n);
    if (!out->kind)
        return c->e.code;
    out->kind = a.kind;
    out->as.l->untrusted = x->untrusted && y->untrusted;
    if (x->n)
        memcpy(out->as.l->items, x->items, x->n * sizeof *x->items);
    if (y->n)
        memcpy(out->as.l->items + x->n, y->items, y->n * sizeof *y->items);
    return 0;
}

static int repeat_text(struct jinja_context *c, const struct jinja_string *s, int64_t n,
                       struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = 0;
    for (int64_t i = 0; i < n && s->n > 0 && !rc; i++) {
        rc = jinja_charge(c, 1);
        if (!rc)
            rc = jinja_put_string(c, s);
    }
    return rc ? rc : jinja_take(c, mark, out);
}

static int repeat_list(struct jinja_context *c, struct jinja_value v, int64_t n,
                       struct jinja_value *out) {
    size_t count, times = n > 0 ? (size_t)n : 0;
    const struct jinja_list *l = v.as.l;
    if (__builtin_mul_overflow(l->n, times, &count))
        count = SIZE_MAX / 2;
    *out = jinja_tuple(c, count);
    if (!out->kind)
        return c->e.code;
    out->kind = v.kind;
    out->as.l->untrusted = l->untrusted;
    for (size_t i = 0; i < count; i++)
        out->as.l->items[i] = l->items[i % l->n];
    return 0;
}

static int repeat(struct jinja_context *c, struct jinja_value v, struct jinja_value times,
                  struct jinja_value *out) {
    int64_t n;
    int rc = jinja_want_int(c, times, "what a sequence is multiplied with", &n);
    if (rc)
        return rc;
    return v.kind == JINJA_STRING ? repeat_text(c, v.as.s, n, out) : repeat_list(c, v, n, out);
}

static int refuse(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b) {
    if (op == '+' && a.kind == JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "can only concatenate str (not \"%s\") to str",
                          jinja_type(b));
    const char *shown = op == 'd' ? "//" : op == '^' ? "**" : NULL;
    char one[2] = {op, 0};
    return jinja_fail(c, ERR_USAGE, "unsupported operand type(s) for %s: '%s' and '%s'",
                      shown ? shown : one, jinja_type(a), jinja_type(b));
}

int jinja_operate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                  struct jinja_value *out) {
    if (jinja_is_number(a) && jinja_is_number(b))
        return jinja_calculate(c, op, a, b, out);
    if (op == '%' && a.kind == JINJA_STRING)
        return jinja_percent(c, a.as.s, b, out);
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, a.kind == JINJA_UNDEFINED ? a : b);
    if (op == '+' && a.kind == b.kind && a.kind == JINJA_STRING)
        return join_text(c, a.as.s, b.as.s, out);
    if (op == '+' && a.kind == b.kind && is_list(a))
        return join_lists(c, a, b, out);
    if (op == '*' && (is_list(a) || a.kind == JINJA_STRING) && jinja_is_integer(b))
        return repeat(c, a, b, out);
    if (op == '*' && (is_list(b) || b.kind == JINJA_STRING) && jinja_is_integer(a))
        return repeat(c, b, a, out);
    return refuse(c, op, a, b);
}
