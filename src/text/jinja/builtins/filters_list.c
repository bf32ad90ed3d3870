// SPDX-License-Identifier: Apache-2.0
// Filters over sequences. Those that Python writes as generators give their items one at a time.
#include <string.h>

#include "text/jinja/builtins/tables.h"
#include "text/jinja/eval/iterate.h"
#include "text/jinja/eval/operators.h"
#include "text/jinja/value/access.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/sort.h"
#include "text/jinja/value/text.h"

static int filter_length(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    *out = jinja_int(0);
    return jinja_length(c, call->self, &out->as.i);
}

static int filter_list(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    return jinja_collect(c, call->self, out);
}

static int filter_first(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    struct jinja_iter it;
    int rc = jinja_iterate(c, call->self, &it);
    if (!rc && (rc = jinja_next(c, &it, out)) == 0) {
        *out = jinja_undefined(c, "No first item, sequence was empty.");
        return out->kind ? 0 : c->e.code;
    }
    return rc < 0 ? rc : 0;
}

static int filter_last(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    struct jinja_value list;
    if (call->self.kind == JINJA_ITERATOR)
        return jinja_fail(c, ERR_USAGE, "'generator' object is not reversible");
    int rc = jinja_collect(c, call->self, &list);
    if (rc)
        return rc;
    *out = list.as.l->n ? list.as.l->items[list.as.l->n - 1]
                        : jinja_undefined(c, "No last item, sequence was empty.");
    return out->kind ? 0 : c->e.code;
}

static int filter_join(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    struct jinja_iter it;
    struct jinja_value item, separator = call->a[0];
    size_t mark = jinja_mark(c);
    int rc = separator.kind ? jinja_to_string(c, separator, &separator) : 0, more = 0;
    if (!rc)
        rc = jinja_iterate(c, call->self, &it);
    for (bool first = true; !rc && (more = jinja_next(c, &it, &item)) > 0; first = false) {
        if (!first && separator.kind)
            rc = jinja_put_string(c, separator.as.s);
        if (!rc)
            rc = jinja_get_path(c, item, call->a[1], jinja_none(), &item);
        if (!rc)
            rc = jinja_put_str(c, item);
    }
    rc = more < 0 ? more : rc;
    return rc ? rc : jinja_take(c, mark, out);
}

static int next_reversed(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    const struct jinja_list *l = it->state;
    (void)c;
    if (it->at >= l->n)
        return 0;
    *out = l->items[l->n - ++it->at];
    return 1;
}

static int filter_reverse(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    static const struct jinja_value back[3] = {{0}, {0}, {.kind = JINJA_INT, .as.i = -1}};
    if (call->self.kind == JINJA_STRING)
        return jinja_get_slice(c, call->self, back, out);
    struct jinja_value list;
    int rc = jinja_collect(c, call->self, &list);
    return rc ? rc : jinja_generator(c, next_reversed, list, list.as.l, out);
}

static int next_member(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    if (it->source.kind == JINJA_UNDEFINED)
        return 0;
    if (it->source.kind != JINJA_DICT && it->source.kind != JINJA_VIEW)
        return jinja_fail(c, ERR_USAGE, "Can only get item pairs from a mapping.");
    if (it->source.kind == JINJA_DICT) {
        struct jinja_view *view = jinja_alloc(c, sizeof *view);
        if (!view)
            return c->e.code;
        *view = (struct jinja_view){.what = VIEW_ITEMS, .of = it->source.as.m};
        it->source = (struct jinja_value){.kind = JINJA_VIEW, .as.p = view};
    }
    return jinja_pull(c, it, false, out);
}

static int filter_items(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    if (call->self.kind == JINJA_VIEW) // no mapping, but it would pass for one made here
        return jinja_fail(c, ERR_USAGE, "Can only get item pairs from a mapping.");
    return jinja_generator(c, next_member, call->self, NULL, out);
}

// Python's sorted() takes truth values and integers for reverse.
static int want_reverse(struct jinja_context *c, struct jinja_value v, bool *reverse) {
    *reverse = jinja_is_true(v);
    if (v.kind && !jinja_is_integer(v))
        return jinja_fail(c, ERR_USAGE, "'%s' object cannot be interpreted as an integer",
                          jinja_type(v));
    return 0;
}

