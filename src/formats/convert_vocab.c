// SPDX-License-Identifier: Apache-2.0
// The tokenizer of a HuggingFace folder (byte-level BPE in tokenizer.json) to GGUF keys, and the
// copy of a GGUF's tokenizer. What a GGUF cannot say (other normalisers, other splitting) is
// refused rather than dropped: a wrong tokenizer gives no error, only worse text.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "formats/convert_impl.h"

enum token_type { TOKEN_NORMAL = 1, TOKEN_CONTROL = 3, TOKEN_USER = 4, TOKEN_UNUSED = 5 };

struct vocab {
    struct arena arena;
    struct hf_file tokenizer, config, generation, model;
    struct str template_file;
    int64_t rows;
    const char **text; // [rows]; NULL: no token has this id
    size_t *length;
    int32_t *type;
    struct map ids;
    const char **merge;
    size_t *merge_length;
    uint64_t merges;
    struct err *e;
};

static int out_of_memory(struct vocab *v) {
    return err_set(v->e, ERR_MEMORY, "not enough memory for the vocabulary of %s",
                   v->tokenizer.path);
}

static int unsupported(const struct vocab *v, const char *what) {
    return err_set(v->e, ERR_UNSUPPORTED, "%s has %s: this tokenizer cannot be converted",
                   v->tokenizer.path, what);
}

static int add_token(struct vocab *v, const char *text, size_t n, int64_t id, int type) {
    char shown[64];
    snprintf(shown, sizeof shown, "%.*s", n < 40 ? (int)n : 40, text);
    if (id < 0 || id >= v->rows)
        return err_set(v->e, ERR_MISMATCH,
                       "token '%s' in %s has id %" PRId64 ", but the model has %" PRId64
                       " ids: use the tokenizer of this model",
                       shown, v->tokenizer.path, id, v->rows);
    if (v->text[id] && (v->length[id] != n || memcmp(v->text[id], text, n)))
        return err_set(v->e, ERR_FORMAT,
                       "id %" PRId64 " in %s belongs to two tokens: get the file "
                       "again",
                       id, v->tokenizer.path);
    uint32_t other = (uint32_t)id;
    int inserted = map_insert(&v->ids, text, n, (uint32_t)id);
    if (inserted < 0)
        return out_of_memory(v);
    if (!inserted && map_find(&v->ids, text, n, &other) && other != (uint32_t)id)
        return err_set(v->e, ERR_FORMAT,
                       "token '%s' in %s has the ids %" PRIu32 " and %" PRId64
                       ": get the file again",
                       shown, v->tokenizer.path, other, id);
    v->text[id] = text;
    v->length[id] = n;
    v->type[id] = type;
    return 0;
}

static int add_vocab_entry(void *arg, const char *key, size_t n, const struct json *value) {
    return add_token(arg, key, n, json_int(value, -1), TOKEN_NORMAL);
}

static bool wrapped(const char *s, size_t n, const char *begin, const char *end) {
    size_t b = strlen(begin), k = strlen(end);
    return n >= b + k && !memcmp(s, begin, b) && !memcmp(s + n - k, end, k);
}

// Some tokenizers do not flag the tokens that only a program may write.
static bool looks_special(const char *s, size_t n) {
    return wrapped(s, n, "<|", "|>") || wrapped(s, n, "<\xef\xbd\x9c", "\xef\xbd\x9c>") ||
           wrapped(s, n, "<unused", ">") || wrapped(s, n, "<pad>", "") ||
           wrapped(s, n, "<mask>", "");
}

static int read_tokens(struct vocab *v) {
    const struct json *vocab = hf_get(&v->tokenizer, "model.vocab");
    const struct json *added = hf_get(&v->tokenizer, "added_tokens");
    if (json_kind_of(vocab) != JSON_OBJECT)
        return unsupported(v, "no vocabulary object");
    int rc = json_each(vocab, add_vocab_entry, v);
    for (size_t i = 0; i < json_len(added) && !rc; i++) {
        const struct json *t = json_at(added, i);
        size_t n = 0;
        const char *s = json_str(json_get(t, "content"), &n);
        if (!s || !n)
            return unsupported(v, "an added token without text");
        bool control = json_bool(json_get(t, "special"), false) || looks_special(s, n);
        rc = add_token(v, s, n, json_int(json_get(t, "id"), -1),
                       control ? TOKEN_CONTROL : TOKEN_USER);
    }
    return rc;
}

// Gives the ids that have no token a text of their own.
static int fill_gaps(struct vocab *v) {
    for (int64_t i = 0; i < v->rows; i++) {
        char pad[32];
        if (v->text[i])
            continue;
        v->length[i] = (size_t)snprintf(pad, sizeof pad, "[PAD%" PRId64 "]", i);
        v->text[i] = arena_strndup(&v->arena, pad, v->length[i]);
        v->type[i] = TOKEN_UNUSED;
        if (!v->text[i])
            return out_of_memory(v);
    }
    return 0;
}

// Appends one half of a merge; a space in it is written as its byte-level stand-in U+0120.
static void append_half(struct str *out, const char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i] == ' ')
            str_puts(out, "\xc4\xa0");
        else
            str_putc(out, s[i]);
    }
}

