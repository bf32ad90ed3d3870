// SPDX-License-Identifier: Apache-2.0
// See folders.h. The specification ignores variables that hold no absolute path.
#include "cli/folders.h"

#include <stdlib.h>

static void below(struct str *out, const char *variable, const char *otherwise) {
    const char *own = getenv(variable), *home = getenv("HOME");
    if (own && own[0] == '/')
        str_printf(out, "%s/coppice", own);
    else if (home && home[0] == '/')
        str_printf(out, "%s/%s/coppice", home, otherwise);
}

void folders_state(struct str *out) {
    below(out, "XDG_STATE_HOME", ".local/state");
}

void folders_cache(struct str *out) {
    below(out, "XDG_CACHE_HOME", ".cache");
}
