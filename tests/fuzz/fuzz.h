// SPDX-License-Identifier: Apache-2.0
// What a fuzz target implements. The driver calls fuzz_one twice with every input: once as it is,
// and once with one allocation of ours failing, chosen by the input. A target frees all it makes,
// returns normally from every error, and uses FUZZ_CHECK for what must hold.
#ifndef COPPICE_TESTS_FUZZ_FUZZ_H
#define COPPICE_TESTS_FUZZ_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// fragile: an allocation will fail, so ERR_MEMORY is no finding.
void fuzz_one(const uint8_t *data, size_t size, bool fragile);

// Called once before the first input, with no allocation failing.
void fuzz_setup(void);

#define FUZZ_CHECK(x) ((x) ? (void)0 : __builtin_trap())

#endif
