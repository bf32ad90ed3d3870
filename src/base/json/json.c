// SPDX-License-Identifier: Apache-2.0
// JSON; see json.h. The reader makes one pass over the text by recursive descent, as deep as the
// rules let it be. Strings and spellings of numbers are copied, with a NUL each, into one block of
// the text's length, which they always fit: quotes and separators make room for the NULs, and
// escapes are longer than what they stand for. Values, members and indexes of keys lie in an arena.
// Members are looked up by a sorted index of pointers, so that no choice of keys makes that slow.
//
// The writer appends to a string with every call. Values that were read are written by walking
// them, as deep as the reader has let them be.
#include "base/json/json.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory/arena.h"
#include "base/num.h"
#include "base/utf8.h"
#include "base/vec.h"

enum { DEPTH_MAX = 128, QUOTED = 80 };

struct json {
    enum json_kind kind;
    size_t n; // bytes of a text, items, members
    union {
        bool truth;
        const char *text; // of a string; as it was spelt, of a number
        const struct json *items;
        struct json_object *object;
    };
};

struct member {
    const char *key; // NULL: of an array, or a later one of the same key counts
    size_t key_n;
    struct json value;
};

struct json_object {
    const struct member **sorted; // [n] by key, after the members
    struct member members[];      // [n] in the order of the text
};

struct document {
    struct json root; // first, so that it is the document
    struct arena arena;
    char *text;
    size_t text_bytes;
};

struct reader {
    struct document *doc;
    const char *s;
    size_t n, i; // i: the next byte
    struct json_rules rules;
    int64_t values, objects;
    int depth;
    char *to;             // in the document's text
    struct member *stack; // values of what is open
    int64_t n_stack, cap_stack;
    struct err *e;
};

static size_t line_of(const struct reader *r, size_t at) {
    size_t line = 1;
    for (size_t i = 0; i < at && i < r->n; i++)
        line += r->s[i] == '\n';
    return line;
}

// What is wrong at that place, if the text goes as far.
static int wrong_at(struct reader *r, size_t at, const char *what) {
    if (at >= r->n)
        return err_set(r->e, ERR_FORMAT, "JSON text ends after %zu bytes in the middle of a value",
                       r->n);
    return err_set(r->e, ERR_FORMAT, "JSON text is wrong at byte %zu (line %zu): %s", at,
                   line_of(r, at), what);
}

static int out_of_memory(struct reader *r) {
    return err_set(r->e, ERR_MEMORY, "out of memory for JSON text of %zu bytes", r->n);
}

// The next byte that is no white space; '\0' at the end, or for a NUL, which is none of JSON.
static char next_token(struct reader *r) {
    char c = '\0';
    while (r->i < r->n && ((c = r->s[r->i]) == ' ' || c == '\n' || c == '\r' || c == '\t'))
        r->i++;
    return r->i < r->n ? c : '\0';
}

// The four digits of \uXXXX at `at`, or -1 with *bad the place of what is none of them.
static int32_t read_hex4(const struct reader *r, size_t at, size_t *bad) {
    int32_t code = 0;
    for (size_t i = at; i < at + 4; i++) {
        char c = i < r->n ? r->s[i] : '\0', low = (char)(c | 32);
        bool digit = c >= '0' && c <= '9';
        if (!digit && !(low >= 'a' && low <= 'f')) {
            *bad = i;
            return -1;
        }
        code = code * 16 + (digit ? c - '0' : low - 'a' + 10);
    }
    return code;
}

