// SPDX-License-Identifier: Apache-2.0
// Sets of code points that are put together from ranges in any order. Errors are kept in the build.
#ifndef COPPICE_GRAMMAR_EXPRESSION_CHARS_H
#define COPPICE_GRAMMAR_EXPRESSION_CHARS_H

#include "grammar/expression/build.h"

// Zeroed: empty. Taken up by chars_class.
struct chars {
    struct build_chars *ranges;
    int64_t count, cap;
};

void chars_add(struct build *b, struct chars *set, const struct build_chars *ranges, size_t n);
void chars_invert(struct build *b, struct chars *set);
// One code point of the set (build_class), which is empty afterwards.
uint32_t chars_class(struct build *b, struct chars *set, enum build_coding coding);

#endif
