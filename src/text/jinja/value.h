// SPDX-License-Identifier: Apache-2.0
// Values of the interpreter from inside: memory, the output that strings are built in, strings with
// provenance, numbers, errors; container.h has lists and dictionaries. All functions that can fail
// return 0 or a negative code and leave the sentence in the context, where it stays until
// jinja_render hands it on.
#ifndef COPPICE_TEXT_JINJA_VALUE_H
#define COPPICE_TEXT_JINJA_VALUE_H

#include "base/memory/arena.h"
#include "text/jinja/jinja.h"

// Immutable UTF-8. Those of templates have chars and hash filled in, since threads share them.
struct jinja_string {
    const char *bytes; // ends in NUL
    size_t n;
    size_t chars;                   // code points; SIZE_MAX: not counted yet
    uint64_t hash;                  // 0: not computed yet
    const struct jinja_span *spans; // NULL: all of it is `trusted` or not
    size_t n_spans;
    bool trusted;
    bool markup; // marked safe: other strings are escaped when they join it
};

struct jinja_list { // list and tuple
    struct jinja_value *items;
    size_t n, cap;
    bool untrusted; // its brackets and commas count as the request's
};

struct jinja_entry {
    struct jinja_value key, value;
    uint64_t hash;
};

struct jinja_dict { // dictionary and namespace, in order of insertion
    struct jinja_entry *entries;
    size_t n, cap;
    uint32_t *index; // [index_cap] entry + 1 by hash, once there are many
    size_t index_cap;
    bool untrusted;
};

struct jinja_undefined {
    const char *hint;        // the whole sentence, or NULL
    struct jinja_value of;   // what it was looked up in; JINJA_ABSENT: a variable
    struct jinja_value name; // string or other key
};

struct jinja_range {
    int64_t start, stop, step, n;
};

enum jinja_view_kind { VIEW_KEYS, VIEW_VALUES, VIEW_ITEMS };
struct jinja_view {
    enum jinja_view_kind what;
    struct jinja_dict *of;
};

struct jinja_args {
    struct jinja_value *pos;
    int n;
    struct jinja_entry *named; // keys are strings
    int n_named;
};

struct jinja_scope;

struct jinja_context {
    struct arena arena;
    char *at; // free part of the current block
    size_t left;
    struct jinja_limits limits;
    int64_t steps;
    int depth;
    int line;     // of the statement being run
    struct err e; // the first error; code 0: none
    struct {      // text being written; strings are built at its end and taken off again
        char *data;
        size_t len, cap;
        struct jinja_span *spans;
        size_t n_spans, cap_spans;
    } out;
    struct jinja_dict *variables;
    struct tm now;
    bool has_now, may_change;
    // Of a rendering: variables by place (globals) and in the scopes around.
    struct jinja_value *globals;
    struct jinja_scope *scope; // NULL: outside of all
};

