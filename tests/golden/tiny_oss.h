// SPDX-License-Identifier: Apache-2.0
// A tiny gpt-oss target as a GGUF file, the weights those of tools/oracle/tiny_model.py, for tests
// of files that lack something.
#ifndef COPPICE_TESTS_GOLDEN_TINY_OSS_H
#define COPPICE_TESTS_GOLDEN_TINY_OSS_H

#include "base/err.h"
#include "golden/tiny_model.h"

int tiny_write_oss(const struct tiny_target *t, const char *path, struct err *e);

#endif
