// SPDX-License-Identifier: Apache-2.0
// Unicode: normalisation form C for tokenizers that were trained on it, case and classes of code
// points for chat templates. norm.c is the only file that uses utf8proc.
#ifndef COPPICE_TEXT_TOKENIZER_NORM_H
#define COPPICE_TEXT_TOKENIZER_NORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

// True when the text is in NFC already as far as a glance tells: no code point from U+0300 on.
bool norm_is_plain(const char *s, size_t n);

// Appends NFC of s[0..n), valid UTF-8, to out. Time is linear in n.
int norm_nfc(struct str *out, const char *s, size_t n, struct err *e);

// Case of single code points, special casing of Unicode included ("ß" in upper case is "SS").
// Returns how many code points code becomes, written to out.
enum norm_case { NORM_UPPER_CASE, NORM_LOWER_CASE, NORM_TITLE_CASE };
enum { NORM_CASE_MAX = 3 };
size_t norm_map_case(uint32_t code, enum norm_case how, uint32_t out[NORM_CASE_MAX]);

// The properties of a code point, as bits; and whether Python would print it as it is.
enum {
    NORM_LETTER = 1,
    NORM_DECIMAL = 2, // digits of decimal numbers
    NORM_NUMBER = 4,  // these and other numerals
    NORM_UPPER = 8,
    NORM_LOWER = 16,
    NORM_TITLE = 32,
    NORM_CASED = 56, // any of the three above
    NORM_IGNORED_BY_CASE = 64,
};
unsigned norm_class(uint32_t code);
bool norm_is_printable(uint32_t code);

#endif
