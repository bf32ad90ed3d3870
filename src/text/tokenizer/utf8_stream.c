// SPDX-License-Identifier: Apache-2.0
// See utf8_stream.h. At most three bytes are ever held, so a push first completes or rejects
// those and then copies the longest decided stretch of the new bytes in one piece.
#include "text/tokenizer/utf8_stream.h"

#include <stdint.h>
#include <string.h>

#include "base/utf8.h"

#define REPLACEMENT "\xEF\xBF\xBD"

// Feeds bytes to the held prefix one at a time until it is decided. Returns how many of the n
// bytes were used.
static size_t finish_held(struct utf8_stream *s, const char *bytes, size_t n, struct str *out) {
    size_t used = 0;
    while (s->n_held > 0 && used < n) {
        s->held[s->n_held] = (unsigned char)bytes[used];
        uint32_t code;
        int length = utf8_decode((const char *)s->held, (size_t)s->n_held + 1, &code);
        if (length < 0) {
            // The held bytes were the maximal subpart; the new byte begins something else.
            str_append(out, REPLACEMENT, 3);
            s->n_held = 0;
            return used;
        }
        used++;
        s->n_held++;
        if (length > 0) {
            str_append(out, (const char *)s->held, (size_t)length);
            s->n_held = 0;
        }
    }
    return used;
}

void utf8_stream_push(struct utf8_stream *s, const char *bytes, size_t n, struct str *out) {
    size_t at = finish_held(s, bytes, n, out);
    size_t good = at; // bytes[good..at) is valid and not yet appended
    while (at < n) {
        uint32_t code;
        int length = utf8_decode(bytes + at, n - at, &code);
        if (length > 0) {
            at += (size_t)length;
            continue;
        }
        str_append(out, bytes + good, at - good);
        if (length == 0) {
            s->n_held = (int)(n - at);
            memcpy(s->held, bytes + at, n - at);
            return;
        }
        str_append(out, REPLACEMENT, 3);
        at += (size_t)-length;
        good = at;
    }
    str_append(out, bytes + good, at - good);
}

void utf8_stream_end(struct utf8_stream *s, struct str *out) {
    if (s->n_held > 0)
        str_append(out, REPLACEMENT, 3);
    s->n_held = 0;
}
