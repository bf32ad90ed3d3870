// SPDX-License-Identifier: Apache-2.0
// Turns a stream of bytes that may break inside a character, as tokens do, into well-formed
// UTF-8: an incomplete tail waits for the next push, what can never become valid turns into
// U+FFFD (one per maximal subpart, Unicode 15 section 3.9). It does not handle tokens.
#ifndef COPPICE_TEXT_TOKENIZER_UTF8_STREAM_H
#define COPPICE_TEXT_TOKENIZER_UTF8_STREAM_H

#include <stddef.h>

#include "base/str.h"

// A zeroed stream is valid.
struct utf8_stream {
    unsigned char held[4];
    int n_held; // 0..3 bytes: a valid so far, incomplete sequence
};

// Appends to out all of the stream that is decided once these n bytes are known.
void utf8_stream_push(struct utf8_stream *s, const char *bytes, size_t n, struct str *out);

// End of the stream: an incomplete tail becomes one U+FFFD. The stream is then as new.
void utf8_stream_end(struct utf8_stream *s, struct str *out);

#endif
