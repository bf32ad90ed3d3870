// SPDX-License-Identifier: Apache-2.0
// The reader of json.h: one pass without recursion. Members that are complete lie on a stack until
// their array or object closes, then move into the document's memory side by side, so an element is
// found by its number at once. Behind an object's members lies their order by key, by which
// they are found and doubles seen. Numbers stay text: whoever asks converts.
#include "base/json.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/arena.h"
#include "base/json_scan.h"
#include "base/num.h"
#include "base/vec.h"

enum { DEPTH_MAX = 128, BLOCK = 4000, QUOTED = 80 };

struct json {
    enum json_kind kind;
    bool truth;
    size_t n; // bytes of a string or number, elements, members
    union {
        const char *text; // a number's spelling, a string's bytes; a NUL follows
        const struct json *items;
        const struct member *members;
    };
};

// An element, too, while it lies on the stack; then without a key. Behind the members of an object
// lie their numbers as uint32_t in the order of before().
struct member {
    const char *key;
    size_t key_len;
    struct json value;
};

struct document {
    struct json root; // first, so that its address is the document's
    struct arena arena;
    char *block; // what the arena gave last, and how much of it is left
    size_t left;
};

struct frame {
    int64_t first; // of its members on the stack
    char close;    // ']' or '}'
};

struct reader {
    const char *s;
    size_t n, i;
    struct json_rules rules;
    struct document *doc;
    struct member *stack;
    int64_t n_stack, cap_stack;
    struct frame *frames;
    int64_t depth, cap_frames;
    int64_t values;
    struct err *e;
};

// size bytes of the document's memory, aligned to 8. The arena aligns to more than small strings
// need.
static void *take(struct reader *r, size_t size) {
    struct document *d = r->doc;
    size = round_up_size(max_size(size, 1), 8);
    if (size > BLOCK / 4)
        return arena_alloc(&d->arena, size);
    if (size > d->left) {
        d->block = arena_alloc(&d->arena, BLOCK);
        d->left = d->block ? BLOCK : 0;
    }
    if (!d->block)
        return NULL;
    d->left -= size;
    d->block += size;
    return d->block - size;
}

static int out_of_memory(struct reader *r) {
    return err_set(r->e, ERR_MEMORY, "out of memory for JSON text of %zu bytes", r->n);
}

static size_t line_of(const struct reader *r, size_t at) {
    size_t line = 1;
    for (size_t i = 0; i < at && i < r->n; i++)
        line += r->s[i] == '\n';
    return line;
}

static int wrong_at(struct reader *r, size_t at, const char *what) {
    if (at >= r->n)
        return err_set(r->e, ERR_FORMAT, "JSON text ends after %zu bytes in the middle of a value",
                       r->n);
    return err_set(r->e, ERR_FORMAT, "JSON text is wrong at byte %zu (line %zu): %s", at,
                   line_of(r, at), what);
}

// The program's locale, which may want a decimal comma, has no say. (glibc keeps this one ready.)
static double to_double(const char *text) {
    locale_t c = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    double v = c ? strtod_l(text, NULL, c) : NAN;
    if (c)
        freelocale(c);
    return v;
}

static int read_number(struct reader *r, struct json *v) {
    size_t at = r->i, whole = 0, n = json_scan_number(r->s + at, r->n - at, &whole);
    if (n == 0)
        return wrong_at(r, at, "this is no number");
    char *text = take(r, n + 1);
    if (!text)
        return out_of_memory(r);
    memcpy(text, r->s + at, n);
    text[n] = '\0';
    *v = (struct json){.kind = whole ? JSON_INT : JSON_DOUBLE, .n = n, .text = text};
    bool negative = *text == '-';
    if (whole && !r->rules.big_integers && !json_fits_64_bits(text + negative, whole, negative))
        return wrong_at(r, at, "the integer needs more than 64 bits");
    enum { SURELY_FINITE = 300 }; // characters of an integer
    if ((!whole || n > SURELY_FINITE) && !isfinite(to_double(text)))
        return wrong_at(r, at, "the number is too large");
    r->i += n;
    return 0;
}

