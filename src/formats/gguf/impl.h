// SPDX-License-Identifier: Apache-2.0
// Shared by the files of formats only: the open file, its parts, and unaligned little-endian loads.
#ifndef COPPICE_FORMATS_GGUF_IMPL_H
#define COPPICE_FORMATS_GGUF_IMPL_H

#include <stddef.h>
#include <stdint.h>

#include "base/file.h"
#include "base/map.h"
#include "base/memory/arena.h"
#include "formats/gguf/gguf.h"

#define GGUF_DEFAULT_ALIGNMENT 32u
#define GGUF_MAX_NAME          63 // tensor names; other readers keep them in 64 bytes
#define GGUF_MAX_KEY           65535
#define GGUF_MAX_LONG          (1u << 30) // bytes of a string, elements of an array

// Metadata of one part, in file order. Keys are in the arena of the open file.
struct gguf_meta {
    struct gguf_kv *kv;
    size_t count;
    int64_t cap;
    struct map keys;
};

struct gguf {
    struct arena arena;
    const char *path;
    struct file_map *parts;
    int n_parts;
    uint64_t bytes;
    int version;
    struct gguf_meta meta; // of the first part
    struct tensor *tensors;
    size_t n_tensors;
    int64_t cap_tensors;
    struct map names; // tensor name -> index, over all parts
};

// Bytes of one element of a fixed-size kind; 0 for strings, arrays and unknown kinds.
size_t gguf_kind_size(int kind);

// Copies at most 63 bytes of s to out as printable ASCII, for messages.
struct gguf_label {
    char text[72];
};
struct gguf_label gguf_printable(const char *s, size_t n);

static inline uint64_t gguf_u64(const unsigned char *p) {
    uint64_t v = 0;
    for (int i = 7; i >= 0; i--)
        v = v << 8 | p[i];
    return v;
}

static inline uint32_t gguf_u32(const unsigned char *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

#endif
