// SPDX-License-Identifier: Apache-2.0
// Jinja templates as chat models ship them, with the settings and the sandbox of HuggingFace
// transformers (trim_blocks, lstrip_blocks, loop controls, tojson as json.dumps, nothing mutable
// but namespaces). Every string records which of its bytes come from the template and which from a
// request, and keeps that through all operations; a rendered text is therefore spans that are
// trusted or not. This header does not depend on chats, tokens or files.
#ifndef COPPICE_TEXT_JINJA_JINJA_H
#define COPPICE_TEXT_JINJA_JINJA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "base/cancel.h"
#include "base/err.h"
#include "base/json/json.h"
#include "base/str.h"

struct jinja; // a compiled template; read-only, threads may share it

// Compiles n bytes of template text (copied). ERR_FORMAT names the line and what is wrong there.
int jinja_compile(struct jinja **out, const char *text, size_t n, struct err *e);
void jinja_free(struct jinja *j);
// Whether the template mentions the word as a variable, an attribute or a whole string literal.
bool jinja_mentions(const struct jinja *j, const char *word);

// Limits of one rendering, 0: the default. Passing one is ERR_LIMIT and a sentence.
struct jinja_limits {
    int64_t steps; // nodes evaluated and pieces of text handled
    int depth;     // of nested evaluation: macros that call themselves, values in values
    size_t output; // bytes of text, captured text included
    size_t memory; // bytes of values
    const struct cancel_check *cancel; // checked from time to time: ERR_CANCELLED once set
};

// Values, variables and work space of renderings, for one thread at a time.
struct jinja_context;
int jinja_context_create(struct jinja_context **out, const struct jinja_limits *limits,
                         struct err *e); // limits may be NULL
void jinja_context_free(struct jinja_context *c);
// The error of what has been done to a context outside of a rendering, an allocation that failed
// above all; 0: none. A rendering fails with it.
int jinja_failure(const struct jinja_context *c, struct err *e);
// The time that strftime_now shows instead of the system's local time.
void jinja_context_clock(struct jinja_context *c, const struct tm *now);
// Lets templates append to lists and pop from them, which the sandbox of transformers forbids and
// some need.
void jinja_context_changes(struct jinja_context *c);

enum jinja_kind {
    JINJA_ABSENT, // no value: a missing member, an allocation that failed
    JINJA_UNDEFINED,
    JINJA_NONE,
    JINJA_BOOL,
    JINJA_INT,
    JINJA_BIG, // an integer beyond 64 bits, kept as its digits
    JINJA_FLOAT,
    JINJA_STRING,
    JINJA_LIST,
    JINJA_TUPLE,
    JINJA_DICT,
    // What only templates make.
    JINJA_NAMESPACE,
    JINJA_RANGE,
    JINJA_VIEW,     // of a dictionary: keys, values, items
    JINJA_ITERATOR, // goes over its items once
    JINJA_MACRO,
    JINJA_METHOD,
    JINJA_FUNCTION,
    JINJA_LOOP,
};

// A value, passed by copy; what it points to belongs to the context that made it, and lists and
// dictionaries are shared by all copies.
struct jinja_value {
    uint8_t kind;   // enum jinja_kind
    bool untrusted; // of a number or truth value: it came from a request
    union {
        bool b;
        int64_t i;
        double d;
        const struct jinja_string *s;
        struct jinja_list *l;
        struct jinja_dict *m;
        void *p;
    } as;
};

// Constructors. When memory is short they give JINJA_ABSENT, and jinja_render then fails with that
// sentence, so that callers need not check each.
struct jinja_value jinja_none(void);
struct jinja_value jinja_bool(bool b);
struct jinja_value jinja_int(int64_t i);
// Copies n bytes of valid UTF-8.
struct jinja_value jinja_string(struct jinja_context *c, const char *bytes, size_t n,
                                bool untrusted);
// Strings after each other, each with its origin; absent where one is no string.
struct jinja_value jinja_joined(struct jinja_context *c, const struct jinja_value *strings,
                                size_t n);
struct jinja_value jinja_list(struct jinja_context *c, bool untrusted); // empty
struct jinja_value jinja_dict(struct jinja_context *c, bool untrusted); // empty
// A copy of a JSON value: members keep their order, numbers print as Python prints them.
struct jinja_value jinja_from_json(struct jinja_context *c, const struct json *v, bool untrusted);
// A list or dictionary with the same members.
struct jinja_value jinja_copy(struct jinja_context *c, struct jinja_value v);

void jinja_append(struct jinja_context *c, struct jinja_value list, struct jinja_value item);
// Sets a member under a trusted name, at its old place when it exists. Removing keeps the order.
void jinja_put_member(struct jinja_context *c, struct jinja_value dict, const char *key,
                      struct jinja_value value);
void jinja_remove_member(struct jinja_value dict, const char *key);
// The same under a name that came from a request, for which a new member keeps it.
void jinja_put_untrusted_member(struct jinja_context *c, struct jinja_value dict, const char *key,
                                struct jinja_value value);

// Readers; JINJA_ABSENT, NULL or 0 for what is not there or of another kind.
struct jinja_value jinja_member(struct jinja_value dict, const char *key);
size_t jinja_count(struct jinja_value v);                    // members of a list, tuple, dictionary
struct jinja_value jinja_at(struct jinja_value v, size_t i); // an item; of a dictionary the value
const char *jinja_bytes(struct jinja_value string, size_t *n); // ends in NUL
bool jinja_is_true(struct jinja_value v);                      // as `if` sees it

// The text of JSON of a value, in Python's spelling, as the filter tojson writes it. ERR_USAGE,
// ERR_LIMIT, ERR_MEMORY.
int jinja_json(struct jinja_context *c, struct jinja_value v, struct jinja_value *out,
               struct err *e);

// Sets a variable for all later renderings in the context.
void jinja_set(struct jinja_context *c, const char *name, struct jinja_value v);

// Bytes up to `end` and from the end of the span before; neighbours differ in trust.
struct jinja_span {
    size_t end;
    bool trusted;
};

struct jinja_output { // zeroed is valid
    struct str text;
    struct jinja_span *spans;
    size_t n_spans;
};
void jinja_output_fini(struct jinja_output *o);

// Renders into out (its old content is freed); half a megabyte of stack is enough at the default
// depth. ERR_USAGE: the template called raise_exception, or does something with these values that
// Python refuses; ERR_LIMIT, ERR_MEMORY. out is empty then.
int jinja_render(const struct jinja *j, struct jinja_context *c, struct jinja_output *out,
                 struct err *e);

#endif
