// SPDX-License-Identifier: Apache-2.0
// Whether values that come from outside are finite numbers, by their exponents alone: a state of
// gigabytes is looked through at the speed of memory.
#ifndef COPPICE_FORMATS_QUANT_FINITE_H
#define COPPICE_FORMATS_QUANT_FINITE_H

#include <stdbool.h>
#include <stdint.h>

// n values at p, which need not be aligned: binary32, binary16 and bfloat16.
bool finite_f32(const void *p, int64_t n);
bool finite_f16(const void *p, int64_t n);
bool finite_bf16(const void *p, int64_t n);

#endif
