// SPDX-License-Identifier: Apache-2.0
// Template text to tokens: text, tags and what stands in them. White space control (trim_blocks,
// lstrip_blocks, signs in tags), raw sections and comments are settled here.
#ifndef COPPICE_TEXT_JINJA_LEXER_H
#define COPPICE_TEXT_JINJA_LEXER_H

#include "text/jinja/value.h"

enum jinja_token_type {
    TOKEN_END,
    TOKEN_DATA, // text to print
    TOKEN_PRINT_BEGIN,
    TOKEN_PRINT_END,
    TOKEN_BLOCK_BEGIN,
    TOKEN_BLOCK_END,
    TOKEN_NAME,
    TOKEN_STRING,
    TOKEN_NUMBER,
    TOKEN_OPERATOR,
};

// Operators of two characters have one of their own.
enum {
    OP_FLOORDIV = 'd',
    OP_POW = '^',
    OP_EQ = 'e',
    OP_NE = 'n',
    OP_GE = 'g',
    OP_LE = 'l',
};

struct jinja_token {
    uint8_t type; // enum jinja_token_type
    char op;      // of TOKEN_OPERATOR: its character or one of the above
    int line;
    struct jinja_value value; // text, name, string or number
};

struct jinja_tokens { // zeroed is valid
    struct jinja_token *list;
    int64_t n, cap;
};
void jinja_tokens_fini(struct jinja_tokens *t);

// Fills t with the tokens of n bytes of valid UTF-8, the last one TOKEN_END; values are in c.
// ERR_FORMAT with the line in the sentence.
int jinja_lex(struct jinja_context *c, const char *text, size_t n, struct jinja_tokens *t);

// A trusted string that threads may share: nothing about it is computed later.
struct jinja_value jinja_constant(struct jinja_context *c, const char *bytes, size_t n);

#endif
