// SPDX-License-Identifier: Apache-2.0
// The smallest parts of JSON text: where a number or a string ends, and what a string's bytes are.
// For the reader in json.c; pure functions over bytes.
#ifndef COPPICE_BASE_JSON_SCAN_H
#define COPPICE_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>

// Length of the number at s by RFC 8259's grammar, 0 when it breaks it. *whole: how many digits it
// has if it is an integer, else 0.
size_t json_scan_number(const char *s, size_t n, size_t *whole);

// Whether the n digits fit 64 bits: unsigned for positive numbers, signed for negative ones.
bool json_fits_64_bits(const char *s, size_t n, bool negative);

// Length of the string that begins at the quote s[0], with both quotes; 0 when it does not end.
size_t json_scan_string(const char *s, size_t n);

// Decodes s[0..n), which stands between quotes, to out (n + 1 bytes, a NUL follows). Returns the
// length; SIZE_MAX when a byte is wrong, which *bad then tells.
size_t json_decode_string(const char *s, size_t n, char *out, size_t *bad);

#endif