// The escape at the backslash; half a pair becomes U+FFFD.
static int read_escape(struct reader *r) {
    static const char names[] = "\"\\/bfnrt", meant[] = "\"\\/\b\f\n\r\t";
    char c = r->i + 1 < r->n ? r->s[r->i + 1] : '\0';
    const char *name = c ? strchr(names, c) : NULL;
    if (name) {
        *r->to++ = meant[name - names];
        r->i += 2;
        return 0;
    }
    size_t bad = r->i + 1, other;
    int32_t code = c == 'u' ? read_hex4(r, r->i + 2, &bad) : -1;
    if (code < 0)
        return wrong_at(r, bad, "invalid string sequence");
    r->i += 6;
    bool pair = code >= 0xD800 && code < 0xDC00 && r->i + 1 < r->n && r->s[r->i] == '\\' &&
                r->s[r->i + 1] == 'u';
    int32_t low = pair ? read_hex4(r, r->i + 2, &other) : -1;
    if (low >= 0xDC00 && low < 0xE000) {
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
        r->i += 6;
    }
    r->to += utf8_encode(r->to, (uint32_t)code); // U+FFFD for what is half a pair
    return 0;
}

// The string at the quote, without quotes.
static int read_string(struct reader *r, const char **text, size_t *n) {
    char *begin = r->to;
    for (r->i++; r->i < r->n && r->s[r->i] != '"';) {
        const char *s = r->s + r->i;
        size_t left = r->n - r->i, plain = 0;
        while (plain < left && (signed char)s[plain] >= ' ' && s[plain] != '"' && s[plain] != '\\')
            plain++;
        uint32_t code;
        int len = plain || *s == '\\' ? (int)plain : utf8_decode(s, left, &code);
        if (!plain && *s == '\\') {
            int rc = read_escape(r);
            if (rc)
                return rc;
            continue;
        }
        if (!plain && (len <= 0 || code < ' '))
            return wrong_at(r, r->i,
                            len <= 0 ? "this is not UTF-8" : "a string holds a control character");
        size_t taken = plain ? plain : (size_t)len;
        memcpy(r->to, s, taken);
        r->to += taken;
        r->i += taken;
    }
    if (r->i == r->n)
        return wrong_at(r, r->n, "");
    r->i++;
    *text = begin;
    *n = (size_t)(r->to - begin);
    *r->to++ = '\0';
    return 0;
}

static size_t count_digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

// Length of the number at s by RFC 8259's grammar, 0 when it breaks it. *whole: how many digits it
// has if it is an integer, else 0.
static size_t number_length(const char *s, size_t n, size_t *whole) {
    size_t i = s[0] == '-', part = count_digits(s + i, n - i);
    if (part == 0 || (part > 1 && s[i] == '0'))
        return 0;
    i += part;
    *whole = part;
    if (i < n && s[i] == '.') {
        part = count_digits(s + i + 1, n - i - 1);
        i += 1 + part;
        *whole = 0;
    }
    if (part && i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        i += i < n && (s[i] == '+' || s[i] == '-');
        part = count_digits(s + i, n - i);
        i += part;
        *whole = 0;
    }
    return part ? i : 0;
}

// Whether the n digits fit 64 bits: unsigned for positive numbers, signed for negative ones.
static bool fits_64_bits(const char *s, size_t n, bool negative) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
            return false;
    return !negative || v <= (uint64_t)INT64_MAX + 1;
}

// The program's locale, which may want a decimal comma, has no say. (glibc keeps this one ready.)
static double double_of(const char *text) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double v = c ? strtod_l(text, NULL, c) : NAN;
    if (c)
        freelocale(c);
    return v;
}

static int read_number(struct reader *r, struct json *v) {
    enum { SHORT = 200 }; // as many digits without an exponent are in the range of a double
    const char *s = r->s + r->i;
    size_t whole = 0, n = number_length(s, r->n - r->i, &whole);
    if (n == 0)
        return wrong_at(r, r->i, "this is no number");
    bool negative = *s == '-', fits = whole && fits_64_bits(s + negative, whole, negative);
    if (whole && !fits && !r->rules.big_integers)
        return wrong_at(r, r->i, "the integer needs more than 64 bits");
    memcpy(r->to, s, n);
    r->to[n] = '\0';
    if (!fits && (n > SHORT || strpbrk(r->to, "eE")) && !isfinite(double_of(r->to)))
        return wrong_at(r, r->i, "the number is too large");
    *v = (struct json){.kind = whole ? JSON_INT : JSON_DOUBLE, .n = n, .text = r->to};
    r->to += n + 1;
    r->i += n;
    return 0;
}

