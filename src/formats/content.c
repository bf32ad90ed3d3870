// SPDX-License-Identifier: Apache-2.0
// Hashing model files; see content.h. Numbers are hashed as little-endian, texts with their length.
#include "formats/content.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/pool.h"
#include "formats/gguf/impl.h"

enum { WHOLE = 64 << 10, PIECES = 16, PIECE = 4 << 10 };
enum { SUMMED = 4 << 20 }; // bytes that have one sum
enum { REMEMBERED = 64 };  // files of a folder

static void add_u64(struct hash *h, uint64_t v) {
    unsigned char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(v >> (8 * i));
    hash_add(h, b, sizeof b);
}

static void add_text(struct hash *h, const char *s, size_t n) {
    add_u64(h, n);
    hash_add(h, s, n);
}

static void add_shape(struct hash *h, const struct tensor *t) {
    add_text(h, t->name, strlen(t->name));
    add_u64(h, t->type);
    for (int i = 0; i < 4; i++)
        add_u64(h, (uint64_t)t->ne[i]);
}

void content_add_tensor(struct hash *h, const struct tensor *t) {
    const unsigned char *data = t->data;
    add_shape(h, t);
    if (t->bytes <= WHOLE) {
        hash_add(h, data, (size_t)t->bytes);
        return;
    }
    for (int64_t i = 0; i < PIECES; i++)
        hash_add(h, data + (t->bytes - PIECE) / (PIECES - 1) * i, PIECE);
    hash_add(h, data + t->bytes - PIECE, PIECE);
}

static void add_metadata(struct hash *h, const struct gguf_kv *kv) {
    bool array = kv->kind == GGUF_ARRAY;
    int kind = array ? kv->elem : kv->kind;
    add_text(h, kv->key, strlen(kv->key));
    add_u64(h, (uint64_t)kv->kind);
    add_u64(h, (uint64_t)kind);
    add_u64(h, kv->count);
    if (kind != GGUF_STRING) {
        hash_add(h, kv->bytes, (size_t)kv->count * gguf_kind_size(kind));
        return;
    }
    const unsigned char *at = kv->bytes;
    for (uint64_t i = 0; i < kv->count; i++) {
        size_t len;
        const char *s = gguf_array_str(&at, &len);
        add_text(h, s, len);
    }
}

uint64_t content_sketch(const struct gguf *g) {
    struct hash h;
    hash_begin(&h, 0);
    for (size_t i = 0; i < gguf_kv_count(g); i++)
        add_metadata(&h, gguf_kv_at(g, i));
    for (size_t i = 0; i < gguf_tensor_count(g); i++)
        content_add_tensor(&h, gguf_tensor_at(g, i));
    return hash_end(&h);
}

struct whole {
    const struct gguf *g;
    const struct content_stop *stop;
    int64_t *first; // [tensors + 1] piece of each tensor
    uint64_t *sums; // [pieces]
    atomic_bool stopped;
};

static void add_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    struct whole *w = arg;
    size_t at = 0;
    (void)worker;
    for (int64_t i = begin; i < end && !atomic_load(&w->stopped); i++) {
        while (w->first[at + 1] <= i)
            at++;
        struct tensor piece = *gguf_tensor_at(w->g, at);
        int64_t from = (i - w->first[at]) * SUMMED;
        piece.data = (const unsigned char *)piece.data + from;
        piece.bytes = min_i64(piece.bytes - from, SUMMED);
        w->sums[i] = hash_bytes(piece.data, (size_t)piece.bytes, 0);
        gguf_release(w->g, &piece);
        if (w->stop && w->stop->ask(w->stop->arg))
            atomic_store(&w->stopped, true);
    }
}

static uint64_t sum_up(const struct whole *w) {
    struct hash h;
    hash_begin(&h, 0);
    for (size_t i = 0; i < gguf_kv_count(w->g); i++)
        add_metadata(&h, gguf_kv_at(w->g, i));
    for (size_t i = 0; i < gguf_tensor_count(w->g); i++) {
        const struct tensor *t = gguf_tensor_at(w->g, i);
        add_shape(&h, t);
        for (int64_t k = w->first[i]; k < w->first[i + 1]; k++)
            add_u64(&h, w->sums[k]);
    }
    uint64_t sum = hash_end(&h);
    return sum ? sum : 1;
}

