// SPDX-License-Identifier: Apache-2.0
// Methods of strings.
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "text/jinja/builtins/tables.h"
#include "text/jinja/eval/iterate.h"
#include "text/jinja/eval/operators.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/strings.h"
#include "text/jinja/value/text.h"
#include "text/tokenizer/norm.h"

static const struct jinja_string space = {.bytes = " ", .n = 1, .chars = 1, .trusted = true};

static int want_string(struct jinja_context *c, const struct jinja_call *call, struct jinja_value v,
                       const struct jinja_string **s) {
    *s = v.kind == JINJA_STRING ? v.as.s : &space;
    if (v.kind != JINJA_STRING)
        return jinja_fail(c, ERR_USAGE, "%s() argument must be str, not %s", call->name,
                          jinja_type(v));
    return 0;
}

static int give(struct jinja_context *c, const struct jinja_string *s, struct jinja_value *out) {
    (void)c;
    *out = (struct jinja_value){.kind = JINJA_STRING, .as.s = s};
    return 0;
}

static int change_case(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    static const struct {
        const char *name;
        enum jinja_case how;
    } rows[] = {{"upper", CASE_UPPER},        {"lower", CASE_LOWER},   {"title", CASE_TITLE},
                {"capitalize", CASE_CAPITAL}, {"swapcase", CASE_SWAP}, {"casefold", CASE_FOLD}};
    size_t i = 0;
    while (strcmp(rows[i].name, call->name) != 0)
        i++;
    return jinja_change_case(c, call->self.as.s, rows[i].how, out);
}

static int strip(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    const struct jinja_string *chars = NULL;
    int sides = call->name[0] == 'l' ? 1 : call->name[0] == 'r' ? 2 : 3;
    int rc = jinja_given(call->a[0]) ? want_string(c, call, call->a[0], &chars) : 0;
    return rc ? rc : jinja_strip(c, call->self.as.s, chars, sides, out);
}

static int split(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    const struct jinja_string *separator = NULL;
    int64_t most = -1;
    int rc = jinja_given(call->a[0]) ? want_string(c, call, call->a[0], &separator) : 0;
    if (!rc && call->a[1].kind)
        rc = jinja_want_int(c, call->a[1], "maxsplit", &most);
    return rc ? rc : jinja_split(c, call->self.as.s, separator, most, call->name[0] == 'r', out);
}

static int split_lines(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    return jinja_split_lines(c, call->self.as.s, jinja_is_true(call->a[0]), out);
}

static int replace(struct jinja_context *c, const struct jinja_call *call,
                   struct jinja_value *out) {
    const struct jinja_string *old, *new;
    int64_t most = -1;
    int rc = want_string(c, call, call->a[0], &old);
    if (!rc)
        rc = want_string(c, call, call->a[1], &new);
    if (!rc && call->a[2].kind)
        rc = jinja_want_int(c, call->a[2], "the count of replace()", &most);
    return rc ? rc : jinja_replace(c, call->self.as.s, old, new, most, out);
}

static int join(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    struct jinja_iter it;
    struct jinja_value item;
    size_t mark = jinja_mark(c);
    int rc = jinja_iterate(c, call->a[0], &it), more = 0;
    for (bool first = true; !rc && (more = jinja_next(c, &it, &item)) > 0; first = false) {
        if (item.kind != JINJA_STRING)
            return jinja_fail(c, ERR_USAGE, "join() wants strings, %s found", jinja_type(item));
        rc = first ? 0 : jinja_put_string(c, call->self.as.s);
        if (!rc)
            rc = jinja_put_string(c, item.as.s);
    }
    rc = more < 0 ? more : rc;
    return rc ? rc : jinja_take(c, mark, out);
}

// The part that two indices behind other arguments select, as bytes.
static int find_part(struct jinja_context *c, const struct jinja_call *call, size_t *from,
                     size_t *to, bool *empty) {
    const struct jinja_string *s = call->self.as.s;
    *from = 0;
    *to = s->n;
    *empty = false;
    if (!jinja_given(call->a[1]) && !jinja_given(call->a[2]))
        return 0;
    int64_t n = (int64_t)jinja_chars(s), low = 0, high = n;
    int rc = jinja_given(call->a[1]) ? jinja_want_int(c, call->a[1], "start", &low) : 0;
    if (!rc && jinja_given(call->a[2]))
        rc = jinja_want_int(c, call->a[2], "end", &high);
    low = low < 0 ? max_i64(low + n, 0) : low;
    high = high < 0 ? max_i64(high + n, 0) : min_i64(high, n);
    *empty = low > high; // nothing is found there, not even nothing
    *from = jinja_byte_of(s, (size_t)min_i64(low, n));
    *to = jinja_byte_of(s, (size_t)high);
    return rc ? rc : jinja_charge(c, s->n / 64);
}

