// SPDX-License-Identifier: Apache-2.0
// Reasoning as an opaque text that clients keep and give back unread: its bytes in base64 after a
// mark. It hides nothing; it makes sure that what comes back is what was thought.
#ifndef COPPICE_SERVE_REPLY_OPAQUE_H
#define COPPICE_SERVE_REPLY_OPAQUE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/str.h"

void opaque_encode(const char *text, size_t n, struct str *out);
// False, with nothing appended, for what was not encoded here.
bool opaque_decode(const char *s, size_t n, struct str *out);

#endif
