// SPDX-License-Identifier: Apache-2.0
// A folder for the files of one test; see temp_folder.h.
#include "support/temp_folder.h"

#include <ftw.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[PATH_MAX];

static int remove_one(const char *path, const struct stat *s, int kind, struct FTW *f) {
    (void)s;
    (void)kind;
    (void)f;
    return remove(path);
}

void temp_folder_remove(const char *path) {
    (void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

static void leave(void) {
    if (!chdir("/"))
        temp_folder_remove(folder);
}

int temp_folder_enter(const char *test, struct err *e) {
    const char *place = getenv("TMPDIR");
    char whole[PATH_MAX]; // so that it is found again from elsewhere
    if (!realpath(place && *place ? place : "/tmp", whole))
        return err_set(e, ERR_IO, "%s: no such folder (TMPDIR)", place);
    int n = snprintf(folder, sizeof folder, "%s/coppice-%s-XXXXXX", whole, test);
    if (n >= (int)sizeof folder || !mkdtemp(folder))
        return err_set(e, ERR_IO, "%s: cannot be made (TMPDIR)", folder);
    if (atexit(leave) || chdir(folder)) {
        temp_folder_remove(folder);
        return err_set(e, ERR_IO, "%s: cannot be entered", folder);
    }
    return 0;
}
