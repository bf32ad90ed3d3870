// SPDX-License-Identifier: Apache-2.0
// Numbers as Python has them: text of floats and integers both ways, arithmetic with floor
// division. Integers beyond 64 bits are kept and printed, but not calculated with.
#ifndef COPPICE_TEXT_JINJA_VALUE_NUMBER_H
#define COPPICE_TEXT_JINJA_VALUE_NUMBER_H

#include "text/jinja/value/value.h"

enum { JINJA_FLOAT_TEXT = 80 };
// Python's repr: the shortest digits that give d again, 1.0, 1e+22, inf, nan.
void jinja_float_text(double d, char out[JINJA_FLOAT_TEXT]);

bool jinja_is_number(struct jinja_value v);  // BOOL, INT, BIG, FLOAT
bool jinja_is_integer(struct jinja_value v); // BOOL, INT, BIG

// Digits of a base (after any sign and prefix) as an INT or BIG. False when they are none.
bool jinja_read_integer(struct jinja_context *c, const char *s, size_t n, int base,
                        struct jinja_value *out);
// What int() and float() of Python take: white space around, signs, underscores between digits.
bool jinja_parse_integer(struct jinja_context *c, const char *s, size_t n, int base,
                         struct jinja_value *out);
bool jinja_parse_float(const char *s, size_t n, double *out);

// op: one of + - * / % ^ (power) and d (floor division); both are numbers. ERR_USAGE: division by
// zero, ERR_LIMIT: a result beyond 64 bits.
int jinja_calculate(struct jinja_context *c, char op, struct jinja_value a, struct jinja_value b,
                    struct jinja_value *out);
int jinja_negate(struct jinja_context *c, struct jinja_value a, struct jinja_value *out);
// An integer that a filter or method takes as `what`; a BIG is ERR_LIMIT.
int jinja_want_int(struct jinja_context *c, struct jinja_value v, const char *what, int64_t *out);
// int(): a float cut towards zero. ERR_USAGE for infinity, ERR_LIMIT beyond 64 bits.
int jinja_cut(struct jinja_context *c, double d, struct jinja_value *out);

#endif
