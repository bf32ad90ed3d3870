// SPDX-License-Identifier: Apache-2.0
// Joins the parts: vocab.c reads the file, special.c cuts out special tokens, norm.c
// normalises what lies between, split.c (or spm.c) cuts it into pieces, bpe.c encodes each piece.
#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer/rules.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/norm.h"
#include "text/tokenizer/special.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/spm.h"
#include "text/tokenizer/vocab.h"

// Shorter texts gain nothing from remembered pieces.
enum { LONG_TEXT = 2048 };

struct tokenizer {
    enum vocab_kind kind;
    struct vocab vocab;
    struct bpe bpe;
    struct special special;
    struct split *split; // NULL for vocabularies with scores, which have no pre-tokeniser
    bool add_bos, nfc, blank_first;
    // The least that a byte of text adds to the number of tokens: one by the length of the longest
    // token that has this byte, in parts of 1 << WEIGHT.
    uint32_t weight[256];
};
enum { WEIGHT = 20 };

static int read_model(struct tokenizer *t, const struct gguf *g, struct err *e) {
    static const char *const names[] = {
        [VOCAB_BYTE_LEVEL] = "gpt2", [VOCAB_SCORES] = "llama", [VOCAB_ESCAPED] = "gemma4"};
    const char *model;
    size_t n;
    int rc = gguf_get_str(g, "tokenizer.ggml.model", &model, &n, e);
    if (rc)
        return rc;
    if (!model)
        return err_set(e, ERR_FORMAT,
                       "the file has no tokenizer (tokenizer.ggml.model is "
                       "missing); use a file that was converted with one");
    for (int kind = VOCAB_BYTE_LEVEL; kind <= VOCAB_ESCAPED; kind++) {
        t->kind = (enum vocab_kind)kind;
        if (n == strlen(names[kind]) && memcmp(model, names[kind], n) == 0)
            return 0;
    }
    return err_set(e, ERR_UNSUPPORTED,
                   "tokenizer model \"%.*s\" is not known here; use a model with a byte-level "
                   "(\"gpt2\"), SentencePiece (\"llama\") or \"gemma4\" vocabulary",
                   n < 32 ? (int)n : 32, model);
}

// A token, or what merges make on the way to one, may stand for n bytes, these among them. Until
// weigh_bytes() the table holds lengths.
static void note_length(struct tokenizer *t, const char *bytes, size_t n_bytes, size_t n) {
    for (size_t i = 0; i < n_bytes; i++) {
        uint32_t *longest = &t->weight[(unsigned char)bytes[i]];
        *longest = n > *longest ? (uint32_t)n : *longest;
    }
}

static void weigh_bytes(struct tokenizer *t) {
    enum { CHARACTER = 4 }; // bytes of one that no token has, at most
    for (uint32_t i = 0; i < t->vocab.count; i++) {
        const struct vocab_token *k = &t->vocab.tokens[i];
        size_t n = k->n_text > k->n_raw ? k->n_text : k->n_raw;
        note_length(t, k->text, k->n_text, n);
        note_length(t, k->raw, k->n_raw, n);
    }
    for (int i = 0; i < 256; i++)
        t->weight[i] = (1u << WEIGHT) / (t->weight[i] > CHARACTER ? t->weight[i] : CHARACTER);
}

// Tokens that a text has at least, as long as it is not normalised: those of each byte's share.
static size_t least_tokens(const struct tokenizer *t, const char *text, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += t->weight[(unsigned char)text[i]];
    return (size_t)(sum >> WEIGHT);
}

// Whether a text may fit into a list with what it has, by that.
static int check_room(const struct tokenizer *t, const char *text, size_t n,
                      const struct token_list *out, struct err *e) {
    if (!out->max || n <= out->max || out->count + least_tokens(t, text, n) <= out->max)
        return 0;
    return err_set(e, ERR_LIMIT, "the text has more than %zu tokens; shorten it", out->max);
}

