// SPDX-License-Identifier: Apache-2.0
// Finds special and user-defined tokens in text: one leftmost-longest scan for all of them, in
// time linear in the text whatever the tokens are. It compares bytes and ignores types.
#ifndef COPPICE_TEXT_TOKENIZER_SPECIAL_H
#define COPPICE_TEXT_TOKENIZER_SPECIAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct special_node;

struct special_token {
    size_t length; // bytes
    int32_t id;
    bool always; // found also when only user-defined tokens are looked for
};

// A zeroed struct is valid and finds nothing.
struct special {
    struct special_node *nodes; // [n_nodes], 0 is the root
    uint32_t *root_next;        // [256], 0: none
    struct special_token *tokens;
    uint32_t n_nodes, n_tokens;
    int64_t nodes_cap, tokens_cap;
};

// Adds a token of n > 0 bytes; of one text the token that was added first counts.
int special_add(struct special *s, const char *text, size_t n, int32_t id, bool always,
                struct err *e);

// Ends the set-up: after it s is read-only and may be shared by threads.
int special_finish(struct special *s, struct err *e);

struct special_hit {
    size_t begin, end; // bytes of the text
    int32_t id;
};

struct special_hits {
    struct special_hit *hit;
    size_t count;
    int64_t cap;
};

// Fills hits, in text order and without overlaps: at the leftmost place where a token begins the
// longest one there is taken, and the search goes on after it. all: every token; otherwise
// only those added with `always`.
int special_scan(const struct special *s, const char *text, size_t n, bool all,
                 struct special_hits *hits, struct err *e);

// Where control tokens may be found: spans partition the text.
struct special_span {
    size_t end; // it begins where the one before ends
    bool all;   // every token; otherwise only those added with `always`
};
struct special_where {
    const struct special_span *spans;
    size_t n_spans;
    // Tokens added with `always` that count as control tokens all the same; ids in rising order.
    const int32_t *guarded;
    size_t n_guarded;
};

// The same with each span by its own rule. A control token lies in one span; the others may lie
// across borders.
int special_scan_spans(const struct special *s, const char *text, size_t n,
                       const struct special_where *w, struct special_hits *hits, struct err *e);
void special_hits_fini(struct special_hits *h);

void special_fini(struct special *s);

#endif
