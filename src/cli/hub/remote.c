// SPDX-License-Identifier: Apache-2.0
// Requests to the Hub and files that grow in the cache; see remote.h. Answers are bounded before
// they are read as JSON.
#include "cli/hub/remote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/num.h"
#include "cli/cli.h"

enum {
    LIST_MAX = 32 << 20, // bytes of a list of files
    LIST_VALUES = 1 << 19,
    LIST_OBJECTS = 1 << 17,
    TOKEN_MAX = 4096,
    READ_BYTES = 1 << 20
};

static void trim(struct str *s) {
    while (s->len && strchr(" \t\r\n", s->data[s->len - 1]))
        s->data[--s->len] = '\0';
}

static int read_token(struct str *out, struct err *e) {
    const char *none = getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN"), *token = getenv("HF_TOKEN");
    const char *file = getenv("HF_TOKEN_PATH");
    struct str path = {0};
    if (none && none[0] && strcmp(none, "0") != 0)
        return 0;
    if (!token || !token[0])
        token = getenv("HUGGING_FACE_HUB_TOKEN");
    if (token && token[0]) {
        str_puts(out, token);
    } else if (file && file[0]) {
        str_puts(&path, file);
    } else {
        hub_home(&path);
        str_puts(&path, "/token");
    }
    if (path.len && !path.failed && access(path.data, R_OK) == 0)
        file_read(out, path.data, TOKEN_MAX, NULL);
    str_fini(&path);
    trim(out);
    for (size_t i = 0; i < out->len; i++)
        if ((unsigned char)out->data[i] <= ' ' || out->data[i] == 127)
            return err_set(e, ERR_USAGE,
                           "the token for the Hub (HF_TOKEN or its file) holds a blank or control "
                           "character");
    return 0;
}

int hub_open(struct hub *h, struct err *e) {
    const char *endpoint = getenv("HF_ENDPOINT");
    str_puts(&h->endpoint, endpoint && endpoint[0] ? endpoint : "https://huggingface.co");
    while (h->endpoint.len && h->endpoint.data[h->endpoint.len - 1] == '/')
        h->endpoint.data[--h->endpoint.len] = '\0';
    int rc = read_token(&h->token, e);
    if (!rc && (h->endpoint.failed || h->token.failed))
        rc = err_set(e, ERR_MEMORY, "no memory for an address");
    return rc ? rc : transfer_open(&h->t, e);
}

void hub_close(struct hub *h) {
    transfer_close(h->t);
    str_fini(&h->endpoint);
    str_fini(&h->token);
    *h = (struct hub){0};
}

static void put_quoted(struct str *out, const char *s, bool slashes) {
    for (; *s; s++)
        if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~", *s) ||
            (slashes && *s == '/'))
            str_putc(out, *s);
        else
            str_printf(out, "%%%02X", (unsigned char)*s);
}

static const char *token_of(const struct hub *h) {
    return h->token.len ? h->token.data : NULL;
}

// What an answer means for a repository. e holds the sentence of the transfer.
static int explain(const struct hub *h, const struct hub_name *n, const struct transfer_job *j,
                   int rc, struct err *e) {
    const char *at = h->endpoint.data;
    if (rc != ERR_IO)
        return rc;
    if (!strcmp(j->code, "GatedRepo"))
        return err_set(e, rc, "%s is gated: request access at %s/%s, then give a token (HF_TOKEN)",
                       n->repo, at, n->repo);
    if (!strcmp(j->code, "RevisionNotFound"))
        return err_set(e, rc, "%s has no revision %s", n->repo, n->revision);
    if (j->status == 401 && token_of(h))
        return err_set(e, rc,
                       "%s does not let this token read %s: it may not exist, or the token "
                       "(HF_TOKEN or its file) may be wrong",
                       at, n->repo);
    if (j->status == 401)
        return err_set(e, rc,
                       "%s does not exist at %s or is private: check the name, or give a "
                       "token (HF_TOKEN)",
                       n->repo, at);
    if (j->status == 403)
        return err_set(e, rc,
                       "%s does not let %s be read: request access at %s/%s, or give another "
                       "token (HF_TOKEN)",
                       at, n->repo, at, n->repo);
    if (j->status == 404)
        return err_set(e, rc, "there is no %s at %s", n->repo, at);
    return rc;
}

static int append(void *arg, const void *bytes, size_t n, struct err *e) {
    struct str *s = arg;
    str_append(s, bytes, n);
    return s->failed ? err_set(e, ERR_MEMORY, "no memory for a list of files") : 0;
}

