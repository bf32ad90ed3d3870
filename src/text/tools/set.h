// SPDX-License-Identifier: Apache-2.0
// The tools that a request declares, as far as the reader of replies needs them: names, whether the
// input is free text, and for each parameter the kinds of values that its schema allows. Everything
// is copied out of the schemas, so a set outlives the request's JSON and any thread may read it.
#ifndef COPPICE_TEXT_TOOLS_SET_H
#define COPPICE_TEXT_TOOLS_SET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/json/json.h"

enum tool_types { // bits
    TOOL_NULL = 1,
    TOOL_BOOL = 2,
    TOOL_NUMBER = 4,
    TOOL_STRING = 8,
    TOOL_ARRAY = 16,
    TOOL_OBJECT = 32,
    TOOL_ANY = 63,
};

struct tool_param {
    char *name;
    size_t n; // bytes of it
    unsigned types;
};

struct tool {
    char *name;
    size_t n;      // bytes of it
    bool freeform; // its input is one text, which stands in the parameter "input"
    struct tool_param *params;
    int n_params;
    unsigned others; // types of parameters that the schema does not name
};

// Zeroed is valid: no tools.
struct tool_set {
    struct tool *list;
    int n;
};

// Adds a tool by its name; schema: of its parameters, NULL: anything. Of tools with one name the
// first counts. $ref into the schema itself, anyOf, oneOf, allOf, enum and const are followed;
// what is not understood allows anything. ERR_MEMORY.
int tool_set_add(struct tool_set *s, const char *name, size_t n, const struct json *schema,
                 bool freeform, struct err *e);
void tool_set_cut(struct tool_set *s, int n); // the first n stay
void tool_set_fini(struct tool_set *s);

const struct tool *tool_set_find(const struct tool_set *s, const char *name, size_t n); // or NULL
// The types that a parameter of the tool may have.
unsigned tool_param_types(const struct tool *t, const char *name, size_t n);

#endif
