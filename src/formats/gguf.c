// SPDX-License-Identifier: Apache-2.0
// An open GGUF file: its parts, look-up by name, and typed reads of metadata. Parsing is in
// gguf_parse.c, writing in gguf_write.c. All data is borrowed from read-only maps.
#include "formats/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf_impl.h"

static const struct {
    const char *name;
    size_t size;
} kinds[] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},       [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},     [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1},   [GGUF_STRING] = {"string", 0},
    [GGUF_U64] = {"u64", 8}, [GGUF_ARRAY] = {"array", 0}, [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};

size_t gguf_kind_size(int kind) {
    return kind >= GGUF_U8 && kind <= GGUF_F64 ? kinds[kind].size : 0;
}

const char *gguf_kind_name(int kind) {
    return kind >= GGUF_U8 && kind <= GGUF_F64 ? kinds[kind].name : "unknown";
}

struct gguf_label gguf_printable(const char *s, size_t n) {
    struct gguf_label out = {""};
    size_t shown = n > 63 ? 63 : n;
    for (size_t i = 0; i < shown; i++)
        out.text[i] = s[i] >= 32 && s[i] < 127 ? s[i] : '?';
    if (n > shown)
        strcpy(out.text + shown, "...");
    return out;
}

void gguf_meta_fini(struct gguf_meta *meta) {
    free(meta->kv);
    map_fini(&meta->keys);
    *meta = (struct gguf_meta){0};
}

const struct gguf_kv *gguf_meta_find(const struct gguf_meta *meta, const char *key) {
    uint32_t i;
    return map_find(&meta->keys, key, strlen(key), &i) ? &meta->kv[i] : NULL;
}

bool gguf_load_int(int kind, const unsigned char *p, int64_t *v) {
    switch (kind) {
    case GGUF_U8:
    case GGUF_BOOL:
        *v = p[0];
        return true;
    case GGUF_I8:
        *v = (int8_t)p[0];
        return true;
    case GGUF_U16:
        *v = p[0] | p[1] << 8;
        return true;
    case GGUF_I16:
        *v = (int16_t)(p[0] | p[1] << 8);
        return true;
    case GGUF_U32:
        *v = gguf_u32(p);
        return true;
    case GGUF_I32:
        *v = (int32_t)gguf_u32(p);
        return true;
    case GGUF_U64:
        *v = (int64_t)gguf_u64(p);
        return *v >= 0;
    case GGUF_I64:
        *v = (int64_t)gguf_u64(p);
        return true;
    default:
        return false;
    }
}

static double load_float(int kind, const unsigned char *p) {
    int64_t i = 0;
    if (kind == GGUF_F32) {
        float f;
        memcpy(&f, p, sizeof f);
        return (double)f;
    }
    if (kind == GGUF_F64) {
        double d;
        memcpy(&d, p, sizeof d);
        return d;
    }
    if (kind == GGUF_U64)
        return (double)gguf_u64(p);
    gguf_load_int(kind, p, &i);
    return (double)i;
}

