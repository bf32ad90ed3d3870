// SPDX-License-Identifier: Apache-2.0
// Builds the trie of a vocabulary: token numbers sorted by their bytes, then one pass that closes
// and opens nodes where neighbours differ. See vocab.h.
#include "grammar/masks/vocab.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/utf8.h"

// Code points of a plain token; 0: not plain.
static int plain_chars(const char *s, size_t n) {
    int chars = 0;
    for (size_t i = 0; i < n;) {
        uint32_t code;
        int len = utf8_decode(s + i, n - i, &code);
        if (len <= 0 || code < 0x20 || code == '"' || code == '\\')
            return 0;
        i += (size_t)len;
        chars++;
    }
    return chars <= PLAIN_CHARS ? chars : 0;
}

// The bytes of all tokens, one after another; those that are too long have none.
static int read_tokens(struct grammar_vocab *v, const struct grammar_tokens *tokens,
                       struct err *e) {
    struct str all = {0};
    for (int32_t id = 0; id < v->size; id++) {
        v->offset[id] = (uint32_t)all.len;
        if (tokens->ends(tokens->arg, id)) {
            v->ends[v->end_count++] = id;
            continue;
        }
        tokens->bytes(tokens->arg, id, &all);
        if (all.failed || all.len > UINT32_MAX / 2)
            break;
        if (all.len - v->offset[id] > GRAMMAR_TOKEN_BYTES)
            all.len = v->offset[id];
    }
    v->offset[v->size] = (uint32_t)all.len;
    v->data = all.data;
    if (all.failed || all.len > UINT32_MAX / 2)
        return err_set(e, ERR_MEMORY, "no memory for the texts of a vocabulary");
    return 0;
}

// ---- sorting: by bytes, then by number, on a key of the first eight bytes

struct entry {
    uint64_t key;
    const char *bytes;
    uint32_t len;
    int32_t id;
};

static int by_bytes(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    size_t min = min_size(x->len, y->len);
    int order = min ? memcmp(x->bytes, y->bytes, min) : 0;
    if (order)
        return order;
    if (x->len != y->len)
        return x->len < y->len ? -1 : 1;
    return (x->id > y->id) - (x->id < y->id);
}

static uint64_t first_bytes(const char *s, size_t n) {
    uint64_t key = 0;
    for (size_t i = 0; i < 8; i++)
        key = key << 8 | (i < n ? (uint8_t)s[i] : 0);
    return key;
}

static uint32_t shared_bytes(const struct entry *a, const struct entry *b) {
    uint32_t n = 0;
    while (n < a->len && n < b->len && a->bytes[n] == b->bytes[n])
        n++;
    return n;
}

// Takes into account, in the nodes on a token's way, what of it lies below them.
static void note_token(struct grammar_vocab *v, const uint32_t *way, const struct entry *x) {
    bool other = plain_chars(x->bytes, x->len) == 0;
    v->next_other[way[x->len - 1]] |= other;
    for (uint32_t depth = 1; depth < x->len; depth++) {
        struct trie_node *n = &v->nodes[way[depth - 1]];
        int chars = plain_chars(x->bytes + depth, x->len - depth);
        v->next_other[way[depth - 1]] |= other;
        if (chars == 0)
            n->plain = 0;
        else if (n->plain && n->plain < chars + 1)
            n->plain = (uint8_t)(chars + 1);
    }
}

static void add_trie_node(struct grammar_vocab *v, uint32_t *way, uint32_t depth,
                          const struct entry *x, uint32_t rank) {
    for (; depth < x->len; depth++) {
        way[depth] = v->count;
        v->nodes[v->count++] = (struct trie_node){.token = -1,
                                                  .rank = rank,
                                                  .byte = (uint8_t)x->bytes[depth],
                                                  .depth = (uint8_t)(depth + 1),
                                                  .plain = 1};
    }
    v->nodes[v->count - 1].token = x->id;
}

// The nodes that sorted entries need, and one.
static int alloc_trie(struct grammar_vocab *v, const struct entry *list, uint32_t n,
                      struct err *e) {
    uint64_t max = 1;
    for (uint32_t i = 0; i < n; i++)
        max += list[i].len - (i ? shared_bytes(&list[i - 1], &list[i]) : 0);
    v->nodes = max < UINT32_MAX ? calloc(max, sizeof *v->nodes) : NULL;
    v->next_other = v->nodes ? calloc(max, sizeof *v->next_other) : NULL;
    v->tokens = calloc((size_t)n + 1, sizeof *v->tokens);
    if (!v->next_other || !v->tokens)
        return err_set(e, ERR_MEMORY, "no memory for the trie of a vocabulary");
    return 0;
}

