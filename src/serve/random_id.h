// SPDX-License-Identifier: Apache-2.0
// Names that nobody can guess and that no restart repeats, and seeds, from the system's generator.
#ifndef COPPICE_SERVE_RANDOM_ID_H
#define COPPICE_SERVE_RANDOM_ID_H

#include <stdint.h>

enum { RANDOM_ID = 40 };

// "chatcmpl-" and 24 hexadecimal digits: prefix (at most 12 bytes) with 96 random bits.
void random_id(char out[RANDOM_ID], const char *prefix);

uint64_t random_seed(void);

#endif