static int filter_dictsort(struct jinja_context *c, const struct jinja_call *call,
                           struct jinja_value *out) {
    bool by_value = jinja_is_text(call->a[1], "value");
    if (call->a[1].kind && !by_value && !jinja_is_text(call->a[1], "key"))
        return jinja_fail(c, ERR_USAGE, "dictsort sorts by either \"key\" or \"value\"");
    if (call->self.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, call->self);
    if (call->self.kind != JINJA_DICT)
        return jinja_fail(c, ERR_USAGE, "dictsort wants a mapping, not '%s'",
                          jinja_type(call->self));
    struct jinja_view view = {.what = VIEW_ITEMS, .of = call->self.as.m};
    struct jinja_value items = {.kind = JINJA_VIEW, .as.p = &view};
    int rc = jinja_collect(c, items, out);
    struct jinja_sort how = {.path = jinja_int(by_value),
                             .case_sensitive = jinja_is_true(call->a[0])};
    if (!rc)
        rc = want_reverse(c, call->a[2], &how.reverse);
    return rc ? rc : jinja_sort(c, out->as.l, &how);
}

static int filter_sort(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    struct jinja_sort how = {.path = call->a[2],
                             .paths = call->a[2].kind == JINJA_STRING,
                             .case_sensitive = jinja_is_true(call->a[1])};
    int rc = jinja_collect(c, call->self, out);
    if (!rc)
        rc = want_reverse(c, call->a[0], &how.reverse);
    return rc ? rc : jinja_sort(c, out->as.l, &how);
}

static int filter_extreme(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    struct jinja_sort how = {.path = call->a[1], .case_sensitive = jinja_is_true(call->a[0])};
    bool least = call->name[1] == 'i';
    struct jinja_iter it;
    struct jinja_value item, key, best = {0};
    int rc = jinja_iterate(c, call->self, &it), more = 0, order = -1;
    *out = best;
    while (!rc && (more = jinja_next(c, &it, &item)) > 0) {
        rc = jinja_sort_key(c, &how, item, &key);
        if (!rc && best.kind)
            rc = jinja_order(c, key, best, least ? "<" : ">", &order);
        if (!rc && (!best.kind || order == (least ? -1 : 1))) {
            best = key;
            *out = item;
        }
    }
    if (!rc && more == 0 && !out->kind)
        *out = jinja_undefined(c, "No aggregated item, sequence was empty.");
    return more < 0 ? more : rc ? rc : c->e.code;
}

static int filter_sum(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    struct jinja_iter it;
    struct jinja_value item;
    *out = call->a[1].kind ? call->a[1] : jinja_int(0);
    if (out->kind == JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "sum() can't sum strings [use ''.join(seq) instead]");
    int rc = jinja_iterate(c, call->self, &it), more = 0;
    while (!rc && (more = jinja_next(c, &it, &item)) > 0) {
        rc = jinja_get_path(c, item, call->a[0], jinja_none(), &item);
        if (!rc)
            rc = jinja_operate(c, '+', *out, item, out);
    }
    return more < 0 ? more : rc;
}

// unique

struct unique {
    struct jinja_sort how;
    struct jinja_dict seen;
};

static int next_unique(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    struct unique *u = it->state;
    struct jinja_value key;
    int rc;
    while ((rc = jinja_pull(c, it, false, out)) > 0) {
        size_t n = u->seen.n;
        rc = jinja_sort_key(c, &u->how, *out, &key);
        if (!rc)
            rc = jinja_dict_set(c, &u->seen, key, jinja_none());
        if (rc || u->seen.n > n)
            return rc ? rc : 1;
    }
    return rc;
}

static int filter_unique(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    struct unique *u = jinja_alloc(c, sizeof *u);
    if (!u)
        return c->e.code;
    u->how = (struct jinja_sort){.path = call->a[1], .case_sensitive = jinja_is_true(call->a[0])};
    return jinja_generator(c, next_unique, call->self, u, out);
}

