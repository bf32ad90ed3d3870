// SPDX-License-Identifier: Apache-2.0
// Parking on a GPU (ops/parking.h), for the table of copies in copy.c.
#ifndef COPPICE_OPS_GPU_RUNTIME_PARK_H
#define COPPICE_OPS_GPU_RUNTIME_PARK_H

#include "base/memory/slabs.h"
#include "ops/exec.h"

int cuda_park_open(struct exec *x, struct parked *k, struct err *e);
void cuda_park_fault(struct exec *x);

#endif