static void begin_again(void *arg) {
    str_clear(arg);
}

static int read_list(const struct json *root, const struct hub_name *n, struct hub_files *out,
                     struct err *e) {
    const char *commit = json_str(json_get(root, "sha"), NULL);
    const struct json *files = json_get(root, "siblings");
    int rc = 0;
    if (!commit || !hub_is_hash(commit))
        return err_set(e, ERR_FORMAT, "the list of files of %s names no commit", n->repo);
    memcpy(out->commit, commit, strlen(commit) + 1);
    for (size_t i = 0; i < json_len(files) && !rc; i++) {
        const struct json *f = json_at(files, i), *lfs = json_get(f, "lfs");
        size_t bytes = 0;
        const char *name = json_str(json_get(f, "rfilename"), &bytes);
        const char *etag = json_str(json_get(lfs, "sha256"), NULL);
        if (!etag)
            etag = json_str(json_get(lfs, "oid"), NULL);
        if (!etag)
            etag = json_str(json_get(f, "blobId"), NULL);
        int64_t size = json_int(json_get(lfs, "size"), json_int(json_get(f, "size"), -1));
        if (name && strlen(name) == bytes && etag && hub_is_hash(etag) && size >= 0 &&
            size <= INT64_MAX / HUB_PARTS_MAX) // sums stay numbers
            rc = hub_files_add(out, name, etag, size, e);
    }
    return rc;
}

int hub_list(struct hub *h, const struct hub_name *n, struct hub_files *out, struct err *e) {
    static const struct json_rules rules = {.values = LIST_VALUES, .objects = LIST_OBJECTS};
    struct str url = {0}, text = {0};
    struct json *root = NULL;
    str_printf(&url, "%s/api/models/%s/revision/", h->endpoint.data, n->repo);
    put_quoted(&url, n->revision, false);
    str_puts(&url, "?blobs=true");
    struct transfer_job job = {.url = url.data,
                               .token = token_of(h),
                               .size = -1,
                               .until = LIST_MAX,
                               .sink = append,
                               .reset = begin_again,
                               .arg = &text};
    int rc = url.failed ? err_set(e, ERR_MEMORY, "no memory for an address")
                        : transfer_run(h->t, &job, e);
    if (rc)
        rc = explain(h, n, &job, rc, e);
    else if ((rc = json_parse_with(&root, text.data ? text.data : "", text.len, &rules, e)))
        err_prefix(e, "the list of files of %s", n->repo);
    else
        rc = read_list(root, n, out, e);
    json_free(root);
    str_fini(&url);
    str_fini(&text);
    return rc;
}

static void put_blob(struct str *out, const struct hub_download *d, const char *end) {
    hub_cache_path(out, d->name->repo, "blobs", d->file.etag, "");
    if (out->len)
        str_puts(out, end);
}

// The blob is complete: size as listed.
static bool is_there(const struct hub_download *d) {
    struct str path = {0};
    struct stat st;
    put_blob(&path, d, "");
    bool yes = path.len && !path.failed && !stat(path.data, &st) && S_ISREG(st.st_mode) &&
               st.st_size == d->file.size;
    str_fini(&path);
    return yes;
}

// What an earlier run fetched, which is hashed, since the rest will be.
static int read_begun(struct hub_download *d, const char *path, struct err *e) {
    struct stat st;
    unsigned char *bytes = malloc(READ_BYTES);
    int rc = bytes ? 0 : err_set(e, ERR_MEMORY, "no memory for %d bytes", READ_BYTES);
    if (!rc && fstat(d->fd - 1, &st))
        rc = err_set(e, ERR_IO, "cannot read %s: %s", path, strerror(errno));
    int64_t size = rc ? 0 : st.st_size > d->file.size ? 0 : st.st_size;
    sha256_begin(&d->hash);
    for (d->have = 0; !rc && d->have < size && !cli_interrupted();) {
        ssize_t n = pread(d->fd - 1, bytes, (size_t)min_i64(READ_BYTES, size - d->have), d->have);
        if (n <= 0)
            break;
        sha256_add(&d->hash, bytes, (size_t)n);
        d->have += n;
    }
    free(bytes);
    if (!rc && cli_interrupted())
        rc = err_set(e, ERR_CANCELLED, "interrupted");
    if (!rc && d->have < st.st_size && ftruncate(d->fd - 1, d->have))
        rc = err_set(e, ERR_IO, "cannot write %s: %s", path, strerror(errno));
    return rc;
}

