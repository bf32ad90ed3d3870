// SPDX-License-Identifier: Apache-2.0
// Python's two ways to fill values into text: % and str.format, as far as templates use them. The
// text keeps its provenance, and so do the values.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"
#include "text/jinja/eval/operators.h"
#include "text/jinja/value/access.h"
#include "text/jinja/value/compare.h"
#include "text/jinja/value/number.h"
#include "text/jinja/value/strings.h"
#include "text/jinja/value/text.h"

enum { WIDTH_MAX = 100000, PRECISION_MAX = 400, DIGITS_MAX = 800, GROUPED_MAX = 1200 };

struct spec {                // of one value, in either language
    struct jinja_value fill; // a string of one character; JINJA_ABSENT: a space
    char align;              // '<', '>', '^', '=', or 0
    char sign;               // '+', ' ' or 0
    bool alternate, zero;
    char comma;               // between groups of digits: ',', '_', or 0
    int64_t width, precision; // precision -1: none
    char type;                // letter, 0: none
};

static const struct jinja_string space = {.bytes = " ", .n = 1, .trusted = true};
static const struct jinja_string zero = {.bytes = "0", .n = 1, .trusted = true};

// Digits before a point with commas between groups of three, of four where the base is not ten.
static void group(const struct spec *f, const char *digits, char *out) {
    bool ten = !f->type || !strchr("xXob", f->type);
    size_t prefix = !ten && f->alternate ? 2 : 0;
    size_t n = strspn(digits + prefix, ten ? "0123456789" : "0123456789abcdefABCDEF");
    memcpy(out, digits, prefix);
    out += prefix;
    digits += prefix;
    for (size_t i = 0; i < n; i++) {
        if (i > 0 && (n - i) % (ten ? 3 : 4) == 0)
            *out++ = f->comma;
        *out++ = digits[i];
    }
    strcpy(out, digits + n);
}

static void binary(uint64_t v, char *out) {
    int n = 0;
    for (uint64_t rest = v; rest > 1; rest >>= 1)
        n++;
    for (int i = n; i >= 0; i--)
        *out++ = (char)('0' + ((v >> i) & 1));
    *out = 0;
}

// A number without its sign.
static int digits_of(struct jinja_context *c, const struct spec *f, struct jinja_value v,
                     char out[GROUPED_MAX]) {
    char plain[DIGITS_MAX], form[16];
    int precision = (int)(f->precision < 0 ? 6 : f->precision);
    if (f->type && strchr("eEfFgG%", f->type)) {
        double d = fabs(jinja_as_double(v)) * (f->type == '%' ? 100 : 1);
        // Digits of large numbers are the C library's arithmetic over all of them.
        if (jinja_charge(c, (size_t)precision + (d > 1e18 ? 300 : 0)))
            return c->e.code;
        snprintf(form, sizeof form, "%%%s.*%c", f->alternate ? "#" : "",
                 f->type == '%' ? 'f' : f->type);
        snprintf(plain, sizeof plain, form, precision, d);
        if (f->type == '%')
            strcat(plain, "%");
    } else if (v.kind == JINJA_BIG) {
        snprintf(plain, sizeof plain, "%s", v.as.s->bytes + (v.as.s->bytes[0] == '-'));
    } else {
        int64_t i = jinja_as_int(v);
        uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
        const char *prefix = !f->alternate    ? ""
                             : f->type == 'x' ? "0x"
                             : f->type == 'X' ? "0X"
                             : f->type == 'o' ? "0o"
                             : f->type == 'b' ? "0b"
                                              : "";
        char text[72];
        if (f->type == 'b')
            binary(u, text);
        else
            snprintf(text, sizeof text,
                     f->type == 'x'   ? "%llx"
                     : f->type == 'X' ? "%llX"
                     : f->type == 'o' ? "%llo"
                                      : "%llu",
                     (unsigned long long)u);
        snprintf(plain, sizeof plain, "%s%s", prefix, text);
    }
    if (v.kind == JINJA_BIG && v.as.s->n >= sizeof plain)
        return jinja_fail(c, ERR_LIMIT, "a number of %zu digits cannot be formatted", v.as.s->n);
    if (f->comma)
        group(f, plain, out);
    else
        strcpy(out, plain);
    return 0;
}

