// SPDX-License-Identifier: Apache-2.0
// Reads safetensors files: an 8-byte length, a JSON header, and tensors that tile the rest of the
// file exactly. Data is borrowed from the map and only byte-aligned. Names are keys, never paths.
#include "formats/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/file.h"
#include "base/json/json.h"
#include "base/map.h"
#include "base/memory/arena.h"
#include "base/vec.h"
#include "formats/gguf/impl.h"
#include "formats/quant/quant.h"

#define MAX_HEADER 100000000u
#define AGAIN      "the file is damaged, get it again"

static const struct dtype {
    const char *name;
    int bits;
    int type; // enum tensor_type, or -1
} dtypes[] = {
    {"F64", 64, TYPE_F64}, {"F32", 32, TYPE_F32},  {"F16", 16, TYPE_F16},  {"BF16", 16, TYPE_BF16},
    {"I64", 64, TYPE_I64}, {"I32", 32, TYPE_I32},  {"I16", 16, TYPE_I16},  {"I8", 8, TYPE_I8},
    {"U64", 64, -1},       {"U32", 32, -1},        {"U16", 16, -1},        {"U8", 8, -1},
    {"C64", 64, -1},       {"BOOL", 8, -1},        {"F8_E5M2", 8, -1},     {"F8_E4M3", 8, -1},
    {"F8_E8M0", 8, -1},    {"F8_E4M3FNUZ", 8, -1}, {"F8_E5M2FNUZ", 8, -1}, {"F6_E2M3", 6, -1},
    {"F6_E3M2", 6, -1},    {"F4", 4, -1},
};

// A tensor of one file with its byte range; `why` is set when it cannot be represented.
struct entry {
    struct tensor t;
    const char *why;
    const char *bytes; // the dtype, where an element is a byte and no number of ours
    uint64_t begin, end;
};

struct safetensors {
    struct arena arena;
    struct file_map *files;
    size_t n_files;
    struct entry *entries; // readable ones first after close_table()
    size_t count, readable;
    int64_t cap;
    struct map names; // name -> entry
    struct map file_names;
};

// State of parsing one header.
struct header {
    struct safetensors *s;
    const unsigned char *buffer; // the byte buffer after the header
    uint64_t data_bytes;
    size_t first; // index of the file's first entry
    size_t inner; // members of all tensor objects
    struct err *e;
};

static int refuse_no_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "not enough memory for the file's table of contents");
}

static const struct dtype *find_dtype(const char *name) {
    for (size_t i = 0; name && i < sizeof dtypes / sizeof *dtypes; i++)
        if (!strcmp(dtypes[i].name, name))
            return &dtypes[i];
    return NULL;
}

// Number of elements of a shape; negative when an entry is no count or the product overflows.
static int64_t shape_elements(const struct json *shape) {
    int64_t n = 1;
    bool empty = false;
    if (json_kind_of(shape) != JSON_ARRAY)
        return -1;
    for (size_t i = 0; i < json_len(shape); i++) {
        const struct json *d = json_at(shape, i);
        int64_t v = json_kind_of(d) == JSON_INT ? json_int(d, -1) : -1;
        if (v < 0 || (v && n > INT64_MAX / 64 / v))
            return -1;
        empty |= v == 0;
        n = v ? n * v : n;
    }
    return empty ? 0 : n;
}

static bool add_tensor_entry(struct safetensors *s, const struct entry *x) {
    if (vec_reserve(&s->entries, &s->cap, (int64_t)s->count + 1, sizeof *s->entries, NULL))
        return false;
    s->entries[s->count++] = *x;
    return true;
}

// Fills what a struct tensor holds; sets why when it cannot hold this one. False without memory.
static bool describe_tensor(struct header *h, struct entry *x, const struct dtype *d,
                            const struct json *shape) {
    char why[48];
    size_t rank = json_len(shape);
    x->t.type = (uint32_t)d->type;
    x->t.n_dims = rank ? (int)(rank > 4 ? 4 : rank) : 1;
    x->t.bytes = (int64_t)(x->end - x->begin);
    x->t.data = h->buffer + x->begin;
    for (size_t i = 0; i < 4; i++)
        x->t.ne[i] = i < rank ? json_int(json_at(shape, rank - 1 - i), 0) : 1;
    if (rank <= 4 && d->type >= 0)
        return true;
    if (rank <= 4 && d->bits == 8) {
        x->bytes = d->name;
        x->t.type = TYPE_I8;
    }
    if (d->type < 0)
        snprintf(why, sizeof why, "dtype %s", d->name);
    else
        snprintf(why, sizeof why, "%zu dimensions", rank);
    x->why = arena_strndup(&h->s->arena, why, strlen(why));
    return x->why != NULL;
}

