// SPDX-License-Identifier: Apache-2.0
// Memory, errors, the output and strings; see value.h. Small values come from blocks that the arena
// gives, nothing is freed before the context. Strings are written at the end of the output, where
// runs of equal provenance join by themselves, and are then copied off it in one piece.
#include "text/jinja/value/value.h"

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

enum { ASK = 1 << 14 }; // steps between questions whether anybody waits

int jinja_charge(struct jinja_context *c, size_t steps) {
    if (steps > (size_t)(c->limits.steps - c->steps)) {
        c->steps = c->limits.steps;
        return jinja_fail(c, ERR_LIMIT, "the template does more than %lld steps; it may never end",
                          (long long)c->limits.steps);
    }
    int64_t asked = c->steps / ASK;
    c->steps += (int64_t)steps;
    if (c->steps / ASK != asked && gone_check(c->limits.gone))
        return jinja_fail(c, ERR_CANCELLED, "nobody waits for the text of the template any more");
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
    size_t want = round_up_size(max_size(size, 1), ALIGN);
    if (want > BLOCK / 4)
        return take_memory(c, want);
    if (want > c->left) {
        c->at = take_memory(c, BLOCK);
        c->left = c->at ? BLOCK : 0;
        if (!c->at)
            return NULL;
    }
    void *p = c->at;
    c->at += want;
    c->left -= want;
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
    size_t want = c->out.len + n;
    if (want <= c->out.cap)
        return 0;
    size_t cap = max_size(want, max_size(4096, 2 * c->out.cap));
    char *data = realloc(c->out.data, cap);
    if (!data)
        return jinja_fail(c, ERR_MEMORY, "no memory for %zu bytes of rendered text", want);
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

static size_t count_chars(const char *s, size_t n) {
    size_t chars = 0;
    for (size_t i = 0; i < n; i++)
        chars += ((unsigned char)s[i] & 0xC0) != 0x80;
    return chars;
}

size_t jinja_chars(const struct jinja_string *s) {
    if (s->chars == SIZE_MAX) // only in strings that belong to one context
        ((struct jinja_string *)(uintptr_t)s)->chars = count_chars(s->bytes, s->n);
    return s->chars;
}

size_t jinja_byte_of(const struct jinja_string *s, size_t chars) {
    if (jinja_chars(s) == s->n || chars == 0)
        return min_size(chars, s->n);
    if (chars >= s->chars)
        return s->n;
    size_t at = 0;
    for (; chars > 0; chars--)
        for (at++; ((unsigned char)s->bytes[at] & 0xC0) == 0x80; at++) {
        }
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

struct jinja_value jinja_missing(struct jinja_context *c, struct jinja_value of,
                                 struct jinja_value name) {
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
        [JINJA_CYCLER] = "Cycler",
        [JINJA_JOINER] = "Joiner",
    };
    return names[v.kind];
}
