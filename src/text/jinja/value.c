// SPDX-License-Identifier: Apache-2.0
// Memory, errors, the output, strings and numbers; see value.h. Small values come from blocks that
// the arena gives, nothing is freed before the context. Strings are written at the end of the
// output, where runs of equal provenance join by themselves, and are then copied off it in one
// piece. The shortest digits of a float are found by trying precisions, which libc rounds exactly.
#include "text/jinja/value.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"

enum { BLOCK = 16384, ALIGN = 16, BYTES_PER_STEP = 64 };

int jinja_fail(struct jinja_context *c, int code, const char *fmt, ...) {
    if (c->e.code)
        return c->e.code;
    char text[sizeof c->e.text];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(&c->e, code, "%s", text);
}

enum { CANCEL_STEPS = 1 << 14 }; // between checks whether the result is still needed

int jinja_charge(struct jinja_context *c, size_t steps) {
    if (steps > (size_t)(c->limits.steps - c->steps)) {
        c->steps = c->limits.steps;
        return jinja_fail(c, ERR_LIMIT, "the template does more than %lld steps; it may never end",
                          (long long)c->limits.steps);
    }
    int64_t checked = c->steps / CANCEL_STEPS;
    c->steps += (int64_t)steps;
    if (c->steps / CANCEL_STEPS != checked && cancel_requested(c->limits.cancel))
        return jinja_fail(c, ERR_CANCELLED, "the text of the template is not needed any more");
    return 0;
}

int jinja_enter(struct jinja_context *c) {
    if (c->depth >= c->limits.depth)
        return jinja_fail(c, ERR_LIMIT, "the template or its data nests deeper than %d levels",
                          c->limits.depth);
    c->depth++;
    return 0;
}

void jinja_leave(struct jinja_context *c) {
    c->depth--;
}

static void *take_memory(struct jinja_context *c, size_t size) {
    void *p = NULL;
    if (c->arena.total <= c->limits.memory && size <= c->limits.memory - c->arena.total)
        p = arena_alloc(&c->arena, size);
    else
        jinja_fail(c, ERR_LIMIT, "the template needs more than %zu MiB of memory",
                   c->limits.memory >> 20);
    if (!p)
        jinja_fail(c, ERR_MEMORY, "no memory to render the template");
    return p;
}

void *jinja_alloc(struct jinja_context *c, size_t size) {
    if (size > SIZE_MAX / 4) {
        jinja_fail(c, ERR_LIMIT, "the template makes a value that no memory can hold");
        return NULL;
    }
    if (jinja_charge(c, size / BYTES_PER_STEP))
        return NULL;
    size_t needed = round_up_size(max_size(size, 1), ALIGN);
    if (needed > BLOCK / 4)
        return take_memory(c, needed);
    if (needed > c->left) {
        c->at = take_memory(c, BLOCK);
        c->left = c->at ? BLOCK : 0;
        if (!c->at)
            return NULL;
    }
    void *p = c->at;
    c->at += needed;
    c->left -= needed;
    return p;
}

void *jinja_array(struct jinja_context *c, size_t count, size_t size) {
    size_t bytes;
    if (__builtin_mul_overflow(count, size, &bytes))
        bytes = SIZE_MAX;
    return jinja_alloc(c, bytes);
}

// Output.

static int grow_out(struct jinja_context *c, size_t n) {
    if (n > c->limits.output - c->out.len)
        return jinja_fail(c, ERR_LIMIT, "the template writes more than %zu KiB of text",
                          c->limits.output >> 10);
    size_t needed = c->out.len + n;
    if (needed <= c->out.cap)
        return 0;
    size_t cap = max_size(needed, max_size(4096, 2 * c->out.cap));
    char *data = realloc(c->out.data, cap);
    if (!data)
        return jinja_fail(c, ERR_MEMORY, "no memory for %zu bytes of rendered text", needed);
    c->out.data = data;
    c->out.cap = cap;
    return 0;
}

static int extend_spans(struct jinja_context *c, bool trusted) {
    if (c->out.n_spans > 0 && c->out.spans[c->out.n_spans - 1].trusted == trusted) {
        c->out.spans[c->out.n_spans - 1].end = c->out.len;
        return 0;
    }
    if (c->out.n_spans == c->out.cap_spans) {
        size_t cap = max_size(64, 2 * c->out.cap_spans);
        struct jinja_span *spans = realloc(c->out.spans, cap * sizeof *spans);
        if (!spans)
            return jinja_fail(c, ERR_MEMORY, "no memory for %zu spans of rendered text", cap);
        c->out.spans = spans;
        c->out.cap_spans = cap;
    }
    c->out.spans[c->out.n_spans++] = (struct jinja_span){.end = c->out.len, .trusted = trusted};
    return 0;
}

