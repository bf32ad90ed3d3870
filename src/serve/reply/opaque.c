// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4); see opaque.h.
#include "serve/reply/opaque.h"

#include <stdint.h>
#include <string.h>

static const char mark[] = "coppice-1.";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void opaque_encode(const char *text, size_t n, struct str *out) {
    str_puts(out, mark);
    for (size_t i = 0; i < n; i += 3) {
        size_t m = n - i < 3 ? n - i : 3;
        uint32_t v = 0;
        for (size_t k = 0; k < 3; k++)
            v = v << 8 | (k < m ? (unsigned char)text[i + k] : 0);
        for (size_t k = 0; k < 4; k++)
            str_putc(out, k <= m ? digits[v >> (18 - 6 * k) & 63] : '=');
    }
}

bool opaque_decode(const char *s, size_t n, struct str *out) {
    size_t at = sizeof mark - 1, from = out->len;
    if (n < at || memcmp(s, mark, at) != 0 || (n - at) % 4 != 0)
        return false;
    uint32_t v = 0;
    int bits = 0;
    while (n > at && s[n - 1] == '=')
        n--;
    for (; at < n; at++) {
        const char *d = s[at] ? strchr(digits, s[at]) : NULL;
        if (!d) {
            out->len = from;
            return false;
        }
        v = v << 6 | (uint32_t)(d - digits);
        bits += 6;
        if (bits >= 8) {
            bits -= 8;
            str_putc(out, (char)(v >> bits & 255));
        }
    }
    return true;
}