static int read_word(struct reader *r, struct json *v) {
    static const char *const words[] = {"null", "false", "true"};
    for (int k = 0; k < 3; k++) {
        size_t n = strlen(words[k]);
        if (r->n - r->i < n || memcmp(r->s + r->i, words[k], n) != 0)
            continue;
        *v = (struct json){.kind = k ? JSON_BOOL : JSON_NULL, .truth = k == 2};
        r->i += n;
        return 0;
    }
    bool other = r->i < r->n && r->s[r->i] && strchr(",:]}", r->s[r->i]);
    return wrong_at(r, r->i, other ? "unexpected character" : "here should be a value");
}

static int by_key(const void *a, const void *b) {
    const struct member *x = *(const struct member *const *)a,
                        *y = *(const struct member *const *)b;
    int order =
        x->key_n != y->key_n ? (x->key_n < y->key_n ? -1 : 1) : memcmp(x->key, y->key, x->key_n);
    return order ? order : (x > y) - (x < y); // of equal keys in their order
}

static bool same_key(const struct member *a, const struct member *b) {
    return a->key_n == b->key_n && memcmp(a->key, b->key, a->key_n) == 0;
}

static void sort_members(struct json_object *o, size_t n) {
    for (size_t i = 0; i < n; i++)
        o->sorted[i] = &o->members[i];
    if (n > 1)
        qsort(o->sorted, n, sizeof *o->sorted, by_key);
}

// Of equal keys the last one counts, in the first one's place, or they are refused. *n: how many
// members are left.
static int settle_keys(struct reader *r, struct json_object *o, size_t *n) {
    size_t left = 0, count = *n;
    sort_members(o, count);
    for (size_t i = 0, first = 0; i < count; i++) {
        const struct member *m = o->sorted[i];
        if (i == 0 || !same_key(o->sorted[first], m)) {
            first = i;
            left++;
            continue;
        }
        if (r->rules.unique_keys)
            return err_set(r->e, ERR_FORMAT,
                           "the key '%.*s' comes twice in the JSON object that ends at byte %zu "
                           "(line %zu)",
                           (int)min_size(m->key_n, QUOTED), m->key, r->i, line_of(r, r->i));
        o->members[o->sorted[first] - o->members].value = m->value;
        o->members[m - o->members].key = NULL;
    }
    if (left == count)
        return 0;
    for (size_t i = 0, to = 0; i < count; i++)
        if (o->members[i].key)
            o->members[to++] = o->members[i];
    sort_members(o, left);
    *n = left;
    return 0;
}

// Takes the members from `first` on off the stack.
static int close_object(struct reader *r, int64_t first, struct json *v) {
    size_t n = (size_t)(r->n_stack - first);
    size_t each = sizeof(struct member) + sizeof(struct member *);
    struct json_object *o = arena_alloc(&r->doc->arena, sizeof *o + n * each);
    if (!o)
        return out_of_memory(r);
    o->sorted = (const struct member **)(o->members + n);
    if (n)
        memcpy(o->members, r->stack + first, n * sizeof *o->members);
    r->n_stack = first;
    int rc = settle_keys(r, o, &n);
    r->i++;
    *v = (struct json){.kind = JSON_OBJECT, .n = n, .object = o};
    return rc;
}

static int close_array(struct reader *r, int64_t first, struct json *v) {
    size_t n = (size_t)(r->n_stack - first);
    struct json *items = n ? arena_array(&r->doc->arena, n, sizeof *items) : NULL;
    if (n && !items)
        return out_of_memory(r);
    for (size_t i = 0; i < n; i++)
        items[i] = r->stack[(size_t)first + i].value;
    r->n_stack = first;
    r->i++;
    *v = (struct json){.kind = JSON_ARRAY, .n = n, .items = items};
    return 0;
}

