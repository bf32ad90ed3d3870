// SPDX-License-Identifier: Apache-2.0
// Numbers; see number.h. The shortest digits of a float are found by trying precisions, which libc
// rounds exactly.
#include "text/jinja/value/number.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "text/jinja/value/compare.h"

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

static int digit_of(char ch) {
    if (ch >= '0' && ch <= '9')
        return ch - '0';
    char low = (char)(ch | 0x20);
    return low >= 'a' && low <= 'z' ? low - 'a' + 10 : 99;
}

static bool big_decimal(struct jinja_context *c, const char *s, size_t n, bool negative,
                        struct jinja_value *out) {
    size_t mark = jinja_mark(c);
    int rc = negative ? jinja_puts(c, "-") : 0;
    bool lead = true;
    for (size_t i = 0; i < n && !rc; i++) {
        lead = lead && s[i] == '0';
        if (s[i] != '_' && !lead)
            rc = jinja_put(c, s + i, 1, true);
    }
    if (!rc)
        rc = jinja_take(c, mark, out);
    out->kind = JINJA_BIG;
    return rc == 0;
}

bool jinja_read_integer(struct jinja_context *c, const char *s, size_t n, int base,
                        struct jinja_value *out) {
    bool negative = n > 0 && s[0] == '-';
    size_t from = n > 0 && (s[0] == '-' || s[0] == '+');
    uint64_t v = 0;
    bool over = false, digit = false;
    for (size_t i = from; i < n; i++) {
        if (s[i] == '_' && digit && i + 1 < n) {
            digit = false;
            continue;
        }
        int d = digit_of(s[i]);
        if (d >= base)
            return false;
        digit = true;
        over |= __builtin_mul_overflow(v, (uint64_t)base, &v) ||
                __builtin_add_overflow(v, (uint64_t)d, &v);
    }
    if (!digit)
        return false;
    if (over || v > (uint64_t)INT64_MAX + negative) {
        if (base == 10)
            return big_decimal(c, s + from, n - from, negative, out);
        jinja_fail(c, ERR_LIMIT, "an integer in base %d is beyond 64 bits", base);
        return false;
    }
    *out = jinja_int(negative ? (int64_t)(0 - v) : (int64_t)v);
    return true;
}

static void strip(const char **s, size_t *n) {
    while (*n > 0 && strchr(" \t\n\r\f\v", (*s)[0]) && (*s)[0]) {
        (*s)++;
        (*n)--;
    }
    while (*n > 0 && strchr(" \t\n\r\f\v", (*s)[*n - 1]) && (*s)[*n - 1])
        (*n)--;
}

bool jinja_parse_integer(struct jinja_context *c, const char *s, size_t n, int base,
                         struct jinja_value *out) {
    strip(&s, &n);
    size_t sign = n > 0 && (s[0] == '-' || s[0] == '+');
    static const struct {
        char letter;
        int base;
    } prefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    for (size_t i = 0; i < 3 && n > sign + 2 && s[sign] == '0'; i++) {
        if ((s[sign + 1] | 0x20) != prefixes[i].letter || (base != 0 && base != prefixes[i].base))
            continue;
        bool negative = s[0] == '-';
        size_t skip = sign + 2 + (s[sign + 2] == '_');
        if (skip >= n || s[skip] == '-' || s[skip] == '+' ||
            !jinja_read_integer(c, s + skip, n - skip, prefixes[i].base, out))
            return false;
        out->as.i = negative ? -out->as.i : out->as.i;
        return true;
    }
    return jinja_read_integer(c, s, n, base ? base : 10, out);
}

bool jinja_parse_float(const char *s, size_t n, double *out) {
    strip(&s, &n);
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

static int beyond(struct jinja_context *c) {
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

static int power_int(struct jinja_context *c, int64_t a, int64_t n, int64_t *r) {
    *r = 1;
    while (n > 0) {
        if ((n & 1) && __builtin_mul_overflow(*r, a, r))
            return beyond(c);
        n >>= 1;
        if (n > 0 && __builtin_mul_overflow(a, a, &a))
            return beyond(c);
    }
    return 0;
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
    case '^':
        return power_int(c, a, b, r);
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
    return over ? beyond(c) : 0;
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
    case 'd':
        *r = floor_div_float(a, b);
        break;
    default:
        if (a == 0 && b < 0)
            return jinja_fail(c, ERR_USAGE, "0.0 cannot be raised to a negative power");
        *r = pow(a, b);
        if (isnan(*r) && !isnan(a) && !isnan(b))
            return jinja_fail(c, ERR_USAGE, "a negative number to a broken power is not real");
        if (isinf(*r) && !isinf(a) && !isinf(b))
            return jinja_fail(c, ERR_USAGE, "the result of ** is too large");
    }
    return 0;
}

int jinja_calculate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                    struct jinja_value *out) {
    bool untrusted = a.untrusted || b.untrusted;
    bool real = a.kind == JINJA_FLOAT || b.kind == JINJA_FLOAT || op == '/' ||
                (op == '^' && jinja_as_int(b) < 0);
    int rc = 0;
    if (real) {
        *out = jinja_float(0, untrusted);
        return with_floats(c, op, jinja_as_double(a), jinja_as_double(b), &out->as.d);
    }
    if (a.kind == JINJA_BIG || b.kind == JINJA_BIG)
        return beyond(c);
    *out = jinja_int(0);
    out->untrusted = untrusted;
    rc = with_ints(c, op, jinja_as_int(a), jinja_as_int(b), &out->as.i);
    return rc;
}

int jinja_negate(struct jinja_context *c, struct jinja_value a, struct jinja_value *out) {
    if (a.kind == JINJA_FLOAT) {
        *out = jinja_float(-a.as.d, a.untrusted);
        return 0;
    }
    return jinja_calculate(c, '-', jinja_int(0), a, out);
}

int jinja_want_int(struct jinja_context *c, struct jinja_value v, const char *what, int64_t *out) {
    if (v.kind == JINJA_BIG)
        return beyond(c);
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
        return beyond(c);
    *out = jinja_int((int64_t)d);
    return 0;
}
