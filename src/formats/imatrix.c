// SPDX-License-Identifier: Apache-2.0
// Reads importance matrices from files of two formats. GGUF: general.type "imatrix", and for each
// weight the tensors NAME.in_sum2 (sums of squares, [columns, slices]) and NAME.counts (rows that
// were summed, [1, slices]). The older one is binary: a count of entries; for each the length and
// bytes of its name, calls, a count of values, and values that are means times calls; then, not in
// all files, the number of chunks and the name of the text.
#include "formats/imatrix.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/map.h"
#include "base/memory/arena.h"
#include "base/vec.h"
#include "formats/gguf/impl.h"
#include "formats/quant/quant.h"

struct imatrix {
    struct arena arena;
    struct map names; // to index
    struct imatrix_entry *entries;
    size_t n;
    int64_t cap;
    int64_t chunks;
    const char *dataset, *path;
};

static int refuse_no_memory(const struct imatrix *m, struct err *e) {
    return err_set(e, ERR_MEMORY, "%s: not enough memory for the importance matrix", m->path);
}

// Adds an entry of n values to be filled in; NULL with e set when it is there already.
static float *add_matrix_entry(struct imatrix *m, const char *name, size_t len, int64_t n,
                               struct err *e) {
    if (vec_reserve(&m->entries, &m->cap, (int64_t)m->n + 1, sizeof *m->entries, NULL)) {
        refuse_no_memory(m, e);
        return NULL;
    }
    char *copy = arena_strndup(&m->arena, name, len);
    float *v = arena_array(&m->arena, (size_t)n, sizeof *v);
    int inserted = copy && v ? map_insert(&m->names, copy, len, (uint32_t)m->n) : -1;
    if (inserted < 0) {
        refuse_no_memory(m, e);
        return NULL;
    }
    if (!inserted) {
        err_set(e, ERR_FORMAT, "%s: the tensor '%s' has two entries: make the matrix again",
                m->path, gguf_printable(name, len).text);
        return NULL;
    }
    m->entries[m->n++] = (struct imatrix_entry){copy, v, n};
    return v;
}

static int check_values(const struct imatrix *m, struct err *e) {
    const struct imatrix_entry *entry = &m->entries[m->n - 1];
    for (int64_t i = 0; i < entry->count; i++)
        if (!isfinite(entry->v[i]) || entry->v[i] < 0)
            return err_set(e, ERR_FORMAT,
                           "%s: value %lld of tensor '%s' is %g, which no mean of squares is: make "
                           "the matrix again",
                           m->path, (long long)i,
                           gguf_printable(entry->name, strlen(entry->name)).text,
                           (double)entry->v[i]);
    return 0;
}

// The GGUF format.

static int take_tensor(struct imatrix *m, const struct gguf *g, const struct tensor *sums,
                       size_t stem, struct err *e) {
    char name[GGUF_MAX_NAME + 16];
    memcpy(name, sums->name, stem);
    memcpy(name + stem, ".counts", sizeof ".counts");
    const struct tensor *counts = gguf_tensor(g, name);
    int64_t n = sums->bytes / 4, slices = counts ? counts->bytes / 4 : 0;
    if (sums->type != TYPE_F32 || !counts || counts->type != TYPE_F32 || n % slices)
        return err_set(e, ERR_FORMAT,
                       "%s: the tensor '%s' is no F32 or has no counts that fit: make the matrix "
                       "again",
                       m->path, gguf_printable(sums->name, strlen(sums->name)).text);
    float *v = add_matrix_entry(m, sums->name, stem, n, e);
    if (!v)
        return e->code;
    for (int64_t i = 0; i < n; i++) {
        float sum, count;
        memcpy(&sum, (const char *)sums->data + 4 * i, sizeof sum);
        memcpy(&count, (const char *)counts->data + 4 * (i / (n / slices)), sizeof count);
        v[i] = count > 0.0f ? sum / count : 1.0f; // no token came to that expert
    }
    return check_values(m, e);
}

