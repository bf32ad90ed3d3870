// SPDX-License-Identifier: Apache-2.0
// Shared by the files of convert only: matrices whose codes and scales lie apart in a folder.
#ifndef COPPICE_CONVERT_QUANTIZE_PACKED_H
#define COPPICE_CONVERT_QUANTIZE_PACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"
#include "formats/gguf/gguf.h"

struct convert_job;

// The type of a source of that kind: its struct tensor is the first member of this.
enum { CONVERT_PACKED = 1 << 20 };

struct convert_packed {
    struct tensor t; // as if it held numbers
    bool int4;       // else E4M3
    const unsigned char *codes;
    int64_t row_bytes;
    const struct tensor *scale; // TYPE_I8: powers of two (E8M0)
    int64_t rows, columns;      // elements that share a scale
    int64_t scale_columns, scale_slice;
};

// Elements at .. at + n: a code times the scale of its block, in single precision.
void convert_unpack(const struct tensor *t, int64_t at, int64_t n, float *dst);
int64_t convert_packed_bytes(const struct tensor *t, int64_t n); // of n codes

// Reads quantization_config. ERR_UNSUPPORTED names what cannot be converted.
int convert_read_packing(struct convert_job *j, struct err *e);
// A source of that kind under its full name; *out NULL when there is none. Errors: a scale or a
// shape is missing, does not fit, or is not as quantization_config says.
int convert_find_packed(struct convert_job *j, const char *name, const struct tensor **out,
                        struct err *e);

#endif
