// SPDX-License-Identifier: Apache-2.0
// Methods of strings, lists and dictionaries. Rows without a function are those that change
// their object, which the sandbox of transformers forbids; append and pop are bound only where they
// are allowed.
#include <string.h>

#include "base/num.h"
#include "text/jinja/builtins.h"
#include "text/jinja/iterate.h"
#include "text/jinja/strings.h"
#include "text/tokenizer/norm.h"

static const struct jinja_string space = {.bytes = " ", .n = 1, .chars = 1, .trusted = true};

static int require_string(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value v, const struct jinja_string **s) {
    *s = v.kind == JINJA_STRING ? v.as.s : &space;
    if (v.kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "%s() argument must be str, not %s", call->name,
                          jinja_type(v));
    return 0;
}

static int give_string(struct jinja_context *c, const struct jinja_string *s,
                       struct jinja_value *out) {
    (void)c;
    *out = (struct jinja_value){.kind = JINJA_STRING, .as.s = s};
    return 0;
}

static int call_case(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    enum jinja_case how = call->name[0] == 'u'   ? CASE_UPPER
                          : call->name[0] == 'l' ? CASE_LOWER
                          : call->name[0] == 't' ? CASE_TITLE
                                                 : CASE_CAPITAL;
    return jinja_change_case(c, call->self.as.s, how, out);
}

static int call_strip(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    const struct jinja_string *chars = NULL;
    int sides = call->name[0] == 'l' ? 1 : call->name[0] == 'r' ? 2 : 3;
    int rc = jinja_given(call->a[0]) ? require_string(c, call, call->a[0], &chars) : 0;
    return rc ? rc : jinja_strip(c, call->self.as.s, chars, sides, out);
}

static int call_split(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    const struct jinja_string *separator = NULL;
    int64_t max = -1;
    int rc = jinja_given(call->a[0]) ? require_string(c, call, call->a[0], &separator) : 0;
    if (!rc && call->a[1].kind)
        rc = jinja_require_int(c, call->a[1], "maxsplit", &max);
    return rc ? rc : jinja_split(c, call->self.as.s, separator, max, call->name[0] == 'r', out);
}

static int call_splitlines(struct jinja_context *c, const struct jinja_call *call,
                           struct jinja_value *out) {
    return jinja_split_lines(c, call->self.as.s, jinja_is_true(call->a[0]), out);
}

static int call_replace(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    const struct jinja_string *old, *new;
    int64_t max = -1;
    int rc = require_string(c, call, call->a[0], &old);
    if (!rc)
        rc = require_string(c, call, call->a[1], &new);
    if (!rc && call->a[2].kind)
        rc = jinja_require_int(c, call->a[2], "the count of replace()", &max);
    return rc ? rc : jinja_replace(c, call->self.as.s, old, new, max, out);
}

static int call_join(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    struct jinja_iter it;
    struct jinja_value item;
    size_t mark = jinja_mark(c);
    int rc = jinja_iterate(c, call->a[0], &it), more = 0;
    for (bool first = true; !rc && (more = jinja_next(c, &it, &item)) > 0; first = false) {
        if (item.kind != JINJA_STRING)
            return jinja_fail(c, ERR_USAGE, "join() takes strings, %s found", jinja_type(item));
        rc = first ? 0 : jinja_put_string(c, call->self.as.s);
        if (!rc)
            rc = jinja_put_string(c, item.as.s);
    }
    rc = more < 0 ? more : rc;
    return rc ? rc : jinja_take(c, mark, out);
}

