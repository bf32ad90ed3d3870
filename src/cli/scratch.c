// SPDX-License-Identifier: Apache-2.0
// Folders for a while; see scratch.h. The lock is one of the folder itself (flock), which ends with
// the process however that ends. Another user's folders are left alone.
#include "cli/scratch.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

static const char prefix[] = "coppice-scratch-";

// Removes what lies in a folder that is open, which is closed, and in folders of it.
static void empty(int folder, int depth) {
    DIR *d = fdopendir(folder);
    if (!d)
        close(folder);
    for (struct dirent *f; d && (f = readdir(d));) {
        if (!strcmp(f->d_name, ".") || !strcmp(f->d_name, "..") ||
            !unlinkat(folder, f->d_name, 0) || !depth)
            continue;
        int inner = openat(folder, f->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (inner >= 0)
            empty(inner, depth - 1);
        unlinkat(folder, f->d_name, AT_REMOVEDIR);
    }
    if (d)
        closedir(d);
}

// The descriptor of a folder of this user's that is now locked and still has its name, or -1.
// fresh: also where a file system has no locks.
static int take(int parent, const char *name, bool fresh) {
    struct stat mine, named;
    int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return -1;
    if (!fstat(fd, &mine) && mine.st_uid == geteuid() &&
        (!flock(fd, LOCK_EX | LOCK_NB) || (fresh && errno != EWOULDBLOCK)) &&
        !fstatat(parent, name, &named, AT_SYMLINK_NOFOLLOW) && named.st_ino == mine.st_ino)
        return fd;
    close(fd);
    return -1;
}

// Folders that killed programs left.
static void sweep(const char *place) {
    DIR *d = opendir(place);
    for (struct dirent *f; d && (f = readdir(d));) {
        int fd =
            strncmp(f->d_name, prefix, sizeof prefix - 1) ? -1 : take(dirfd(d), f->d_name, false);
        int inner = fd < 0 ? -1 : openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (inner >= 0) {
            empty(inner, 1);
            unlinkat(dirfd(d), f->d_name, AT_REMOVEDIR);
        }
        if (fd >= 0)
            close(fd);
    }
    if (d)
        closedir(d);
}

int scratch_open(struct scratch *s, struct err *e) {
    enum { TRIES = 8 }; // a folder may be taken for one that was left before it is locked
    const char *place = getenv("TMPDIR");
    place = place && place[0] ? place : "/tmp";
    sweep(place);
    for (int i = 0; i < TRIES && !s->lock; i++) {
        size_t n = (size_t)snprintf(s->path, sizeof s->path, "%s/%sXXXXXX", place, prefix);
        if (n >= sizeof s->path)
            return err_set(e, ERR_USAGE, "TMPDIR names a path of more than 1,000 bytes");
        if (!mkdtemp(s->path))
            break;
        s->lock = take(AT_FDCWD, s->path, true) + 1;
    }
    return s->lock ? 0
                   : err_set(e, ERR_IO,
                             "cannot make a folder in %s: %s; set TMPDIR to one that can be "
                             "written",
                             place, strerror(errno));
}

void scratch_close(struct scratch *s) {
    int inner = s->lock ? openat(s->lock - 1, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (inner >= 0)
        empty(inner, 1);
    if (s->lock) {
        rmdir(s->path);
        close(s->lock - 1);
    }
    *s = (struct scratch){0};
}
