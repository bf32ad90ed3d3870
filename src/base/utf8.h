// SPDX-License-Identifier: Apache-2.0
// UTF-8 reading, writing, validation and repair (Unicode 15, table 3-7; one U+FFFD per maximal
// subpart).
#ifndef COPPICE_BASE_UTF8_H
#define COPPICE_BASE_UTF8_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/str.h"

// Decodes one code point at s[0..n). Returns its length 1..4; 0 when the bytes are a so far
// valid but incomplete prefix; -k when the first k bytes are a maximal ill-formed subpart.
int utf8_decode(const char *s, size_t n, uint32_t *code);

// Writes a code point to out, which has room for 4 bytes, and returns its length 1..4; bytes after
// it stay as they are. A surrogate or a value above 0x10FFFF is written as U+FFFD, so utf8_decode
// takes whatever this gives.
int utf8_encode(char *out, uint32_t code);

bool utf8_valid(const char *s, size_t n);

// Code points of valid UTF-8.
size_t utf8_count(const char *s, size_t n);

// Appends s to out with every ill-formed subpart replaced by U+FFFD.
void utf8_sanitise(struct str *out, const char *s, size_t n);

#endif
