// SPDX-License-Identifier: Apache-2.0
// See json_scan.h.
#include "base/json_scan.h"

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

static int read_hex(const char *s) {
    int code = 0;
    for (int i = 0; i < 4; i++) {
        char c = s[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        code = code << 4 | digit;
    }
    return code;
}

static size_t put_utf8(char *out, uint32_t code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    size_t n = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00 >> n & 0xF0) | code);
    return n;
}

// The escape at s, behind whose backslash at least one byte stands, and n bytes in all. Returns its
// length, 0 when it is none; *code: what it stands for. A lone half of a surrogate pair, which has
// no UTF-8, is U+FFFD.
static size_t read_escape(const char *s, size_t n, uint32_t *code) {
    static const char names[] = "\"\\/bfnrt", bytes[] = "\"\\/\b\f\n\r\t";
    const char *simple = memchr(names, s[1], sizeof names - 1);
    if (simple) {
        *code = (unsigned char)bytes[simple - names];
        return 2;
    }
    int high = s[1] == 'u' && n >= 6 ? read_hex(s + 2) : -1;
    if (high < 0)
        return 0;
    *code = (uint32_t)high;
    if (high < 0xD800 || high > 0xDFFF)
        return 6;
    int low = high < 0xDC00 && n >= 12 && s[6] == '\\' && s[7] == 'u' ? read_hex(s + 8) : -1;
    bool pair = low >= 0xDC00 && low <= 0xDFFF;
    *code = pair ? 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00) : 0xFFFD;
    return pair ? 12 : 6;
}

size_t json_scan_string(const char *s, size_t n) {
    for (size_t i = 1; i < n; i++) {
        if (s[i] == '"')
            return i + 1;
        i += s[i] == '\\';
    }
    return 0;
}

// How many bytes at the start of s stand for themselves.
static size_t plain(const char *s, size_t n) {
    size_t i = 0;
    while (i < n && (signed char)s[i] >= ' ' && s[i] != '\\')
        i++;
    return i;
}

size_t json_decode_string(const char *s, size_t n, char *out, size_t *bad) {
    char *to = out;
    uint32_t code = 0;
    for (size_t i = 0, step; i < n; i += step) {
        step = plain(s + i, n - i);
        if (step) {
            memcpy(to, s + i, step);
            to += step;
            continue;
        }
        int len = utf8_decode(s + i, n - i, &code);
        step = len > 0 ? (size_t)len : 0;
        if (step && s[i] == '\\')
            step = i + 1 < n ? read_escape(s + i, n - i, &code) : 0;
        else if (code < ' ')
            step = 0;
        if (step == 0) {
            *bad = i;
            return SIZE_MAX;
        }
        to += put_utf8(to, code);
    }
    *to = '\0';
    return (size_t)(to - out);
}
