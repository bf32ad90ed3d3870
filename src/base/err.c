// SPDX-License-Identifier: Apache-2.0
// Formats error sentences; see err.h.
#include "base/err.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

int err_set(struct err *e, int code, const char *fmt, ...) {
    if (!e)
        return code;
    va_list args;
    va_start(args, fmt);
    vsnprintf(e->text, sizeof e->text, fmt, args);
    va_end(args);
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
    size_t used = strlen(e->text);
    snprintf(e->text + used, sizeof e->text - used, ": %s", rest);
    return e->code;
}
