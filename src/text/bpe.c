// SPDX-License-Identifier: Apache-2.0
// Two forms of the same merge loop. Pieces of a few dozen bytes, nearly all of them, keep the
// rank of every adjacent pair in an array and look for the smallest; longer ones use a heap of
// (rank, position) over a linked list, in which an entry that no longer fits is skipped.
// Symbols only ever grow, so "both symbols are still those of the merge" proves an entry fresh.
#include "text/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"

#define NONE        UINT32_MAX
#define SHORT_PIECE 32

struct bpe_slot {
    uint32_t left, right, rank; // left NONE: empty
};

static int no_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "no memory for the merges of the vocabulary; free some memory");
}

int bpe_init(struct bpe *b, uint32_t n_tokens, uint32_t max_merges, struct err *e) {
    b->n_tokens = b->n_symbols = n_tokens;
    b->max_merges = max_merges;
    b->unknown = -1;
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
    if (!copy || b->n_symbols == NONE - 1 || map_insert(&b->symbols, copy, n, *symbol) < 0)
        return no_memory(e);
    b->n_symbols++;
    return 0;
}

int bpe_add_merge(struct bpe *b, const char *left, size_t n_left, const char *right, size_t n_right,
                  struct err *e) {
    if (b->n_merges == b->max_merges)
        return err_set(e, ERR_STATE, "more than the announced %u merges", b->max_merges);
    struct bpe_merge *m = &b->merges[b->n_merges];
    char *both = malloc(n_left + n_right);
    if (!both)
        return no_memory(e);
    memcpy(both, left, n_left);
    memcpy(both + n_left, right, n_right);
    int rc = intern(b, left, n_left, &m->left, e);
    if (!rc)
        rc = intern(b, right, n_right, &m->right, e);
    if (!rc)
        rc = intern(b, both, n_left + n_right, &m->result, e);
    free(both);
    b->n_merges += rc == 0;
    return rc;
}

static size_t slot_of(const struct bpe *b, uint32_t left, uint32_t right) {
    return (size_t)rng_mix(((uint64_t)left << 32 | right) ^ b->seed) & b->slot_mask;
}

// The rank of a pair, or NONE.
static uint32_t rank_of(const struct bpe *b, uint32_t left, uint32_t right) {
    for (size_t i = slot_of(b, left, right);; i = (i + 1) & b->slot_mask) {
        const struct bpe_slot *s = &b->slots[i];
        if (s->left == left && s->right == right)
            return s->rank;
        if (s->left == NONE)
            return NONE;
    }
}

int bpe_finish(struct bpe *b, struct err *e) {
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        int rc = intern(b, &byte, 1, &b->byte_symbol[i], e);
        if (rc)
            return rc;
    }
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
    for (uint32_t rank = 0; rank < b->n_merges; rank++) {
        const struct bpe_merge *m = &b->merges[rank];
        size_t i = slot_of(b, m->left, m->right);
        while (b->slots[i].left != NONE &&
               (b->slots[i].left != m->left || b->slots[i].right != m->right))
            i = (i + 1) & b->slot_mask;
        if (b->slots[i].left == NONE)
            b->slots[i] = (struct bpe_slot){m->left, m->right, rank};
    }
    return 0;
}

static int emit(const struct bpe *b, uint32_t symbol, const char *bytes, size_t n,
                struct token_list *out, struct err *e) {
    if (symbol < b->n_tokens)
        return token_list_push(out, (int32_t)symbol, e);
    for (size_t i = 0; i < n; i++) {
        uint32_t byte = b->byte_symbol[(unsigned char)bytes[i]];
        int32_t id = byte < b->n_tokens ? (int32_t)byte : b->unknown;
        if (id < 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "the vocabulary has no token for byte 0x%02X and names no unknown "
                           "token; remove the character or use a file with a full vocabulary",
                           (unsigned char)bytes[i]);
        int rc = token_list_push(out, id, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int encode_short(const struct bpe *b, const char *piece, size_t n, struct token_list *out,
                        struct err *e) {
    uint32_t symbol[SHORT_PIECE], rank[SHORT_PIECE];
    uint8_t begin[SHORT_PIECE + 1];
    for (size_t i = 0; i < n; i++) {
        symbol[i] = b->byte_symbol[(unsigned char)piece[i]];
        begin[i] = (uint8_t)i;
    }
    begin[n] = (uint8_t)n;
    for (size_t i = 0; i + 1 < n; i++)
        rank[i] = rank_of(b, symbol[i], symbol[i + 1]);
    rank[n - 1] = NONE;

    size_t count = n;
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < count; i++)
            best = rank[i] < rank[best] ? i : best;
        if (rank[best] == NONE)
            break;
        symbol[best] = b->merges[rank[best]].result;
        size_t moved = count - best - 2;
        memmove(symbol + best + 1, symbol + best + 2, moved * sizeof *symbol);
        memmove(rank + best + 1, rank + best + 2, moved * sizeof *rank);
        memmove(begin + best + 1, begin + best + 2, moved + 1);
        count--;
        rank[best] = best + 1 < count ? rank_of(b, symbol[best], symbol[best + 1]) : NONE;
        if (best > 0)
            rank[best - 1] = rank_of(b, symbol[best - 1], symbol[best]);
    }
    for (size_t i = 0; i < count; i++) {
        int rc = emit(b, symbol[i], piece + begin[i], (size_t)(begin[i + 1] - begin[i]), out, e);
        if (rc)
            return rc;
    }
    return 0;
}

static void sift_down(uint64_t *heap, size_t n, size_t i) {
    uint64_t moving = heap[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && heap[child + 1] < heap[child])
            child++;
        if (moving <= heap[child])
            break;
        heap[i] = heap[child];
    }
    heap[i] = moving;
}

