// SPDX-License-Identifier: Apache-2.0
// str(), repr() and json.dumps(); see repr.h. Brackets and commas of what a request brought count
// as its own, so that a printed request is one span.
#include "text/jinja/repr.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/jinja/builtins.h"
#include "text/jinja/container.h"
#include "text/tokenizer/norm.h"

static int put_repr(struct jinja_context *c, struct jinja_value v);

static int put_number_repr(struct jinja_context *c, struct jinja_value v) {
    char text[JINJA_FLOAT_TEXT];
    if (v.kind == JINJA_FLOAT)
        jinja_float_text(v.as.d, text);
    else
        snprintf(text, sizeof text, "%" PRId64, v.as.i);
    return jinja_put(c, text, strlen(text), !v.untrusted);
}

// The escape that repr writes for a code point; empty when it stands for itself.
static void escape_in_repr(uint32_t code, char quote, char out[16]) {
    const char *short_form = code == '\n'   ? "\\n"
                             : code == '\r' ? "\\r"
                             : code == '\t' ? "\\t"
                                            : "";
    out[0] = 0;
    if (*short_form)
        strcpy(out, short_form);
    else if (code == '\\' || code == (unsigned char)quote)
        snprintf(out, 16, "\\%c", (char)code);
    else if (code < 0x20 || code == 0x7F || (code >= 0x80 && !norm_is_printable(code)))
        snprintf(out, 16,
                 code < 0x100     ? "\\x%02x"
                 : code < 0x10000 ? "\\u%04x"
                                  : "\\U%08x",
                 (unsigned)code);
}

static void escape_in_json(uint32_t code, bool ascii, char out[16]) {
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

// Between quotes, as repr or (json) as json.dumps writes it.
static int put_quoted_as(struct jinja_context *c, const struct jinja_string *s, char quote,
                         bool json, bool ascii) {
    char escape[16];
    int rc = jinja_put(c, &quote, 1, jinja_trusted_at(s, 0));
    size_t plain = 0, len;
    for (size_t at = 0; at < s->n && !rc; at += len) {
        unsigned char b = (unsigned char)s->bytes[at];
        len = 1;
        if (b >= 0x20 && b != quote && b != '\\' && (b < 0x7F || (json && !ascii)))
            continue;
        uint32_t code = jinja_code_at(s, at, &len);
        if (json)
            escape_in_json(code, ascii, escape);
        else
            escape_in_repr(code, quote, escape);
        if (!escape[0])
            continue;
        rc = jinja_put_range(c, s, plain, at);
        if (!rc)
            rc = jinja_put(c, escape, strlen(escape), jinja_trusted_at(s, at));
        plain = at + len;
    }
    if (!rc)
        rc = jinja_put_range(c, s, plain, s->n);
    return rc ? rc : jinja_put(c, &quote, 1, jinja_trusted_at(s, s->n ? s->n - 1 : 0));
}

static int put_quoted(struct jinja_context *c, const struct jinja_string *s) {
    char quote = memchr(s->bytes, '\'', s->n) && !memchr(s->bytes, '"', s->n) ? '"' : '\'';
    return put_quoted_as(c, s, quote, false, false);
}

static int put_markup(struct jinja_context *c, const struct jinja_string *s) {
    int rc = jinja_puts(c, "Markup(");
    if (!rc)
        rc = put_quoted(c, s);
    return rc ? rc : jinja_puts(c, ")");
}

static int put_item_reprs(struct jinja_context *c, const struct jinja_value *items, size_t n,
                          bool trusted) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        if (i > 0)
            rc = jinja_put(c, ", ", 2, trusted);
        if (!rc)
            rc = put_repr(c, items[i]);
    }
    return rc;
}

static int put_list_repr(struct jinja_context *c, struct jinja_value v) {
    bool tuple = v.kind == JINJA_TUPLE, trusted = !v.as.l->untrusted;
    int rc = jinja_put(c, tuple ? "(" : "[", 1, trusted);
    if (!rc)
        rc = put_item_reprs(c, v.as.l->items, v.as.l->n, trusted);
    if (!rc && tuple && v.as.l->n == 1)
        rc = jinja_put(c, ",", 1, trusted);
    return rc ? rc : jinja_put(c, tuple ? ")" : "]", 1, trusted);
}

