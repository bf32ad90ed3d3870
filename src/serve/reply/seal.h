// SPDX-License-Identifier: Apache-2.0
// Reasoning as an opaque text that clients keep and give back unread: its bytes in base64 behind a
// mark. It hides nothing; it makes sure that what comes back is what was thought.
#ifndef COPPICE_SERVE_REPLY_SEAL_H
#define COPPICE_SERVE_REPLY_SEAL_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

void reasoning_seal(const char *text, size_t n, struct str *out);
// False, with nothing appended, for what was not sealed here.
bool reasoning_unseal(const char *sealed, size_t n, struct str *out);

#endif