static bool is_negative(struct jinja_value v) {
    if (v.kind == JINJA_FLOAT)
        return signbit(v.as.d) && !isnan(v.as.d);
    return v.kind == JINJA_BIG ? v.as.s->bytes[0] == '-' : jinja_as_int(v) < 0;
}

// Puts `body` (a sign, then digits or text) padded to the width.
static int put_padded(struct jinja_context *c, const struct spec *f, const char *sign,
                      const struct jinja_string *body, char usual) {
    const struct jinja_string *fill = f->fill.kind ? f->fill.as.s : &space;
    char align = f->align ? f->align : usual;
    if (f->zero && !f->align && !f->fill.kind) {
        fill = &zero;
        align = '=';
    }
    int64_t pad = f->width - (int64_t)(strlen(sign) + jinja_chars(body));
    int64_t left = pad <= 0 || align == '<' ? 0 : align == '^' ? pad / 2 : pad;
    int rc = align == '=' ? jinja_puts(c, sign) : 0;
    if (!rc)
        rc = jinja_put_times(c, fill, left);
    if (!rc && align != '=')
        rc = jinja_puts(c, sign);
    if (!rc)
        rc = jinja_put_string(c, body);
    return rc ? rc : jinja_put_times(c, fill, pad - left);
}

static int put_number(struct jinja_context *c, const struct spec *f, struct jinja_value v) {
    char digits[GROUPED_MAX];
    int rc = digits_of(c, f, v, digits);
    const char *sign = is_negative(v) ? "-" : f->sign == '+' ? "+" : f->sign == ' ' ? " " : "";
    const struct jinja_string body = {
        .bytes = digits, .n = strlen(digits), .chars = SIZE_MAX, .trusted = !v.untrusted};
    return rc ? rc : put_padded(c, f, sign, &body, '>');
}

static int put_text(struct jinja_context *c, const struct spec *f, struct jinja_value v,
                    char usual) {
    if (f->precision >= 0) {
        int rc = jinja_substring(c, v.as.s, 0, jinja_byte_of(v.as.s, (size_t)f->precision), &v);
        if (rc)
            return rc;
    }
    return put_padded(c, f, "", v.as.s, usual);
}

static int repr_of(struct jinja_context *c, struct jinja_value v, struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = jinja_put_repr(c, v);
    return rc ? rc : jinja_take(c, mark, out);
}

// As repr, with escapes in place of what is no ASCII.
static int ascii_of(struct jinja_context *c, struct jinja_value v, struct jinja_value *out) {
    int rc = repr_of(c, v, out);
    if (rc)
        return rc;
    const struct jinja_string *s = out->as.s;
    size_t mark = jinja_mark(c), at = 0;
    while (at < s->n && !rc) {
        char escape[16];
        uint32_t code = 0;
        int len = utf8_decode(s->bytes + at, s->n - at, &code);
        size_t next = at + (size_t)(len > 0 ? len : 1);
        jinja_escape_code(code, escape);
        rc = code < 0x80 ? jinja_put_range(c, s, at, next)
                         : jinja_put(c, escape, strlen(escape), jinja_trusted_at(s, at));
        at = next;
    }
    return rc ? rc : jinja_take(c, mark, out);
}

static int converted(struct jinja_context *c, char how, struct jinja_value v,
                     struct jinja_value *out) {
    return how == 'r'   ? repr_of(c, v, out)
           : how == 'a' ? ascii_of(c, v, out)
           : how == 's' ? jinja_to_string(c, v, out)
                        : jinja_fail(c, ERR_USAGE, "unknown conversion in format()");
}

// An integer of %d and its like; floats are cut.
static int want_number(struct jinja_context *c, char type, struct jinja_value *v) {
    if (!jinja_is_number(*v))
        return jinja_fail(c, ERR_USAGE, "%%%c format: a number is required, not %s", type,
                          jinja_type(*v));
    if (v->kind != JINJA_FLOAT || strchr("eEfFgG", type))
        return 0;
    if (strchr("xXob", type))
        return jinja_fail(c, ERR_USAGE, "%%%c format: an integer is required, not float", type);
    bool untrusted = v->untrusted;
    int rc = jinja_cut(c, v->as.d, v);
    v->untrusted = untrusted;
    return rc;
}

