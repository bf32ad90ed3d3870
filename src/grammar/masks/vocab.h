// SPDX-License-Identifier: Apache-2.0
// The vocabulary as a trie in the order of a depth-first walk, so that a walk which skips what is
// not allowed reads memory forwards. Tokens that are ordinary text inside of a JSON string
// ("plain": whole code points, no quote, backslash or control character) are most of a vocabulary
// and are allowed or not together nearly always; a walk for the others alone follows next_other.
#ifndef COPPICE_GRAMMAR_MASKS_VOCAB_H
#define COPPICE_GRAMMAR_MASKS_VOCAB_H

#include "grammar/grammar.h"

struct trie_node {
    uint32_t end;        // one after the last node below this one
    int32_t token;       // that ends here, or -1
    uint32_t rank;       // tokens before this node, in the order of the trie
    uint8_t byte, depth; // depth of the first byte: 1
    bool twins;          // other tokens have the same bytes: same[]
    uint8_t plain; // 1 + the most code points below, when all that is below is plain text; or 0
};

enum { PLAIN_CHARS = 32 }; // plain tokens have at most that many code points

struct grammar_vocab {
    int32_t size;
    int32_t words; // of a mask
    // Every token that may ever be allowed, but those that end:
    struct trie_node *nodes; // [count + 1]: the last one has only its rank
    uint32_t count;
    uint32_t *next_other; // [count + 1] the first node from here on with a token that is not plain
                          // at it or below; count: none
    int32_t *tokens;      // in the trie's order
    int32_t *same;        // [token] another token of the same bytes, or -1
    uint32_t *plain;      // [PLAIN_CHARS + 1][words]: plain tokens of at most that many code points
    int32_t *ends;        // tokens that end generation
    int32_t end_count;
    char *data;       // bytes of all tokens
    uint32_t *offset; // [size + 1] into data
};

// The bytes of a token that may be allowed; 0 bytes: none.
static inline size_t vocab_bytes(const struct grammar_vocab *v, int32_t id, const char **bytes) {
    *bytes = v->data + v->offset[id];
    return v->offset[id + 1] - v->offset[id];
}

bool vocab_ends(const struct grammar_vocab *v, int32_t id);

#endif
