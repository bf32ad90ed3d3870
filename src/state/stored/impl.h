// SPDX-License-Identifier: Apache-2.0
// What stored.c and kv.c share: host memory for pieces of the device's.
#ifndef COPPICE_STATE_STORED_IMPL_H
#define COPPICE_STATE_STORED_IMPL_H

#include "state/stored/stored.h"

// n bytes of x's memory on the host, until the next call; NULL when they are only measured, only
// fetched, or after an error.
const unsigned char *stored_fetch(struct stored_out *o, struct exec *x, const void *p, size_t n);
// n bytes of host memory, until the next call; NULL after an error.
unsigned char *stored_buffer(struct stored_in *in, size_t n);

#endif
