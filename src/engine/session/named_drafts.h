// SPDX-License-Identifier: Apache-2.0
// Drafts as they are named together: "auto,draft.gguf". Each is a file, a name, or the word auto;
// none alone is none.
#ifndef COPPICE_ENGINE_SESSION_NAMED_DRAFTS_H
#define COPPICE_ENGINE_SESSION_NAMED_DRAFTS_H

#include <stdbool.h>

#include "base/err.h"
#include "base/str.h"
#include "engine/session/session.h"

struct named_drafts {
    char *text;                     // that the items point into
    const char *item[PRICE_DRAFTS]; // [n] without auto
    int n;
    bool find; // auto is among them
};

// Reads a list; NULL or "": nothing is named. A file whose name is the whole text is that file,
// commas or not. ERR_USAGE: an item is empty, one is there twice, there are too many, or none has
// company; ERR_MEMORY.
int named_drafts_read(struct named_drafts *l, const char *text, struct err *e);
void named_drafts_fini(struct named_drafts *l); // zeroed is allowed

// Makes the items the session's drafts: besides o->draft, what was found where auto is among them
// (NULL: nothing), except where one of them is that very file. The list must stay.
void named_drafts_use(const struct named_drafts *l, struct session_options *o);

#endif
