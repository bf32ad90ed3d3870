// SPDX-License-Identifier: Apache-2.0
// What a model will take in memory, and whether a draft fits it, known from the beginnings of their
// files: a file of the true size is put together of what has come and of nothing else, which the
// engine's own dry load reads.
#ifndef COPPICE_CLI_HUB_PLAN_H
#define COPPICE_CLI_HUB_PLAN_H

#include "cli/hub/remote.h"
#include "engine/session/plan.h"

// Some files of a repository that belong together. Zeroed is valid.
struct hub_set {
    struct hub_name name;
    struct hub_files files;
    struct hub_choice choice;
    struct hub_download *at; // [choice.n]
};

// Puts the first `head` bytes (or what has come) of each file into a folder, as files of their full
// sizes. ERR_IO, ERR_MEMORY.
int hub_plan_files(const struct hub_set *s, const char *folder, int64_t head, struct err *e);
// Reads the description of the model in that folder: ERR_FORMAT where it is not complete, or wrong.
int hub_plan_read(const struct hub_set *s, const char *folder, struct err *e);
// Whether the model has a block that predicts further tokens, and that can be used; if not, why is
// said.
bool hub_plan_has_block(const struct hub_set *s, const char *folder);
// The plan of a model, and of a draft where there is one: errors as session_measure.
int hub_plan_measure(const struct hub_set *model, const char *folder, const struct hub_set *draft,
                     const char *draft_folder, struct memory_plan *out, struct err *e);
// Says in one line how much memory it takes.
void hub_plan_say(const struct memory_plan *p);

#endif
