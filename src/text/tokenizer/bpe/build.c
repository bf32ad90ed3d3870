// SPDX-License-Identifier: Apache-2.0
// The set-up of an encoder: texts become symbols, merges a hash table over pairs of symbols.
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "text/tokenizer/bpe/impl.h"

struct bpe_merge {
    uint32_t left, right, result, rank;
};

static int no_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "no memory for the merges of the vocabulary; free some memory");
}

int bpe_init(struct bpe *b, uint32_t n_tokens, uint32_t max_merges, struct err *e) {
    b->n_tokens = b->n_symbols = n_tokens;
    b->max_merges = max_merges;
    b->unknown = -1;
    for (int i = 0; i < 256; i++)
        b->byte_token[i] = -1;
    b->merges = calloc((size_t)max_merges + 1, sizeof *b->merges);
    return b->merges ? 0 : no_memory(e);
}

int bpe_add_token(struct bpe *b, uint32_t id, const char *bytes, size_t n, struct err *e) {
    return map_insert(&b->symbols, bytes, n, id) < 0 ? no_memory(e) : 0;
}

// The symbol of a text, made when it is new.
static int intern(struct bpe *b, const char *bytes, size_t n, uint32_t *symbol, struct err *e) {
    if (map_find(&b->symbols, bytes, n, symbol))
        return 0;
    char *copy = arena_strndup(&b->arena, bytes, n);
    *symbol = b->n_symbols;
    if (!copy || b->n_symbols == BPE_SYMBOLS || map_insert(&b->symbols, copy, n, *symbol) < 0)
        return no_memory(e);
    b->n_symbols++;
    return 0;
}

int bpe_add_ranked(struct bpe *b, const struct bpe_pair *p, uint32_t rank, struct err *e) {
    if (b->n_merges == b->max_merges)
        return err_set(e, ERR_STATE, "more than the announced %u merges", b->max_merges);
    struct bpe_merge *m = &b->merges[b->n_merges];
    char *both = malloc(p->n_left + p->n_right);
    if (!both)
        return no_memory(e);
    memcpy(both, p->left, p->n_left);
    memcpy(both + p->n_left, p->right, p->n_right);
    m->rank = rank;
    int rc = intern(b, p->left, p->n_left, &m->left, e);
    if (!rc)
        rc = intern(b, p->right, p->n_right, &m->right, e);
    if (!rc)
        rc = intern(b, both, p->n_left + p->n_right, &m->result, e);
    free(both);
    unsigned first = bpe_first_byte(p->right, p->n_right);
    b->joins[(unsigned char)p->left[p->n_left - 1]][first / 64] |= (uint64_t)1 << first % 64;
    b->n_merges += rc == 0;
    return rc;
}

int bpe_add_merge(struct bpe *b, const char *left, size_t n_left, const char *right, size_t n_right,
                  struct err *e) {
    struct bpe_pair p = {left, right, n_left, n_right};
    return bpe_add_ranked(b, &p, b->n_merges, e);
}

static int add_bytes(struct bpe *b, struct err *e) {
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        int rc = intern(b, &byte, 1, &b->byte_symbol[i], e);
        if (rc)
            return rc;
        if (b->byte_token[i] < 0 && b->byte_symbol[i] < b->n_tokens)
            b->byte_token[i] = (int32_t)b->byte_symbol[i];
    }
    return 0;
}

int bpe_finish(struct bpe *b, struct err *e) {
    int rc = add_bytes(b, e);
    if (!rc && b->characters)
        rc = intern(b, BPE_BLANK, 3, &b->blank_symbol, e);
    if (rc)
        return rc;
    size_t cap = 16;
    while (cap < 2 * (size_t)b->n_merges)
        cap *= 2;
    b->slots = malloc(cap * sizeof *b->slots);
    if (!b->slots)
        return no_memory(e);
    memset(b->slots, 0xFF, cap * sizeof *b->slots);
    b->slot_mask = cap - 1;
    // Seeded with the merges themselves: a file cannot easily be made to collide.
    b->seed = hash_bytes(b->merges, b->n_merges * sizeof *b->merges, 0);
    for (uint32_t i = 0; i < b->n_merges; i++) {
        const struct bpe_merge *m = &b->merges[i];
        size_t k = bpe_slot_of(b, m->left, m->right);
        while (b->slots[k].left != BPE_NONE &&
               (b->slots[k].left != m->left || b->slots[k].right != m->right))
            k = (k + 1) & b->slot_mask;
        if (b->slots[k].left == BPE_NONE)
            b->slots[k] = (struct bpe_slot){m->left, m->right, m->rank, m->result};
    }
    free(b->merges);
    b->merges = NULL;
    return 0;
}

void bpe_fini(struct bpe *b) {
    arena_fini(&b->arena);
    map_fini(&b->symbols);
    free(b->merges);
    free(b->slots);
    *b = (struct bpe){0};
}
