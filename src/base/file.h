// SPDX-License-Identifier: Apache-2.0
// Whole files: read-only mappings and small reads, with one-sentence errors.
#ifndef COPPICE_BASE_FILE_H
#define COPPICE_BASE_FILE_H

#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

// A read-only mapping of a regular file. Zeroed is valid. The file must not shrink meanwhile.
struct file_map {
    const unsigned char *data;
    size_t size;
};

int file_map_open(struct file_map *m, const char *path, struct err *e);
void file_map_close(struct file_map *m);

// Reads a whole file of at most `limit` bytes (also pipes; "-" is standard input).
int file_read(struct str *out, const char *path, size_t limit, struct err *e);

#endif
