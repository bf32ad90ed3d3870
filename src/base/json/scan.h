// SPDX-License-Identifier: Apache-2.0
// The tokens of JSON text: where a number, a string or a word ends, with the checks that json-c
// leaves out, and what it decodes wrongly. For json.c; pure functions over bytes.
#ifndef COPPICE_BASE_JSON_SCAN_H
#define COPPICE_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// Length of the number at s by RFC 8259's grammar, 0 when it breaks it. *whole: how many digits it
// has if it is an integer, else 0.
size_t json_scan_number(const char *s, size_t n, size_t *whole);

// Whether the n digits fit 64 bits: unsigned for positive numbers, signed for negative ones.
bool json_fits_64_bits(const char *s, size_t n, bool negative);

// Length of the string that begins at the quote s[0], with both quotes; n when it does not end; 0
// when it holds a control character or is not UTF-8, and *bad tells where. Escapes are passed over.
size_t json_scan_string(const char *s, size_t n, size_t *bad);

// Where in the n bytes of a string the next two escapes at or behind `at` begin that stand for one
// code point, JSON_PAIR bytes long; n without any. `at` is not within an escape.
enum { JSON_PAIR = 12 };
size_t json_scan_pair(const char *s, size_t n, size_t at, uint32_t *code);

// Length of true, false or null at s, 0 when it is none of them.
size_t json_scan_word(const char *s, size_t n);

#endif