// One "left right" line; the left part may itself begin with a space. Parts outside the byte map
// can never be formed from bytes: such a merge is passed over. Escaped texts stand for themselves.
static int add_merge(struct tokenizer *t, uint64_t index, const char *s, size_t n,
                     struct str *buffer, struct err *e) {
    struct bpe *b = &t->bpe;
    const char *space = n > 2 ? memchr(s + 1, ' ', n - 1) : NULL;
    size_t n_left = space ? (size_t)(space - s) : 0;
    if (!space || n_left + 1 == n || !utf8_valid(s, n))
        return err_set(e, ERR_FORMAT,
                       "merge %llu of tokenizer.ggml.merges is not two UTF-8 texts "
                       "with a space between; the file is damaged",
                       (unsigned long long)index);
    if (t->kind == VOCAB_ESCAPED) {
        note_length(t, s, n, n - 1);
        return bpe_add_merge(b, s, n_left, s + n_left + 1, n - n_left - 1, e);
    }
    str_clear(buffer);
    str_append(buffer, s, n);
    if (buffer->failed)
        return err_set(e, ERR_MEMORY,
                       "no memory for the merges of the vocabulary; free some "
                       "memory");
    char *left = buffer->data, *right = left + n_left + 1;
    size_t n_right = n - n_left - 1;
    // Un-mapping in place is safe: it never writes ahead of what it has read.
    bool whole = vocab_unmap(left, n_left, left, &n_left);
    whole = vocab_unmap(right, n_right, right, &n_right) && whole;
    return whole ? bpe_add_merge(b, left, n_left, right, n_right, e) : 0;
}

static int read_merges(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, "tokenizer.ggml.merges");
    if (!kv || kv->kind != GGUF_ARRAY || kv->elem != GGUF_STRING || kv->count >= INT32_MAX)
        return err_set(e, ERR_FORMAT,
                       "tokenizer.ggml.merges is no list of texts; the file needs "
                       "a new conversion with its tokenizer");
    int rc = bpe_init(&t->bpe, t->vocab.count, (uint32_t)kv->count, e);
    for (uint32_t i = 0; i < t->vocab.count && !rc; i++) {
        const struct vocab_token *token = &t->vocab.tokens[i];
        bool escaped = t->kind == VOCAB_ESCAPED;
        if (token->mapped)
            rc = bpe_add_token(&t->bpe, i, escaped ? token->text : token->raw,
                               escaped ? token->n_text : token->n_raw, e);
    }
    struct str buffer = {0};
    const unsigned char *cursor = kv->bytes;
    for (uint64_t i = 0; i < kv->count && !rc; i++) {
        size_t n;
        const char *s = gguf_array_str(&cursor, &n);
        rc = add_merge(t, i, s, n, &buffer, e);
    }
    str_fini(&buffer);
    return rc;
}

static int read_encoder(struct tokenizer *t, const struct gguf *g, struct err *e) {
    int rc = t->kind == VOCAB_SCORES ? spm_build(&t->bpe, &t->vocab, g, e) : read_merges(t, g, e);
    if (rc)
        return rc;
    t->bpe.characters = t->kind != VOCAB_BYTE_LEVEL;
    t->bpe.whole_pieces = t->split && split_rule_of(t->split)->whole_pieces;
    t->bpe.unknown = t->vocab.unknown;
    if (t->kind != VOCAB_BYTE_LEVEL)
        spm_set_bytes(&t->bpe, &t->vocab);
    return bpe_finish(&t->bpe, e);
}

static int read_specials(struct tokenizer *t, struct err *e) {
    for (uint32_t i = 0; i < t->vocab.count; i++) {
        const struct vocab_token *token = &t->vocab.tokens[i];
        bool always = token->type == VOCAB_USER_DEFINED;
        bool control = token->type == VOCAB_CONTROL || token->type == VOCAB_UNKNOWN;
        if (token->n_text == 0 || !(always || control))
            continue;
        int rc = special_add(&t->special, token->text, token->n_text, (int32_t)i, always, e);
        if (rc)
            return rc;
    }
    return special_finish(&t->special, e);
}

static int read_split(struct tokenizer *t, const struct gguf *g, struct err *e) {
    const char *pre = "gemma4";
    size_t n = strlen(pre);
    int rc = t->kind == VOCAB_BYTE_LEVEL ? gguf_get_str(g, "tokenizer.ggml.pre", &pre, &n, e) : 0;
    if (!rc && !pre)
        rc = err_set(e, ERR_FORMAT,
                     "tokenizer.ggml.pre is missing, so the file does not say how "
                     "text is cut; convert the model again");
    if (!rc && t->kind != VOCAB_SCORES)
        rc = split_create(&t->split, pre, n, e);
    return rc;
}

static int read_options(struct tokenizer *t, const struct gguf *g, struct err *e) {
    bool add_bos = t->kind != VOCAB_BYTE_LEVEL;
    int rc = read_split(t, g, e);
    if (!rc && t->kind == VOCAB_BYTE_LEVEL)
        add_bos = split_rule_of(t->split)->add_bos;
    if (!rc)
        rc = gguf_get_bool(g, "tokenizer.ggml.add_bos_token", add_bos, &t->add_bos, e);
    if (!rc)
        rc = gguf_get_bool(g, "tokenizer.ggml.normalizer.nfc", false, &t->nfc, e);
    if (!rc && t->kind == VOCAB_SCORES)
        rc = gguf_get_bool(g, "tokenizer.ggml.add_space_prefix", true, &t->blank_first, e);
    if (t->kind == VOCAB_ESCAPED) // files say otherwise and mean this
        t->add_bos = true;
    return rc;
}

