// SPDX-License-Identifier: Apache-2.0
// Vocabularies of texts with escaped blanks: blanks become U+2581, and units are characters.
// Those with scores ("llama") have no list of merges: any two neighbours merge whose joint text is
// a token, best score first. The merging itself is text/tokenizer/bpe.h's.
#ifndef COPPICE_TEXT_TOKENIZER_SPM_H
#define COPPICE_TEXT_TOKENIZER_SPM_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/vocab.h"

// A zeroed b becomes the encoder of a vocabulary with scores; not yet finished. ERR_FORMAT for
// missing or unusable scores. After any error call bpe_fini.
int spm_build(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e);

// Makes the byte tokens of v stand for bytes, and its unknown token for the rest.
void spm_set_bytes(struct bpe *b, const struct vocab *v);

// Appends text with blanks escaped, after one more blank if blank_first; nothing for an empty text.
void spm_escape(struct str *out, const char *text, size_t n, bool blank_first);

// Called for each word in order; non-zero stops and is returned.
typedef int spm_word_fn(void *arg, const char *word, size_t n, struct err *e);

// Cuts escaped text wherever no merge of b can join what the cut separates: ids stay the same.
int spm_words(const struct bpe *b, const char *text, size_t n, spm_word_fn *fn, void *arg,
              struct err *e);

#endif