static int put_character(struct jinja_context *c, const struct spec *f, struct jinja_value v) {
    if (v.kind == JINJA_STRING && jinja_chars(v.as.s) == 1)
        return put_text(c, f, v, '>');
    if (!jinja_is_integer(v) || jinja_as_int(v) < 0 || jinja_as_int(v) > 0x10FFFF)
        return jinja_fail(c, ERR_USAGE, "%%c requires int or char");
    size_t mark = jinja_mark(c);
    int rc = jinja_put_code(c, (uint32_t)jinja_as_int(v), !v.untrusted);
    if (!rc)
        rc = jinja_take(c, mark, &v);
    return rc ? rc : put_text(c, f, v, '>');
}

// % formatting

struct percent {
    struct jinja_context *c;
    const struct jinja_string *s;
    size_t at;
    struct jinja_value values;
    size_t used; // of a tuple, or of the one value
};

static int next_value(struct percent *p, struct jinja_value *out) {
    bool tuple = p->values.kind == JINJA_TUPLE;
    if (p->used >= (tuple ? p->values.as.l->n : 1))
        return jinja_fail(p->c, ERR_USAGE, "not enough arguments for format string");
    *out = tuple ? p->values.as.l->items[p->used] : p->values;
    p->used++;
    return 0;
}

static int read_number(struct percent *p, int64_t most, int64_t *out) {
    const struct jinja_string *s = p->s;
    if (p->at < s->n && s->bytes[p->at] == '*') {
        struct jinja_value v;
        p->at++;
        int rc = next_value(p, &v);
        if (!rc)
            rc = jinja_want_int(p->c, v, "* in a format", out);
        *out = min_i64(*out, most);
        return rc;
    }
    for (*out = 0; p->at < s->n && s->bytes[p->at] >= '0' && s->bytes[p->at] <= '9'; p->at++)
        *out = min_i64(*out * 10 + (s->bytes[p->at] - '0'), most);
    return 0;
}

// "(name)" behind a percent sign.
static int read_key(struct percent *p, struct jinja_value *value, bool *keyed) {
    const struct jinja_string *s = p->s;
    *keyed = p->at < s->n && s->bytes[p->at] == '(';
    if (!*keyed)
        return 0;
    const char *end = memchr(s->bytes + p->at, ')', s->n - p->at);
    if (!end)
        return jinja_fail(p->c, ERR_USAGE, "incomplete format key");
    if (p->values.kind != JINJA_DICT)
        return jinja_fail(p->c, ERR_USAGE, "format requires a mapping");
    const char *key = s->bytes + p->at + 1;
    const struct jinja_entry *e = jinja_dict_text(p->values.as.m, key, (size_t)(end - key));
    p->at = (size_t)(end - s->bytes) + 1;
    if (!e)
        return jinja_fail(p->c, ERR_USAGE, "the format names a key that is not given");
    *value = e->value;
    return 0;
}

static int read_spec(struct percent *p, struct spec *f) {
    const struct jinja_string *s = p->s;
    int rc;
    *f = (struct spec){.precision = -1};
    for (; p->at < s->n && strchr("-+ #0", s->bytes[p->at]) && s->bytes[p->at]; p->at++) {
        char flag = s->bytes[p->at];
        f->align = flag == '-' ? '<' : f->align;
        f->zero |= flag == '0';
        f->alternate |= flag == '#';
        f->sign = flag == '+' || (flag == ' ' && !f->sign) ? flag : f->sign;
    }
    rc = read_number(p, WIDTH_MAX, &f->width);
    if (!rc && f->width < 0) {
        f->align = '<';
        f->width = min_i64(-f->width, WIDTH_MAX);
    }
    if (!rc && p->at < s->n && s->bytes[p->at] == '.') {
        p->at++;
        rc = read_number(p, PRECISION_MAX, &f->precision);
        f->precision = max_i64(f->precision, 0);
    }
    while (p->at < s->n && strchr("hlL", s->bytes[p->at]) && s->bytes[p->at])
        p->at++;
    if (!rc && p->at >= s->n)
        rc = jinja_fail(p->c, ERR_USAGE, "incomplete format");
    f->type = rc ? 0 : s->bytes[p->at++];
    return rc;
}

