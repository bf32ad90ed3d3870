// SPDX-License-Identifier: Apache-2.0
// The filters: those over text, over sequences, and over single values. What is a generator in
// Python is computed at once here, and can be gone over once.
#include <math.h>
#include <string.h>

#include "text/jinja/access.h"
#include "text/jinja/eval.h"
#include "text/jinja/iterate.h"
#include "text/jinja/repr.h"
#include "text/jinja/strings.h"

// The text that a filter works on; what is no string is written as one.
static int read_text(struct jinja_context *c, struct jinja_value v, const struct jinja_string **s) {
    struct jinja_value text;
    int rc = jinja_to_string(c, v, &text);
    *s = rc ? NULL : text.as.s;
    return rc;
}

// A string that must be one.
static int require_text(struct jinja_context *c, const struct jinja_call *call,
                        const struct jinja_string **s) {
    if (call->self.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, call->self);
    if (call->self.kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "the filter %s takes a string, not '%s'", call->name,
                          jinja_type(call->self));
    *s = call->self.as.s;
    return 0;
}

// Gives a string that is marked safe or not.
static int mark_safe(struct jinja_context *c, const struct jinja_string *s, bool markup,
                     struct jinja_value *out) {
    if (s->markup != markup) {
        struct jinja_string *copy = jinja_alloc(c, sizeof *copy);
        if (!copy)
            return c->e.code;
        *copy = *s;
        copy->markup = markup;
        s = copy;
    }
    *out = (struct jinja_value){.kind = JINJA_STRING, .as.s = s};
    return 0;
}

static int filter_case(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    enum jinja_case how = call->name[0] == 'u'   ? CASE_UPPER
                          : call->name[0] == 'l' ? CASE_LOWER
                                                 : CASE_CAPITAL;
    int rc = read_text(c, call->self, &s);
    if (!rc)
        rc = jinja_change_case(c, s, how, out);
    return rc || !s->markup ? rc : mark_safe(c, out->as.s, true, out);
}

static int filter_trim(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    const struct jinja_string *s, *chars = NULL;
    int rc = read_text(c, call->self, &s);
    if (!rc && jinja_given(call->a[0])) {
        if (call->a[0].kind != JINJA_STRING)
            return jinja_fail(c, ERR_USAGE, "strip arg must be None or str");
        chars = call->a[0].as.s;
    }
    if (!rc)
        rc = jinja_strip(c, s, chars, 3, out);
    return rc || !s->markup ? rc : mark_safe(c, out->as.s, true, out);
}

static int filter_replace(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    const struct jinja_string *s, *old, *new;
    int64_t max = -1;
    int rc = read_text(c, call->self, &s);
    if (!rc)
        rc = read_text(c, call->a[0], &old);
    if (!rc)
        rc = read_text(c, call->a[1], &new);
    if (!rc && jinja_given(call->a[2]))
        rc = jinja_require_int(c, call->a[2], "the count of replace", &max);
    return rc ? rc : jinja_replace(c, s, old, new, max, out);
}

static int filter_string(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    return jinja_to_string(c, call->self, out);
}

static int filter_safe(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    int rc = read_text(c, call->self, &s);
    return rc ? rc : mark_safe(c, s, true, out);
}

static int filter_escape(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    int rc = read_text(c, call->self, &s);
    if (rc)
        return rc;
    size_t start = jinja_mark(c);
    rc = s->markup ? jinja_put_string(c, s) : jinja_put_escaped(c, s);
    if (!rc)
        rc = jinja_take(c, start, out);
    return rc ? rc : mark_safe(c, out->as.s, true, out);
}

// A number of blanks becomes these; a string stays.
static int read_indent(struct jinja_context *c, const char *what, struct jinja_value *v) {
    static const struct jinja_string space = {.bytes = " ", .n = 1, .trusted = true};
    int64_t width;
    size_t start = jinja_mark(c);
    if (v->kind == JINJA_STRING)
        return 0;
    int rc = jinja_require_int(c, *v, what, &width);
    if (!rc)
        rc = jinja_put_times(c, &space, width);
    return rc ? rc : jinja_take(c, start, v);
}

