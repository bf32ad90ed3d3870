// SPDX-License-Identifier: Apache-2.0
// Remembers the ids of short pieces: text repeats its words, and a remembered word costs a tenth of
// its merges. One place per hash value; a newer piece takes the place of an older one.
#include <stdlib.h>
#include <string.h>

#include "text/bpe_impl.h"

enum { ENTRIES = 4096 };

struct bpe_cache {
    struct bpe_cache_entry entry[ENTRIES];
};

void bpe_work_remember(struct bpe_work *w) {
    if (!w->cache)
        w->cache = calloc(1, sizeof *w->cache);
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
static void load(const char *p, size_t n, uint64_t word[3]) {
    word[1] = word[2] = 0;
    if (n > 16) {
        word[0] = load8(p);
        word[1] = load8(p + 8);
        word[2] = load8(p + n - 8);
    } else if (n >= 8) {
        word[0] = load8(p);
        word[1] = load8(p + n - 8);
    } else if (n >= 4) {
        word[0] = load4(p) | load4(p + n - 4) << 32;
    } else {
        word[0] = (uint64_t)(unsigned char)p[0] | (uint64_t)(unsigned char)p[n / 2] << 8 |
                  (uint64_t)(unsigned char)p[n - 1] << 16;
    }
}

struct bpe_cache_entry *bpe_cache_find(struct bpe_cache *c, const char *piece, size_t n,
                                       bool *known) {
    uint64_t word[3];
    load(piece, n, word);
    uint64_t h = rng_mix(word[0] ^ rng_mix(word[1] ^ (word[2] * 0x9E3779B97F4A7C15u + n)));
    struct bpe_cache_entry *e = &c->entry[h % ENTRIES];
    *known = e->n == n && e->word[0] == word[0] && e->word[1] == word[1] && e->word[2] == word[2];
    if (!*known) {
        memcpy(e->word, word, sizeof word);
        e->n = 0;
    }
    return e;
}
