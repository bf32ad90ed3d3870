// SPDX-License-Identifier: Apache-2.0
// A copy backend for an exec of the CPU: plain host memory, and copies that are done when they are
// asked for. Tests put functions of their own in place of some of it.
#ifndef COPPICE_TESTS_SUPPORT_COPIES_H
#define COPPICE_TESTS_SUPPORT_COPIES_H

#include "ops/copy_backend.h"

struct copy_backend copies_at_once(void);

#endif
