// SPDX-License-Identifier: Apache-2.0
// Files, then the folder and its thread.
#include "engine/cache/disk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/pool.h"
#include "base/vec.h"
#include "formats/content.h"
#include "state/stored.h"

enum { UNSYNCED = 64 << 20 }; // bytes

struct writing {
    struct file_new file;
    size_t unsynced;
};

// Bytes are brought to the disk on the way, so that the end of it does not take long either.
static int put_bytes(void *arg, const void *data, size_t n, struct err *e) {
    struct writing *w = arg;
    int rc = file_new_write(&w->file, data, n, e);
    w->unsynced += n;
    if (!rc && w->unsynced >= UNSYNCED) {
        if (fflush(w->file.file) == 0)
            (void)fdatasync(fileno(w->file.file)); // closing reports errors
        w->unsynced = 0;
    }
    return rc;
}

int cache_file_write(struct record *r, const struct ram_copy *m, const char *path,
                     const struct record_pause *pause, struct err *e) {
    struct writing w = {.unsynced = 0};
    const struct record_sink to = {.sink = put_bytes, .arg = &w, .pause = pause};
    int rc = file_new_open(&w.file, path, e);
    if (rc)
        return rc;
    rc = record_write(r, m, &to, e);
    if (rc) {
        file_new_abort(&w.file);
        return rc;
    }
    return file_new_close(&w.file, e);
}

int cache_file_head(struct record *r, const char *path, struct err *e) {
    struct stat info;
    *r = (struct record){0};
    int fd = file_open_own(path, e);
    if (fd < 0)
        return ERR_IO;
    FILE *file = fdopen(fd, "rb");
    if (!file || fstat(fd, &info)) {
        int rc = err_set(e, ERR_IO, "%s cannot be read: %s", path, strerror(errno));
        if (file)
            fclose(file);
        else
            close(fd);
        return rc;
    }
    const struct record_source from = {stored_from_file, file, info.st_size};
    int rc = record_read(r, &from, e);
    fclose(file);
    if (rc)
        return err_prefix(e, "%s", path);
    free(r->identity);
    r->identity = NULL;
    return 0;
}

static int read_piece(int fd, const struct cache_piece *p, struct err *e) {
    size_t done = 0;
    while (done < p->bytes) {
        ssize_t n = pread(fd, (char *)p->to + done, p->bytes - done, (off_t)p->at + (off_t)done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return err_set(e, ERR_IO, "it cannot be read: %s", strerror(errno));
        if (n == 0)
            return stored_ends_early(e);
        done += (size_t)n;
    }
    if (hash_bytes(p->to, p->bytes, 0) != p->sum)
        return err_set(e, ERR_FORMAT, "it is damaged");
    if (p->page && !stored_page_finite(p->page, p->to))
        return err_set(e, ERR_FORMAT, "it has keys or values that are no numbers");
    return 0;
}

enum { READERS = 8, READ_ALONE = 1 << 26 }; // bytes that one thread reads as soon

struct reading {
    int fd;
    const struct cache_piece *pieces;
    atomic_bool failed; // no thread begins another piece
    struct reader {
        int rc;
        struct err err;
    } readers[READERS];
};

static void read_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    struct reading *r = arg;
    struct reader *o = &r->readers[worker];
    for (int64_t i = begin; i < end && !atomic_load(&r->failed); i++)
        if ((o->rc = read_piece(r->fd, &r->pieces[i], &o->err)))
            atomic_store(&r->failed, true);
}

// Copying out of the page cache, summing and looking for what is no number take a processor's
// time, so several do it.
static int read_all(int fd, const struct cache_piece *pieces, int64_t n, struct err *e) {
    struct reading r = {.fd = fd, .pieces = pieces};
    struct pool *pool = NULL;
    int64_t bytes = 0;
    for (int64_t i = 0; i < n; i++)
        bytes += (int64_t)pieces[i].bytes;
    if (bytes > READ_ALONE && pool_create(&pool, READERS, NULL) == 0)
        pool_run(pool, n, 1, read_pieces, &r);
    else
        read_pieces(&r, 0, n, 0);
    pool_destroy(pool);
    for (int i = 0; i < READERS; i++) {
        if (!r.readers[i].rc)
            continue;
        if (e)
            *e = r.readers[i].err;
        return r.readers[i].rc;
    }
    return 0;
}

