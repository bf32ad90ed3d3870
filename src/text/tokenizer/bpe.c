// SPDX-License-Identifier: Apache-2.0
// See bpe.h. Two forms of the same merge loop: pieces of a few dozen bytes, nearly all of them,
// keep the rank of every adjacent pair in an array and look for the smallest; longer ones use a
// heap of (rank, position) over a linked list, in which an entry that no longer fits is skipped:
// one is fresh when the pair that stands at its position now has its rank.
#include "text/tokenizer/bpe.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/rng.h"
#include "base/utf8.h"

// Symbols that no merge has.
#define NO_SYMBOL      UINT32_MAX       // gone
#define END_SYMBOL     (UINT32_MAX - 1) // after the piece
#define FOREIGN_SYMBOL (UINT32_MAX - 2) // a character that occurs in no token and no merge
#define MAX_SYMBOLS    (UINT32_MAX - 3) // the others are below this

struct bpe_slot {
    uint32_t left, right, rank, result; // left NO_SYMBOL: empty
};

static inline size_t slot_of(const struct bpe *b, uint32_t left, uint32_t right) {
    return (size_t)rng_mix(((uint64_t)left << 32 | right) ^ b->seed) & b->slot_mask;
}

// The slot of a pair, or an empty one (rank NO_SYMBOL).
static inline const struct bpe_slot *find_pair(const struct bpe *b, uint32_t left, uint32_t right) {
    for (size_t i = slot_of(b, left, right);; i = (i + 1) & b->slot_mask) {
        const struct bpe_slot *s = &b->slots[i];
        if ((s->left == left && s->right == right) || s->left == NO_SYMBOL)
            return s;
    }
}

// A piece of at most CACHED_BYTES bytes, as words that tell all such pieces of one length apart.
enum { CACHED_BYTES = 16, CACHED_IDS = 3 };

struct bpe_cache_entry {
    uint64_t word[2];
    uint8_t n, count; // n 0: empty
    int32_t ids[CACHED_IDS];
};

// The set-up: texts become symbols, merges a hash table over pairs of symbols.

struct bpe_merge {
    uint32_t left, right, result, rank;
};

static int no_merge_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "no memory for the merges of the vocabulary; free some memory");
}

int bpe_init(struct bpe *b, uint32_t n_tokens, uint32_t max_merges, struct err *e) {
    b->n_tokens = b->n_symbols = n_tokens;
    b->max_merges = max_merges;
    b->unknown = -1;
    for (int i = 0; i < 256; i++)
        b->byte_token[i] = -1;
    b->merges = calloc((size_t)max_merges + 1, sizeof *b->merges);
    return b->merges ? 0 : no_merge_memory(e);
}

int bpe_add_token(struct bpe *b, uint32_t id, const char *bytes, size_t n, struct err *e) {
    return map_insert(&b->symbols, bytes, n, id) < 0 ? no_merge_memory(e) : 0;
}

// The symbol of a text, made when it is new.
static int intern_symbol(struct bpe *b, const char *bytes, size_t n, uint32_t *symbol,
                         struct err *e) {
    if (map_find(&b->symbols, bytes, n, symbol))
        return 0;
    char *copy = arena_strndup(&b->arena, bytes, n);
    *symbol = b->n_symbols;
    if (!copy || b->n_symbols == MAX_SYMBOLS || map_insert(&b->symbols, copy, n, *symbol) < 0)
        return no_merge_memory(e);
    b->n_symbols++;
    return 0;
}

