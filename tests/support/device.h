// SPDX-License-Identifier: Apache-2.0
// Execs by level name, for tests that run on CPUs and devices alike, and a look into a device. One
// of device_cuda.c and device_none.c is built.
#ifndef COPPICE_TESTS_SUPPORT_DEVICE_H
#define COPPICE_TESTS_SUPPORT_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "ops/ops.h"

#ifdef __cplusplus
extern "C" {
#endif

// "cuda", or "cuda:PATH" with PATH auto, small, mma or wgmma, or "cuda:PATH:separate", where every
// allocation is one of its own for memory checkers, or "cuda:PATH:99k", where a block
// has as much shared memory as GPUs of 8.6, 8.9 and 12.0 give it (64k: of 7.5; gpu_tests
// refuse a launch that requests more); anything else is a CPU level.
bool device_level(const char *level);

// Opens a level. ERR_UNSUPPORTED: not in this build, or not on this machine's device.
int device_open(struct exec **out, const char *level, int threads, struct err *e);

// Bytes that ops of a device hold between calls: scratch, tickets, states of rows. They are
// reserved when a model is opened and may not grow in a pass. 0 on the CPU.
int64_t device_kept(const struct exec *x);

// The values that an activation of a device holds, as f32: out [n][k].
void device_read_act(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out);

// The f32 values that a device's activation was made from, where an op has left them (attend and
// others that make rows out of pieces): out [n][k].
void device_read_wide(struct exec *x, const struct act *a, int64_t n, int64_t k, float *out);

#ifdef __cplusplus
}
#endif

#endif
