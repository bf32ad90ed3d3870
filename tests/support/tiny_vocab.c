// SPDX-License-Identifier: Apache-2.0
// See tiny_vocab.h.
#include "support/tiny_vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// The printable stand-in of a byte in a byte-level vocabulary, as UTF-8.
static size_t byte_text(int byte, char *out) {
    int rc = byte, extra = 0;
    for (int b = 0; b <= byte; b++) {
        bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
        rc = printable ? b : 256 + extra++;
    }
    if (rc < 128) {
        out[0] = (char)rc;
        return 1;
    }
    out[0] = (char)(0xC0 | rc >> 6);
    out[1] = (char)(0x80 | (rc & 63));
    return 2;
}

int tiny_put_tokenizer(struct gguf_writer *w, int vocab, const char *pre, struct err *e) {
    static const char *const special[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>", "th"};
    char(*text)[24] = calloc((size_t)vocab, sizeof *text);
    const char **ptr = calloc((size_t)vocab, sizeof *ptr);
    size_t *len = calloc((size_t)vocab, sizeof *len);
    int32_t *type = calloc((size_t)vocab, sizeof *type);
    int rc = text && ptr && len && type ? 0 : err_set(e, ERR_MEMORY, "no memory for a vocabulary");
    for (int i = 0; !rc && i < vocab; i++) {
        if (i < 256)
            len[i] = byte_text(i, text[i]);
        else
            len[i] = (size_t)(i < 260 ? snprintf(text[i], sizeof *text, "%s", special[i - 256])
                                      : snprintf(text[i], sizeof *text, "[PAD%d]", i));
        ptr[i] = text[i];
        type[i] = i < 256 || i == 259 ? 1 : i < 259 ? 3 : 5;
    }
    if (!rc) {
        const char *merge = "t h";
        size_t merge_len = 3;
        gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
        gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
        gguf_put_str_array(w, "tokenizer.ggml.tokens", ptr, len, (uint64_t)vocab);
        gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, type, (uint64_t)vocab);
        gguf_put_str_array(w, "tokenizer.ggml.merges", &merge, &merge_len, 1);
        gguf_put_int(w, "tokenizer.ggml.eos_token_id", GGUF_U32, 258);
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", false);
    }
    free(text);
    free(ptr);
    free(len);
    free(type);
    return rc;
}
