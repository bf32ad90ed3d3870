// SPDX-License-Identifier: Apache-2.0
// The tree of a compiled template: one kind of node for statements and expressions; which members
// a type uses stands next to it. Lists of nodes hang together by `next`.
#ifndef COPPICE_TEXT_JINJA_AST_H
#define COPPICE_TEXT_JINJA_AST_H

#include "text/jinja/builtins.h"

enum jinja_node_type {
    // Expressions
    NODE_CONST,   // value
    NODE_NAME,    // id
    NODE_LIST,    // list
    NODE_TUPLE,   // list
    NODE_DICT,    // list: key, value, key, value ...
    NODE_ATTR,    // a.value
    NODE_ITEM,    // a[b]
    NODE_SLICE,   // a[b:c:d], each of b, c, d may be missing
    NODE_CALL,    // a(args)
    NODE_FILTER,  // a | builtin(args); a is missing in blocks; value: its name
    NODE_TEST,    // a is builtin(args)
    NODE_UNARY,   // op a: '-', '+', '!' (not)
    NODE_BINARY,  // a op b, as jinja_calculate names them
    NODE_AND,     // a, b
    NODE_OR,      // a, b
    NODE_CONCAT,  // list
    NODE_COMPARE, // a, then list of NODE_OPERAND
    NODE_OPERAND, // op a; op 'i': in, 'o': not in
    NODE_COND,    // b if a else c; c may be missing
    NODE_NSREF,   // id.value, as a target
    // Arguments of calls
    NODE_ARG,   // a
    NODE_KWARG, // value=a
    // Statements
    NODE_TEXT,         // value
    NODE_PRINT,        // a
    NODE_IF,           // a: body, else b (which may be another NODE_IF list)
    NODE_FOR,          // for a in b if c: body, else d; flag: body uses the loop variable
    NODE_SET,          // a = b
    NODE_SET_BLOCK,    // a = body through filter b
    NODE_MACRO,        // value(list: NODE_PARAM) body; id
    NODE_PARAM,        // id = a; value: its name
    NODE_FILTER_BLOCK, // filter a over body
    NODE_WITH,         // list: NODE_SET, body
    NODE_SCOPE,        // body with variables of its own
    NODE_BREAK,
    NODE_CONTINUE,
};

struct jinja_node {
    uint8_t type; // enum jinja_node_type
    char op;
    bool flag;
    int line;
    int id; // of a variable: its place among the names
    struct jinja_value value;
    const struct jinja_builtin *builtin; // NULL: there is none of that name
    struct jinja_node *a, *b, *c, *d;
    struct jinja_node *list, *body, *args;
    struct jinja_node *next;
};

struct jinja {
    struct jinja_context *store; // where nodes and constants are; not for rendering
    struct jinja_node *body;
    struct jinja_dict *ids;   // name -> place
    struct jinja_dict *words; // what jinja_mentions finds
};

// The name that every template has, at this place.
enum { ID_LOOP };

// Fills j, whose store is empty, with the tree of n bytes of valid UTF-8. ERR_FORMAT with the line
// in the sentence, also for what jinja2 has and this interpreter does not.
int jinja_parse(struct jinja *j, const char *text, size_t n);

#endif
