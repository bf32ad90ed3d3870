// SPDX-License-Identifier: Apache-2.0
// Byte-level pairs: tokenizer.json's vocabulary, added tokens and merges, and the name of its
// splitting, known by its expressions.
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "convert/convert_vocab.h"

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

#define HEAD  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?"
#define MARKS "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
#define TAIL  "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define CASES     "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define NO_LETTER "[^\\r\\n\\p{L}\\p{N}]?"
#define CAPITALS  "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define SMALL     "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"

// Splittings by their expressions, one behind the other. Whole pieces (ignore_merges) are part of
// the name.
enum { MOST_SPLITS = 3 };
static const struct splitting {
    const char *expression[MOST_SPLITS], *name;
    bool whole;
} splittings[] = {
    {{HEAD "\\p{L}+|\\p{N}" MARKS TAIL}, "qwen2", false},
    {{HEAD "[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|" TAIL}, "qwen35", false},
    {{HEAD "[\\p{M}\\p{L}]+|\\p{N}| ?[^\\s\\p{M}\\p{L}\\p{N}]+[\\r\\n]*|" TAIL}, "qwen35", false},
    {{HEAD "\\p{L}+|\\p{N}{1,3}" MARKS TAIL}, "llama-bpe", true},
    {{HEAD "\\p{L}+|\\p{N}{1,3}" MARKS TAIL}, "smaug-bpe", false},
    {{NO_LETTER CAPITALS "*" SMALL "+" CASES "|" NO_LETTER CAPITALS "+" SMALL "*" CASES
                         "|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|" TAIL},
     "gpt-4o",
     false},
    {{"[^\\n]+|[\\n]+", HEAD "\\p{L}+|\\p{N}" MARKS TAIL}, "laguna", false},
    {{"\\p{N}{1,3}",
      "[\xe4\xb8\x80-\xe9\xbe\xa5\xe3\x81\x80-\xe3\x82\x9f\xe3\x82\xa0-\xe3\x83\xbf]+",
      "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?"
      "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|" TAIL},
     "deepseek-v3",
     false},
};

// Whether the steps of type Split are these, in this order, each cutting out what it finds.
static bool splits_are(const struct json *steps, const struct splitting *s) {
    int n = 0;
    for (size_t i = 0; i < json_len(steps); i++) {
        const struct json *step = json_at(steps, i);
        const char *type = json_str(json_get(step, "type"), NULL);
        const char *re = json_str(json_get(json_get(step, "pattern"), "Regex"), NULL);
        if (!type || strcmp(type, "Split") != 0)
            continue;
        if (n == MOST_SPLITS || !re || !s->expression[n] || strcmp(s->expression[n], re) != 0)
            return false;
        n++;
    }
    return n == MOST_SPLITS || !s->expression[n];
}

static size_t count_splits(const struct json *steps) {
    size_t n = 0;
    for (size_t i = 0; i < json_len(steps); i++) {
        const char *type = json_str(json_get(json_at(steps, i), "type"), NULL);
        n += type && !strcmp(type, "Split");
    }
    return n;
}

// Names the splitting, NULL when it is not known. Without an expression of its own the step
// ByteLevel splits as gpt-2 does, with a step for digits as smollm does.
static const char *splitting(const struct vocab *v) {
    const struct json *pre = hf_get(&v->tokenizer, "pre_tokenizer");
    const struct json *level = find_step(pre, "pretokenizers", "ByteLevel");
    const struct json *digits = find_step(pre, "pretokenizers", "Digits");
    const struct json *steps = json_get(pre, "pretokenizers");
    bool whole = json_bool(hf_get(&v->tokenizer, "model.ignore_merges"), false);
    bool own = json_bool(json_get(level, "use_regex"), true);
    size_t splits = count_splits(steps), known = splits + (level ? 1u : 0u) + (digits ? 1u : 0u);
    if (!level || (steps && json_len(steps) != known) ||
        json_bool(json_get(level, "add_prefix_space"), false) ||
        (splits && json_bool(json_get(level, "use_regex"), false)))
        return NULL;
    if (!splits && own && !whole)
        return !digits                                                   ? "gpt-2"
               : json_bool(json_get(digits, "individual_digits"), false) ? "smollm"
                                                                         : NULL;
    for (size_t i = 0; splits && !digits && i < sizeof splittings / sizeof *splittings; i++)
        if (splittings[i].whole == whole && splits_are(steps, &splittings[i]))
            return splittings[i].name;
    return NULL;
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
    *nfc = find_step(normalizer, "normalizers", "NFC") != NULL;
    bool sequence = json_get(normalizer, "normalizers") != NULL;
    if (normalizer && (!*nfc || (sequence && json_len(json_get(normalizer, "normalizers")) != 1)))
        return vocab_refuse(v, "a normaliser other than NFC");
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
    const char *pre = rc ? NULL : splitting(v);
    if (!rc && !pre)
        rc = vocab_refuse(v, "a pre-tokenizer (or ignore_merges) other than that of qwen2, qwen35, "
                             "llama-bpe, gpt-2, smollm, gpt-4o, laguna or deepseek-v3");
    if (!rc)
        rc = vocab_read_tokens(v);
    if (!rc)
        rc = vocab_fill_gaps(v);
    if (!rc)
        rc = vocab_read_merges(v);
    if (rc)
        return rc;
    vocab_write_pairs(w, v, pre);
    if (nfc)
        gguf_put_bool(w, "tokenizer.ggml.normalizer.nfc", true);
    return 0;
}