int jinja_put(struct jinja_context *c, const char *bytes, size_t n, bool trusted) {
    if (n == 0)
        return 0;
    int rc = grow_out(c, n);
    if (rc)
        return rc;
    memcpy(c->out.data + c->out.len, bytes, n);
    c->out.len += n;
    return extend_spans(c, trusted);
}

int jinja_puts(struct jinja_context *c, const char *text) {
    return jinja_put(c, text, strlen(text), true);
}

int jinja_put_range(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to) {
    if (!s->spans)
        return jinja_put(c, s->bytes + from, to - from, s->trusted);
    int rc = 0;
    for (size_t i = 0; i < s->n_spans && from < to && !rc; i++) {
        if (s->spans[i].end <= from)
            continue;
        size_t end = min_size(s->spans[i].end, to);
        rc = jinja_put(c, s->bytes + from, end - from, s->spans[i].trusted);
        from = end;
    }
    return rc;
}

int jinja_put_string(struct jinja_context *c, const struct jinja_string *s) {
    return jinja_put_range(c, s, 0, s->n);
}

int jinja_put_code(struct jinja_context *c, uint32_t code, bool trusted) {
    char b[4];
    size_t n = (size_t)utf8_encode(b, code);
    return jinja_put(c, b, n, trusted);
}

size_t jinja_mark(const struct jinja_context *c) {
    return c->out.len;
}

// The first span that ends beyond a position; mark < len.
static size_t span_of(const struct jinja_context *c, size_t mark) {
    size_t i = c->out.n_spans - 1;
    while (i > 0 && c->out.spans[i - 1].end > mark)
        i--;
    return i;
}

void jinja_drop(struct jinja_context *c, size_t mark) {
    c->out.len = mark;
    while (c->out.n_spans > 0) {
        size_t begin = c->out.n_spans > 1 ? c->out.spans[c->out.n_spans - 2].end : 0;
        if (begin < mark) {
            c->out.spans[c->out.n_spans - 1].end =
                min_size(c->out.spans[c->out.n_spans - 1].end, mark);
            return;
        }
        c->out.n_spans--;
    }
}

int jinja_take(struct jinja_context *c, size_t mark, struct jinja_value *out) {
    size_t n = c->out.len - mark, first = n ? span_of(c, mark) : 0;
    size_t n_spans = n ? c->out.n_spans - first : 0;
    struct jinja_string *s = jinja_alloc(c, sizeof *s + n + 1);
    if (!s)
        return c->e.code;
    *s = (struct jinja_string){.bytes = (char *)(s + 1), .n = n, .chars = SIZE_MAX};
    if (n)
        memcpy(s + 1, c->out.data + mark, n);
    s->trusted = n_spans == 0 || c->out.spans[first].trusted;
    if (n_spans > 1) {
        struct jinja_span *spans = jinja_array(c, n_spans, sizeof *spans);
        if (!spans)
            return c->e.code;
        for (size_t i = 0; i < n_spans; i++)
            spans[i] = (struct jinja_span){.end = c->out.spans[first + i].end - mark,
                                           .trusted = c->out.spans[first + i].trusted};
        s->spans = spans;
        s->n_spans = n_spans;
    }
    jinja_drop(c, mark);
    *out = (struct jinja_value){.kind = JINJA_STRING, .as.s = s};
    return 0;
}

// Strings.

struct jinja_value jinja_string(struct jinja_context *c, const char *bytes, size_t n,
                                bool untrusted) {
    struct jinja_string *s = n < SIZE_MAX / 4 ? jinja_alloc(c, sizeof *s + n + 1) : NULL;
    if (!s)
        return (struct jinja_value){0};
    *s = (struct jinja_string){
        .bytes = (char *)(s + 1), .n = n, .chars = SIZE_MAX, .trusted = !untrusted};
    if (n)
        memcpy(s + 1, bytes, n);
    return (struct jinja_value){.kind = JINJA_STRING, .as.s = s};
}

