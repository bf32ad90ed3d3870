// SPDX-License-Identifier: Apache-2.0
// What clients put in front of their instructions that changes from request to request and tells
// the model nothing: left in a prompt it would be different from its first tokens on each time, and
// all of it would have to be read again.
#ifndef COPPICE_SERVE_CONVERSATION_NOISE_H
#define COPPICE_SERVE_CONVERSATION_NOISE_H

#include <stddef.h>

// Bytes of such lines at the beginning of a text, their line ends among them.
size_t noise_length(const char *s, size_t n);

#endif
