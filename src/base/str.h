// SPDX-License-Identifier: Apache-2.0
// A growable byte string. It always ends in a NUL that `len` does not count and may hold NULs.
// The first failed allocation sets `failed`; later appends do nothing, so one check at the end is
// enough.
#ifndef COPPICE_BASE_STR_H
#define COPPICE_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>

// A zeroed str is valid and empty (data is NULL until the first append).
struct str {
    char *data;
    size_t len, cap;
    bool failed;
};

void str_append(struct str *s, const char *bytes, size_t n);
void str_puts(struct str *s, const char *text);
void str_putc(struct str *s, char c);
void str_printf(struct str *s, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void str_clear(struct str *s); // len = 0, keeps the memory
void str_trim(struct str *s);  // gives back memory after the text, where it is much
void str_fini(struct str *s);

// Whether a list of words with a space between them has the word of n bytes.
bool str_lists(const char *words, const char *word, size_t n);
// Whether a text ends so.
bool str_ends(const char *text, const char *end);

#endif
