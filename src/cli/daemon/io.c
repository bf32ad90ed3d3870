// SPDX-License-Identifier: Apache-2.0
// Lines, ids on a stream and files of ids; see daemon.h.
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/vec.h"
#include "cli/daemon/daemon.h"

enum { IDS_MAX = 1 << 24, LINE_MAX_BYTES = 2048, PIECE = 1024 };

static void write_line(struct daemon *d, const char *before, const char *text) {
    struct str line = {0};
    str_printf(&line, "%s%s\n", before, text);
    if (!d->rc)
        d->rc = cli_print(&line, &d->said);
    str_fini(&line);
}

void daemon_say(struct daemon *d, const char *fmt, ...) {
    char text[LINE_MAX_BYTES];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    write_line(d, "", text);
}

void daemon_fail(struct daemon *d, const char *word, const char *fmt, ...) {
    char before[64], text[LINE_MAX_BYTES];
    struct err clean; // control characters and what is no UTF-8 are made harmless
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    err_set(&clean, 0, "%s", text);
    snprintf(before, sizeof before, "err %s: ", word);
    write_line(d, before, clean.text);
}

static void put_id(unsigned char *to, int32_t id) {
    uint32_t v = (uint32_t)id;
    for (int i = 0; i < 4; i++)
        to[i] = (unsigned char)(v >> (8 * i));
}

static int32_t get_id(const unsigned char *from) {
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)from[i] << (8 * i);
    return (int32_t)v;
}

static int write_all(int fd, const unsigned char *bytes, size_t n, struct err *e) {
    for (size_t at = 0; at < n;) {
        ssize_t wrote = write(fd, bytes + at, n - at);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote <= 0)
            return err_set(e, ERR_IO, "cannot write to the stream of ids: %s", strerror(errno));
        at += (size_t)wrote;
    }
    return 0;
}

int daemon_emit(struct daemon *d, const int32_t *ids, int64_t n, struct err *e) {
    unsigned char bytes[4 * PIECE];
    int rc = 0;
    for (int64_t at = 0; at < n && d->stream >= 0 && !rc; at += PIECE) {
        int64_t m = min_i64(n - at, PIECE);
        for (int64_t i = 0; i < m; i++)
            put_id(bytes + 4 * i, ids[at + i]);
        rc = write_all(d->stream, bytes, 4 * (size_t)m, e);
    }
    if (rc)
        d->stream = -1; // nobody reads it any more
    return rc;
}

void daemon_end_stream(struct daemon *d) {
    const int32_t end = -1;
    struct err e = {0};
    if (daemon_emit(d, &end, 1, &e))
        daemon_fail(d, "stream", "%s", e.text);
}

int daemon_read_ids(struct daemon_ids *out, const char *path, bool counted, struct err *e) {
    struct str bytes = {0};
    size_t head = counted ? 4 : 0;
    int rc = file_read(&bytes, path, 4 * (size_t)IDS_MAX + head, e);
    if (rc)
        goto out;
    const unsigned char *at = (const unsigned char *)bytes.data;
    int64_t n = bytes.len < head ? 0 : (int64_t)(bytes.len - head) / 4;
    if (n == 0 || (bytes.len - head) % 4 != 0)
        rc = err_set(e, ERR_FORMAT, "%s has %zu bytes, which is no list of 32-bit ids%s", path,
                     bytes.len, counted ? " behind their count" : "");
    else if (counted && (uint32_t)get_id(at) != n)
        rc = err_set(e, ERR_FORMAT, "%s says that it holds %u ids and holds %lld", path,
                     (uint32_t)get_id(at), (long long)n);
    if (!rc)
        rc = vec_reserve(&out->at, &out->cap, n, sizeof *out->at, e);
    for (int64_t i = 0; i < n && !rc; i++)
        out->at[i] = get_id(at + head + 4 * i);
    out->n = rc ? 0 : n;
out:
    str_fini(&bytes);
    return rc;
}

int daemon_write_ids(const char *path, const struct daemon_ids *ids, struct err *e) {
    // What was answered: for its owner only.
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "wb") : NULL;
    unsigned char bytes[4];
    if (!f) {
        err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return ERR_IO;
    }
    put_id(bytes, (int32_t)ids->n);
    bool ok = fwrite(bytes, 4, 1, f) == 1;
    for (int64_t i = 0; i < ids->n && ok; i++) {
        put_id(bytes, ids->at[i]);
        ok = fwrite(bytes, 4, 1, f) == 1;
    }
    if (fclose(f) == 0 && ok)
        return 0;
    int why = errno;
    remove(path);
    return err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(why));
}
