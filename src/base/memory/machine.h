// SPDX-License-Identifier: Apache-2.0
// How much memory this machine has.
#ifndef COPPICE_BASE_MEMORY_MACHINE_H
#define COPPICE_BASE_MEMORY_MACHINE_H

#include <stdint.h>

// Bytes of main memory, or what the control group leaves of them (memory.max of version 2); 0: not
// known.
int64_t machine_memory(void);

#endif
