// SPDX-License-Identifier: Apache-2.0
// Unicode normalisation form C for tokenizers that were trained on it. norm.c is the only file
// that knows utf8proc.
#ifndef COPPICE_TEXT_NORM_H
#define COPPICE_TEXT_NORM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

// True when the text is in NFC already as far as a glance tells: no code point from U+0300 on.
bool norm_is_plain(const char *s, size_t n);

// Appends NFC of s[0..n), valid UTF-8, to out. Time is linear in n.
int norm_nfc(struct str *out, const char *s, size_t n, struct err *e);

#endif