static int add_tensor(struct header *h, const char *key, size_t key_len, const struct json *v) {
    struct gguf_label name = gguf_printable(key, key_len);
    const struct json *offsets = json_get(v, "data_offsets"), *shape = json_get(v, "shape");
    const char *text = json_str(json_get(v, "dtype"), NULL);
    const struct dtype *d = find_dtype(text);
    struct entry x = {0};
    if (!d)
        return err_set(h->e, ERR_UNSUPPORTED,
                       "tensor '%s' has the unknown dtype '%.20s': convert "
                       "the model to BF16 first",
                       name.text, text ? text : "");
    int64_t n = shape_elements(shape);
    if (n < 0 || n * d->bits % 8)
        return err_set(h->e, ERR_FORMAT, "tensor '%s' has no valid shape: " AGAIN, name.text);
    int64_t begin = json_int(json_at(offsets, 0), -1), end = json_int(json_at(offsets, 1), -1);
    if (json_len(offsets) != 2 || begin < 0 || end < begin || (uint64_t)end > h->data_bytes)
        return err_set(h->e, ERR_FORMAT,
                       "data_offsets [%" PRId64 ", %" PRId64 "] of tensor '%s' do "
                       "not lie in the %" PRIu64 " data bytes: " AGAIN,
                       begin, end, name.text, h->data_bytes);
    if (end - begin != n * d->bits / 8)
        return err_set(h->e, ERR_FORMAT,
                       "tensor '%s' has %" PRId64 " bytes, but its shape and dtype "
                       "need %" PRId64 ": " AGAIN,
                       name.text, end - begin, n * d->bits / 8);
    x.begin = (uint64_t)begin;
    x.end = (uint64_t)end;
    x.t.name = arena_strndup(&h->s->arena, key, key_len);
    bool described = describe_tensor(h, &x, d, shape);
    int inserted = described && x.t.name && h->s->count < UINT32_MAX
                       ? map_insert(&h->s->names, x.t.name, key_len, (uint32_t)h->s->count)
                       : -1;
    if (inserted < 0 || !add_tensor_entry(h->s, &x))
        return refuse_no_memory(h->e);
    if (!inserted)
        return err_set(h->e, ERR_FORMAT, "tensor '%s' occurs twice: " AGAIN, name.text);
    h->inner += json_len(v);
    return 0;
}

static int check_text(void *arg, const char *key, size_t key_len, const struct json *v) {
    struct header *h = arg;
    if (json_kind_of(v) == JSON_STRING)
        return 0;
    return err_set(h->e, ERR_FORMAT, "__metadata__ entry '%s' is no string: " AGAIN,
                   gguf_printable(key, key_len).text);
}

static int add_member(void *arg, const char *key, size_t key_len, const struct json *v) {
    struct header *h = arg;
    bool about = strcmp(key, "__metadata__") == 0;
    if (about && json_kind_of(v) == JSON_NULL) // says that there is none
        return 0;
    if (json_kind_of(v) != JSON_OBJECT)
        return err_set(h->e, ERR_FORMAT, "header entry '%s' is no object%s: " AGAIN,
                       gguf_printable(key, key_len).text, about ? " of strings" : "");
    if (!about)
        return add_tensor(h, key, key_len, v);
    h->inner += json_len(v);
    return json_each(v, check_text, h);
}

// Counts the members of the outer object and of the objects in it by their colons. The text is
// valid JSON, in which a parser keeps only one of two equal names: the counts then differ.
static void count_members(const char *text, size_t n, size_t *outer, size_t *inner) {
    int depth = 0;
    bool quoted = false;
    *outer = *inner = 0;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (c == '"')
            quoted = !quoted;
        else if (quoted)
            i += c == '\\';
        else if (c == '{' || c == '[')
            depth++;
        else if (c == '}' || c == ']')
            depth--;
        else if (c == ':' && depth <= 2)
            ++*(depth == 1 ? outer : inner);
    }
}

