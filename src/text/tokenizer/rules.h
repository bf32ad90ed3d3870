// SPDX-License-Identifier: Apache-2.0
// The table of pre-tokenisers: which expressions, in which stages, a name in `tokenizer.ggml.pre`
// stands for, and what the name says beside them. It runs no expression.
#ifndef COPPICE_TEXT_TOKENIZER_RULES_H
#define COPPICE_TEXT_TOKENIZER_RULES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"
#include "text/tokenizer/ascii.h"

enum { SPLIT_MAX_STAGES = 6 };

struct split_stage {
    const char *expression;
    const struct split_ascii *ascii; // the same for ASCII text, or NULL
};

struct split_rule {
    const char *names; // one or more, separated by a space; the first is the rule's own
    struct split_stage stage[SPLIT_MAX_STAGES]; // up to the first without an expression
    bool whole_pieces;                          // a piece that is a token is not merged
    bool add_bos;                               // the default where the file is silent
};

// The rule of a name. ERR_UNSUPPORTED (and *out NULL) for one that is not in the table, with the
// names that are.
int split_rule_find(const struct split_rule **out, const char *name, size_t n, struct err *e);

#endif
