// SPDX-License-Identifier: Apache-2.0
// Methods of lists, tuples and dictionaries. Rows without a function are those that change their
// object, which the sandbox of transformers forbids; append and pop are bound only where they are
// allowed.
#include <string.h>

#include "text/jinja/builtins/tables.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"

static int list_count(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    const struct jinja_list *l = call->self.as.l;
    int rc = 0;
    *out = jinja_int(0);
    for (size_t i = 0; i < l->n && !rc; i++) {
        bool same = false;
        rc = jinja_equal(c, l->items[i], call->a[0], &same);
        out->as.i += same;
    }
    return rc;
}

static int list_index(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    const struct jinja_list *l = call->self.as.l;
    for (size_t i = 0; i < l->n; i++) {
        bool same = false;
        int rc = jinja_equal(c, l->items[i], call->a[0], &same);
        if (rc)
            return rc;
        *out = jinja_int((int64_t)i);
        if (same)
            return 0;
    }
    return jinja_fail(c, ERR_USAGE, "the value is not in the list");
}

static int list_append(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    *out = jinja_none();
    return jinja_push(c, call->self.as.l, call->a[0]);
}

static int list_pop(struct jinja_context *c, const struct jinja_call *call,
                    struct jinja_value *out) {
    struct jinja_list *l = call->self.as.l;
    int64_t at = -1;
    int rc = call->a[0].kind ? jinja_want_int(c, call->a[0], "the index of pop()", &at) : 0;
    if (rc)
        return rc;
    if (at < 0)
        at += (int64_t)l->n;
    if (at < 0 || at >= (int64_t)l->n)
        return jinja_fail(c, ERR_USAGE, "pop index out of range");
    rc = jinja_charge(c, l->n);
    *out = l->items[at];
    l->n--;
    memmove(l->items + at, l->items + at + 1, (l->n - (size_t)at) * sizeof *l->items);
    return rc;
}

static int copy(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    *out = jinja_copy(c, call->self);
    return out->kind ? 0 : c->e.code;
}

static int dict_get(struct jinja_context *c, const struct jinja_call *call,
                    struct jinja_value *out) {
    uint64_t hash;
    int rc = jinja_hash(c, call->a[0], &hash);
    const struct jinja_entry *e = rc ? NULL : jinja_dict_find(call->self.as.m, call->a[0], hash);
    *out = e ? e->value : call->a[1].kind ? call->a[1] : jinja_none();
    return rc;
}

static int dict_view(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    struct jinja_view *view = jinja_alloc(c, sizeof *view);
    if (!view)
        return c->e.code;
    view->of = call->self.as.m;
    view->what = call->name[0] == 'k' ? VIEW_KEYS : call->name[0] == 'v' ? VIEW_VALUES : VIEW_ITEMS;
    *out = (struct jinja_value){.kind = JINJA_VIEW, .as.p = view};
    return 0;
}

const struct jinja_builtin jinja_methods_list[] = {
    {"index", list_index, "value", 1},
    {"count", list_count, "value", 1},
    {"copy", copy, "", 0},
    {"append", list_append, "item", 1},
    {"clear", NULL, NULL, 0},
    {"pop", list_pop, "index", 0},
    {"reverse", NULL, NULL, 0},
    {"insert", NULL, NULL, 0},
    {"sort", NULL, NULL, 0},
    {"extend", NULL, NULL, 0},
    {"remove", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};

const struct jinja_builtin jinja_methods_tuple[] = {
    {"index", list_index, "value", 1},
    {"count", list_count, "value", 1},
    {NULL, NULL, NULL, 0},
};

const struct jinja_builtin jinja_methods_dict[] = {
    {"get", dict_get, "key default", 1},
    {"items", dict_view, "", 0},
    {"keys", dict_view, "", 0},
    {"values", dict_view, "", 0},
    {"copy", copy, "", 0},
    {"clear", NULL, NULL, 0},
    {"pop", NULL, NULL, 0},
    {"popitem", NULL, NULL, 0},
    {"setdefault", NULL, NULL, 0},
    {"update", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};