// The part that two indices after other arguments select, as bytes.
static int select_part(struct jinja_context *c, const struct jinja_call *call, size_t *from,
                       size_t *to, bool *empty) {
    const struct jinja_string *s = call->self.as.s;
    *from = 0;
    *to = s->n;
    *empty = false;
    if (!jinja_given(call->a[1]) && !jinja_given(call->a[2]))
        return 0;
    int64_t n = (int64_t)jinja_chars(s), low = 0, high = n;
    int rc = jinja_given(call->a[1]) ? jinja_require_int(c, call->a[1], "start", &low) : 0;
    if (!rc && jinja_given(call->a[2]))
        rc = jinja_require_int(c, call->a[2], "end", &high);
    low = low < 0 ? max_i64(low + n, 0) : low;
    high = high < 0 ? max_i64(high + n, 0) : min_i64(high, n);
    *empty = low > high; // nothing is found there, not even nothing
    *from = jinja_byte_of(s, (size_t)min_i64(low, n));
    *to = jinja_byte_of(s, (size_t)high);
    return rc ? rc : jinja_charge(c, s->n / 64);
}

static int call_find(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *part;
    size_t from, to, found = SIZE_MAX;
    bool empty, last = call->name[0] == 'r';
    int rc = require_string(c, call, call->a[0], &part);
    if (!rc)
        rc = select_part(c, call, &from, &to, &empty);
    if (rc)
        return rc;
    if (!empty && last)
        rc = jinja_find_last(c, s, from, to, part, &found);
    else if (!empty)
        rc = jinja_find(c, s, from, to, part, &found);
    if (rc)
        return rc;
    if (found == SIZE_MAX && strstr(call->name, "index"))
        return jinja_fail(c, ERR_USAGE, "substring not found");
    const struct jinja_string before = {
        .bytes = s->bytes, .n = found == SIZE_MAX ? 0 : found, .chars = SIZE_MAX};
    *out = jinja_int(found == SIZE_MAX ? -1 : (int64_t)jinja_chars(&before));
    return jinja_charge(c, before.n / 64);
}

static int call_count(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *part;
    size_t from, to, found;
    bool empty;
    int rc = require_string(c, call, call->a[0], &part);
    if (!rc)
        rc = select_part(c, call, &from, &to, &empty);
    if (rc)
        return rc;
    *out = jinja_int(0);
    if (part->n == 0 && !empty) {
        const struct jinja_string middle = {
            .bytes = s->bytes + from, .n = to - from, .chars = SIZE_MAX};
        *out = jinja_int((int64_t)jinja_chars(&middle) + 1);
        return jinja_charge(c, middle.n / 64);
    }
    while (!empty && !(rc = jinja_find(c, s, from, to, part, &found)) && found != SIZE_MAX) {
        out->as.i++;
        from = found + part->n;
    }
    return rc;
}

static int has_affix(struct jinja_context *c, const struct jinja_call *call, struct jinja_value v,
                     bool *yes) {
    const struct jinja_string *s = call->self.as.s, *part;
    size_t from, to;
    bool empty;
    int rc = require_string(c, call, v, &part);
    if (!rc)
        rc = select_part(c, call, &from, &to, &empty);
    if (rc || empty || part->n > to - from)
        return rc;
    size_t at = call->name[0] == 's' ? from : to - part->n;
    *yes = *yes || memcmp(s->bytes + at, part->bytes, part->n) == 0;
    return jinja_charge(c, part->n / 64);
}

static int call_startswith(struct jinja_context *c, const struct jinja_call *call,
                           struct jinja_value *out) {
    bool yes = false;
    int rc = 0;
    if (call->a[0].kind != JINJA_TUPLE)
        rc = has_affix(c, call, call->a[0], &yes);
    else
        for (size_t i = 0; i < call->a[0].as.l->n && !rc && !yes; i++)
            rc = has_affix(c, call, call->a[0].as.l->items[i], &yes);
    *out = jinja_bool(yes);
    return rc;
}

// isalpha and its like: every code point is of one class, and there is one at least.
static int call_isalpha(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    static const struct {
        const char *name;
        unsigned what;
    } rows[] = {{"isalpha", NORM_LETTER},   {"isalnum", NORM_LETTER | NORM_NUMBER},
                {"isdigit", NORM_DECIMAL},  {"isdecimal", NORM_DECIMAL},
                {"isnumeric", NORM_NUMBER}, {"isspace", 0}};
    const struct jinja_string *s = call->self.as.s;
    size_t row = 0;
    while (strcmp(rows[row].name, call->name) != 0)
        row++;
    bool yes = s->n > 0;
    for (size_t at = 0, len; at < s->n && yes; at += len) {
        uint32_t code = jinja_code_at(s, at, &len);
        yes = rows[row].what ? (norm_class(code) & rows[row].what) != 0 : jinja_code_is_space(code);
    }
    *out = jinja_bool(yes);
    return jinja_charge(c, s->n / 4);
}

