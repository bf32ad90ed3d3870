// SPDX-License-Identifier: Apache-2.0
// XXH64: four lanes take 32 bytes a round, each by a multiply, a rotation and a multiply; what is
// left over is mixed in by 8, 4 and 1 bytes. Words are little-endian, whatever the machine.
#include "base/hash.h"

#include <string.h>

static const uint64_t P1 = 0x9E3779B185EBCA87u, P2 = 0xC2B2AE3D27D4EB4Fu, P3 = 0x165667B19E3779F9u,
                      P4 = 0x85EBCA77C2B2AE63u, P5 = 0x27D4EB2F165667C5u;

static uint64_t rotate(uint64_t v, int n) {
    return v << n | v >> (64 - n);
}

static uint64_t word(const unsigned char *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static uint64_t lane(uint64_t acc, uint64_t input) {
    return rotate(acc + input * P2, 31) * P1;
}

void hash_begin(struct hash *h, uint64_t seed) {
    *h = (struct hash){.lanes = {seed + P1 + P2, seed + P2, seed, seed - P1}, .seed = seed};
}

static void stripe(struct hash *h, const unsigned char *p) {
    for (int i = 0; i < 4; i++)
        h->lanes[i] = lane(h->lanes[i], word(p + 8 * i, 8));
}

void hash_add(struct hash *h, const void *data, size_t len) {
    const unsigned char *p = data;
    size_t held = h->len % 32;
    h->len += len;
    if (held + len >= 32 && held) { // completes what was left over
        memcpy(h->rest + held, p, 32 - held);
        p += 32 - held;
        len -= 32 - held;
        held = 0;
        stripe(h, h->rest);
    }
    for (; len >= 32; len -= 32, p += 32)
        stripe(h, p);
    if (len)
        memcpy(h->rest + held, p, len);
}

uint64_t hash_end(const struct hash *hash) {
    const uint64_t *v = hash->lanes;
    const unsigned char *p = hash->rest;
    uint64_t h = hash->seed + P5;
    if (hash->len >= 32) {
        h = rotate(v[0], 1) + rotate(v[1], 7) + rotate(v[2], 12) + rotate(v[3], 18);
        for (int i = 0; i < 4; i++)
            h = (h ^ lane(0, v[i])) * P1 + P4;
    }
    h += hash->len;
    size_t rest = hash->len % 32;
    for (; rest >= 8; rest -= 8, p += 8)
        h = rotate(h ^ lane(0, word(p, 8)), 27) * P1 + P4;
    for (; rest >= 4; rest -= 4, p += 4)
        h = rotate(h ^ word(p, 4) * P1, 23) * P2 + P3;
    for (; rest; rest--, p++)
        h = rotate(h ^ *p * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint64_t hash_bytes(const void *data, size_t len, uint64_t seed) {
    struct hash h;
    hash_begin(&h, seed);
    hash_add(&h, data, len);
    return hash_end(&h);
}
