// SPDX-License-Identifier: Apache-2.0
// Rewrites a draft GGUF of the upstream dialect as the two other dialects in use.
#ifndef COPPICE_TESTS_GOLDEN_DIALECTS_H
#define COPPICE_TESTS_GOLDEN_DIALECTS_H

#include "base/err.h"
#include "golden/tiny_model.h"

enum dialect { DIALECT_LUCEBOX, DIALECT_BEELLAMA };

// in: upstream GGUF of draft d on target t. Tensor data are copied unchanged, names and metadata
// are the dialect's. Neither dialect has a trustworthy causality key.
int dialect_write(enum dialect to, const char *in, const char *out, const struct tiny_target *t,
                  const struct tiny_draft *d, struct err *e);

#endif