static int put_indented(struct jinja_context *c, const struct jinja_string *s,
                        const struct jinja_string *indent, bool first, bool blank) {
    size_t at = 0, from = 0, end;
    int rc = first ? jinja_put_string(c, indent) : 0;
    for (bool again = false; !rc && jinja_next_line(s, &at, &end); again = true) {
        if (again)
            rc = jinja_put(c, "\n", 1, jinja_trusted_at(s, from - 1));
        if (!rc && again && (blank || end > from))
            rc = jinja_put_string(c, indent);
        if (!rc)
            rc = jinja_put_range(c, s, from, end);
        from = at;
    }
    // A newline at the end begins one more, empty line.
    size_t last = s->n > 0 ? jinja_code_before(s, s->n) : 0;
    at = last;
    if (rc || !jinja_next_line(s, &at, &end) || end != last)
        return rc;
    rc = jinja_put(c, "\n", 1, jinja_trusted_at(s, last));
    return !rc && blank ? jinja_put_string(c, indent) : rc;
}

static int filter_indent(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    struct jinja_value indent = call->a[0].kind ? call->a[0] : jinja_int(4);
    int rc = require_text(c, call, &s);
    size_t start = jinja_mark(c);
    if (!rc)
        rc = read_indent(c, "the width of indent", &indent);
    if (!rc)
        rc = put_indented(c, s, indent.as.s, jinja_is_true(call->a[1]), jinja_is_true(call->a[2]));
    return rc ? rc : jinja_take(c, start, out);
}

// Separators of tojson: a pair of strings.
static int read_separators(struct jinja_context *c, struct jinja_value v, struct jinja_json *how) {
    struct jinja_value list;
    int rc = jinja_collect(c, v, &list);
    if (rc)
        return rc;
    const struct jinja_list *l = list.as.l;
    if (l->n != 2 || l->items[0].kind != JINJA_STRING || l->items[1].kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "the separators of tojson must be two strings");
    how->item = l->items[0].as.s;
    how->key = l->items[1].as.s;
    return 0;
}

static int filter_tojson(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    struct jinja_json how = {.ascii = jinja_is_true(call->a[0]), .sort = jinja_is_true(call->a[3])};
    struct jinja_value indent = call->a[1];
    int rc = 0;
    if (jinja_given(indent) && call->self.kind != JINJA_STRING) {
        rc = read_indent(c, "the indent of tojson", &indent);
        how.indent = rc ? NULL : indent.as.s;
    }
    if (!rc && jinja_given(call->a[2]))
        rc = read_separators(c, call->a[2], &how);
    size_t start = jinja_mark(c);
    if (!rc)
        rc = jinja_put_json(c, call->self, &how);
    return rc ? rc : jinja_take(c, start, out);
}

// How items are sorted and distinguished.
struct sort_how {
    struct jinja_value path; // to the key inside of an item; absent or none: the item itself
    bool case_sensitive, reverse;
};

// The key of an item; strings in lower case unless case matters.
static int read_sort_key(struct jinja_context *c, const struct sort_how *how,
                         struct jinja_value item, struct jinja_value *key) {
    int rc = jinja_get_path(c, item, how->path, jinja_none(), key);
    if (rc || how->case_sensitive || key->kind != JINJA_STRING)
        return rc;
    return jinja_change_case(c, key->as.s, CASE_LOWER, key);
}

static int sort_list(struct jinja_context *c, struct jinja_list *l, const struct sort_how *how) {
    struct jinja_keyed *a = jinja_array(c, l->n, 2 * sizeof *a);
    int rc = a ? 0 : c->e.code;
    for (size_t i = 0; i < l->n && !rc; i++) {
        a[i].item = l->items[i];
        rc = read_sort_key(c, how, l->items[i], &a[i].key);
    }
    if (!rc)
        rc = jinja_sort(c, a, a + l->n, l->n, how->reverse);
    for (size_t i = 0; i < l->n && !rc; i++)
        l->items[i] = a[i].item;
    return rc;
}

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

// Python's sorted() takes truth values and integers for reverse.
static int read_reverse(struct jinja_context *c, struct jinja_value v, bool *reverse) {
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
        return jinja_fail(c, ERR_USAGE, "dictsort takes a mapping, not '%s'",
                          jinja_type(call->self));
    struct jinja_view view = {.what = VIEW_ITEMS, .of = call->self.as.m};
    struct jinja_value items = {.kind = JINJA_VIEW, .as.p = &view};
    int rc = jinja_collect(c, items, out);
    struct sort_how how = {.path = jinja_int(by_value),
                           .case_sensitive = jinja_is_true(call->a[0])};
    if (!rc)
        rc = read_reverse(c, call->a[2], &how.reverse);
    return rc ? rc : sort_list(c, out->as.l, &how);
}

