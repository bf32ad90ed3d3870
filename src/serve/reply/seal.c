// SPDX-License-Identifier: Apache-2.0
// Base64 (RFC 4648, section 4); see seal.h.
#include "serve/reply/seal.h"

#include <stdint.h>
#include <string.h>

static const char mark[] = "coppice-1.";
static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

void reasoning_seal(const char *text, size_t n, struct str *out) {
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

bool reasoning_unseal(const char *sealed, size_t n, struct str *out) {
    size_t at = sizeof mark - 1, from = out->len;
    if (n < at || memcmp(sealed, mark, at) != 0 || (n - at) % 4 != 0)
        return false;
    uint32_t v = 0;
    int bits = 0;
    while (n > at && sealed[n - 1] == '=')
        n--;
    for (; at < n; at++) {
        const char *d = sealed[at] ? strchr(digits, sealed[at]) : NULL;
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