int cache_file_read(const char *path, const struct cache_piece *pieces, int64_t n, struct err *e) {
    int fd = file_open_own(path, e);
    if (fd < 0)
        return ERR_IO;
    int rc = read_all(fd, pieces, n, e);
    close(fd);
    return rc ? err_prefix(e, "%s", path) : 0;
}

// The folder: two lists of jobs under a lock, urgent ones and others, and one of
// those that have ended.

struct job_list {
    struct cache_job *first, *last;
};

struct cache_disk {
    struct cache_disk_options o;
    char *dir;
    int lock_file;          // -1: it is only read
    struct timespec listed; // the folder's time when it was listed; the thread's
    pthread_t thread;
    pthread_mutex_t lock; // guards what follows
    pthread_cond_t changed, idle;
    struct job_list urgent, queued, ended;
    int waiting;
    bool end;
};

static const char suffix[] = ".kvc";

void cache_disk_path(const struct cache_disk *d, uint64_t kind, uint64_t key, char *path) {
    snprintf(path, CACHE_PATH, "%s/%016" PRIx64 "-%016" PRIx64 "%s", d->dir, kind, key, suffix);
}

static void append_job(struct job_list *l, struct cache_job *j) {
    j->next = NULL;
    *(l->last ? &l->last->next : &l->first) = j;
    l->last = j;
}

static struct cache_job *take_job(struct job_list *l) {
    struct cache_job *j = l->first;
    if (j && !(l->first = j->next))
        l->last = NULL;
    return j;
}

// A name of the form that cache_disk_path gives; end: what stands after it.
static bool is_name(const char *name, uint64_t *kind, uint64_t *key, const char **end) {
    int n = 0;
    if (sscanf(name, "%16" SCNx64 "-%16" SCNx64 ".kvc%n", kind, key, &n) != 2 || n != 37)
        return false;
    *end = name + n;
    return true;
}

static void look_at(struct cache_disk *d, const char *name, struct cache_found **out, int64_t *n,
                    int64_t *cap) {
    char path[CACHE_PATH];
    struct cache_found f;
    struct stat info;
    const char *end;
    if (!is_name(name, &f.kind, &f.key, &end))
        return;
    snprintf(path, sizeof path, "%s/%s", d->dir, name);
    if (*end && cache_disk_writes(d) && !strncmp(end, ".tmp.", 5)) // no other process writes here
        (void)unlink(path);
    if (*end || lstat(path, &info) || !S_ISREG(info.st_mode) || info.st_uid != geteuid() ||
        vec_reserve(out, cap, *n + 1, sizeof **out, NULL))
        return;
    if (info.st_mode & (S_IRWXG | S_IRWXO)) { // earlier versions left them to the umask
        int fd = file_open_own(path, NULL);
        if (fd >= 0)
            close(fd);
    }
    f.head = NULL;
    f.why = NULL;
    f.newer = false;
    f.bytes = info.st_size;
    // Clocks are put back and forth, so a file may be of the future, or of any past.
    int64_t now = (int64_t)time(NULL), then = max_i64(info.st_mtime, 0);
    f.age = max_i64(now - then, 0);
    (*out)[(*n)++] = f;
}

static struct timespec time_of(const struct cache_disk *d) {
    struct stat info;
    return stat(d->dir, &info) ? (struct timespec){0} : info.st_mtim;
}

static bool is_known(const struct cache_scan *s, uint64_t key) {
    int64_t from = 0, to = s->n_known;
    while (from < to) {
        int64_t at = from + (to - from) / 2;
        if (s->known[at] == key)
            return true;
        *(s->known[at] < key ? &from : &to) = s->known[at] < key ? at + 1 : at;
    }
    return false;
}

static void read_head(const struct cache_disk *d, struct cache_found *f) {
    char path[CACHE_PATH];
    struct err e = {0};
    cache_disk_path(d, f->kind, f->key, path);
    f->head = calloc(1, sizeof *f->head);
    int rc = f->head ? cache_file_head(f->head, path, &e) : ERR_MEMORY;
    if (!rc && (f->head->key != f->key || f->head->kind != f->kind)) {
        rc = err_set(&e, ERR_FORMAT, "%s has the name of another file", path);
        record_fini(f->head);
    }
    if (!rc)
        return;
    f->why = strdup(e.text);
    f->newer = rc == ERR_UNSUPPORTED;
    free(f->head);
    f->head = NULL;
}