static int put_percent(struct percent *p) {
    struct jinja_context *c = p->c;
    struct jinja_value v = {0};
    struct spec f;
    bool keyed;
    int rc = read_key(p, &v, &keyed);
    if (!rc)
        rc = read_spec(p, &f);
    if (rc || f.type == '%')
        return rc ? rc : jinja_put(c, "%", 1, jinja_trusted_at(p->s, p->at - 1));
    if (!strchr("sradiuxXoeEfFgGc", f.type))
        return jinja_fail(c, ERR_USAGE, "unsupported format character '%c'", f.type);
    if (!keyed)
        rc = next_value(p, &v);
    if (rc)
        return rc;
    if (f.type == 'c')
        return put_character(c, &f, v);
    if (f.type == 's' || f.type == 'r' || f.type == 'a') {
        f.zero = false;
        rc = converted(c, f.type, v, &v);
        return rc ? rc : put_text(c, &f, v, '>');
    }
    f.type = strchr("diu", f.type) ? 'd' : f.type;
    rc = want_number(c, f.type, &v);
    return rc ? rc : put_number(c, &f, v);
}

int jinja_percent(struct jinja_context *c, const struct jinja_string *text,
                  struct jinja_value values, struct jinja_value *out) {
    struct percent p = {.c = c, .s = text, .values = values};
    size_t mark = jinja_mark(c);
    int rc = 0;
    while (p.at < text->n && !rc) {
        const char *next = memchr(text->bytes + p.at, '%', text->n - p.at);
        size_t end = next ? (size_t)(next - text->bytes) : text->n;
        rc = jinja_put_range(c, text, p.at, end);
        p.at = end + (next != NULL);
        if (!rc && next)
            rc = put_percent(&p);
    }
    bool loose = values.kind == JINJA_DICT || values.kind == JINJA_LIST ||
                 values.kind == JINJA_RANGE || values.kind == JINJA_UNDEFINED; // mappings to Python
    if (!rc && !loose && p.used < (values.kind == JINJA_TUPLE ? values.as.l->n : 1))
        rc = jinja_fail(c, ERR_USAGE, "not all arguments converted during string formatting");
    return rc ? rc : jinja_take(c, mark, out);
}

// str.format

struct brace {
    struct jinja_context *c;
    const struct jinja_args *args;
    int next;     // the next automatic place
    bool numbers; // places are given by number
    bool inside;  // of another field's form
};

static int first_value(struct brace *b, const char *name, size_t n, struct jinja_value *v) {
    struct jinja_value place = {0};
    bool number = n > 0 && name[0] >= '0' && name[0] <= '9';
    if ((n == 0 && b->numbers) || (number && b->next > 0))
        return jinja_fail(b->c, ERR_USAGE, "format() has fields with numbers and without");
    b->numbers |= number;
    if (n == 0)
        place = jinja_int(b->next++);
    else if (!number || !jinja_read_integer(b->c, name, n, 10, &place)) {
        for (int i = 0; i < b->args->n_named; i++) {
            const struct jinja_string *key = b->args->named[i].key.as.s;
            if (key->n == n && memcmp(key->bytes, name, n) == 0) {
                *v = b->args->named[i].value;
                return 0;
            }
        }
        return jinja_fail(b->c, ERR_USAGE, "format() is not given '%.*s'", (int)(n > 60 ? 60 : n),
                          name);
    }
    if (place.kind != JINJA_INT || place.as.i >= b->args->n)
        return jinja_fail(b->c, ERR_USAGE,
                          "Replacement index out of range for positional args tuple");
    *v = b->args->pos[place.as.i];
    return 0;
}

