// SPDX-License-Identifier: Apache-2.0
// Escapes as in Python's string literals; what begins like none of them stays as it is. Two halves
// of a surrogate pair become the character that they mean.
#include "text/jinja/syntax/escapes.h"

#include <string.h>

// Reads `count` hexadecimal digits.
static bool read_hex(const char *s, size_t n, size_t count, uint32_t *code) {
    *code = 0;
    if (n < count)
        return false;
    for (size_t i = 0; i < count; i++) {
        char low = (char)(s[i] | 0x20);
        int digit = s[i] >= '0' && s[i] <= '9' ? s[i] - '0'
                    : low >= 'a' && low <= 'f' ? low - 'a' + 10
                                               : -1;
        if (digit < 0)
            return false;
        *code = *code << 4 | (uint32_t)digit;
    }
    return true;
}

// The second half of a pair at s, joined to the first.
static size_t join_pair(const char *s, size_t n, uint32_t *code) {
    uint32_t low;
    if (*code < 0xD800 || *code >= 0xDC00 || n < 6 || s[0] != '\\' || s[1] != 'u' ||
        !read_hex(s + 2, n - 2, 4, &low) || low < 0xDC00 || low >= 0xE000)
        return 0;
    *code = 0x10000 + ((*code - 0xD800) << 10) + (low - 0xDC00);
    return 6;
}

// One escape behind its backslash; returns the bytes that it takes, 0 when it is broken, and
// SIZE_MAX when it is none.
static size_t read_escape(const char *s, size_t n, uint32_t *code) {
    static const char letters[] = "\\'\"abfnrtv", values[] = "\\'\"\a\b\f\n\r\t\v";
    const char *known = s[0] ? strchr(letters, s[0]) : NULL;
    if (known) {
        *code = (unsigned char)values[known - letters];
        return 1;
    }
    if (s[0] >= '0' && s[0] <= '7') {
        size_t i = 0;
        for (*code = 0; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++)
            *code = *code * 8 + (uint32_t)(s[i] - '0');
        return i;
    }
    size_t digits = s[0] == 'x' ? 2 : s[0] == 'u' ? 4 : s[0] == 'U' ? 8 : 0;
    if (s[0] == 'N')
        return 0;
    if (!digits)
        return SIZE_MAX;
    if (!read_hex(s + 1, n - 1, digits, code) || *code > 0x10FFFF)
        return 0;
    return 1 + digits + join_pair(s + 1 + digits, n - 1 - digits, code);
}

int jinja_unescape(struct jinja_context *c, const char *s, size_t n, struct jinja_value *out) {
    size_t mark = jinja_mark(c), plain = 0;
    int rc = 0;
    for (size_t at = 0; at < n && !rc;) {
        uint32_t code = 0;
        if (s[at] != '\\' || at + 1 >= n) {
            at++;
            continue;
        }
        size_t used = s[at + 1] == '\n' ? 1 : read_escape(s + at + 1, n - at - 1, &code);
        if (used == 0)
            return ERR_FORMAT;
        if (used != SIZE_MAX) {
            rc = jinja_put(c, s + plain, at - plain, true);
            if (!rc && s[at + 1] != '\n')
                rc = jinja_put_code(c, code, true);
            plain = at + 1 + used;
        }
        at += used == SIZE_MAX ? 2 : 1 + used;
    }
    if (!rc)
        rc = jinja_put(c, s + plain, n - plain, true);
    return rc ? rc : jinja_take(c, mark, out);
}