static int read_value(struct reader *r, struct json *v);

static int read_key(struct reader *r, struct member *m) {
    size_t at = r->i;
    if (next_token(r) != '"')
        return wrong_at(r, r->i, "quoted object property name expected");
    at = r->i;
    int rc = read_string(r, &m->key, &m->key_n);
    if (!rc && next_token(r) != ':')
        rc = wrong_at(r, r->i, "object property name separator ':' expected");
    if (!rc && memchr(m->key, '\0', m->key_n))
        rc = wrong_at(r, at, "a key holds the character U+0000");
    r->i++;
    return rc;
}

// Items or members up to the closing bracket, which is at r->i then.
static int read_items(struct reader *r, char close) {
    const char *separator =
        close == '}' ? "object value separator ',' expected" : "array value separator ',' expected";
    r->i++;
    if (next_token(r) == close)
        return 0;
    for (;;) {
        struct member m = {0};
        int rc = close == '}' ? read_key(r, &m) : 0;
        if (!rc)
            rc = read_value(r, &m.value);
        if (rc)
            return rc;
        if (vec_reserve(&r->stack, &r->cap_stack, r->n_stack + 1, sizeof *r->stack, NULL))
            return out_of_memory(r);
        r->stack[r->n_stack++] = m;
        char c = next_token(r);
        if (c == close)
            return 0;
        if (c != ',')
            return wrong_at(r, r->i, separator);
        r->i++;
    }
}

static int read_container(struct reader *r, char open, struct json *v) {
    int64_t first = r->n_stack;
    if (r->depth == r->rules.depth)
        return err_set(r->e, ERR_FORMAT,
                       "JSON text is nested more than %d deep at byte %zu (line %zu)",
                       r->rules.depth, r->i, line_of(r, r->i));
    r->objects += open == '{';
    if (r->rules.objects > 0 && r->objects > r->rules.objects)
        return err_set(r->e, ERR_LIMIT, "JSON text holds more than %lld objects",
                       (long long)r->rules.objects);
    r->depth++;
    int rc = read_items(r, open == '{' ? '}' : ']');
    r->depth--;
    if (rc)
        return rc;
    return open == '{' ? close_object(r, first, v) : close_array(r, first, v);
}

static int read_value(struct reader *r, struct json *v) {
    char c = next_token(r);
    if (r->i < r->n && ++r->values > r->rules.values && r->rules.values > 0)
        return err_set(r->e, ERR_LIMIT, "JSON text holds more than %lld values",
                       (long long)r->rules.values);
    if (c == '{' || c == '[')
        return read_container(r, c, v);
    if (c == '"') {
        v->kind = JSON_STRING;
        return read_string(r, &v->text, &v->n);
    }
    return c == '-' || (c >= '0' && c <= '9') ? read_number(r, v) : read_word(r, v);
}

int json_parse_with(struct json **out, const char *text, size_t len, const struct json_rules *rules,
                    struct err *e) {
    struct document *d = calloc(1, sizeof *d);
    struct reader r = {
        .doc = d, .s = text ? text : "", .n = text ? len : 0, .rules = *rules, .e = e};
    r.rules.depth = rules->depth > 0 ? rules->depth : DEPTH_MAX;
    *out = NULL;
    if (d)
        r.to = d->text = malloc(r.n + 1);
    if (!r.to) {
        free(d);
        return out_of_memory(&r);
    }
    d->text_bytes = r.n + 1;
    int rc = read_value(&r, &d->root);
    next_token(&r);
    if (!rc && r.i < r.n)
        rc = wrong_at(&r, r.i, "unexpected character");
    free(r.stack);
    if (!rc && d->root.kind != JSON_NULL)
        *out = &d->root;
    else
        json_free(&d->root);
    return rc;
}