static int read_info(struct imatrix *m, const struct gguf *g, struct err *e) {
    const struct gguf_kv *sets = gguf_find(g, "imatrix.datasets");
    if (sets && sets->kind == GGUF_ARRAY && sets->elem == GGUF_STRING && sets->count) {
        const unsigned char *cursor = sets->bytes;
        size_t len;
        const char *s = gguf_array_str(&cursor, &len);
        m->dataset = arena_strndup(&m->arena, s, len);
        if (!m->dataset)
            return refuse_no_memory(m, e);
    }
    return gguf_get_int(g, "imatrix.chunk_count", 0, INT32_MAX, 0, &m->chunks, e);
}

static int read_gguf(struct imatrix *m, struct err *e) {
    static const char tail[] = ".in_sum2";
    struct gguf *g = NULL;
    const char *type;
    size_t len;
    int rc = gguf_open(&g, m->path, e);
    if (!rc)
        rc = gguf_get_str(g, "general.type", &type, &len, e);
    if (!rc && (!type || len != 7 || memcmp(type, "imatrix", 7)))
        rc = err_set(e, ERR_FORMAT,
                     "%s is a GGUF file, but not one of general.type imatrix: give an importance "
                     "matrix",
                     m->path);
    if (!rc)
        rc = read_info(m, g, e);
    for (size_t i = 0; !rc && i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        size_t n = strlen(t->name), k = sizeof tail - 1;
        if (n > k && !strcmp(t->name + n - k, tail))
            rc = take_tensor(m, g, t, n - k, e);
    }
    gguf_close(g);
    return rc;
}

// The older format.

struct cursor {
    const unsigned char *at, *end;
};

static bool take_i32(struct cursor *c, int64_t *v) {
    if (c->end - c->at < 4)
        return false;
    *v = (int32_t)gguf_u32(c->at);
    c->at += 4;
    return true;
}

static int broken(const struct imatrix *m, const struct cursor *c, const unsigned char *begin,
                  struct err *e) {
    return err_set(e, ERR_FORMAT,
                   "%s is no importance matrix, or is cut short at byte %lld: make it again",
                   m->path, (long long)(c->at - begin));
}

static int take_entry(struct imatrix *m, struct cursor *c, const unsigned char *begin,
                      struct err *e) {
    int64_t len, calls, n;
    if (!take_i32(c, &len) || len < 1 || len > c->end - c->at)
        return broken(m, c, begin, e);
    const char *name = (const char *)c->at;
    c->at += len;
    if (memchr(name, 0, (size_t)len) || !take_i32(c, &calls) || calls < 0 || !take_i32(c, &n) ||
        n < 1 || n > (c->end - c->at) / 4)
        return broken(m, c, begin, e);
    float *v = add_matrix_entry(m, name, (size_t)len, n, e);
    if (!v)
        return e->code;
    memcpy(v, c->at, (size_t)n * sizeof *v);
    c->at += 4 * n;
    for (int64_t i = 0; i < n && calls > 0; i++)
        v[i] /= (float)calls;
    return check_values(m, e);
}

static int read_binary(struct imatrix *m, const struct file_map *f, struct err *e) {
    struct cursor c = {f->data, f->data + f->size};
    int64_t entries, len;
    if (!take_i32(&c, &entries) || entries < 1 || entries > (int64_t)f->size / 12)
        return broken(m, &c, f->data, e);
    for (int64_t i = 0; i < entries; i++) {
        int rc = take_entry(m, &c, f->data, e);
        if (rc)
            return rc;
    }
    if (!take_i32(&c, &m->chunks)) {
        m->chunks = 0;
    } else if (take_i32(&c, &len) && len > 0 && len <= c.end - c.at) {
        m->dataset = arena_strndup(&m->arena, (const char *)c.at, (size_t)len);
        if (!m->dataset)
            return refuse_no_memory(m, e);
    }
    m->chunks = m->chunks > 0 ? m->chunks : 0;
    return 0;
}

