// SPDX-License-Identifier: Apache-2.0
// A vocabulary on its way into a GGUF file: ids get their texts, once each, and those that have
// none a text of their own. Where the texts come from: pairs.c, pieces.c, ranks.c.
#include "convert/vocab/vocab.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

int vocab_no_memory(struct vocab *v) {
    return err_set(v->e, ERR_MEMORY, "not enough memory for the vocabulary of %s", v->dir);
}

int vocab_refuse(const struct vocab *v, const char *what) {
    return err_set(v->e, ERR_UNSUPPORTED, "%s has %s: this tokenizer cannot be converted",
                   v->where.data, what);
}

int vocab_add(struct vocab *v, const char *text, size_t n, int64_t id, enum token_type type) {
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", n < 40 ? (int)n : 40, text);
    if (id < 0 || id >= v->rows)
        return err_set(v->e, ERR_MISMATCH,
                       "token '%s' in %s has id %" PRId64 ", but the model has %" PRId64
                       " ids: use the tokenizer of this model",
                       shown, v->where.data, id, v->rows);
    if (v->text[id] && (v->length[id] != n || memcmp(v->text[id], text, n)))
        return err_set(v->e, ERR_FORMAT,
                       "id %" PRId64 " in %s belongs to two tokens: get the file "
                       "again",
                       id, v->where.data);
    uint32_t other = (uint32_t)id;
    int inserted = map_insert(&v->ids, text, n, (uint32_t)id);
    if (inserted < 0)
        return vocab_no_memory(v);
    if (!inserted && map_find(&v->ids, text, n, &other) && other != (uint32_t)id)
        return err_set(v->e, ERR_FORMAT,
                       "token '%s' in %s has the ids %" PRIu32 " and %" PRId64
                       ": get the file again",
                       shown, v->where.data, other, id);
    v->text[id] = text;
    v->length[id] = n;
    v->type[id] = (int32_t)type;
    return 0;
}

static bool is_wrapped(const char *s, size_t n, const char *begin, const char *end) {
    size_t b = strlen(begin), k = strlen(end);
    return n >= b + k && !memcmp(s, begin, b) && !memcmp(s + n - k, end, k);
}

static bool is_text(const char *s, size_t n, const char *text) {
    return n == strlen(text) && !memcmp(s, text, n);
}

// Some tokenizers do not flag the tokens that only a program may write.
static bool looks_special(const char *s, size_t n) {
    return is_wrapped(s, n, "<|", "|>") || is_wrapped(s, n, "<\xef\xbd\x9c", "\xef\xbd\x9c>") ||
           is_wrapped(s, n, "<unused", ">") || is_text(s, n, "<pad>") || is_text(s, n, "<mask>") ||
           is_text(s, n, "<2mass>") || is_text(s, n, "[@BOS@]");
}

enum token_type vocab_added_type(const char *text, size_t n, bool special) {
    return special || looks_special(text, n) ? TOKEN_CONTROL : TOKEN_USER;
}

int vocab_fill_gaps(struct vocab *v) {
    for (int64_t i = 0; i < v->rows; i++) {
        char pad[32];
        if (v->text[i])
            continue;
        v->length[i] = (size_t)snprintf(pad, sizeof pad, "[PAD%" PRId64 "]", i);
        v->text[i] = arena_strndup(&v->arena, pad, v->length[i]);
        v->type[i] = TOKEN_UNUSED;
        if (!v->text[i])
            return vocab_no_memory(v);
    }
    return 0;
}

int64_t vocab_listed_id(const struct hf_file *f, const char *name, size_t i) {
    char key[32];
    snprintf(key, sizeof key, "%s_token_id", name);
    const struct json *v = f->root ? hf_get(f, key) : NULL;
    if (json_kind_of(v) == JSON_ARRAY)
        return json_int(json_at(v, i), -1);
    return i == 0 ? json_int(v, -1) : -1;
}

static void mark_ends(struct vocab *v) {
    const struct hf_file *const files[] = {&v->generation, &v->model};
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; i < 8; i++) {
            int64_t id = vocab_listed_id(files[k], "eos", i);
            if (id >= 0 && id < v->rows && v->type[id] == TOKEN_USER &&
                is_wrapped(v->text[id], v->length[id], "</", ">"))
                v->type[id] = TOKEN_CONTROL;
        }
}

void vocab_write_pairs(struct gguf_writer *w, struct vocab *v, const char *pre) {
    mark_ends(v);
    gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
    gguf_put_str_array(w, "tokenizer.ggml.tokens", v->text, v->length, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, (uint64_t)v->rows);
    gguf_put_str_array(w, "tokenizer.ggml.merges", v->merge, v->merge_length, v->merges);
}
