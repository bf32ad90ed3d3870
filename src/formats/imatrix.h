// SPDX-License-Identifier: Apache-2.0
// Importance matrices: for each weight matrix of a model, the mean square of every input column
// over some text. Encoders let an error in a column count as much (formats/quant/quant.h). Both
// established file formats are read, the GGUF one is written (docs/formats.md).
#ifndef COPPICE_FORMATS_IMATRIX_H
#define COPPICE_FORMATS_IMATRIX_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"

struct imatrix;

struct imatrix_entry {
    const char *name; // of the weight: "blk.0.ffn_up.weight"
    const float *v;   // [count] mean squares, finite and >= 0; 1 where nothing was counted
    int64_t count;    // columns, times slices of a tensor with one matrix per expert
};

// Errors: a file that cannot be read, that is neither format, or whose numbers make no sense.
int imatrix_open(struct imatrix **out, const char *path, struct err *e);
void imatrix_close(struct imatrix *m);

size_t imatrix_count(const struct imatrix *m);
const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name); // or NULL
const struct imatrix_entry *imatrix_at(const struct imatrix *m, size_t i); // in file order

// What a file that was made with it says about it: pieces of text counted, and the text's name
// (NULL when the file does not say).
int64_t imatrix_chunks(const struct imatrix *m);
const char *imatrix_dataset(const struct imatrix *m);
const char *imatrix_path(const struct imatrix *m);

// Sums over one weight's inputs, for writing.
struct imatrix_sum {
    const char *name;
    const double *squares; // [experts or 1][columns]
    int64_t columns, rows; // rows: inputs that were summed
    int64_t experts;       // 0: one matrix
    const int64_t *counts; // [experts] inputs of each
};

struct imatrix_info {
    const char *dataset;
    int64_t chunks, chunk_size; // pieces of text and tokens of each
};

// Fills a writer that was just opened with the GGUF format and closes it in any case; errors are
// those of the writer.
int imatrix_write(struct gguf_writer *w, const struct imatrix_sum *sums, size_t n,
                  const struct imatrix_info *info, struct err *e);

#endif