// name, then ".attribute" and "[item]" as often as wanted.
static int field_value(struct brace *b, const char *s, size_t n, struct jinja_value *v) {
    size_t at = 0;
    while (at < n && s[at] != '.' && s[at] != '[')
        at++;
    int rc = first_value(b, s, at, v);
    while (!rc && at < n) {
        bool item = s[at] == '[';
        size_t from = ++at;
        while (at < n && (item ? s[at] != ']' : s[at] != '.' && s[at] != '['))
            at++;
        struct jinja_value key = {0};
        bool number = item && at > from && s[from] >= '0' && s[from] <= '9' &&
                      jinja_read_integer(b->c, s + from, at - from, 10, &key);
        if (!number)
            key = jinja_string(b->c, s + from, at - from, false);
        if (!key.kind)
            return b->c->e.code;
        rc = item ? jinja_get_item(b->c, *v, key, v) : jinja_get_attribute(b->c, *v, key, v);
        at += item;
    }
    return rc;
}

static int parse_spec(struct jinja_context *c, const struct jinja_string *s, struct spec *f) {
    size_t at = 0, first = s->n ? jinja_byte_of(s, 1) : 0;
    *f = (struct spec){.precision = -1};
    if (first < s->n && first > 0 && strchr("<>^=", s->bytes[first])) {
        int rc = jinja_substring(c, s, 0, first, &f->fill);
        if (rc)
            return rc;
        f->align = s->bytes[first];
        at = first + 1;
    } else if (s->n && strchr("<>^=", s->bytes[0])) {
        f->align = s->bytes[at++];
    }
    if (at < s->n && strchr("+- ", s->bytes[at])) {
        f->sign = s->bytes[at] == '-' ? (char)0 : s->bytes[at];
        at++;
    }
    if (at < s->n && s->bytes[at] == '#')
        f->alternate = at++ < s->n;
    if (at < s->n && s->bytes[at] == '0')
        f->zero = at++ < s->n;
    for (; at < s->n && s->bytes[at] >= '0' && s->bytes[at] <= '9'; at++)
        f->width = min_i64(f->width * 10 + (s->bytes[at] - '0'), WIDTH_MAX);
    if (at < s->n && (s->bytes[at] == ',' || s->bytes[at] == '_'))
        f->comma = s->bytes[at++];
    if (at < s->n && s->bytes[at] == '.') {
        at++;
        for (f->precision = 0; at < s->n && s->bytes[at] >= '0' && s->bytes[at] <= '9'; at++)
            f->precision = min_i64(f->precision * 10 + (s->bytes[at] - '0'), PRECISION_MAX);
    }
    f->type = at < s->n ? s->bytes[at++] : 0;
    bool grouped =
        !f->comma || !f->type || strchr(f->comma == ',' ? "deEfFgG%" : "deEfFgG%xXob", f->type);
    if (at < s->n || (f->type && !strchr("sdxXobceEfFgG%n", f->type)) || !grouped)
        return jinja_fail(c, ERR_USAGE, "Invalid format specifier '%.60s'", s->bytes);
    return 0;
}

static int put_formatted(struct jinja_context *c, struct jinja_value v,
                         const struct jinja_string *spec) {
    struct spec f;
    int rc = parse_spec(c, spec, &f);
    if (rc)
        return rc;
    if (spec->n == 0)
        return jinja_put_str(c, v);
    bool number = jinja_is_number(v);
    if (f.zero && !f.fill.kind) { // before the width it only says what to fill with
        f.fill = (struct jinja_value){.kind = JINJA_STRING, .as.s = &zero};
        f.align = number && !f.align ? '=' : f.align;
    }
    if (v.kind == JINJA_FLOAT && !f.type && f.precision < 0) { // as repr, but padded
        char plain[JINJA_FLOAT_TEXT], text[2 * JINJA_FLOAT_TEXT];
        jinja_float_text(fabs(v.as.d), plain);
        if (f.comma)
            group(&f, plain, text);
        else
            strcpy(text, plain);
        const struct jinja_string body = {
            .bytes = text, .n = strlen(text), .chars = SIZE_MAX, .trusted = !v.untrusted};
        return put_padded(c, &f, is_negative(v) ? "-" : f.sign == '+' ? "+" : "", &body, '>');
    }
    if (number) {
        f.type = f.type ? f.type : v.kind == JINJA_FLOAT ? 'g' : 'd';
        f.type = f.type == 'n' ? 'd' : f.type;
        bool fits = v.kind != JINJA_FLOAT || strchr("eEfFgG%", f.type);
        if (!fits || f.type == 's' || (f.precision >= 0 && !strchr("eEfFgG%", f.type)))
            return jinja_fail(c, ERR_USAGE, "format code '%c' does not fit an object of type '%s'",
                              f.type, jinja_type(v));
        return f.type == 'c' ? put_character(c, &f, v) : put_number(c, &f, v);
    }
    if (v.kind != JINJA_STRING || (f.type && f.type != 's') || f.align == '=' || f.sign)
        return jinja_fail(c, ERR_USAGE, "unsupported format string for an object of type '%s'",
                          jinja_type(v));
    return put_text(c, &f, v, '<');
}

