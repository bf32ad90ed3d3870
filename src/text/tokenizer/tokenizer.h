// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, from the tokenizer metadata of a GGUF file: special tokens are
// found first, the text between them is normalised where the file says so, cut into pieces
// and encoded by merging pairs. A tokenizer is read-only after its creation; threads may share it.
#ifndef COPPICE_TEXT_TOKENIZER_TOKENIZER_H
#define COPPICE_TEXT_TOKENIZER_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "text/tokenizer/special.h"
#include "text/tokenizer/token_list.h"
#include "text/tokenizer/utf8_stream.h"

struct tokenizer;

// Copies what it needs: g may be closed afterwards. ERR_UNSUPPORTED for a tokenizer model or
// pre-tokenizer that is not known here, ERR_FORMAT for broken metadata.
int tokenizer_create(struct tokenizer **out, const struct gguf *g, struct err *e);
void tokenizer_destroy(struct tokenizer *t);

// Of no tokenizer (NULL), as of a file without one, tokens have no text and end nothing.
int tokenizer_size(const struct tokenizer *t);    // ids are 0 .. size-1
int32_t tokenizer_bos(const struct tokenizer *t); // -1 when the file names none
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_add_bos(const struct tokenizer *t); // true only when there is a BOS token
// A text's tokens decode to the text after one blank more (SentencePiece): drop it to print a whole
// text.
bool tokenizer_blank_first(const struct tokenizer *t);
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id); // ends generation

// Id of the token whose text in the file is exactly this, or -1. Ordinary tokens are spelled
// in the byte map there (a space is U+0120); special tokens as they are.
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n);

// Appends the ids of text. special: control tokens written in the text are recognised (user-defined
// ones always are). Ill-formed UTF-8 is ERR_FORMAT with its byte offset. Linear time in n, but for
// a factor log n in unbroken stretches. Does not add BOS; callers do (tokenizer_add_bos). Keeps to
// the bounds of out (token_list.h): where a glance at its bytes tells that a text has too many
// tokens, nothing else is done. After an error out is as it was.
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     struct token_list *out, struct err *e);

// The same with each span of the text by its own rule (text/tokenizer/special.h); w->spans covers
// the text.
int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t n,
                           const struct special_where *w, struct token_list *out, struct err *e);

// Appends, in rising order, the user-defined tokens other than blanks that a text holds.
int tokenizer_user_defined(const struct tokenizer *t, const char *text, size_t n,
                           struct token_list *out, struct err *e);

// Appends the raw bytes of one token (may be part of a UTF-8 sequence: see utf8_stream.h).
// special: also the text of control tokens. Ids outside the vocabulary append nothing.
void tokenizer_decode(const struct tokenizer *t, int32_t id, bool special, struct str *out);

#endif