static int read_string(struct reader *r, const char **text, size_t *n) {
    size_t at = r->i, len = json_scan_string(r->s + at, r->n - at), bad = 0;
    if (len == 0)
        return wrong_at(r, r->n, "");
    // Nothing grows by decoding, but a lone surrogate's six bytes become three.
    char *out = take(r, len - 1);
    if (!out)
        return out_of_memory(r);
    *text = out;
    *n = json_decode_string(r->s + at + 1, len - 2, out, &bad);
    if (*n == SIZE_MAX)
        return wrong_at(r, at + 1 + bad,
                        r->s[at + 1 + bad] == '\\'
                            ? "a string holds an unknown escape"
                            : "a string holds a control character or is not UTF-8");
    r->i += len;
    return 0;
}

static int read_word(struct reader *r, struct json *v) {
    static const struct {
        const char *word;
        struct json value;
    } words[] = {{"true", {.kind = JSON_BOOL, .truth = true}},
                 {"false", {.kind = JSON_BOOL}},
                 {"null", {.kind = JSON_NULL}}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i].word);
        if (r->n - r->i >= len && memcmp(r->s + r->i, words[i].word, len) == 0) {
            *v = words[i].value;
            r->i += len;
            return 0;
        }
    }
    return wrong_at(r, r->i, "here should be a value");
}

static void skip_space(struct reader *r) {
    while (r->i < r->n && memchr(" \t\r\n", r->s[r->i], 4))
        r->i++;
}

static char peek(const struct reader *r) {
    return r->i < r->n ? r->s[r->i] : '\0';
}

static int before(const struct member *a, const struct member *b) {
    if (a->key_len != b->key_len)
        return a->key_len < b->key_len ? -1 : 1;
    return memcmp(a->key, b->key, a->key_len);
}

// By key, of equal ones the earlier first: their addresses tell.
static int by_key(const void *a, const void *b, void *members) {
    const struct member *m = members, *x = m + *(const uint32_t *)a, *y = m + *(const uint32_t *)b;
    int order = before(x, y);
    return order ? order : (x > y) - (x < y);
}

// Of members with equal keys, puts the last value in the first one's place and the others away.
// Returns how many stay. *twice: the first member whose key has been seen before, or NULL.
static size_t merge_doubles(struct member *m, size_t n, const uint32_t *order, const char **twice) {
    size_t kept = 0;
    *twice = NULL;
    for (size_t i = 0, k; i < n; i = k) {
        struct member *first = &m[order[i]];
        for (k = i + 1; k < n && before(first, &m[order[k]]) == 0; k++) {
            *twice = *twice ? *twice : first->key;
            first->value = m[order[k]].value;
            m[order[k]].key = NULL;
        }
    }
    for (size_t i = 0; i < n; i++)
        if (m[i].key)
            m[kept++] = m[i];
    return kept;
}

static void number_up(uint32_t *order, size_t n) {
    for (size_t i = 0; i < n; i++)
        order[i] = (uint32_t)i;
}

// Makes an object of n members on the stack. A double is an error or is merged, by the rules.
static int close_object(struct reader *r, struct member *from, size_t n, struct json *v) {
    struct member *m = take(r, n * sizeof *m + n * sizeof(uint32_t));
    const char *twice = NULL;
    if (!m)
        return out_of_memory(r);
    uint32_t *order = (void *)(m + n);
    if (n)
        memcpy(m, from, n * sizeof *m);
    number_up(order, n);
    qsort_r(order, n, sizeof *order, by_key, m);
    size_t kept = merge_doubles(m, n, order, &twice);
    if (twice && r->rules.unique_keys)
        return err_set(r->e, ERR_FORMAT,
                       "the key '%.*s' comes twice in the JSON object that ends at byte %zu (line "
                       "%zu)",
                       QUOTED, twice, r->i, line_of(r, r->i));
    if (kept < n) {
        order = (void *)(m + kept);
        number_up(order, kept);
        qsort_r(order, kept, sizeof *order, by_key, m);
    }
    *v = (struct json){.kind = JSON_OBJECT, .n = kept, .members = m};
    return 0;
}