static void scan_folder(struct cache_disk *d, struct cache_job *j) {
    struct cache_scan *s = &j->scan;
    struct timespec now = time_of(d);
    struct dirent *y;
    int64_t cap = 0, kept = 0;
    s->same = s->changed && now.tv_sec == d->listed.tv_sec && now.tv_nsec == d->listed.tv_nsec;
    if (s->same)
        return;
    d->listed = now;
    DIR *folder = opendir(d->dir);
    while (folder && (y = readdir(folder)))
        look_at(d, y->d_name, &s->found, &s->n, &cap);
    if (folder)
        closedir(folder);
    for (int64_t i = 0; i < s->n; i++) {
        struct cache_found f = s->found[i];
        if (f.kind == j->kind && is_known(s, f.key))
            continue;
        if (f.kind == j->kind)
            read_head(d, &f);
        s->found[kept++] = f;
    }
    s->n = kept;
}

void cache_scan_fini(struct cache_scan *s) {
    for (int64_t i = 0; i < s->n; i++) {
        if (s->found[i].head)
            record_fini(s->found[i].head);
        free(s->found[i].head);
        free(s->found[i].why);
    }
    free(s->found);
    free(s->known);
    *s = (struct cache_scan){0};
}

static void load_pieces(const struct cache_disk *d, struct cache_job *j) {
    char path[CACHE_PATH];
    for (int i = 0; i < j->n_loads && !j->rc; i++) {
        const struct cache_load *y = &j->loads[i];
        cache_disk_path(d, j->kind, y->key, path);
        j->rc = cache_file_read(path, j->pieces + y->first, y->n, &j->err);
        if (j->rc)
            j->failed = y->key;
    }
}

static bool is_ending(void *arg) {
    struct cache_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    bool end = d->end;
    pthread_mutex_unlock(&d->lock);
    return end;
}

static void identify_model(struct cache_disk *d, struct cache_job *j) {
    const struct content_stop stop = {is_ending, d};
    (void)content_stamp(j->gguf, 0, &j->stamp);
    j->rc = gguf_check(j->gguf, &j->err); // what has been cut off cannot be read
    if (j->rc)
        return;
    j->content = content_whole_aside(j->gguf, &stop);
    if (!j->content)
        j->rc =
            is_ending(d) ? ERR_STATE : err_set(&j->err, ERR_MEMORY, "no memory to read the model");
    else
        j->rc = gguf_check(j->gguf, &j->err);
    if (!j->rc)
        content_remember(j->gguf, d->dir, j->content);
}

static void run_urgent(void *arg);

static void run_job(struct cache_disk *d, struct cache_job *j) {
    const struct record_pause pause = {run_urgent, d};
    char path[CACHE_PATH];
    cache_disk_path(d, j->kind, j->key, path);
    switch (j->what) {
    case CACHE_IDENTIFY:
        identify_model(d, j);
        break;
    case CACHE_SCAN:
        scan_folder(d, j);
        break;
    case CACHE_WRITE:
        j->rc = cache_file_write(j->file, j->ram_copy, path, &pause, &j->err);
        break;
    case CACHE_LOAD:
        load_pieces(d, j);
        break;
    case CACHE_REMOVE:
        if (unlink(path) && errno != ENOENT)
            j->rc = err_set(&j->err, ERR_IO, "%s cannot be removed: %s", path, strerror(errno));
        break;
    case CACHE_TOUCH: // for those who list it after a restart
        (void)utimensat(AT_FDCWD, path, NULL, AT_SYMLINK_NOFOLLOW);
        break;
    }
}

// Runs a job outside of the lock, which is held.
static void run_unlocked(struct cache_disk *d, struct cache_job *j) {
    pthread_mutex_unlock(&d->lock);
    run_job(d, j);
    pthread_mutex_lock(&d->lock);
    append_job(&d->ended, j);
    if (--d->waiting == 0)
        pthread_cond_broadcast(&d->idle);
    pthread_mutex_unlock(&d->lock);
    if (d->o.wake)
        d->o.wake(d->o.wake_arg);
    pthread_mutex_lock(&d->lock);
}