static int find(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *part;
    size_t from, to, found = SIZE_MAX;
    bool empty, last = call->name[0] == 'r';
    int rc = want_string(c, call, call->a[0], &part);
    if (!rc)
        rc = find_part(c, call, &from, &to, &empty);
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

static int count(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *part;
    size_t from, to, found;
    bool empty;
    int rc = want_string(c, call, call->a[0], &part);
    if (!rc)
        rc = find_part(c, call, &from, &to, &empty);
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

static int matches(struct jinja_context *c, const struct jinja_call *call, struct jinja_value v,
                   bool *yes) {
    const struct jinja_string *s = call->self.as.s, *part;
    size_t from, to;
    bool empty;
    int rc = want_string(c, call, v, &part);
    if (!rc)
        rc = find_part(c, call, &from, &to, &empty);
    if (rc || empty || part->n > to - from)
        return rc;
    size_t at = call->name[0] == 's' ? from : to - part->n;
    *yes = *yes || memcmp(s->bytes + at, part->bytes, part->n) == 0;
    return jinja_charge(c, part->n / 64);
}

static int starts(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    bool yes = false;
    int rc = 0;
    if (call->a[0].kind != JINJA_TUPLE)
        rc = matches(c, call, call->a[0], &yes);
    else
        for (size_t i = 0; i < call->a[0].as.l->n && !rc && !yes; i++)
            rc = matches(c, call, call->a[0].as.l->items[i], &yes);
    *out = jinja_bool(yes);
    return rc;
}

// isalpha and its like: every code point is of one class, and there is one at least.
static int is_all(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
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
    for (size_t at = 0; at < s->n && yes;) {
        uint32_t code = 0;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        yes = rows[row].what ? (norm_class(code) & rows[row].what) != 0 : jinja_code_is_space(code);
        at += (size_t)(len > 0 ? len : 1);
    }
    *out = jinja_bool(yes);
    return jinja_charge(c, s->n / 4);
}

static int is_plain(struct jinja_context *c, const struct jinja_call *call,
                    struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s;
    bool ascii = call->name[2] == 'a', yes = true;
    for (size_t at = 0; at < s->n && yes;) {
        uint32_t code = 0;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        yes = ascii ? code < 0x80 : norm_is_printable(code);
        at += (size_t)(len > 0 ? len : 1);
    }
    *out = jinja_bool(yes);
    return jinja_charge(c, s->n / 4);
}

// Blanks for tabs, up to the next multiple of the size in a line.
static int expand_tabs(struct jinja_context *c, const struct jinja_call *call,
                       struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s;
    int64_t size = 8, column = 0;
    int rc = call->a[0].kind ? jinja_want_int(c, call->a[0], "the size of tabs", &size) : 0;
    size_t mark = jinja_mark(c);
    for (size_t at = 0; at < s->n && !rc;) {
        uint32_t code = 0;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        size_t next = at + (size_t)(len > 0 ? len : 1);
        int64_t blanks = size > 0 ? size - column % size : 0;
        bool tab = code == '\t';
        rc = tab ? jinja_put_times(c, &space, blanks) : jinja_put_range(c, s, at, next);
        column = code == '\n' || code == '\r' ? 0 : column + (tab ? blanks : 1);
        at = next;
    }
    return rc ? rc : jinja_take(c, mark, out);
}

static int is_case(struct jinja_context *c, const struct jinja_call *call,
                   struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s;
    bool title = call->name[2] == 't', upper = call->name[2] == 'u';
    bool cased = false, good = true, inside = false;
    for (size_t at = 0; at < s->n;) {
        uint32_t code = 0;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        unsigned what = norm_class(code) & NORM_CASED;
        cased |= what != 0;
        if (title)
            good &= !what || (what == NORM_LOWER) == inside;
        else
            good &= !(what & (NORM_CASED ^ (upper ? NORM_UPPER : NORM_LOWER)));
        inside = what != 0;
        at += (size_t)(len > 0 ? len : 1);
    }
    *out = jinja_bool(cased && good);
    return jinja_charge(c, s->n / 4);
}

static int pad(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *fill = &space;
    int64_t width;
    int rc = jinja_want_int(c, call->a[0], "the width", &width);
    if (!rc && call->a[1].kind)
        rc = want_string(c, call, call->a[1], &fill);
    if (rc)
        return rc;
    if (jinja_chars(fill) != 1)
        return jinja_fail(c, ERR_USAGE, "the fill character must be exactly one character long");
    int64_t rest = width - (int64_t)jinja_chars(s), left = 0;
    if (rest <= 0)
        return give(c, s, out);
    if (call->name[0] == 'r')
        left = rest;
    else if (call->name[0] == 'c')
        left = rest / 2 + (rest & width & 1);
    size_t mark = jinja_mark(c);
    rc = jinja_put_times(c, fill, left);
    if (!rc)
        rc = jinja_put_string(c, s);
    if (!rc)
        rc = jinja_put_times(c, fill, rest - left);
    return rc ? rc : jinja_take(c, mark, out);
}

static int zero_fill(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    static const struct jinja_string zero = {.bytes = "0", .n = 1, .trusted = true};
    const struct jinja_string *s = call->self.as.s;
    int64_t width;
    int rc = jinja_want_int(c, call->a[0], "the width", &width);
    size_t mark = jinja_mark(c), sign = s->n > 0 && (s->bytes[0] == '-' || s->bytes[0] == '+');
    if (!rc)
        rc = jinja_put_range(c, s, 0, sign);
    if (!rc)
        rc = jinja_put_times(c, &zero, width - (int64_t)jinja_chars(s));
    if (!rc)
        rc = jinja_put_range(c, s, sign, s->n);
    return rc ? rc : jinja_take(c, mark, out);
}

static int partition(struct jinja_context *c, const struct jinja_call *call,
                     struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *part;
    bool last = call->name[0] == 'r';
    int rc = want_string(c, call, call->a[0], &part);
    if (!rc && part->n == 0)
        rc = jinja_fail(c, ERR_USAGE, "empty separator");
    *out = rc ? call->self : jinja_tuple(c, 3);
    if (rc || !out->kind)
        return c->e.code;
    struct jinja_value *items = out->as.l->items;
    size_t found;
    rc = last ? jinja_find_last(c, s, 0, s->n, part, &found)
              : jinja_find(c, s, 0, s->n, part, &found);
    size_t after = found + part->n;
    if (found == SIZE_MAX)
        found = after = last ? 0 : s->n;
    if (!rc)
        rc = jinja_substring(c, s, 0, found, items);
    if (!rc)
        rc = jinja_substring(c, s, found, after, items + 1);
    return rc ? rc : jinja_substring(c, s, after, s->n, items + 2);
}

static int remove_affix(struct jinja_context *c, const struct jinja_call *call,
                        struct jinja_value *out) {
    const struct jinja_string *s = call->self.as.s, *part;
    bool prefix = strcmp(call->name, "removeprefix") == 0;
    int rc = want_string(c, call, call->a[0], &part);
    if (rc)
        return rc;
    rc = jinja_charge(c, part->n / 64);
    if (rc)
        return rc;
    if (part->n > s->n || memcmp(s->bytes + (prefix ? 0 : s->n - part->n), part->bytes, part->n))
        return give(c, s, out);
    return jinja_substring(c, s, prefix ? part->n : 0, prefix ? s->n : s->n - part->n, out);
}

static int format(struct jinja_context *c, const struct jinja_call *call, struct jinja_value *out) {
    return jinja_brace(c, call->self.as.s, call->args, out);
}

const struct jinja_builtin jinja_methods_string[] = {
    {"strip", strip, "chars", 0},
    {"lstrip", strip, "chars", 0},
    {"rstrip", strip, "chars", 0},
    {"split", split, "sep maxsplit", 0},
    {"rsplit", split, "sep maxsplit", 0},
    {"splitlines", split_lines, "keepends", 0},
    {"startswith", starts, "prefix start end", 1},
    {"endswith", starts, "suffix start end", 1},
    {"replace", replace, "old new count", 2},
    {"upper", change_case, "", 0},
    {"lower", change_case, "", 0},
    {"title", change_case, "", 0},
    {"capitalize", change_case, "", 0},
    {"swapcase", change_case, "", 0},
    {"casefold", change_case, "", 0},
    {"join", join, "iterable", 1},
    {"format", format, NULL, 0},
    {"find", find, "sub start end", 1},
    {"rfind", find, "sub start end", 1},
    {"index", find, "sub start end", 1},
    {"rindex", find, "sub start end", 1},
    {"count", count, "sub start end", 1},
    {"isalpha", is_all, "", 0},
    {"isalnum", is_all, "", 0},
    {"isdigit", is_all, "", 0},
    {"isdecimal", is_all, "", 0},
    {"isnumeric", is_all, "", 0},
    {"isspace", is_all, "", 0},
    {"isascii", is_plain, "", 0},
    {"isprintable", is_plain, "", 0},
    {"expandtabs", expand_tabs, "tabsize", 0},
    {"isupper", is_case, "", 0},
    {"islower", is_case, "", 0},
    {"istitle", is_case, "", 0},
    {"center", pad, "width fillchar", 1},
    {"ljust", pad, "width fillchar", 1},
    {"rjust", pad, "width fillchar", 1},
    {"zfill", zero_fill, "width", 1},
    {"partition", partition, "sep", 1},
    {"rpartition", partition, "sep", 1},
    {"removeprefix", remove_affix, "prefix", 1},
    {"removesuffix", remove_affix, "suffix", 1},
    {NULL, NULL, NULL, 0},
};
