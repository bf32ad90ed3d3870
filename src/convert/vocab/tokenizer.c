// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a HuggingFace folder to GGUF keys, and the copy of a GGUF's tokenizer. What a
// GGUF cannot say (other normalisers, other splitting) is refused rather than dropped: a wrong
// tokenizer gives no error, only worse text.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "convert/vocab/vocab.h"

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
        rc = read_bytes(v, dir, "tiktoken.model", &v->ranks);
    bool other = v->pieces.len || v->ranks.len;
    if (!rc)
        rc = hf_read(&v->tokenizer, dir, "tokenizer.json", !other, v->e);
    if (!rc)
        rc = hf_read(&v->config, dir, "tokenizer_config.json", false, v->e);
    if (!rc)
        rc = hf_read(&v->generation, dir, "generation_config.json", false, v->e);
    if (!rc)
        rc = hf_read(&v->model, dir, "config.json", false, v->e);
    if (!rc)
        rc = read_bytes(v, dir, "chat_template.jinja", &v->template_file);
    if (!rc)
        rc = hf_read(&v->processor, dir, "chat_template.json", false, v->e);
    return rc;
}

static bool is_gemma4(const struct vocab *v) {
    const char *type = v->model.root ? json_str(hf_get(&v->model, "model_type"), NULL) : NULL;
    return type && (!strcmp(type, "gemma4") || !strcmp(type, "gemma4_text"));
}

static int put_vocab(struct gguf_writer *w, struct vocab *v) {
    bool fallback =
        v->tokenizer.root && json_bool(hf_get(&v->tokenizer, "model.byte_fallback"), false);
    bool escaped = fallback && is_gemma4(v);
    v->text = calloc((size_t)v->rows, sizeof *v->text);
    v->length = calloc((size_t)v->rows, sizeof *v->length);
    v->type = calloc((size_t)v->rows, sizeof *v->type);
    v->score = calloc((size_t)v->rows, sizeof *v->score);
    if (!v->text || !v->length || !v->type || !v->score)
        return vocab_no_memory(v);
    // tokenizer.json says less than tokenizer.model where both describe the same pieces.
    bool pieces = v->pieces.len && !escaped && (!v->tokenizer.root || fallback);
    bool ranks = !pieces && !v->tokenizer.root;
    str_clear(&v->where);
    str_printf(&v->where, "%s/%s", v->dir,
               pieces  ? "tokenizer.model"
               : ranks ? "tiktoken.model"
                       : "tokenizer.json");
    if (v->where.failed)
        return vocab_no_memory(v);
    int rc = pieces    ? vocab_put_pieces(w, v)
             : ranks   ? vocab_put_ranks(w, v)
             : escaped ? vocab_put_escaped(w, v)
                       : vocab_put_pairs(w, v);
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
    hf_close(&v.processor);
    str_fini(&v.template_file);
    str_fini(&v.pieces);
    str_fini(&v.ranks);
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
