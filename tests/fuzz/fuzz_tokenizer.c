// SPDX-License-Identifier: Apache-2.0
// Tokenizers: an input that begins like a GGUF file is opened as a vocabulary and tries some text;
// any other input is text for a fixed small vocabulary, whose tokens must decode to the same bytes.
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer.h"
#include "text/utf8_stream.h"

static struct tokenizer *fixed;

static struct tokenizer *open_tokenizer(struct gguf *g) {
    struct tokenizer *t = NULL;
    struct err e = {0};
    int rc = tokenizer_create(&t, g, &e);
    FUZZ_CHECK(rc == 0 || e.text[0]);
    return rc == 0 ? t : NULL;
}

void fuzz_setup(void) {
    struct gguf *g = NULL;
    struct err e = {0};
    FUZZ_CHECK(gguf_open(&g, FUZZ_CORPUS "/tokenizer/vocabulary.gguf", &e) == 0);
    fixed = open_tokenizer(g);
    FUZZ_CHECK(fixed != NULL);
    gguf_close(g);
}

// Tokens through the stream must give `want`, or its repaired form where bytes are no UTF-8.
static void check_stream(const struct tokenizer *t, const struct token_list *ids, bool fragile,
                         const char *want, size_t n) {
    struct utf8_stream stream = {0};
    struct str bytes = {0}, out = {0};
    size_t checked = 0; // characters come out whole, so each push is checked by itself
    for (size_t i = 0; i < ids->count; i++) {
        str_clear(&bytes);
        tokenizer_decode(t, ids->ids[i], true, &bytes);
        utf8_stream_push(&stream, bytes.data ? bytes.data : "", bytes.len, &out);
        FUZZ_CHECK(fragile || !out.data || utf8_valid(out.data + checked, out.len - checked));
        checked = out.len;
    }
    utf8_stream_end(&stream, &out);
    FUZZ_CHECK(fragile || (out.len == n && (n == 0 || memcmp(out.data, want, n) == 0)));
    str_fini(&bytes);
    str_fini(&out);
}

static void encode(const struct tokenizer *t, const char *text, size_t n, bool fragile,
                   bool exact) {
    struct token_list ids = {0};
    struct err e = {0};
    int rc = tokenizer_encode(t, text, n, true, &ids, &e);
    FUZZ_CHECK(rc == 0 || e.text[0]);
    FUZZ_CHECK(rc != 0 || utf8_valid(text, n));
    for (size_t i = 0; i < ids.count; i++)
        FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_size(t));
    if (rc == 0 && exact)
        check_stream(t, &ids, fragile, text, n);
    token_list_fini(&ids);
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) {
        encode(fixed, (const char *)data, size, fragile, true);
        return;
    }
    struct gguf *g = NULL;
    struct err e = {0};
    if (gguf_open_memory(&g, data, size, &e))
        return;
    struct tokenizer *t = open_tokenizer(g);
    gguf_close(g);
    if (!t)
        return;
    static const char text[] = "Hello, W\xC3\xB6rld!  123456\n\n<|end|> they'll\t\xE4\xBD\xA0\xE5";
    encode(t, text, sizeof text - 2, fragile, false);
    tokenizer_destroy(t);
}
