// SPDX-License-Identifier: Apache-2.0
// Filters that give text.
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/jinja/builtins/tables.h"
#include "text/jinja/eval/iterate.h"
#include "text/jinja/eval/operators.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/strings.h"
#include "text/jinja/value/text.h"
#include "text/tokenizer/norm.h"

// The text that a filter works on; what is no string is written as one.
static int text_of(struct jinja_context *c, struct jinja_value v, const struct jinja_string **s) {
    struct jinja_value text;
    int rc = jinja_to_string(c, v, &text);
    *s = rc ? NULL : text.as.s;
    return rc;
}

// A string that must be one.
static int want_text(struct jinja_context *c, const struct jinja_call *call,
                     const struct jinja_string **s) {
    if (call->self.kind == JINJA_UNDEFINED)
        return jinja_fail_undefined(c, call->self);
    if (call->self.kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "the filter %s wants a string, not '%s'", call->name,
                          jinja_type(call->self));
    *s = call->self.as.s;
    return 0;
}

// Gives a string that is marked safe or not.
static int mark(struct jinja_context *c, const struct jinja_string *s, bool markup,
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
    int rc = text_of(c, call->self, &s);
    if (!rc)
        rc = jinja_change_case(c, s, how, out);
    return rc || !s->markup ? rc : mark(c, out->as.s, true, out);
}

static bool breaks_word(uint32_t code) {
    return jinja_code_is_space(code) || (code && code < 0x80 && strchr("-({[<", (int)code));
}

// Where the run of code points ends that begins at `from` and breaks words or does not.
static size_t run_end(const struct jinja_string *s, size_t from, bool breaks) {
    for (size_t at = from;;) {
        uint32_t code = 0;
        int len = at < s->n ? utf8_decode(s->bytes + at, s->n - at, &code) : 0;
        if (len <= 0 || breaks_word(code) != breaks)
            return at;
        at += (size_t)len;
    }
}

// jinja2's own title: a word begins behind white space, a hyphen or an opening bracket.
static int filter_title(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    int rc = text_of(c, call->self, &s);
    size_t start = jinja_mark(c), at = 0;
    if (!rc)
        rc = jinja_charge(c, s->n / 2);
    while (!rc && at < s->n) {
        size_t word = run_end(s, at, true), rest = word + (word < s->n), end;
        while (rest < s->n && ((unsigned char)s->bytes[rest] & 0xC0) == 0x80)
            rest++;
        end = run_end(s, word, false);
        rc = jinja_put_range(c, s, at, word);
        if (!rc && word < end)
            rc = jinja_put_case(c, s, word, rest, true);
        if (!rc && word < end)
            rc = jinja_put_case(c, s, rest, end, false);
        at = end;
    }
    return rc ? rc : jinja_take(c, start, out);
}

static int filter_trim(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    const struct jinja_string *s, *chars = NULL;
    int rc = text_of(c, call->self, &s);
    if (!rc && jinja_given(call->a[0])) {
        if (call->a[0].kind != JINJA_STRING)
            return jinja_fail(c, ERR_USAGE, "strip arg must be None or str");
        chars = call->a[0].as.s;
    }
    if (!rc)
        rc = jinja_strip(c, s, chars, 3, out);
    return rc || !s->markup ? rc : mark(c, out->as.s, true, out);
}

static int filter_replace(struct jinja_context *c, const struct jinja_call *call,
                          struct jinja_value *out) {
    const struct jinja_string *s, *old, *new;
    int64_t most = -1;
    int rc = text_of(c, call->self, &s);
    if (!rc)
        rc = text_of(c, call->a[0], &old);
    if (!rc)
        rc = text_of(c, call->a[1], &new);
    if (!rc && jinja_given(call->a[2]))
        rc = jinja_want_int(c, call->a[2], "the count of replace", &most);
    return rc ? rc : jinja_replace(c, s, old, new, most, out);
}

static int filter_string(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    return jinja_to_string(c, call->self, out);
}

static int filter_safe(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    int rc = text_of(c, call->self, &s);
    return rc ? rc : mark(c, s, true, out);
}

static int filter_escape(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    int rc = text_of(c, call->self, &s);
    if (rc)
        return rc;
    bool again = call->name[0] == 'f';
    size_t start = jinja_mark(c);
    rc = s->markup && !again ? jinja_put_string(c, s) : jinja_put_escaped(c, s);
    if (!rc)
        rc = jinja_take(c, start, out);
    return rc ? rc : mark(c, out->as.s, true, out);
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
    uint32_t code = 0;
    if (!rc && s->n > 0) {
        size_t last = s->n - 1;
        while (last > 0 && ((unsigned char)s->bytes[last] & 0xC0) == 0x80)
            last--;
        utf8_decode(s->bytes + last, s->n - last, &code);
        at = last;
        if (jinja_next_line(s, &at, &end) && end == last)
            rc = jinja_put(c, "\n", 1, jinja_trusted_at(s, last));
        else
            code = 0;
    }
    return !rc && code && blank ? jinja_put_string(c, indent) : rc;
}