static int filter_sort(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    struct sort_how how = {.path = call->a[2], .case_sensitive = jinja_is_true(call->a[1])};
    if (how.path.kind == JINJA_STRING && memchr(how.path.as.s->bytes, ',', how.path.as.s->n))
        return jinja_fail(c, ERR_USAGE, "sort by several attributes is not supported here");
    int rc = jinja_collect(c, call->self, out);
    if (!rc)
        rc = read_reverse(c, call->a[0], &how.reverse);
    return rc ? rc : sort_list(c, out->as.l, &how);
}

static int filter_reverse(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    static const struct jinja_value back[3] = {{0}, {0}, {.kind = JINJA_INT, .as.i = -1}};
    struct jinja_value list;
    if (call->self.kind == JINJA_STRING)
        return jinja_get_slice(c, call->self, back, out);
    int rc = jinja_collect(c, call->self, &list);
    if (!rc)
        rc = jinja_get_slice(c, list, back, &list);
    return rc ? rc : jinja_iterator(c, list, out);
}

static int filter_items(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    struct jinja_view view = {.what = VIEW_ITEMS};
    struct jinja_value items = {.kind = JINJA_VIEW, .as.p = &view}, list = jinja_list(c, false);
    int rc = list.kind ? 0 : c->e.code;
    if (!rc && call->self.kind == JINJA_DICT) {
        view.of = call->self.as.m;
        rc = jinja_collect(c, items, &list);
    } else if (!rc && call->self.kind != JINJA_UNDEFINED) {
        rc = jinja_fail(c, ERR_USAGE, "Can only get item pairs from a mapping.");
    }
    return rc ? rc : jinja_iterator(c, list, out);
}

static int filter_unique(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    struct sort_how how = {.path = call->a[1], .case_sensitive = jinja_is_true(call->a[0])};
    struct jinja_value all, list = jinja_list(c, false), key;
    struct jinja_dict seen = {0};
    int rc = list.kind ? jinja_collect(c, call->self, &all) : c->e.code;
    for (size_t i = 0; !rc && i < all.as.l->n; i++) {
        size_t n = seen.n;
        rc = read_sort_key(c, &how, all.as.l->items[i], &key);
        if (!rc)
            rc = jinja_dict_set(c, &seen, key, jinja_none());
        if (!rc && seen.n > n)
            rc = jinja_push(c, list.as.l, all.as.l->items[i]);
    }
    return rc ? rc : jinja_iterator(c, list, out);
}

// Applies the filter or test of a name to one of many values.
static int apply_named(struct jinja_context *c, bool test, struct jinja_value name,
                       struct jinja_value v, const struct jinja_args *args,
                       struct jinja_value *out) {
    const char *what = test ? "test" : "filter";
    if (name.kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "a %s is named by a string, not '%s'", what,
                          jinja_type(name));
    const struct jinja_builtin *row = jinja_find_row(test ? jinja_tests : jinja_filters, name.as.s);
    if (!row)
        return jinja_fail_unsupported(c, what, name.as.s);
    int rc = jinja_enter(c);
    if (rc)
        return rc;
    rc = jinja_invoke(c, row, v, args, out);
    jinja_leave(c);
    return rc;
}

// The argument of that name; JINJA_ABSENT when not given.
static struct jinja_value named_argument(const struct jinja_args *args, const char *name) {
    for (int i = 0; i < args->n_named; i++)
        if (jinja_is_text(args->named[i].key, name))
            return args->named[i].value;
    return (struct jinja_value){0};
}

// The items of what map and its like are applied to: of what is false, none.
static int collect_lenient(struct jinja_context *c, struct jinja_value v,
                           struct jinja_value *list) {
    if (jinja_is_true(v))
        return jinja_collect(c, v, list);
    *list = jinja_list(c, false);
    return list->kind ? 0 : c->e.code;
}

static int filter_map(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    struct jinja_args args = *call->args;
    struct jinja_value path = named_argument(&args, "attribute"), name = {0}, all;
    struct jinja_value otherwise = named_argument(&args, "default"), list = jinja_list(c, false);
    const char *fault = NULL;
    if (args.n > 0) {
        name = *args.pos++;
        args.n--;
    } else if (!path.kind) {
        fault = "map requires a filter argument";
    } else if (args.n_named > 1 + (otherwise.kind != 0)) {
        fault = "map() takes attribute and default only";
    }
    int rc = list.kind ? collect_lenient(c, call->self, &all) : c->e.code;
    for (size_t i = 0; !rc && i < all.as.l->n; i++) {
        struct jinja_value v = all.as.l->items[i];
        if (fault)
            return jinja_fail(c, ERR_USAGE, "%s", fault);
        rc = name.kind ? apply_named(c, false, name, v, &args, &v)
                       : jinja_get_path(c, v, path, otherwise, &v);
        if (!rc)
            rc = jinja_push(c, list.as.l, v);
    }
    return rc ? rc : jinja_iterator(c, list, out);
}