// groupby

static int push_group(struct jinja_context *c, struct jinja_list *groups, struct jinja_value key,
                      struct jinja_list **items) {
    struct jinja_value tuple = jinja_tuple(c, 2), list = jinja_list(c, false);
    if (!tuple.kind || !list.kind)
        return c->e.code;
    tuple.as.l->group = true;
    tuple.as.l->items[0] = key;
    tuple.as.l->items[1] = list;
    *items = list.as.l;
    return jinja_push(c, groups, tuple);
}

static int filter_groupby(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    struct jinja_sort how = {
        .path = call->a[0], .otherwise = call->a[1], .case_sensitive = jinja_is_true(call->a[2])};
    struct jinja_value list, key, shown, last = {0};
    struct jinja_list *items = NULL;
    int rc = jinja_collect(c, call->self, &list);
    *out = rc ? list : jinja_list(c, false);
    if (!rc)
        rc = jinja_sort(c, list.as.l, &how);
    for (size_t i = 0; !rc && i < list.as.l->n; i++) {
        bool same = false;
        rc = jinja_sort_key(c, &how, list.as.l->items[i], &key);
        if (!rc && items)
            rc = jinja_equal(c, key, last, &same);
        if (!rc && !same) {
            rc = jinja_get_path(c, list.as.l->items[i], how.path, how.otherwise, &shown);
            rc = rc ? rc : push_group(c, out->as.l, shown, &items);
        }
        last = key;
        if (!rc)
            rc = jinja_push(c, items, list.as.l->items[i]);
    }
    return rc;
}

// batch and slice

struct batch {
    int64_t size;
    struct jinja_value fill;
};

static int next_batch(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    const struct batch *b = it->state;
    struct jinja_value item;
    *out = jinja_list(c, false);
    int rc = out->kind ? 0 : c->e.code, more = 0;
    while (!rc && (int64_t)out->as.l->n < b->size && (more = jinja_pull(c, it, false, &item)) > 0)
        rc = jinja_push(c, out->as.l, item);
    if (rc || more < 0)
        return rc ? rc : more;
    if (out->as.l->n == 0)
        return 0;
    while (!rc && jinja_given(b->fill) && (int64_t)out->as.l->n < b->size)
        rc = jinja_push(c, out->as.l, b->fill);
    return rc ? rc : 1;
}

static int filter_batch(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    struct batch *b = jinja_alloc(c, sizeof *b);
    int rc = b ? jinja_want_int(c, call->a[0], "the size of a batch", &b->size) : c->e.code;
    if (rc)
        return rc;
    if (b->size < 1)
        return jinja_fail(c, ERR_USAGE, "the size of a batch must be at least 1");
    b->fill = call->a[1];
    return jinja_generator(c, next_batch, call->self, b, out);
}

static int filter_slice(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    struct jinja_value all, slices = jinja_list(c, false);
    int64_t n = 0, at = 0;
    int rc = slices.kind ? jinja_collect(c, call->self, &all) : c->e.code;
    if (!rc)
        rc = jinja_want_int(c, call->a[0], "the number of slices", &n);
    if (!rc && n == 0)
        rc = jinja_fail(c, ERR_USAGE, "integer division or modulo by zero");
    for (int64_t i = 0; i < n && !rc; i++) {
        struct jinja_value one = jinja_list(c, false);
        int64_t total = (int64_t)all.as.l->n, size = total / n + (i < total % n);
        rc = one.kind ? jinja_charge(c, 1) : c->e.code;
        for (int64_t k = 0; k < size && !rc; k++)
            rc = jinja_push(c, one.as.l, all.as.l->items[at++]);
        if (!rc && jinja_given(call->a[1]) && i >= total % n)
            rc = jinja_push(c, one.as.l, call->a[1]);
        if (!rc)
            rc = jinja_push(c, slices.as.l, one);
    }
    if (rc)
        return rc;
    struct jinja_iter *it = jinja_alloc(c, sizeof *it);
    if (!it)
        return c->e.code;
    *it = (struct jinja_iter){.source = slices};
    *out = (struct jinja_value){.kind = JINJA_ITERATOR, .as.p = it};
    return 0;
}

