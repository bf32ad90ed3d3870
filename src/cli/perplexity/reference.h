// SPDX-License-Identifier: Apache-2.0
// Files of reference logits, as llama.cpp's perplexity tool writes and reads them
// (--save-all-logits, --kl-divergence-base): "_logits_", then as 32-bit integers the tokens of a
// window, of the vocabulary, and the number of windows, the tokens of all windows, and for each
// window a row (rows.h) for each of its scored tokens. Little-endian, as every machine that this
// runs on.
#ifndef COPPICE_CLI_PERPLEXITY_REFERENCE_H
#define COPPICE_CLI_PERPLEXITY_REFERENCE_H

#include <stdint.h>

#include "base/err.h"
#include "base/file.h"

struct reference_shape {
    int64_t window, vocab, windows;
};

// Tokens of a window that are scored: those after its first half and one more, which both have at
// least as much before them.
static inline int64_t window_scored(int64_t window) {
    return window - 1 - window / 2;
}

// Bytes of such a file; they fit int64_t for a shape that was read or a text that is in memory.
int64_t reference_bytes(const struct reference_shape *s);

// A file to compare with. Zeroed is closed.
struct reference {
    struct file_map map;
    struct reference_shape shape;
};
// ERR_IO; ERR_FORMAT: it is no such file, or not whole.
int reference_open(struct reference *r, const char *path, struct err *e);
void reference_close(struct reference *r);
int32_t reference_token(const struct reference *r, int64_t i); // of windows * window
// Row of scored token i, [window_scored), of a window.
const uint16_t *reference_row(const struct reference *r, int64_t window, int64_t i);

// Begins a file that appears whole when file_new_close ends it. ids: [windows * window].
int reference_create(struct file_new *f, const char *path, const struct reference_shape *s,
                     const int32_t *ids, struct err *e);
// Writes row i of a window, in any order.
int reference_write(struct file_new *f, const struct reference_shape *s, int64_t window, int64_t i,
                    const uint16_t *row, struct err *e);

#endif