struct jinja_value jinja_joined(struct jinja_context *c, const struct jinja_value *strings,
                                size_t n) {
    struct jinja_value out = {0};
    size_t mark = jinja_mark(c);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++)
        rc = strings[i].kind == JINJA_STRING ? jinja_put_string(c, strings[i].as.s) : ERR_FORMAT;
    if (rc)
        jinja_drop(c, mark);
    else if (jinja_take(c, mark, &out))
        out = (struct jinja_value){0};
    return out;
}

struct jinja_value jinja_text(struct jinja_context *c, const char *text) {
    return jinja_string(c, text, strlen(text), false);
}

int jinja_substring(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to,
                    struct jinja_value *out) {
    if (s->spans) {
        size_t mark = jinja_mark(c);
        int rc = jinja_put_range(c, s, from, to);
        return rc ? rc : jinja_take(c, mark, out);
    }
    *out = jinja_string(c, s->bytes + from, to - from, !s->trusted);
    return out->kind ? 0 : c->e.code;
}

size_t jinja_chars(const struct jinja_string *s) {
    if (s->chars == SIZE_MAX) // only in strings that belong to one context
        ((struct jinja_string *)(uintptr_t)s)->chars = utf8_count(s->bytes, s->n);
    return s->chars;
}

size_t jinja_byte_of(const struct jinja_string *s, size_t chars) {
    if (jinja_chars(s) == s->n || chars == 0)
        return min_size(chars, s->n);
    if (chars >= s->chars)
        return s->n;
    size_t at = 0;
    for (; chars > 0; chars--)
        at = jinja_code_after(s, at);
    return at;
}

bool jinja_trusted_at(const struct jinja_string *s, size_t byte) {
    if (!s->spans)
        return s->trusted;
    size_t i = 0;
    while (i + 1 < s->n_spans && s->spans[i].end <= byte)
        i++;
    return s->spans[i].trusted;
}

bool jinja_all_trusted(const struct jinja_string *s) {
    return !s->spans && s->trusted;
}

bool jinja_same_text(const struct jinja_string *a, const struct jinja_string *b) {
    return a == b || (a->n == b->n && memcmp(a->bytes, b->bytes, a->n) == 0);
}

bool jinja_is_text(struct jinja_value v, const char *text) {
    return v.kind == JINJA_STRING && v.as.s->n == strlen(text) &&
           memcmp(v.as.s->bytes, text, v.as.s->n) == 0;
}

uint32_t jinja_code_at(const struct jinja_string *s, size_t byte, size_t *len) {
    uint32_t code = 0xFFFD;
    int n = utf8_decode(s->bytes + byte, s->n - byte, &code);
    *len = n > 0 ? (size_t)n : 1;
    return code;
}

static bool continues(char byte) { // a code point
    return ((unsigned char)byte & 0xC0) == 0x80;
}

size_t jinja_code_after(const struct jinja_string *s, size_t byte) {
    for (byte++; byte < s->n && continues(s->bytes[byte]);)
        byte++;
    return byte;
}

size_t jinja_code_before(const struct jinja_string *s, size_t byte) {
    for (byte--; byte > 0 && continues(s->bytes[byte]);)
        byte--;
    return byte;
}

bool jinja_code_is_space(uint32_t c) {
    return (c >= 9 && c <= 13) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 ||
           c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 ||
           c == 0x202F || c == 0x205F || c == 0x3000;
}

// Other values.

struct jinja_value jinja_none(void) {
    return (struct jinja_value){.kind = JINJA_NONE};
}

struct jinja_value jinja_bool(bool b) {
    return (struct jinja_value){.kind = JINJA_BOOL, .as.b = b};
}

struct jinja_value jinja_int(int64_t i) {
    return (struct jinja_value){.kind = JINJA_INT, .as.i = i};
}

struct jinja_value jinja_float(double d, bool untrusted) {
    return (struct jinja_value){.kind = JINJA_FLOAT, .untrusted = untrusted, .as.d = d};
}

static struct jinja_value undefined_of(struct jinja_context *c, struct jinja_undefined what) {
    struct jinja_undefined *u = jinja_alloc(c, sizeof *u);
    if (!u)
        return (struct jinja_value){0};
    *u = what;
    return (struct jinja_value){.kind = JINJA_UNDEFINED, .as.p = u};
}

struct jinja_value jinja_undefined(struct jinja_context *c, const char *hint) {
    return undefined_of(c, (struct jinja_undefined){.hint = hint});
}

int jinja_fail_unsupported(struct jinja_context *c, const char *what,
                           const struct jinja_string *name) {
    return jinja_fail(c, ERR_USAGE, "the %s '%.60s' is not supported here", what, name->bytes);
}

