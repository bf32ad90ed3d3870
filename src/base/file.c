// SPDX-License-Identifier: Apache-2.0
// File access; see file.h. Mappings are private and never written; nothing here parses.
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/num.h"
#include "base/vec.h"

static int cannot(struct err *e, const char *what, const char *path) {
    int number = errno;
    const char *advice = number == ENOENT   ? "; check the path"
                         : number == EACCES ? "; check its permissions"
                         : number == ENOMEM ? "; free memory or raise the limit on it (ulimit -v)"
                                            : "";
    return err_set(e, number == ENOMEM ? ERR_MEMORY : ERR_IO, "cannot %s '%s': %s%s", what, path,
                   strerror(number), advice);
}

static int map_fd(struct file_map *m, int fd, const char *path, struct err *e) {
    struct stat st;
    if (fstat(fd, &st) < 0)
        return cannot(e, "examine", path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, ERR_IO, "'%s' is %s; name a regular file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "not a regular file");
    if (st.st_size == 0) {
        *m = (struct file_map){.data = (const unsigned char *)""};
        return 0;
    }
    void *data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (data == MAP_FAILED)
        return cannot(e, "map", path);
    *m = (struct file_map){data, (size_t)st.st_size, fd + 1, st.st_mtim.tv_sec, st.st_mtim.tv_nsec};
    return 0;
}

int file_map_open(struct file_map *m, const char *path, struct err *e) {
    *m = (struct file_map){0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); // a pipe must not block the open
    if (fd < 0)
        return cannot(e, "open", path);
    int rc = map_fd(m, fd, path, e);
    if (!m->fd)
        close(fd);
    return rc;
}

bool file_map_unchanged(const struct file_map *m) {
    struct stat st;
    return !m->fd || (fstat(m->fd - 1, &st) == 0 && (size_t)st.st_size == m->size &&
                      st.st_mtim.tv_sec == m->written && st.st_mtim.tv_nsec == m->ns);
}

void file_map_close(struct file_map *m) {
    if (m->size)
        munmap((void *)m->data, m->size);
    if (m->fd)
        close(m->fd - 1);
    *m = (struct file_map){0};
}

void file_map_stream(const struct file_map *m) {
    if (m->size)
        madvise((void *)m->data, m->size, MADV_SEQUENTIAL);
}

bool file_map_release(const struct file_map *m, const void *data, size_t bytes) {
    uintptr_t begin = (uintptr_t)data, end = begin + bytes, base = (uintptr_t)m->data;
    if (begin < base || end > base + m->size)
        return false;
    // Only whole pages: a neighbour's bytes may be in use. Advice that is refused costs nothing.
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    begin = round_up_size(begin, page);
    end = end / page * page;
    if (begin < end)
        madvise((void *)begin, end - begin, MADV_DONTNEED);
    return true;
}

int file_open_own(const char *path, struct err *e) {
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) {
        (void)cannot(e, "open", path);
        return -1;
    }
    const char *why = fstat(fd, &st)                     ? strerror(errno)
                      : !S_ISREG(st.st_mode)             ? "it is not a regular file"
                      : st.st_uid != geteuid()           ? "it is another user's"
                      : st.st_mode & (S_IWGRP | S_IWOTH) ? "other users may write to it"
                                                         : NULL;
    if (!why && st.st_mode & (S_IRGRP | S_IROTH))
        (void)fchmod(fd, st.st_mode & S_IRWXU); // best effort
    if (!why)
        return fd;
    close(fd);
    err_set(e, ERR_IO, "'%s' is not used: %s", path, why);
    return -1;
}

int file_raise_limit(void) {
    struct rlimit r;
    if (getrlimit(RLIMIT_NOFILE, &r))
        return 1024;
    rlim_t before = r.rlim_cur;
    r.rlim_cur = r.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &r))
        r.rlim_cur = before;
    return r.rlim_cur > 1 << 20 ? 1 << 20 : (int)r.rlim_cur;
}

static int read_fd(struct str *out, int fd, const char *path, size_t limit, struct err *e) {
    char buffer[16384];
    size_t total = 0;
    for (;;) {
        ssize_t n = read(fd, buffer, sizeof buffer);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return cannot(e, "read", path);
        if (n == 0)
            break;
        if ((size_t)n > limit - total)
            return err_set(e, ERR_LIMIT, "'%s' is longer than the %zu bytes allowed here", path,
                           limit);
        total += (size_t)n;
        str_append(out, buffer, (size_t)n);
    }
    str_append(out, "", 0);
    return out->failed ? err_set(e, ERR_MEMORY, "out of memory while reading '%s'", path) : 0;
}

