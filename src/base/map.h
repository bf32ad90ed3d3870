// SPDX-License-Identifier: Apache-2.0
// Hash map from byte strings (borrowed, not copied) to 32-bit values: names of tensors,
// metadata keys, token texts. Insert and find only; safe against chosen keys (seeded hash).
#ifndef COPPICE_BASE_MAP_H
#define COPPICE_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot;

// A zeroed map is valid and empty.
struct map {
    struct map_slot *slots;
    size_t count, cap; // cap is a power of two
    uint64_t seed;
};

// Inserts key -> value. Returns 1 when inserted, 0 when the key exists (unchanged), -1 when out of
// memory (then unchanged too).
int map_insert(struct map *m, const char *key, size_t len, uint32_t value);

// Finds key; true and *value when it is there.
bool map_find(const struct map *m, const char *key, size_t len, uint32_t *value);

void map_fini(struct map *m);

#endif
