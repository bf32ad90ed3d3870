// SPDX-License-Identifier: Apache-2.0
// safetensors reader: one file, or a folder's model.safetensors / model.safetensors.index.json.
// Shapes are given in ggml order (reversed), so both file formats look alike to the loader.
#ifndef COPPICE_FORMATS_SAFETENSORS_H
#define COPPICE_FORMATS_SAFETENSORS_H

#include "base/err.h"
#include "formats/gguf/gguf.h"

struct safetensors;

// path: a .safetensors file, an index file (.json), or a folder holding one of them. The files must
// not shrink while they are open: reading a page that has gone raises SIGBUS.
int safetensors_open(struct safetensors **out, const char *path, struct err *e);
void safetensors_close(struct safetensors *s);

// Tensors whose dtype has an enum tensor_type (F16, BF16, F32, F64, I8..I64) and that have at most
// 4 dimensions. A scalar has one dimension of 1; a dimension may be 0, then data is empty.
size_t safetensors_count(const struct safetensors *s);
const struct tensor *safetensors_at(const struct safetensors *s, size_t i); // file order
const struct tensor *safetensors_tensor(const struct safetensors *s, const char *name);

// A tensor of that dtype, one byte an element ("U8", "F8_E4M3", …), with at most 4 dimensions,
// which is none of the above: its bytes, as TYPE_I8. NULL when there is none of that name and
// dtype.
const struct tensor *safetensors_bytes(const struct safetensors *s, const char *name,
                                       const char *dtype);

// Why a tensor is in the file but not among those above ("dtype F8_E4M3", "5 dimensions"), for the
// error sentence of what needs it; NULL when the name is absent or readable.
const char *safetensors_unreadable(const struct safetensors *s, const char *name);
size_t safetensors_unreadable_count(const struct safetensors *s);
const char *safetensors_unreadable_at(const struct safetensors *s, size_t i); // its name

#endif