static int add_merge(struct vocab *v, const struct json *m) {
    struct str joined = {0};
    size_t n = 0, k = 0;
    const char *s = json_str(m, &n);
    if (json_kind_of(m) == JSON_ARRAY && json_len(m) == 2) {
        const char *left = json_str(json_at(m, 0), &n), *right = json_str(json_at(m, 1), &k);
        if (left && right && n && k) {
            append_half(&joined, left, n);
            str_putc(&joined, ' ');
            append_half(&joined, right, k);
        }
        s = joined.data;
        n = joined.len;
    }
    const char *space = s && n > 2 ? memchr(s + 1, ' ', n - 2) : NULL;
    const char *kept = space && !joined.failed ? arena_strndup(&v->arena, s, n) : NULL;
    str_fini(&joined);
    if (!space)
        return err_set(v->e, ERR_FORMAT,
                       "merge %" PRIu64 " in %s is not two texts: get the file "
                       "again",
                       v->merges, v->tokenizer.path);
    if (!kept)
        return out_of_memory(v);
    v->merge[v->merges] = kept;
    v->merge_length[v->merges++] = n;
    return 0;
}

static int read_merges(struct vocab *v) {
    const struct json *merges = hf_get(&v->tokenizer, "model.merges");
    size_t n = json_len(merges);
    int rc = 0;
    v->merge = calloc(n + 1, sizeof *v->merge);
    v->merge_length = calloc(n + 1, sizeof *v->merge_length);
    if (!v->merge || !v->merge_length)
        return out_of_memory(v);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_merge(v, json_at(merges, i));
    return rc;
}

// The member of a (possibly nested) sequence of steps that has the given type.
static const struct json *find_step(const struct json *step, const char *list, const char *type) {
    const char *t = json_str(json_get(step, "type"), NULL);
    if (t && !strcmp(t, type))
        return step;
    const struct json *steps = json_get(step, list);
    for (size_t i = 0; i < json_len(steps); i++) {
        const struct json *s = json_at(steps, i);
        t = json_str(json_get(s, "type"), NULL);
        if (t && !strcmp(t, type))
            return s;
    }
    return NULL;
}

// Names the splitting by its expression. Both known ones begin and end alike and take one digit
// at a time; they differ in whether marks count as letters.
static const char *splitting(const struct vocab *v) {
    static const char head[] = "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?";
    static const char tail[] = "+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";
    const struct json *pre = hf_get(&v->tokenizer, "pre_tokenizer");
    const struct json *split = find_step(pre, "pretokenizers", "Split");
    const char *s = json_str(json_get(json_get(split, "pattern"), "Regex"), NULL);
    if (!s || !find_step(pre, "pretokenizers", "ByteLevel") || !wrapped(s, strlen(s), head, tail) ||
        !strstr(s, "|\\p{N}|"))
        return NULL;
    const char *letters = s + sizeof head - 1;
    if (!strncmp(letters, "[\\p{L}\\p{M}]+|", 14) || !strncmp(letters, "[\\p{M}\\p{L}]+|", 14))
        return "qwen35";
    return strstr(s, "\\p{M}") || strncmp(letters, "\\p{L}+|", 7) ? NULL : "qwen2";
}

static int check_model(struct vocab *v, bool *nfc) {
    const struct hf_file *f = &v->tokenizer;
    const struct json *normalizer = hf_get(f, "normalizer");
    const char *suffix = json_str(hf_get(f, "model.end_of_word_suffix"), NULL);
    const char *prefix = json_str(hf_get(f, "model.continuing_subword_prefix"), NULL);
    if (!hf_string_is(f, "model.type", "BPE"))
        return unsupported(v, "a model that is not BPE");
    if ((suffix && *suffix) || (prefix && *prefix))
        return unsupported(v, "word prefixes or suffixes");
    if (json_bool(hf_get(f, "model.byte_fallback"), false))
        return unsupported(v, "byte_fallback");
    if (json_bool(hf_get(f, "model.ignore_merges"), false))
        return unsupported(v, "ignore_merges");
    *nfc = find_step(normalizer, "normalizers", "NFC") != NULL;
    bool sequence = json_get(normalizer, "normalizers") != NULL;
    if (normalizer && (!*nfc || (sequence && json_len(json_get(normalizer, "normalizers")) != 1)))
        return unsupported(v, "a normaliser other than NFC");
    return 0;
}

// The text of a special token: a string, or an object with `content`.
static const struct json *token_text(const struct hf_file *f, const char *key) {
    const struct json *v = f->root ? hf_get(f, key) : NULL;
    return json_kind_of(v) == JSON_OBJECT ? json_get(v, "content") : v;
}

// The id of a special token by its text in tokenizer_config.json; -1 when there is none.
static int64_t named_token(const struct vocab *v, const char *key) {
    size_t n = 0;
    uint32_t id;
    const char *s = json_str(token_text(&v->config, key), &n);
    return s && map_find(&v->ids, s, n, &id) ? (int64_t)id : -1;
}

