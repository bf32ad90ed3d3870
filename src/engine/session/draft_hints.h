// SPDX-License-Identifier: Apache-2.0
// What can be seen of a draft that loads and yet may guess badly: it was made for another version
// of the target, with another chat template, with other tokens, or reads the wrong layers. One
// sentence each; docs/drafts.md has what cannot be seen.
#ifndef COPPICE_ENGINE_SESSION_DRAFT_HINTS_H
#define COPPICE_ENGINE_SESSION_DRAFT_HINTS_H

#include <stdbool.h>

#include "formats/gguf/gguf.h"
#include "models/draft/draft.h"

struct draft_hints {
    const struct gguf *target; // open, and its path
    const char *model;
    const char *draft; // path
    const struct draft *loaded;
    bool others; // it is one of several drafts, which one of the options may be for
    int layers;  // of the target
    const struct dflash_options *dflash;     // those that were given
    const struct draft_vocab_options *vocab; // the same
    void (*note)(void *arg, const char *sentence);
    void *arg;
};

// Of a draft in the target's own file only options are said that it does not have.
void draft_hints(const struct draft_hints *h);

#endif