static void sift_up(uint64_t *heap, size_t i) {
    uint64_t moving = heap[i];
    for (; i > 0 && moving < heap[(i - 1) / 2]; i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = moving;
}

// The linked list of symbols over one long piece. Node i begins at byte i and ends where the
// next one begins; node n is the end.
struct chain {
    const struct bpe *bpe;
    uint32_t *symbol, *prev, *next; // [n + 1]
    uint64_t *heap;                 // rank << 32 | node
    size_t n_heap;
};

// Queues the pair that begins at node i, if it has a rank.
static bool queue_pair(struct chain *c, uint32_t i) {
    uint32_t rank = rank_of(c->bpe, c->symbol[i], c->symbol[c->next[i]]);
    if (rank == NONE)
        return false;
    c->heap[c->n_heap++] = (uint64_t)rank << 32 | i;
    return true;
}

// The end node's symbol is NONE - 1, which no merge has; a dead node's is NONE.
static void chain_build(struct chain *c, const char *piece, uint32_t n) {
    for (uint32_t i = 0; i < n; i++) {
        c->symbol[i] = c->bpe->byte_symbol[(unsigned char)piece[i]];
        c->prev[i] = i - 1; // NONE for the first
        c->next[i] = i + 1;
    }
    c->symbol[n] = NONE - 1;
    c->prev[n] = n - 1;
    c->next[n] = n;
    c->n_heap = 0;
    for (uint32_t i = 0; i < n; i++)
        queue_pair(c, i);
    for (size_t i = c->n_heap / 2; i-- > 0;)
        sift_down(c->heap, c->n_heap, i);
}

static void chain_merge(struct chain *c) {
    while (c->n_heap > 0) {
        uint64_t top = c->heap[0];
        c->heap[0] = c->heap[--c->n_heap];
        if (c->n_heap > 0)
            sift_down(c->heap, c->n_heap, 0);
        const struct bpe_merge *m = &c->bpe->merges[top >> 32];
        uint32_t i = (uint32_t)top, gone = c->next[i];
        if (c->symbol[i] != m->left || c->symbol[gone] != m->right)
            continue;
        c->symbol[i] = m->result;
        c->symbol[gone] = NONE;
        c->next[i] = c->next[gone];
        c->prev[c->next[i]] = i;
        if (queue_pair(c, i))
            sift_up(c->heap, c->n_heap - 1);
        if (c->prev[i] != NONE && queue_pair(c, c->prev[i]))
            sift_up(c->heap, c->n_heap - 1);
    }
}

// Room for n bytes. Every merge takes one entry off the heap and puts at most two on it, and
// there are fewer than n merges: 2n entries are enough.
static int work_reserve(struct bpe_work *w, size_t n, struct err *e) {
    if (w->nodes_cap >= n + 1)
        return 0;
    size_t cap = n + n / 4 + 1;
    free(w->nodes);
    free(w->heap);
    w->nodes = malloc(3 * cap * sizeof *w->nodes);
    w->heap = malloc(2 * cap * sizeof *w->heap);
    w->nodes_cap = w->nodes && w->heap ? cap : 0;
    if (!w->nodes_cap)
        return err_set(e, ERR_MEMORY,
                       "no memory to tokenise an unbroken stretch of %zu bytes; "
                       "break the text up or free memory",
                       n);
    return 0;
}

static int encode_long(const struct bpe *b, struct bpe_work *w, const char *piece, uint32_t n,
                       struct token_list *out, struct err *e) {
    int rc = work_reserve(w, n, e);
    if (rc)
        return rc;
    struct chain c = {.bpe = b,
                      .symbol = w->nodes,
                      .prev = w->nodes + w->nodes_cap,
                      .next = w->nodes + 2 * w->nodes_cap,
                      .heap = w->heap};
    chain_build(&c, piece, n);
    chain_merge(&c);
    for (uint32_t i = 0; i < n && !rc; i = c.next[i])
        rc = emit(b, c.symbol[i], piece + i, c.next[i] - i, out, e);
    return rc;
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
               struct token_list *out, struct err *e) {
    uint32_t symbol;
    if (n == 0)
        return 0;
    if (n > INT32_MAX)
        return err_set(e, ERR_LIMIT,
                       "an unbroken stretch of %zu bytes is more than the tokenizer "
                       "takes (2 GiB); break the text up",
                       n);
    if (b->whole_pieces && map_find(&b->symbols, piece, n, &symbol) && symbol < b->n_tokens)
        return token_list_push(out, (int32_t)symbol, e);
    if (n <= SHORT_PIECE)
        return encode_short(b, piece, n, out, e);
    return encode_long(b, w, piece, (uint32_t)n, out, e);
}

void bpe_work_fini(struct bpe_work *w) {
    free(w->nodes);
    free(w->heap);
    *w = (struct bpe_work){0};
}

void bpe_fini(struct bpe *b) {
    arena_fini(&b->arena);
    map_fini(&b->symbols);
    free(b->merges);
    free(b->slots);
    *b = (struct bpe){0};
}
