// SPDX-License-Identifier: Apache-2.0
// A hash of what a model file says, by which state that was computed with it is recognised. Not for
// cryptography: it tells other models, fine-tunes and quantisations apart, not forgeries.
#ifndef COPPICE_FORMATS_CONTENT_H
#define COPPICE_FORMATS_CONTENT_H

#include "base/hash.h"
#include "formats/gguf.h"

// Adds name, type, shape and data: all of it up to 64 KiB, of larger tensors sixteen pieces of
// 4 KiB at equal distances, the first and the last among them.
void content_add_tensor(struct hash *h, const struct tensor *t);

// Of an open file: every metadata entry and every tensor in file order. Where the file lies, how it
// is split and padded does not matter.
uint64_t content_of_gguf(const struct gguf *g);

#endif
