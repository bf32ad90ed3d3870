// SPDX-License-Identifier: Apache-2.0
// Tokenizers: an input that begins like a GGUF file is opened as a vocabulary and tries some text;
// any other input is text for one of four small vocabularies, chosen by its first byte. Tokens
// decode to UTF-8, those of the first vocabulary to the same bytes.
#include "fuzz.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/utf8_stream.h"

static const char *const files[] = {"vocabulary.gguf", "nfc.gguf", "scores.gguf", "escaped.gguf"};
enum { FILES = sizeof files / sizeof *files };

static struct tokenizer *fixed[FILES];

void fuzz_setup(void) {
    for (int i = 0; i < FILES; i++) {
        struct gguf *g = NULL;
        struct err e = {0};
        char path[PATH_MAX];
        snprintf(path, sizeof path, FUZZ_CORPUS "/tokenizer/%s", files[i]);
        FUZZ_CHECK(gguf_open(&g, path, &e) == 0 && tokenizer_create(&fixed[i], g, &e) == 0);
        gguf_close(g);
    }
}

// Tokens through the stream must give UTF-8: `want`, unless that is NULL.
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
    FUZZ_CHECK(fragile || !want || (out.len == n && (n == 0 || memcmp(out.data, want, n) == 0)));
    str_fini(&bytes);
    str_fini(&out);
}

// exact: the tokens must decode to the text. first: the call whose result the run is known by.
static void encode(const struct tokenizer *t, const char *text, size_t n, bool fragile, bool exact,
                   bool first) {
    struct token_list ids = {0};
    struct err e = {0};
    int rc = tokenizer_encode(t, text, n, true, &ids, &e);
    if (first)
        fuzz_result(rc, &e, fragile);
    else
        fuzz_sentence(rc, &e);
    FUZZ_CHECK(rc != 0 || utf8_valid(text, n));
    FUZZ_CHECK(rc == 0 || ids.count == 0);
    for (size_t i = 0; i < ids.count; i++)
        FUZZ_CHECK(ids.ids[i] >= 0 && ids.ids[i] < tokenizer_size(t));
    if (rc == 0)
        check_stream(t, &ids, fragile, exact ? text : NULL, n);
    token_list_fini(&ids);
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    if (size == 0)
        return;
    if (size < 4 || memcmp(data, "GGUF", 4) != 0) {
        int which = data[0] & (FILES - 1);
        encode(fixed[which], (const char *)data + 1, size - 1, fragile, which == 0, true);
        return;
    }
    struct gguf *g = NULL;
    struct tokenizer *t = NULL;
    struct err e = {0};
    int rc = gguf_open_memory(&g, data, size, &e);
    if (!rc)
        rc = tokenizer_create(&t, g, &e);
    gguf_close(g);
    fuzz_result(rc, &e, fragile);
    if (rc)
        return;
    static const char text[] = "Hello, W\xC3\xB6rld!  123456\n\n<|end|> they'll\t\xE4\xBD\xA0\xE5";
    encode(t, text, sizeof text - 2, fragile, false, false);
    tokenizer_destroy(t);
}
