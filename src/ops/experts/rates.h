// SPDX-License-Identifier: Apache-2.0
// What decides where experts beyond a device's memory are best computed: how fast the bus brings
// them, and how fast the CPU's ops read them where they are. Measured, some tenths of a second.
#ifndef COPPICE_OPS_EXPERTS_RATES_H
#define COPPICE_OPS_EXPERTS_RATES_H

#include "base/err.h"

struct exec;

struct expert_rates {
    double bus, cpu; // GB (10^9 bytes) a second
};

// x: a device with nothing under way; cpu: an exec of the host's CPU. What it takes of the memory
// of both it gives back. ERR_MEMORY, ERR_DEVICE.
int expert_rates(struct expert_rates *out, struct exec *x, struct exec *cpu, struct err *e);

#endif
