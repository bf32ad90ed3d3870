// SPDX-License-Identifier: Apache-2.0
// The vocabulary of a synthetic target, so that texts can be sent and answers read: a token for
// each byte, in the spelling of byte-level vocabularies, and words " w256", " w257", ... for all
// others. There are no merges, so that a text has as many tokens as bytes, and no token ends a
// text.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "convert/synth/impl.h"

enum { BYTES = 256, TEXT = 12 }; // of a token's text with its NUL

// The byte map of GPT-2: bytes that print in Latin-1 stand for themselves, the other 68 are
// U+0100 .. in order.
static uint32_t mapped(int byte) {
    uint32_t code = 0x100;
    for (int b = 0; b <= byte; b++) {
        bool prints = (b > 32 && b < 127) || (b > 160 && b != 173);
        if (b == byte)
            return prints ? (uint32_t)b : code;
        code += !prints;
    }
    return code;
}

int synth_vocabulary(struct gguf_writer *w, int64_t n, const char *pre, struct err *e) {
    char(*texts)[TEXT] = calloc((size_t)n, sizeof *texts);
    const char **tokens = calloc((size_t)n, sizeof *tokens);
    int32_t *types = calloc((size_t)n, sizeof *types);
    size_t *lengths = calloc((size_t)n, sizeof *lengths);
    int rc = texts && tokens && types && lengths
                 ? 0
                 : err_set(e, ERR_MEMORY, "no memory for a vocabulary of %lld", (long long)n);
    for (int64_t i = 0; !rc && i < n; i++) {
        tokens[i] = texts[i];
        types[i] = 1; // normal
        if (i < BYTES)
            utf8_encode(texts[i], mapped((int)i)); // a NUL is behind it already
        else
            snprintf(texts[i], sizeof texts[i], "\xC4\xA0w%u", (unsigned)i % 100000000u);
        lengths[i] = strlen(texts[i]);
    }
    if (!rc) {
        gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
        gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
        gguf_put_str_array(w, "tokenizer.ggml.tokens", tokens, lengths, (uint64_t)n);
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, types, (uint64_t)n);
        gguf_put_str_array(w, "tokenizer.ggml.merges", tokens, lengths, 0);
    }
    free(texts);
    free(tokens);
    free(types);
    free(lengths);
    return rc;
}
