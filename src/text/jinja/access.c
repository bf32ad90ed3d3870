// SPDX-License-Identifier: Apache-2.0
// Access to what values hold; see access.h.
#include "text/jinja/access.h"

#include <string.h>

#include "base/num.h"
#include "text/jinja/builtins.h"
#include "text/jinja/iterate.h"

static int bind_method(struct jinja_context *c, struct jinja_value self,
                       const struct jinja_builtin *row, struct jinja_value *out) {
    bool changes = self.kind == JINJA_LIST &&
                   (strcmp(row->name, "append") == 0 || strcmp(row->name, "pop") == 0);
    if (!row->fn || (changes && !c->may_change)) {
        *out = jinja_undefined(c, "the sandbox forbids a method that changes a list or dictionary");
        return out->kind ? 0 : c->e.code;
    }
    struct jinja_method *m = jinja_alloc(c, sizeof *m);
    if (!m)
        return c->e.code;
    *m = (struct jinja_method){.self = self, .what = row};
    *out = (struct jinja_value){.kind = JINJA_METHOD, .as.p = m};
    return 0;
}

static const struct jinja_builtin *methods_of(struct jinja_value v) {
    switch ((enum jinja_kind)v.kind) {
    case JINJA_STRING:
        return jinja_methods_string;
    case JINJA_LIST:
        return jinja_methods_list;
    case JINJA_DICT:
        return jinja_methods_dict;
    default:
        return NULL;
    }
}

// The result of getattr() of Python; JINJA_ABSENT for none.
static int read_attribute(struct jinja_context *c, struct jinja_value v,
                          const struct jinja_string *name, struct jinja_value *out) {
    *out = (struct jinja_value){0};
    if (v.kind == JINJA_LOOP)
        return jinja_loop_attribute(c, v.as.p, name, out);
    if (v.kind == JINJA_NAMESPACE) {
        const struct jinja_entry *e = jinja_dict_text(v.as.m, name->bytes, name->n);
        *out = e ? e->value : *out;
        return 0;
    }
    const struct jinja_builtin *table = methods_of(v);
    const struct jinja_builtin *row = table ? jinja_find_row(table, name) : NULL;
    if (row)
        return bind_method(c, v, row, out);
    return 0;
}

static int item_of_dict(struct jinja_context *c, const struct jinja_dict *m, struct jinja_value key,
                        struct jinja_value *out) {
    uint64_t hash;
    if (key.kind == JINJA_LIST || key.kind == JINJA_DICT) // no key is one
        return 0;
    int rc = jinja_hash(c, key, &hash);
    const struct jinja_entry *e = rc ? NULL : jinja_dict_find(m, key, hash);
    if (e)
        *out = e->value;
    return rc;
}

static int item_of_string(struct jinja_context *c, const struct jinja_string *s, int64_t i,
                          struct jinja_value *out) {
    int64_t n = (int64_t)jinja_chars(s);
    i += i < 0 ? n : 0;
    if (i < 0 || i >= n)
        return 0;
    int rc = jinja_charge(c, s->n == s->chars ? 0 : s->n / 8);
    if (rc)
        return rc;
    size_t from = jinja_byte_of(s, (size_t)i);
    return jinja_substring(c, s, from, jinja_code_after(s, from), out);
}

// The result of v[key] of Python; JINJA_ABSENT where that raises.
static int read_item(struct jinja_context *c, struct jinja_value v, struct jinja_value key,
                     struct jinja_value *out) {
    *out = (struct jinja_value){0};
    if (v.kind == JINJA_DICT)
        return item_of_dict(c, v.as.m, key, out);
    if (key.kind != JINJA_INT && key.kind != JINJA_BOOL)
        return 0;
    int64_t i = jinja_as_int(key);
    if (v.kind == JINJA_STRING)
        return item_of_string(c, v.as.s, i, out);
    const struct jinja_range *r = v.kind == JINJA_RANGE ? v.as.p : NULL;
    bool list = v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
    int64_t n = r ? r->n : list ? (int64_t)v.as.l->n : 0;
    i += i < 0 ? n : 0;
    if (i >= 0 && i < n)
        *out = r ? jinja_int(r->start + i * r->step) : v.as.l->items[i];
    return 0;
}

static int or_missing(struct jinja_context *c, struct jinja_value v, struct jinja_value name,
                      struct jinja_value *out) {
    if (!out->kind)
        *out = jinja_missing(c, v, name);
    return out->kind ? 0 : c->e.code;
}

int jinja_get_attribute(struct jinja_context *c, struct jinja_value v, struct jinja_value name,
                        struct jinja_value *out) {
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    int rc = read_attribute(c, v, name.as.s, out);
    if (!rc && !out->kind)
        rc = read_item(c, v, name, out);
    return rc ? rc : or_missing(c, v, name, out);
}

int jinja_get_item(struct jinja_context *c, struct jinja_value v, struct jinja_value key,
                   struct jinja_value *out) {
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    int rc = read_item(c, v, key, out);
    if (!rc && !out->kind && key.kind == JINJA_STRING)
        rc = read_attribute(c, v, key.as.s, out);
    return rc ? rc : or_missing(c, v, key, out);
}

// Slices.

struct cut {
    int64_t start, step, n; // n items from start
};

static int slice_bound(struct jinja_context *c, struct jinja_value v, int64_t n, int64_t step,
                       int64_t *bound) {
    if (v.kind == JINJA_ABSENT || v.kind == JINJA_NONE)
        return 0;
    int rc = jinja_require_int(c, v, "an index of a slice", bound);
    if (*bound < 0)
        *bound = max_i64(*bound + n, step < 0 ? -1 : 0);
    else
        *bound = min_i64(*bound, step < 0 ? n - 1 : n);
    return rc;
}

