// SPDX-License-Identifier: Apache-2.0
// Choosing the tokens of a draft's head. In vocabularies that are spelled by merges an id is the
// rank of its merge, so the first ones are the frequent ones; marks come after all of them.
#include "models/draft/head.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/num.h"
#include "base/str.h"

enum { TYPE_CONTROL = 3, TYPE_USER_DEFINED = 4 }; // values of tokenizer.ggml.token_type

static bool is_merged(const struct gguf *g) {
    const char *model;
    size_t n;
    struct err none;
    return !gguf_get_str(g, "tokenizer.ggml.model", &model, &n, &none) && model && n == 4 &&
           !memcmp(model, "gpt2", 4);
}

static void mark_first(uint8_t *wanted, int64_t n) {
    memset(wanted, 1, (size_t)n);
}

// Marks of turns, tools and ends, which are rare in texts that tokenizers are trained on.
static void mark_special(uint8_t *wanted, const struct gguf *g, int64_t vocab) {
    const struct gguf_kv *types = gguf_find(g, "tokenizer.ggml.token_type");
    if (!types || types->kind != GGUF_ARRAY || types->elem == GGUF_STRING)
        return;
    for (int64_t i = 0; i < vocab && (uint64_t)i < types->count; i++) {
        int64_t type = gguf_array_int(types, (uint64_t)i);
        wanted[i] |= type == TYPE_CONTROL || type == TYPE_USER_DEFINED;
    }
}

static int refuse_line(const char *path, int line, const char *what, struct err *e) {
    return err_set(e, ERR_USAGE,
                   "line %d of %s %s; a list of tokens has one id a line, below the vocabulary's "
                   "size, and comments after #",
                   line, path, what);
}

// Ids of lines; the text ends in a NUL.
static int mark_lines(uint8_t *wanted, int64_t vocab, char *text, const char *path, struct err *e) {
    char *next = text;
    for (int line = 1; next; line++) {
        char *at = next, *end;
        next = strchr(at, '\n');
        if (next)
            *next++ = 0;
        at[strcspn(at, "#\r")] = 0;
        at += strspn(at, " \t");
        if (!*at)
            continue;
        errno = 0;
        long long id = strtoll(at, &end, 10);
        if (end == at || end[strspn(end, " \t")] || errno)
            return refuse_line(path, line, "is no number", e);
        if (id < 0 || id >= vocab)
            return refuse_line(path, line, "names a token that the model has not", e);
        wanted[id] = 1;
    }
    return 0;
}

// All that is wrong with a list is ERR_USAGE: somebody has named it.
static int mark_list(uint8_t *wanted, int64_t vocab, const char *path, struct err *e) {
    enum { LINE = 24 };
    struct str text = {0};
    struct err own;
    int rc = file_read(&text, path, (size_t)vocab * LINE + 65536, &own);
    if (rc)
        rc = err_set(e, rc == ERR_MEMORY ? rc : ERR_USAGE, "the tokens that may be guessed: %s",
                     own.text);
    if (!rc && text.len && memchr(text.data, 0, text.len))
        rc = err_set(e, ERR_USAGE, "%s is no text; a list of tokens has one id a line", path);
    if (!rc && text.len)
        rc = mark_lines(wanted, vocab, text.data, path, e);
    str_fini(&text);
    return rc;
}

// Marks what is wanted; *all: everything is.
static int mark_wanted(uint8_t *wanted, bool *all, const struct draft_head_source *s,
                       struct err *e) {
    const struct draft_vocab_options *o = &s->vocab;
    int64_t rows = o->rows;
    int rc = 0;
    if (!o->list && rows == DRAFT_VOCAB_AUTO)
        rows = is_merged(s->tokens) && s->size > 2 * DRAFT_VOCAB_USUAL ? DRAFT_VOCAB_USUAL : 0;
    *all = !o->list && (rows <= 0 || rows >= s->size);
    if (*all)
        return 0;
    if (o->list)
        rc = mark_list(wanted, s->size, o->list, e);
    else
        mark_first(wanted, rows);
    mark_special(wanted, s->tokens, s->size);
    return rc;
}

static int take_ids(struct draft_head *h, const uint8_t *wanted, int64_t vocab, struct err *e) {
    for (int64_t i = 0; i < vocab; i++)
        h->rows += wanted[i];
    if (h->rows == 0)
        return err_set(e, ERR_USAGE, "the list of tokens that may be guessed is empty");
    h->ids = malloc((size_t)h->rows * sizeof *h->ids);
    if (!h->ids)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a draft's head");
    int32_t *to = h->ids;
    for (int64_t i = 0; i < vocab; i++)
        if (wanted[i])
            *to++ = (int32_t)i;
    return 0;
}

static int choose_tokens(struct draft_head *h, const struct draft_head_source *s, struct err *e) {
    bool all = false;
    uint8_t *wanted = calloc((size_t)s->size, 1);
    if (!wanted)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a draft's head");
    int rc = mark_wanted(wanted, &all, s, e);
    if (!rc && !all)
        rc = take_ids(h, wanted, s->size, e);
    free(wanted);
    return rc;
}

struct row_token {
    int32_t token, row;
};

