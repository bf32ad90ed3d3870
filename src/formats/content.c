// SPDX-License-Identifier: Apache-2.0
// Hashing model files; see content.h. Numbers are hashed as little-endian, texts with their length.
#include "formats/content.h"

#include <string.h>

#include "formats/gguf_impl.h"

enum { WHOLE = 64 << 10, PIECES = 16, PIECE = 4 << 10 };

static void add_u64(struct hash *h, uint64_t v) {
    unsigned char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(v >> (8 * i));
    hash_add(h, b, sizeof b);
}

static void add_text(struct hash *h, const char *s, size_t n) {
    add_u64(h, n);
    hash_add(h, s, n);
}

void content_add_tensor(struct hash *h, const struct tensor *t) {
    const unsigned char *data = t->data;
    add_text(h, t->name, strlen(t->name));
    add_u64(h, t->type);
    for (int i = 0; i < 4; i++)
        add_u64(h, (uint64_t)t->ne[i]);
    if (t->bytes <= WHOLE) {
        hash_add(h, data, (size_t)t->bytes);
        return;
    }
    for (int64_t i = 0; i < PIECES; i++)
        hash_add(h, data + (t->bytes - PIECE) / (PIECES - 1) * i, PIECE);
    hash_add(h, data + t->bytes - PIECE, PIECE);
}

static void add_entry(struct hash *h, const struct gguf_kv *kv) {
    bool array = kv->kind == GGUF_ARRAY;
    int kind = array ? kv->elem : kv->kind;
    add_text(h, kv->key, strlen(kv->key));
    add_u64(h, (uint64_t)kv->kind);
    add_u64(h, (uint64_t)kind);
    add_u64(h, kv->count);
    if (kind != GGUF_STRING) {
        hash_add(h, kv->bytes, (size_t)kv->count * gguf_kind_size(kind));
        return;
    }
    const unsigned char *at = kv->bytes;
    for (uint64_t i = 0; i < kv->count; i++) {
        size_t len;
        const char *s = gguf_array_str(&at, &len);
        add_text(h, s, len);
    }
}

uint64_t content_of_gguf(const struct gguf *g) {
    struct hash h;
    hash_begin(&h, 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        add_entry(&h, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        content_add_tensor(&h, gguf_tensor_at(g, i));
    return hash_end(&h);
}