static int put_pair(struct jinja_context *c, const struct jinja_entry *e, const char *between,
                    bool trusted) {
    int rc = put_repr(c, e->key);
    if (!rc)
        rc = jinja_put(c, between, 2, trusted);
    return rc ? rc : put_repr(c, e->value);
}

static int put_dict_repr(struct jinja_context *c, const struct jinja_dict *m) {
    bool trusted = !m->untrusted;
    int rc = jinja_put(c, "{", 1, trusted);
    for (size_t i = 0; i < m->n && !rc; i++) {
        if (i > 0)
            rc = jinja_put(c, ", ", 2, trusted);
        if (!rc)
            rc = put_pair(c, m->entries + i, ": ", trusted);
    }
    return rc ? rc : jinja_put(c, "}", 1, trusted);
}

static int put_view_repr(struct jinja_context *c, const struct jinja_view *view) {
    static const char *const heads[] = {"dict_keys([", "dict_values([", "dict_items(["};
    bool trusted = !view->of->untrusted;
    int rc = jinja_puts(c, heads[view->what]);
    for (size_t i = 0; i < view->of->n && !rc; i++) {
        const struct jinja_entry *e = view->of->entries + i;
        if (i > 0)
            rc = jinja_put(c, ", ", 2, trusted);
        if (!rc && view->what == VIEW_ITEMS) {
            rc = jinja_put(c, "(", 1, trusted);
            rc = rc ? rc : put_pair(c, e, ", ", trusted);
            rc = rc ? rc : jinja_put(c, ")", 1, trusted);
        } else if (!rc) {
            rc = put_repr(c, view->what == VIEW_KEYS ? e->key : e->value);
        }
    }
    return rc ? rc : jinja_puts(c, "])");
}

static int put_range_repr(struct jinja_context *c, const struct jinja_range *r) {
    char text[96];
    if (r->step == 1)
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ")", r->start, r->stop);
    else
        snprintf(text, sizeof text, "range(%" PRId64 ", %" PRId64 ", %" PRId64 ")", r->start,
                 r->stop, r->step);
    return jinja_puts(c, text);
}

static int put_namespace(struct jinja_context *c, const struct jinja_dict *m) {
    int rc = jinja_puts(c, "<Namespace ");
    if (!rc)
        rc = put_dict_repr(c, m);
    return rc ? rc : jinja_puts(c, ">");
}

static int put_object_repr(struct jinja_context *c, struct jinja_value v) {
    char text[128];
    if (v.kind == JINJA_MACRO)
        snprintf(text, sizeof text, "<Macro '%.90s'>", ((struct jinja_macro *)v.as.p)->name);
    else
        snprintf(text, sizeof text, "<%s object>", jinja_type(v));
    return jinja_puts(c, text);
}

static int put_container_repr(struct jinja_context *c, struct jinja_value v) {
    switch ((enum jinja_kind)v.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        return put_list_repr(c, v);
    case JINJA_DICT:
        return put_dict_repr(c, v.as.m);
    case JINJA_NAMESPACE:
        return put_namespace(c, v.as.m);
    case JINJA_VIEW:
        return put_view_repr(c, v.as.p);
    default:
        return put_object_repr(c, v);
    }
}

static int put_repr(struct jinja_context *c, struct jinja_value v) {
    int rc = jinja_charge(c, 1);
    if (rc)
        return rc;
    switch ((enum jinja_kind)v.kind) {
    case JINJA_ABSENT:
        return jinja_fail(c, ERR_MEMORY, "no memory for a value of the template");
    case JINJA_UNDEFINED:
        return jinja_puts(c, "Undefined");
    case JINJA_NONE:
        return jinja_puts(c, "None");
    case JINJA_BOOL:
        return jinja_put(c, v.as.b ? "True" : "False", v.as.b ? 4 : 5, !v.untrusted);
    case JINJA_INT:
    case JINJA_FLOAT:
        return put_number_repr(c, v);
    case JINJA_BIG:
        return jinja_put_string(c, v.as.s);
    case JINJA_STRING:
        return v.as.s->markup ? put_markup(c, v.as.s) : put_quoted(c, v.as.s);
    case JINJA_RANGE:
        return put_range_repr(c, v.as.p);
    default:
        break;
    }
    rc = jinja_enter(c);
    if (rc)
        return rc;
    rc = put_container_repr(c, v);
    jinja_leave(c);
    return rc;
}

