// SPDX-License-Identifier: Apache-2.0
// What aged messages were shortened to: spans by the content of a text and the options, so that
// the same text is shortened in the same way for as long as it is remembered, and prefixes of
// conversations stay the same word for word. It holds no text, so that one conversation cannot see
// another's words.
#ifndef COPPICE_COMPRESS_FLOWKV_H
#define COPPICE_COMPRESS_FLOWKV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { FLOWKV_ENTRIES = 256 };

struct flowkv_span {
    size_t begin, end;
};

struct flowkv_key {
    uint64_t hash[2];
    size_t n;         // bytes of the text
    uint64_t options; // hash of them
};

struct flowkv_entry {
    struct flowkv_key key;
    struct flowkv_span *spans;
    int64_t n_spans, to; // tokens that stay
    uint64_t used;       // when, for the choice of what is forgotten
};

// Zeroed is valid and empty.
struct flowkv {
    struct flowkv_entry entries[FLOWKV_ENTRIES];
    int n;
    uint64_t clock;
    int64_t hits, misses;
};

struct flowkv_key flowkv_key_of(const char *text, size_t n, uint64_t options);
// NULL: not there. Valid until the next flowkv_put.
const struct flowkv_entry *flowkv_find(struct flowkv *f, const struct flowkv_key *k);
// Copies the spans of e; the entry that has not been used for longest goes. ERR_MEMORY: nothing
// changed.
int flowkv_put(struct flowkv *f, const struct flowkv_entry *entry, struct err *e);
void flowkv_fini(struct flowkv *f);

#endif
