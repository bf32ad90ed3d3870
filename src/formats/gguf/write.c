// SPDX-License-Identifier: Apache-2.0
// Writes a GGUF v3 file: metadata and tensor descriptions are collected in memory, then the data
// streams to a temporary file next to the target, which takes the target's name only when it is
// complete. Tensors are packed in the order of their descriptions, as other readers demand.
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/file.h"
#include "base/num.h"
#include "base/str.h"
#include "base/utf8.h"
#include "base/vec.h"
#include "formats/gguf/impl.h"
#include "formats/quant/quant.h"

struct gguf_writer {
    FILE *file;
    char *path, *temporary;
    struct err first; // the first misuse or failure; everything later does nothing
    struct arena names;
    struct map keys, tensors;
    struct str meta, infos; // encoded entries
    uint64_t n_kv, n_tensors;
    uint64_t alignment, offset; // offset: of the next tensor described, in the data section
    int64_t *sizes;             // bytes of each tensor
    int64_t cap;
    uint64_t current; // tensor being written
    int64_t written;  // bytes of it so far
    bool begun;       // header and descriptions are in the file
    void *map;        // the whole file, when the caller fills it in place
    size_t map_bytes;
    uint64_t max_bytes;               // bytes of tensors in a part; 0: any number
    struct gguf_writer **parts_after; // further parts, [n_parts_after]
    int64_t n_parts_after, cap_parts_after;
    int64_t filling; // the part whose tensors come: 0 is this one
};

enum { MAX_PARTS = 65535 };

static int writer_failed(const struct gguf_writer *w, struct err *e) {
    return err_set(e, w->first.code, "%s", w->first.text);
}

static void free_writer(struct gguf_writer *w) {
    if (w->map)
        munmap(w->map, w->map_bytes);
    map_fini(&w->keys);
    map_fini(&w->tensors);
    arena_fini(&w->names);
    str_fini(&w->meta);
    str_fini(&w->infos);
    free(w->sizes);
    free(w->path);
    free(w->temporary);
    free(w->parts_after);
    free(w);
}

int gguf_writer_open(struct gguf_writer **out, const char *path, struct err *e) {
    struct stat st;
    if (!stat(path, &st) && !S_ISREG(st.st_mode))
        return err_set(e, ERR_USAGE, "%s exists and is no regular file: give another output name",
                       path);
    struct gguf_writer *w = calloc(1, sizeof *w);
    if (w)
        w->path = strdup(path);
    if (!w || !w->path) {
        free(w);
        return err_set(e, ERR_MEMORY, "%s: not enough memory to write the file", path);
    }
    w->alignment = GGUF_DEFAULT_ALIGNMENT;
    int rc = file_temporary(&w->file, &w->temporary, path, false, e);
    if (rc)
        free_writer(w);
    else
        *out = w;
    return rc;
}

static void append_u32(struct str *s, uint32_t v) {
    char b[4] = {(char)(v & 255), (char)(v >> 8 & 255), (char)(v >> 16 & 255), (char)(v >> 24)};
    str_append(s, b, sizeof b);
}

static void append_u64(struct str *s, uint64_t v) {
    append_u32(s, (uint32_t)v);
    append_u32(s, (uint32_t)(v >> 32));
}

static void append_text(struct str *s, const char *text, size_t n) {
    append_u64(s, n);
    str_append(s, text, n);
}

// Remembers a name in a set; false (with w->first set) when it is a second time or memory ends.
static bool claim(struct gguf_writer *w, struct map *set, const char *what, const char *name) {
    size_t n = strlen(name);
    char *copy = arena_strndup(&w->names, name, n);
    int inserted = copy ? map_insert(set, copy, n, 0) : -1;
    if (inserted == 1)
        return true;
    if (inserted == 0)
        err_set(&w->first, ERR_STATE, "%s: %s '%s' is written twice", w->path, what, name);
    else
        err_set(&w->first, ERR_MEMORY, "%s: not enough memory to write the file", w->path);
    return false;
}

