// SPDX-License-Identifier: Apache-2.0
// Writing files that appear whole; see new_file.h.
#include "base/new_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { NAMES = 1000 }; // that are tried

static void forget(struct file_new *f) {
    free(f->path);
    free(f->temporary);
    *f = (struct file_new){0};
}

int file_new_open(struct file_new *f, const char *path, struct err *e) {
    size_t room = strlen(path) + 48;
    int fd = -1;
    *f = (struct file_new){.path = strdup(path), .temporary = malloc(room)};
    if (!f->path || !f->temporary) {
        forget(f);
        return err_set(e, ERR_MEMORY, "%s: not enough memory to write the file", path);
    }
    for (int i = 0; i < NAMES && fd < 0; i++) {
        snprintf(f->temporary, room, "%s.tmp.%ld.%d", path, (long)getpid(), i);
        fd = open(f->temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    f->file = fd >= 0 ? fdopen(fd, "wb") : NULL;
    if (f->file)
        return 0;
    int rc = err_set(e, ERR_IO, "%s cannot be created: %s: choose a folder that can be written",
                     path, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(f->temporary);
    }
    forget(f);
    return rc;
}

static int cannot_write(const struct file_new *f, struct err *e) {
    return err_set(e, ERR_IO, "%s cannot be written: %s", f->path, strerror(errno));
}

int file_new_write(struct file_new *f, const void *data, size_t n, struct err *e) {
    return fwrite(data, 1, n, f->file) == n ? 0 : cannot_write(f, e);
}

void file_new_abort(struct file_new *f) {
    fclose(f->file);
    unlink(f->temporary);
    forget(f);
}

// The new name is on the disk when its folder is. Not all file systems can do that.
static void sync_folder(const char *path) {
    const char *slash = strrchr(path, '/');
    char *folder = slash ? strndup(path, slash == path ? 1 : (size_t)(slash - path)) : strdup(".");
    int fd = folder ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (fd >= 0) {
        (void)fsync(fd);
        close(fd);
    }
    free(folder);
}

int file_new_close(struct file_new *f, struct err *e) {
    int rc = fflush(f->file) || fsync(fileno(f->file)) ? cannot_write(f, e) : 0;
    if (fclose(f->file) && !rc)
        rc = cannot_write(f, e);
    if (!rc && rename(f->temporary, f->path))
        rc = cannot_write(f, e);
    if (rc)
        unlink(f->temporary);
    else
        sync_folder(f->path);
    forget(f);
    return rc;
}