static int put_fields(struct brace *b, const struct jinja_string *text);

// The form of a field, in which fields may stand.
static int field_form(struct brace *b, const struct jinja_string *s, size_t from, size_t to,
                      struct jinja_value *form) {
    int rc = jinja_substring(b->c, s, from, to, form);
    if (rc || !memchr(s->bytes + from, '{', to - from))
        return rc;
    if (b->inside)
        return jinja_fail(b->c, ERR_USAGE, "Max string recursion exceeded");
    size_t mark = jinja_mark(b->c);
    b->inside = true;
    rc = put_fields(b, form->as.s);
    b->inside = false;
    return rc ? rc : jinja_take(b->c, mark, form);
}

// One field between its braces.
static int put_field(struct brace *b, const struct jinja_string *s, size_t from, size_t to) {
    size_t colon = from, bracket = 0;
    while (colon < to && (bracket || (s->bytes[colon] != ':' && s->bytes[colon] != '!'))) {
        bracket = s->bytes[colon] == '[' ? 1 : s->bytes[colon] == ']' ? 0 : bracket;
        colon++;
    }
    struct jinja_value v, spec;
    int rc = field_value(b, s->bytes + from, colon - from, &v);
    if (!rc && colon < to && s->bytes[colon] == '!') {
        rc = converted(b->c, colon + 1 < to ? s->bytes[colon + 1] : (char)0, v, &v);
        colon += 2;
    }
    if (!rc)
        rc = field_form(b, s, colon < to ? colon + 1 : to, to, &spec);
    return rc ? rc : put_formatted(b->c, v, spec.as.s);
}

// Where the brace of a field that begins at `at` closes; SIZE_MAX: nowhere.
static size_t field_end(const struct jinja_string *s, size_t at) {
    for (int depth = 1; at < s->n; at++) {
        depth += (s->bytes[at] == '{') - (s->bytes[at] == '}');
        if (depth == 0)
            return at;
    }
    return SIZE_MAX;
}

static int put_fields(struct brace *b, const struct jinja_string *text) {
    struct jinja_context *c = b->c;
    size_t at = 0;
    int rc = 0;
    while (at < text->n && !rc) {
        size_t plain = at + strcspn(text->bytes + at, "{}");
        plain = min_size(plain, text->n);
        bool twice = plain + 1 < text->n && text->bytes[plain + 1] == text->bytes[plain];
        rc = jinja_put_range(c, text, at, plain + twice);
        at = plain + 1 + twice;
        if (rc || twice || plain >= text->n)
            continue;
        size_t end = text->bytes[plain] == '{' ? field_end(text, at) : SIZE_MAX;
        if (end == SIZE_MAX)
            return jinja_fail(c, ERR_USAGE, "a single '%c' stands in a format string",
                              text->bytes[plain]);
        rc = put_field(b, text, at, end);
        at = end + 1;
    }
    return rc;
}

int jinja_brace(struct jinja_context *c, const struct jinja_string *text,
                const struct jinja_args *args, struct jinja_value *out) {
    struct brace b = {.c = c, .args = args};
    size_t mark = jinja_mark(c);
    int rc = put_fields(&b, text);
    return rc ? rc : jinja_take(c, mark, out);
}
