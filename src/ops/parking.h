// SPDX-License-Identifier: Apache-2.0
// Parking: the device memory of an exec's weights can be lent for a while, to a scorer that needs
// its place. What they hold waits in pinned host memory and comes back to the same addresses, so
// nothing that points at weights changes, and neither does any bit.
#ifndef COPPICE_OPS_PARKING_H
#define COPPICE_OPS_PARKING_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

struct exec;

// Before weights are loaded; until exec_park_finish, memory is taken so that it can be parked.
// ERR_UNSUPPORTED: this backend cannot do so (a CPU's memory is the host's).
int exec_park_open(struct exec *x, struct err *e);
bool exec_parks(const struct exec *x); // whether exec_park_open was called
// After they are loaded: keeps copies in host memory of as many weights as take `bytes`, which must
// not change any more. ERR_MEMORY: weights take less, or the host has no such memory.
int exec_park_finish(struct exec *x, int64_t bytes, struct err *e);

// Gives that memory back to the device; until exec_unpark no op may be called that reads weights.
void exec_park(struct exec *x);
// Takes it again. After an error (ERR_MEMORY: others have it) the exec has a fault for good.
int exec_unpark(struct exec *x, struct err *e);

// The same for a part of one allocation, whose contents are lost: whole pieces of PARK_PIECE bytes
// between p and p + bytes go back to the device. How many bytes; 0: it was not taken so that it can
// be parked, or is too small.
enum { PARK_PIECE = 32 << 20 };
int64_t exec_park_part(struct exec *x, void *p, int64_t bytes);
int exec_unpark_parts(struct exec *x, struct err *e); // as exec_unpark

#endif
