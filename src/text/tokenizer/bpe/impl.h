// SPDX-License-Identifier: Apache-2.0
// Shared by the bpe*.c files only: the table of pairs, and the memory of short pieces.
#ifndef COPPICE_TEXT_TOKENIZER_BPE_IMPL_H
#define COPPICE_TEXT_TOKENIZER_BPE_IMPL_H

#include "base/rng.h"
#include "text/tokenizer/bpe/bpe.h"

// Symbols that no merge has.
#define BPE_NONE    UINT32_MAX       // gone
#define BPE_END     (UINT32_MAX - 1) // behind the piece
#define BPE_FOREIGN (UINT32_MAX - 2) // a character that occurs in no token and no merge
#define BPE_SYMBOLS (UINT32_MAX - 3) // the others are below this

struct bpe_slot {
    uint32_t left, right, rank, result; // left BPE_NONE: empty
};

static inline size_t bpe_slot_of(const struct bpe *b, uint32_t left, uint32_t right) {
    return (size_t)rng_mix(((uint64_t)left << 32 | right) ^ b->seed) & b->slot_mask;
}

// The slot of a pair, or an empty one (rank BPE_NONE).
static inline const struct bpe_slot *bpe_pair_slot(const struct bpe *b, uint32_t left,
                                                   uint32_t right) {
    for (size_t i = bpe_slot_of(b, left, right);; i = (i + 1) & b->slot_mask) {
        const struct bpe_slot *s = &b->slots[i];
        if ((s->left == left && s->right == right) || s->left == BPE_NONE)
            return s;
    }
}

// A piece of at most BPE_CACHED bytes, as words that tell all such pieces of one length apart.
enum { BPE_CACHED = 16, BPE_CACHED_IDS = 3 };

struct bpe_cache_entry {
    uint64_t word[2];
    uint8_t n, count; // n 0: empty
    int32_t ids[BPE_CACHED_IDS];
};

// The entry that a piece of 1 to BPE_CACHED bytes has or would have. *known: it holds the piece's
// ids; otherwise the entry is empty but for the piece's words, and the caller may set n, count and
// ids.
struct bpe_cache_entry *bpe_cache_find(struct bpe_cache *c, const char *piece, size_t n,
                                       bool *known);

#endif
