// SPDX-License-Identifier: Apache-2.0
// Edits of good model files, each of which a loader must refuse with a sentence, or take.
#ifndef COPPICE_TESTS_UNIT_BAD_FILES_H
#define COPPICE_TESTS_UNIT_BAD_FILES_H

#include <stddef.h>

#include "formats/gguf/gguf.h"
#include "support/tiny_gguf.h"

// One change of a file. Keys and tensors that are not named are copied.
struct edit {
    const char *key; // replaced by value, or dropped with kind -1
    int kind;        // enum gguf_kind: an integer kind, GGUF_F32, GGUF_STRING
    int64_t value;
    double number;
    const char *text;
    int32_t list[5];    // GGUF_ARRAY: `value` numbers of it
    const char *tensor; // dropped, or renamed to `name`, or given `rows` rows
    const char *name;
    int64_t rows;
};

// The parts of rewrite: the edit's own key; all tensors of g as the edit leaves them, which closes
// w.
void put_key(struct gguf_writer *w, const struct edit *d);
void copy_tensors(const struct gguf *g, struct gguf_writer *w, const struct edit *d);
// Writes the file `in` with one edit.
void rewrite(const char *in, const char *out, const struct edit *d);

struct bad {
    int code;
    const char *word; // in the sentence
    struct edit edit;
};

// Each edit of a target of that shape, which gets a block for next-token prediction, so that there
// are tensors which no check misses.
void refuse_each(struct tiny_shape shape, const struct bad *list, size_t n);

#endif