static int find_cut(struct jinja_context *c, const struct jinja_value part[3], int64_t n,
                    struct cut *cut) {
    cut->step = 1;
    int rc = 0;
    if (part[2].kind != JINJA_ABSENT && part[2].kind != JINJA_NONE)
        rc = jinja_require_int(c, part[2], "the step of a slice", &cut->step);
    if (!rc && cut->step == 0)
        rc = jinja_fail(c, ERR_USAGE, "the step of a slice cannot be zero");
    if (rc)
        return rc;
    cut->step = max_i64(cut->step, -INT64_MAX);
    int64_t stop = cut->step < 0 ? -1 : n;
    cut->start = cut->step < 0 ? n - 1 : 0;
    rc = slice_bound(c, part[0], n, cut->step, &cut->start);
    if (!rc)
        rc = slice_bound(c, part[1], n, cut->step, &stop);
    int64_t span = cut->step < 0 ? cut->start - stop : stop - cut->start;
    cut->n = span <= 0 ? 0 : (span - 1) / (cut->step < 0 ? -cut->step : cut->step) + 1;
    return rc;
}

static int slice_string(struct jinja_context *c, const struct jinja_string *s, struct cut cut,
                        struct jinja_value *out) {
    if (cut.step == 1 || cut.n == 0) {
        size_t from = jinja_byte_of(s, (size_t)cut.start);
        size_t to = cut.n ? jinja_byte_of(s, (size_t)(cut.start + cut.n)) : from;
        return jinja_substring(c, s, from, to, out);
    }
    size_t mark = jinja_mark(c), at = jinja_byte_of(s, (size_t)cut.start);
    int rc = 0;
    for (int64_t i = 0; i < cut.n && !rc; i++) {
        rc = jinja_put_range(c, s, at, jinja_code_after(s, at));
        if (i + 1 == cut.n)
            break;
        for (int64_t k = 0; k < cut.step; k++)
            at = jinja_code_after(s, at);
        for (int64_t k = 0; k > cut.step; k--)
            at = jinja_code_before(s, at);
    }
    return rc ? rc : jinja_take(c, mark, out);
}

static int slice_list(struct jinja_context *c, struct jinja_value v, struct cut cut,
                      struct jinja_value *out) {
    *out = jinja_tuple(c, (size_t)cut.n);
    if (!out->kind)
        return c->e.code;
    out->kind = v.kind;
    out->as.l->untrusted = v.as.l->untrusted;
    for (int64_t i = 0; i < cut.n; i++)
        out->as.l->items[i] = v.as.l->items[cut.start + i * cut.step];
    return 0;
}

int jinja_get_slice(struct jinja_context *c, struct jinja_value v, const struct jinja_value part[3],
                    struct jinja_value *out) {
    struct cut cut;
    if (v.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, v);
    bool list = v.kind == JINJA_LIST || v.kind == JINJA_TUPLE;
    if (v.kind == JINJA_RANGE)
        return jinja_fail(c, ERR_USAGE, "a slice of a range is not supported here");
    if (!list && v.kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "'%s' object cannot be sliced", jinja_type(v));
    int64_t n = list ? (int64_t)v.as.l->n : (int64_t)jinja_chars(v.as.s);
    int rc = find_cut(c, part, n, &cut);
    if (!rc && v.kind == JINJA_STRING)
        rc = jinja_charge(c, v.as.s->n / (v.as.s->n == (size_t)n ? 64 : 8) +
                                 (cut.step == 1 ? 0 : (size_t)cut.n));
    if (rc)
        return rc;
    return list ? slice_list(c, v, cut, out) : slice_string(c, v.as.s, cut, out);
}

// Paths.

static int step_of(struct jinja_context *c, const char *s, size_t n, struct jinja_value *key) {
    bool number = n > 0, over;
    for (size_t i = 0; i < n; i++)
        number = number && s[i] >= '0' && s[i] <= '9';
    *key = jinja_int(0);
    if (!number || !jinja_parse_integer(s, n, &key->as.i, &over) || over)
        *key = jinja_string(c, s, n, false);
    return key->kind ? 0 : c->e.code;
}

static int take_step(struct jinja_context *c, struct jinja_value key, struct jinja_value otherwise,
                     struct jinja_value *v) {
    struct jinja_value found;
    int rc = jinja_get_item(c, *v, key, &found);
    if (rc)
        return rc;
    bool replace = found.kind == JINJA_UNDEFINED && jinja_given(otherwise);
    *v = replace ? otherwise : found;
    return 0;
}

int jinja_get_path(struct jinja_context *c, struct jinja_value v, struct jinja_value path,
                   struct jinja_value otherwise, struct jinja_value *out) {
    *out = v;
    if (path.kind == JINJA_NONE || path.kind == JINJA_ABSENT)
        return 0;
    if (path.kind != JINJA_STRING)
        return take_step(c, path, otherwise, out);
    const char *s = path.as.s->bytes, *end = s + path.as.s->n;
    for (;;) {
        const char *dot = memchr(s, '.', (size_t)(end - s));
        size_t n = (size_t)((dot ? dot : end) - s);
        struct jinja_value key;
        int rc = step_of(c, s, n, &key);
        if (!rc)
            rc = take_step(c, key, otherwise, out);
        if (rc || !dot)
            return rc;
        s = dot + 1;
    }
}
