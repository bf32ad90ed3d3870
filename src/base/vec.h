// SPDX-License-Identifier: Apache-2.0
// Arrays that grow: a pointer, a count and a capacity that lie in the caller's struct, zeroed at
// first and freed with free().
#ifndef COPPICE_BASE_VEC_H
#define COPPICE_BASE_VEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

// Makes room for n >= 0 elements of `size` bytes in all; array: the address of the pointer. The
// capacity at least doubles when it changes, so that n pushes cost O(n). ERR_MEMORY, also for a
// size that no memory can have, leaves array and capacity as they were.
int vec_reserve(void *array, int64_t *cap, int64_t n, size_t size, struct err *e);

#endif
