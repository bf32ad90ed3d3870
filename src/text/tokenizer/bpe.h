// SPDX-License-Identifier: Apache-2.0
// Pair encoding of one piece of text: start from single bytes (or characters), join the adjacent
// pair of lowest rank (leftmost on a tie) until no pair has a rank. Time is O(n log n) in the
// piece. Texts are what the piece consists of: byte-mapped vocabulary texts come here un-mapped,
// those with escaped blanks as they are.
#ifndef COPPICE_TEXT_TOKENIZER_BPE_H
#define COPPICE_TEXT_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/map.h"
#include "base/memory/arena.h"
#include "text/tokenizer/token_list.h"

#define BPE_BLANK "\xE2\x96\x81" // U+2581, which stands for a blank in escaped text

struct bpe_merge;
struct bpe_slot;
struct bpe_cache;

// Symbols are texts: ids below n_tokens are tokens, the rest occur in merges (or are single
// bytes) without being in the vocabulary.
struct bpe {
    struct arena arena; // texts of the symbols that are no tokens
    struct map symbols; // text -> symbol
    uint32_t n_tokens, n_symbols;
    struct bpe_merge *merges; // [n_merges], until bpe_finish
    uint32_t n_merges, max_merges;
    struct bpe_slot *slots; // (left, right) -> rank, result
    size_t slot_mask;
    uint64_t seed;
    uint32_t byte_symbol[256], blank_symbol; // blank: of BPE_BLANK
    int32_t byte_token[256]; // stands for a byte of a text that is no token; -1: none
    // Whether some merge puts a text that begins with byte b after one that ends in byte a, as bit
    // b of [a]; bit 0 is for texts that begin with BPE_BLANK, which do not count for their byte.
    uint64_t joins[256][4];
    int32_t unknown;   // token for what has none, or -1: that is an error
    bool characters;   // start from UTF-8 characters, not bytes
    bool whole_pieces; // a piece that is a token is taken without merging
};

// Memory of one caller that is reused from piece to piece. A zeroed one is valid.
struct bpe_work {
    uint32_t *nodes;
    uint64_t *heap;
    size_t nodes_cap;
    struct bpe_cache *cache;
};
// From now on w remembers the ids of short pieces, in memory that grows with the n bytes of text to
// come, up to a megabyte. When memory is short it does nothing. Such a w serves one bpe.
void bpe_work_remember(struct bpe_work *w, size_t n);
void bpe_work_fini(struct bpe_work *w);

// A zeroed struct becomes an empty encoder for n_tokens tokens and at most max_merges merges.
// After any error call bpe_fini.
int bpe_init(struct bpe *b, uint32_t n_tokens, uint32_t max_merges, struct err *e);

// Makes id < n_tokens reachable by its n > 0 bytes, which are borrowed for the life of b.
// A text already taken keeps its first id.
int bpe_add_token(struct bpe *b, uint32_t id, const char *bytes, size_t n, struct err *e);

// Two texts that stand next to each other, both non-empty.
struct bpe_pair {
    const char *left, *right;
    size_t n_left, n_right;
};

// Adds a merge under a rank below 2^31; several may share one. Unknown parts and results are kept
// (copied where needed); of equal pairs the first wins. Every token must be in by now.
int bpe_add_ranked(struct bpe *b, const struct bpe_pair *p, uint32_t rank, struct err *e);

// The same under the next rank.
int bpe_add_merge(struct bpe *b, const char *left, size_t n_left, const char *right, size_t n_right,
                  struct err *e);

// Ends the set-up: after it b is read-only and may be shared by threads. Bytes without a
// byte_token get the token whose text they are.
int bpe_finish(struct bpe *b, struct err *e);

// The byte that a text begins with, as the table of joins counts it.
static inline unsigned bpe_first_byte(const char *s, size_t n) {
    bool blank = s[0] == BPE_BLANK[0] && n >= 3 && s[1] == BPE_BLANK[1] && s[2] == BPE_BLANK[2];
    return blank ? 0 : (unsigned char)*s;
}

// Whether a merge could join text[0..at) and text[at..n), with 0 < at < n at a character's begin.
static inline bool bpe_joins(const struct bpe *b, const char *text, size_t n, size_t at) {
    unsigned first = bpe_first_byte(text + at, n - at);
    return b->joins[(unsigned char)text[at - 1]][first / 64] >> first % 64 & 1;
}

// The token whose text is exactly this, or -1.
int32_t bpe_find(const struct bpe *b, const char *bytes, size_t n);

// Appends the ids of piece[0..n), n < 2^31, UTF-8 when b starts from characters. A result that is
// no token is given byte by byte. ERR_UNSUPPORTED when a byte has no token and no unknown token
// stands for it.
int bpe_encode(const struct bpe *b, struct bpe_work *w, const char *piece, size_t n,
               struct token_list *out, struct err *e);
int bpe_cancelled(struct err *e); // ERR_CANCELLED with its sentence

void bpe_fini(struct bpe *b);

#endif
