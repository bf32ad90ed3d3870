// SPDX-License-Identifier: Apache-2.0
// str() and repr(); see text.h. Brackets and commas of what a request brought count as its own, so
// that a printed request is one span.
#include "text/jinja/value/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/eval/callable.h"
#include "text/jinja/value/number.h"
#include "text/tokenizer/norm.h"

static int put_number(struct jinja_context *c, struct jinja_value v) {
    char text[JINJA_FLOAT_TEXT];
    if (v.kind == JINJA_FLOAT)
        jinja_float_text(v.as.d, text);
    else
        snprintf(text, sizeof text, "%" PRId64, v.as.i);
    return jinja_put(c, text, strlen(text), !v.untrusted);
}

static char quote_of(const struct jinja_string *s) {
    return memchr(s->bytes, '\'', s->n) && !memchr(s->bytes, '"', s->n) ? '"' : '\'';
}

void jinja_escape_code(uint32_t code, char out[16]) {
    snprintf(out, 16,
             code < 0x100     ? "\\x%02x"
             : code < 0x10000 ? "\\u%04x"
                              : "\\U%08x",
             (unsigned)code);
}

// The escape that repr writes for a code point; empty when it stands for itself.
static void escape_of(uint32_t code, char quote, char out[16]) {
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
        jinja_escape_code(code, out);
}

static int put_quoted(struct jinja_context *c, const struct jinja_string *s) {
    char quote = quote_of(s), escape[16];
    int rc = jinja_put(c, &quote, 1, jinja_trusted_at(s, 0));
    size_t plain = 0;
    for (size_t at = 0; at < s->n && !rc;) {
        uint32_t code;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        if (len <= 0)
            break;
        escape_of(code, quote, escape);
        if (escape[0]) {
            rc = jinja_put_range(c, s, plain, at);
            if (!rc)
                rc = jinja_put(c, escape, strlen(escape), jinja_trusted_at(s, at));
            plain = at + (size_t)len;
        }
        at += (size_t)len;
    }
    if (!rc)
        rc = jinja_put_range(c, s, plain, s->n);
    return rc ? rc : jinja_put(c, &quote, 1, jinja_trusted_at(s, s->n ? s->n - 1 : 0));
}

static int put_markup(struct jinja_context *c, const struct jinja_string *s) {
    int rc = jinja_puts(c, "Markup(");
    if (!rc)
        rc = put_quoted(c, s);
    return rc ? rc : jinja_puts(c, ")");
}

static int put_items(struct jinja_context *c, const struct jinja_value *items, size_t n,
                     bool trusted) {
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        if (i > 0)
            rc = jinja_put(c, ", ", 2, trusted);
        if (!rc)
            rc = jinja_put_repr(c, items[i]);
    }
    return rc;
}

static int put_list(struct jinja_context *c, struct jinja_value v) {
    bool tuple = v.kind == JINJA_TUPLE, trusted = !v.as.l->untrusted;
    int rc = jinja_put(c, tuple ? "(" : "[", 1, trusted);
    if (!rc)
        rc = put_items(c, v.as.l->items, v.as.l->n, trusted);
    if (!rc && tuple && v.as.l->n == 1)
        rc = jinja_put(c, ",", 1, trusted);
    return rc ? rc : jinja_put(c, tuple ? ")" : "]", 1, trusted);
}

static int put_pair(struct jinja_context *c, const struct jinja_entry *e, const char *between,
                    bool trusted) {
    int rc = jinja_put_repr(c, e->key);
    if (!rc)
        rc = jinja_put(c, between, 2, trusted);
    return rc ? rc : jinja_put_repr(c, e->value);
}

static int put_dict(struct jinja_context *c, const struct jinja_dict *m) {
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

static int put_view(struct jinja_context *c, const struct jinja_view *view) {
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
            rc = jinja_put_repr(c, view->what == VIEW_KEYS ? e->key : e->value);
        }
    }
    return rc ? rc : jinja_puts(c, "])");
}

static int put_range(struct jinja_context *c, const struct jinja_range *r) {
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
        rc = put_dict(c, m);
    return rc ? rc : jinja_puts(c, ">");
}

static int put_other(struct jinja_context *c, struct jinja_value v) {
    char text[128];
    if (v.kind == JINJA_MACRO)
        snprintf(text, sizeof text, "<Macro '%.90s'>", ((struct jinja_macro *)v.as.p)->name);
    else
        snprintf(text, sizeof text, "<%s object>", jinja_type(v));
    return jinja_puts(c, text);
}

static int put_nested(struct jinja_context *c, struct jinja_value v) {
    switch ((enum jinja_kind)v.kind) {
    case JINJA_LIST:
    case JINJA_TUPLE:
        return put_list(c, v);
    case JINJA_DICT:
        return put_dict(c, v.as.m);
    case JINJA_NAMESPACE:
        return put_namespace(c, v.as.m);
    case JINJA_VIEW:
        return put_view(c, v.as.p);
    default:
        return put_other(c, v);
    }
}

int jinja_put_repr(struct jinja_context *c, struct jinja_value v) {
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
        return put_number(c, v);
    case JINJA_BIG:
        return jinja_put_string(c, v.as.s);
    case JINJA_STRING:
        return v.as.s->markup ? put_markup(c, v.as.s) : put_quoted(c, v.as.s);
    case JINJA_RANGE:
        return put_range(c, v.as.p);
    default:
        break;
    }
    rc = jinja_enter(c);
    if (rc)
        return rc;
    rc = put_nested(c, v);
    jinja_leave(c);
    return rc;
}

int jinja_put_str(struct jinja_context *c, struct jinja_value v) {
    if (v.kind == JINJA_STRING)
        return jinja_put_string(c, v.as.s);
    return v.kind == JINJA_UNDEFINED ? 0 : jinja_put_repr(c, v);
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

int jinja_fail_undefined(struct jinja_context *c, struct jinja_value v) {
    const struct jinja_undefined *u = v.as.p;
    if (u->hint)
        return jinja_fail(c, ERR_USAGE, "%s", u->hint);
    size_t mark = jinja_mark(c);
    struct jinja_value name;
    int rc = jinja_put_repr(c, u->name);
    if (!rc)
        rc = jinja_take(c, mark, &name);
    if (rc)
        return rc;
    int n = name.as.s->n > 200 ? 200 : (int)name.as.s->n;
    if (u->of.kind == JINJA_ABSENT)
        return jinja_fail(c, ERR_USAGE, "%.*s is undefined", n, name.as.s->bytes);
    if (u->of.kind == JINJA_NONE)
        return jinja_fail(c, ERR_USAGE, "None has no attribute %.*s", n, name.as.s->bytes);
    return jinja_fail(c, ERR_USAGE, "'%s object' has no %s %.*s", jinja_type(u->of),
                      u->name.kind == JINJA_STRING ? "attribute" : "element", n, name.as.s->bytes);
}