// Starts an entry: key and kind. False when the writer has failed.
static bool begin_kv(struct gguf_writer *w, const char *key, int kind) {
    if (w->first.code)
        return false;
    if (w->begun || !*key || strlen(key) > GGUF_MAX_KEY) {
        err_set(&w->first, ERR_STATE, "%s: metadata key '%.60s' is empty, too long or too late",
                w->path, key);
        return false;
    }
    if (!claim(w, &w->keys, "metadata key", key))
        return false;
    append_text(&w->meta, key, strlen(key));
    append_u32(&w->meta, (uint32_t)kind);
    w->n_kv++;
    return true;
}

static void set_alignment(struct gguf_writer *w, int kind, int64_t v) {
    if (kind != GGUF_U32 || v < 1 || (v & (v - 1)) || w->n_tensors)
        err_set(&w->first, ERR_STATE,
                "%s: general.alignment must be a u32 power of two, put before the first tensor",
                w->path);
    else
        w->alignment = (uint64_t)v;
}

void gguf_put_int(struct gguf_writer *w, const char *key, int kind, int64_t v) {
    size_t size = gguf_kind_size(kind);
    if (!size || kind == GGUF_F32 || kind == GGUF_F64) {
        if (!w->first.code)
            err_set(&w->first, ERR_STATE, "%s: key '%.60s' is no integer", w->path, key);
        return;
    }
    if (!begin_kv(w, key, kind))
        return;
    if (!strcmp(key, "general.alignment"))
        set_alignment(w, kind, v);
    for (size_t i = 0; i < size; i++)
        str_putc(&w->meta, (char)((uint64_t)v >> 8 * i & 255));
}

void gguf_put_f32(struct gguf_writer *w, const char *key, float v) {
    if (begin_kv(w, key, GGUF_F32))
        str_append(&w->meta, (const char *)&v, sizeof v);
}

void gguf_put_bool(struct gguf_writer *w, const char *key, bool v) {
    if (begin_kv(w, key, GGUF_BOOL))
        str_putc(&w->meta, v ? 1 : 0);
}

void gguf_put_str(struct gguf_writer *w, const char *key, const char *s, size_t n) {
    struct str repaired = {0}; // names of files and folders may hold any bytes
    if (!utf8_valid(s, n)) {
        utf8_sanitise(&repaired, s, n);
        s = repaired.data ? repaired.data : "";
        n = repaired.len;
        w->meta.failed |= repaired.failed;
    }
    if (begin_kv(w, key, GGUF_STRING))
        append_text(&w->meta, s, n);
    str_fini(&repaired);
}

static bool begin_array(struct gguf_writer *w, const char *key, int kind, uint64_t count) {
    if (!begin_kv(w, key, GGUF_ARRAY))
        return false;
    append_u32(&w->meta, (uint32_t)kind);
    append_u64(&w->meta, count);
    return true;
}

void gguf_put_array(struct gguf_writer *w, const char *key, int kind, const void *elems,
                    uint64_t count) {
    if (begin_array(w, key, kind, count))
        str_append(&w->meta, elems, (size_t)count * gguf_kind_size(kind));
}

void gguf_put_str_array(struct gguf_writer *w, const char *key, const char *const *strings,
                        const size_t *lengths, uint64_t count) {
    if (!begin_array(w, key, GGUF_STRING, count))
        return;
    for (uint64_t i = 0; i < count; i++)
        append_text(&w->meta, strings[i], lengths[i]);
}

void gguf_put_kv(struct gguf_writer *w, const struct gguf_kv *kv) {
    int kind = kv->kind == GGUF_ARRAY ? kv->elem : kv->kind;
    size_t bytes = (size_t)kv->count * gguf_kind_size(kind);
    if (kind == GGUF_STRING) {
        const unsigned char *end = kv->bytes;
        size_t len;
        for (uint64_t i = 0; i < kv->count; i++)
            gguf_array_str(&end, &len);
        bytes = (size_t)(end - kv->bytes);
    }
    if (kv->kind == GGUF_ARRAY ? !begin_array(w, kv->key, kind, kv->count)
                               : !begin_kv(w, kv->key, kind))
        return;
    if (!strcmp(kv->key, "general.alignment"))
        set_alignment(w, kv->kind, kind == GGUF_U32 ? (int64_t)gguf_u32(kv->bytes) : 0);
    str_append(&w->meta, (const char *)kv->bytes, bytes);
}

