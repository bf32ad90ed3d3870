// SPDX-License-Identifier: Apache-2.0
// Tokens to the tree, by recursive descent with jinja2's grammar and precedences. Expressions and
// statements are two files, with tools for both in a third; statements call expressions.
#ifndef COPPICE_TEXT_JINJA_SYNTAX_PARSE_H
#define COPPICE_TEXT_JINJA_SYNTAX_PARSE_H

#include "text/jinja/syntax/ast.h"
#include "text/jinja/syntax/lexer.h"

struct jinja_parser {
    struct jinja *j;
    struct jinja_context *c; // j->store
    const struct jinja_token *at;
    int depth, loops; // open expressions and statements; loops around, in this macro
    unsigned uses;    // names of the kind of USES_ seen so far
};

// All parsers return NULL with the error set.
struct jinja_node *jinja_parse_expression(struct jinja_parser *p, bool with_if);
// A tuple without brackets, or one expression; `end` is a word that ends it, or NULL.
struct jinja_node *jinja_parse_tuple(struct jinja_parser *p, bool with_if, const char *end);
// What can be assigned to: names, tuples of them, attributes of namespaces where `attributes`.
struct jinja_node *jinja_parse_target(struct jinja_parser *p, bool attributes, const char *end);
struct jinja_node *jinja_parse_filters(struct jinja_parser *p, struct jinja_node *node,
                                       bool name_first);

// Statements up to the end of the template.
int jinja_parse_template(struct jinja_parser *p, struct jinja_node **body);

// Tools for both.
struct jinja_node *jinja_node(struct jinja_parser *p, enum jinja_node_type type);
int jinja_parse_fail(struct jinja_parser *p,
                     const char *what); // "expected ..." and what stands there
bool jinja_parse_enter(struct jinja_parser *p);
bool jinja_at_word(const struct jinja_parser *p, const char *word);
bool jinja_skip_word(struct jinja_parser *p, const char *word);
bool jinja_at_op(const struct jinja_parser *p, char op);
bool jinja_skip_op(struct jinja_parser *p, char op);
bool jinja_want_op(struct jinja_parser *p, char op);
// The place of a variable's name, -1 without memory.
int jinja_name_id(struct jinja_parser *p, struct jinja_value name);
int jinja_note_word(struct jinja_parser *p, struct jinja_value word);

#endif
