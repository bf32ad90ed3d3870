// SPDX-License-Identifier: Apache-2.0
// Reading and writing the Hub's cache; see cache.h. What is in it was written by other programs
// too: links are followed to sizes only, and no name leads out of it.
#include "cli/hub/cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/vec.h"
#include "cli/cli.h"

enum { DEPTH = 8, LINK_BYTES = 4096, LOCK_POLL_MS = 100 };

// A folder that a variable names, with ~ for the home; nothing where it is not set.
static bool put_variable(struct str *out, const char *name) {
    const char *v = getenv(name), *home = getenv("HOME");
    if (!v || !v[0])
        return false;
    if (v[0] == '~' && (v[1] == '/' || !v[1]) && home)
        str_printf(out, "%s%s", home, v + 1);
    else
        str_puts(out, v);
    while (out->len > 1 && out->data[out->len - 1] == '/')
        out->data[--out->len] = '\0';
    return true;
}

void hub_home(struct str *out) {
    const char *home = getenv("HOME");
    if (put_variable(out, "HF_HOME"))
        return;
    if (put_variable(out, "XDG_CACHE_HOME"))
        str_puts(out, "/huggingface");
    else if (home && home[0])
        str_printf(out, "%s/.cache/huggingface", home);
}

void hub_cache_folder(struct str *out) {
    if (put_variable(out, "HF_HUB_CACHE") || put_variable(out, "HUGGINGFACE_HUB_CACHE"))
        return;
    hub_home(out);
    if (out->len)
        str_puts(out, "/hub");
}

static void put_folder_name(struct str *out, const char *repo) {
    const char *slash = strchr(repo, '/');
    str_printf(out, "models--%.*s--%s", (int)(slash - repo), repo, slash + 1);
}

void hub_cache_path(struct str *out, const char *repo, const char *what, const char *a,
                    const char *b) {
    const char *parts[] = {what, a, b};
    hub_cache_folder(out);
    if (!out->len)
        return;
    str_putc(out, '/');
    put_folder_name(out, repo);
    for (int i = 0; i < 3; i++)
        if (parts[i][0])
            str_printf(out, "/%s", parts[i]);
}

static int check_path(const struct str *path, struct err *e) {
    if (path->failed)
        return err_set(e, ERR_MEMORY, "no memory for a path");
    return path->len
               ? 0
               : err_set(e, ERR_IO, "there is no folder for models: set HF_HOME, or HF_HUB_CACHE");
}

int hub_make_folders(const char *path, struct err *e) {
    char *own = strdup(path);
    int rc = own ? 0 : err_set(e, ERR_MEMORY, "no memory for a path");
    for (char *s = own ? strchr(own + 1, '/') : NULL; s && !rc; s = strchr(s + 1, '/')) {
        *s = '\0';
        if (mkdir(own, 0777) && errno != EEXIST)
            rc = err_set(e, ERR_IO, "cannot make the folder %s: %s", own, strerror(errno));
        *s = '/';
    }
    free(own);
    return rc;
}

// The etag of a file of a snapshot: the name of the blob that its link leads to.
static void read_etag(const char *path, char etag[HUB_HASH_BYTES]) {
    char to[LINK_BYTES];
    ssize_t n = readlink(path, to, sizeof to - 1);
    etag[0] = '\0';
    if (n <= 0)
        return;
    to[n] = '\0';
    const char *slash = strrchr(to, '/'), *name = slash ? slash + 1 : to;
    if (hub_is_hash(name))
        memcpy(etag, name, strlen(name) + 1);
}

// Keeps the first thing that could not be read.
static void note_unread(struct hub_files *out, const char *name, const char *why) {
    struct str text = {0};
    str_printf(&text, "%s (%s)", name, why);
    if (!out->unread && !text.failed)
        out->unread = strdup(text.data);
    str_fini(&text);
}

