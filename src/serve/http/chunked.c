// SPDX-License-Identifier: Apache-2.0
// See chunked.h: one state per place in the grammar, one byte at a time but for the data.
// Extensions of a chunk and trailers are read over, within bounds.
#include "serve/http/chunked.h"

#include "base/num.h"

enum {
    LINE_MAX_BYTES = 256,    // of a size with its extensions
    TRAILER_MAX_BYTES = 8192 // of all trailers
};

enum state {
    SIZE_FIRST, // the first digit of a chunk's size
    SIZE,
    EXTENSION, // behind ';' or space
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST, // the first byte of a trailer line, or the CR of the end
    TRAILER,
    TRAILER_LF,
    END_LF
};

static int hex(char c) {
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// Whether b may follow in the size line; moves to the next state.
static bool take_size(struct http_chunked *c, char b) {
    int digit = c->state == EXTENSION ? -1 : hex(b);
    if (++c->line > LINE_MAX_BYTES)
        return false;
    if (digit >= 0) {
        bool fits = c->left <= UINT64_MAX >> 4;
        c->left = c->left << 4 | (unsigned)digit;
        c->state = SIZE;
        return fits;
    }
    if (c->state == SIZE_FIRST)
        return false;
    if (b == '\r')
        c->state = SIZE_LF;
    else if (c->state == SIZE && b != ';' && b != ' ' && b != '\t')
        return false;
    else
        c->state = EXTENSION;
    return b == '\r' || b == '\t' || ((unsigned char)b >= ' ' && b != 0x7F);
}

static bool take_trailer(struct http_chunked *c, char b) {
    if (++c->line > TRAILER_MAX_BYTES)
        return false;
    if (b == '\r') {
        c->state = c->state == TRAILER_FIRST ? END_LF : TRAILER_LF;
        return true;
    }
    c->state = TRAILER;
    return b == '\t' || ((unsigned char)b >= ' ' && b != 0x7F);
}

static bool take_byte(struct http_chunked *c, char b) {
    switch ((enum state)c->state) {
    case SIZE_FIRST:
    case SIZE:
    case EXTENSION:
        return take_size(c, b);
    case SIZE_LF:
        c->state = c->left ? DATA : TRAILER_FIRST;
        c->line = 0;
        return b == '\n';
    case DATA_CR:
        c->state = DATA_LF;
        return b == '\r';
    case DATA_LF:
        c->state = SIZE_FIRST;
        return b == '\n';
    case TRAILER_FIRST:
    case TRAILER:
        return take_trailer(c, b);
    case TRAILER_LF:
        c->state = TRAILER_FIRST;
        return b == '\n';
    case END_LF:
        c->done = true;
        return b == '\n';
    case DATA:
        break;
    }
    return false;
}

int http_chunked_take(struct http_chunked *c, const char *in, size_t n, size_t *used, int *status,
                      struct err *e) {
    size_t i = 0;
    for (*used = 0; i < n && !c->done; *used = i) {
        if (c->state != DATA) {
            if (!take_byte(c, in[i++])) {
                *status = 400;
                return err_set(e, ERR_FORMAT, "the chunks of the request's body are broken");
            }
            continue;
        }
        size_t piece = (size_t)c->left < n - i ? (size_t)c->left : n - i;
        if (c->left > c->limit - min_size(c->body->len, c->limit)) {
            *status = 413;
            return err_set(e, ERR_FORMAT, "the request's body is larger than %zu bytes", c->limit);
        }
        str_append(c->body, in + i, piece);
        if (c->body->failed) {
            *status = 503;
            return err_set(e, ERR_MEMORY, "out of memory for the body of a request");
        }
        i += piece;
        c->left -= piece;
        c->state = c->left ? DATA : DATA_CR;
    }
    return 0;
}