static int64_t tensor_bytes(const struct quant_format *f, int n_dims, const int64_t *ne) {
    int64_t bytes = f && n_dims >= 1 && n_dims <= 4 ? quant_row_bytes(f, ne[0]) : -1;
    for (int i = 1; i < n_dims && bytes > 0; i++)
        bytes = ne[i] < 1 || ne[i] > INT64_MAX / 2 / bytes ? -1 : bytes * ne[i];
    return bytes > 0 ? bytes : -1;
}

static bool reserve_size(struct gguf_writer *w) {
    if (!vec_reserve(&w->sizes, &w->cap, (int64_t)w->n_tensors + 1, sizeof *w->sizes, NULL))
        return true;
    err_set(&w->first, ERR_MEMORY, "%s: not enough memory to write the file", w->path);
    return false;
}

void gguf_writer_split(struct gguf_writer *w, int64_t bytes) {
    if (w->n_tensors || w->begun || bytes < 1)
        err_set(&w->first, ERR_STATE, "%s: parts are requested too late, or of no bytes", w->path);
    else
        w->max_bytes = (uint64_t)bytes;
}

// The part that a tensor of that many bytes goes to: the last one, or a new one. NULL: w->first
// says why there is none.
static struct gguf_writer *part_for(struct gguf_writer *w, int64_t bytes) {
    struct gguf_writer *last = w->n_parts_after ? w->parts_after[w->n_parts_after - 1] : w, *next;
    if (!w->max_bytes || !last->n_tensors || last->offset + (uint64_t)bytes <= w->max_bytes)
        return last;
    if (w->n_parts_after + 2 > MAX_PARTS) {
        err_set(&w->first, ERR_LIMIT, "%s would have more than %d parts: make them larger", w->path,
                MAX_PARTS);
        return NULL;
    }
    if (vec_reserve(&w->parts_after, &w->cap_parts_after, w->n_parts_after + 1,
                    sizeof(struct gguf_writer *), &w->first) ||
        gguf_writer_open(&next, w->path, &w->first))
        return NULL;
    w->parts_after[w->n_parts_after++] = next;
    return next;
}

static void describe_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                            const int64_t *ne, int64_t bytes) {
    append_text(&w->infos, name, strlen(name));
    append_u32(&w->infos, (uint32_t)n_dims);
    for (int i = 0; i < n_dims; i++)
        append_u64(&w->infos, (uint64_t)ne[i]);
    append_u32(&w->infos, type);
    append_u64(&w->infos, w->offset);
    w->sizes[w->n_tensors++] = bytes;
    w->offset += round_up_size((size_t)bytes, w->alignment);
}

void gguf_add_tensor(struct gguf_writer *w, const char *name, uint32_t type, int n_dims,
                     const int64_t *ne) {
    int64_t bytes = tensor_bytes(quant_format(type), n_dims, ne);
    if (w->first.code)
        return;
    if (w->begun || bytes < 0 || !*name || strlen(name) > GGUF_MAX_NAME) {
        err_set(&w->first, ERR_STATE,
                "%s: tensor '%.80s' of type %" PRIu32 " has a name, shape or row length that the "
                "format does not allow",
                w->path, name, type);
        return;
    }
    struct gguf_writer *part = claim(w, &w->tensors, "tensor", name) ? part_for(w, bytes) : NULL;
    if (part && reserve_size(part))
        describe_tensor(part, name, type, n_dims, ne, bytes);
    else if (part && part != w)
        w->first = part->first;
}

