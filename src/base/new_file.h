// SPDX-License-Identifier: Apache-2.0
// Files that appear whole: written under another name in the same folder, brought to the disk, and
// renamed. Until then, and after a failure, what has the name stays as it was. They are their
// owner's alone (0600): many hold what users have said. A link of that name is replaced, not
// followed.
#ifndef COPPICE_BASE_NEW_FILE_H
#define COPPICE_BASE_NEW_FILE_H

#include <stddef.h>
#include <stdio.h>

#include "base/err.h"

struct file_new {
    FILE *file;
    char *path, *temporary;
};

// ERR_IO, ERR_MEMORY: nothing is open.
int file_new_open(struct file_new *f, const char *path, struct err *e);
int file_new_write(struct file_new *f, const void *data, size_t n, struct err *e);
// Exactly one of these ends it. After an error of the first the temporary file is gone as well.
int file_new_close(struct file_new *f, struct err *e);
void file_new_abort(struct file_new *f);

#endif
