// SPDX-License-Identifier: Apache-2.0
// safetensors reader: one file, or a folder's model.safetensors / model.safetensors.index.json.
// Shapes are given in ggml order (reversed), so both file formats look alike to the loader.
#ifndef COPPICE_FORMATS_SAFETENSORS_H
#define COPPICE_FORMATS_SAFETENSORS_H

#include "base/err.h"
#include "formats/gguf.h"

struct safetensors;

// path: a .safetensors file, an index file, or a folder holding one of them.
int safetensors_open(struct safetensors **out, const char *path, struct err *e);
int safetensors_open_memory(struct safetensors **out, const void *data, size_t size, struct err *e);
void safetensors_close(struct safetensors *s);

// Tensors of numeric dtypes that have an enum tensor_type (F32, F16, BF16, F64, I8..I64);
// others are listed by name in an error only when they are asked for.
size_t safetensors_count(const struct safetensors *s);
const struct tensor *safetensors_at(const struct safetensors *s, size_t i);
const struct tensor *safetensors_tensor(const struct safetensors *s, const char *name);

#endif