// Whether one of the words, each between blanks, is the name.
static bool has_word(const char *words, const struct jinja_string *name) {
    const char *at = memmem(words, strlen(words), name->bytes, name->n);
    return at && at > words && name->n > 0 && at[-1] == ' ' && at[name->n] == ' ';
}

struct jinja_value jinja_missing(struct jinja_context *c, struct jinja_value of,
                                 struct jinja_value name) {
    static const struct {
        enum jinja_kind of; // JINJA_ABSENT: a variable
        const char *what, *names;
    } rows[] = {
        {JINJA_ABSENT, "function", " cycler joiner lipsum "},
        {JINJA_LOOP, "attribute of loop", " changed cycle depth depth0 "},
        {JINJA_MACRO, "attribute of a macro", " arguments caller catch_kwargs catch_varargs name "},
        {JINJA_LIST, "method of lists", " count index "},
        {JINJA_TUPLE, "method of tuples", " count index "},
        {JINJA_STRING, "method of strings",
         " casefold center encode expandtabs format format_map isascii isidentifier islower "
         "isprintable istitle isupper ljust maketrans partition rjust rpartition swapcase "
         "translate zfill "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows && name.kind == JINJA_STRING; i++)
        if (rows[i].of == of.kind && has_word(rows[i].names, name.as.s)) {
            jinja_fail_unsupported(c, rows[i].what, name.as.s);
            return (struct jinja_value){0};
        }
    return undefined_of(c, (struct jinja_undefined){.of = of, .name = name});
}

const char *jinja_type(struct jinja_value v) {
    static const char *const names[] = {
        [JINJA_ABSENT] = "nothing",
        [JINJA_UNDEFINED] = "Undefined",
        [JINJA_NONE] = "NoneType",
        [JINJA_BOOL] = "bool",
        [JINJA_INT] = "int",
        [JINJA_BIG] = "int",
        [JINJA_FLOAT] = "float",
        [JINJA_STRING] = "str",
        [JINJA_LIST] = "list",
        [JINJA_TUPLE] = "tuple",
        [JINJA_DICT] = "dict",
        [JINJA_NAMESPACE] = "Namespace",
        [JINJA_RANGE] = "range",
        [JINJA_VIEW] = "dict view",
        [JINJA_ITERATOR] = "generator",
        [JINJA_MACRO] = "Macro",
        [JINJA_METHOD] = "method",
        [JINJA_FUNCTION] = "function",
        [JINJA_LOOP] = "LoopContext",
    };
    return names[v.kind];
}

int jinja_fail_undefined(struct jinja_context *c, struct jinja_value v) {
    const struct jinja_undefined *u = v.as.p;
    char name[208];
    if (u->hint)
        return jinja_fail(c, ERR_USAGE, "%s", u->hint);
    if (u->name.kind == JINJA_STRING)
        snprintf(name, sizeof name, "'%.200s'", u->name.as.s->bytes);
    else if (u->name.kind == JINJA_INT)
        snprintf(name, sizeof name, "%lld", (long long)u->name.as.i);
    else
        snprintf(name, sizeof name, "of type '%s'", jinja_type(u->name));
    if (u->of.kind == JINJA_ABSENT)
        return jinja_fail(c, ERR_USAGE, "%s is undefined", name);
    if (u->of.kind == JINJA_NONE)
        return jinja_fail(c, ERR_USAGE, "None has no attribute %s", name);
    return jinja_fail(c, ERR_USAGE, "'%s object' has no %s %s", jinja_type(u->of),
                      u->name.kind == JINJA_STRING ? "attribute" : "element", name);
}

// Digits and exponent (of the first digit) of the shortest text that reads back as d > 0.
static int shortest_digits(double d, char digits[24], int *exponent) {
    char text[40];
    for (int precision = 0; precision < 17; precision++) {
        snprintf(text, sizeof text, "%.*e", precision, d);
        if (precision == 16 || strtod(text, NULL) == d)
            break;
    }
    char *e = strchr(text, 'e');
    *exponent = atoi(e + 1);
    int n = 0;
    for (const char *p = text; p < e; p++)
        if (*p != '.')
            digits[n++] = *p;
    while (n > 1 && digits[n - 1] == '0')
        n--;
    digits[n] = 0;
    return n;
}

void jinja_float_text(double d, char out[JINJA_FLOAT_TEXT]) {
    if (!isfinite(d)) {
        strcpy(out, isnan(d) ? "nan" : d < 0 ? "-inf" : "inf");
        return;
    }
    const char *sign = signbit(d) ? "-" : "";
    d = fabs(d);
    if (d == floor(d) && d < 1e15) {
        snprintf(out, JINJA_FLOAT_TEXT, "%s%.1f", sign, d);
        return;
    }
    char digits[24];
    int exponent, n = shortest_digits(d, digits, &exponent);
    if (exponent < -4 || exponent >= 16)
        snprintf(out, JINJA_FLOAT_TEXT, "%s%c%s%se%c%02d", sign, digits[0], n > 1 ? "." : "",
                 digits + 1, exponent < 0 ? '-' : '+', abs(exponent));
    else if (exponent < 0)
        snprintf(out, JINJA_FLOAT_TEXT, "%s0.%.*s%s", sign, -exponent - 1, "000", digits);
    else if (n <= exponent + 1)
        snprintf(out, JINJA_FLOAT_TEXT, "%s%s%.*s.0", sign, digits, exponent + 1 - n,
                 "0000000000000000");
    else
        snprintf(out, JINJA_FLOAT_TEXT, "%s%.*s.%s", sign, exponent + 1, digits,
                 digits + exponent + 1);
}

int64_t jinja_as_int(struct jinja_value v) {
    return v.kind == JINJA_INT ? v.as.i : v.kind == JINJA_BOOL ? v.as.b : 0;
}

double jinja_as_double(struct jinja_value v) {
    if (v.kind == JINJA_FLOAT)
        return v.as.d;
    return v.kind == JINJA_BIG ? strtod(v.as.s->bytes, NULL) : (double)jinja_as_int(v);
}

bool jinja_is_integer(struct jinja_value v) {
    return v.kind == JINJA_BOOL || v.kind == JINJA_INT || v.kind == JINJA_BIG;
}

bool jinja_is_number(struct jinja_value v) {
    return jinja_is_integer(v) || v.kind == JINJA_FLOAT;
}

bool jinja_is_true(struct jinja_value v) {
    switch ((enum jinja_kind)v.kind) {
    case JINJA_ABSENT:
    case JINJA_UNDEFINED:
    case JINJA_NONE:
        return false;
    case JINJA_BOOL:
        return v.as.b;
    case JINJA_INT:
        return v.as.i != 0;
    case JINJA_FLOAT:
        return v.as.d != 0;
    case JINJA_STRING:
        return v.as.s->n > 0;
    case JINJA_LIST:
    case JINJA_TUPLE:
        return v.as.l->n > 0;
    case JINJA_DICT:
        return v.as.m->n > 0;
    case JINJA_RANGE:
        return ((struct jinja_range *)v.as.p)->n > 0;
    case JINJA_VIEW:
        return ((struct jinja_view *)v.as.p)->of->n > 0;
    default:
        return true;
    }
}

// Reading.

static void strip_ascii(const char **s, size_t *n) {
    while (*n > 0 && strchr(" \t\n\r\f\v", (*s)[0]) && (*s)[0]) {
        (*s)++;
        (*n)--;
    }
    while (*n > 0 && strchr(" \t\n\r\f\v", (*s)[*n - 1]) && (*s)[*n - 1])
        (*n)--;
}

bool jinja_parse_integer(const char *s, size_t n, int64_t *out, bool *over) {
    strip_ascii(&s, &n);
    bool negative = n > 0 && s[0] == '-', digit = false;
    uint64_t v = 0;
    *over = false;
    for (size_t i = n > 0 && (s[0] == '-' || s[0] == '+'); i < n; i++) {
        if (s[i] == '_' && digit && i + 1 < n) {
            digit = false;
            continue;
        }
        if (s[i] < '0' || s[i] > '9')
            return false;
        digit = true;
        *over |= __builtin_mul_overflow(v, 10, &v) ||
                 __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v);
    }
    *over |= v > (uint64_t)INT64_MAX + negative;
    *out = negative ? (int64_t)(0 - v) : (int64_t)v;
    return digit;
}

