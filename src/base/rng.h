// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a pure function of its arguments, so that any order of
// evaluation gives the same draw (docs/exactness.md, E4). Not for cryptography. And names and seeds
// from the system's generator, which cannot be guessed and which no restart repeats.
#ifndef COPPICE_BASE_RNG_H
#define COPPICE_BASE_RNG_H

#include <stdint.h>

// Also compiled for GPUs: a kernel must draw the same numbers.
#ifdef __CUDACC__
#define RNG_FN static inline __host__ __device__
#else
#define RNG_FN static inline
#endif

// One round of splitmix64 (Steele, Lea, Flood, OOPSLA 2014): a 64-bit mix.
RNG_FN uint64_t rng_mix(uint64_t x) {
    x += 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

// Hash of up to three counters under a seed.
RNG_FN uint64_t rng_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c) {
    return rng_mix(rng_mix(rng_mix(rng_mix(seed) ^ a) ^ b) ^ c);
}

// Uniform in (0, 1): never 0, never 1; 24 bits, exact in float.
RNG_FN float rng_unit(uint64_t h) {
    return ((float)(uint32_t)(h >> 41) + 0.5f) * 0x1p-23f;
}

// A sequential stream over the same mix, for tests and data.
struct rng {
    uint64_t state;
};
static inline uint64_t rng_next(struct rng *r) {
    return rng_mix(r->state++);
}
// Uniform in [0, n), n > 0 (bias below 2^-32 for n < 2^32).
static inline uint32_t rng_below(struct rng *r, uint32_t n) {
    return (uint32_t)(((rng_next(r) >> 32) * (uint64_t)n) >> 32);
}

uint64_t random_seed(void);

enum { RANDOM_ID = 40 };
// "chatcmpl-" and 24 hexadecimal digits: prefix (at most 12 bytes) with 96 random bits.
void random_id(char out[RANDOM_ID], const char *prefix);

#endif
