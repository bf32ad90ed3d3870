// SPDX-License-Identifier: Apache-2.0
// A copy backend for an exec of the CPU: plain host memory, and copies that are done when they are
// requested. Tests put functions of their own in place of some of it.
#ifndef COPPICE_TESTS_SUPPORT_COPIES_H
#define COPPICE_TESTS_SUPPORT_COPIES_H

#include "ops/exec.h"

struct copy_backend copies_at_once(void);

// Copies that come as late as they may, or at random earlier: when they are waited for, or by
// chance with the other calls of their queue. By a count of calls, not by time, so that a run
// can be repeated. There is one such backend at a time; how is looked at until it is out of use.
struct late_copies {
    uint64_t seed;
    uint32_t chance; // that a copy is done with a call is one in that many; 0: none
    bool fail;       // what is requested now
};
struct copy_backend copies_late(const struct late_copies *how);

#endif
