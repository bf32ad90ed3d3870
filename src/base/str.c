// SPDX-License-Identifier: Apache-2.0
// A growable byte string; see str.h. Capacity grows by half, so appends cost constant time on
// average. Failure is sticky: callers append freely and look at `failed` once.
#include "base/str.h"

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"

// Makes room for n more bytes and the NUL.
static bool reserve(struct str *s, size_t n) {
    if (s->failed)
        return false;
    if (n < s->cap - s->len)
        return true;
    if (n > SIZE_MAX / 2 - s->len) {
        s->failed = true;
        return false;
    }
    size_t need = s->len + n + 1, cap = s->cap + s->cap / 2;
    cap = max_size(max_size(cap, 32), need);
    char *data = realloc(s->data, cap);
    if (!data) {
        s->failed = true;
        return false;
    }
    s->data = data;
    s->cap = cap;
    s->data[s->len] = '\0';
    return true;
}

void str_append(struct str *s, const char *bytes, size_t n) {
    if (!reserve(s, n))
        return;
    if (n)
        memcpy(s->data + s->len, bytes, n);
    s->len += n;
    s->data[s->len] = '\0';
}

void str_puts(struct str *s, const char *text) {
    str_append(s, text, strlen(text));
}

void str_putc(struct str *s, char c) {
    str_append(s, &c, 1);
}

void str_printf(struct str *s, const char *fmt, ...) {
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    if (n < 0)
        s->failed = true;
    else if (reserve(s, (size_t)n)) {
        vsnprintf(s->data + s->len, (size_t)n + 1, fmt, again);
        s->len += (size_t)n;
    }
    va_end(again);
    va_end(args);
}

void str_clear(struct str *s) {
    s->len = 0;
    if (s->data)
        s->data[0] = '\0';
}

void str_trim(struct str *s) {
    char *data = s->cap - s->len > 4096 ? realloc(s->data, s->len + 1) : NULL;
    s->cap = data ? s->len + 1 : s->cap;
    s->data = data ? data : s->data;
}

void str_fini(struct str *s) {
    free(s->data);
    *s = (struct str){0};
}

bool str_lists(const char *words, const char *word, size_t n) {
    while (*words) {
        size_t length = strcspn(words, " ");
        if (length == n && memcmp(words, word, n) == 0)
            return true;
        words += length + (words[length] == ' ');
    }
    return false;
}

bool str_ends(const char *text, const char *end) {
    size_t n = strlen(text), k = strlen(end);
    return n >= k && memcmp(text + n - k, end, k) == 0;
}
