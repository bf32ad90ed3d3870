// SPDX-License-Identifier: Apache-2.0
// Drafts that nobody named: the block in the target's own file that predicts further tokens, and
// files next to it. Each is measured with the target as if it had been named; what was found, and
// why something is not used, goes to the session's notes.
#ifndef COPPICE_ENGINE_SESSION_NEAR_DRAFT_H
#define COPPICE_ENGINE_SESSION_NEAR_DRAFT_H

#include <stdbool.h>

#include "base/str.h"
#include "engine/session/session.h"

enum { NEAR_DRAFTS_MAX = 64 };

struct near_drafts {
    const struct session_options *o; // of the target; its draft is not looked at
    const char *where;               // the files lie that are looked at now, for sentences
    bool own;   // they come with the program: most are for other models, which is not said
    bool quiet; // nothing is said
    // NULL, or whether a file is a draft by its name: of one that cannot be read that is said then.
    bool (*by_name)(const char *path);
    bool of_target;              // the target's own block can be used
    bool failed;                 // options make no sense: nothing is chosen
    char *path[NEAR_DRAFTS_MAX]; // [n] that fit
    int n;
};

// Looks at the target's own file. ERR_USAGE: of options for its block.
int near_draft_in_target(struct near_drafts *d, struct err *e);
// Looks at a file, or at the GGUF files of a folder (one that cannot be read has no drafts).
// ERR_MEMORY; ERR_USAGE: of options for drafts, for which none is left out.
int near_draft_file(struct near_drafts *d, const char *path, struct err *e);
int near_draft_folder(struct near_drafts *d, const char *folder, struct err *e);
// The same for the folder that the target lies in.
int near_draft_beside(struct near_drafts *d, struct err *e);
// What is to be used: DRAFT_OF_TARGET, the only file that fits, whose path is copied to *path, or
// NULL: none, or several. Frees what d holds, in any case. ERR_MEMORY.
int near_draft_choose(struct near_drafts *d, struct str *path, const char **draft, struct err *e);

#endif