int hub_download_open(struct hub_download *d, struct err *e) {
    struct str path = {0};
    int lock = -1, rc = 0;
    if (!(d->there = is_there(d))) {
        rc = hub_cache_lock(d->name->repo, d->file.etag, true, &lock, e);
        d->lock = lock + 1;
        d->there = is_there(d); // who held the lock has fetched it
    }
    if (rc || d->there) {
        d->have = d->there ? d->file.size : 0;
        return rc;
    }
    put_blob(&path, d, ".incomplete");
    rc = path.failed ? err_set(e, ERR_MEMORY, "no memory for a path")
                     : hub_make_folders(path.data, e);
    if (!rc) {
        d->fd = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0666) + 1;
        rc = d->fd ? read_begun(d, path.data, e)
                   : err_set(e, ERR_IO, "cannot write %s: %s", path.data, strerror(errno));
    }
    str_fini(&path);
    return rc;
}

static int write_bytes(void *arg, const void *bytes, size_t n, struct err *e) {
    struct hub_download *d = arg;
    for (size_t done = 0; done < n;) {
        ssize_t some =
            pwrite(d->fd - 1, (const char *)bytes + done, n - done, d->have + (int64_t)done);
        if (some < 0 && errno == EINTR)
            continue;
        if (some <= 0)
            return err_set(e, ERR_IO,
                           "cannot write %s: %s; what has come stays, and the same command goes on "
                           "there once there is room",
                           d->file.name, strerror(errno));
        done += (size_t)some;
    }
    sha256_add(&d->hash, bytes, n);
    d->have += (int64_t)n;
    return 0;
}

static void show(void *arg, int64_t have) {
    struct hub_download *d = arg;
    (void)have;
    if (d->progress)
        d->progress(d->arg);
}

int hub_download_fetch(struct hub *h, struct hub_download *d, int64_t until, struct err *e) {
    struct str url = {0};
    until = min_i64(until, d->file.size);
    if (d->there || d->have >= until)
        return 0;
    str_printf(&url, "%s/%s/resolve/%s/", h->endpoint.data, d->name->repo, d->commit);
    put_quoted(&url, d->file.name, true);
    struct transfer_job job = {.url = url.data,
                               .token = token_of(h),
                               .etag = d->file.etag,
                               .size = d->file.size,
                               .have = d->have,
                               .until = until,
                               .sink = write_bytes,
                               .progress = show,
                               .arg = d};
    int rc = url.failed ? err_set(e, ERR_MEMORY, "no memory for an address")
                        : transfer_run(h->t, &job, e);
    str_fini(&url);
    return rc ? explain(h, d->name, &job, rc, e) : 0;
}

int hub_download_finish(struct hub_download *d, struct err *e) {
    struct str from = {0}, to = {0};
    char hex[HUB_HASH_BYTES];
    int rc = 0;
    put_blob(&from, d, ".incomplete");
    put_blob(&to, d, "");
    if (from.failed || to.failed)
        rc = err_set(e, ERR_MEMORY, "no memory for a path");
    if (!rc && !d->there) {
        sha256_end(&d->hash, hex);
        if (strlen(d->file.etag) == 64 && strcmp(hex, d->file.etag) != 0) {
            unlink(from.data);
            rc =
                err_set(e, ERR_MISMATCH,
                        "%s has SHA-256 %s where the Hub says %s: it was damaged on its way and is "
                        "removed; try again",
                        d->file.name, hex, d->file.etag);
        } else if (fsync(d->fd - 1) || rename(from.data, to.data)) {
            rc = err_set(e, ERR_IO, "cannot write %s: %s", to.data, strerror(errno));
        }
    }
    if (!rc)
        rc = hub_cache_link(d->name->repo, d->commit, &d->file, e);
    str_fini(&from);
    str_fini(&to);
    return rc;
}

void hub_download_drop(struct hub_download *d, int64_t most) {
    struct str path = {0};
    if (!d->fd) // perhaps not even begun, without a name
        return;
    put_blob(&path, d, ".incomplete");
    if (d->have <= most && path.len && !path.failed)
        unlink(path.data);
    str_fini(&path);
}

void hub_download_close(struct hub_download *d) {
    if (d->fd)
        close(d->fd - 1);
    if (d->lock)
        close(d->lock - 1);
    d->fd = d->lock = 0;
}
