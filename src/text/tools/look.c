// SPDX-License-Identifier: Apache-2.0
// What readers of calls ask of the held text; see impl.h.
#include <string.h>

#include "text/tools/impl.h"

int tool_stands(const struct tool_calls *c, size_t at, const char *mark) {
    size_t len = strlen(mark), rest = c->held.len - at;
    if (rest && memcmp(c->held.data + at, mark, len < rest ? len : rest) != 0)
        return -1;
    return rest >= len;
}

static bool is_blank(char ch) {
    return ch == ' ' || ch == '\n' || ch == '\t' || ch == '\r';
}

size_t tool_blanks(const struct tool_calls *c, size_t at) {
    size_t n = 0;
    while (at + n < c->held.len && is_blank(c->held.data[at + n]))
        n++;
    return n;
}

size_t tool_partial(const char *s, size_t n, const char *mark) {
    size_t most = strlen(mark) - 1;
    for (size_t k = n < most ? n : most; k > 0; k--)
        if (!memcmp(s + n - k, mark, k))
            return k;
    return 0;
}