int tokenizer_create(struct tokenizer **out, const struct gguf *g, struct err *e) {
    *out = NULL;
    struct tokenizer *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, ERR_MEMORY, "no memory for the tokenizer; free some memory");
    int rc = read_model(t, g, e);
    if (!rc)
        rc = read_options(t, g, e);
    if (!rc)
        rc = vocab_read(&t->vocab, g, t->kind, e);
    if (!rc)
        rc = read_encoder(t, g, e);
    if (!rc)
        rc = read_specials(t, e);
    if (rc) {
        tokenizer_destroy(t);
        return rc;
    }
    weigh_bytes(t);
    *out = t;
    return 0;
}

void tokenizer_destroy(struct tokenizer *t) {
    if (!t)
        return;
    special_fini(&t->special);
    bpe_fini(&t->bpe);
    vocab_fini(&t->vocab);
    split_destroy(t->split);
    free(t);
}

int tokenizer_size(const struct tokenizer *t) {
    return t ? (int)t->vocab.count : 0;
}

int32_t tokenizer_bos(const struct tokenizer *t) {
    return t ? t->vocab.bos : -1;
}

int32_t tokenizer_eos(const struct tokenizer *t) {
    return t ? t->vocab.eos : -1;
}

bool tokenizer_add_bos(const struct tokenizer *t) {
    return t && t->add_bos && t->vocab.bos >= 0;
}

bool tokenizer_blank_first(const struct tokenizer *t) {
    return t && t->blank_first;
}

static bool in_vocab(const struct tokenizer *t, int32_t id) {
    return t && id >= 0 && (uint32_t)id < t->vocab.count;
}

bool tokenizer_is_eog(const struct tokenizer *t, int32_t id) {
    return in_vocab(t, id) && t->vocab.tokens[id].eog;
}

int32_t tokenizer_find(const struct tokenizer *t, const char *text, size_t n) {
    return vocab_find(&t->vocab, text, n);
}

// Everything one call of tokenizer_encode needs.
struct encode_job {
    const struct tokenizer *tokenizer;
    struct split_job *split;
    struct bpe_work work;
    struct str normal, escaped; // of the fragment
    struct token_list *out;
    unsigned pieces; // so far
};

static int encode_piece(void *arg, const char *piece, size_t n, struct err *e) {
    enum { ASK = 1024 };
    struct encode_job *j = arg;
    if (++j->pieces % ASK == 0 && cancel_requested(j->out->cancel))
        return bpe_cancelled(e);
    return bpe_encode(&j->tokenizer->bpe, &j->work, piece, n, j->out, e);
}

// A line, or line ends, of a text with escaped blanks: line ends that are a token are taken whole.
static int encode_line(void *arg, const char *piece, size_t n, struct err *e) {
    struct encode_job *j = arg;
    const struct bpe *b = &j->tokenizer->bpe;
    int32_t id = *piece == '\n' ? bpe_find(b, piece, n) : -1;
    return id >= 0 ? token_list_push(j->out, id, e) : spm_words(b, piece, n, encode_piece, j, e);
}

static int encode_escaped(struct encode_job *j, const char *text, size_t n, struct err *e) {
    const struct tokenizer *t = j->tokenizer;
    if (n == 0)
        return 0;
    str_clear(&j->escaped);
    spm_escape(&j->escaped, text, n, t->blank_first);
    if (j->escaped.failed)
        return err_set(e, ERR_MEMORY,
                       "no memory to tokenise %zu bytes of text; shorten it or free memory", n);
    if (t->kind == VOCAB_SCORES)
        return spm_words(&t->bpe, j->escaped.data, j->escaped.len, encode_piece, j, e);
    return split_text(j->split, j->escaped.data, j->escaped.len, encode_line, j, e);
}

// Text between special tokens: nothing looks or merges across its ends.
static int encode_fragment(struct encode_job *j, const char *text, size_t n, struct err *e) {
    if (j->tokenizer->nfc && !norm_is_plain(text, n)) {
        str_clear(&j->normal);
        int rc = norm_nfc(&j->normal, text, n, e);
        if (rc)
            return rc;
        text = j->normal.data;
        n = j->normal.len;
        if ((rc = check_room(j->tokenizer, text, n, j->out, e)))
            return rc;
    }
    if (j->tokenizer->kind != VOCAB_BYTE_LEVEL)
        return encode_escaped(j, text, n, e);
    return split_text(j->split, text, n, encode_piece, j, e);
}