static int read_map(struct imatrix **out, const char *path, const struct file_map *f,
                    struct err *e) {
    struct imatrix *m = calloc(1, sizeof *m);
    int rc;
    if (m)
        m->path = arena_strndup(&m->arena, path, strlen(path));
    if (!m || !m->path)
        rc = err_set(e, ERR_MEMORY, "%s: not enough memory for the importance matrix", path);
    else if (f->size >= 4 && !memcmp(f->data, "GGUF", 4))
        rc = read_gguf(m, e);
    else
        rc = read_binary(m, f, e);
    if (!rc && !m->n)
        rc = err_set(e, ERR_FORMAT, "%s holds no entries: make the importance matrix again", path);
    if (rc)
        imatrix_close(m);
    else
        *out = m;
    return rc;
}

int imatrix_open(struct imatrix **out, const char *path, struct err *e) {
    struct file_map f = {0};
    int rc = file_map_open(&f, path, e);
    if (rc)
        return rc;
    rc = read_map(out, path, &f, e);
    file_map_close(&f);
    return rc;
}

void imatrix_close(struct imatrix *m) {
    if (!m)
        return;
    map_fini(&m->names);
    free(m->entries);
    arena_fini(&m->arena);
    free(m);
}

size_t imatrix_count(const struct imatrix *m) {
    return m->n;
}

const struct imatrix_entry *imatrix_find(const struct imatrix *m, const char *name) {
    uint32_t i;
    return map_find(&m->names, name, strlen(name), &i) ? &m->entries[i] : NULL;
}

const struct imatrix_entry *imatrix_at(const struct imatrix *m, size_t i) {
    return i < m->n ? &m->entries[i] : NULL;
}

int64_t imatrix_chunks(const struct imatrix *m) {
    return m->chunks;
}

const char *imatrix_dataset(const struct imatrix *m) {
    return m->dataset;
}

const char *imatrix_path(const struct imatrix *m) {
    return m->path;
}

// Writing.

static void describe_entry(struct gguf_writer *w, const struct imatrix_sum *s) {
    char name[GGUF_MAX_NAME + 16];
    const int64_t slices = s->experts ? s->experts : 1, columns[2] = {s->columns, slices};
    const int64_t counts[2] = {1, slices};
    snprintf(name, sizeof name, "%s.in_sum2", s->name);
    gguf_add_tensor(w, name, TYPE_F32, s->experts ? 2 : 1, columns);
    snprintf(name, sizeof name, "%s.counts", s->name);
    gguf_add_tensor(w, name, TYPE_F32, s->experts ? 2 : 1, counts);
}

static int write_sum(struct gguf_writer *w, const struct imatrix_sum *s, struct err *e) {
    const int64_t slices = s->experts ? s->experts : 1;
    float v = 0.0f;
    int rc = 0;
    for (int64_t i = 0; i < slices * s->columns && !rc; i++) {
        v = (float)s->squares[i];
        rc = gguf_write_data(w, &v, sizeof v, e);
    }
    for (int64_t i = 0; i < slices && !rc; i++) {
        v = (float)(s->experts ? s->counts[i] : s->rows);
        rc = gguf_write_data(w, &v, sizeof v, e);
    }
    return rc;
}

int imatrix_write(struct gguf_writer *w, const struct imatrix_sum *sums, size_t n,
                  const struct imatrix_info *info, struct err *e) {
    const size_t length = strlen(info->dataset);
    int rc = 0;
    gguf_put_str(w, "general.type", "imatrix", 7);
    gguf_put_str_array(w, "imatrix.datasets", &info->dataset, &length, 1);
    gguf_put_int(w, "imatrix.chunk_count", GGUF_U32, info->chunks);
    gguf_put_int(w, "imatrix.chunk_size", GGUF_U32, info->chunk_size);
    for (size_t i = 0; i < n; i++)
        describe_entry(w, &sums[i]);
    for (size_t i = 0; i < n && !rc; i++)
        rc = write_sum(w, &sums[i], e);
    if (!rc)
        return gguf_writer_close(w, e);
    gguf_writer_abort(w);
    return rc;
}