int bpe_add_ranked(struct bpe *b, const struct bpe_pair *p, uint32_t rank, struct err *e) {
    if (b->n_merges == b->max_merges)
        return err_set(e, ERR_STATE, "more than the announced %u merges", b->max_merges);
    struct bpe_merge *m = &b->merges[b->n_merges];
    char *both = malloc(p->n_left + p->n_right);
    if (!both)
        return no_merge_memory(e);
    memcpy(both, p->left, p->n_left);
    memcpy(both + p->n_left, p->right, p->n_right);
    m->rank = rank;
    int rc = intern_symbol(b, p->left, p->n_left, &m->left, e);
    if (!rc)
        rc = intern_symbol(b, p->right, p->n_right, &m->right, e);
    if (!rc)
        rc = intern_symbol(b, both, p->n_left + p->n_right, &m->result, e);
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

static int add_byte_symbols(struct bpe *b, struct err *e) {
    for (int i = 0; i < 256; i++) {
        char byte = (char)i;
        int rc = intern_symbol(b, &byte, 1, &b->byte_symbol[i], e);
        if (rc)
            return rc;
        if (b->byte_token[i] < 0 && b->byte_symbol[i] < b->n_tokens)
            b->byte_token[i] = (int32_t)b->byte_symbol[i];
    }
    return 0;
}

int bpe_finish(struct bpe *b, struct err *e) {
    int rc = add_byte_symbols(b, e);
    if (!rc && b->characters)
        rc = intern_symbol(b, BPE_BLANK, 3, &b->blank_symbol, e);
    if (rc)
        return rc;
    size_t cap = 16;
    while (cap < 2 * (size_t)b->n_merges)
        cap *= 2;
    b->slots = malloc(cap * sizeof *b->slots);
    if (!b->slots)
        return no_merge_memory(e);
    memset(b->slots, 0xFF, cap * sizeof *b->slots);
    b->slot_mask = cap - 1;
    // Seeded with the merges themselves: a file cannot easily be made to collide.
    b->seed = hash_bytes(b->merges, b->n_merges * sizeof *b->merges, 0);
    for (uint32_t i = 0; i < b->n_merges; i++) {
        const struct bpe_merge *m = &b->merges[i];
        size_t k = slot_of(b, m->left, m->right);
        while (b->slots[k].left != NO_SYMBOL &&
               (b->slots[k].left != m->left || b->slots[k].right != m->right))
            k = (k + 1) & b->slot_mask;
        if (b->slots[k].left == NO_SYMBOL)
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

// Short pieces and their ids: text repeats its words, and a remembered word costs a tenth of its
// merges. Two entries per hash value, side by side in a cache line; a newer piece moves the older
// one into the second and out.

enum { MIN_ENTRIES = 512, MAX_ENTRIES = 32768, BYTES_AN_ENTRY = 8 };

struct bpe_cache {
    size_t mask;
    struct bpe_cache_entry *entry; // [mask + 2], of pairs
    unsigned char memory[];
};

void bpe_work_remember(struct bpe_work *w, size_t n) {
    size_t entries = MIN_ENTRIES;
    while (entries < MAX_ENTRIES && entries * BYTES_AN_ENTRY < n)
        entries *= 2;
    if (w->cache)
        return;
    w->cache = calloc(1, sizeof *w->cache + (entries + 2) * sizeof *w->cache->entry);
    if (!w->cache)
        return;
    // Pairs begin at a cache line.
    w->cache->mask = entries - 2;
    uintptr_t skip = -(uintptr_t)w->cache->memory % (2 * sizeof *w->cache->entry);
    w->cache->entry = (struct bpe_cache_entry *)(void *)(w->cache->memory + skip);
}

static uint64_t load8(const char *p) {
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static uint64_t load4(const char *p) {
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

// Overlapping loads: together with n they hold every byte of the piece.
static void load_words(const char *p, size_t n, uint64_t word[2]) {
    word[1] = 0;
    if (n >= 8) {
        word[0] = load8(p);
        word[1] = load8(p + n - 8);
    } else if (n >= 4) {
        word[0] = load4(p) | load4(p + n - 4) << 32;
    } else {
        word[0] = (uint64_t)(unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 |
                  (uint64_t)(unsigned char)p[n - 1] << 16;
    }
}

static bool entry_holds(const struct bpe_cache_entry *e, const uint64_t word[2], size_t n) {
    return e->n == n && e->word[0] == word[0] && e->word[1] == word[1];
}

// The entry that a piece of 1 to CACHED_BYTES bytes has or would have. *known: it holds the piece's
// ids; otherwise the entry is empty but for the piece's words, and the caller may set n, count and
// ids.
static struct bpe_cache_entry *find_entry(struct bpe_cache *c, const char *piece, size_t n,
                                          bool *known) {
    uint64_t word[2];
    load_words(piece, n, word);
    uint64_t h = (word[0] ^ (word[1] + n) * 0x9E3779B97F4A7C15u) * 0xC2B2AE3D27D4EB4Fu;
    struct bpe_cache_entry *e = &c->entry[(h ^ h >> 29) & c->mask];
    *known = true;
    if (entry_holds(e, word, n))
        return e;
    if (entry_holds(e + 1, word, n))
        return e + 1;
    *known = false;
    e[1] = e[0];
    memcpy(e->word, word, sizeof word);
    e->n = 0;
    return e;
}

// Merging.

#define SHORT_PIECE 32

static int no_token(unsigned char byte, struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "the vocabulary has no token for byte 0x%02X and names no unknown "
                   "token; remove the character or use a file with a full vocabulary",
                   byte);
}

// A text without a token: byte by byte. Where characters are the units, one that is not wholly
// covered by byte tokens is one unknown token.
static int push_bytes(const struct bpe *b, const char *bytes, size_t n, struct token_list *out,
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

static int push_symbol(const struct bpe *b, uint32_t symbol, const char *bytes, size_t n,
                       struct token_list *out, struct err *e) {
    if (symbol < b->n_tokens)
        return token_list_push(out, (int32_t)symbol, e);
    return push_bytes(b, bytes, n, out, e);
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
        return map_find(&b->symbols, piece, *length, &symbol) ? symbol : FOREIGN_SYMBOL;
    }
    return b->byte_symbol[(unsigned char)*piece];
}

int bpe_cancelled(struct err *e) {
    return err_set(e, ERR_CANCELLED, "the tokens of the text are not needed any more");
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
        if (p->count < 2 || p->pair[best]->rank == NO_SYMBOL)
            return;
        p->symbol[best] = p->pair[best]->result;
        size_t moved = p->count - best - 2;
        memmove(p->symbol + best + 1, p->symbol + best + 2, moved * sizeof *p->symbol);
        memmove(p->pair + best + 1, p->pair + best + 2, moved * sizeof *p->pair);
        memmove(p->begin + best + 1, p->begin + best + 2, moved + 1);
        p->count--;
        if (best + 1 < p->count)
            p->pair[best] = find_pair(b, p->symbol[best], p->symbol[best + 1]);
        if (best > 0)
            p->pair[best - 1] = find_pair(b, p->symbol[best - 1], p->symbol[best]);
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
        p.pair[i] = find_pair(b, p.symbol[i], p.symbol[i + 1]);
    merge_short(b, &p);
    for (size_t i = 0; i < p.count; i++) {
        size_t length = (size_t)(p.begin[i + 1] - p.begin[i]);
        int rc = push_symbol(b, p.symbol[i], piece + p.begin[i], length, out, e);
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
    const struct cancel_check *cancel;
    unsigned steps;
};

// Of the loops over a chain: true when it is not needed any more.
static inline bool chain_left(struct chain *c) {
    enum { ASK = 1 << 16 };
    return ++c->steps % ASK == 0 && cancel_requested(c->cancel);
}

// Queues the pair that begins at node i, if it has a rank.
static bool queue_pair(struct chain *c, uint32_t i) {
    const struct bpe_slot *pair = find_pair(c->bpe, c->symbol[i], c->symbol[c->next[i]]);
    if (pair->rank == NO_SYMBOL)
        return false;
    c->heap[c->n_heap++] = (uint64_t)pair->rank << 32 | i;
    return true;
}

// False: it is not needed any more.
static bool chain_build(struct chain *c, const char *piece, uint32_t n) {
    uint32_t before = NO_SYMBOL;
    for (uint32_t i = 0; i < n;) {
        size_t length;
        if (chain_left(c))
            return false;
        c->symbol[i] = first_symbol(c->bpe, piece + i, n - i, &length);
        c->prev[i] = before;
        before = i;
        i = c->next[i] = i + (uint32_t)length;
    }
    c->symbol[n] = END_SYMBOL;
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
        if (c->symbol[i] == NO_SYMBOL)
            continue;
        const struct bpe_slot *pair = find_pair(c->bpe, c->symbol[i], c->symbol[gone]);
        if (pair->rank != top >> 32)
            continue;
        c->symbol[i] = pair->result;
        c->symbol[gone] = NO_SYMBOL;
        c->next[i] = c->next[gone];
        c->prev[c->next[i]] = i;
        if (queue_pair(c, i))
            sift_up(c->heap, c->n_heap - 1);
        if (c->prev[i] != NO_SYMBOL && queue_pair(c, c->prev[i]))
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
                      .cancel = out->cancel};
    if (!chain_build(&c, piece, n) || !chain_merge(&c))
        return bpe_cancelled(e);
    for (uint32_t i = 0; i < n && !rc; i = c.next[i])
        rc = push_symbol(b, c.symbol[i], piece + i, c.next[i] - i, out, e);
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
    struct bpe_cache_entry *entry = find_entry(w->cache, piece, n, &known);
    for (int i = 0; known && i < entry->count && !rc; i++)
        rc = token_list_push(out, entry->ids[i], e);
    if (known)
        return rc;
    size_t before = out->count;
    rc = encode_any(b, w, piece, n, out, e);
    size_t count = out->count - before;
    if (rc || count > CACHED_IDS)
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
    if (w->cache && n <= CACHED_BYTES)
        return encode_remembered(b, w, piece, n, out, e);
    return encode_any(b, w, piece, n, out, e);
}

void bpe_work_fini(struct bpe_work *w) {
    free(w->nodes);
    free(w->heap);
    free(w->cache);
    *w = (struct bpe_work){0};
}
