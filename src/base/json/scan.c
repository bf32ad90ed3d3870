// SPDX-License-Identifier: Apache-2.0
// See scan.h.
#include "base/json/scan.h"

#include <string.h>

#include "base/utf8.h"

static size_t digits(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && s[i] >= '0' && s[i] <= '9')
        i++;
    return i;
}

bool json_fits_64_bits(const char *s, size_t n, bool negative) {
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(s[i] - '0'), &v))
            return false;
    return !negative || v <= (uint64_t)INT64_MAX + 1;
}

size_t json_scan_number(const char *s, size_t n, size_t *whole) {
    size_t i = s[0] == '-', part = digits(s + i, n - i);
    if (part == 0 || (part > 1 && s[i] == '0'))
        return 0;
    i += part;
    *whole = part;
    if (i < n && s[i] == '.') {
        part = digits(s + i + 1, n - i - 1);
        i += 1 + part;
        *whole = 0;
    }
    if (part && i < n && (s[i] == 'e' || s[i] == 'E')) {
        i++;
        i += i < n && (s[i] == '+' || s[i] == '-');
        part = digits(s + i, n - i);
        i += part;
        *whole = 0;
    }
    return part ? i : 0;
}

// How many bytes at the start of s are characters of a string that stand for themselves.
static size_t plain(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && (signed char)s[i] >= ' ' && s[i] != '"' && s[i] != '\\')
        i++;
    return i;
}

size_t json_scan_string(const char *s, size_t n, size_t *bad) {
    uint32_t code;
    for (size_t i = 1; i < n;) {
        i += plain(s + i, n - i);
        if (i < n && s[i] == '"')
            return i + 1;
        if (i < n && s[i] == '\\') {
            i += 2;
            continue;
        }
        int len = i < n ? utf8_decode(s + i, n - i, &code) : 0;
        if (i < n && (len <= 0 || code < ' ')) {
            *bad = i;
            return 0;
        }
        i += (size_t)len;
    }
    return n;
}

// The code unit of an escape of six bytes, 0 for other bytes.
static uint32_t unit(const char *s, size_t n) {
    uint32_t code = 0;
    if (n < JSON_PAIR / 2 || s[0] != '\\' || s[1] != 'u')
        return 0;
    for (int i = 2; i < JSON_PAIR / 2; i++) {
        char c = s[i];
        bool digit = c >= '0' && c <= '9';
        if (!digit && !((c | 32) >= 'a' && (c | 32) <= 'f'))
            return 0;
        code = code * 16 + (uint32_t)(digit ? c - '0' : (c | 32) - 'a' + 10);
    }
    return code;
}

size_t json_scan_pair(const char *s, size_t n, size_t at, uint32_t *code) {
    for (const char *next; at < n && (next = memchr(s + at, '\\', n - at));) {
        at = (size_t)(next - s);
        uint32_t high = unit(s + at, n - at);
        if (high < 0xD800 || high > 0xDBFF) {
            at += 2;
            continue;
        }
        at += JSON_PAIR / 2;
        uint32_t low = unit(s + at, n - at);
        if (low < 0xDC00 || low > 0xDFFF)
            continue;
        *code = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
        return at - JSON_PAIR / 2;
    }
    return n;
}

size_t json_scan_word(const char *s, size_t n) {
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        size_t len = strlen(words[i]);
        if (n >= len && memcmp(s, words[i], len) == 0)
            return len;
    }
    return 0;
}
