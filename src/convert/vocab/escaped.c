// SPDX-License-Identifier: Apache-2.0
// Gemma 4: tokenizer.json's pairs over text in which U+2581 stands for a blank, with a token for
// each byte that no other token covers. A GGUF file says all of it with the name "gemma4", so
// everything that name implies is checked here: how text is normalised and cut, that no merge
// crosses a line end, that merges and bytes have their tokens.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/vocab/vocab.h"

#define BLANK "\xE2\x96\x81"
#define SCORE -1000.0f // files have scores, which nobody reads beside merges

static bool is(const struct json *v, const char *text) {
    const char *s = json_str(v, NULL);
    return s && !strcmp(s, text);
}

// The step itself, or the only one of a sequence.
static const struct json *only_step(const struct json *step, const char *list) {
    const struct json *steps = json_get(step, list);
    return json_len(steps) == 1 ? json_at(steps, 0) : step;
}

// Blanks become U+2581 and nothing else happens; text is not cut, or at blanks, of which there are
// none left.
static int check_form(struct vocab *v) {
    const struct hf_file *f = &v->tokenizer;
    const struct json *normal = only_step(hf_get(f, "normalizer"), "normalizers");
    const struct json *cut = only_step(hf_get(f, "pre_tokenizer"), "pretokenizers");
    const char *suffix = json_str(hf_get(f, "model.end_of_word_suffix"), NULL);
    const char *prefix = json_str(hf_get(f, "model.continuing_subword_prefix"), NULL);
    if (!is(hf_get(f, "model.type"), "BPE"))
        return vocab_refuse(v, "a model that is not BPE");
    if ((suffix && *suffix) || (prefix && *prefix))
        return vocab_refuse(v, "word prefixes or suffixes");
    if (json_bool(hf_get(f, "model.ignore_merges"), false))
        return vocab_refuse(v, "ignore_merges, which gemma4 does not have");
    if (!is(json_get(normal, "type"), "Replace") ||
        !is(json_get(json_get(normal, "pattern"), "String"), " ") ||
        !is(json_get(normal, "content"), BLANK))
        return vocab_refuse(v, "a normaliser other than that blanks become U+2581");
    if (cut && (!is(json_get(cut, "type"), "Split") ||
                !is(json_get(json_get(cut, "pattern"), "String"), " ")))
        return vocab_refuse(v, "a pre-tokenizer other than a Split at blanks");
    return 0;
}

// Tokens of calls and thoughts belong to a reply's text, whatever their flag.
static bool is_visible(const char *s, size_t n) {
    static const char *const names[] = {"<|channel>",   "<channel|>",       "<|tool_call>",
                                        "<tool_call|>", "<|tool_response>", "<tool_response|>",
                                        "<|\"|>"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (n == strlen(names[i]) && !memcmp(s, names[i], n))
            return true;
    return false;
}

static int check_added(struct vocab *v) {
    const struct json *added = hf_get(&v->tokenizer, "added_tokens");
    for (size_t i = 0; i < json_len(added); i++) {
        const char *s = json_str(json_get(json_at(added, i), "content"), NULL);
        if (s && (strchr(s, ' ') || strstr(s, BLANK)))
            return vocab_refuse(v, "an added token with a blank in it");
    }
    return 0;
}

static int set_types(struct vocab *v) {
    char name[8];
    uint32_t id;
    for (int byte = 0; byte < 256; byte++) {
        snprintf(name, sizeof name, "<0x%02X>", (unsigned)byte);
        if (!map_find(&v->ids, name, 6, &id))
            return vocab_refuse(v, "not a token for each byte (<0x00> to <0xFF>)");
        v->type[id] = TOKEN_BYTE;
    }
    for (int64_t i = 0; i < v->rows; i++) {
        v->score[i] = SCORE;
        if (v->type[i] == TOKEN_CONTROL && is_visible(v->text[i], v->length[i]))
            v->type[i] = TOKEN_USER;
    }
    return 0;
}

static bool is_token(const struct vocab *v, const char *s, size_t n) {
    uint32_t id;
    return map_find(&v->ids, s, n, &id);
}

// Both parts and what they make must be tokens, and line ends merge with line ends only: files of
// this kind are read line by line.
static int check_merge(struct vocab *v, uint64_t i, struct str *joined) {
    const char *s = v->merge[i];
    size_t n = v->merge_length[i], left = (size_t)((const char *)memchr(s + 1, ' ', n - 1) - s);
    str_clear(joined);
    str_append(joined, s, left);
    str_append(joined, s + left + 1, n - left - 1);
    if (joined->failed)
        return vocab_no_memory(v);
    if (!is_token(v, s, left) || !is_token(v, s + left + 1, n - left - 1) ||
        !is_token(v, joined->data, joined->len))
        return err_set(v->e, ERR_FORMAT,
                       "merge %" PRIu64 " in %s has a part that is no token: get the file again", i,
                       v->where.data);
    size_t ends = 0;
    for (size_t k = 0; k < joined->len; k++)
        ends += joined->data[k] == '\n';
    return ends && ends < joined->len
               ? vocab_refuse(v, "a merge of a line end with another character")
               : 0;
}

static int check_merges(struct vocab *v) {
    struct str joined = {0};
    int rc = 0;
    for (uint64_t i = 0; i < v->merges && !rc; i++)
        rc = check_merge(v, i, &joined);
    str_fini(&joined);
    return rc;
}

int vocab_put_escaped(struct gguf_writer *w, struct vocab *v) {
    int rc = check_form(v);
    if (!rc)
        rc = check_added(v);
    if (!rc)
        rc = vocab_read_tokens(v);
    if (!rc)
        rc = vocab_fill_gaps(v);
    if (!rc)
        rc = set_types(v);
    if (!rc)
        rc = vocab_read_merges(v);
    if (!rc)
        rc = check_merges(v);
    if (rc)
        return rc;
    v->always_bos = true;
    gguf_put_str(w, "tokenizer.ggml.model", "gemma4", 6);
    gguf_put_str_array(w, "tokenizer.ggml.tokens", v->text, v->length, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.scores", GGUF_F32, v->score, (uint64_t)v->rows);
    gguf_put_array(w, "tokenizer.ggml.token_type", GGUF_I32, v->type, (uint64_t)v->rows);
    gguf_put_str_array(w, "tokenizer.ggml.merges", v->merge, v->merge_length, v->merges);
    gguf_put_bool(w, "tokenizer.ggml.add_space_prefix", false);
    return 0;
}
