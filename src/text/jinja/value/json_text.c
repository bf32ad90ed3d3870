// SPDX-License-Identifier: Apache-2.0
// json.dumps: the text that tojson gives in transformers; see text.h.
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/text.h"

struct writer {
    struct jinja_context *c;
    const struct jinja_json *how;
    int level;
};

static const struct jinja_string comma = {.bytes = ",", .n = 1, .trusted = true};
static const struct jinja_string comma_space = {.bytes = ", ", .n = 2, .trusted = true};
static const struct jinja_string colon_space = {.bytes = ": ", .n = 2, .trusted = true};

static int put_value(struct writer *w, struct jinja_value v);

static void escape_of(uint32_t code, bool ascii, char out[16]) {
    static const char letters[] = "\"\\\b\f\n\r\t", names[] = "\"\\bfnrt";
    const char *known = code && code < 0x80 ? strchr(letters, (int)code) : NULL;
    out[0] = 0;
    if (known)
        snprintf(out, 16, "\\%c", names[known - letters]);
    else if (code >= 0x10000 && ascii)
        snprintf(out, 16, "\\u%04x\\u%04x", 0xD7C0 + (code >> 10), 0xDC00 + (code & 0x3FF));
    else if (code < 0x20 || (code > 0x7E && ascii))
        snprintf(out, 16, "\\u%04x", (unsigned)code);
}

// Whether a byte needs no look at its code point.
static bool is_plain(unsigned char b, bool ascii) {
    return b >= 0x20 && b != '"' && b != '\\' && (b < 0x7F || !ascii);
}

static int put_text(struct writer *w, const struct jinja_string *s) {
    struct jinja_context *c = w->c;
    char escape[16];
    int rc = jinja_put(c, "\"", 1, jinja_trusted_at(s, 0));
    size_t plain = 0, at = 0;
    while (at < s->n && !rc) {
        if (is_plain((unsigned char)s->bytes[at], w->how->ascii)) {
            at++;
            continue;
        }
        uint32_t code = 0xFFFD;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        escape_of(code, w->how->ascii, escape);
        if (escape[0]) {
            rc = jinja_put_range(c, s, plain, at);
            if (!rc)
                rc = jinja_put(c, escape, strlen(escape), jinja_trusted_at(s, at));
            plain = at + (size_t)(len > 0 ? len : 1);
        }
        at += (size_t)(len > 0 ? len : 1);
    }
    if (!rc)
        rc = jinja_put_range(c, s, plain, s->n);
    return rc ? rc : jinja_put(c, "\"", 1, jinja_trusted_at(s, s->n ? s->n - 1 : 0));
}

// A separator in what a request brought counts as the request's.
static int put_separator(struct writer *w, const struct jinja_string *s, bool trusted) {
    return trusted ? jinja_put_string(w->c, s) : jinja_put(w->c, s->bytes, s->n, false);
}

static int put_break(struct writer *w, bool trusted) {
    if (!w->how->indent)
        return 0;
    int rc = jinja_put(w->c, "\n", 1, trusted);
    for (int i = 0; i < w->level && !rc; i++)
        rc = put_separator(w, w->how->indent, trusted);
    return rc;
}

static int put_item_separator(struct writer *w, bool trusted) {
    const struct jinja_string *usual = w->how->indent ? &comma : &comma_space;
    int rc = put_separator(w, w->how->item ? w->how->item : usual, trusted);
    return rc ? rc : put_break(w, trusted);
}

static int put_list(struct writer *w, const struct jinja_list *l) {
    bool trusted = !l->untrusted;
    if (l->n == 0)
        return jinja_put(w->c, "[]", 2, trusted);
    int rc = jinja_put(w->c, "[", 1, trusted);
    w->level++;
    if (!rc)
        rc = put_break(w, trusted);
    for (size_t i = 0; i < l->n && !rc; i++) {
        if (i > 0)
            rc = put_item_separator(w, trusted);
        if (!rc)
            rc = put_value(w, l->items[i]);
    }
    w->level--;
    if (!rc)
        rc = put_break(w, trusted);
    return rc ? rc : jinja_put(w->c, "]", 1, trusted);
}

static int put_key(struct writer *w, struct jinja_value key, bool trusted) {
    if (key.kind == JINJA_STRING)
        return put_text(w, key.as.s);
    if (!jinja_is_number(key) && key.kind != JINJA_NONE)
        return jinja_fail(w->c, ERR_USAGE, "keys must be str, int, float, bool or None, not %s",
                          jinja_type(key));
    int rc = jinja_put(w->c, "\"", 1, trusted);
    if (!rc)
        rc = put_value(w, key);
    return rc ? rc : jinja_put(w->c, "\"", 1, trusted);
}

