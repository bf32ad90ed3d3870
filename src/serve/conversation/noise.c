// SPDX-License-Identifier: Apache-2.0
// Lines that are no part of a conversation; see noise.h.
#include "serve/conversation/noise.h"

#include <string.h>

// Claude Code: its version and a checksum of the request.
static const char billing[] = "x-anthropic-billing-header:";

size_t noise_length(const char *s, size_t n) {
    size_t at = 0, len = sizeof billing - 1;
    while (n - at >= len && memcmp(s + at, billing, len) == 0) {
        const char *end = memchr(s + at, '\n', n - at);
        at = end ? (size_t)(end + 1 - s) : n;
    }
    return at;
}