static int close_array(struct reader *r, const struct member *from, size_t n, struct json *v) {
    struct json *items = take(r, n * sizeof *items);
    if (!items)
        return out_of_memory(r);
    for (size_t i = 0; i < n; i++)
        items[i] = from[i].value;
    *v = (struct json){.kind = JSON_ARRAY, .n = n, .items = items};
    return 0;
}

static int close_frame(struct reader *r, struct json *v) {
    struct frame f = r->frames[--r->depth];
    size_t n = (size_t)(r->n_stack - f.first);
    struct member *from = n ? r->stack + f.first : NULL;
    int rc = f.close == ']' ? close_array(r, from, n, v) : close_object(r, from, n, v);
    r->n_stack = f.first;
    r->i++;
    return rc;
}

// The place on the stack of what opens stays empty until it closes.
static int open_frame(struct reader *r) {
    if (r->depth == r->rules.depth)
        return err_set(r->e, ERR_FORMAT,
                       "JSON text is nested more than %d deep at byte %zu (line %zu)",
                       r->rules.depth, r->i, line_of(r, r->i));
    if (vec_reserve(&r->frames, &r->cap_frames, r->depth + 1, sizeof *r->frames, NULL))
        return out_of_memory(r);
    r->n_stack += r->depth > 0;
    char close = r->s[r->i++] == '[' ? ']' : '}';
    r->frames[r->depth++] = (struct frame){r->n_stack, close};
    return 0;
}

// A key and its colon, on the stack as a member without a value.
static int read_key(struct reader *r) {
    size_t at = r->i;
    struct member *m = &r->stack[r->n_stack];
    if (peek(r) != '"')
        return wrong_at(r, at, "here should be a key in double quotes");
    int rc = read_string(r, &m->key, &m->key_len);
    if (rc)
        return rc;
    if (memchr(m->key, '\0', m->key_len))
        return wrong_at(r, at, "a key holds the character U+0000");
    skip_space(r);
    if (peek(r) != ':')
        return wrong_at(r, r->i, "behind a key should be a colon");
    r->i++;
    skip_space(r);
    return 0;
}

// Reads a scalar whole into *v; of an array or object only the bracket (*opened).
static int begin_value(struct reader *r, struct json *v, bool *opened) {
    char c = peek(r);
    *opened = c == '[' || c == '{';
    if (r->rules.values > 0 && r->values++ == r->rules.values)
        return err_set(r->e, ERR_LIMIT, "JSON text holds more than %lld values",
                       (long long)r->rules.values);
    if (*opened)
        return open_frame(r);
    if (c == '-' || (c >= '0' && c <= '9'))
        return read_number(r, v);
    if (c != '"')
        return read_word(r, v);
    *v = (struct json){.kind = JSON_STRING};
    return read_string(r, &v->text, &v->n);
}

// What stands before the next value of the innermost array or object: its end (*closed), or for a
// further element a comma, and a key.
static int next_in_frame(struct reader *r, bool fresh, bool *closed) {
    const struct frame *f = &r->frames[r->depth - 1];
    skip_space(r);
    *closed = peek(r) == f->close;
    if (*closed)
        return 0;
    if (!fresh) {
        if (peek(r) != ',')
            return wrong_at(r, r->i,
                            f->close == ']' ? "here should be ',' or ']'"
                                            : "here should be ',' or '}'");
        r->i++;
        skip_space(r);
    }
    if (vec_reserve(&r->stack, &r->cap_stack, r->n_stack + 1, sizeof *r->stack, NULL))
        return out_of_memory(r);
    r->stack[r->n_stack] = (struct member){0};
    return f->close == '}' ? read_key(r) : 0;
}

static int read_document(struct reader *r) {
    struct json v = {0};
    bool opened, closed;
    skip_space(r);
    int rc = begin_value(r, &v, &opened);
    while (!rc && r->depth > 0) {
        rc = next_in_frame(r, opened, &closed);
        opened = false;
        if (!rc)
            rc = closed ? close_frame(r, &v) : begin_value(r, &v, &opened);
        if (rc || opened || r->depth == 0)
            continue;
        r->n_stack += !closed;
        r->stack[r->n_stack - 1].value = v;
    }
    skip_space(r);
    if (!rc && r->i < r->n)
        rc = wrong_at(r, r->i, "something follows the value");
    r->doc->root = v;
    return rc;
}