// The members in the order of their keys: a merge sort of their places.
static int sort_members(struct jinja_context *c, const struct jinja_entry **a,
                        const struct jinja_entry **work, size_t n) {
    if (n < 2)
        return 0;
    size_t half = n / 2, i = 0, j = half;
    int rc = sort_members(c, a, work, half);
    if (!rc)
        rc = sort_members(c, a + half, work + half, n - half);
    for (size_t k = 0; k < n && !rc; k++) {
        int order = -1;
        if (i < half && j < n)
            rc = jinja_order(c, a[j]->key, a[i]->key, "<", &order);
        bool right = i == half || (j < n && order < 0);
        work[k] = right ? a[j++] : a[i++];
    }
    if (!rc)
        memcpy(a, work, n * sizeof *a);
    return rc;
}

static int order_members(struct writer *w, const struct jinja_dict *m,
                         const struct jinja_entry ***out) {
    const struct jinja_entry **order = jinja_array(w->c, 2 * m->n, sizeof *order);
    if (!order)
        return w->c->e.code;
    for (size_t i = 0; i < m->n; i++)
        order[i] = m->entries + i;
    *out = order;
    return sort_members(w->c, order, order + m->n, m->n);
}

static int put_member(struct writer *w, const struct jinja_entry *e, bool trusted) {
    int rc = put_key(w, e->key, trusted);
    if (!rc)
        rc = put_separator(w, w->how->key ? w->how->key : &colon_space, trusted);
    return rc ? rc : put_value(w, e->value);
}

static int put_dict(struct writer *w, const struct jinja_dict *m) {
    bool trusted = !m->untrusted;
    const struct jinja_entry **order = NULL;
    if (m->n == 0)
        return jinja_put(w->c, "{}", 2, trusted);
    int rc = w->how->sort ? order_members(w, m, &order) : 0;
    if (!rc)
        rc = jinja_put(w->c, "{", 1, trusted);
    w->level++;
    if (!rc)
        rc = put_break(w, trusted);
    for (size_t i = 0; i < m->n && !rc; i++) {
        if (i > 0)
            rc = put_item_separator(w, trusted);
        if (!rc)
            rc = put_member(w, order ? order[i] : m->entries + i, trusted);
    }
    w->level--;
    if (!rc)
        rc = put_break(w, trusted);
    return rc ? rc : jinja_put(w->c, "}", 1, trusted);
}

static int put_float(struct writer *w, struct jinja_value v) {
    char text[JINJA_FLOAT_TEXT];
    jinja_float_text(v.as.d, text);
    const char *shown = text;
    if (strchr(text, 'n')) // nan, inf, -inf
        shown = text[0] == 'n' ? "NaN" : text[0] == '-' ? "-Infinity" : "Infinity";
    return jinja_put(w->c, shown, strlen(shown), !v.untrusted);
}

static int put_container(struct writer *w, struct jinja_value v) {
    int rc = jinja_enter(w->c);
    if (rc)
        return rc;
    rc = v.kind == JINJA_DICT ? put_dict(w, v.as.m) : put_list(w, v.as.l);
    jinja_leave(w->c);
    return rc;
}

static int put_value(struct writer *w, struct jinja_value v) {
    int rc = jinja_charge(w->c, 1);
    if (rc)
        return rc;
    switch ((enum jinja_kind)v.kind) {
    case JINJA_NONE:
        return jinja_puts(w->c, "null");
    case JINJA_BOOL:
        return jinja_put(w->c, v.as.b ? "true" : "false", v.as.b ? 4 : 5, !v.untrusted);
    case JINJA_INT:
    case JINJA_BIG:
        return jinja_put_repr(w->c, v);
    case JINJA_FLOAT:
        return put_float(w, v);
    case JINJA_STRING:
        return put_text(w, v.as.s);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        return put_container(w, v);
    default:
        return jinja_fail(w->c, ERR_USAGE, "Object of type %s is not JSON serializable",
                          jinja_type(v));
    }
}

int jinja_put_json(struct jinja_context *c, struct jinja_value v, const struct jinja_json *how) {
    struct writer w = {.c = c, .how = how};
    return put_value(&w, v);
}

int jinja_json(struct jinja_context *c, struct jinja_value v, struct jinja_value *out,
               struct err *e) {
    size_t mark = jinja_mark(c);
    int rc = jinja_put_json(c, v, &(struct jinja_json){0});
    if (!rc)
        rc = jinja_take(c, mark, out);
    return rc ? err_set(e, rc, "%s", c->e.text) : 0;
}