bool jinja_parse_float(const char *s, size_t n, double *out) {
    strip_ascii(&s, &n);
    char text[400];
    size_t len = 0;
    bool digit = false;
    if (n == 0 || n >= sizeof text)
        return false;
    for (size_t i = 0; i < n; i++) {
        bool now = s[i] >= '0' && s[i] <= '9';
        if (s[i] == '_' && digit && i + 1 < n && s[i + 1] >= '0' && s[i + 1] <= '9')
            continue;
        if (!now && !strchr("+-.eEinfatyINFATY", s[i]))
            return false;
        digit = now;
        text[len++] = s[i];
    }
    text[len] = 0;
    if (memchr(text, '(', len))
        return false;
    char *end;
    *out = strtod(text, &end);
    return end == text + len;
}

// Arithmetic.

int jinja_fail_big(struct jinja_context *c) {
    return jinja_fail(c, ERR_LIMIT, "the template calculates with an integer beyond 64 bits");
}

static int64_t floor_div(int64_t a, int64_t b) {
    int64_t q = a / b;
    return q * b != a && (a < 0) != (b < 0) ? q - 1 : q;
}

static double floor_mod(double a, double b) {
    double m = fmod(a, b);
    if (m == 0)
        return copysign(0, b);
    return (m < 0) != (b < 0) ? m + b : m;
}

