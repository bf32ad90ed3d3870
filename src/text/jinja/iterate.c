// SPDX-License-Identifier: Apache-2.0
// Iteration, length and membership, and the loop variable; see iterate.h.
#include "text/jinja/iterate.h"

#include <string.h>

#include "text/jinja/strings.h"

bool jinja_is_iterable(struct jinja_value v) {
    switch ((enum jinja_kind)v.kind) {
    case JINJA_UNDEFINED:
    case JINJA_STRING:
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
    case JINJA_RANGE:
    case JINJA_VIEW:
    case JINJA_ITERATOR:
        return true;
    default:
        return false;
    }
}

int jinja_iterate(struct jinja_context *c, struct jinja_value v, struct jinja_iter *it) {
    *it = (struct jinja_iter){.source = v};
    if (!jinja_is_iterable(v))
        return jinja_fail(c, ERR_USAGE, "'%s' object is not iterable", jinja_type(v));
    return 0;
}

static int next_char(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    const struct jinja_string *s = it->source.as.s;
    if (it->at >= s->n)
        return 0;
    size_t from = it->at;
    it->at = jinja_code_after(s, from);
    int rc = jinja_substring(c, s, from, it->at, out);
    return rc ? rc : 1;
}

static int next_of_view(struct jinja_context *c, const struct jinja_view *view, size_t i,
                        struct jinja_value *out) {
    if (i >= view->of->n)
        return 0;
    const struct jinja_entry *e = view->of->entries + i;
    *out = view->what == VIEW_KEYS ? e->key : e->value;
    if (view->what != VIEW_ITEMS)
        return 1;
    *out = jinja_tuple(c, 2);
    if (!out->kind)
        return c->e.code;
    out->as.l->items[0] = e->key;
    out->as.l->items[1] = e->value;
    out->as.l->untrusted = view->of->untrusted;
    return 1;
}

static int next_item(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    struct jinja_value v = it->source;
    if (v.kind == JINJA_STRING)
        return next_char(c, it, out);
    size_t i = it->at++;
    switch ((enum jinja_kind)v.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        if (i >= v.as.l->n)
            return 0;
        *out = v.as.l->items[i];
        return 1;
    case JINJA_DICT:
        if (i >= v.as.m->n)
            return 0;
        *out = v.as.m->entries[i].key;
        return 1;
    case JINJA_RANGE: {
        const struct jinja_range *r = v.as.p;
        if ((int64_t)i >= r->n)
            return 0;
        *out = jinja_int(r->start + (int64_t)i * r->step);
        return 1;
    }
    case JINJA_VIEW:
        return next_of_view(c, v.as.p, i, out);
    default:
        return 0; // undefined
    }
}

int jinja_next(struct jinja_context *c, struct jinja_iter *it, struct jinja_value *out) {
    int rc = jinja_charge(c, 1);
    if (rc)
        return rc;
    return next_item(c, it->source.kind == JINJA_ITERATOR ? it->source.as.p : it, out);
}

int jinja_iterator(struct jinja_context *c, struct jinja_value list, struct jinja_value *out) {
    struct jinja_iter *it = jinja_alloc(c, sizeof *it);
    if (!it)
        return c->e.code;
    *it = (struct jinja_iter){.source = list};
    *out = (struct jinja_value){.kind = JINJA_ITERATOR, .as.p = it};
    return 0;
}

int jinja_collect(struct jinja_context *c, struct jinja_value v, struct jinja_value *list) {
    struct jinja_iter it;
    struct jinja_value item;
    int rc = jinja_iterate(c, v, &it);
    if (rc)
        return rc;
    bool untrusted = (v.kind == JINJA_LIST || v.kind == JINJA_TUPLE) && v.as.l->untrusted;
    *list = jinja_list(c, untrusted);
    if (!list->kind)
        return c->e.code;
    while ((rc = jinja_next(c, &it, &item)) > 0)
        if ((rc = jinja_push(c, list->as.l, item)))
            break;
    return rc;
}

int jinja_length(struct jinja_context *c, struct jinja_value v, int64_t *n) {
    *n = 0;
    switch ((enum jinja_kind)v.kind) {
    case JINJA_UNDEFINED:
        return 0;
    case JINJA_STRING:
        *n = (int64_t)jinja_chars(v.as.s);
        return 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        *n = (int64_t)v.as.l->n;
        return 0;
    case JINJA_DICT:
        *n = (int64_t)v.as.m->n;
        return 0;
    case JINJA_RANGE:
        *n = ((struct jinja_range *)v.as.p)->n;
        return 0;
    case JINJA_VIEW:
        *n = (int64_t)((struct jinja_view *)v.as.p)->of->n;
        return 0;
    default:
        return jinja_fail(c, ERR_USAGE, "object of type '%s' has no len()", jinja_type(v));
    }
}

static int contains_key(struct jinja_context *c, const struct jinja_dict *m, struct jinja_value key,
                        bool *found) {
    uint64_t hash;
    int rc = jinja_hash(c, key, &hash);
    *found = !rc && jinja_dict_find(m, key, hash) != NULL;
    return rc;
}