static int filter_indent(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    static const struct jinja_string space = {.bytes = " ", .n = 1, .trusted = true};
    const struct jinja_string *s = NULL;
    struct jinja_value indent = call->a[0];
    int64_t width = 4;
    int rc = want_text(c, call, &s);
    size_t start = jinja_mark(c);
    if (!rc && indent.kind != JINJA_STRING) {
        rc = indent.kind ? jinja_want_int(c, indent, "the width of indent", &width) : 0;
        if (!rc)
            rc = jinja_put_times(c, &space, width);
        if (!rc)
            rc = jinja_take(c, start, &indent);
    }
    if (!rc)
        rc = put_indented(c, s, indent.as.s, jinja_is_true(call->a[1]), jinja_is_true(call->a[2]));
    return rc ? rc : jinja_take(c, start, out);
}

static int filter_format(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    const struct jinja_args *args = call->args;
    const struct jinja_string *s = NULL;
    struct jinja_value values;
    int rc = text_of(c, call->self, &s);
    if (rc)
        return rc;
    if (args->n && args->n_named)
        return jinja_fail(c, ERR_USAGE,
                          "can't handle positional and keyword arguments at the same time");
    values = args->n_named ? jinja_dict(c, false) : jinja_tuple(c, (size_t)args->n);
    if (!values.kind)
        return c->e.code;
    for (int i = 0; i < args->n; i++)
        values.as.l->items[i] = args->pos[i];
    for (int i = 0; i < args->n_named && !rc; i++)
        rc = jinja_dict_set(c, values.as.m, args->named[i].key, args->named[i].value);
    return rc ? rc : jinja_percent(c, s, values, out);
}

static int filter_center(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    static const struct jinja_string space = {.bytes = " ", .n = 1, .trusted = true};
    const struct jinja_string *s = NULL;
    int64_t width = 80;
    int rc = text_of(c, call->self, &s);
    if (!rc && call->a[0].kind)
        rc = jinja_want_int(c, call->a[0], "the width of center", &width);
    if (rc)
        return rc;
    int64_t pad = width - (int64_t)jinja_chars(s), left = pad > 0 ? pad / 2 + (pad & width & 1) : 0;
    size_t start = jinja_mark(c);
    rc = jinja_put_times(c, &space, left);
    if (!rc)
        rc = jinja_put_string(c, s);
    if (!rc)
        rc = jinja_put_times(c, &space, pad - left);
    return rc ? rc : jinja_take(c, start, out);
}

// Runs of letters, digits and underscores.
static int filter_wordcount(struct jinja_context *c, const struct jinja_call *call,
                            struct jinja_value *out) {
    const struct jinja_string *s = NULL;
    int rc = text_of(c, call->self, &s);
    bool inside = false;
    int64_t n = 0;
    if (!rc)
        rc = jinja_charge(c, s->n / 4);
    for (size_t at = 0; !rc && at < s->n;) {
        uint32_t code = 0;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        bool word = code == '_' || (norm_class(code) & (NORM_LETTER | NORM_NUMBER));
        n += word && !inside;
        inside = word;
        at += (size_t)(len > 0 ? len : 1);
    }
    *out = jinja_int(n);
    return rc;
}

static int put_quoted(struct jinja_context *c, struct jinja_value v, bool query) {
    static const char plain[] = "_.-~/";
    const struct jinja_string *s = NULL;
    int rc = text_of(c, v, &s);
    for (size_t i = 0; !rc && i < s->n; i++) {
        unsigned char b = (unsigned char)s->bytes[i];
        char text[4];
        bool keep = (b >= '0' && b <= '9') || (b >= 'A' && b <= 'Z') || (b >= 'a' && b <= 'z') ||
                    (b && strchr(plain, b) && !(query && b == '/'));
        snprintf(text, sizeof text, keep ? "%c" : query && b == ' ' ? "+" : "%%%02X", b);
        rc = jinja_put(c, text, strlen(text), jinja_trusted_at(s, i));
    }
    return rc;
}

static int put_query(struct jinja_context *c, struct jinja_value v) {
    struct jinja_view view = {.what = VIEW_ITEMS};
    struct jinja_iter it;
    struct jinja_value pair, items;
    if (v.kind == JINJA_DICT) {
        view.of = v.as.m;
        v = (struct jinja_value){.kind = JINJA_VIEW, .as.p = &view};
    }
    bool first = true;
    int rc = jinja_iterate(c, v, &it), more = 0;
    while (!rc && (more = jinja_next(c, &it, &pair)) > 0) {
        rc = jinja_collect(c, pair, &items);
        if (!rc && items.as.l->n != 2)
            rc = jinja_fail(c, ERR_USAGE, "urlencode wants pairs of a name and a value");
        if (!rc && !first)
            rc = jinja_puts(c, "&");
        first = false;
        if (!rc)
            rc = put_quoted(c, items.as.l->items[0], true);
        if (!rc)
            rc = jinja_puts(c, "=");
        if (!rc)
            rc = put_quoted(c, items.as.l->items[1], true);
    }
    return more < 0 ? more : rc;
}