static int list_folder(const char *root, const char *below, int depth, struct hub_files *out,
                       struct err *e) {
    struct str folder = {0}, path = {0}, name = {0};
    str_printf(&folder, "%s%s%s", root, below[0] ? "/" : "", below);
    DIR *d = folder.failed ? NULL : opendir(folder.data);
    int rc = folder.failed ? err_set(e, ERR_MEMORY, "no memory for a path") : 0;
    if (!rc && !d && errno != ENOENT)
        note_unread(out, folder.data, strerror(errno));
    for (struct dirent *f; d && !rc && (f = readdir(d));) {
        struct stat st;
        char etag[HUB_HASH_BYTES];
        if (f->d_name[0] == '.')
            continue;
        str_clear(&path);
        str_clear(&name);
        str_printf(&name, "%s%s%s", below, below[0] ? "/" : "", f->d_name);
        str_printf(&path, "%s/%s", root, name.data ? name.data : "");
        if (name.failed || path.failed)
            rc = err_set(e, ERR_MEMORY, "no memory for the names of files");
        else if (stat(path.data, &st)) {
            if (errno != ENOENT) // a link to a blob that is not there uses none
                note_unread(out, path.data, strerror(errno));
        } else if (S_ISDIR(st.st_mode) && depth < DEPTH)
            rc = list_folder(root, name.data, depth + 1, out, e);
        else if (S_ISDIR(st.st_mode))
            note_unread(out, path.data, "too many folders within each other");
        else if (S_ISREG(st.st_mode)) {
            read_etag(path.data, etag);
            rc = hub_files_add(out, name.data, etag, st.st_size, e);
        }
    }
    if (d)
        closedir(d);
    str_fini(&folder);
    str_fini(&path);
    str_fini(&name);
    return rc;
}

static int compare_files(const void *a, const void *b) {
    return strcmp(((const struct hub_file *)a)->name, ((const struct hub_file *)b)->name);
}

int hub_cache_list(const char *repo, const char *commit, struct hub_files *out, struct err *e) {
    struct str root = {0};
    hub_cache_path(&root, repo, "snapshots", commit, "");
    int rc = root.failed ? check_path(&root, e) : 0;
    if (!rc && root.len)
        rc = list_folder(root.data, "", 0, out, e);
    str_fini(&root);
    if (out->n)
        qsort(out->at, (size_t)out->n, sizeof *out->at, compare_files);
    snprintf(out->commit, sizeof out->commit, "%s", commit);
    return rc;
}

// The commit that a revision was when it was fetched; a commit is its own.
bool hub_cache_commit(const struct hub_name *n, char commit[HUB_HASH_BYTES]) {
    struct str path = {0}, text = {0};
    if (hub_is_hash(n->revision)) {
        memcpy(commit, n->revision, strlen(n->revision) + 1);
        return true;
    }
    hub_cache_path(&path, n->repo, "refs", n->revision, "");
    bool ok = path.len && !path.failed && !file_read(&text, path.data, 1024, NULL) && text.len;
    if (ok) {
        text.data[strcspn(text.data, " \r\n")] = '\0';
        ok = hub_is_hash(text.data);
    }
    if (ok)
        memcpy(commit, text.data, strlen(text.data) + 1);
    str_fini(&path);
    str_fini(&text);
    return ok;
}

struct snapshot {
    char name[HUB_HASH_BYTES];
    int64_t written;
};

static int newest_first(const void *a, const void *b) {
    const struct snapshot *x = a, *y = b;
    return x->written != y->written ? (x->written < y->written ? 1 : -1) : strcmp(x->name, y->name);
}

int hub_cache_snapshots(const char *repo, hub_snapshot_fn *fn, void *arg, struct err *e) {
    struct str root = {0};
    struct snapshot *all = NULL;
    int64_t n = 0, cap = 0;
    hub_cache_path(&root, repo, "snapshots", "", "");
    int rc = root.failed ? err_set(e, ERR_MEMORY, "no memory for a path") : 0;
    DIR *d = !rc && root.len ? opendir(root.data) : NULL;
    for (struct dirent *f; d && !rc && (f = readdir(d));) {
        struct stat st;
        if (!hub_is_hash(f->d_name) || fstatat(dirfd(d), f->d_name, &st, 0))
            continue;
        rc = vec_reserve(&all, &cap, n + 1, sizeof *all, e);
        if (!rc) {
            memcpy(all[n].name, f->d_name, strlen(f->d_name) + 1);
            all[n++].written = st.st_mtime;
        }
    }
    if (d)
        closedir(d);
    if (n)
        qsort(all, (size_t)n, sizeof *all, newest_first);
    for (int64_t i = 0; i < n && !rc; i++)
        rc = fn(arg, all[i].name, e);
    free(all);
    str_fini(&root);
    return rc;
}

