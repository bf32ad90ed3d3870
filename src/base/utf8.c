// SPDX-License-Identifier: Apache-2.0
// UTF-8 after table 3-7 of the Unicode standard; see utf8.h. The first byte fixes the
// length and the range of the second byte; that range alone excludes surrogates, overlong forms
// and values beyond U+10FFFF.
#include "base/utf8.h"

// Length that a first byte announces and the range of the second byte; 0: no first byte.
static int lead(unsigned char c, unsigned *lo, unsigned *hi) {
    *lo = 0x80;
    *hi = 0xBF;
    if (c < 0x80)
        return 1;
    if (c < 0xC2 || c > 0xF4)
        return 0;
    if (c == 0xE0)
        *lo = 0xA0;
    if (c == 0xED)
        *hi = 0x9F;
    if (c == 0xF0)
        *lo = 0x90;
    if (c == 0xF4)
        *hi = 0x8F;
    return c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

int utf8_decode(const char *s, size_t n, uint32_t *code) {
    if (n == 0)
        return 0;
    const unsigned char *u = (const unsigned char *)s;
    unsigned lo, hi;
    int len = lead(u[0], &lo, &hi);
    if (len == 0)
        return -1;
    if (len == 1) {
        *code = u[0];
        return 1;
    }
    uint32_t c = u[0] & (0x7Fu >> len);
    for (int i = 1; i < len; i++) {
        if ((size_t)i == n)
            return 0;
        if (u[i] < lo || u[i] > hi)
            return -i;
        c = c << 6 | (u[i] & 0x3Fu);
        lo = 0x80;
        hi = 0xBF;
    }
    *code = c;
    return len;
}

int utf8_encode(char *out, uint32_t code) {
    if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF))
        code = 0xFFFD;
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int len = code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    for (int i = len - 1; i > 0; i--, code >>= 6)
        out[i] = (char)(0x80 | (code & 0x3F));
    out[0] = (char)((0xF00 >> len & 0xFF) | (int)code);
    return len;
}

bool utf8_valid(const char *s, size_t n) {
    uint32_t code;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &code);
        if (len <= 0)
            return false;
        i += (size_t)len;
    }
    return true;
}

size_t utf8_count(const char *s, size_t n) {
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((unsigned char)s[i] & 0xC0) != 0x80;
    return count;
}

void utf8_sanitise(struct str *out, const char *s, size_t n) {
    size_t good = 0; // start of the valid bytes not yet appended
    uint32_t code;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &code);
        if (len > 0) {
            i += (size_t)len;
            continue;
        }
        str_append(out, s + good, i - good);
        str_puts(out, "\xEF\xBF\xBD");
        i += len ? (size_t)-len : n - i; // an unfinished sequence at the end is one subpart
        good = i;
    }
    str_append(out, s + good, n - good);
}
