// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a HuggingFace folder to GGUF keys, and the copy of a GGUF's tokenizer. What a
// GGUF cannot say (other normalisers, other splitting) is refused rather than dropped: a wrong
// tokenizer gives no error, only worse text.
#include "convert/convert_vocab.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"

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

bool vocab_wrapped(const char *s, size_t n, const char *begin, const char *end) {
    size_t b = strlen(begin), k = strlen(end);
    return n >= b + k && !memcmp(s, begin, b) && !memcmp(s + n - k, end, k);
}

static bool is_text(const char *s, size_t n, const char *text) {
    return n == strlen(text) && !memcmp(s, text, n);
}

// Some tokenizers do not flag the tokens that only a program may write.
static bool looks_special(const char *s, size_t n) {
    return vocab_wrapped(s, n, "<|", "|>") ||
           vocab_wrapped(s, n, "<\xef\xbd\x9c", "\xef\xbd\x9c>") ||
           vocab_wrapped(s, n, "<unused", ">") || is_text(s, n, "<pad>") ||
           is_text(s, n, "<mask>") || is_text(s, n, "<2mass>") || is_text(s, n, "[@BOS@]");
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

// An optional file of the folder as bytes; it stays empty when there is none.
static int read_bytes(struct vocab *v, const char *dir, const char *name, struct str *out) {
    struct str path = {0};
    str_printf(&path, "%s/%s", dir, name);
    int rc = path.failed ? vocab_no_memory(v) : 0;
    if (!rc && access(path.data, F_OK) == 0)
        rc = file_read(out, path.data, 64u << 20, v->e);
    str_fini(&path);
    return rc;
}

static int read_files(struct vocab *v) {
    const char *dir = v->dir;
    int rc = read_bytes(v, dir, "tokenizer.model", &v->pieces);
    if (!rc)
        rc = hf_read(&v->tokenizer, dir, "tokenizer.json", v->pieces.len == 0, v->e);
    if (!rc)
        rc = hf_read(&v->config, dir, "tokenizer_config.json", false, v->e);
    if (!rc)
        rc = hf_read(&v->generation, dir, "generation_config.json", false, v->e);
    if (!rc)
        rc = hf_read(&v->model, dir, "config.json", false, v->e);
    if (!rc)
        rc = read_bytes(v, dir, "chat_template.jinja", &v->template_file);
    return rc;
}

static int put_vocab(struct gguf_writer *w, struct vocab *v) {
    bool fallback =
        v->tokenizer.root && json_bool(hf_get(&v->tokenizer, "model.byte_fallback"), false);
    v->text = calloc((size_t)v->rows, sizeof *v->text);
    v->length = calloc((size_t)v->rows, sizeof *v->length);
    v->type = calloc((size_t)v->rows, sizeof *v->type);
    v->score = calloc((size_t)v->rows, sizeof *v->score);
    if (!v->text || !v->length || !v->type || !v->score)
        return vocab_no_memory(v);
    // tokenizer.json says less than tokenizer.model where both describe the same pieces.
    bool pieces = v->pieces.len && (!v->tokenizer.root || fallback);
    str_clear(&v->where);
    str_printf(&v->where, "%s/%s", v->dir, pieces ? "tokenizer.model" : "tokenizer.json");
    if (v->where.failed)
        return vocab_no_memory(v);
    int rc = pieces ? vocab_put_pieces(w, v) : vocab_put_pairs(w, v);
    if (rc)
        return rc;
    vocab_put_special(w, v);
    return vocab_put_templates(w, v);
}

int convert_vocab_hf(struct gguf_writer *w, const char *dir, int64_t rows, struct err *e) {
    struct vocab v = {.rows = rows, .e = e, .dir = dir};
    str_puts(&v.where, dir);
    int rc = v.where.failed ? vocab_no_memory(&v) : read_files(&v);
    if (!rc)
        rc = put_vocab(w, &v);
    hf_close(&v.tokenizer);
    hf_close(&v.config);
    hf_close(&v.generation);
    hf_close(&v.model);
    str_fini(&v.template_file);
    str_fini(&v.pieces);
    str_fini(&v.where);
    map_fini(&v.ids);
    free(v.text);
    free(v.length);
    free(v.type);
    free(v.score);
    free(v.merge);
    free(v.merge_length);
    arena_fini(&v.arena);
    return rc;
}

int convert_vocab_gguf(struct gguf_writer *w, const struct gguf *g, struct err *e) {
    if (!gguf_find(g, "tokenizer.ggml.tokens"))
        return err_set(e, ERR_MISMATCH, "%s holds no tokenizer: give the draft's target",
                       gguf_path(g));
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const struct gguf_kv *kv = gguf_kv_at(g, i);
        if (!strncmp(kv->key, "tokenizer.", 10) && strcmp(kv->key, "tokenizer.ggml.mask_token_id"))
            gguf_put_kv(w, kv);
    }
    return 0;
}