struct search {
    const struct hub_name *name;
    bool as_draft;
    struct hub_files *files;
    struct hub_choice choice;
    bool found;
};

static int look_into(void *arg, const char *commit, struct err *e) {
    struct search *s = arg;
    struct err ignored;
    if (s->found)
        return 0;
    hub_files_fini(s->files);
    int rc = hub_cache_list(s->name->repo, commit, s->files, e);
    if (rc)
        return rc;
    if (s->as_draft && !s->name->want[0])
        hub_choose_draft(s->files, false, &s->choice);
    else if (hub_choose(s->files, s->name, &s->choice, &ignored))
        s->choice.n = 0;
    s->found = s->choice.n > 0;
    return 0;
}

static int search(struct search *s, struct err *e) {
    char commit[HUB_HASH_BYTES];
    int rc = hub_cache_commit(s->name, commit) ? look_into(s, commit, e) : 0;
    if (!rc && !s->found && !strcmp(s->name->revision, "main"))
        rc = hub_cache_snapshots(s->name->repo, look_into, s, e);
    return rc;
}

int hub_cache_find(const struct hub_name *n, bool as_draft, struct str *path, struct err *e) {
    struct hub_files files = {0};
    struct search s = {.name = n, .as_draft = as_draft, .files = &files};
    int rc = search(&s, e);
    if (!rc && s.found) {
        hub_cache_path(path, n->repo, "snapshots", files.commit, files.at[s.choice.at[0]].name);
        rc = check_path(path, e);
    }
    hub_files_fini(&files);
    return rc;
}

bool hub_cache_repo(const char *path, char repo[HUB_NAME_BYTES]) {
    const char *s = strstr(path, "models--"), *end = s ? strstr(s, "/snapshots/") : NULL;
    s = s ? s + 8 : NULL;
    const char *cut = end ? memmem(s, (size_t)(end - s), "--", 2) : NULL;
    if (!cut || end - s >= HUB_NAME_BYTES)
        return false;
    snprintf(repo, HUB_NAME_BYTES, "%.*s/%.*s", (int)(cut - s), s, (int)(end - cut - 2), cut + 2);
    return hub_name_like(repo);
}

int hub_cache_lock(const char *repo, const char *etag, bool wait, int *fd, struct err *e) {
    struct str path = {0};
    *fd = -1;
    hub_cache_folder(&path);
    if (path.len) {
        str_puts(&path, "/.locks/");
        put_folder_name(&path, repo);
        str_printf(&path, "/%s.lock", etag);
    }
    int rc = check_path(&path, e);
    if (!rc)
        rc = hub_make_folders(path.data, e);
    int f = rc ? -1 : open(path.data, O_RDWR | O_CREAT | O_CLOEXEC, 0664);
    if (!rc && f < 0)
        rc = err_set(e, ERR_IO, "cannot open %s: %s", path.data, strerror(errno));
    int held = rc ? -1 : flock(f, LOCK_EX | LOCK_NB);
    if (!rc && held && errno == EWOULDBLOCK && wait) {
        fprintf(stderr, "coppice: another program fetches the same file of %s; waiting for it\n",
                repo);
        // Not a call that waits: ctrl-C may come just before it.
        while ((held = flock(f, LOCK_EX | LOCK_NB)) && errno == EWOULDBLOCK && !cli_interrupted())
            poll(NULL, 0, LOCK_POLL_MS);
        if (held && cli_interrupted())
            rc = err_set(e, ERR_CANCELLED, "interrupted");
    }
    // Where a file system has no locks, a download is worth more than none.
    if (rc || (held && errno == EWOULDBLOCK)) {
        if (f >= 0)
            close(f);
    } else {
        *fd = f;
    }
    str_fini(&path);
    return rc;
}

