// SPDX-License-Identifier: Apache-2.0
// What a reply is made of, in its order: reasoning, text, calls of tools. Each is an item with a
// beginning, pieces and an end; interfaces number and name them as they like. It holds values and
// writes nothing.
#ifndef COPPICE_SERVE_REPLY_ITEMS_H
#define COPPICE_SERVE_REPLY_ITEMS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "serve/random_id.h"
#include "serve/reply/json.h"

enum answer_item_kind { ITEM_REASONING, ITEM_TEXT, ITEM_CALL };

struct answer_item {
    enum answer_item_kind kind;
    int index; // among the items of its choice
    int call;  // of ITEM_CALL: index among the calls
    bool open;
    bool custom;        // of ITEM_CALL: its text is free, not JSON
    bool broken;        // of ITEM_CALL: the reply ended within it
    char id[RANDOM_ID]; // of ITEM_CALL: what results name it by
    struct str name;    // of ITEM_CALL: the tool's
    // Of words where log-probabilities are asked for and items carry them: the tokens that they
    // came of, by their index in the reply.
    int64_t first_token, tokens;
    // What came of it: words, or the arguments of a call. Empty unless its interface keeps text.
    struct str text;
};

// A piece of an item.
struct answer_piece {
    struct answer_text text;                // may be empty where there are log-probabilities
    const struct answer_logprobs *logprobs; // [n_logprobs] NULL: none
    int n_logprobs;
};

// Zeroed is valid.
struct answer_items {
    struct answer_item *at;
    int n, cap, calls;
    bool failed; // memory was short
};
void answer_items_fini(struct answer_items *l);

// The newest item while it is open; NULL: none is.
struct answer_item *answer_items_open(struct answer_items *l);
// Begins an item, with no other open. NULL with l->failed set when memory is short. It stays where
// it is until the next one begins.
struct answer_item *answer_items_begin(struct answer_items *l, enum answer_item_kind kind);

#endif
