// SPDX-License-Identifier: Apache-2.0
// A grammar (grammar/grammar.h) as the constraint of a reply. It may hold for the whole reply, or
// begin after a marker in the text, such as that of a tool call or the end of a block of
// reasoning; then text is free until the marker has been written, and free again where the grammar
// can go no further. Nothing here samples or depends on a tree.
#ifndef COPPICE_SPEC_CONSTRAINT_GRAMMAR_H
#define COPPICE_SPEC_CONSTRAINT_GRAMMAR_H

#include "grammar/grammar.h"
#include "spec/constraint/constraint.h"

enum { GRAMMAR_MARKER_BYTES = 63, GRAMMAR_TRIGGERS = 64 };

// Where free text ends. The marker is looked for in the reply's text, control tokens among it. One
// inside of a token whose rest the grammar does not allow does not count; a rest of blanks and line
// ends does.
struct grammar_trigger {
    const char *marker; // [n_marker], 1 to GRAMMAR_MARKER_BYTES bytes
    size_t n_marker;
    struct grammar *grammar; // of what follows; a reference is taken
    bool rest;               // it is all of the rest: once complete, only the end may follow
    bool first;              // the marker counts where only blanks stand before it in the reply
};

struct grammar_constraint {
    const struct tokenizer *tokenizer; // both borrowed, until the constraint is destroyed
    const struct grammar_vocab *vocab; // its
    int64_t model_vocab;               // token ids of the model; those beyond the tokenizer's stay
                                       // out
    // NULL, or what the reply must be from its first token on; a reference is taken. Then a trigger
    // counts only after `opening`.
    struct grammar *whole;
    // NULL, or the text of a token that may come first instead of what `whole` requires: free text
    // follows, until a trigger ends it. For replies that may begin with a block of reasoning. Where
    // no one token has this text it does not count.
    const char *opening;
    const struct grammar_trigger *triggers; // [n_triggers], copied
    int n_triggers;
    bool required; // free text may not end the reply before a trigger's grammar was completed
};

// ERR_USAGE, ERR_MEMORY, and what matchers may fail with.
int grammar_constraint_create(struct constraint **out, const struct grammar_constraint *o,
                              struct err *e);

#endif