// map, select, reject, selectattr, rejectattr

struct chosen {
    struct jinja_value path, otherwise, name; // name: of a filter or test; JINJA_ABSENT: none
    struct jinja_args args;
    const char *fault; // what is wrong with the arguments, told at the first item; NULL: nothing
    bool reject;
};

static int next_mapped(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    const struct chosen *m = it->state;
    struct jinja_value item;
    int rc = jinja_pull(c, it, true, &item);
    if (rc > 0 && m->fault)
        return jinja_fail(c, ERR_USAGE, "%s", m->fault);
    if (rc <= 0)
        return rc;
    rc = m->name.kind ? c->filter(c, m->name, item, &m->args, out)
                      : jinja_get_path(c, item, m->path, m->otherwise, out);
    return rc ? rc : 1;
}

static int filter_map(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    struct chosen *m = jinja_alloc(c, sizeof *m);
    if (!m)
        return c->e.code;
    m->args = *call->args;
    m->path = jinja_named(call->args, "attribute");
    if (m->args.n == 0 && m->path.kind) {
        m->otherwise = jinja_named(call->args, "default");
        if (call->args->n_named > 1 + (m->otherwise.kind != 0))
            m->fault = "map() takes attribute and default only";
        m->args = (struct jinja_args){0};
    } else if (m->args.n == 0) {
        m->fault = "map requires a filter argument";
    } else {
        m->name = *m->args.pos++;
        m->args.n--;
    }
    return jinja_generator(c, next_mapped, call->self, m, out);
}

static int next_chosen(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    const struct chosen *m = it->state;
    struct jinja_value v;
    int rc;
    while ((rc = jinja_pull(c, it, true, out)) > 0) {
        rc = m->fault ? jinja_fail(c, ERR_USAGE, "%s", m->fault)
                      : jinja_get_path(c, *out, m->path, jinja_none(), &v);
        if (!rc && m->name.kind)
            rc = c->test(c, m->name, v, &m->args, &v);
        if (rc || jinja_is_true(v) != m->reject)
            return rc ? rc : 1;
    }
    return rc;
}

static int filter_choose(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    struct chosen *m = jinja_alloc(c, sizeof *m);
    if (!m)
        return c->e.code;
    m->args = *call->args;
    m->reject = call->name[0] == 'r';
    if (strlen(call->name) > 6 && m->args.n == 0) {
        m->fault = "selectattr() and rejectattr() need the name of an attribute";
    } else if (strlen(call->name) > 6) {
        m->path = *m->args.pos++;
        m->args.n--;
    }
    if (m->args.n > 0) {
        m->name = *m->args.pos++;
        m->args.n--;
    }
    return jinja_generator(c, next_chosen, call->self, m, out);
}

const struct jinja_builtin jinja_filters_list[] = {
    {"length", filter_length, "", 0},
    {"count", filter_length, "", 0},
    {"list", filter_list, "", 0},
    {"first", filter_first, "", 0},
    {"last", filter_last, "", 0},
    {"join", filter_join, "d attribute", 0},
    {"reverse", filter_reverse, "", 0},
    {"items", filter_items, "", 0},
    {"dictsort", filter_dictsort, "case_sensitive by reverse", 0},
    {"sort", filter_sort, "reverse case_sensitive attribute", 0},
    {"min", filter_extreme, "case_sensitive attribute", 0},
    {"max", filter_extreme, "case_sensitive attribute", 0},
    {"sum", filter_sum, "attribute start", 0},
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"groupby", filter_groupby, "attribute default case_sensitive", 1},
    {"batch", filter_batch, "linecount fill_with", 1},
    {"slice", filter_slice, "slices fill_with", 1},
    {"map", filter_map, NULL, 0},
    {"select", filter_choose, NULL, 0},
    {"reject", filter_choose, NULL, 0},
    {"selectattr", filter_choose, NULL, 0},
    {"rejectattr", filter_choose, NULL, 0},
    {NULL, NULL, NULL, 0},
};
