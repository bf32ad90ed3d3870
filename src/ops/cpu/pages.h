// SPDX-License-Identifier: Apache-2.0
// Memory for weights, in pages of 2 MB where the system gives them: a decoding step reads all of it
// in order, and with pages of 4 KB it spends up to a tenth of its time on looking addresses up (of
// attention to a long text up to a third, since keys and values of a layer lie apart).
// Weights share slabs, so that small ones lie in large pages as well. Not safe for two threads.
// slabs: all there are, the one that is being filled first; NULL: none.
#ifndef COPPICE_OPS_CPU_PAGES_H
#define COPPICE_OPS_CPU_PAGES_H

#include <stddef.h>

// At least that many bytes from the begin of a large page on, with whatever they held, or NULL.
// Free with free().
void *pages_map(size_t bytes);

struct page_slab;

// Zeroed memory aligned to 64 bytes, or NULL. Free with pages_free().
void *pages_alloc(struct page_slab **slabs, size_t bytes);
// Gives a slab back when nothing in it is left; NULL is allowed.
void pages_free(struct page_slab **slabs, void *at);

#endif