int jinja_put_str(struct jinja_context *c, struct jinja_value v) {
    if (v.kind == JINJA_STRING)
        return jinja_put_string(c, v.as.s);
    return v.kind == JINJA_UNDEFINED ? 0 : put_repr(c, v);
}

int jinja_to_string(struct jinja_context *c, struct jinja_value v, struct jinja_value *out) {
    *out = v;
    if (v.kind == JINJA_STRING)
        return 0;
    size_t mark = jinja_mark(c);
    int rc = jinja_put_str(c, v);
    return rc ? rc : jinja_take(c, mark, out);
}

int jinja_put_escaped(struct jinja_context *c, const struct jinja_string *s) {
    static const char special[] = "&<>'\"";
    static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&#39;", "&#34;"};
    int rc = 0;
    size_t plain = 0;
    for (size_t at = 0; at < s->n && !rc; at++) {
        const char *found = s->bytes[at] ? strchr(special, s->bytes[at]) : NULL;
        if (!found)
            continue;
        rc = jinja_put_range(c, s, plain, at);
        const char *name = names[found - special];
        if (!rc)
            rc = jinja_put(c, name, strlen(name), jinja_trusted_at(s, at));
        plain = at + 1;
    }
    return rc ? rc : jinja_put_range(c, s, plain, s->n);
}

struct json_text {
    struct jinja_context *c;
    const struct jinja_json *how;
    int level;
};

static const struct jinja_string comma = {.bytes = ",", .n = 1, .trusted = true};

static const struct jinja_string comma_space = {.bytes = ", ", .n = 2, .trusted = true};

static const struct jinja_string colon_space = {.bytes = ": ", .n = 2, .trusted = true};

static int put_json_value(struct json_text *w, struct jinja_value v);

// A separator in what a request brought counts as the request's.
static int put_json_separator(struct json_text *w, const struct jinja_string *s, bool trusted) {
    return trusted ? jinja_put_string(w->c, s) : jinja_put(w->c, s->bytes, s->n, false);
}

static int put_json_break(struct json_text *w, bool trusted) {
    if (!w->how->indent)
        return 0;
    int rc = jinja_put(w->c, "\n", 1, trusted);
    for (int i = 0; i < w->level && !rc; i++)
        rc = put_json_separator(w, w->how->indent, trusted);
    return rc;
}

static int put_json_comma(struct json_text *w, bool trusted) {
    const struct jinja_string *usual = w->how->indent ? &comma : &comma_space;
    int rc = put_json_separator(w, w->how->item ? w->how->item : usual, trusted);
    return rc ? rc : put_json_break(w, trusted);
}

static int put_json_list(struct json_text *w, const struct jinja_list *l) {
    bool trusted = !l->untrusted;
    if (l->n == 0)
        return jinja_put(w->c, "[]", 2, trusted);
    int rc = jinja_put(w->c, "[", 1, trusted);
    w->level++;
    if (!rc)
        rc = put_json_break(w, trusted);
    for (size_t i = 0; i < l->n && !rc; i++) {
        if (i > 0)
            rc = put_json_comma(w, trusted);
        if (!rc)
            rc = put_json_value(w, l->items[i]);
    }
    w->level--;
    if (!rc)
        rc = put_json_break(w, trusted);
    return rc ? rc : jinja_put(w->c, "]", 1, trusted);
}