static int filter_urlencode(struct jinja_context *c, const struct jinja_call *call,
                            struct jinja_value *out) {
    struct jinja_value v = call->self;
    size_t start = jinja_mark(c);
    bool plain = v.kind == JINJA_STRING || !jinja_is_iterable(v);
    int rc = plain ? put_quoted(c, v, false) : put_query(c, v);
    return rc ? rc : jinja_take(c, start, out);
}

// The bytes of the first n code points without the last word that is cut.
static size_t whole_words(const struct jinja_string *s, size_t chars) {
    size_t end = jinja_byte_of(s, chars);
    for (size_t at = end; at-- > 0;)
        if (s->bytes[at] == ' ')
            return at;
    return end;
}

static int filter_truncate(struct jinja_context *c, const struct jinja_call *call,
                           struct jinja_value *out) {
    static const struct jinja_string dots = {.bytes = "...", .n = 3, .chars = 3, .trusted = true};
    const struct jinja_string *s = NULL, *end = &dots;
    int64_t length = 255, leeway = 5, n = 0;
    int rc = call->a[0].kind ? jinja_want_int(c, call->a[0], "the length of truncate", &length) : 0;
    if (!rc && call->a[2].kind && call->a[2].kind != JINJA_STRING)
        rc = jinja_fail(c, ERR_USAGE, "the end of truncate must be a string, not '%s'",
                        jinja_type(call->a[2]));
    else if (call->a[2].kind)
        end = call->a[2].as.s;
    if (!rc && jinja_given(call->a[3]))
        rc = jinja_want_int(c, call->a[3], "the leeway of truncate", &leeway);
    if (!rc)
        rc = jinja_length(c, call->self, &n);
    if (rc)
        return rc;
    int64_t keep = length - (int64_t)jinja_chars(end);
    if (keep < 0 || leeway < 0)
        return jinja_fail(c, ERR_USAGE, "the length of truncate is less than that of its end");
    *out = call->self;
    if (n - length <= leeway)
        return 0;
    rc = want_text(c, call, &s);
    if (rc)
        return rc;
    size_t start = jinja_mark(c);
    size_t cut =
        jinja_is_true(call->a[1]) ? jinja_byte_of(s, (size_t)keep) : whole_words(s, (size_t)keep);
    rc = jinja_put_range(c, s, 0, cut);
    if (!rc)
        rc = jinja_put_string(c, end);
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

static int read_indent(struct jinja_context *c, struct jinja_value v, struct jinja_json *how) {
    static const struct jinja_string space = {.bytes = " ", .n = 1, .trusted = true};
    int64_t width;
    size_t start = jinja_mark(c);
    if (v.kind != JINJA_STRING) {
        int rc = jinja_want_int(c, v, "the indent of tojson", &width);
        if (!rc)
            rc = jinja_put_times(c, &space, width);
        if (!rc)
            rc = jinja_take(c, start, &v);
        if (rc)
            return rc;
    }
    how->indent = v.as.s;
    return 0;
}

static int filter_tojson(struct jinja_context *c, const struct jinja_call *call,
                         struct jinja_value *out) {
    struct jinja_json how = {.ascii = jinja_is_true(call->a[0]), .sort = jinja_is_true(call->a[3])};
    int rc = 0;
    if (jinja_given(call->a[1]) && call->self.kind != JINJA_STRING)
        rc = read_indent(c, call->a[1], &how);
    if (!rc && jinja_given(call->a[2]))
        rc = read_separators(c, call->a[2], &how);
    size_t start = jinja_mark(c);
    if (!rc)
        rc = jinja_put_json(c, call->self, &how);
    return rc ? rc : jinja_take(c, start, out);
}

const struct jinja_builtin jinja_filters_text[] = {
    {"tojson", filter_tojson, "ensure_ascii indent separators sort_keys", 0},
    {"trim", filter_trim, "chars", 0},
    {"upper", filter_case, "", 0},
    {"lower", filter_case, "", 0},
    {"capitalize", filter_case, "", 0},
    {"title", filter_title, "", 0},
    {"replace", filter_replace, "old new count", 2},
    {"string", filter_string, "", 0},
    {"indent", filter_indent, "width first blank", 0},
    {"safe", filter_safe, "", 0},
    {"escape", filter_escape, "", 0},
    {"e", filter_escape, "", 0},
    {"forceescape", filter_escape, "", 0},
    {"format", filter_format, NULL, 0},
    {"center", filter_center, "width", 0},
    {"wordcount", filter_wordcount, "", 0},
    {"urlencode", filter_urlencode, "", 0},
    {"truncate", filter_truncate, "length killwords end leeway", 0},
    {NULL, NULL, NULL, 0},
};