int jinja_contains(struct jinja_context *c, struct jinja_value box, struct jinja_value item,
                   bool *found) {
    *found = false;
    if (box.kind == JINJA_STRING) {
        if (item.kind == JINJA_UNDEFINED)
            return jinja_fail_undefined(c, item);
        if (item.kind != JINJA_STRING)
            return jinja_fail(c, ERR_USAGE, "'in <string>' requires string as left operand, not %s",
                              jinja_type(item));
        size_t at;
        int rc = jinja_find(c, box.as.s, 0, box.as.s->n, item.as.s, &at);
        *found = at != SIZE_MAX;
        return rc;
    }
    const struct jinja_view *view = box.kind == JINJA_VIEW ? box.as.p : NULL;
    if (box.kind == JINJA_DICT || (view && view->what == VIEW_KEYS))
        return contains_key(c, view ? view->of : box.as.m, item, found);
    struct jinja_iter it;
    struct jinja_value each;
    int rc = jinja_iterate(c, box, &it);
    if (rc)
        return rc;
    while (!*found && (rc = jinja_next(c, &it, &each)) > 0)
        if ((rc = jinja_equal(c, each, item, found)))
            break;
    return rc < 0 ? rc : 0;
}

// The next item that takes part, from the source.
static int fetch_item(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value *out) {
    int rc;
    bool takes_part = true;
    if (loop->ended)
        return 0;
    while ((rc = jinja_next(c, &loop->it, out)) > 0) {
        int bad = loop->test ? loop->test(c, loop, *out, &takes_part) : 0;
        if (bad || takes_part)
            return bad ? bad : 1;
    }
    loop->ended = true;
    return rc;
}

static int peek_item(struct jinja_context *c, struct jinja_loop *loop) {
    struct jinja_value next;
    int rc = loop->after.kind ? 1 : fetch_item(c, loop, &next);
    if (rc > 0 && !loop->after.kind)
        loop->after = next;
    return rc;
}

int jinja_loop_next(struct jinja_context *c, struct jinja_loop *loop, struct jinja_value *out) {
    int rc = peek_item(c, loop);
    if (rc <= 0)
        return rc;
    *out = loop->after;
    loop->after = (struct jinja_value){0};
    loop->before = loop->now;
    loop->now = *out;
    loop->index0++;
    return 1;
}

// How many items there are; the rest is read for that where the source does not tell.
static int know_length(struct jinja_context *c, struct jinja_loop *loop) {
    if (loop->length >= 0)
        return 0;
    if (!loop->test && loop->it.source.kind != JINJA_ITERATOR)
        return jinja_length(c, loop->it.source, &loop->length);
    struct jinja_value rest = jinja_list(c, false), item;
    int rc = rest.kind ? 0 : c->e.code;
    while (!rc && (rc = fetch_item(c, loop, &item)) > 0)
        rc = jinja_push(c, rest.as.l, item);
    if (rc)
        return rc;
    loop->length = (int64_t)rest.as.l->n + loop->index0 + 1 + (loop->after.kind != 0);
    loop->it = (struct jinja_iter){.source = rest};
    loop->test = NULL;
    loop->ended = false;
    return 0;
}

int jinja_loop_attribute(struct jinja_context *c, struct jinja_loop *loop,
                         const struct jinja_string *name, struct jinja_value *out) {
    enum { INDEX, INDEX0, FIRST, LAST, LENGTH, REV, REV0, PREV, NEXT, N };
    static const char *const names[] = {
        [INDEX] = "index",    [INDEX0] = "index0", [FIRST] = "first",
        [LAST] = "last",      [LENGTH] = "length", [REV] = "revindex",
        [REV0] = "revindex0", [PREV] = "previtem", [NEXT] = "nextitem",
    };
    int which = 0, rc = 0;
    while (which < N &&
           (strlen(names[which]) != name->n || memcmp(names[which], name->bytes, name->n) != 0))
        which++;
    if (which == LENGTH || which == REV || which == REV0)
        rc = know_length(c, loop);
    else if (which == LAST || which == NEXT)
        rc = peek_item(c, loop);
    if (rc < 0)
        return rc;
    const struct jinja_value values[N + 1] = {
        [INDEX] = jinja_int(loop->index0 + 1),
        [INDEX0] = jinja_int(loop->index0),
        [FIRST] = jinja_bool(loop->index0 == 0),
        [LAST] = jinja_bool(loop->after.kind == 0),
        [LENGTH] = jinja_int(loop->length),
        [REV] = jinja_int(loop->length - loop->index0),
        [REV0] = jinja_int(loop->length - loop->index0 - 1),
        [PREV] = loop->before,
        [NEXT] = loop->after,
    };
    *out = values[which];
    if ((which == PREV || which == NEXT) && !out->kind)
        *out = jinja_undefined(c, which == PREV ? "there is no previous item"
                                                : "there is no next item");
    return c->e.code;
}
