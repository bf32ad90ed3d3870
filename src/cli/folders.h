// SPDX-License-Identifier: Apache-2.0
// The user's folders, as the XDG base directory specification names them.
#ifndef COPPICE_CLI_FOLDERS_H
#define COPPICE_CLI_FOLDERS_H

#include "base/str.h"

// Appends "coppice" below $XDG_STATE_HOME, or .local/state in the home folder: what belongs to a
// user and is not worth a backup. Nothing where there is no home.
void folders_state(struct str *out);
// The same below $XDG_CACHE_HOME, or .cache: what can be made again.
void folders_cache(struct str *out);

#endif
