// SPDX-License-Identifier: Apache-2.0
// A growable list of token ids, with the bounds of the work that fills it. It does not depend on
// vocabularies.
#ifndef COPPICE_TEXT_TOKENIZER_TOKEN_LIST_H
#define COPPICE_TEXT_TOKENIZER_TOKEN_LIST_H

#include <stddef.h>
#include <stdint.h>

#include "base/cancel.h"
#include "base/err.h"

// A zeroed list is valid, empty and without bounds.
struct token_list {
    int32_t *ids;
    size_t count;
    int64_t cap;
    size_t max;                        // more tokens than that many are ERR_LIMIT; 0: any number
    const struct cancel_check *cancel; // whether they are still needed
};

// Appends one id. ERR_MEMORY and ERR_LIMIT leave the list as it was.
int token_list_push(struct token_list *l, int32_t id, struct err *e);

// Bounds the tokens of a prompt for a context of `ctx` tokens: a text that is far too long is
// refused at a glance (tokenizer_encode), and of one that is not it is known how long it is.
void token_list_bound(struct token_list *l, int64_t ctx);

// Frees the ids and leaves the list empty.
void token_list_fini(struct token_list *l);

#endif
