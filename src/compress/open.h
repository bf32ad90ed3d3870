// SPDX-License-Identifier: Apache-2.0
// Opens a compressor from a scorer's file.
#ifndef COPPICE_COMPRESS_OPEN_H
#define COPPICE_COMPRESS_OPEN_H

#include "compress/compress.h"
#include "compress/score/score.h"

// path: a GGUF file with a qwen3 model and its tokenizer. x must live as long as the compressor;
// NULL: a CPU backend of its own with all usable CPUs. Errors name the file: those of gguf_open,
// tokenizer_create and score_open.
int compressor_open(struct compressor **out, struct exec *x, const char *path,
                    const struct score_options *o, struct err *e);

#endif