static int by_range(const void *a, const void *b) {
    const struct entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

// The tensors of one file must cover its data without holes and overlaps.
static int check_tiling(struct header *h, struct err *e) {
    struct safetensors *s = h->s;
    size_t n = s->count - h->first;
    uint64_t at = 0;
    struct entry *sorted = malloc(n ? n * sizeof *sorted : 1);
    if (!sorted)
        return refuse_no_memory(e);
    if (n) // else there may be no entries
        memcpy(sorted, s->entries + h->first, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_range);
    int rc = 0;
    for (size_t i = 0; i < n && !rc; i++) {
        if (sorted[i].begin != at)
            rc = err_set(e, ERR_FORMAT,
                         "tensor '%.60s' begins at byte %" PRIu64 " of the data, not "
                         "where the one before ends (%" PRIu64 "): " AGAIN,
                         sorted[i].t.name, sorted[i].begin, at);
        at = sorted[i].end;
    }
    free(sorted);
    if (!rc && at != h->data_bytes)
        rc = err_set(e, ERR_FORMAT,
                     "the tensors cover %" PRIu64 " of %" PRIu64 " data bytes: " AGAIN, at,
                     h->data_bytes);
    return rc;
}

static int parse_root(struct header *h, const struct json *root, const char *text, size_t n,
                      struct err *e) {
    size_t outer, inner;
    if (json_kind_of(root) != JSON_OBJECT)
        return err_set(e, ERR_FORMAT, "the header is no JSON object: " AGAIN);
    int rc = json_each(root, add_member, h);
    if (rc)
        return rc;
    count_members(text, n, &outer, &inner);
    if (outer != json_len(root) || inner != h->inner)
        return err_set(e, ERR_FORMAT, "the header names an entry twice: " AGAIN);
    return check_tiling(h, e);
}

static int parse_file(struct safetensors *s, const unsigned char *data, size_t size,
                      struct err *e) {
    struct json *root;
    if (size < 8)
        return err_set(e, ERR_FORMAT, "the file has only %zu bytes and is no safetensors file",
                       size);
    uint64_t n = gguf_u64(data);
    if (n > MAX_HEADER || n > size - 8 || !n || data[8] != '{')
        return err_set(e, ERR_FORMAT,
                       "the header length %" PRIu64 " does not fit a safetensors file "
                       "of %zu bytes: give a complete .safetensors file",
                       n, size);
    const char *text = (const char *)data + 8;
    int rc = json_parse(&root, text, (size_t)n, e);
    if (rc)
        return err_prefix(e, "the header is not valid");
    struct header h = {
        .s = s, .buffer = data + 8 + n, .data_bytes = size - 8 - n, .first = s->count, .e = e};
    rc = parse_root(&h, root, text, (size_t)n, e);
    json_free(root);
    return rc;
}

// Moves readable entries to the front, in file order, and points the names at their new places.
static int close_table(struct safetensors *s, struct err *e) {
    struct entry *sorted = malloc(s->count ? s->count * sizeof *sorted : 1);
    size_t n = 0;
    if (!sorted)
        return refuse_no_memory(e);
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < s->count; i++)
            if (!s->entries[i].why == !pass)
                sorted[n++] = s->entries[i];
        s->readable = pass ? s->readable : n;
    }
    free(s->entries);
    s->entries = sorted;
    map_fini(&s->names);
    for (size_t i = 0; i < s->count; i++)
        if (map_insert(&s->names, sorted[i].t.name, strlen(sorted[i].t.name), (uint32_t)i) < 0)
            return refuse_no_memory(e);
    return 0;
}

static int open_file(struct safetensors *s, const char *path, struct err *e) {
    struct file_map *files = realloc(s->files, (s->n_files + 1) * sizeof *files);
    if (!files)
        return refuse_no_memory(e);
    s->files = files;
    int rc = file_map_open(&files[s->n_files], path, e);
    if (rc)
        return rc;
    const struct file_map *m = &files[s->n_files++];
    rc = parse_file(s, m->data, m->size, e);
    return rc ? err_prefix(e, "%s", path) : 0;
}

// State of reading an index: the folder (with its slash) and its shards.
struct index {
    struct safetensors *s;
    const char *path;
    size_t folder;
    struct err *e;
};

static int open_shard(void *arg, const char *key, size_t key_len, const struct json *v) {
    struct index *x = arg;
    size_t len = 0;
    const char *file = json_str(v, &len);
    if (!file || !len || memchr(file, '/', len) || memchr(file, '\\', len) ||
        memchr(file, 0, len) || len > 255 || file[0] == '.')
        return err_set(x->e, ERR_FORMAT,
                       "%s: tensor '%s' is in the file '%s', which is no plain file "
                       "name: get the index again",
                       x->path, gguf_printable(key, key_len).text,
                       gguf_printable(file ? file : "", len).text);
    char *path = arena_alloc(&x->s->arena, x->folder + len + 1);
    if (!path)
        return refuse_no_memory(x->e);
    memcpy(path, x->path, x->folder);
    memcpy(path + x->folder, file, len);
    int inserted = map_insert(&x->s->file_names, path, strlen(path), (uint32_t)x->s->n_files);
    if (inserted <= 0)
        return inserted ? refuse_no_memory(x->e) : 0;
    return open_file(x->s, path, x->e);
}

