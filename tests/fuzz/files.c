// SPDX-License-Identifier: Apache-2.0
// Inputs that stand for files: parts with names, a folder to put them in, and files in memory for
// readers that need a path. Folders lie in memory too where the system offers that.
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"

static char folder[64];
static pid_t maker;

static bool is_mark(const uint8_t *p, size_t n) {
    return n >= 4 && p[0] == '=' && p[1] == '=' && p[3] == ':' &&
           ((p[2] >= 'A' && p[2] <= 'Z') || (p[2] >= 'a' && p[2] <= 'z'));
}

bool fuzz_has_parts(const uint8_t *data, size_t size) {
    return is_mark(data, size);
}

bool fuzz_part(const uint8_t **data, size_t *size, struct fuzz_part *part) {
    while (*size && !is_mark(*data, *size)) {
        (*data)++;
        (*size)--;
    }
    if (!*size)
        return false;
    size_t n = 4;
    while (n < *size && !is_mark(*data + n, *size - n))
        n++;
    *part = (struct fuzz_part){(char)(*data)[2], *data + 4, n - 4};
    *data += n;
    *size -= n;
    return true;
}

static int remove_one(const char *path, const struct stat *st, int kind, struct FTW *at) {
    (void)st;
    (void)kind;
    return at->level > 0 || kind == FTW_DP ? remove(path) : 0;
}

static int remove_inside(const char *path, const struct stat *st, int kind, struct FTW *at) {
    return at->level > 0 ? remove_one(path, st, kind, at) : 0;
}

// Only the process that made it: AFL++ forks.
static void remove_folder(void) {
    if (getpid() == maker)
        nftw(folder, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

const char *fuzz_folder(void) {
    if (folder[0])
        return folder;
    const char *place = getenv("TMPDIR");
    if (!place)
        place = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm";
    int n = snprintf(folder, sizeof folder, "%s/coppice-fuzz-XXXXXX", place);
    FUZZ_CHECK(n > 0 && n < (int)sizeof folder && mkdtemp(folder));
    maker = getpid();
    FUZZ_CHECK(atexit(remove_folder) == 0);
    return folder;
}

void fuzz_folder_write(const char *name, const uint8_t *data, size_t size) {
    char path[160];
    const char *slash = strchr(name, '/');
    if (slash) {
        snprintf(path, sizeof path, "%s/%.*s", folder, (int)(slash - name), name);
        mkdir(path, 0700);
    }
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    FUZZ_CHECK(f && fwrite(data, 1, size, f) == size);
    fclose(f);
}

void fuzz_folder_clear(void) {
    nftw(folder, remove_inside, 8, FTW_DEPTH | FTW_PHYS);
}

void fuzz_file_open(struct fuzz_file *f, const uint8_t *data, size_t size) {
    f->fd = memfd_create("fuzz", MFD_CLOEXEC);
    FUZZ_CHECK(f->fd >= 0 && write(f->fd, data, size) == (ssize_t)size);
    FUZZ_CHECK(lseek(f->fd, 0, SEEK_SET) == 0);
    snprintf(f->path, sizeof f->path, "/proc/self/fd/%d", f->fd);
}

void fuzz_file_close(struct fuzz_file *f) {
    close(f->fd);
    f->fd = -1;
}