int hub_cache_link(const char *repo, const char *commit, const struct hub_file *f, struct err *e) {
    struct str path = {0}, to = {0}, other = {0};
    hub_cache_path(&path, repo, "snapshots", commit, f->name);
    for (const char *s = f->name; (s = strchr(s, '/')); s++)
        str_puts(&to, "../");
    str_printf(&to, "../../blobs/%s", f->etag);
    str_printf(&other, "%s.%ld.tmp", path.data ? path.data : "", (long)getpid());
    int rc = to.failed || other.failed ? err_set(e, ERR_MEMORY, "no memory for a path")
                                       : check_path(&path, e);
    if (!rc)
        rc = hub_make_folders(path.data, e);
    if (!rc && access(path.data, F_OK) != 0 &&
        (symlink(to.data, other.data) || rename(other.data, path.data))) {
        rc = err_set(e, ERR_IO, "cannot make the link %s: %s", path.data, strerror(errno));
        unlink(other.data);
    }
    str_fini(&path);
    str_fini(&to);
    str_fini(&other);
    return rc;
}

int hub_cache_note(const struct hub_name *n, const char *commit, struct err *e) {
    struct str path = {0}, other = {0};
    char before[HUB_HASH_BYTES];
    if (hub_cache_commit(n, before) && (hub_is_hash(n->revision) || !strcmp(before, commit)))
        return 0;
    hub_cache_path(&path, n->repo, "refs", n->revision, "");
    str_printf(&other, "%s.%ld.tmp", path.data ? path.data : "", (long)getpid());
    int rc = other.failed ? err_set(e, ERR_MEMORY, "no memory for a path") : check_path(&path, e);
    if (!rc)
        rc = hub_make_folders(path.data, e);
    FILE *f = rc ? NULL : fopen(other.data, "w");
    if (!rc) {
        bool ok = f && fputs(commit, f) >= 0;
        ok = (!f || fclose(f) == 0) && ok && !rename(other.data, path.data);
        if (!ok)
            rc = err_set(e, ERR_IO, "cannot write %s: %s", path.data, strerror(errno));
    }
    str_fini(&path);
    str_fini(&other);
    return rc;
}

static int is_models_folder(const struct dirent *f) {
    return !strncmp(f->d_name, "models--", 8) && strstr(f->d_name + 8, "--");
}

int hub_cache_each(hub_repo_fn *fn, void *arg, struct err *e) {
    struct str root = {0};
    struct dirent **all = NULL;
    hub_cache_folder(&root);
    int rc = root.failed ? err_set(e, ERR_MEMORY, "no memory for a path") : 0;
    int n = !rc && root.len ? scandir(root.data, &all, is_models_folder, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        char repo[HUB_NAME_BYTES] = "";
        const char *s = all[i]->d_name + 8, *cut = strstr(s, "--");
        if (strlen(s) < sizeof repo)
            snprintf(repo, sizeof repo, "%.*s/%s", (int)(cut - s), s, cut + 2);
        if (!rc && hub_name_like(repo))
            rc = fn(arg, repo, e);
        free(all[i]);
    }
    free(all);
    str_fini(&root);
    return rc;
}

// Downloads that are not complete, also those of huggingface_hub: their bytes; removed where
// nobody fetches them.
static int64_t sum_unfinished(const char *repo, bool removes) {
    struct str path = {0};
    int64_t sum = 0;
    hub_cache_path(&path, repo, "blobs", "", "");
    DIR *d = path.len && !path.failed ? opendir(path.data) : NULL;
    for (struct dirent *f; d && (f = readdir(d));) {
        struct stat st;
        char etag[HUB_HASH_BYTES] = "";
        if (!str_ends(f->d_name, ".incomplete") || fstatat(dirfd(d), f->d_name, &st, 0))
            continue;
        size_t n = strcspn(f->d_name, ".");
        int lock = -1;
        if (n < sizeof etag)
            memcpy(etag, f->d_name, n);
        if (removes && (hub_cache_lock(repo, etag, false, &lock, NULL) || lock < 0))
            continue;
        if (!removes || !unlinkat(dirfd(d), f->d_name, 0))
            sum += st.st_size;
        if (lock >= 0)
            close(lock);
    }
    if (d)
        closedir(d);
    str_fini(&path);
    return sum;
}

