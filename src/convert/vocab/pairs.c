// SPDX-License-Identifier: Apache-2.0
// Byte-level pairs: tokenizer.json's vocabulary, added tokens and merges.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "convert/vocab/vocab.h"

static int add_vocab_entry(void *arg, const char *key, size_t n, const struct json *value) {
    return vocab_add(arg, key, n, json_int(value, -1), TOKEN_NORMAL);
}

int vocab_read_tokens(struct vocab *v) {
    const struct json *vocab = hf_get(&v->tokenizer, "model.vocab");
    const struct json *added = hf_get(&v->tokenizer, "added_tokens");
    if (json_kind_of(vocab) != JSON_OBJECT)
        return vocab_refuse(v, "no vocabulary object");
    int rc = json_each(vocab, add_vocab_entry, v);
    for (size_t i = 0; i < json_len(added) && !rc; i++) {
        const struct json *t = json_at(added, i);
        size_t n = 0;
        const char *s = json_str(json_get(t, "content"), &n);
        if (!s || !n)
            return vocab_refuse(v, "an added token without text");
        rc = vocab_add(v, s, n, json_int(json_get(t, "id"), -1),
                       vocab_added_type(s, n, json_bool(json_get(t, "special"), false)));
    }
    return rc;
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
    bool failed = joined.failed;
    str_fini(&joined);
    if (!space && !failed)
        return err_set(v->e, ERR_FORMAT,
                       "merge %" PRIu64 " in %s is not two texts: get the file "
                       "again",
                       v->merges, v->where.data);
    if (!kept)
        return vocab_no_memory(v);
    v->merge[v->merges] = kept;
    v->merge_length[v->merges++] = n;
    return 0;
}

int vocab_read_merges(struct vocab *v) {
    const struct json *merges = hf_get(&v->tokenizer, "model.merges");
    size_t n = json_len(merges);
    int rc = 0;
    v->merge = calloc(n + 1, sizeof *v->merge);
    v->merge_length = calloc(n + 1, sizeof *v->merge_length);
    if (!v->merge || !v->merge_length)
        return vocab_no_memory(v);
    for (size_t i = 0; i < n && !rc; i++)
        rc = add_merge(v, json_at(merges, i));
    return rc;
}

static int check_model(struct vocab *v, bool *nfc) {
    const struct hf_file *f = &v->tokenizer;
    const struct json *normalizer = hf_get(f, "normalizer");
    const char *suffix = json_str(hf_get(f, "model.end_of_word_suffix"), NULL);
    const char *prefix = json_str(hf_get(f, "model.continuing_subword_prefix"), NULL);
    if (!hf_string_is(f, "model.type", "BPE"))
        return vocab_refuse(v, "a model that is not BPE");
    if ((suffix && *suffix) || (prefix && *prefix))
        return vocab_refuse(v, "word prefixes or suffixes");
    if (json_bool(hf_get(f, "model.byte_fallback"), false))
        return vocab_refuse(v, "byte_fallback and no tokenizer.model beside it");
    const struct json *steps = json_get(normalizer, "normalizers"); // there may be none in it
    *nfc = vocab_find_step(normalizer, "normalizers", "NFC") != NULL;
    if (normalizer && (steps ? json_len(steps) != *nfc : !*nfc))
        return vocab_refuse(v, "a normaliser other than NFC");
    return 0;
}

// Where digits stand alone, files say that runs of them do not merge with others: the same only if
// no two of them merge.
static int check_digits(struct vocab *v) {
    for (uint64_t i = 0; i < v->merges; i++)
        if (strspn(v->merge[i], "0123456789 ") == v->merge_length[i])
            return vocab_refuse(v, "digits that stand alone and merges of digits");
    return 0;
}

void vocab_write_pairs(struct gguf_writer *w, struct vocab *v, const char *pre) {
    vocab_mark_ends(v);
    gguf_put_str(w, "tokenizer.ggml.model", "gpt2", 4);
    gguf_put_str(w, "tokenizer.ggml.pre", pre, strlen(pre));
    gguf_put_str_array(w, "tokenizer.ggml.tokens", v->text, v->length, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, (uint64_t)v->rows);
    gguf_put_str_array(w, "tokenizer.ggml.merges", v->merge, v->merge_length, v->merges);
}

int vocab_put_pairs(struct gguf_writer *w, struct vocab *v) {
    bool nfc = false;
    int rc = check_model(v, &nfc);
    const char *pre = NULL;
    if (!rc)
        rc = vocab_splitting(v, &pre);
    if (!rc)
        rc = vocab_read_tokens(v);
    if (!rc)
        rc = vocab_fill_gaps(v);
    if (!rc)
        rc = vocab_read_merges(v);
    if (!rc && !strcmp(pre, "deepseek-llm"))
        rc = check_digits(v);
    if (rc)
        return rc;
    vocab_write_pairs(w, v, pre);
    if (nfc)
        gguf_put_bool(w, "tokenizer.ggml.normalizer.nfc", true);
    return 0;
}