static int encode_all(struct encode_job *j, const struct special_hits *hits, const char *text,
                      size_t n, struct err *e) {
    size_t at = 0;
    for (size_t i = 0; i < hits->count; i++) {
        const struct special_hit *hit = &hits->hit[i];
        int rc = encode_fragment(j, text + at, hit->begin - at, e);
        if (!rc)
            rc = token_list_push(j->out, hit->id, e);
        if (rc)
            return rc;
        at = hit->end;
    }
    return encode_fragment(j, text + at, n - at, e);
}

static int check_utf8(const char *text, size_t n, struct err *e) {
    for (size_t at = 0; at < n;) {
        if ((unsigned char)text[at] < 0x80) {
            at++;
            continue;
        }
        uint32_t code;
        int length = utf8_decode(text + at, n - at, &code);
        if (length <= 0)
            return err_set(e, ERR_FORMAT,
                           "the text is not UTF-8 at byte %zu (0x%02X); convert it "
                           "to UTF-8",
                           at, (unsigned char)text[at]);
        at += (size_t)length;
    }
    return 0;
}

// w: NULL where one rule holds for the whole text.
static int encode_stretches(const struct tokenizer *t, const char *text, size_t n, bool special,
                            const struct special_where *w, struct token_list *out, struct err *e) {
    struct encode_job j = {.tokenizer = t, .out = out};
    struct special_hits hits = {0};
    size_t before = out->count;
    int rc = !t->nfc || norm_is_plain(text, n) ? check_room(t, text, n, out, e) : 0;
    if (!rc)
        rc = check_utf8(text, n, e);
    if (!rc)
        rc = w ? special_scan_spans(&t->special, text, n, w, &hits, e)
               : special_scan(&t->special, text, n, special, &hits, e);
    if (!rc && t->split)
        rc = split_begin(&j.split, t->split, e);
    if (n >= LONG_TEXT)
        bpe_work_remember(&j.work, n);
    if (!rc)
        rc = encode_all(&j, &hits, text, n, e);
    if (rc)
        out->count = before;
    split_end(j.split);
    bpe_work_fini(&j.work);
    str_fini(&j.normal);
    str_fini(&j.escaped);
    special_hits_fini(&hits);
    return rc;
}

int tokenizer_encode(const struct tokenizer *t, const char *text, size_t n, bool special,
                     struct token_list *out, struct err *e) {
    return encode_stretches(t, text, n, special, NULL, out, e);
}

int tokenizer_encode_spans(const struct tokenizer *t, const char *text, size_t n,
                           const struct special_where *w, struct token_list *out, struct err *e) {
    return encode_stretches(t, text, n, false, w, out, e);
}

static int compare_ids(const void *a, const void *b) {
    const int32_t *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static bool only_blanks(const char *text, size_t n) {
    size_t i = 0;
    while (i < n && (text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r')))
        i++;
    return i == n;
}

int tokenizer_user_defined(const struct tokenizer *t, const char *text, size_t n,
                           struct token_list *out, struct err *e) {
    struct special_hits hits = {0};
    size_t before = out->count;
    int rc = special_scan(&t->special, text, n, false, &hits, e);
    for (size_t i = 0; i < hits.count && !rc; i++) {
        const struct special_hit *h = &hits.hit[i];
        if (!only_blanks(text + h->begin, h->end - h->begin))
            rc = token_list_push(out, h->id, e);
    }
    special_hits_fini(&hits);
    if (rc)
        out->count = before;
    if (rc || out->count == before)
        return rc;
    int32_t *ids = out->ids + before;
    size_t kept = 0, found = out->count - before;
    qsort(ids, found, sizeof *ids, compare_ids);
    for (size_t i = 0; i < found; i++)
        if (i == 0 || ids[i] != ids[kept - 1])
            ids[kept++] = ids[i];
    out->count = before + kept;
    return 0;
}

void tokenizer_decode(const struct tokenizer *t, int32_t id, bool special, struct str *out) {
    if (!in_vocab(t, id))
        return;
    const struct vocab_token *token = &t->vocab.tokens[id];
    bool hidden = token->type == VOCAB_CONTROL || token->type == VOCAB_UNKNOWN;
    if (token->type == VOCAB_UNUSED || (hidden && !special))
        return;
    str_append(out, token->raw, token->n_raw);
}
