// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a HuggingFace folder to GGUF keys, and the copy of a GGUF's tokenizer: the
// vocabulary, and what a folder says of its tokens besides: which are special, whether they are
// added to a text, and the chat templates. What a GGUF cannot say (other normalisers, other
// splitting) is refused rather than dropped: a wrong tokenizer gives no error, only worse text.
#include "convert/vocab/vocab.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/utf8.h"

// The text of a special token: a string, or an object with `content`; NULL when there is none.
static const char *token_text(const struct vocab *v, const char *name, size_t *n) {
    char key[32];
    snprintf(key, sizeof key, "%s_token", name);
    const struct json *t = v->config.root ? hf_get(&v->config, key) : NULL;
    return json_str(json_kind_of(t) == JSON_OBJECT ? json_get(t, "content") : t, n);
}

// The id of a special token: by its text, else by number; -1 when there is none.
static int64_t special_id(const struct vocab *v, const char *name) {
    size_t n = 0;
    uint32_t id;
    const char *s = token_text(v, name, &n);
    if (s && map_find(&v->ids, s, n, &id))
        return id;
    int64_t number = vocab_listed_id(&v->model, name, 0);
    return number >= 0 ? number : vocab_listed_id(&v->generation, name, 0);
}

static void put_special_id(struct gguf_writer *w, const struct vocab *v, const char *key,
                           int64_t id) {
    char full[64];
    snprintf(full, sizeof full, "tokenizer.ggml.%s_token_id", key);
    if (id >= 0 && id < v->rows)
        gguf_put_int(w, full, GGUF_U32, id);
}

// An id that generation stops at besides two others; -1 when there is none.
static int64_t other_end(const struct vocab *v, int64_t eos, int64_t eot) {
    for (size_t i = 0; i < 8; i++) {
        int64_t id = vocab_listed_id(&v->generation, "eos", i);
        if (id < 0)
            id = vocab_listed_id(&v->model, "eos", i);
        if (id >= 0 && id != eos && id != eot)
            return id;
    }
    return -1;
}

// The ends besides eos, which files have two keys for: of a turn, named as such or the first other
// id that generation stops at, and of a message, the next one (GLM has three: the text's, the
// user's and a tool's).
static void put_ends(struct gguf_writer *w, const struct vocab *v, int64_t eos) {
    int64_t eot = special_id(v, "eot");
    eot = eot >= 0 ? eot : other_end(v, eos, eos);
    put_special_id(w, v, "eot", eot);
    put_special_id(w, v, "eom", other_end(v, eos, eot));
}

// Whether a kind of token is added to a text: -1 when the folder does not say.
struct added {
    int bos, eos, sep;
};

// The name of the special token that an element of a template is; NULL for another element.
static const char *template_token(const struct json *element) {
    return json_str(json_get(json_get(element, "SpecialToken"), "id"), NULL);
}

static bool is_special_text(const struct vocab *v, const char *text, const char *name) {
    const char *s = token_text(v, name, NULL);
    return s && !strcmp(s, text);
}

// A template "first A last": what it puts around one text, and between two.
static void read_post_template(const struct vocab *v, const struct json *step, struct added *a) {
    const struct json *single = json_get(step, "single"), *pair = json_get(step, "pair");
    size_t n = json_len(single), k = json_len(pair);
    const char *first = n > 1 ? template_token(json_at(single, 0)) : NULL;
    const char *last = n > 1 ? template_token(json_at(single, n - 1)) : NULL;
    if (first)
        a->bos = is_special_text(v, first, "bos") || is_special_text(v, first, "cls");
    if (last)
        a->eos = is_special_text(v, last, "eos");
    size_t between = first != NULL ? 2 : 1; // after the first text
    if (k < between + 2 + (last != NULL))
        return;
    const char *middle = template_token(json_at(pair, between));
    if (middle)
        a->sep = !last && (is_special_text(v, middle, "sep") || is_special_text(v, middle, "eos"));
}

static void read_post_step(const struct vocab *v, const struct json *step, struct added *a) {
    const char *type = json_str(json_get(step, "type"), NULL);
    if (type && !strcmp(type, "ByteLevel")) {
        a->bos = a->bos < 0 ? 0 : a->bos;
        a->eos = a->eos < 0 ? 0 : a->eos;
    }
    if (type && !strcmp(type, "TemplateProcessing"))
        read_post_template(v, step, a);
}

static int stated_flag(const struct vocab *v, const char *key, int known) {
    const struct json *flag = v->config.root ? hf_get(&v->config, key) : NULL;
    return known < 0 && json_kind_of(flag) == JSON_BOOL ? json_bool(flag, false) : known;
}

static void put_added_flags(struct gguf_writer *w, const struct vocab *v) {
    struct added a = {-1, -1, -1};
    const struct json *post = v->tokenizer.root ? hf_get(&v->tokenizer, "post_processor") : NULL;
    const struct json *steps = json_get(post, "processors");
    for (size_t i = 0; i < json_len(steps); i++)
        read_post_step(v, json_at(steps, i), &a);
    if (!steps)
        read_post_step(v, post, &a);
    a.bos = stated_flag(v, "add_bos_token", a.bos);
    a.eos = stated_flag(v, "add_eos_token", a.eos);
    if (a.bos < 0 && v->tokenizer.root)
        a.bos = 0; // tokenizer.json would say it
    if (v->always_bos)
        a.bos = 1;
    if (a.bos >= 0)
        gguf_put_bool(w, "tokenizer.ggml.add_bos_token", a.bos);
    if (a.eos >= 0)
        gguf_put_bool(w, "tokenizer.ggml.add_eos_token", a.eos);
    if (a.sep >= 0)
        gguf_put_bool(w, "tokenizer.ggml.add_sep_token", a.sep);
}

