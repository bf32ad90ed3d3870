// SPDX-License-Identifier: Apache-2.0
// Entries of the prefix cache as files: an image (state/image.h) with the tokens that it is of,
// less what another file has that begins alike, its base. A head of sections with hashes
// (state/stored/stored.h) says what there is; behind it lie the bytes of devices and whole pages,
// each with a hash in the head, so that any of them can be read alone. The form is described in
// docs/prefix-cache.md. It knows no folders and no budgets; any thread may use it.
#ifndef COPPICE_ENGINE_CACHE_FILE_H
#define COPPICE_ENGINE_CACHE_FILE_H

#include "state/image.h"

struct cache_file_group {
    uint64_t page_bytes;
    int64_t len, first; // as of an image
    int64_t own;        // pages own .. are in this file, those before in its base
};

// The head of a file.
struct cache_file {
    uint64_t kind; // what the state is of and how it was read: model, draft, codecs, device ...
    uint64_t key, base; // of this text, of the base's; base 0: there is none
    int64_t len, sparse_end;
    int64_t common; // tokens, first ones, that are the base's
    int n_groups;
    struct cache_file_group groups[IMAGE_GROUPS];
    unsigned char *form; // [form_bytes]
    size_t form_bytes, rest_bytes;
    uint64_t *sums; // [n_sums] of rest, then of the pages, group by group
    int64_t n_sums;
    int32_t *tokens;     // [len - common] behind those
    int64_t data, bytes; // where the rest begins; of the whole file
};
void cache_file_fini(struct cache_file *f);
// What it takes in memory, tokens not counted.
int64_t cache_file_memory(const struct cache_file *f);

// Describes m as a file beside a base, whose pages below those shared are not written again; base:
// NULL for none. Kind, key and tokens (taken over) are the caller's. ERR_MEMORY.
int cache_file_of(struct cache_file *f, const struct image *m, const struct cache_file *base,
                  int64_t common, struct err *e);
// Writes it whole or not at all (base/new_file.h). Sets the sums. pause (NULL: none) is called
// between pieces of at most 4 MiB, of which at most 64 MiB wait to be brought to the disk. ERR_IO,
// ERR_MEMORY.
struct cache_pause {
    void (*call)(void *arg);
    void *arg;
};
int cache_file_write(struct cache_file *f, const struct image *m, const char *path,
                     const struct cache_pause *pause, struct err *e);

// Reads a head from the begin of a file of so many bytes. ERR_FORMAT: cut off, damaged, or none;
// ERR_UNSUPPORTED: another version; ERR_MEMORY. After an error there is nothing to free.
int cache_file_head(struct cache_file *f, const char *path, struct err *e);
// Where a page of the file lies.
int64_t cache_file_page(const struct cache_file *f, int group, int64_t page, uint64_t *sum);

// Bytes to be read, and their hash.
struct cache_piece {
    void *to;
    size_t bytes;
    int64_t at;
    uint64_t sum;
    const struct kv_layout *page; // of a page, whose values have to be numbers; NULL: of no page
};
// By several threads where there is much. ERR_IO; ERR_FORMAT: damaged; ERR_UNSUPPORTED: of a newer
// version.
int cache_file_read(const char *path, const struct cache_piece *pieces, int64_t n, struct err *e);

#endif