static int check_shard(void *arg, const char *key, size_t key_len, const struct json *v) {
    struct index *x = arg;
    char path[512];
    uint32_t i, file;
    size_t len;
    const char *name = json_str(v, &len);
    memcpy(path, x->path, x->folder);
    memcpy(path + x->folder, name, len);
    if (map_find(&x->s->names, key, key_len, &i) &&
        map_find(&x->s->file_names, path, x->folder + len, &file)) {
        const struct file_map *m = &x->s->files[file];
        const unsigned char *at = x->s->entries[i].t.data;
        if (at >= m->data && at <= m->data + m->size)
            return 0;
    }
    return err_set(x->e, ERR_MISMATCH, "%s: tensor '%s' is not in '%s': get index and shards again",
                   x->path, gguf_printable(key, key_len).text, gguf_printable(name, len).text);
}

static int open_index(struct safetensors *s, const char *path, struct err *e) {
    struct str text = {0};
    struct json *root = NULL;
    const char *slash = strrchr(path, '/');
    struct index x = {
        .s = s, .path = path, .folder = slash ? (size_t)(slash - path) + 1 : 0, .e = e};
    if (x.folder > 255)
        return err_set(e, ERR_LIMIT, "%.60s...: the path is too long: move the model", path);
    int rc = file_read(&text, path, MAX_HEADER, e);
    if (!rc && json_parse(&root, text.data, text.len, e))
        rc = err_prefix(e, "%s", path);
    const struct json *map = json_get(root, "weight_map");
    if (!rc && (json_kind_of(map) != JSON_OBJECT || !json_len(map)))
        rc = err_set(e, ERR_FORMAT, "%s has no weight_map: get the index again", path);
    if (!rc)
        rc = json_each(map, open_shard, &x);
    if (!rc)
        rc = json_each(map, check_shard, &x);
    json_free(root);
    str_fini(&text);
    return rc;
}

// Opens what path names: a folder, an index or a file.
static int open_any(struct safetensors *s, const char *path, struct err *e) {
    static const char *const names[] = {"model.safetensors.index.json", "model.safetensors"};
    struct stat st;
    size_t n = strlen(path);
    if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
        for (int i = 0; i < 2; i++) {
            char *inside = arena_alloc(&s->arena, n + 32);
            if (!inside)
                return refuse_no_memory(e);
            snprintf(inside, n + 32, "%s/%s", path, names[i]);
            if (!stat(inside, &st))
                return i ? open_file(s, inside, e) : open_index(s, inside, e);
        }
        return err_set(e, ERR_IO,
                       "%s holds neither model.safetensors nor its index: give a model "
                       "folder",
                       path);
    }
    return n > 5 && !strcmp(path + n - 5, ".json") ? open_index(s, path, e) : open_file(s, path, e);
}

int safetensors_open(struct safetensors **out, const char *path, struct err *e) {
    struct safetensors *s = calloc(1, sizeof *s);
    if (!s)
        return refuse_no_memory(e);
    int rc = open_any(s, path, e);
    if (!rc)
        rc = close_table(s, e);
    if (rc)
        safetensors_close(s);
    else
        *out = s;
    return rc;
}

void safetensors_close(struct safetensors *s) {
    if (!s)
        return;
    for (size_t i = 0; i < s->n_files; i++)
        file_map_close(&s->files[i]);
    free(s->files);
    free(s->entries);
    map_fini(&s->names);
    map_fini(&s->file_names);
    arena_fini(&s->arena);
    free(s);
}

size_t safetensors_count(const struct safetensors *s) {
    return s->readable;
}

const struct tensor *safetensors_at(const struct safetensors *s, size_t i) {
    return i < s->readable ? &s->entries[i].t : NULL;
}

const struct tensor *safetensors_tensor(const struct safetensors *s, const char *name) {
    uint32_t i;
    if (!map_find(&s->names, name, strlen(name), &i) || s->entries[i].why)
        return NULL;
    return &s->entries[i].t;
}

const char *safetensors_unreadable(const struct safetensors *s, const char *name) {
    uint32_t i;
    return map_find(&s->names, name, strlen(name), &i) ? s->entries[i].why : NULL;
}

size_t safetensors_unreadable_count(const struct safetensors *s) {
    return s->count - s->readable;
}

const char *safetensors_unreadable_at(const struct safetensors *s, size_t i) {
    return s->entries[s->readable + i].t.name;
}

const struct tensor *safetensors_bytes(const struct safetensors *s, const char *name,
                                       const char *dtype) {
    uint32_t i;
    if (!map_find(&s->names, name, strlen(name), &i))
        return NULL;
    const struct entry *x = &s->entries[i];
    return x->bytes && !strcmp(x->bytes, dtype) ? &x->t : NULL;
}