int json_parse(struct json **out, const char *text, size_t len, struct err *e) {
    return json_parse_with(out, text, len, &(struct json_rules){0}, e);
}

size_t json_memory(const struct json *root) {
    const struct document *d = (const struct document *)root;
    return d ? sizeof *d + d->arena.total + d->text_bytes : 0;
}

void json_free(struct json *root) {
    struct document *d = (struct document *)root;
    if (!d)
        return;
    arena_fini(&d->arena);
    free(d->text);
    free(d);
}

enum json_kind json_kind_of(const struct json *v) {
    return v ? v->kind : JSON_NULL;
}

// A value as callers see it: null is NULL.
static const struct json *known(const struct json *v) {
    return v->kind == JSON_NULL ? NULL : v;
}

static const struct member *find_member(const struct json *object, const char *key) {
    const struct member wanted = {.key = key, .key_n = strlen(key)};
    size_t from = 0, to = json_kind_of(object) == JSON_OBJECT ? object->n : 0;
    while (from < to) {
        size_t middle = from + (to - from) / 2;
        const struct member *m = object->object->sorted[middle];
        int order = m->key_n != wanted.key_n ? (m->key_n < wanted.key_n ? -1 : 1)
                                             : memcmp(m->key, key, wanted.key_n);
        if (order == 0)
            return m;
        if (order < 0)
            from = middle + 1;
        else
            to = middle;
    }
    return NULL;
}

const struct json *json_get(const struct json *object, const char *key) {
    const struct member *m = find_member(object, key);
    return m ? known(&m->value) : NULL;
}

bool json_has(const struct json *object, const char *key) {
    return find_member(object, key) != NULL;
}

size_t json_len(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_ARRAY || kind == JSON_OBJECT ? v->n : 0;
}

const struct json *json_at(const struct json *array, size_t i) {
    return json_kind_of(array) == JSON_ARRAY && i < array->n ? known(&array->items[i]) : NULL;
}

int json_each(const struct json *object, json_member_fn *fn, void *arg) {
    int rc = 0;
    for (size_t i = 0; !rc && json_kind_of(object) == JSON_OBJECT && i < object->n; i++) {
        const struct member *m = &object->object->members[i];
        rc = fn(arg, m->key, m->key_n, known(&m->value));
    }
    return rc;
}

const char *json_str(const struct json *v, size_t *len) {
    if (json_kind_of(v) != JSON_STRING)
        return NULL;
    if (len)
        *len = v->n;
    return v->text;
}

int64_t json_int(const struct json *v, int64_t otherwise) {
    if (json_kind_of(v) != JSON_INT)
        return otherwise;
    errno = 0;
    long long i = strtoll(v->text, NULL, 10);
    return errno ? otherwise : i;
}

double json_num(const struct json *v, double otherwise) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_INT || kind == JSON_DOUBLE ? double_of(v->text) : otherwise;
}

bool json_bool(const struct json *v, bool otherwise) {
    return json_kind_of(v) == JSON_BOOL ? v->truth : otherwise;
}

const char *json_number_text(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_INT || kind == JSON_DOUBLE ? v->text : NULL;
}

// Before a value or key: the comma that separates it from the one before.
static void write_comma(struct json_writer *w) {
    if (w->comma)
        str_putc(&w->out, ',');
    w->comma = true;
}

void jw_begin(struct json_writer *w, char open) {
    write_comma(w);
    str_putc(&w->out, open);
    w->comma = false;
}

void jw_end(struct json_writer *w, char close) {
    str_putc(&w->out, close);
    w->comma = true;
}

// One code point of valid UTF-8 inside quotes.
static void write_escaped(struct str *out, const char *s, size_t len) {
    static const char *const names[32] = {
        ['\b'] = "\\b", ['\f'] = "\\f", ['\n'] = "\\n", ['\r'] = "\\r", ['\t'] = "\\t"};
    unsigned char c = (unsigned char)s[0];
    if (c == '"' || c == '\\')
        str_printf(out, "\\%c", c);
    else if (c >= 32)
        str_append(out, s, len);
    else if (names[c])
        str_puts(out, names[c]);
    else
        str_printf(out, "\\u%04x", c);
}

