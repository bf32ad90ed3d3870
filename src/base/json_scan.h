// SPDX-License-Identifier: Apache-2.0
// The tokens of JSON text: where a number, a string or a word ends, with the checks that json-c
// leaves out. For json.c; pure functions over bytes. They do not decode.
#ifndef COPPICE_BASE_JSON_SCAN_H
#define COPPICE_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

// Length of the number at s by RFC 8259's grammar, 0 when it breaks it. *whole: how many digits it
// has if it is an integer, else 0.
size_t json_scan_number(const char *s, size_t n, size_t *whole);

// Whether the n digits fit 64 bits: unsigned for positive numbers, signed for negative ones.
bool json_fits_64_bits(const char *s, size_t n, bool negative);

// Length of the string that begins at the quote s[0], with both quotes; n when it does not end; 0
// when it holds a control character or is not UTF-8, and *bad tells where. Escapes are passed over.
size_t json_scan_string(const char *s, size_t n, size_t *bad);

// Length of true, false or null at s, 0 when it is none of them.
size_t json_scan_word(const char *s, size_t n);

#endif