static int call_removeaffix(struct jinja_context *c, const struct jinja_call *call,
                            struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *part;
    bool prefix = strcmp(call->name, "removeprefix") == 0;
    int rc = require_string(c, call, call->a[0], &part);
    if (rc)
        return rc;
    rc = jinja_charge(c, part->n / 64);
    if (rc)
        return rc;
    if (part->n > s->n || memcmp(s->bytes + (prefix ? 0 : s->n - part->n), part->bytes, part->n))
        return give_string(c, s, out);
    return jinja_substring(c, s, prefix ? part->n : 0, prefix ? s->n : s->n - part->n, out);
}

const struct jinja_builtin jinja_methods_string[] = {
    {"strip", call_strip, "chars", 0},
    {"lstrip", call_strip, "chars", 0},
    {"rstrip", call_strip, "chars", 0},
    {"split", call_split, "sep maxsplit", 0},
    {"rsplit", call_split, "sep maxsplit", 0},
    {"splitlines", call_splitlines, "keepends", 0},
    {"startswith", call_startswith, "prefix start end", 1},
    {"endswith", call_startswith, "suffix start end", 1},
    {"replace", call_replace, "old new count", 2},
    {"upper", call_case, "", 0},
    {"lower", call_case, "", 0},
    {"title", call_case, "", 0},
    {"capitalize", call_case, "", 0},
    {"join", call_join, "iterable", 1},
    {"find", call_find, "sub start end", 1},
    {"rfind", call_find, "sub start end", 1},
    {"index", call_find, "sub start end", 1},
    {"rindex", call_find, "sub start end", 1},
    {"count", call_count, "sub start end", 1},
    {"isalpha", call_isalpha, "", 0},
    {"isalnum", call_isalpha, "", 0},
    {"isdigit", call_isalpha, "", 0},
    {"isdecimal", call_isalpha, "", 0},
    {"isnumeric", call_isalpha, "", 0},
    {"isspace", call_isalpha, "", 0},
    {"removeprefix", call_removeaffix, "prefix", 1},
    {"removesuffix", call_removeaffix, "suffix", 1},
    {NULL, NULL, NULL, 0},
};

static int list_append(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    *out = jinja_none();
    return jinja_push(c, call->self.as.l, call->a[0]);
}

static int list_pop(struct jinja_context *c, const struct jinja_call *call,
                    struct jinja_value *out) {
    struct jinja_list *l = call->self.as.l;
    int64_t at = -1;
    int rc = call->a[0].kind ? jinja_require_int(c, call->a[0], "the index of pop()", &at) : 0;
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

static int copy_container(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
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
    {"copy", copy_container, "", 0}, {"append", list_append, "item", 1},
    {"pop", list_pop, "index", 0},   {"clear", NULL, NULL, 0},
    {"extend", NULL, NULL, 0},       {"insert", NULL, NULL, 0},
    {"remove", NULL, NULL, 0},       {"reverse", NULL, NULL, 0},
    {"sort", NULL, NULL, 0},         {NULL, NULL, NULL, 0},
};

const struct jinja_builtin jinja_methods_dict[] = {
    {"get", dict_get, "key default", 1},
    {"items", dict_view, "", 0},
    {"keys", dict_view, "", 0},
    {"values", dict_view, "", 0},
    {"copy", copy_container, "", 0},
    {"clear", NULL, NULL, 0},
    {"pop", NULL, NULL, 0},
    {"popitem", NULL, NULL, 0},
    {"setdefault", NULL, NULL, 0},
    {"update", NULL, NULL, 0},
    {NULL, NULL, NULL, 0},
};
