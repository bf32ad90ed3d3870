// SPDX-License-Identifier: Apache-2.0
// Two forms of the same merge loop. Pieces of a few dozen bytes, nearly all of them, keep the
// rank of every adjacent pair in an array and look for the smallest; longer ones use a heap of
// (rank, position) over a linked list, in which an entry that no longer fits is skipped: one is
// fresh when the pair that stands at its position now has its rank.
#include "text/tokenizer/bpe/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "text/tokenizer/bpe/impl.h"

#define SHORT_PIECE 32

static int no_token(unsigned char byte, struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "the vocabulary has no token for byte 0x%02X and names no unknown "
                   "token; remove the character or use a file with a full vocabulary",
                   byte);
}

// A text without a token: byte by byte. Where characters are the units, one that is not wholly
// covered by byte tokens is one unknown token.
static int emit_bytes(const struct bpe *b, const char *bytes, size_t n, struct token_list *out,
                      struct err *e) {
    bool covered = true;
    for (size_t i = 0; i < n; i++)
        covered = covered && b->byte_token[(unsigned char)bytes[i]] >= 0;
    if (!covered && b->characters && b->unknown >= 0)
        return token_list_push(out, b->unknown, e);
    for (size_t i = 0; i < n; i++) {
        int32_t id = b->byte_token[(unsigned char)bytes[i]];
        id = id < 0 ? b->unknown : id;
        int rc = id < 0 ? no_token((unsigned char)bytes[i], e) : token_list_push(out, id, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int emit(const struct bpe *b, uint32_t symbol, const char *bytes, size_t n,
                struct token_list *out, struct err *e) {
    if (symbol < b->n_tokens)
        return token_list_push(out, (int32_t)symbol, e);
    return emit_bytes(b, bytes, n, out, e);
}

// The first symbol of the rest of a piece, and how many bytes it takes.
static uint32_t first_symbol(const struct bpe *b, const char *piece, size_t n, size_t *length) {
    uint32_t code, symbol;
    *length = 1;
    if (b->characters && (unsigned char)*piece >= 0x80) {
        int bytes = utf8_decode(piece, n, &code);
        *length = bytes > 0 ? (size_t)bytes : 1;
        if (bytes == 3 && bpe_first_byte(piece, 3) == 0)
            return b->blank_symbol;
        return map_find(&b->symbols, piece, *length, &symbol) ? symbol : BPE_FOREIGN;
    }
    return b->byte_symbol[(unsigned char)*piece];
}

int bpe_cancelled(struct err *e) {
    return err_set(e, ERR_CANCELLED, "nobody waits for the tokens of the text any more");
}

struct short_piece {
    uint32_t symbol[SHORT_PIECE];
    const struct bpe_slot *pair[SHORT_PIECE]; // with the next symbol
    uint8_t begin[SHORT_PIECE + 1];
    size_t count;
};

static void merge_short(const struct bpe *b, struct short_piece *p) {
    for (;;) {
        size_t best = 0;
        for (size_t i = 1; i + 1 < p->count; i++)
            best = p->pair[i]->rank < p->pair[best]->rank ? i : best;
        if (p->count < 2 || p->pair[best]->rank == BPE_NONE)
            return;
        p->symbol[best] = p->pair[best]->result;
        size_t moved = p->count - best - 2;
        memmove(p->symbol + best + 1, p->symbol + best + 2, moved * sizeof *p->symbol);
        memmove(p->pair + best + 1, p->pair + best + 2, moved * sizeof *p->pair);
        memmove(p->begin + best + 1, p->begin + best + 2, moved + 1);
        p->count--;
        if (best + 1 < p->count)
            p->pair[best] = bpe_pair_slot(b, p->symbol[best], p->symbol[best + 1]);
        if (best > 0)
            p->pair[best - 1] = bpe_pair_slot(b, p->symbol[best - 1], p->symbol[best]);
    }
}

static int encode_short(const struct bpe *b, const char *piece, size_t n, struct token_list *out,
                        struct err *e) {
    struct short_piece p;
    p.count = 0;
    for (size_t at = 0, length; at < n; at += length) {
        p.symbol[p.count] = first_symbol(b, piece + at, n - at, &length);
        p.begin[p.count++] = (uint8_t)at;
    }
    p.begin[p.count] = (uint8_t)n;
    for (size_t i = 0; i + 1 < p.count; i++)
        p.pair[i] = bpe_pair_slot(b, p.symbol[i], p.symbol[i + 1]);
    merge_short(b, &p);
    for (size_t i = 0; i < p.count; i++) {
        size_t length = (size_t)(p.begin[i + 1] - p.begin[i]);
        int rc = emit(b, p.symbol[i], piece + p.begin[i], length, out, e);
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
    const struct gone *gone;
    unsigned steps;
};

// Of the loops over a chain: true when nobody waits for it.
static inline bool chain_left(struct chain *c) {
    enum { ASK = 1 << 16 };
    return ++c->steps % ASK == 0 && gone_check(c->gone);
}

// Queues the pair that begins at node i, if it has a rank.
static bool queue_pair(struct chain *c, uint32_t i) {
    const struct bpe_slot *pair = bpe_pair_slot(c->bpe, c->symbol[i], c->symbol[c->next[i]]);
    if (pair->rank == BPE_NONE)
        return false;
    c->heap[c->n_heap++] = (uint64_t)pair->rank << 32 | i;
    return true;
}

// False: nobody waits for it.
static bool chain_build(struct chain *c, const char *piece, uint32_t n) {
    uint32_t before = BPE_NONE;
    for (uint32_t i = 0; i < n;) {
        size_t length;
        if (chain_left(c))
            return false;
        c->symbol[i] = first_symbol(c->bpe, piece + i, n - i, &length);
        c->prev[i] = before;
        before = i;
        i = c->next[i] = i + (uint32_t)length;
    }
    c->symbol[n] = BPE_END;
    c->prev[n] = before;
    c->next[n] = n;
    c->n_heap = 0;
    for (uint32_t i = 0; i < n; i = c->next[i])
        queue_pair(c, i);
    for (size_t i = c->n_heap / 2; i-- > 0;) {
        if (chain_left(c))
            return false;
        sift_down(c->heap, c->n_heap, i);
    }
    return true;
}

static bool chain_merge(struct chain *c) {
    while (c->n_heap > 0) {
        if (chain_left(c))
            return false;
        uint64_t top = c->heap[0];
        c->heap[0] = c->heap[--c->n_heap];
        if (c->n_heap > 0)
            sift_down(c->heap, c->n_heap, 0);
        uint32_t i = (uint32_t)top, gone = c->next[i];
        if (c->symbol[i] == BPE_NONE)
            continue;
        const struct bpe_slot *pair = bpe_pair_slot(c->bpe, c->symbol[i], c->symbol[gone]);
        if (pair->rank != top >> 32)
            continue;
        c->symbol[i] = pair->result;
        c->symbol[gone] = BPE_NONE;
        c->next[i] = c->next[gone];
        c->prev[c->next[i]] = i;
        if (queue_pair(c, i))
            sift_up(c->heap, c->n_heap - 1);
        if (c->prev[i] != BPE_NONE && queue_pair(c, c->prev[i]))
            sift_up(c->heap, c->n_heap - 1);
    }
    return true;
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
                      .heap = w->heap,
                      .gone = out->gone};
    if (!chain_build(&c, piece, n) || !chain_merge(&c))
        return bpe_cancelled(e);
    for (uint32_t i = 0; i < n && !rc; i = c.next[i])
        rc = emit(b, c.symbol[i], piece + i, c.next[i] - i, out, e);
    return rc;
}

int32_t bpe_find(const struct bpe *b, const char *bytes, size_t n) {
    uint32_t symbol;
    return map_find(&b->symbols, bytes, n, &symbol) && symbol < b->n_tokens ? (int32_t)symbol : -1;
}

static int encode_any(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
                      struct token_list *out, struct err *e) {
    int32_t id = b->whole_pieces ? bpe_find(b, piece, n) : -1;
    if (id >= 0)
        return token_list_push(out, id, e);
    return n <= SHORT_PIECE ? encode_short(b, piece, n, out, e)
                            : encode_long(b, w, piece, (uint32_t)n, out, e);
}

static int encode_remembered(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
                             struct token_list *out, struct err *e) {
    bool known;
    int rc = 0;
    struct bpe_cache_entry *entry = bpe_cache_find(w->cache, piece, n, &known);
    for (int i = 0; known && i < entry->count && !rc; i++)
        rc = token_list_push(out, entry->ids[i], e);
    if (known)
        return rc;
    size_t before = out->count;
    rc = encode_any(b, w, piece, n, out, e);
    size_t count = out->count - before;
    if (rc || count > BPE_CACHED_IDS)
        return rc;
    memcpy(entry->ids, out->ids + before, count * sizeof *entry->ids);
    entry->n = (uint8_t)n;
    entry->count = (uint8_t)count;
    return 0;
}

int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
               struct token_list *out, struct err *e) {
    if (n == 0)
        return 0;
    if (n > INT32_MAX)
        return err_set(e, ERR_LIMIT,
                       "an unbroken stretch of %zu bytes is more than the tokenizer "
                       "takes (2 GiB); break the text up",
                       n);
    if (w->cache && n <= BPE_CACHED)
        return encode_remembered(b, w, piece, n, out, e);
    return encode_any(b, w, piece, n, out, e);
}

void bpe_work_fini(struct bpe_work *w) {
    free(w->nodes);
    free(w->heap);
    free(w->cache);
    *w = (struct bpe_work){0};
}
