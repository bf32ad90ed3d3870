// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding of one piece of text over raw bytes: start from single bytes, join the
// adjacent pair of lowest rank (leftmost on a tie) until no pair has a rank. Time is
// O(n log n) in the piece. Byte-mapped vocabulary texts must be un-mapped before they come here.
#ifndef COPPICE_TEXT_BPE_H
#define COPPICE_TEXT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "text/token_list.h"

struct bpe_merge {
    uint32_t left, right, result; // symbols
};
struct bpe_slot;

// Symbols are texts: ids below n_tokens are tokens, the rest occur in merges (or are single
// bytes) without being in the vocabulary.
struct bpe {
    struct arena arena; // texts of the symbols that are no tokens
    struct map symbols; // text -> symbol
    uint32_t n_tokens, n_symbols;
    struct bpe_merge *merges; // [n_merges], index = rank
    uint32_t n_merges, max_merges;
    struct bpe_slot *slots; // (left, right) -> rank
    size_t slot_mask;
    uint64_t seed;
    uint32_t byte_symbol[256];
    int32_t unknown;   // token for a byte that has none, or -1: such a byte is an error
    bool whole_pieces; // a piece that is a token is taken without merging
};

// Memory of one caller that is reused from piece to piece. A zeroed one is valid.
struct bpe_work {
    uint32_t *nodes;
    uint64_t *heap;
    size_t nodes_cap, heap_cap;
};
void bpe_work_fini(struct bpe_work *w);

// A zeroed struct becomes an empty encoder for n_tokens tokens and at most max_merges merges.
// After any error call bpe_fini.
int bpe_init(struct bpe *b, uint32_t n_tokens, uint32_t max_merges, struct err *e);

// Makes id < n_tokens reachable by its n > 0 bytes, which are borrowed for the life of b.
// A text already taken keeps its first id.
int bpe_add_token(struct bpe *b, uint32_t id, const char *bytes, size_t n, struct err *e);

// Adds the merge of the next rank; both parts are non-empty and copied where needed. Unknown
// parts and results are kept; of equal merges the first wins. Every token must be in by now.
int bpe_add_merge(struct bpe *b, const char *left, size_t n_left, const char *right, size_t n_right,
                  struct err *e);

// Ends the set-up: after it b is read-only and may be shared by threads.
int bpe_finish(struct bpe *b, struct err *e);

// Appends the ids of piece[0..n), n < 2^31. A result that is no token is given byte by byte.
// ERR_UNSUPPORTED when a byte has no token and no unknown token stands for it.
int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
               struct token_list *out, struct err *e);

void bpe_fini(struct bpe *b);

#endif