static double floor_div_float(double a, double b) {
    double mod = fmod(a, b), div = (a - mod) / b;
    if (mod != 0 && (b < 0) != (mod < 0))
        div -= 1;
    if (div == 0)
        return copysign(0, a / b);
    return div - floor(div) > 0.5 ? floor(div) + 1 : floor(div);
}

static int with_ints(struct jinja_context *c, char op, int64_t a, int64_t b, int64_t *r) {
    bool over = false;
    switch (op) {
    case '+':
        over = __builtin_add_overflow(a, b, r);
        break;
    case '-':
        over = __builtin_sub_overflow(a, b, r);
        break;
    case '*':
        over = __builtin_mul_overflow(a, b, r);
        break;
    default: // d %
        if (b == 0)
            return jinja_fail(c, ERR_USAGE, "integer division or modulo by zero");
        if (b == -1) {
            over = op == 'd' && __builtin_sub_overflow(0, a, r);
            *r = op == 'd' ? *r : 0;
        } else {
            *r = op == 'd' ? floor_div(a, b) : a - floor_div(a, b) * b;
        }
    }
    return over ? jinja_fail_big(c) : 0;
}

static int with_floats(struct jinja_context *c, char op, double a, double b, double *r) {
    if ((op == '/' || op == 'd' || op == '%') && b == 0)
        return jinja_fail(c, ERR_USAGE, "division by zero");
    switch (op) {
    case '+':
        *r = a + b;
        break;
    case '-':
        *r = a - b;
        break;
    case '*':
        *r = a * b;
        break;
    case '/':
        *r = a / b;
        break;
    case '%':
        *r = floor_mod(a, b);
        break;
    default: // d
        *r = floor_div_float(a, b);
        break;
    }
    return 0;
}

int jinja_calculate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                    struct jinja_value *out) {
    bool untrusted = a.untrusted || b.untrusted;
    bool real = a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT || op == '/';
    if (real) {
        *out = jinja_float(0, untrusted);
        return with_floats(c, op, jinja_as_double(a), jinja_as_double(b), &out->as.d);
    }
    if (a.kind == JINJA_BIG || b.kind == JINJA_BIG)
        return jinja_fail_big(c);
    *out = jinja_int(0);
    out->untrusted = untrusted;
    return with_ints(c, op, jinja_as_int(a), jinja_as_int(b), &out->as.i);
}

int jinja_negate(struct jinja_context *c, struct jinja_value a, struct jinja_value *out) {
    if (a.kind == JINJA_FLOAT) {
        *out = jinja_float(-a.as.d, a.untrusted);
        return 0;
    }
    return jinja_calculate(c, '-', jinja_int(0), a, out);
}

int jinja_require_int(struct jinja_context *c, struct jinja_value v, const char *what,
                      int64_t *out) {
    if (v.kind == JINJA_BIG)
        return jinja_fail_big(c);
    if (v.kind != JINJA_INT && v.kind != JINJA_BOOL)
        return jinja_fail(c, ERR_USAGE, "%s must be an integer, not '%s'", what, jinja_type(v));
    *out = jinja_as_int(v);
    return 0;
}

int jinja_cut(struct jinja_context *c, double d, struct jinja_value *out) {
    if (!isfinite(d))
        return jinja_fail(c, ERR_USAGE, "cannot convert float %s to integer",
                          isnan(d) ? "NaN" : "infinity");
    if (fabs(d) >= 9.2e18)
        return jinja_fail_big(c);
    *out = jinja_int((int64_t)d);
    return 0;
}
