// SPDX-License-Identifier: Apache-2.0
// See vocab_file.h.
#include "vocab_file.h"

#include <stdio.h>
#include <string.h>

static void put(struct str *s, const void *value, size_t n) {
    str_append(s, value, n);
}

static void put_u32(struct str *s, uint32_t v) {
    put(s, &v, sizeof v);
}

static void put_u64(struct str *s, uint64_t v) {
    put(s, &v, sizeof v);
}

static void put_text(struct str *s, const char *text) {
    put_u64(s, strlen(text));
    str_puts(s, text);
}

static void put_key(struct vocab_file *f, const char *key, enum gguf_kind kind) {
    // Kinds have the numbers of the file format.
    put_text(&f->body, key);
    put_u32(&f->body, (uint32_t)kind);
    f->n_kv++;
}

void vocab_file_str(struct vocab_file *f, const char *key, const char *text) {
    put_key(f, key, GGUF_STRING);
    put_text(&f->body, text);
}

void vocab_file_u32(struct vocab_file *f, const char *key, uint32_t value) {
    put_key(f, key, GGUF_U32);
    put_u32(&f->body, value);
}

void vocab_file_bool(struct vocab_file *f, const char *key, bool value) {
    put_key(f, key, GGUF_BOOL);
    str_putc(&f->body, value);
}

void vocab_file_strs(struct vocab_file *f, const char *key, const char *const *texts, size_t n) {
    put_key(f, key, GGUF_ARRAY);
    put_u32(&f->body, GGUF_STRING);
    put_u64(&f->body, n);
    for (size_t i = 0; i < n; i++)
        put_text(&f->body, texts[i]);
}

void vocab_file_i32s(struct vocab_file *f, const char *key, const int32_t *values, size_t n) {
    put_key(f, key, GGUF_ARRAY);
    put_u32(&f->body, GGUF_I32);
    put_u64(&f->body, n);
    put(&f->body, values, n * sizeof *values);
}

// The text of a byte in the byte map.
static void byte_text(int byte, char out[3]) {
    int code = byte;
    if (byte <= 0x20)
        code = 0x100 + byte;
    else if (byte >= 0x7F && byte <= 0xA0)
        code = 0x121 + byte - 0x7F;
    else if (byte == 0xAD)
        code = 0x143;
    if (code < 0x80)
        snprintf(out, 3, "%c", code);
    else
        snprintf(out, 3, "%c%c", 0xC0 | code >> 6, 0x80 | (code & 0x3F));
}

void vocab_file_fill(struct vocab_file *f, const struct vocab_spec *s) {
    char bytes[256][3];
    const char *texts[1024];
    int32_t types[1024];
    for (int i = 0; i < 256; i++) {
        byte_text(i, bytes[i]);
        texts[i] = bytes[i];
        types[i] = 1;
    }
    for (size_t i = 0; i < s->n_tokens; i++) {
        texts[256 + i] = s->tokens[i];
        types[256 + i] = s->types ? s->types[i] : 1;
    }
    vocab_file_str(f, "tokenizer.ggml.model", "gpt2");
    vocab_file_str(f, "tokenizer.ggml.pre", "qwen2");
    vocab_file_strs(f, "tokenizer.ggml.tokens", texts, 256 + s->n_tokens);
    vocab_file_i32s(f, "tokenizer.ggml.token_type", types, 256 + s->n_tokens);
    vocab_file_strs(f, "tokenizer.ggml.merges", s->merges, s->n_merges);
}

int vocab_file_load(struct vocab_file *f, struct tokenizer **out, struct err *e) {
    struct gguf *g;
    str_puts(&f->whole, "GGUF");
    put_u32(&f->whole, 3);
    put_u64(&f->whole, 0);
    put_u64(&f->whole, f->n_kv);
    put(&f->whole, f->body.data, f->body.len);
    int rc = gguf_open_memory(&g, f->whole.data, f->whole.len, e);
    if (rc)
        return rc;
    rc = tokenizer_create(out, g, e);
    gguf_close(g);
    return rc;
}

void vocab_file_fini(struct vocab_file *f) {
    str_fini(&f->body);
    str_fini(&f->whole);
    f->n_kv = 0;
}