int64_t hub_cache_unfinished(const char *repo) {
    return sum_unfinished(repo, false);
}

void hub_cache_clean(const char *repo, int64_t *freed) {
    *freed += sum_unfinished(repo, true);
}

struct use {
    const char *repo, *etag;
    int count;
};

static int count_uses(void *arg, const char *commit, struct err *e) {
    struct use *u = arg;
    struct hub_files f = {0};
    int rc = hub_cache_list(u->repo, commit, &f, e);
    if (!rc && f.unread)
        rc = err_set(e, ERR_IO,
                     "cannot read %s, where the file may be used too: nothing of it was removed",
                     f.unread);
    for (int64_t i = 0; i < f.n; i++)
        u->count += !strcmp(f.at[i].etag, u->etag);
    hub_files_fini(&f);
    return rc;
}

// Folders that are empty, from the innermost out; others stay as rmdir refuses them.
static void remove_empty(const char *repo, const char *commit, const char *file) {
    struct str path = {0};
    hub_cache_path(&path, repo, "snapshots", commit, file);
    size_t top = path.len > strlen(file) ? path.len - strlen(file) - 1 : 0;
    for (char *s; path.len > top && !path.failed && (s = strrchr(path.data, '/'));) {
        *s = '\0';
        path.len = (size_t)(s - path.data);
        if (path.len < top || rmdir(path.data))
            break;
    }
    str_fini(&path);
}

static int remove_file(const char *repo, const char *commit, const struct hub_file *f,
                       int64_t *freed, struct err *e) {
    struct str path = {0};
    struct use use = {repo, f->etag, 0};
    hub_cache_path(&path, repo, "snapshots", commit, f->name);
    int rc = check_path(&path, e);
    if (!rc && f->etag[0])
        rc = hub_cache_snapshots(repo, count_uses, &use, e);
    if (!rc && unlink(path.data))
        rc = err_set(e, ERR_IO, "cannot remove %s: %s", path.data, strerror(errno));
    if (!rc && use.count <= 1) { // this one
        str_clear(&path);
        hub_cache_path(&path, repo, "blobs", f->etag[0] ? f->etag : "-", "");
        if (f->etag[0] && !path.failed && unlink(path.data) && errno != ENOENT)
            rc = err_set(e, ERR_IO, "cannot remove %s: %s", path.data, strerror(errno));
        else
            *freed += f->size;
    }
    if (!rc)
        remove_empty(repo, commit, f->name);
    str_fini(&path);
    return rc;
}

int hub_cache_remove(const char *repo, const struct hub_files *f, const struct hub_choice *some,
                     int64_t *freed, struct err *e) {
    static const char *const folders[] = {"snapshots", "blobs", "refs"};
    int rc = 0;
    for (int i = 0; i < some->n && !rc; i++)
        rc = remove_file(repo, f->commit, &f->at[some->at[i]], freed, e);
    struct str path = {0};
    hub_cache_path(&path, repo, "snapshots", "", "");
    if (!rc && path.len && !path.failed && !rmdir(path.data)) { // nothing is left
        str_clear(&path);
        hub_cache_path(&path, repo, "refs", "main", "");
        unlink(path.data);
        for (size_t k = 1; k < sizeof folders / sizeof *folders; k++) {
            str_clear(&path);
            hub_cache_path(&path, repo, folders[k], "", "");
            rmdir(path.data);
        }
        str_clear(&path);
        hub_cache_path(&path, repo, "", "", "");
        rmdir(path.data);
    }
    str_fini(&path);
    return rc;
}