static void put_special_tokens(struct gguf_writer *w, const struct vocab *v) {
    int64_t eos = special_id(v, "eos");
    put_special_id(w, v, "bos", special_id(v, "bos"));
    put_special_id(w, v, "eos", eos);
    put_ends(w, v, eos);
    put_special_id(w, v, "unknown", special_id(v, "unk"));
    put_special_id(w, v, "seperator", special_id(v, "sep"));
    put_special_id(w, v, "padding", special_id(v, "pad"));
    put_special_id(w, v, "cls", special_id(v, "cls"));
    put_special_id(w, v, "mask", special_id(v, "mask"));
    put_added_flags(w, v);
}

// The name of a template as part of a key: letters and digits.
static char *plain_name(struct vocab *v, const char *name, size_t n) {
    char *copy = arena_strndup(&v->arena, name, n);
    for (size_t i = 0; copy && i < n; i++) {
        bool keep = (copy[i] >= '0' && copy[i] <= '9') || (copy[i] >= 'a' && copy[i] <= 'z') ||
                    (copy[i] >= 'A' && copy[i] <= 'Z');
        copy[i] = keep ? copy[i] : '_';
    }
    return copy;
}

// A list of named templates: "default" is the template, the others stand next to it.
static int put_named_templates(struct gguf_writer *w, struct vocab *v, const struct json *list) {
    size_t count = json_len(list), kept = 0;
    const char **names = arena_array(&v->arena, count + 1, sizeof *names);
    size_t *lengths = arena_array(&v->arena, count + 1, sizeof *lengths);
    if (!names || !lengths)
        return vocab_no_memory(v);
    for (size_t i = 0; i < count; i++) {
        size_t n = 0, n_name = 0;
        const char *text = json_str(json_get(json_at(list, i), "template"), &n);
        const char *name = json_str(json_get(json_at(list, i), "name"), &n_name);
        char key[128];
        if (!text || !name || n_name == 0 || n_name > 64)
            continue;
        names[kept] = plain_name(v, name, n_name);
        lengths[kept] = n_name;
        if (!names[kept])
            return vocab_no_memory(v);
        bool usual = !strcmp(names[kept], "default");
        snprintf(key, sizeof key, "tokenizer.chat_template%s%s", usual ? "" : ".",
                 usual ? "" : names[kept]);
        gguf_put_str(w, key, text, n);
        kept += !usual;
    }
    if (kept)
        gguf_put_str_array(w, "tokenizer.chat_templates", names, lengths, kept);
    return 0;
}

static int put_templates(struct gguf_writer *w, struct vocab *v) {
    const struct json *t = v->config.root ? hf_get(&v->config, "chat_template") : NULL;
    if (!t && v->processor.root) // of folders with more than text
        t = hf_get(&v->processor, "chat_template");
    size_t n = 0;
    const char *s = json_str(t, &n);
    if (!utf8_valid(v->template_file.data, v->template_file.len))
        return err_set(v->e, ERR_FORMAT, "%s/chat_template.jinja is not UTF-8: get the file again",
                       v->dir);
    if (v->template_file.len) {
        s = v->template_file.data;
        n = v->template_file.len;
    } else if (json_kind_of(t) == JSON_ARRAY) {
        return put_named_templates(w, v, t);
    }
    if (s && n)
        gguf_put_str(w, "tokenizer.chat_template", s, n);
    return 0;
}

// An optional file of the folder as bytes; it stays empty when there is none.
static int read_optional_file(struct vocab *v, const char *dir, const char *name, struct str *out) {
    struct str path = {0};
    str_printf(&path, "%s/%s", dir, name);
    int rc = path.failed ? vocab_no_memory(v) : 0;
    if (!rc && access(path.data, F_OK) == 0)
        rc = file_read(out, path.data, 64u << 20, v->e);
    str_fini(&path);
    return rc;
}

static int read_tokenizer_files(struct vocab *v) {
    const char *dir = v->dir;
    int rc = read_optional_file(v, dir, "tokenizer.model", &v->pieces);
    if (!rc)
        rc = read_optional_file(v, dir, "tiktoken.model", &v->ranks);
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
        rc = read_optional_file(v, dir, "chat_template.jinja", &v->template_file);
    if (!rc)
        rc = hf_read(&v->processor, dir, "chat_template.json", false, v->e);
    return rc;
}

// Whether escaped text merges by rank: in Gemma 4, and in Gemma 3 where nothing states scores.
static bool is_escaped(const struct vocab *v) {
    const char *type = v->model.root ? json_str(hf_get(&v->model, "model_type"), NULL) : NULL;
    if (type && (!strcmp(type, "gemma3") || !strcmp(type, "gemma3_text")))
        return !v->pieces.len;
    return type && (!strcmp(type, "gemma4") || !strcmp(type, "gemma4_text"));
}

static int put_vocabulary(struct gguf_writer *w, struct vocab *v) {
    bool fallback =
        v->tokenizer.root && json_bool(hf_get(&v->tokenizer, "model.byte_fallback"), false);
    bool escaped = fallback && is_escaped(v);
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
    put_special_tokens(w, v);
    return put_templates(w, v);
}

int convert_vocab_hf(struct gguf_writer *w, const char *dir, int64_t rows, struct err *e) {
    struct vocab v = {.rows = rows, .e = e, .dir = dir};
    str_puts(&v.where, dir);
    int rc = v.where.failed ? vocab_no_memory(&v) : read_tokenizer_files(&v);
    if (!rc)
        rc = put_vocabulary(w, &v);
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
