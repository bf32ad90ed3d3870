// SPDX-License-Identifier: Apache-2.0
// Slabs of large pages; see pages.h. A slab is filled from its begin and never reused in part:
// weights come and go with their model.
#include "ops/cpu/pages.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/num.h"

enum { LINE = 64, PAGE = 2 << 20, SLAB = 32 << 20 };

struct page_slab {
    struct page_slab *next;
    unsigned char *data;
    size_t size, used;
    int64_t live; // pieces not yet freed
};

void *pages_map(size_t bytes) {
    if (bytes > SIZE_MAX / 2)
        return NULL;
    size_t size = round_up_size(bytes ? bytes : 1, PAGE);
    void *data = aligned_alloc(PAGE, size);
#ifdef MADV_HUGEPAGE
    if (data)
        (void)madvise(data, size, MADV_HUGEPAGE); // a wish: without it the pages are small
#endif
    return data;
}

static struct page_slab *add_slab(struct page_slab **slabs, size_t bytes) {
    struct page_slab *s = calloc(1, sizeof *s);
    size_t size = round_up_size(max_size(bytes, SLAB), PAGE);
    unsigned char *data = s ? pages_map(size) : NULL;
    if (!data) {
        free(s);
        return NULL;
    }
    *s = (struct page_slab){.next = *slabs, .data = data, .size = size};
    *slabs = s;
    return s;
}

void *pages_alloc(struct page_slab **slabs, size_t bytes) {
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = round_up_size(bytes ? bytes : 1, LINE);
    struct page_slab *s = *slabs;
    if (!s || s->size - s->used < bytes)
        s = add_slab(slabs, bytes);
    if (!s)
        return NULL;
    unsigned char *at = s->data + s->used;
    s->used += bytes;
    s->live++;
    return memset(at, 0, bytes);
}

void pages_free(struct page_slab **slabs, void *at) {
    uintptr_t a = (uintptr_t)at;
    for (struct page_slab **s = slabs; *s; s = &(*s)->next) {
        struct page_slab *here = *s;
        if (a < (uintptr_t)here->data || a >= (uintptr_t)here->data + here->size)
            continue;
        if (--here->live)
            return;
        *s = here->next;
        free(here->data);
        free(here);
        return;
    }
}
