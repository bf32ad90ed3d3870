// SPDX-License-Identifier: Apache-2.0
// Slabs of large pages; see pages.h. A slab is filled from its begin and never reused in part:
// weights come and go with their model.
#include "ops/cpu/linear/weight.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/num.h"

enum { LINE = 64, PAGE = 2 << 20, SLAB = 32 << 20 };

struct slab {
    struct slab *next;
    unsigned char *data;
    size_t size, used;
    int64_t live; // pieces not yet freed
};

static struct slab *add_slab(struct pages *p, size_t bytes) {
    struct slab *s = calloc(1, sizeof *s);
    size_t size = round_up_size(max_size(bytes, SLAB), PAGE);
    unsigned char *data = s ? aligned_alloc(PAGE, size) : NULL;
    if (!data) {
        free(s);
        return NULL;
    }
#ifdef MADV_HUGEPAGE
    (void)madvise(data, size, MADV_HUGEPAGE); // a wish: without it the pages are small
#endif
    *s = (struct slab){.next = p->first, .data = data, .size = size};
    p->first = s;
    return s;
}

void *pages_alloc(struct pages *p, size_t bytes) {
    if (bytes > SIZE_MAX / 2)
        return NULL;
    bytes = round_up_size(bytes ? bytes : 1, LINE);
    struct slab *s = p->first;
    if (!s || s->size - s->used < bytes)
        s = add_slab(p, bytes);
    if (!s)
        return NULL;
    unsigned char *at = s->data + s->used;
    s->used += bytes;
    s->live++;
    return memset(at, 0, bytes);
}

void pages_free(struct pages *p, void *at) {
    uintptr_t a = (uintptr_t)at;
    for (struct slab **s = &p->first; *s; s = &(*s)->next) {
        struct slab *here = *s;
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