static int put_json_key(struct json_text *w, struct jinja_value key, bool trusted) {
    if (key.kind == JINJA_STRING)
        return put_quoted_as(w->c, key.as.s, '"', true, w->how->ascii);
    if (!jinja_is_number(key) && key.kind != JINJA_NONE)
        return jinja_fail(w->c, ERR_USAGE, "keys must be str, int, float, bool or None, not %s",
                          jinja_type(key));
    int rc = jinja_put(w->c, "\"", 1, trusted);
    if (!rc)
        rc = put_json_value(w, key);
    return rc ? rc : jinja_put(w->c, "\"", 1, trusted);
}

// The members by their keys.
static int sort_members(struct json_text *w, const struct jinja_dict *m, struct jinja_keyed **out) {
    struct jinja_keyed *a = *out = jinja_array(w->c, 2 * m->n, sizeof *a);
    for (size_t i = 0; a && i < m->n; i++)
        a[i] = (struct jinja_keyed){m->entries[i].key, m->entries[i].value};
    return a ? jinja_sort(w->c, a, a + m->n, m->n, false) : w->c->e.code;
}

static int put_json_dict(struct json_text *w, const struct jinja_dict *m) {
    bool trusted = !m->untrusted;
    struct jinja_keyed *sorted = NULL;
    if (m->n == 0)
        return jinja_put(w->c, "{}", 2, trusted);
    int rc = w->how->sort ? sort_members(w, m, &sorted) : 0;
    if (!rc)
        rc = jinja_put(w->c, "{", 1, trusted);
    w->level++;
    if (!rc)
        rc = put_json_break(w, trusted);
    for (size_t i = 0; i < m->n && !rc; i++) {
        if (i > 0)
            rc = put_json_comma(w, trusted);
        if (!rc)
            rc = put_json_key(w, sorted ? sorted[i].key : m->entries[i].key, trusted);
        if (!rc)
            rc = put_json_separator(w, w->how->key ? w->how->key : &colon_space, trusted);
        if (!rc)
            rc = put_json_value(w, sorted ? sorted[i].item : m->entries[i].value);
    }
    w->level--;
    if (!rc)
        rc = put_json_break(w, trusted);
    return rc ? rc : jinja_put(w->c, "}", 1, trusted);
}

static int put_json_float(struct json_text *w, struct jinja_value v) {
    char text[JINJA_FLOAT_TEXT];
    jinja_float_text(v.as.d, text);
    const char *shown = text;
    if (strchr(text, 'n')) // nan, inf, -inf
        shown = text[0] == 'n' ? "NaN" : text[0] == '-' ? "-Infinity" : "Infinity";
    return jinja_put(w->c, shown, strlen(shown), !v.untrusted);
}

static int put_json_container(struct json_text *w, struct jinja_value v) {
    int rc = jinja_enter(w->c);
    if (rc)
        return rc;
    rc = v.kind == JINJA_DICT ? put_json_dict(w, v.as.m) : put_json_list(w, v.as.l);
    jinja_leave(w->c);
    return rc;
}

static int put_json_value(struct json_text *w, struct jinja_value v) {
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
        return put_repr(w->c, v);
    case JINJA_FLOAT:
        return put_json_float(w, v);
    case JINJA_STRING:
        return put_quoted_as(w->c, v.as.s, '"', true, w->how->ascii);
    case JINJA_LIST:
    case JINJA_TUPLE:
    case JINJA_DICT:
        return put_json_container(w, v);
    default:
        return jinja_fail(w->c, ERR_USAGE, "Object of type %s is not JSON serializable",
                          jinja_type(v));
    }
}

int jinja_put_json(struct jinja_context *c, struct jinja_value v, const struct jinja_json *how) {
    struct json_text w = {.c = c, .how = how};
    return put_json_value(&w, v);
}

int jinja_json(struct jinja_context *c, struct jinja_value v, struct jinja_value *out,
               struct err *e) {
    size_t mark = jinja_mark(c);
    int rc = jinja_put_json(c, v, &(struct jinja_json){0});
    if (!rc)
        rc = jinja_take(c, mark, out);
    return rc ? err_set(e, rc, "%s", c->e.text) : 0;
}
