// SPDX-License-Identifier: Apache-2.0
// Fetching models from the Hugging Face Hub (HF_ENDPOINT) into its cache, with the draft that fits,
// and finding models that options name as OWNER/REPO:QUANT.
#ifndef COPPICE_CLI_HUB_PULL_H
#define COPPICE_CLI_HUB_PULL_H

#include "cli/cli.h"
#include "cli/hub/names.h"

struct hub_pull {
    struct hub_name name;
    bool as_draft;   // the name means a draft
    bool with_draft; // fetch a draft that fits, too, where there is one
    bool offline;    // take what the cache has
};

// Appends the path of the model's first file. What is not in the cache is fetched; before it a plan
// goes to standard error, then progress. One sentence for whatever fails; what was fetched stays,
// and the next call goes on there. ERR_CANCELLED after ctrl-C.
int hub_pull(const struct hub_pull *p, struct str *path, struct err *e);

// Replaces names of the Hub in the options and operands of a subcommand that name models by paths
// of the cache, fetching what is missing. A file of that name goes first.
int hub_resolve(struct cli_args *a, struct err *e);

// Paths in the cache that may be the draft of a model there, i from 0: appends one, or nothing
// where a repository has none; false: there is no i-th.
bool hub_cached_draft(const char *model, int i, struct str *path);

// Whether the network must not be used: --offline, or HF_HUB_OFFLINE.
bool hub_offline(const struct cli_args *a);

#endif
