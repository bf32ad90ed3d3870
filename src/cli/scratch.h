// SPDX-License-Identifier: Apache-2.0
// A folder below TMPDIR for files that are of use while a program runs. It is locked as long, so
// that the next program can tell the one that a killed program left, and removes it.
#ifndef COPPICE_CLI_SCRATCH_H
#define COPPICE_CLI_SCRATCH_H

#include "base/err.h"

// Zeroed is closed.
struct scratch {
    char path[1024];
    int lock; // of the folder, and 1
};

// Makes the folder; before that removes those that nobody holds. ERR_USAGE, ERR_IO.
int scratch_open(struct scratch *s, struct err *e);
// Removes it with the files in it and in its folders.
void scratch_close(struct scratch *s);

#endif
