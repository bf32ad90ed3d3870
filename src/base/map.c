// SPDX-License-Identifier: Apache-2.0
// Hash map of borrowed byte strings; see map.h. Open addressing with linear probing, at most
// three quarters full; each slot keeps 32 bits of the hash, so that a probe seldom touches a key.
// Every map draws its own seed from the system: who chooses the keys cannot choose collisions.
#include "base/map.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/hash.h"

struct map_slot {
    const char *key; // NULL: the slot is free
    size_t len;
    uint32_t hash, value;
};

// The slot that holds key, or the free slot where it belongs. Precondition: cap > 0.
static struct map_slot *locate(const struct map *m, const char *key, size_t len, uint64_t hash) {
    size_t mask = m->cap - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        struct map_slot *s = &m->slots[i];
        if (!s->key)
            return s;
        if (s->hash == (uint32_t)(hash >> 32) && s->len == len && memcmp(s->key, key, len) == 0)
            return s;
    }
}

static int grow(struct map *m) {
    struct map next = {.cap = m->cap ? m->cap * 2 : 16, .seed = m->seed};
    if (!m->cap && getrandom(&next.seed, sizeof next.seed, GRND_NONBLOCK) < 0)
        next.seed = (uint64_t)(uintptr_t)m;
    next.slots = calloc(next.cap, sizeof *next.slots);
    if (!next.slots)
        return -1;
    for (size_t i = 0; i < m->cap; i++) {
        const struct map_slot *s = &m->slots[i];
        if (s->key)
            *locate(&next, s->key, s->len, hash_bytes(s->key, s->len, next.seed)) = *s;
    }
    next.count = m->count;
    free(m->slots);
    *m = next;
    return 0;
}

int map_insert(struct map *m, const char *key, size_t len, uint32_t value) {
    if ((m->count + 1) * 4 > m->cap * 3 && grow(m))
        return -1;
    uint64_t hash = hash_bytes(key, len, m->seed);
    struct map_slot *s = locate(m, key, len, hash);
    if (s->key)
        return 0;
    *s = (struct map_slot){key ? key : "", len, (uint32_t)(hash >> 32), value};
    m->count++;
    return 1;
}

bool map_find(const struct map *m, const char *key, size_t len, uint32_t *value) {
    if (!m->cap)
        return false;
    const struct map_slot *s = locate(m, key, len, hash_bytes(key, len, m->seed));
    if (!s->key)
        return false;
    *value = s->value;
    return true;
}

void map_fini(struct map *m) {
    free(m->slots);
    *m = (struct map){0};
}