static int compare_tokens(const void *a, const void *b) {
    const int32_t x = ((const struct row_token *)a)->token,
                  y = ((const struct row_token *)b)->token;
    return (x > y) - (x < y);
}

static int refuse_tokens(const struct draft_head_source *s, struct err *e) {
    return err_set(e, ERR_FORMAT,
                   "tensor %s must have %lld different tokens of the target's vocabulary, one for "
                   "each row of %s; the file is damaged or of another target",
                   s->tokens_of->name, (long long)s->size, s->tensor);
}

static int read_tokens(struct row_token *out, const struct draft_head_source *s, struct err *e) {
    const struct tensor *t = s->tokens_of;
    const int64_t vocab = s->n_tokens;
    if (t->ne[0] != s->size || t->ne[1] != 1 || (t->type != TYPE_I32 && t->type != TYPE_I64))
        return refuse_tokens(s, e);
    for (int64_t i = 0; i < s->size; i++) {
        int32_t narrow = 0;
        int64_t id = 0;
        if (t->type == TYPE_I64)
            memcpy(&id, (const char *)t->data + i * (int64_t)sizeof id, sizeof id);
        else
            memcpy(&narrow, (const char *)t->data + i * (int64_t)sizeof narrow, sizeof narrow);
        id += narrow;
        if (s->offsets && id > -vocab && id < vocab)
            id += i;
        if (id < 0 || id >= vocab)
            return refuse_tokens(s, e);
        out[i] = (struct row_token){(int32_t)id, (int32_t)i};
    }
    qsort(out, (size_t)s->size, sizeof *out, compare_tokens);
    for (int64_t i = 1; i < s->size; i++)
        if (out[i].token == out[i - 1].token)
            return refuse_tokens(s, e);
    return 0;
}

// The head's tokens are those of tokens_of; rows[size]: the tensor's rows in their order.
static int take_tokens(struct draft_head *h, const struct draft_head_source *s, int32_t *rows,
                       struct err *e) {
    struct row_token *list = malloc((size_t)s->size * sizeof *list);
    h->ids = malloc((size_t)s->size * sizeof *h->ids);
    int rc = list && h->ids ? read_tokens(list, s, e)
                            : err_set(e, ERR_MEMORY, "no memory for the tokens of a draft's head");
    for (int64_t i = 0; !rc && i < s->size; i++) {
        h->ids[i] = list[i].token;
        rows[i] = list[i].row;
    }
    h->rows = s->size;
    free(list);
    return rc;
}

// Rows of the tensor that have the tokens h->ids.
static int load_rows(struct draft_head *h, struct load *l, const struct draft_head_source *s,
                     const int32_t *rows, struct err *e) {
    const struct load_list list = {s->size, rows, h->rows};
    const size_t bytes = (size_t)h->rows * sizeof *h->ids;
    void *ids_of = NULL;
    int rc = load_weight_list(l, s->tensor, s->dim, &list, &h->w, e);
    if (!rc)
        rc = load_bytes(l, (int64_t)bytes, &ids_of, e);
    if (rc || l->dry)
        return rc;
    exec_ops(l->x)->upload(l->x, ids_of, h->ids, bytes);
    h->ids_of = ids_of;
    return 0;
}

static int load_trained(struct draft_head *h, struct load *l, const struct draft_head_source *s,
                        struct err *e) {
    int32_t *rows = malloc((size_t)s->size * sizeof *rows);
    if (!rows)
        return err_set(e, ERR_MEMORY, "no memory for the tokens of a draft's head");
    h->row_of = rows;
    int rc = take_tokens(h, s, rows, e);
    return rc ? rc : load_rows(h, l, s, rows, e);
}

int draft_head_load(struct draft_head *h, struct load *l, const struct draft_head_source *s,
                    struct err *e) {
    if (s->tokens_of)
        return load_trained(h, l, s, e);
    int rc = choose_tokens(h, s, e);
    if (rc)
        return rc;
    if (h->ids)
        return load_rows(h, l, s, h->ids, e);
    h->rows = s->size;
    h->w = s->whole;
    return s->loaded ? 0 : load_weight(l, s->tensor, s->dim, s->size, &h->w, e);
}

void draft_head_fini(struct draft_head *h) {
    free(h->ids);
    free(h->row_of);
    *h = (struct draft_head){0};
}

bool draft_head_has(const struct draft_head *h, int32_t token) {
    return draft_head_row(h, token) >= 0;
}

int64_t draft_head_row(const struct draft_head *h, int32_t token) {
    int64_t lo = 0, hi = h->rows;
    if (!h->ids)
        return token >= 0 && token < h->rows ? token : -1;
    while (lo < hi) {
        const int64_t mid = (lo + hi) / 2;
        if (h->ids[mid] < token)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == h->rows || h->ids[lo] != token)
        return -1;
    return h->row_of ? h->row_of[lo] : token;
}

void draft_head_topk(const struct draft_head *h, struct exec *x, struct topk_args *a) {
    a->vocab = h->rows;
    a->ids_of = h->ids_of;
    exec_ops(x)->head_topk(x, a);
    for (int64_t i = 0; h->ids && i < a->n * a->k; i++)
        a->ids[i] = a->ids[i] >= 0 && a->ids[i] < h->rows ? h->ids[a->ids[i]] : -1;
}
