// SPDX-License-Identifier: Apache-2.0
// An open GGUF file: look-up by name and typed reads of metadata. Opening is in open.c,
// parsing in parse.c, writing in write.c. All data is borrowed from read-only maps.
#include "formats/gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/impl.h"

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

int gguf_check(const struct gguf *g, struct err *e) {
    for (int i = 0; i < g->n_parts; i++)
        if (!file_map_unchanged(&g->parts[i]))
            return err_set(e, ERR_IO,
                           "%s has changed while it was read; load it again once it is whole, and "
                           "put new files in the place of old ones by renaming them",
                           g->path);
    return 0;
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
