// SPDX-License-Identifier: Apache-2.0
// What the files of the public interface share: the passing of errors and of structs whose size the
// caller states. Nothing here is seen from outside.
#ifndef COPPICE_API_API_H
#define COPPICE_API_API_H

#include "base/err.h"
#include "coppice.h"

// Puts an error into the caller's struct and returns rc.
int api_result(int rc, const struct err *from, struct coppice_error *to);

// Copies a caller's struct, which begins with its size, into one of `bytes` here; what it lacks is
// zero. ERR_USAGE when the size is impossible, or when it sets something that is unknown here.
int api_take(void *to, size_t bytes, const void *from, const char *name, struct err *e);

// Copies a struct of `bytes` here into the caller's, as much of it as that has; its size stays.
void api_give(void *to, const void *from, size_t bytes);

#endif
