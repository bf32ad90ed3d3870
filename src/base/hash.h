// SPDX-License-Identifier: Apache-2.0
// A 64-bit hash of bytes for tables and for the hashes that outputs are compared by: XXH64, as its
// public specification describes it, so that other tools can print the same numbers. It is not for
// cryptography.
#ifndef COPPICE_BASE_HASH_H
#define COPPICE_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

// XXH64 of data[0..len) under a seed (xxHash fast digest algorithm, version 0.1.1).
uint64_t hash_bytes(const void *data, size_t len, uint64_t seed);

// The same over bytes that come in pieces.
struct hash {
    uint64_t lanes[4], seed, len;
    unsigned char rest[32]; // the last len % 32 bytes
};
void hash_begin(struct hash *h, uint64_t seed);
void hash_add(struct hash *h, const void *data, size_t len);
uint64_t hash_end(const struct hash *h); // of all so far

#endif
