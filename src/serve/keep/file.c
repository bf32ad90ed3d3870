// SPDX-License-Identifier: Apache-2.0
// Lines of a bounded file; see file.h.
#include "serve/keep/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct keep_file {
    char *path, *older;
    int64_t limit, size;
    int fd;
    bool torn; // it ends in a piece of a line
};

static int refuse_io(const char *path, struct err *e) {
    if (errno == ELOOP)
        return err_set(e, ERR_IO, "%s is a link: name the file itself", path);
    return err_set(e, ERR_IO, "%s: %s", path, strerror(errno));
}

// Makes the open file its owner's alone, for this process to write. What a crash has left of a line
// is ended.
static int take_file(int fd, const char *path, int64_t *size, struct err *e) {
    struct stat s;
    char last = '\n';
    if (fstat(fd, &s))
        return refuse_io(path, e);
    if (!S_ISREG(s.st_mode))
        return err_set(e, ERR_IO, "%s is not a regular file", path);
    if (s.st_uid != geteuid())
        return err_set(e, ERR_IO, "%s belongs to another user", path);
    if (flock(fd, LOCK_EX | LOCK_NB))
        return err_set(e, ERR_IO, "%s is written by another server: name another file", path);
    if ((s.st_mode & 077) && fchmod(fd, S_IRUSR | S_IWUSR))
        return refuse_io(path, e);
    *size = s.st_size;
    if (s.st_size > 0 && pread(fd, &last, 1, s.st_size - 1) != 1)
        return refuse_io(path, e);
    if (last != '\n' && write(fd, "\n", 1) != 1)
        return refuse_io(path, e);
    *size += last != '\n';
    return 0;
}

static int open_file(const char *path, int *fd, int64_t *size, struct err *e) {
    *fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
               S_IRUSR | S_IWUSR);
    int rc = *fd < 0 ? refuse_io(path, e) : take_file(*fd, path, size, e);
    if (rc && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    return rc;
}

int keep_file_open(struct keep_file **out, const char *path, int64_t limit, struct err *e) {
    struct keep_file *f = calloc(1, sizeof *f);
    size_t n = strlen(path) + sizeof ".1";
    if (!f)
        return err_set(e, ERR_MEMORY, "no memory for the name of a file");
    f->fd = -1;
    f->limit = limit;
    f->path = strdup(path);
    f->older = malloc(n);
    int rc = f->path && f->older ? 0 : err_set(e, ERR_MEMORY, "no memory for the name of a file");
    if (!rc) {
        snprintf(f->older, n, "%s.1", path);
        rc = open_file(path, &f->fd, &f->size, e);
    }
    if (rc)
        keep_file_close(f);
    else
        *out = f;
    return rc;
}

void keep_file_close(struct keep_file *f) {
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f->older);
    free(f);
}

// Goes on in the file that has the name now, or in a new one.
static int open_again(struct keep_file *f, struct err *e) {
    int fd;
    int64_t size;
    int rc = open_file(f->path, &fd, &size, e);
    if (rc)
        return rc;
    close(f->fd);
    f->fd = fd;
    f->size = size;
    f->torn = false;
    return 0;
}

// The full file gets its other name. Where that cannot be, it stays as it is.
static int begin_anew(struct keep_file *f, struct err *e) {
    if (rename(f->path, f->older))
        return refuse_io(f->older, e);
    int rc = open_again(f, e);
    if (rc && link(f->older, f->path) == 0) // unless another process has made one of that name
        (void)unlink(f->older);
    return rc;
}

// All of n bytes; *done: how many were written.
static int write_all(struct keep_file *f, const char *bytes, size_t n, size_t *done,
                     struct err *e) {
    for (*done = 0; *done < n;) {
        ssize_t k = write(f->fd, bytes + *done, n - *done);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return refuse_io(f->path, e);
        *done += (size_t)k;
    }
    return 0;
}

// What others have done to the file: its size where it was shortened, and a new one where it is not
// the one of this name any more, having been removed or given another name.
static int look_again(struct keep_file *f, struct err *e) {
    struct stat mine, named;
    if (fstat(f->fd, &mine))
        return refuse_io(f->path, e);
    if (mine.st_size < f->size) {
        f->size = mine.st_size;
        f->torn = false;
    }
    bool there = !lstat(f->path, &named);
    if (there && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev)
        return 0;
    if (!there && errno != ENOENT)
        return refuse_io(f->path, e);
    return open_again(f, e);
}

int keep_file_add(struct keep_file *f, const char *line, size_t n, struct err *e) {
    int64_t half = f->limit / 2, bytes = (int64_t)n;
    size_t done;
    if (bytes > half)
        return err_set(e, ERR_LIMIT, "%s: a line of %zu bytes is more than half of %lld", f->path,
                       n, (long long)f->limit);
    int rc = look_again(f, e);
    if (!rc && f->size + bytes > half)
        rc = begin_anew(f, e);
    if (!rc && f->torn)
        rc = write_all(f, "\n", 1, &done, e);
    if (rc)
        return rc;
    f->size += f->torn;
    f->torn = false;
    rc = write_all(f, line, n, &done, e);
    if (rc && done > 0 && ftruncate(f->fd, f->size)) {
        f->torn = true; // it cannot be cut: the next one begins a line of its own
        bytes = (int64_t)done;
    } else if (rc) {
        bytes = 0;
    }
    f->size += bytes;
    return rc;
}