// Maps one more file and parses it.
static int open_part(struct gguf *g, const char *path, struct gguf_meta *meta, struct err *e) {
    struct file_map *parts = realloc(g->parts, (size_t)(g->n_parts + 1) * sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open the file", path);
    g->parts = parts;
    g->parts[g->n_parts] = (struct file_map){0};
    int rc = file_map_open(&g->parts[g->n_parts], path, e);
    if (rc)
        return rc;
    const struct file_map *m = &g->parts[g->n_parts++];
    g->bytes += m->size;
    if (gguf_parse(g, meta, m->data, m->size, e))
        return err_prefix(e, "%s", path);
    return 0;
}

static int split_int(const struct gguf_meta *m, const char *key, int64_t otherwise) {
    const struct gguf_kv *kv = gguf_meta_find(m, key);
    int64_t v;
    if (!kv || kv->kind == GGUF_BOOL || !gguf_load_int(kv->kind, kv->bytes, &v))
        return (int)otherwise;
    return v < 0 || v > INT32_MAX ? -1 : (int)v;
}

// Length of path without "-NNNNN-of-NNNNN.gguf" for part `no` (0-based); 0 when it ends otherwise.
static size_t split_stem(const char *path, int no, int count) {
    char tail[48];
    int n = snprintf(tail, sizeof tail, "-%05d-of-%05d.gguf", no + 1, count);
    size_t len = strlen(path);
    if (len <= (size_t)n || strcmp(path + len - (size_t)n, tail))
        return 0;
    return len - (size_t)n;
}

static int open_sibling(struct gguf *g, size_t stem, int no, int count, struct err *e) {
    struct gguf_meta meta = {0};
    size_t room = stem + 48;
    char *path = arena_alloc(&g->arena, room);
    if (!path)
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open its parts", g->path);
    snprintf(path, room, "%.*s-%05d-of-%05d.gguf", (int)stem, g->path, no + 1, count);
    int rc = open_part(g, path, &meta, e);
    if (!rc &&
        (split_int(&meta, "split.no", -1) != no || split_int(&meta, "split.count", -1) != count))
        rc = err_set(e, ERR_FORMAT,
                     "%s: split.no and split.count say part %d of %d, not %d of %d: get the parts "
                     "of one model again",
                     path, split_int(&meta, "split.no", -1) + 1,
                     split_int(&meta, "split.count", -1), no + 1, count);
    gguf_meta_fini(&meta);
    return rc;
}

// Opens the other parts of a split file; a file without split keys is complete as it is.
static int open_splits(struct gguf *g, struct err *e) {
    int count = split_int(&g->meta, "split.count", 0), no = split_int(&g->meta, "split.no", 0);
    int64_t total = split_int(&g->meta, "split.tensors.count", -1);
    if (count >= 0 && count <= 1)
        return 0;
    if (count < 0 || count > 65535 || no < 0 || no >= count)
        return err_set(e, ERR_FORMAT, "%s: part %d of %d makes no sense: get the file again",
                       g->path, no + 1, count);
    size_t stem = split_stem(g->path, no, count);
    if (!stem || stem > 4096)
        return err_set(e, ERR_FORMAT,
                       "%s is part %d of %d, but its name does not end in -%05d-of-%05d.gguf: "
                       "restore its name",
                       g->path, no + 1, count, no + 1, count);
    if (no)
        return err_set(e, ERR_USAGE,
                       "%s is part %d of %d: give the first part, %.*s-00001-of-%05d"
                       ".gguf",
                       g->path, no + 1, count, (int)stem, g->path, count);
    int rc = 0;
    for (int i = 1; i < count && !rc; i++)
        rc = open_sibling(g, stem, i, count, e);
    if (!rc && total != (int64_t)g->n_tensors)
        rc = err_set(e, ERR_FORMAT,
                     "%s: the %d parts hold %zu tensors, but split.tensors.count says %" PRId64
                     ": get the parts again",
                     g->path, count, g->n_tensors, total);
    return rc;
}

int gguf_open(struct gguf **out, const char *path, struct err *e) {
    struct gguf *g = calloc(1, sizeof *g);
    if (g)
        g->path = arena_strndup(&g->arena, path, strlen(path));
    if (!g || !g->path) {
        gguf_close(g);
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open the file", path);
    }
    int rc = open_part(g, g->path, &g->meta, e);
    if (!rc)
        rc = open_splits(g, e);
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}

int gguf_open_memory(struct gguf **out, const void *data, size_t size, struct err *e) {
    struct gguf *g = calloc(1, sizeof *g);
    if (!g)
        return err_set(e, ERR_MEMORY, "not enough memory to open GGUF data");
    g->path = "GGUF data in memory";
    g->bytes = size;
    int rc = gguf_parse(g, &g->meta, data, size, e);
    if (rc)
        rc = err_prefix(e, "%s", g->path);
    else if (split_int(&g->meta, "split.count", 0) > 1)
        rc = err_set(e, ERR_UNSUPPORTED, "%s is one part of a split model: open it by its path",
                     g->path);
    if (rc)
        gguf_close(g);
    else
        *out = g;
    return rc;
}

void gguf_close(struct gguf *g) {
    if (!g)
        return;
    for (int i = 0; i < g->n_parts; i++)
        file_map_close(&g->parts[i]);
    free(g->parts);
    gguf_meta_fini(&g->meta);
    free(g->tensors);
    map_fini(&g->names);
    arena_fini(&g->arena);
    free(g);
}

const char *gguf_path(const struct gguf *g) {
    return g->path;
}

int gguf_version(const struct gguf *g) {
    return g->version;
}

uint64_t gguf_bytes(const struct gguf *g) {
    return g->bytes;
}

void gguf_stream(const struct gguf *g) {
    for (int i = 0; i < g->n_parts; i++)
        file_map_stream(&g->parts[i]);
}

void gguf_release(const struct gguf *g, const struct tensor *t) {
    for (int i = 0; i < g->n_parts; i++)
        if (file_map_release(&g->parts[i], t->data, (size_t)t->bytes))
            return;
}

int gguf_parts(const struct gguf *g) {
    return g->n_parts > 1 ? g->n_parts : 1;
}

size_t gguf_kv_count(const struct gguf *g) {
    return g->meta.count;
}

const struct gguf_kv *gguf_kv_at(const struct gguf *g, size_t i) {
    return i < g->meta.count ? &g->meta.kv[i] : NULL;
}

const struct gguf_kv *gguf_find(const struct gguf *g, const char *key) {
    return gguf_meta_find(&g->meta, key);
}

size_t gguf_tensor_count(const struct gguf *g) {
    return g->n_tensors;
}

const struct tensor *gguf_tensor_at(const struct gguf *g, size_t i) {
    return i < g->n_tensors ? &g->tensors[i] : NULL;
}

const struct tensor *gguf_tensor(const struct gguf *g, const char *name) {
    uint32_t i;
    return map_find(&g->names, name, strlen(name), &i) ? &g->tensors[i] : NULL;
}

static int wrong_kind(const struct gguf *g, const struct gguf_kv *kv, const char *wanted,
                      struct err *e) {
    return err_set(e, ERR_FORMAT, "%s: key '%s' has type %s, not %s: convert the model again",
                   g->path, gguf_printable(kv->key, strlen(kv->key)).text, gguf_kind_name(kv->kind),
                   wanted);
}

int gguf_get_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
                 int64_t *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t v = 0;
    *out = otherwise;
    if (!kv)
        return 0;
    if (kv->kind == GGUF_BOOL || kv->kind == GGUF_F32 || !gguf_kind_size(kv->kind) ||
        kv->kind == GGUF_F64)
        return wrong_kind(g, kv, "an integer", e);
    bool fits = gguf_load_int(kv->kind, kv->bytes, &v);
    if (!fits || v < lo || v > hi)
        return err_set(e, ERR_FORMAT,
                       "%s: key '%s' is %s%" PRId64 ", allowed are %" PRId64 " to %" PRId64
                       ": convert the model again",
                       g->path, key, fits ? "" : "above ", fits ? v : INT64_MAX, lo, hi);
    *out = v;
    return 0;
}

