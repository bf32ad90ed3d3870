// SPDX-License-Identifier: Apache-2.0
// Files of the prefix cache: bytes are read as they are, and again with all hashes of sections made
// right, so that the checks after them are reached. What is accepted must have its pages within
// the file, and its pieces are read.
#include "fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/hash.h"
#include "engine/cache/disk.h"

enum { HEAD = 12, SECTION = 20 };

static char path[512];

void fuzz_setup(void) {
    umask(077); // files that others may write to are not read
    snprintf(path, sizeof path, "%s/entry", fuzz_folder());
}

// Every page and the rest lie in the file, one after the other.
static void use(const struct record *f) {
    int64_t at = f->data + (int64_t)f->rest_bytes;
    struct err e = {0};
    for (int g = 0; g < f->n_groups; g++) {
        const struct record_group *y = &f->groups[g];
        for (int64_t i = y->own; i * KV_PAGE < y->len; i++) {
            uint64_t sum;
            FUZZ_CHECK(record_page(f, g, i, &sum) == at);
            at += (int64_t)y->page_bytes;
        }
    }
    FUZZ_CHECK(at == f->bytes);
    struct cache_piece all = {malloc(f->rest_bytes + 1), f->rest_bytes, f->data, f->sums[0], NULL};
    if (all.to)
        fuzz_sentence(cache_file_read(path, &all, 1, &e), &e);
    free(all.to);
}

static int try(const uint8_t *data, size_t size, struct err *e) {
    struct record f;
    fuzz_folder_write("entry", data, size);
    int rc = cache_file_head(&f, path, e);
    if (rc)
        return rc;
    use(&f);
    record_fini(&f);
    return 0;
}

static uint64_t number(const uint8_t *p) {
    uint64_t v = 0;
    for (int i = 0; i < 8; i++)
        v |= (uint64_t)p[i] << (8 * i);
    return v;
}

static void put_number(uint8_t *p, uint64_t v) {
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(v >> (8 * i));
}

// Makes the hashes of the five sections right, and the length that the second, the head, names.
static void rehash(uint8_t *data, size_t size) {
    size_t at = HEAD;
    for (int i = 0; i < 5 && size > at + SECTION; i++) {
        uint64_t n = number(data + at + 4);
        if (n > size - at - SECTION)
            return;
        if (i == 1 && n >= 8)
            put_number(data + at + 12, size);
        put_number(data + at + 12 + n, hash_bytes(data + at, 12 + (size_t)n, 0));
        at += SECTION + (size_t)n;
    }
}

void fuzz_one(const uint8_t *data, size_t size, bool fragile) {
    struct err e = {0};
    fuzz_result(try(data, size, &e), &e, fragile);
    uint8_t *rehashed = malloc(size ? size : 1);
    if (rehashed) {
        memcpy(rehashed, data, size);
        rehash(rehashed, size);
        e = (struct err){0};
        fuzz_sentence(try(rehashed, size, &e), &e);
    }
    free(rehashed);
    fuzz_folder_clear();
}
