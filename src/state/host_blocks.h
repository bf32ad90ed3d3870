// SPDX-License-Identifier: Apache-2.0
// Host memory for state that is copied off a device, in blocks that are used again: taking and
// giving memory that copies run from and to without the processor's help is slow on a GPU
// (ops/copier.h). It counts every byte that it holds, so that a budget can be kept. What will be
// needed can be made beforehand, by a thread of its own (host_blocks_ready).
#ifndef COPPICE_STATE_HOST_BLOCKS_H
#define COPPICE_STATE_HOST_BLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ops/copier.h"

struct host_class; // free blocks of one size

struct host_blocks {
    struct exec *x;
    int64_t used, held; // bytes of blocks that are in use; of all of them, requested or there
    int64_t other;      // bytes besides blocks of those who use them
    int64_t pages;      // blocks that are pages of keys and values
    int64_t max;        // held and other at most
    struct host_class *classes; // [n]
    int64_t n, cap;
    struct host_maker *maker; // NULL until it is needed
};

void host_blocks_init(struct host_blocks *b, struct exec *x, int64_t max);
void host_blocks_fini(struct host_blocks *b); // after all blocks have been given back

// Bytes that a block for `bytes` has: somewhat more, so that few sizes occur.
size_t host_blocks_size(size_t bytes);
// A block for bytes > 0, and back, with the same number. Free ones of other sizes are given back to
// the system where there would be more than `max`. NULL: there is no memory, or more than that.
void *host_blocks_take(struct host_blocks *b, size_t bytes);
// Whether n blocks for that many bytes can be taken without waiting for the system. If not, those
// that lack are being made, and call it again later. True also where taking is fast (memory is
// not pinned), or where they cannot be made, so that taking is what says so.
bool host_blocks_ready(struct host_blocks *b, size_t bytes, int64_t n);
void host_blocks_give(struct host_blocks *b, void *p, size_t bytes); // NULL is allowed
// Gives free blocks back to the system until at most `max` bytes are held, or none is free.
void host_blocks_trim(struct host_blocks *b, int64_t max);

#endif