static int make_trie(struct grammar_vocab *v, const struct entry *list, uint32_t n, struct err *e) {
    uint32_t way[GRAMMAR_TOKEN_BYTES + 1], depth = 0;
    int rc = alloc_trie(v, list, n, e);
    for (uint32_t i = 0; !rc && i < n; i++) {
        uint32_t keep = i ? shared_bytes(&list[i - 1], &list[i]) : 0;
        v->tokens[i] = list[i].id;
        while (depth > keep)
            v->nodes[way[--depth]].end = v->count;
        if (depth == list[i].len) { // the bytes of the one before
            struct trie_node *twin = &v->nodes[way[depth - 1]];
            v->same[list[i].id] = twin->token;
            twin->token = list[i].id;
            twin->twins = true;
            continue;
        }
        add_trie_node(v, way, depth, &list[i], i);
        depth = list[i].len;
        note_token(v, way, &list[i]);
    }
    if (rc)
        return rc;
    while (depth)
        v->nodes[way[--depth]].end = v->count;
    v->nodes[v->count].rank = n;
    v->next_other[v->count] = v->count;
    for (uint32_t i = v->count; i-- > 0;)
        v->next_other[i] = v->next_other[i] ? i : v->next_other[i + 1];
    return 0;
}

static int sort_tokens(struct grammar_vocab *v, struct entry *list, struct err *e) {
    uint32_t n = 0;
    for (int32_t id = 0; id < v->size; id++) {
        const char *s;
        size_t len = vocab_bytes(v, id, &s);
        v->same[id] = -1;
        if (!len)
            continue;
        list[n++] = (struct entry){first_bytes(s, len), s, (uint32_t)len, id};
        int chars = plain_chars(s, len);
        for (int k = chars; chars && k <= PLAIN_CHARS; k++)
            v->plain[(size_t)k * (size_t)v->words + (size_t)id / 32] |= 1u << (id % 32);
    }
    qsort(list, n, sizeof *list, by_bytes);
    return make_trie(v, list, n, e);
}

int grammar_vocab_create(struct grammar_vocab **out, const struct grammar_tokens *tokens,
                         struct err *e) {
    struct grammar_vocab *v = calloc(1, sizeof *v);
    size_t n = (size_t)max_i32(tokens->size, 0);
    *out = NULL;
    if (!v)
        return err_set(e, ERR_MEMORY, "no memory for a vocabulary");
    v->size = (int32_t)n;
    v->words = (int32_t)((n + 31) / 32);
    v->same = calloc(n + 1, sizeof *v->same);
    v->ends = calloc(n + 1, sizeof *v->ends);
    v->offset = calloc(n + 1, sizeof *v->offset);
    v->plain = calloc((PLAIN_CHARS + 1) * (size_t)v->words + 1, sizeof *v->plain);
    struct entry *list = calloc(n + 1, sizeof *list);
    int rc = 0;
    if (!v->same || !v->ends || !v->offset || !v->plain || !list)
        rc = err_set(e, ERR_MEMORY, "no memory for a vocabulary");
    rc = rc ? rc : read_tokens(v, tokens, e);
    rc = rc ? rc : sort_tokens(v, list, e);
    free(list);
    if (rc)
        grammar_vocab_destroy(v);
    else
        *out = v;
    return rc;
}

void grammar_vocab_destroy(struct grammar_vocab *v) {
    if (!v)
        return;
    free(v->nodes);
    free(v->next_other);
    free(v->tokens);
    free(v->same);
    free(v->plain);
    free(v->ends);
    free(v->data);
    free(v->offset);
    free(v);
}

int32_t grammar_vocab_size(const struct grammar_vocab *v) {
    return v->size;
}

bool vocab_ends(const struct grammar_vocab *v, int32_t id) {
    for (int32_t i = 0; i < v->end_count; i++)
        if (v->ends[i] == id)
            return true;
    return false;
}

static void tokenizer_bytes(void *arg, int32_t id, struct str *append) {
    tokenizer_decode(arg, id, false, append);
}

static bool tokenizer_ends(void *arg, int32_t id) {
    return tokenizer_is_eog(arg, id);
}

int grammar_vocab_of(struct grammar_vocab **out, const struct tokenizer *t, struct err *e) {
    struct grammar_tokens tokens = {.size = tokenizer_size(t),
                                    .bytes = tokenizer_bytes,
                                    .ends = tokenizer_ends,
                                    .arg = (void *)t};
    return grammar_vocab_create(out, &tokens, e);
}
