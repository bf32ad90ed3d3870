// SPDX-License-Identifier: Apache-2.0
// Whole files, with one-sentence errors: read-only mappings, small reads, and files that appear
// whole.
#ifndef COPPICE_BASE_FILE_H
#define COPPICE_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/err.h"
#include "base/str.h"

// A read-only mapping of a regular file. Zeroed is valid. The file must not shrink while it is
// mapped.
struct file_map {
    const unsigned char *data;
    size_t size;
    int fd;              // its descriptor plus 1; 0: none
    int64_t written, ns; // when it was written last
};

int file_map_open(struct file_map *m, const char *path, struct err *e);
void file_map_close(struct file_map *m);
// Whether the file is as it was when it was mapped, neither written to nor cut; one that was put in
// its place by renaming is another file.
bool file_map_unchanged(const struct file_map *m);

// Says that the mapping will be read once, front to back.
void file_map_stream(const struct file_map *m);
// Gives back the memory of data[0..bytes) where it lies in the mapping; true when it does. It
// is read from the file again when touched.
bool file_map_release(const struct file_map *m, const void *data, size_t bytes);

// Opens a regular file to be read that is this user's own: no other user owns it or may write to
// it. Links are not followed, and a pipe is not waited for. It becomes the owner's alone where
// others may read it. -1 and ERR_IO.
int file_open_own(const char *path, struct err *e);

// Raises the soft limit of descriptors to the hard one. How many there may be.
int file_raise_limit(void);

// Reads a whole file of at most `limit` bytes (also pipes; "-" is standard input).
int file_read(struct str *out, const char *path, size_t limit, struct err *e);

// Makes a folder and those above it that are missing, for their owner only. ERR_IO.
int file_make_folder(const char *path, struct err *e);

// Of the files of a folder that are called `prefix`, 16 hexadecimal digits and `suffix`, the newest
// `max` stay (by their times; utimes says that one is of use). What file_new_open left of one of
// them unfinished goes after a day. Where that cannot be, all stay.
void file_keep_newest(const char *folder, const char *prefix, const char *suffix, int max);

// A file that appears whole: written under another name in the same folder, brought to the disk,
// and renamed. Until then, and after a failure, what has the name stays as it was. It is its
// owner's alone (0600): many hold what users have said. A link of that name is replaced, not
// followed.
struct file_new {
    FILE *file;
    char *path, *temporary;
};

// ERR_IO, ERR_MEMORY: nothing is open.
// A new file PATH.tmp.PID.N to be read and written, its owner's alone or by the umask, and its name
// (malloc).
int file_temporary(FILE **out, char **name, const char *path, bool own, struct err *e);
int file_new_open(struct file_new *f, const char *path, struct err *e);
int file_new_write(struct file_new *f, const void *data, size_t n, struct err *e);
// Exactly one of these ends it. After an error of the first the temporary file is gone as well.
int file_new_close(struct file_new *f, struct err *e);
void file_new_abort(struct file_new *f);

#endif