// select, reject, selectattr, rejectattr
static int filter_choose(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    struct jinja_args args = *call->args;
    struct jinja_value path = {0}, name = {0}, all, list = jinja_list(c, false);
    bool reject = call->name[0] == 'r', attribute = strlen(call->name) > 6;
    bool fault = attribute && args.n == 0;
    if (attribute && !fault) {
        path = *args.pos++;
        args.n--;
    }
    if (args.n > 0) {
        name = *args.pos++;
        args.n--;
    }
    int rc = list.kind ? collect_lenient(c, call->self, &all) : c->e.code;
    for (size_t i = 0; !rc && i < all.as.l->n; i++) {
        struct jinja_value item = all.as.l->items[i], v;
        if (fault)
            return jinja_fail(c, ERR_USAGE, "%s() needs the name of an attribute", call->name);
        rc = jinja_get_path(c, item, path, jinja_none(), &v);
        if (!rc && name.kind)
            rc = apply_named(c, true, name, v, &args, &v);
        if (!rc && jinja_is_true(v) != reject)
            rc = jinja_push(c, list.as.l, item);
    }
    return rc ? rc : jinja_iterator(c, list, out);
}

static int filter_default(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    bool replace = call->self.kind == JINJA_UNDEFINED ||
                   (jinja_is_true(call->a[1]) && !jinja_is_true(call->self));
    *out = !replace ? call->self : call->a[0].kind ? call->a[0] : jinja_text(c, "");
    return out->kind ? 0 : c->e.code;
}

// int() of text: an integer, else a float cut, else *out stays.
static int int_of_text(struct jinja_context *c, const struct jinja_string *s,
                       struct jinja_value *out) {
    struct jinja_value i = jinja_int(0);
    double d;
    bool over;
    if (jinja_charge(c, s->n / 4))
        return c->e.code;
    if (jinja_parse_integer(s->bytes, s->n, &i.as.i, &over)) {
        *out = i;
        return over ? jinja_fail_big(c) : 0;
    }
    return jinja_parse_float(s->bytes, s->n, &d) && isfinite(d) ? jinja_cut(c, d, out) : 0;
}

static int filter_int(struct jinja_context *c, const struct jinja_call *call,
                      struct jinja_value *out) {
    struct jinja_value v = call->self;
    int rc = 0;
    *out = call->a[0].kind ? call->a[0] : jinja_int(0);
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    if (call->a[1].kind)
        return jinja_fail(c, ERR_USAGE, "int of another base than ten is not supported here");
    if (v.kind == JINJA_STRING)
        rc = int_of_text(c, v.as.s, out);
    else if (v.kind == JINJA_FLOAT)
        rc = isfinite(v.as.d) ? jinja_cut(c, v.as.d, out) : 0;
    else if (v.kind == JINJA_BIG || v.kind == JINJA_INT)
        *out = v;
    else if (v.kind == JINJA_BOOL)
        *out = jinja_int(v.as.b);
    out->untrusted |= v.kind == JINJA_STRING ? !jinja_all_trusted(v.as.s) : v.untrusted;
    return rc;
}

const struct jinja_builtin jinja_filters[] = {
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"upper", filter_case, "", 0},
    {"lower", filter_case, "", 0},
    {"capitalize", filter_case, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"string", filter_string, "", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"safe", filter_safe, "", 0},
    {"escape", filter_escape, "", 0},
    {"e", filter_escape, "", 0},
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
    {"unique", filter_unique, "case_sensitive attribute", 0},
    {"map", filter_map, NULL, 0},
    {"select", filter_choose, NULL, 0},
    {"reject", filter_choose, NULL, 0},
    {"selectattr", filter_choose, NULL, 0},
    {"rejectattr", filter_choose, NULL, 0},
    {"default", filter_default, "default_value boolean", 0},
    {"d", filter_default, "default_value boolean", 0},
    {"int", filter_int, "default base", 0},
    {NULL, NULL, NULL, 0},
};