static int put_bytes(struct gguf_writer *w, const void *data, size_t n) {
    if (!w->first.code && n && fwrite(data, 1, n, w->file) != n)
        err_set(&w->first, ERR_IO,
                "%s cannot be written: %s: free some space or choose another disk", w->temporary,
                strerror(errno));
    return w->first.code;
}

static int put_padding(struct gguf_writer *w, uint64_t after) {
    static const unsigned char zeros[4096];
    uint64_t n = (w->alignment - after % w->alignment) % w->alignment;
    while (n && !w->first.code) {
        size_t piece = n < sizeof zeros ? (size_t)n : sizeof zeros;
        put_bytes(w, zeros, piece);
        n -= piece;
    }
    return w->first.code;
}

// What a part says of itself, and its name. total: tensors of all parts.
static int name_part(struct gguf_writer *p, int64_t no, int64_t count, uint64_t total) {
    size_t stem = strlen(p->path), size = stem + 48;
    char *path = malloc(size);
    if (!path)
        return err_set(&p->first, ERR_MEMORY, "%s: not enough memory to write the file", p->path);
    if (stem > 5 && !strcmp(p->path + stem - 5, ".gguf"))
        stem -= 5;
    snprintf(path, size, "%.*s-%05" PRId64 "-of-%05" PRId64 ".gguf", (int)stem, p->path, no + 1,
             count);
    free(p->path);
    p->path = path;
    gguf_put_int(p, "split.no", GGUF_U16, no);
    gguf_put_int(p, "split.count", GGUF_U16, count);
    gguf_put_int(p, "split.tensors.count", GGUF_I32, (int64_t)total);
    return p->first.code;
}

static struct gguf_writer *part_at(struct gguf_writer *w, int64_t i) {
    return i ? w->parts_after[i - 1] : w;
}

static int name_parts(struct gguf_writer *w) {
    uint64_t total = 0;
    for (int64_t i = 0; i <= w->n_parts_after; i++)
        total += part_at(w, i)->n_tensors;
    for (int64_t i = 0; i <= w->n_parts_after && !w->first.code; i++)
        if (name_part(part_at(w, i), i, w->n_parts_after + 1, total) && i)
            w->first = part_at(w, i)->first;
    return w->first.code;
}

// Writes everything before the data section, once.
static int begin_data(struct gguf_writer *w) {
    struct str head = {0};
    if (w->begun || w->first.code || (w->n_parts_after && name_parts(w)))
        return w->first.code;
    w->begun = true;
    str_append(&head, "GGUF", 4);
    append_u32(&head, 3);
    append_u64(&head, w->n_tensors);
    append_u64(&head, w->n_kv);
    if (head.failed || w->meta.failed || w->infos.failed)
        err_set(&w->first, ERR_MEMORY, "%s: not enough memory to write the file", w->path);
    put_bytes(w, head.data, head.len);
    put_bytes(w, w->meta.data, w->meta.len);
    put_bytes(w, w->infos.data, w->infos.len);
    put_padding(w, head.len + w->meta.len + w->infos.len);
    str_fini(&head);
    return w->first.code;
}

int gguf_write_data(struct gguf_writer *w, const void *data, size_t bytes, struct err *e) {
    if (begin_data(w))
        return writer_failed(w, e);
    while (w->filling < w->n_parts_after &&
           part_at(w, w->filling)->current == part_at(w, w->filling)->n_tensors)
        w->filling++;
    if (w->filling) {
        struct gguf_writer *part = part_at(w, w->filling);
        int rc = gguf_write_data(part, data, bytes, e);
        w->first = part->first;
        return rc;
    }
    if (w->current >= w->n_tensors ||
        (uint64_t)bytes > (uint64_t)(w->sizes[w->current] - w->written)) {
        err_set(&w->first, ERR_STATE, "%s: more data comes than tensor %" PRIu64 " has room for",
                w->path, w->current);
        return writer_failed(w, e);
    }
    put_bytes(w, data, bytes);
    w->written += (int64_t)bytes;
    if (w->written == w->sizes[w->current]) {
        put_padding(w, (uint64_t)w->written);
        w->current++;
        w->written = 0;
    }
    return w->first.code ? writer_failed(w, e) : 0;
}