// Element i of an id or a list of ids; -1 when there is none.
static int64_t listed_id(const struct hf_file *f, const char *key, size_t i) {
    const struct json *v = f->root ? hf_get(f, key) : NULL;
    if (json_kind_of(v) == JSON_ARRAY)
        return json_int(json_at(v, i), -1);
    return i == 0 ? json_int(v, -1) : -1;
}

static void put_id(struct gguf_writer *w, const struct vocab *v, const char *key, int64_t id) {
    char full[64];
    snprintf(full, sizeof full, "tokenizer.ggml.%s_token_id", key);
    if (id >= 0 && id < v->rows)
        gguf_put_int(w, full, GGUF_U32, id);
}

// The end of a turn is the tokenizer's eos; another id that generation stops at becomes eot.
static void put_special(struct gguf_writer *w, const struct vocab *v) {
    int64_t eos = named_token(v, "eos_token"), eot = -1, pad = named_token(v, "pad_token");
    for (size_t i = 0; i < 8; i++) {
        int64_t id = listed_id(&v->generation, "eos_token_id", i);
        if (id < 0)
            id = i ? -1 : listed_id(&v->model, "eos_token_id", 0);
        if (eos < 0)
            eos = id;
        if (id >= 0 && id != eos && eot < 0)
            eot = id;
    }
    put_id(w, v, "bos", named_token(v, "bos_token"));
    put_id(w, v, "eos", eos);
    put_id(w, v, "eot", eot);
    put_id(w, v, "padding", pad >= 0 ? pad : listed_id(&v->generation, "pad_token_id", 0));
    put_id(w, v, "unknown", named_token(v, "unk_token"));
    const struct json *add = v->config.root ? hf_get(&v->config, "add_bos_token") : NULL;
    gguf_put_bool(w, "tokenizer.ggml.add_bos_token", json_bool(add, false));
}

static void put_template(struct gguf_writer *w, const struct vocab *v) {
    static const char key[] = "tokenizer.chat_template";
    const struct json *t = v->config.root ? hf_get(&v->config, "chat_template") : NULL;
    size_t n = 0;
    if (v->template_file.len) {
        gguf_put_str(w, key, v->template_file.data, v->template_file.len);
        return;
    }
    for (size_t i = 0; json_kind_of(t) == JSON_ARRAY && i < json_len(t); i++) {
        const char *name = json_str(json_get(json_at(t, i), "name"), NULL);
        if (name && !strcmp(name, "default")) {
            t = json_get(json_at(t, i), "template");
            break;
        }
    }
    const char *s = json_str(t, &n);
    if (s && n)
        gguf_put_str(w, key, s, n);
}

static int read_files(struct vocab *v, const char *dir) {
    struct str path = {0};
    struct err ignored = {0};
    int rc = hf_read(&v->tokenizer, dir, "tokenizer.json", true, v->e);
    if (!rc)
        rc = hf_read(&v->config, dir, "tokenizer_config.json", false, v->e);
    if (!rc)
        rc = hf_read(&v->generation, dir, "generation_config.json", false, v->e);
    if (!rc)
        rc = hf_read(&v->model, dir, "config.json", false, v->e);
    if (rc)
        return rc;
    str_printf(&path, "%s/chat_template.jinja", dir);
    if (!path.failed && file_read(&v->template_file, path.data, 16u << 20, &ignored))
        str_clear(&v->template_file);
    str_fini(&path);
    return 0;
}

static int put_vocab(struct gguf_writer *w, struct vocab *v) {
    bool nfc = false;
    int rc = check_model(v, &nfc);
    const char *pre = rc ? NULL : splitting(v);
    if (!rc && !pre)
        rc = unsupported(v, "a pre-tokenizer other than that of qwen2 or qwen35");
    v->text = calloc((size_t)v->rows, sizeof *v->text);
    v->length = calloc((size_t)v->rows, sizeof *v->length);
    v->type = calloc((size_t)v->rows, sizeof *v->type);
    if (!rc && (!v->text || !v->length || !v->type))
        rc = out_of_memory(v);
    if (!rc)
        rc = read_tokens(v);
    if (!rc)
        rc = fill_gaps(v);
    if (!rc)
        rc = read_merges(v);
    if (rc)
        return rc;
    gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
    gguf_put_str_array(w, "tokenizer.ggml.tokens", v->text, v->length, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, (uint64_t)v->rows);
    gguf_put_str_array(w, "tokenizer.ggml.merges", v->merge, v->merge_length, v->merges);
    if (nfc)
        gguf_put_bool(w, "tokenizer.ggml.normalizer.nfc", true);
    put_special(w, v);
    put_template(w, v);
    return 0;
}

int convert_vocab_hf(struct gguf_writer *w, const char *dir, int64_t rows, struct err *e) {
    struct vocab v = {.rows = rows, .e = e};
    int rc = read_files(&v, dir);
    if (!rc)
        rc = put_vocab(w, &v);
    hf_close(&v.tokenizer);
    hf_close(&v.config);
    hf_close(&v.generation);
    hf_close(&v.model);
    str_fini(&v.template_file);
    map_fini(&v.ids);
    free(v.text);
    free(v.length);
    free(v.type);
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
