// SPDX-License-Identifier: Apache-2.0
// Formats error sentences; see err.h. A sentence quotes what files and users say, so it is made
// fit for a terminal here, once for all: no name in a file may move a cursor or forge a line.
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"

// Puts '?' for each byte of what is no UTF-8 (a name cut short, too) and of control characters.
static void make_plain(char *s) {
    size_t n = strlen(s);
    uint32_t code;
    for (size_t i = 0; i < n;) {
        int len = utf8_decode(s + i, n - i, &code);
        size_t step = len > 0 ? (size_t)len : len < 0 ? (size_t)-len : n - i;
        bool control = len > 0 && (code < 0x20 || (code >= 0x7F && code < 0xA0));
        if (len <= 0 || control)
            memset(s + i, '?', step);
        i += step;
    }
}

int err_set(struct err *e, int code, const char *fmt, ...) {
    if (!e)
        return code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    make_plain(e->text);
    e->code = code;
    return code;
}

int err_prefix(struct err *e, const char *fmt, ...) {
    if (!e)
        return ERR_STATE;
    char rest[sizeof e->text];
    memcpy(rest, e->text, sizeof rest);
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
    make_plain(e->text);
    size_t used = strlen(e->text);
    if (strncmp(rest, e->text, used) == 0 && strncmp(rest + used, ": ", 2) == 0)
        memcpy(e->text, rest, sizeof rest); // it is there already
    else
        snprintf(e->text + used, sizeof e->text - used, ": %s", rest);
    make_plain(e->text);
    return e->code;
}
