// SPDX-License-Identifier: Apache-2.0
// Reads one JSON value that comes in pieces: says at which byte it ends or breaks RFC 8259, and
// copies it as it comes. Raw control characters in strings, which models write, become escapes;
// everything else is copied as it stands. It decodes nothing and keeps no values
// (base/json/json.h), but for the text of a freeform tool, {"input": "..."}.
#ifndef COPPICE_TEXT_TOOLS_JSON_PIECES_H
#define COPPICE_TEXT_TOOLS_JSON_PIECES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

enum { JSON_PIECES_DEPTH = 128 }; // of arrays and objects in each other

enum json_pieces_state {
    PIECES_VALUE, // before a value
    PIECES_FIRST, // after '[': a value or the end
    PIECES_KEY,   // after '{': a key or the end
    PIECES_AFTER, // after ',' in an object: a key
    PIECES_COLON,
    PIECES_NEXT, // after a value in an array or an object
    PIECES_STRING,
    PIECES_ESCAPE,
    PIECES_HEX,
    PIECES_WORD,
    PIECES_NUMBER,
    PIECES_DONE,
    PIECES_BAD,
};

// Zeroed is valid: before the value.
struct json_pieces {
    enum json_pieces_state state;
    int depth;
    bool is_key; // the string is one
    bool objects[JSON_PIECES_DEPTH];
    int number;       // where in the grammar of a number
    int left;         // of four hexadecimal digits
    const char *word; // what is left of true, false, null
};

// Takes bytes until the value has ended or is no JSON; returns how many were taken and appended to
// out. A number outside of everything ends only by json_pieces_end or a byte that is none of it,
// which is not taken.
size_t json_pieces_push(struct json_pieces *p, const char *s, size_t n, struct str *out);
// No more bytes come: whether the value is whole.
bool json_pieces_end(struct json_pieces *p);

// Appends text as the inside of a JSON string: quotes, backslashes and control characters escaped.
void json_pieces_escape(const char *s, size_t n, struct str *out);

static inline bool json_pieces_blank(char c) {
    return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

// The text of a freeform tool out of the arguments that carry it, {"input": "..."}, as they come.

enum freeform_state {
    FREEFORM_HEAD,   // before the text
    FREEFORM_TEXT,   // in it
    FREEFORM_ESCAPE, // after a backslash
    FREEFORM_HEX,    // in the digits of one
    FREEFORM_DONE,   // after the text
    FREEFORM_BAD,    // it is something else
};

// Zeroed is valid: nothing has come.
struct freeform {
    enum freeform_state state;
    int at, digits; // in the head, without blanks; of four
    uint32_t code;
    uint32_t high; // a first surrogate that waits for the second, or 0
};

// Appends to out what of the text is known after s[n], in whole characters where s has them. A
// surrogate without its other half is U+FFFD.
void freeform_push(struct freeform *f, const char *s, size_t n, struct str *out);

#endif
