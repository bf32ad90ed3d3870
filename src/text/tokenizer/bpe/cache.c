// SPDX-License-Identifier: Apache-2.0
// Remembers the ids of short pieces: text repeats its words, and a remembered word costs a tenth of
// its merges. Two places per hash value, side by side in a cache line; a newer piece pushes the
// older one into the second and out.
#include <stdlib.h>
#include <string.h>

#include "text/tokenizer/bpe/impl.h"

enum { LEAST_ENTRIES = 512, MOST_ENTRIES = 32768, BYTES_AN_ENTRY = 8 };

struct bpe_cache {
    size_t mask;
    struct bpe_cache_entry *entry; // [mask + 2], of pairs
    unsigned char memory[];
};

void bpe_work_remember(struct bpe_work *w, size_t n) {
    size_t entries = LEAST_ENTRIES;
    while (entries < MOST_ENTRIES && entries * BYTES_AN_ENTRY < n)
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
static void load(const char *p, size_t n, uint64_t word[2]) {
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

static bool holds(const struct bpe_cache_entry *e, const uint64_t word[2], size_t n) {
    return e->n == n && e->word[0] == word[0] && e->word[1] == word[1];
}

struct bpe_cache_entry *bpe_cache_find(struct bpe_cache *c, const char *piece, size_t n,
                                       bool *known) {
    uint64_t word[2];
    load(piece, n, word);
    uint64_t h = (word[0] ^ (word[1] + n) * 0x9E3779B97F4A7C15u) * 0xC2B2AE3D27D4EB4Fu;
    struct bpe_cache_entry *e = &c->entry[(h ^ h >> 29) & c->mask];
    *known = true;
    if (holds(e, word, n))
        return e;
    if (holds(e + 1, word, n))
        return e + 1;
    *known = false;
    e[1] = e[0];
    memcpy(e->word, word, sizeof word);
    e->n = 0;
    return e;
}