int file_read(struct str *out, const char *path, size_t limit, struct err *e) {
    if (strcmp(path, "-") == 0)
        return read_fd(out, STDIN_FILENO, "standard input", limit, e);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return cannot(e, "open", path);
    int rc = read_fd(out, fd, path, limit, e);
    close(fd);
    return rc;
}

int file_make_folder(const char *path, struct err *e) {
    struct str part = {0};
    int rc = 0;
    for (const char *end = path; !rc && *end;) {
        end += strspn(end, "/");
        end += strcspn(end, "/");
        str_clear(&part);
        str_append(&part, path, (size_t)(end - path));
        if (part.failed)
            rc = err_set(e, ERR_MEMORY, "no memory for the name of folder '%s'", path);
        else if (mkdir(part.data, 0700) != 0 && errno != EEXIST)
            rc = cannot(e, "make the folder", part.data);
    }
    str_fini(&part);
    return rc;
}

struct aged {
    char name[128];
    struct timespec time;
};

static int newest_first(const void *a, const void *b) {
    const struct timespec *x = &((const struct aged *)a)->time,
                          *y = &((const struct aged *)b)->time;
    if (x->tv_sec != y->tv_sec)
        return x->tv_sec < y->tv_sec ? 1 : -1;
    return (x->tv_nsec < y->tv_nsec) - (x->tv_nsec > y->tv_nsec);
}

// What follows prefix, digits and suffix; NULL: it is called otherwise.
static const char *after_name(const char *name, const char *prefix, const char *suffix) {
    enum { DIGITS = 16 };
    size_t n = strlen(prefix), k = strlen(suffix);
    if (strncmp(name, prefix, n) != 0 || strspn(name + n, "0123456789abcdef") != DIGITS ||
        strncmp(name + n + DIGITS, suffix, k) != 0)
        return NULL;
    return name + n + DIGITS + k;
}

void file_keep_newest(const char *folder, const char *prefix, const char *suffix, int max) {
    enum { DAY = 24 * 60 * 60 };
    DIR *d = opendir(folder);
    struct aged *list = NULL, one;
    int64_t n = 0, cap = 0;
    struct stat st;
    for (struct dirent *f; d && (f = readdir(d));) {
        const char *end = after_name(f->d_name, prefix, suffix);
        if (!end || strlen(f->d_name) >= sizeof one.name ||
            fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) || !S_ISREG(st.st_mode))
            continue;
        strcpy(one.name, f->d_name);
        one.time = st.st_mtim;
        if (!strncmp(end, ".tmp.", 5) && time(NULL) - st.st_mtim.tv_sec > DAY)
            (void)unlinkat(dirfd(d), f->d_name, 0);
        if (!*end && vec_reserve(&list, &cap, n + 1, sizeof *list, NULL) == 0)
            list[n++] = one;
    }
    if (n > max)
        qsort(list, (size_t)n, sizeof *list, newest_first);
    for (int64_t i = max; i < n; i++)
        (void)unlinkat(dirfd(d), list[i].name, 0);
    free(list);
    if (d)
        closedir(d);
}

enum { NAMES = 1000 }; // that are tried

static void forget(struct file_new *f) {
    free(f->path);
    free(f->temporary);
    *f = (struct file_new){0};
}

int file_temporary(FILE **out, char **name, const char *path, bool own, struct err *e) {
    size_t room = strlen(path) + 48;
    int fd = -1;
    *out = NULL;
    *name = malloc(room);
    if (!*name)
        return err_set(e, ERR_MEMORY, "%s: not enough memory to write the file", path);
    for (int i = 0; i < NAMES && fd < 0; i++) {
        snprintf(*name, room, "%s.tmp.%ld.%d", path, (long)getpid(), i);
        fd = open(*name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, own ? 0600 : 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    *out = fd >= 0 ? fdopen(fd, "w+b") : NULL;
    if (*out)
        return 0;
    int rc = err_set(e, ERR_IO, "%s cannot be created: %s: choose a folder that can be written",
                     path, strerror(errno));
    if (fd >= 0) {
        close(fd);
        unlink(*name);
    }
    free(*name);
    *name = NULL;
    return rc;
}

int file_new_open(struct file_new *f, const char *path, struct err *e) {
    *f = (struct file_new){.path = strdup(path)};
    int rc = f->path ? file_temporary(&f->file, &f->temporary, path, true, e)
                     : err_set(e, ERR_MEMORY, "%s: not enough memory to write the file", path);
    if (rc)
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
