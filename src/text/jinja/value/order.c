// SPDX-License-Identifier: Apache-2.0
// The order of values; see compare.h. Only what Python orders has one.
#include <string.h>

#include "base/num.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/text.h"

enum { UNORDERED = 2 };

static int sign_of(double a, double b) {
    return a < b ? -1 : a > b ? 1 : a == b ? 0 : UNORDERED;
}

static int order_big(struct jinja_value a, struct jinja_value b) {
    const struct jinja_string *s = a.as.s, *t = b.as.s;
    bool minus = s->bytes[0] == '-', other = t->bytes[0] == '-';
    if (minus != other)
        return minus ? -1 : 1;
    int order = s->n != t->n ? (s->n < t->n ? -1 : 1) : memcmp(s->bytes, t->bytes, s->n);
    order = order < 0 ? -1 : order > 0;
    return minus ? -order : order;
}

static int order_numbers(struct jinja_value a, struct jinja_value b) {
    if (a.kind == JINJA_BIG && b.kind == JINJA_BIG)
        return order_big(a, b);
    if (a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT)
        return sign_of(jinja_as_double(a), jinja_as_double(b));
    if (a.kind == JINJA_BIG)
        return a.as.s->bytes[0] == '-' ? -1 : 1;
    if (b.kind == JINJA_BIG)
        return b.as.s->bytes[0] == '-' ? 1 : -1;
    int64_t x = jinja_as_int(a), y = jinja_as_int(b);
    return x < y ? -1 : x > y;
}

static int order_text(const struct jinja_string *a, const struct jinja_string *b) {
    int order = memcmp(a->bytes, b->bytes, min_size(a->n, b->n));
    if (order == 0)
        return a->n < b->n ? -1 : a->n > b->n;
    return order < 0 ? -1 : 1;
}

static int order_lists(struct jinja_context *c, const struct jinja_list *a,
                       const struct jinja_list *b, const char *op, int *order) {
    int rc = jinja_enter(c);
    if (rc)
        return rc;
    *order = a->n < b->n ? -1 : a->n > b->n;
    for (size_t i = 0; i < min_size(a->n, b->n) && !rc; i++) {
        bool same = false;
        rc = i % 4 == 3 ? jinja_charge(c, 1) : 0;
        if (!rc)
            rc = jinja_equal(c, a->items[i], b->items[i], &same);
        if (rc || same)
            continue;
        rc = jinja_order(c, a->items[i], b->items[i], op, order);
        break;
    }
    jinja_leave(c);
    return rc;
}

int jinja_order(struct jinja_context *c, struct jinja_value a, struct jinja_value b, const char *op,
                int *order) {
    int rc = jinja_charge(c, 1);
    if (rc)
        return rc;
    if (a.kind == JINJA_UNDEFINED || b.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, a.kind == JINJA_UNDEFINED ? a : b);
    if (a.kind == JINJA_STRING && b.kind == JINJA_STRING) {
        *order = order_text(a.as.s, b.as.s);
        return jinja_charge(c, min_size(a.as.s->n, b.as.s->n) / 64);
    }
    if (jinja_is_number(a) && jinja_is_number(b))
        *order = order_numbers(a, b);
    else if (a.kind == b.kind && (a.kind == JINJA_LIST || a.kind == JINJA_TUPLE))
        return order_lists(c, a.as.l, b.as.l, op, order);
    else
        return jinja_fail(c, ERR_USAGE, "'%s' not supported between instances of '%s' and '%s'", op,
                          jinja_type(a), jinja_type(b));
    return 0;
}
