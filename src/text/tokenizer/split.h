// SPDX-License-Identifier: Apache-2.0
// Pre-tokenisation: cuts text into the pieces inside which byte pairs may merge, by the regular
// expressions that the name in `tokenizer.ggml.pre` stands for (rules.c). split.c is the only
// file that uses PCRE2.
#ifndef COPPICE_TEXT_TOKENIZER_SPLIT_H
#define COPPICE_TEXT_TOKENIZER_SPLIT_H

#include <stdbool.h>
#include <stddef.h>

#include "base/err.h"

struct split;
struct split_rule;

// ERR_UNSUPPORTED for a name that is not in the table, with the names that are.
int split_create(struct split **out, const char *pre, size_t n_pre, struct err *e);
void split_destroy(struct split *s);

const struct split_rule *split_rule_of(const struct split *s);

// Match state of one caller; many may use one split at a time.
struct split_job;
int split_begin(struct split_job **out, const struct split *s, struct err *e);
void split_end(struct split_job *j);
// Leaves every match to PCRE2 from now on: for tests of what finds ASCII matches without it.
void split_expressions_only(struct split_job *j);

// Called for each piece in order; pieces are not empty and cover the text without gaps.
// Non-zero stops the split, which returns it.
typedef int split_piece_fn(void *arg, const char *piece, size_t n, struct err *e);

// Splits text[0..n), which must be valid UTF-8. Stage k + 1 sees every piece of stage k as a
// text of its own. ERR_LIMIT when an expression needs more than linear work.
int split_text(struct split_job *j, const char *text, size_t n, split_piece_fn *fn, void *arg,
               struct err *e);

#endif
