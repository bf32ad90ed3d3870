// SPDX-License-Identifier: Apache-2.0
// A file that grows by whole lines within a bound. It is its owner's alone (0600), one process
// writes it at a time, and a line is there or it is not: after a failed write what came of it is
// cut off, and what a crash has left of one is ended when the file is opened again, so that lines
// before and after stay whole. When it holds half of the bound it becomes PATH.1, in place of the
// one that had this name, and begins anew.
#ifndef COPPICE_SERVE_KEEP_FILE_H
#define COPPICE_SERVE_KEEP_FILE_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct keep_file;

// Opens a file or makes it. limit: bytes of PATH and PATH.1 together. ERR_IO: not a regular file,
// a link, another user's, written by another process, what the system says; ERR_MEMORY.
int keep_file_open(struct keep_file **out, const char *path, int64_t limit, struct err *e);
void keep_file_close(struct keep_file *f); // NULL is allowed

// Adds a line of n bytes, its end among them. ERR_IO, ERR_LIMIT: it is longer than half of the
// bound. Nothing of it stays then.
int keep_file_add(struct keep_file *f, const char *line, size_t n, struct err *e);

#endif
