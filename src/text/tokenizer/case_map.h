// SPDX-License-Identifier: Apache-2.0
// The few case mappings that give more than one code point; for norm.c.
#ifndef COPPICE_TEXT_TOKENIZER_CASE_MAP_H
#define COPPICE_TEXT_TOKENIZER_CASE_MAP_H

#include "text/tokenizer/norm.h"

// The NORM_CASE_MAX code points, 0 behind the last, that code becomes; NULL when it is no special
// one.
const uint32_t *norm_special_case(uint32_t code, enum norm_case how);

#endif