static void write_string(struct str *out, const char *s, size_t n) {
    str_putc(out, '"');
    uint32_t code;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &code);
        if (len > 0) {
            write_escaped(out, s + i, (size_t)len);
            i += (size_t)len;
        } else {
            str_puts(out, "\xEF\xBF\xBD");
            i += len ? (size_t)-len : n - i;
        }
    }
    str_putc(out, '"');
}

void jw_key(struct json_writer *w, const char *key) {
    write_comma(w);
    write_string(&w->out, key, strlen(key));
    str_putc(&w->out, ':');
    w->comma = false;
}

void jw_str(struct json_writer *w, const char *s, size_t n) {
    write_comma(w);
    write_string(&w->out, s, n);
}

void jw_cstr(struct json_writer *w, const char *s) {
    jw_str(w, s, strlen(s));
}

void jw_int(struct json_writer *w, int64_t v) {
    write_comma(w);
    str_printf(&w->out, "%lld", (long long)v);
}

void jw_num(struct json_writer *w, double v) {
    if (!isfinite(v)) {
        jw_null(w);
        return;
    }
    write_comma(w);
    char text[32];
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    str_puts(&w->out, text);
}

void jw_bool(struct json_writer *w, bool v) {
    write_comma(w);
    str_puts(&w->out, v ? "true" : "false");
}

void jw_null(struct json_writer *w) {
    write_comma(w);
    str_puts(&w->out, "null");
}

void jw_key_str(struct json_writer *w, const char *key, const char *s) {
    jw_key(w, key);
    jw_cstr(w, s);
}

void jw_key_int(struct json_writer *w, const char *key, int64_t v) {
    jw_key(w, key);
    jw_int(w, v);
}

void jw_key_num(struct json_writer *w, const char *key, double v) {
    jw_key(w, key);
    jw_num(w, v);
}

void jw_key_bool(struct json_writer *w, const char *key, bool v) {
    jw_key(w, key);
    jw_bool(w, v);
}

void jw_key_begin(struct json_writer *w, const char *key, char open) {
    jw_key(w, key);
    jw_begin(w, open);
}

void jw_key_null(struct json_writer *w, const char *key) {
    jw_key(w, key);
    jw_null(w);
}

void jw_key_text(struct json_writer *w, const char *key, const char *s, size_t n) {
    jw_key(w, key);
    jw_str(w, s, n);
}

void jw_key_value(struct json_writer *w, const char *key, const struct json *v) {
    jw_key(w, key);
    jw_value(w, v);
}

int jw_member(void *w, const char *key, size_t len, const struct json *v) {
    (void)len;
    jw_key_value(w, key, v);
    return 0;
}

static void write_items(struct json_writer *w, const struct json *v) {
    jw_begin(w, '[');
    for (size_t i = 0; i < json_len(v); i++)
        jw_value(w, json_at(v, i));
    jw_end(w, ']');
}

void jw_value(struct json_writer *w, const struct json *v) {
    size_t len = 0;
    const char *s = json_str(v, &len);
    switch (json_kind_of(v)) {
    case JSON_NULL:
        jw_null(w);
        break;
    case JSON_BOOL:
        jw_bool(w, json_bool(v, false));
        break;
    case JSON_INT:
    case JSON_DOUBLE:
        write_comma(w);
        str_puts(&w->out, json_number_text(v));
        break;
    case JSON_STRING:
        jw_str(w, s, len);
        break;
    case JSON_ARRAY:
        write_items(w, v);
        break;
    case JSON_OBJECT:
        jw_begin(w, '{');
        json_each(v, jw_member, w);
        jw_end(w, '}');
        break;
    }
}