uint64_t content_whole(const struct gguf *g, int threads, const struct content_stop *stop) {
    struct whole w = {.g = g, .stop = stop};
    size_t n = gguf_tensor_count(g);
    struct pool *pool = NULL;
    uint64_t sum = 0;
    w.first = calloc(n + 1, sizeof *w.first);
    for (size_t i = 0; w.first && i < n; i++)
        w.first[i + 1] = w.first[i] + ceil_div(gguf_tensor_at(g, i)->bytes, SUMMED);
    w.sums = w.first ? calloc((size_t)w.first[n] + 1, sizeof *w.sums) : NULL;
    if (w.sums && pool_create(&pool, threads, NULL) == 0) {
        pool_run(pool, w.first[n], 1, add_pieces, &w);
        sum = atomic_load(&w.stopped) ? 0 : sum_up(&w);
    }
    pool_destroy(pool);
    free(w.first);
    free(w.sums);
    return sum;
}

struct aside {
    const struct gguf *g;
    const struct content_stop *stop;
    uint64_t content;
};

// A thread's priority can be lowered and not raised again, so it is one of its own.
static void *read_aside(void *arg) {
    enum { LAST = 19 };
    struct aside *a = arg;
    (void)setpriority(PRIO_PROCESS, (id_t)syscall(SYS_gettid), LAST);
    a->content = content_whole(a->g, 1, a->stop);
    return NULL;
}

uint64_t content_whole_aside(const struct gguf *g, const struct content_stop *stop) {
    struct aside a = {g, stop, 0};
    pthread_t thread;
    if (pool_thread_start(&thread, read_aside, &a))
        return content_whole(g, 1, stop);
    pthread_join(thread, NULL);
    return a.content;
}

static const char magic[8] = {'c', 'o', 'p', 'p', 's', 'u', 'm', '1'};

struct remembered {
    char magic[8];
    uint64_t who, content, sum; // of the file, what is remembered, of those before
};

static int64_t nanoseconds(const struct timespec *t) {
    return (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}

bool content_stamp(const struct gguf *g, int64_t settled, uint64_t *stamp) {
    struct hash h;
    bool ok = g->n_parts > 0;
    hash_begin(&h, 0);
    for (int i = 0; i < g->n_parts && ok; i++) {
        struct stat st;
        ok = g->parts[i].fd && fstat(g->parts[i].fd - 1, &st) == 0 &&
             (settled == 0 || time(NULL) - st.st_ctim.tv_sec > settled);
        if (!ok)
            break;
        add_u64(&h, (uint64_t)st.st_dev);
        add_u64(&h, (uint64_t)st.st_ino);
        add_u64(&h, (uint64_t)st.st_size);
        add_u64(&h, (uint64_t)nanoseconds(&st.st_mtim));
        add_u64(&h, (uint64_t)nanoseconds(&st.st_ctim));
    }
    *stamp = hash_end(&h);
    return ok;
}

// The identity of the files, and where it is stored. False: it cannot be, as of memory that
// is no file, or not yet.
static bool who_is(const struct gguf *g, const char *folder, uint64_t *who, struct str *path) {
    enum { SETTLED = 2 }; // seconds
    bool ok = content_stamp(g, SETTLED, who) && gguf_check(g, NULL) == 0;
    str_printf(path, "%s/%016llx.sum", folder, (unsigned long long)*who);
    return ok && !path->failed;
}

bool content_known(const struct gguf *g, const char *folder, uint64_t *content) {
    struct str path = {0};
    struct remembered r = {0};
    uint64_t who;
    int fd = who_is(g, folder, &who, &path) ? file_open_own(path.data, NULL) : -1;
    bool ok = fd >= 0 && read(fd, &r, sizeof r) == (ssize_t)sizeof r && r.who == who &&
              !memcmp(r.magic, magic, sizeof magic) &&
              r.sum == hash_bytes(&r, offsetof(struct remembered, sum), 0) && r.content;
    if (ok)
        (void)futimens(fd, NULL); // it is of use
    if (fd >= 0)
        close(fd);
    str_fini(&path);
    *content = ok ? r.content : 0;
    return ok;
}

void content_remember(const struct gguf *g, const char *folder, uint64_t content) {
    struct remembered r = {.content = content};
    struct str path = {0};
    struct file_new f;
    memcpy(r.magic, magic, sizeof magic);
    if (who_is(g, folder, &r.who, &path) && file_new_open(&f, path.data, NULL) == 0) {
        r.sum = hash_bytes(&r, offsetof(struct remembered, sum), 0);
        if (file_new_write(&f, &r, sizeof r, NULL))
            file_new_abort(&f);
        else
            (void)file_new_close(&f, NULL);
        file_keep_newest(folder, "", ".sum", REMEMBERED);
    }
    str_fini(&path);
}
