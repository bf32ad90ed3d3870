// SPDX-License-Identifier: Apache-2.0
// Text to token ids and back, from the tokenizer metadata of a GGUF file.
#ifndef COPPICE_TEXT_TOKENIZER_H
#define COPPICE_TEXT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"
#include "formats/gguf.h"

struct tokenizer;

struct token_list {
    int32_t *ids;
    size_t count, cap;
};
void token_list_fini(struct token_list *l);

// Copies what it needs: g may be closed afterwards.
int tokenizer_create(struct tokenizer **out, const struct gguf *g, struct err *e);
void tokenizer_destroy(struct tokenizer *t);

int tokenizer_size(const struct tokenizer *t);    // ids are 0 .. size-1
int32_t tokenizer_bos(const struct tokenizer *t); // -1 when the file names none
int32_t tokenizer_eos(const struct tokenizer *t);
bool tokenizer_add_bos(const struct tokenizer *t);
bool tokenizer_is_eog(const struct tokenizer *t, int32_t id); // ends generation
int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n); // exact token text or -1

// Appends the ids of text. special: control tokens written in the text are recognised (user-defined
// ones always are). Ill-formed UTF-8 is ERR_FORMAT with its byte offset. Linear time in n.
// Does not add BOS; callers do (tokenizer_add_bos).
int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     struct token_list *out, struct err *e);

// Appends the raw bytes of one token (may be part of a UTF-8 sequence). special: also the text
// of control tokens. Ids outside the vocabulary append nothing.
void tokenizer_decode(const struct tokenizer *t, int32_t id, bool special, struct str *out);

// Streaming: holds back an incomplete UTF-8 tail, replaces what can never be valid by U+FFFD.
// A zeroed stream is valid.
struct utf8_stream {
    unsigned char held[4];
    int n_held;
};
void utf8_stream_push(struct utf8_stream *s, const char *bytes, size_t n, struct str *out);
void utf8_stream_end(struct utf8_stream *s, struct str *out);

#endif