int gguf_get_float(const struct gguf *g, const char *key, double otherwise, double *out,
                   struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    *out = otherwise;
    if (!kv)
        return 0;
    if (kv->kind != GGUF_F32 && kv->kind != GGUF_F64)
        return wrong_kind(g, kv, "a float", e);
    double v = load_float(kv->kind, kv->bytes);
    if (!isfinite(v))
        return err_set(e, ERR_FORMAT,
                       "%s: key '%s' is %g, not a finite number: convert the model "
                       "again",
                       g->path, key, v);
    *out = v;
    return 0;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool otherwise, bool *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    *out = otherwise;
    if (!kv)
        return 0;
    if (kv->kind != GGUF_BOOL)
        return wrong_kind(g, kv, "bool", e);
    *out = kv->bytes[0] != 0;
    return 0;
}

int gguf_get_str(const struct gguf *g, const char *key, const char **s, size_t *len,
                 struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    *s = NULL;
    *len = 0;
    if (!kv)
        return 0;
    if (kv->kind != GGUF_STRING)
        return wrong_kind(g, kv, "a string", e);
    *len = (size_t)gguf_u64(kv->bytes);
    *s = (const char *)kv->bytes + 8;
    return 0;
}

int64_t gguf_array_int(const struct gguf_kv *kv, uint64_t i) {
    int kind = kv->kind == GGUF_ARRAY ? kv->elem : kv->kind;
    const unsigned char *p = kv->bytes + i * gguf_kind_size(kind);
    int64_t v = 0;
    if (kind == GGUF_F32 || kind == GGUF_F64) {
        double d = load_float(kind, p);
        return d > -9e18 && d < 9e18 ? (int64_t)d : 0;
    }
    return gguf_load_int(kind, p, &v) ? v : INT64_MAX;
}

double gguf_array_float(const struct gguf_kv *kv, uint64_t i) {
    int kind = kv->kind == GGUF_ARRAY ? kv->elem : kv->kind;
    return load_float(kind, kv->bytes + i * gguf_kind_size(kind));
}

const char *gguf_array_str(const unsigned char **cursor, size_t *len) {
    const char *s = (const char *)*cursor + 8;
    *len = (size_t)gguf_u64(*cursor);
    *cursor = (const unsigned char *)s + *len;
    return s;
}