int jinja_fail(struct jinja_context *c, int code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
// ERR_USAGE: `what`, such as a filter, of that name is not supported.
int jinja_fail_unsupported(struct jinja_context *c, const char *what,
                           const struct jinja_string *name);
// Counts work; ERR_LIMIT when there was too much.
int jinja_charge(struct jinja_context *c, size_t steps);
// Around everything that recurses; enter may be ERR_LIMIT (leave is not due then).
int jinja_enter(struct jinja_context *c);
void jinja_leave(struct jinja_context *c);

// Zeroed, aligned to 16; NULL with the error set.
void *jinja_alloc(struct jinja_context *c, size_t size);
void *jinja_array(struct jinja_context *c, size_t count, size_t size);

// Output. A mark is a position; what was put since is taken off again as a string.
int jinja_put(struct jinja_context *c, const char *bytes, size_t n, bool trusted);
int jinja_puts(struct jinja_context *c, const char *text); // trusted
int jinja_put_range(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to);
int jinja_put_string(struct jinja_context *c, const struct jinja_string *s);
int jinja_put_code(struct jinja_context *c, uint32_t code, bool trusted);
size_t jinja_mark(const struct jinja_context *c);
int jinja_take(struct jinja_context *c, size_t mark, struct jinja_value *out);
void jinja_drop(struct jinja_context *c, size_t mark);

// Strings.
struct jinja_value jinja_text(struct jinja_context *c, const char *text); // trusted
int jinja_substring(struct jinja_context *c, const struct jinja_string *s, size_t from, size_t to,
                    struct jinja_value *out); // bytes; shares them
size_t jinja_chars(const struct jinja_string *s);
size_t jinja_byte_of(const struct jinja_string *s, size_t chars); // where that code point begins
bool jinja_trusted_at(const struct jinja_string *s, size_t byte);
bool jinja_all_trusted(const struct jinja_string *s);
bool jinja_is_text(struct jinja_value v, const char *text);
bool jinja_same_text(const struct jinja_string *a, const struct jinja_string *b);
bool jinja_code_is_space(uint32_t code);
// The code point at a byte, with its length; U+FFFD and 1 for what is none.
uint32_t jinja_code_at(const struct jinja_string *s, size_t byte, size_t *len);
// Where the code point after the one at a byte begins, and the one before it; 0 < byte for that.
size_t jinja_code_after(const struct jinja_string *s, size_t byte);
size_t jinja_code_before(const struct jinja_string *s, size_t byte);

struct jinja_value jinja_float(double d, bool untrusted);
struct jinja_value jinja_undefined(struct jinja_context *c, const char *hint);
// ERR_USAGE: what is wrong with using this JINJA_UNDEFINED.
int jinja_fail_undefined(struct jinja_context *c, struct jinja_value v);
// What is not there: an undefined value; ERR_USAGE (and JINJA_ABSENT) for what jinja2 has
// there and this interpreter does not.
struct jinja_value jinja_missing(struct jinja_context *c, struct jinja_value of,
                                 struct jinja_value name);
const char *jinja_type(struct jinja_value v); // Python's name of the type

// Numbers, as Python has them. Integers beyond 64 bits (JINJA_BIG) come from JSON alone: they are
// printed, and ERR_LIMIT where a template calculates with them.

enum { JINJA_FLOAT_TEXT = 80 };
// Python's repr: the shortest digits that give d again, 1.0, 1e+22, inf, nan.
void jinja_float_text(double d, char out[JINJA_FLOAT_TEXT]);
bool jinja_is_number(struct jinja_value v);  // BOOL, INT, BIG, FLOAT
bool jinja_is_integer(struct jinja_value v); // BOOL, INT, BIG
int64_t jinja_as_int(struct jinja_value v);  // of a BOOL or INT, else 0
double jinja_as_double(struct jinja_value v);
// What int() and float() of Python take: white space around, signs, underscores between digits.
// False when it is none; *over: an integer beyond 64 bits.
bool jinja_parse_integer(const char *s, size_t n, int64_t *out, bool *over);
bool jinja_parse_float(const char *s, size_t n, double *out);
// op: one of + - * / % and d (floor division); both are numbers. ERR_USAGE: division by zero,
// ERR_LIMIT: a result beyond 64 bits.
int jinja_calculate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                    struct jinja_value *out);
int jinja_negate(struct jinja_context *c, struct jinja_value a, struct jinja_value *out);
// An integer that a filter or method takes as `what`; a BIG is ERR_LIMIT.
int jinja_require_int(struct jinja_context *c, struct jinja_value v, const char *what,
                      int64_t *out);
// int(): a float cut towards zero. ERR_USAGE for infinity, ERR_LIMIT beyond 64 bits.
int jinja_cut(struct jinja_context *c, double d, struct jinja_value *out);
int jinja_fail_big(struct jinja_context *c); // ERR_LIMIT: it is beyond 64 bits

// An argument that is there and not none.
static inline bool jinja_given(struct jinja_value v) {
    return v.kind != JINJA_ABSENT && v.kind != JINJA_NONE;
}

#endif
