// SPDX-License-Identifier: Apache-2.0
// Reads GGUF files: maps them, parses each part and refuses whatever is not sound, finds the other
// parts of a split model; then look-up by name and typed reads of metadata. Every length is
// compared with what is left before it is used, and arrays grow with what was really read, so a
// lying count costs nothing. What a key or a tensor means is for the model loader. All data is
// borrowed from read-only maps.
#include "formats/gguf/gguf.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/vec.h"
#include "formats/gguf/impl.h"
#include "formats/quant/quant.h"

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

static const char *kind_name(int kind) {
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

static void meta_fini(struct gguf_meta *meta) {
    free(meta->kv);
    map_fini(&meta->keys);
    *meta = (struct gguf_meta){0};
}

static const struct gguf_kv *meta_find(const struct gguf_meta *meta, const char *key) {
    uint32_t i;
    return map_find(&meta->keys, key, strlen(key), &i) ? &meta->kv[i] : NULL;
}

// Any integer or bool kind as a number; false when it does not fit int64_t.
static bool load_int(int kind, const unsigned char *p, int64_t *v) {
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
    load_int(kind, p, &i);
    return (double)i;
}

void gguf_close(struct gguf *g) {
    if (!g)
        return;
    for (int i = 0; i < g->n_parts; i++)
        file_map_close(&g->parts[i]);
    free(g->parts);
    meta_fini(&g->meta);
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
    return meta_find(&g->meta, key);
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

static int refuse_kind(const struct gguf *g, const struct gguf_kv *kv, const char *wanted,
                       struct err *e) {
    return err_set(e, ERR_FORMAT, "%s: key '%s' has type %s, not %s: convert the model again",
                   g->path, gguf_printable(kv->key, strlen(kv->key)).text, kind_name(kv->kind),
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
        return refuse_kind(g, kv, "an integer", e);
    bool fits = load_int(kv->kind, kv->bytes, &v);
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
        return refuse_kind(g, kv, "a float", e);
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
        return refuse_kind(g, kv, "bool", e);
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
        return refuse_kind(g, kv, "a string", e);
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
    return load_int(kind, p, &v) ? v : INT64_MAX;
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

#define AGAIN "the file is damaged, get it again"

struct cursor {
    const unsigned char *data;
    size_t size, pos;
};

// Where a tensor of this part lies, relative to the part's data section.
struct place {
    uint64_t offset, bytes;
    size_t index;
};

struct part {
    struct gguf *g;
    struct gguf_meta *meta;
    struct cursor at;
    uint64_t n_kv, n_tensors;
    uint64_t alignment;
    struct place *places;
    size_t count;
    int64_t cap;
};

static int refuse_cut_off(const struct part *p, const char *what, struct err *e) {
    return err_set(e, ERR_FORMAT,
                   "the file ends at byte %zu inside %s: it is cut off, get it again", p->at.size,
                   what);
}

static int out_of_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "not enough memory for the file's table of contents");
}

static int take_bytes(struct part *p, size_t n, const unsigned char **out) {
    if (n > p->at.size - p->at.pos)
        return 0;
    *out = p->at.data + p->at.pos;
    p->at.pos += n;
    return 1;
}

static int parse_header(struct part *p, struct err *e) {
    const unsigned char *b;
    if (!take_bytes(p, 24, &b))
        return refuse_cut_off(p, "the header", e);
    uint32_t version = gguf_u32(b + 4);
    p->n_tensors = gguf_u64(b + 8);
    p->n_kv = gguf_u64(b + 16);
    if (memcmp(b, "GGUF", 4))
        return err_set(e, ERR_FORMAT,
                       "the file begins with %02x %02x %02x %02x and is no GGUF file: give a .gguf "
                       "file",
                       b[0], b[1], b[2], b[3]);
    if (version && !(version & 0xFFFF))
        return err_set(e, ERR_UNSUPPORTED,
                       "the file is big-endian (version reads %" PRIu32
                       "): get the little-endian file",
                       version);
    if (version != 2 && version != 3)
        return err_set(e, ERR_UNSUPPORTED,
                       "GGUF version %" PRIu32 " is not supported, only 2 and 3 are: convert the "
                       "model again",
                       version);
    if (p->n_tensors > (p->at.size - 24) / 24)
        return err_set(e, ERR_FORMAT, "%" PRIu64 " tensors cannot fit in %zu bytes: " AGAIN,
                       p->n_tensors, p->at.size);
    if (p->n_kv > (p->at.size - 24) / 13)
        return err_set(e, ERR_FORMAT, "%" PRIu64 " metadata keys cannot fit in %zu bytes: " AGAIN,
                       p->n_kv, p->at.size);
    p->g->version = (int)version;
    return 0;
}

// A length-counted string of at most `limit` bytes.
static int parse_string(struct part *p, const char *what, uint64_t limit, const char **s,
                        size_t *len, struct err *e) {
    const unsigned char *b;
    if (!take_bytes(p, 8, &b))
        return refuse_cut_off(p, what, e);
    uint64_t n = gguf_u64(b);
    if (n > limit)
        return err_set(e, ERR_FORMAT,
                       "%s is %" PRIu64 " bytes long, at most %" PRIu64 " are allowed: " AGAIN,
                       what, n, limit);
    if (!take_bytes(p, (size_t)n, &b))
        return refuse_cut_off(p, what, e);
    *s = (const char *)b;
    *len = (size_t)n;
    return 0;
}

// A string used as a name: not empty, no NUL, valid UTF-8; copied with a terminator.
static int parse_name(struct part *p, const char *what, uint64_t limit, const char **name,
                      size_t *len, struct err *e) {
    const char *s = "";
    int rc = parse_string(p, what, limit, &s, len, e);
    if (rc)
        return rc;
    if (!*len)
        return err_set(e, ERR_FORMAT, "%s before byte %zu is empty: " AGAIN, what, p->at.pos);
    if (memchr(s, 0, *len) || !utf8_valid(s, *len))
        return err_set(e, ERR_FORMAT, "%s '%s' holds a NUL or is not UTF-8: " AGAIN, what,
                       gguf_printable(s, *len).text);
    *name = arena_strndup(&p->g->arena, s, *len);
    return *name ? 0 : out_of_memory(e);
}

// Bytes of an array's elements or of a bool: each must be 0 or 1.
static int check_bools(const struct gguf_kv *kv, struct err *e) {
    for (uint64_t i = 0; i < kv->count; i++)
        if (kv->bytes[i] > 1)
            return err_set(e, ERR_FORMAT, "bool key '%s' holds the byte %d, not 0 or 1: " AGAIN,
                           gguf_printable(kv->key, strlen(kv->key)).text, kv->bytes[i]);
    return 0;
}

static int parse_strings(struct part *p, struct gguf_kv *kv, const char *what, struct err *e) {
    if (kv->count > (p->at.size - p->at.pos) / 8)
        return refuse_cut_off(p, what, e);
    for (uint64_t i = 0; i < kv->count; i++) {
        const char *s;
        size_t len;
        int rc = parse_string(p, what, GGUF_MAX_LONG, &s, &len, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int parse_array_head(struct part *p, struct gguf_kv *kv, const char *what, struct err *e) {
    const unsigned char *b;
    if (!take_bytes(p, 12, &b))
        return refuse_cut_off(p, what, e);
    uint32_t elem = gguf_u32(b);
    kv->count = gguf_u64(b + 4);
    if (elem == GGUF_ARRAY)
        return err_set(e, ERR_UNSUPPORTED, "%s is an array of arrays, which no model needs: " AGAIN,
                       what);
    if (elem > GGUF_F64)
        return err_set(e, ERR_FORMAT, "%s has the unknown element type %" PRIu32 ": " AGAIN, what,
                       elem);
    if (kv->count > GGUF_MAX_LONG)
        return err_set(e, ERR_FORMAT,
                       "%s claims %" PRIu64 " elements, at most %u are allowed: " AGAIN, what,
                       kv->count, GGUF_MAX_LONG);
    kv->elem = (int)elem;
    return 0;
}

static int parse_value(struct part *p, struct gguf_kv *kv, const char *what, struct err *e) {
    int rc = 0, kind = kv->kind;
    kv->count = 1;
    if (kind == GGUF_ARRAY) {
        rc = parse_array_head(p, kv, what, e);
        kind = kv->elem;
    }
    if (rc)
        return rc;
    kv->bytes = p->at.data + p->at.pos;
    if (kind == GGUF_STRING)
        return parse_strings(p, kv, what, e);
    size_t size = gguf_kind_size(kind);
    if (kv->count > (p->at.size - p->at.pos) / size)
        return refuse_cut_off(p, what, e);
    p->at.pos += (size_t)kv->count * size;
    return kind == GGUF_BOOL ? check_bools(kv, e) : 0;
}

static int parse_kv(struct part *p, struct err *e) {
    struct gguf_meta *m = p->meta;
    struct gguf_kv kv = {0};
    const unsigned char *b;
    char what[112];
    size_t len;
    int rc = parse_name(p, "a metadata key", GGUF_MAX_KEY, &kv.key, &len, e);
    if (rc)
        return rc;
    struct gguf_label label = gguf_printable(kv.key, len);
    snprintf(what, sizeof what, "the value of key '%s'", label.text);
    int inserted =
        m->count < UINT32_MAX ? map_insert(&m->keys, kv.key, len, (uint32_t)m->count) : -1;
    if (inserted < 0 || vec_reserve(&m->kv, &m->cap, (int64_t)m->count + 1, sizeof *m->kv, NULL))
        return out_of_memory(e);
    if (!inserted)
        return err_set(e, ERR_FORMAT, "key '%s' occurs twice: " AGAIN, label.text);
    if (!take_bytes(p, 4, &b))
        return refuse_cut_off(p, what, e);
    if (gguf_u32(b) > GGUF_F64)
        return err_set(e, ERR_FORMAT, "%s has the unknown type %" PRIu32 ": " AGAIN, what,
                       gguf_u32(b));
    kv.kind = (int)gguf_u32(b);
    rc = parse_value(p, &kv, what, e);
    if (!rc)
        m->kv[m->count++] = kv;
    return rc;
}

static int read_alignment(struct part *p, struct err *e) {
    const struct gguf_kv *kv = meta_find(p->meta, "general.alignment");
    p->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (!kv)
        return 0;
    if (kv->kind != GGUF_U32)
        return err_set(e, ERR_FORMAT, "key 'general.alignment' has type %s, not u32: " AGAIN,
                       kind_name(kv->kind));
    p->alignment = gguf_u32(kv->bytes);
    if (!p->alignment || (p->alignment & (p->alignment - 1)))
        return err_set(e, ERR_FORMAT,
                       "key 'general.alignment' is %" PRIu64 ", not a power of two: " AGAIN,
                       p->alignment);
    return 0;
}

// Reads the dimensions and computes the bytes of a tensor whose name and type are known.
static int parse_shape(struct part *p, struct tensor *t, struct err *e) {
    const unsigned char *b;
    if (!take_bytes(p, 4, &b))
        return refuse_cut_off(p, "a tensor description", e);
    uint32_t n = gguf_u32(b);
    if (n < 1 || n > 4)
        return err_set(e, ERR_FORMAT, "tensor '%s' has %" PRIu32 " dimensions, not 1 to 4: " AGAIN,
                       t->name, n);
    if (!take_bytes(p, 8 * (size_t)n, &b))
        return refuse_cut_off(p, "a tensor description", e);
    t->n_dims = (int)n;
    for (int i = 0; i < 4; i++) {
        uint64_t d = i < (int)n ? gguf_u64(b + 8 * i) : 1;
        if (d < 1 || d > INT64_MAX)
            return err_set(e, ERR_FORMAT, "dimension %d of tensor '%s' is %" PRIu64 ": " AGAIN, i,
                           t->name, d);
        t->ne[i] = (int64_t)d;
    }
    return 0;
}

static int parse_type(struct tensor *t, uint32_t type, struct err *e) {
    const struct quant_format *f = quant_format(type);
    if (!f)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor '%s' has the unknown type %" PRIu32
                       ": get the model in a common type such as Q4_K or Q8_0",
                       t->name, type);
    t->type = type;
    if (t->ne[0] % f->block)
        return err_set(e, ERR_FORMAT,
                       "tensor '%s' has rows of %" PRId64 " elements, not a multiple of %s's "
                       "block of %d: " AGAIN,
                       t->name, t->ne[0], f->name, f->block);
    int64_t bytes = quant_row_bytes(f, t->ne[0]);
    for (int i = 1; i < 4 && bytes >= 0; i++)
        bytes = t->ne[i] > INT64_MAX / bytes ? -1 : bytes * t->ne[i];
    if (bytes < 0)
        return err_set(e, ERR_FORMAT, "the size of tensor '%s' exceeds 2^63 bytes: " AGAIN,
                       t->name);
    t->bytes = bytes;
    return 0;
}

static int parse_tensor(struct part *p, struct err *e) {
    struct gguf *g = p->g;
    struct tensor t = {0};
    const unsigned char *b;
    size_t len;
    int rc = parse_name(p, "a tensor name", GGUF_MAX_NAME, &t.name, &len, e);
    if (!rc)
        rc = parse_shape(p, &t, e);
    if (rc)
        return rc;
    if (!take_bytes(p, 12, &b))
        return refuse_cut_off(p, "a tensor description", e);
    rc = parse_type(&t, gguf_u32(b), e);
    if (rc)
        return rc;
    int inserted =
        g->n_tensors < UINT32_MAX ? map_insert(&g->names, t.name, len, (uint32_t)g->n_tensors) : -1;
    if (inserted < 0 ||
        vec_reserve(&g->tensors, &g->cap_tensors, (int64_t)g->n_tensors + 1, sizeof t, NULL) ||
        vec_reserve(&p->places, &p->cap, (int64_t)p->count + 1, sizeof *p->places, NULL))
        return out_of_memory(e);
    if (!inserted)
        return err_set(e, ERR_FORMAT, "tensor '%s' occurs twice: " AGAIN, t.name);
    p->places[p->count++] = (struct place){gguf_u64(b + 4), (uint64_t)t.bytes, g->n_tensors};
    g->tensors[g->n_tensors++] = t;
    return 0;
}

static int by_offset(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

// Points each tensor into the data section, after checking that it lies there alone.
static int place_tensors(struct part *p, struct err *e) {
    struct tensor *tensors = p->g->tensors;
    uint64_t pad = (p->alignment - p->at.pos % p->alignment) % p->alignment, end = 0;
    if (!p->count)
        return 0;
    if (pad > p->at.size - p->at.pos)
        return refuse_cut_off(p, "the padding before the tensor data", e);
    uint64_t start = p->at.pos + pad, bytes = p->at.size - start;
    qsort(p->places, p->count, sizeof *p->places, by_offset);
    for (size_t i = 0; i < p->count; i++) {
        const struct place *at = &p->places[i];
        struct tensor *t = &tensors[at->index];
        if (at->offset % p->alignment)
            return err_set(e, ERR_FORMAT,
                           "tensor '%s' is at offset %" PRIu64 ", not a multiple of "
                           "the alignment %" PRIu64 ": " AGAIN,
                           t->name, at->offset, p->alignment);
        if (at->offset > bytes || at->bytes > bytes - at->offset)
            return err_set(e, ERR_FORMAT,
                           "tensor '%s' (%" PRIu64 " bytes at offset %" PRIu64
                           ") lies beyond the file's end: it is cut off, get it again",
                           t->name, at->bytes, at->offset);
        if (at->offset < end)
            return err_set(e, ERR_FORMAT, "tensor '%s' overlaps tensor '%s': " AGAIN, t->name,
                           tensors[p->places[i - 1].index].name);
        end = at->offset + at->bytes;
        t->data = p->at.data + start + at->offset;
    }
    return 0;
}

// Text that is shown or run as a program must be UTF-8; token texts need not be.
static int check_templates(const struct gguf_meta *m, struct err *e) {
    static const char prefix[] = "tokenizer.chat_template";
    for (size_t i = 0; i < m->count; i++) {
        const struct gguf_kv *kv = &m->kv[i];
        if (kv->kind != GGUF_STRING || strncmp(kv->key, prefix, sizeof prefix - 1))
            continue;
        if (!utf8_valid((const char *)kv->bytes + 8, (size_t)gguf_u64(kv->bytes)))
            return err_set(e, ERR_FORMAT, "key '%s' is not valid UTF-8: " AGAIN,
                           gguf_printable(kv->key, strlen(kv->key)).text);
    }
    return 0;
}

// Parses one part: its metadata to meta, its tensors after those of g. Errors name no file.
static int parse_part(struct gguf *g, struct gguf_meta *meta, const void *data, size_t size,
                      struct err *e) {
    struct part p = {.g = g, .meta = meta, .at = {.data = data, .size = size}};
    int rc = parse_header(&p, e);
    for (uint64_t i = 0; i < p.n_kv && !rc; i++)
        rc = parse_kv(&p, e);
    if (!rc)
        rc = read_alignment(&p, e);
    if (!rc)
        rc = check_templates(meta, e);
    for (uint64_t i = 0; i < p.n_tensors && !rc; i++)
        rc = parse_tensor(&p, e);
    if (!rc)
        rc = place_tensors(&p, e);
    free(p.places);
    return rc;
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
    if (parse_part(g, meta, m->data, m->size, e))
        return err_prefix(e, "%s", path);
    return 0;
}

static int split_int(const struct gguf_meta *m, const char *key, int64_t otherwise) {
    const struct gguf_kv *kv = meta_find(m, key);
    int64_t v;
    if (!kv || kv->kind == GGUF_BOOL || !load_int(kv->kind, kv->bytes, &v))
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

// Opens part `no` of the model, whose tensors follow those of g; the metadata of part 0 stay.
static int open_sibling(struct gguf *g, size_t stem, int no, int count, struct err *e) {
    struct gguf_meta own = {0}, *meta = no ? &own : &g->meta;
    size_t size = stem + 48;
    char *path = arena_alloc(&g->arena, size);
    if (!path)
        return err_set(e, ERR_MEMORY, "%s: not enough memory to open its parts", g->path);
    snprintf(path, size, "%.*s-%05d-of-%05d.gguf", (int)stem, g->path, no + 1, count);
    if (no == 0)
        g->path = path;
    int rc = open_part(g, path, meta, e);
    int is = rc ? no : split_int(meta, "split.no", -1);
    int of = rc ? count : split_int(meta, "split.count", -1);
    if (is != no || of != count)
        rc = err_set(e, ERR_FORMAT,
                     "%s is not part %d of %d: split.no and split.count say part %d of %d; get the "
                     "parts of one model again",
                     path, no + 1, count, is + 1, of);
    meta_fini(&own);
    return rc;
}

// Another part than the first was given: begins again with the first, which has the metadata.
static int reopen_first(struct gguf *g, size_t stem, int count, struct err *e) {
    meta_fini(&g->meta);
    map_fini(&g->names);
    file_map_close(&g->parts[--g->n_parts]);
    g->n_tensors = 0;
    g->bytes = 0;
    return open_sibling(g, stem, 0, count, e);
}

// Opens the other parts of a split file; a file without split keys is complete as it is.
static int open_splits(struct gguf *g, struct err *e) {
    int count = split_int(&g->meta, "split.count", 0), no = split_int(&g->meta, "split.no", 0);
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
    int rc = no ? reopen_first(g, stem, count, e) : 0;
    for (int i = 1; i < count && !rc; i++)
        rc = open_sibling(g, stem, i, count, e);
    int64_t total = split_int(&g->meta, "split.tensors.count", -1);
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
    int rc = parse_part(g, &g->meta, data, size, e);
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