// Those that came while another one is being run.
static void run_urgent(void *arg) {
    struct cache_disk *d = arg;
    struct cache_job *j;
    pthread_mutex_lock(&d->lock);
    while ((j = take_job(&d->urgent)))
        run_unlocked(d, j);
    pthread_mutex_unlock(&d->lock);
}

static void *disk_main(void *arg) {
    struct cache_disk *d = arg;
    pthread_mutex_lock(&d->lock);
    for (;;) {
        struct cache_job *j = take_job(&d->urgent);
        if (!j)
            j = take_job(&d->queued);
        if (!j && d->end)
            break;
        if (j)
            run_unlocked(d, j);
        else
            pthread_cond_wait(&d->changed, &d->lock);
    }
    pthread_mutex_unlock(&d->lock);
    return NULL;
}

void cache_disk_queue(struct cache_disk *d, struct cache_job *j) {
    bool urgent = j->what == CACHE_LOAD || j->what == CACHE_SCAN;
    pthread_mutex_lock(&d->lock);
    append_job(urgent ? &d->urgent : &d->queued, j);
    d->waiting++;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
}

struct cache_job *cache_disk_ended(struct cache_disk *d) {
    pthread_mutex_lock(&d->lock);
    struct cache_job *j = take_job(&d->ended);
    pthread_mutex_unlock(&d->lock);
    return j;
}

void cache_disk_wait(struct cache_disk *d) {
    pthread_mutex_lock(&d->lock);
    while (d->waiting)
        pthread_cond_wait(&d->idle, &d->lock);
    pthread_mutex_unlock(&d->lock);
}

int cache_disk_waiting(struct cache_disk *d) {
    pthread_mutex_lock(&d->lock);
    int n = d->waiting;
    pthread_mutex_unlock(&d->lock);
    return n;
}

bool cache_disk_writes(const struct cache_disk *d) {
    return d->lock_file >= 0;
}

// Becomes the writer if no other process is.
static void take_lock(struct cache_disk *d, struct err *e) {
    char path[CACHE_PATH];
    snprintf(path, sizeof path, "%s/lock", d->dir);
    d->lock_file = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
    if (d->lock_file < 0) {
        err_set(e, ERR_IO, "%s cannot be written: %s; the prefix cache only reads it", d->dir,
                strerror(errno));
    } else if (flock(d->lock_file, LOCK_EX | LOCK_NB)) {
        close(d->lock_file);
        d->lock_file = -1;
        err_set(e, ERR_STATE, "another process writes in %s; the prefix cache only reads it",
                d->dir);
    }
}

int cache_disk_open(struct cache_disk **out, const struct cache_disk_options *o, struct err *e) {
    struct stat info;
    int rc = stat(o->dir, &info) == 0 ? 0 : file_make_folder(o->dir, e);
    if (rc)
        return rc;
    if (stat(o->dir, &info) || !S_ISDIR(info.st_mode) || access(o->dir, R_OK | X_OK) ||
        strlen(o->dir) > CACHE_PATH - 64)
        return err_set(e, ERR_IO, "%s is no folder that can be read; choose another --cache-dir",
                       o->dir);
    struct cache_disk *d = calloc(1, sizeof *d);
    if (d)
        d->dir = strdup(o->dir);
    if (!d || !d->dir) {
        free(d);
        return err_set(e, ERR_MEMORY, "no memory for the folder of the prefix cache");
    }
    d->o = *o;
    pthread_mutex_init(&d->lock, NULL);
    pthread_cond_init(&d->changed, NULL);
    pthread_cond_init(&d->idle, NULL);
    take_lock(d, e);
    rc = pool_thread_start(&d->thread, disk_main, d)
             ? err_set(e, ERR_MEMORY, "the system gives no thread to the prefix cache")
             : 0;
    if (rc) {
        if (d->lock_file >= 0)
            close(d->lock_file);
        free(d->dir);
        free(d);
        return rc;
    }
    *out = d;
    return 0;
}

void cache_disk_stop(struct cache_disk *d) {
    pthread_mutex_lock(&d->lock);
    d->end = true;
    pthread_cond_signal(&d->changed);
    pthread_mutex_unlock(&d->lock);
    pthread_join(d->thread, NULL);
}

void cache_disk_close(struct cache_disk *d) {
    if (!d)
        return;
    if (d->lock_file >= 0)
        close(d->lock_file);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->changed);
    pthread_cond_destroy(&d->idle);
    free(d->dir);
    free(d);
}