int json_parse_with(struct json **out, const char *text, size_t len, const struct json_rules *rules,
                    struct err *e) {
    *out = NULL;
    if (len >= UINT32_MAX)
        return err_set(e, ERR_LIMIT, "JSON text of %zu bytes is too long; the limit is 4 GiB", len);
    struct reader r = {.s = text, .n = len, .rules = *rules, .e = e};
    r.rules.depth = rules->depth > 0 ? rules->depth : DEPTH_MAX;
    r.doc = calloc(1, sizeof *r.doc);
    int rc = r.doc ? read_document(&r) : out_of_memory(&r);
    free(r.stack);
    free(r.frames);
    if (rc && r.doc)
        json_free(&r.doc->root);
    else if (!rc)
        *out = &r.doc->root;
    return rc;
}

int json_parse(struct json **out, const char *text, size_t len, struct err *e) {
    return json_parse_with(out, text, len, &(struct json_rules){0}, e);
}

void json_free(struct json *root) {
    if (!root)
        return;
    struct document *d = (void *)root;
    arena_fini(&d->arena);
    free(d);
}

enum json_kind json_kind_of(const struct json *v) {
    return v ? v->kind : JSON_NULL;
}

// A null is told as no value.
static const struct json *told(const struct json *v) {
    return v->kind == JSON_NULL ? NULL : v;
}

static const struct member *find(const struct json *object, const char *key) {
    const struct member wanted = {.key = key, .key_len = strlen(key)}, *m = object->members;
    const uint32_t *order = (const void *)(m + object->n);
    size_t low = 0, high = object->n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        int side = before(&wanted, &m[order[mid]]);
        if (side == 0)
            return &m[order[mid]];
        if (side < 0)
            high = mid;
        else
            low = mid + 1;
    }
    return NULL;
}

const struct json *json_get(const struct json *object, const char *key) {
    const struct member *m = json_kind_of(object) == JSON_OBJECT ? find(object, key) : NULL;
    return m ? told(&m->value) : NULL;
}

size_t json_len(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_ARRAY || kind == JSON_OBJECT ? v->n : 0;
}

const struct json *json_at(const struct json *array, size_t i) {
    return json_kind_of(array) == JSON_ARRAY && i < array->n ? told(&array->items[i]) : NULL;
}

int json_each(const struct json *object, json_member_fn *fn, void *arg) {
    for (size_t i = 0; json_kind_of(object) == JSON_OBJECT && i < object->n; i++) {
        const struct member *m = &object->members[i];
        int rc = fn(arg, m->key, m->key_len, told(&m->value));
        if (rc)
            return rc;
    }
    return 0;
}

const char *json_str(const struct json *v, size_t *len) {
    if (json_kind_of(v) != JSON_STRING)
        return NULL;
    if (len)
        *len = v->n;
    return v->text;
}

const char *json_number_text(const struct json *v) {
    enum json_kind kind = json_kind_of(v);
    return kind == JSON_INT || kind == JSON_DOUBLE ? v->text : NULL;
}

int64_t json_int(const struct json *v, int64_t otherwise) {
    if (json_kind_of(v) != JSON_INT)
        return otherwise;
    bool negative = *v->text == '-';
    uint64_t n = 0;
    for (const char *p = v->text + negative; *p; p++)
        if (__builtin_mul_overflow(n, 10, &n) ||
            __builtin_add_overflow(n, (uint64_t)(*p - '0'), &n))
            return otherwise;
    if (n > (uint64_t)INT64_MAX + negative)
        return otherwise;
    return negative ? (int64_t)(0 - n) : (int64_t)n;
}

double json_num(const struct json *v, double otherwise) {
    const char *text = json_number_text(v);
    return text ? to_double(text) : otherwise;
}

bool json_bool(const struct json *v, bool otherwise) {
    return json_kind_of(v) == JSON_BOOL ? v->truth : otherwise;
}