// A page that the disk cannot hold would end the program when it is first written.
static int check_disk(struct gguf_writer *w, uint64_t bytes) {
    struct statvfs fs;
    if (!fstatvfs(fileno(w->file), &fs) && (uint64_t)fs.f_bavail * fs.f_frsize < bytes)
        err_set(&w->first, ERR_IO,
                "%s needs %" PRIu64 " MiB but the disk has %" PRIu64
                " MiB left: free some space or choose another disk",
                w->path, bytes >> 20, (uint64_t)fs.f_bavail * fs.f_frsize >> 20);
    return w->first.code;
}

int gguf_writer_map(struct gguf_writer *w, unsigned char **places, struct err *e) {
    if (w->max_bytes)
        err_set(&w->first, ERR_STATE, "%s: a file in parts cannot be mapped", w->path);
    if (begin_data(w))
        return writer_failed(w, e);
    int64_t head = fflush(w->file) ? -1 : (int64_t)ftello(w->file);
    w->map_bytes = (size_t)head + w->offset;
    if (check_disk(w, w->offset))
        return writer_failed(w, e);
    void *map = MAP_FAILED;
    if (head >= 0 && !ftruncate(fileno(w->file), (off_t)w->map_bytes))
        map = mmap(NULL, w->map_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fileno(w->file), 0);
    if (map == MAP_FAILED) {
        err_set(&w->first, ERR_IO,
                "%s cannot be written: %s: free some space or choose another disk", w->temporary,
                strerror(errno));
        return writer_failed(w, e);
    }
    w->map = map;
    unsigned char *place = (unsigned char *)map + head;
    for (uint64_t i = 0; i < w->n_tensors; i++) {
        places[i] = place;
        place += round_up_size((size_t)w->sizes[i], w->alignment);
    }
    w->current = w->n_tensors;
    return 0;
}

// Checks that all data of a part came, and syncs it.
static int complete(struct gguf_writer *w) {
    begin_data(w);
    if (!w->first.code && w->current != w->n_tensors)
        err_set(&w->first, ERR_STATE, "%s: data of %" PRIu64 " tensors is missing", w->path,
                w->n_tensors - w->current);
    if (!w->first.code && !w->map && (fflush(w->file) || fsync(fileno(w->file))))
        err_set(&w->first, ERR_IO,
                "%s cannot be written: %s: free some space or choose another disk", w->temporary,
                strerror(errno));
    return w->first.code;
}

// Gives a complete part its name.
static int take_name(struct gguf_writer *w, struct err *e) {
    int rc = fclose(w->file);
    w->file = NULL;
    if (rc || rename(w->temporary, w->path))
        return err_set(e, ERR_IO, "%s cannot be finished: %s: check the folder and its free space",
                       w->path, strerror(errno));
    free(w->temporary);
    w->temporary = NULL;
    return 0;
}

int gguf_writer_close(struct gguf_writer *w, struct err *e) {
    int rc = complete(w);
    for (int64_t i = 0; i < w->n_parts_after && !rc; i++)
        if ((rc = complete(w->parts_after[i])))
            w->first = w->parts_after[i]->first;
    if (rc)
        rc = writer_failed(w, e);
    for (int64_t i = 0; i <= w->n_parts_after && !rc; i++)
        rc = take_name(part_at(w, i), e);
    gguf_writer_abort(w); // which takes away what has no name yet
    return rc;
}

void gguf_writer_abort(struct gguf_writer *w) {
    if (!w)
        return;
    for (int64_t i = 0; i < w->n_parts_after; i++)
        gguf_writer_abort(w->parts_after[i]);
    if (w->file)
        fclose(w->file);
    if (w->temporary)
        unlink(w->temporary);
    free_writer(w);
}
