// SPDX-License-Identifier: Apache-2.0
// The tokenizer of random tiny models: 256 bytes, three control tokens, "th" with its merge,
// padding.
#ifndef COPPICE_TESTS_SUPPORT_TINY_VOCAB_H
#define COPPICE_TESTS_SUPPORT_TINY_VOCAB_H

#include "base/err.h"
#include "formats/gguf/gguf.h"

// vocab >= 260; pre: how text is cut before. ERR_MEMORY.
int tiny_put_tokenizer(struct gguf_writer *w, int vocab, const char *pre, struct err *e);

#endif
