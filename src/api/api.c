// SPDX-License-Identifier: Apache-2.0
// Errors and sized structs of the public interface, and its version.
#include "api/api.h"

#include <string.h>

#include "base/num.h"

_Static_assert((int)COPPICE_ERR_USAGE == (int)ERR_USAGE && (int)COPPICE_ERR_IO == (int)ERR_IO &&
                   (int)COPPICE_ERR_FORMAT == (int)ERR_FORMAT &&
                   (int)COPPICE_ERR_UNSUPPORTED == (int)ERR_UNSUPPORTED &&
                   (int)COPPICE_ERR_MISMATCH == (int)ERR_MISMATCH &&
                   (int)COPPICE_ERR_MEMORY == (int)ERR_MEMORY &&
                   (int)COPPICE_ERR_LIMIT == (int)ERR_LIMIT &&
                   (int)COPPICE_ERR_STATE == (int)ERR_STATE &&
                   (int)COPPICE_ERR_DEVICE == (int)ERR_DEVICE,
               "codes go out as they are");
_Static_assert((int)COPPICE_END_STOP == (int)END_STOP &&
                   (int)COPPICE_END_LENGTH == (int)END_LENGTH &&
                   (int)COPPICE_END_CONTEXT == (int)END_CONTEXT &&
                   (int)COPPICE_END_CALLER == (int)END_CALLER,
               "so do reasons");
_Static_assert(sizeof((struct err *)0)->text <= sizeof((struct coppice_error *)0)->text,
               "a sentence fits");

const char *coppice_version(void) {
    return COPPICE_VERSION;
}

int api_result(int rc, const struct err *from, struct coppice_error *to) {
    if (rc < 0 && to) {
        to->code = rc;
        memcpy(to->text, from->text, sizeof from->text);
    }
    return rc;
}

int api_take(void *to, size_t bytes, const void *from, const char *name, struct err *e) {
    const unsigned char *b = from;
    size_t size;
    if (!from)
        return err_set(e, ERR_USAGE, "struct %s is missing", name);
    memcpy(&size, from, sizeof size);
    if (size < sizeof size || size > 1 << 16)
        return err_set(e, ERR_USAGE, "the size in struct %s is %zu; set it to sizeof(struct %s)",
                       name, size, name);
    for (size_t i = bytes; i < size; i++)
        if (b[i])
            return err_set(e, ERR_USAGE,
                           "struct %s sets a field that version " COPPICE_VERSION
                           " of the library does not know; install a newer one",
                           name);
    memset(to, 0, bytes);
    memcpy(to, from, min_size(size, bytes));
    return 0;
}

void api_give(void *to, const void *from, size_t bytes) {
    size_t size;
    if (!to)
        return;
    memcpy(&size, to, sizeof size);
    if (size < sizeof size || size > 1 << 16)
        return;
    memset((unsigned char *)to + sizeof size, 0, size - sizeof size);
    memcpy((unsigned char *)to + sizeof size, (const unsigned char *)from + sizeof size,
           min_size(size, bytes) - sizeof size);
}
