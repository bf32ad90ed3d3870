// SPDX-License-Identifier: Apache-2.0
// An end to reasoning: after that many tokens of it the text that closes a block is the only one
// that may come, token by token, so that it is part of the reply like what the model says itself.
// Anything else stays allowed, or what another constraint allows. It parts reasoning from content
// by the family's marks, as text/chat/reasoning.h does.
#ifndef COPPICE_SPEC_CONSTRAINT_THINKING_LIMIT_H
#define COPPICE_SPEC_CONSTRAINT_THINKING_LIMIT_H

#include "spec/constraint/constraint.h"
#include "text/chat/reasoning.h"
#include "text/tokenizer/tokenizer.h"

struct thinking_limit {
    const struct tokenizer *t; // borrowed, for as long as the constraint exists
    enum reasoning_family family;
    bool inside;         // the prompt ends in an open block
    int64_t tokens;      // of reasoning at most, over all blocks of a reply, >= 0
    const char *closing; // text that ends a block: the family's mark, with blanks around it
    size_t n_closing;
};

// One reference for the caller. inner: NULL, or what the reply obeys besides; it must allow the
// closing text wherever it allows reasoning, and is kept. ERR_UNSUPPORTED: the family has no marks,
// or the vocabulary no tokens for the closing text; ERR_MEMORY.
int thinking_limit_create(struct constraint **out, const struct thinking_limit *o,
                          struct constraint *inner, struct err *e);

#endif
