// SPDX-License-Identifier: Apache-2.0
// Scores become ranks: tokens of equal score share one, so that the leftmost pair wins among them.
// A token of k characters gives k - 1 pairs, one for each cut; a pair is kept when each side is
// itself a token or one character, since nothing else ever stands on a side.
#include "text/tokenizer/spm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

static int no_score_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "no memory for the scores of the vocabulary; free some memory");
}

struct scored {
    double score;
    uint32_t id;
};

static int by_score(const void *a, const void *b) {
    const struct scored *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

// The tokens that text can become, best score first.
static int read_scores(const struct vocab *v, const struct gguf *g, struct scored *list, size_t *n,
                       struct err *e) {
    const char *key = "tokenizer.ggml.scores";
    const struct gguf_kv *kv = gguf_find(g, key);
    bool whole = kv && kv->kind == GGUF_ARRAY && kv->elem == GGUF_I32;
    bool real = kv && kv->kind == GGUF_ARRAY && kv->elem == GGUF_F32;
    if (!(whole || real) || kv->count < v->count)
        return err_set(e, ERR_FORMAT,
                       "%s does not hold a number for each of %u tokens; the file needs a new "
                       "conversion with its tokenizer",
                       key, v->count);
    *n = 0;
    for (uint32_t i = 0; i < v->count; i++) {
        float f;
        memcpy(&f, kv->bytes + 4 * (size_t)i, sizeof f);
        double score = whole ? (double)gguf_array_int(kv, i) : (double)f;
        if (isnan(score))
            return err_set(e, ERR_FORMAT,
                           "the score of token %u in %s is no number; the file is damaged", i, key);
        if (v->tokens[i].mapped)
            list[(*n)++] = (struct scored){score, i};
    }
    qsort(list, *n, sizeof *list, by_score);
    return 0;
}

static bool is_side(const struct bpe *b, const char *s, size_t n) {
    return utf8_count(s, n) == 1 || bpe_find(b, s, n) >= 0;
}

static int add_pairs(struct bpe *b, const struct vocab_token *t, uint32_t rank, struct err *e) {
    int rc = 0;
    for (uint32_t cut = 1; cut < t->n_text && !rc; cut++) {
        const char *right = t->text + cut;
        struct bpe_pair p = {t->text, right, cut, t->n_text - cut};
        if (((unsigned char)*right & 0xC0) != 0x80 && is_side(b, p.left, p.n_left) &&
            is_side(b, right, p.n_right))
            rc = bpe_add_ranked(b, &p, rank, e);
    }
    return rc;
}

static int add_scored_tokens(struct bpe *b, const struct vocab *v, const struct scored *list,
                             size_t n, struct err *e) {
    uint64_t pairs = 0;
    for (size_t i = 0; i < n; i++)
        pairs += utf8_count(v->tokens[list[i].id].text, v->tokens[list[i].id].n_text);
    if (pairs > INT32_MAX)
        return err_set(e, ERR_LIMIT, "the vocabulary holds more than 2^31 characters of text");
    int rc = bpe_init(b, v->count, (uint32_t)pairs, e);
    b->characters = true;
    for (size_t i = 0; i < n && !rc; i++) {
        const struct vocab_token *t = &v->tokens[list[i].id];
        rc = bpe_add_token(b, list[i].id, t->text, t->n_text, e);
    }
    uint32_t rank = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        rank += i > 0 && list[i].score != list[i - 1].score;
        rc = add_pairs(b, &v->tokens[list[i].id], rank, e);
    }
    return rc;
}

int spm_build(struct bpe *b, const struct vocab *v, const struct gguf *g, struct err *e) {
    struct scored *list = calloc((size_t)v->count + 1, sizeof *list);
    size_t n = 0;
    int rc = list ? read_scores(v, g, list, &n, e) : no_score_memory(e);
    if (!rc)
        rc = add_scored_tokens(b, v, list, n, e);
    free(list);
    return rc;
}

void spm_set_bytes(struct bpe *b, const struct vocab *v) {
    for (uint32_t i = 0; i < v->count; i++) {
        const struct vocab_token *t = &v->tokens[i];
        int32_t *id = &b->byte_token[t->n_raw ? (unsigned char)t->raw[0] : 0];
        if (t->type == VOCAB_BYTE && t->n_raw == 1 && *id < 0)
            *id = (int32_t)i;
    }
    b->unknown = v->unknown;
}

// Appends n bytes that the caller overwrites; false when memory is short.
static bool extend(struct str *s, size_t n) {
    static const char filler[256];
    for (size_t step; n > 0 && !s->failed; n -= step) {
        step = n < sizeof filler ? n : sizeof filler;
        str_append(s, filler, step);
    }
    return !s->failed;
}

// Without a branch on what a byte is: every fifth is a blank, and no processor predicts which. Each
// store writes a whole blank, and the next one goes over what was too much.
void spm_escape(struct str *out, const char *text, size_t n, bool blank_first) {
    size_t blanks = 0;
    for (size_t i = 0; i < n; i++)
        blanks += text[i] == ' ';
    if (n > 0 && blank_first)
        str_puts(out, BPE_BLANK);
    size_t before = out->len, bytes = n + 2 * blanks;
    if (n == 0 || !extend(out, bytes + sizeof BPE_BLANK))
        return;
    char *to = out->data + before;
    for (size_t i = 0; i < n; i++) {
        bool blank = text[i] == ' ';
        memcpy(to, BPE_BLANK, sizeof BPE_BLANK);
        to[0] = blank ? to[0] : text[i];
        to += blank ? 3 : 1;
    }
    out->len = before + bytes;
    out->data[out->len] = '\0';
}

int spm_words(const struct bpe *b, const char *text, size_t n, spm_word_fn *fn, void *arg,
              struct err *e) {
    size_t begin = 0;
    for (size_t i = 1; i < n; i++) {
        if (((unsigned char)text[i] & 0xC0) == 0x80 || bpe_joins(b, text, n, i))
            continue;
        int rc = fn(arg, text + begin, i - begin, e);
        if (rc)
            return rc;
        begin = i;
    }
    return fn(arg, text + begin, n - begin, e);
}
