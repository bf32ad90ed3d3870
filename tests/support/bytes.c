// SPDX-License-Identifier: Apache-2.0
// See bytes.h.
#include "support/bytes.h"

#include <stdlib.h>
#include <string.h>

int bytes_sink(void *arg, const void *data, size_t n, struct err *e) {
    struct bytes *b = arg;
    if (b->full && b->n + n >= b->full)
        return err_set(e, ERR_IO, "the disk is full");
    if (b->n + n > b->cap) {
        size_t cap = 2 * (b->n + n);
        unsigned char *more = realloc(b->data, cap);
        if (!more)
            return err_set(e, ERR_MEMORY, "no memory for %zu bytes", cap);
        b->data = more;
        b->cap = cap;
    }
    memcpy(b->data + b->n, data, n);
    b->n += n;
    return 0;
}

int bytes_over(void *arg, int64_t at, const void *data, size_t n, struct err *e) {
    struct bytes *b = arg;
    if (at < 0 || (size_t)at > b->n || n > b->n - (size_t)at)
        return err_set(e, ERR_IO, "no bytes are there yet");
    memcpy(b->data + at, data, n);
    return 0;
}

int bytes_source(void *arg, void *data, size_t n, struct err *e) {
    struct bytes *b = arg;
    if (n > b->n - b->at)
        return stored_ends_early(e);
    memcpy(data, b->data + b->at, n);
    b->at += n;
    return 0;
}
