// SPDX-License-Identifier: Apache-2.0
// Parses one GGUF part out of memory and refuses whatever is not sound: every length is compared
// with what is left before it is used, and arrays grow with what was really read, so a lying
// count costs nothing. What a key or a tensor means is the model loader's business.
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "base/vec.h"
#include "formats/gguf/impl.h"
#include "formats/quant/quant.h"

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

static int cut_off(const struct part *p, const char *what, struct err *e) {
    return err_set(e, ERR_FORMAT,
                   "the file ends at byte %zu inside %s: it is cut off, get it again", p->at.size,
                   what);
}

static int out_of_memory(struct err *e) {
    return err_set(e, ERR_MEMORY, "not enough memory for the file's table of contents");
}

static int take(struct part *p, size_t n, const unsigned char **out) {
    if (n > p->at.size - p->at.pos)
        return 0;
    *out = p->at.data + p->at.pos;
    p->at.pos += n;
    return 1;
}

static int parse_header(struct part *p, struct err *e) {
    const unsigned char *b;
    if (!take(p, 24, &b))
        return cut_off(p, "the header", e);
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
    if (!take(p, 8, &b))
        return cut_off(p, what, e);
    uint64_t n = gguf_u64(b);
    if (n > limit)
        return err_set(e, ERR_FORMAT,
                       "%s is %" PRIu64 " bytes long, at most %" PRIu64 " are allowed: " AGAIN,
                       what, n, limit);
    if (!take(p, (size_t)n, &b))
        return cut_off(p, what, e);
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
        return cut_off(p, what, e);
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
    if (!take(p, 12, &b))
        return cut_off(p, what, e);
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
        return cut_off(p, what, e);
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
    if (!take(p, 4, &b))
        return cut_off(p, what, e);
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
    const struct gguf_kv *kv = gguf_meta_find(p->meta, "general.alignment");
    p->alignment = GGUF_DEFAULT_ALIGNMENT;
    if (!kv)
        return 0;
    if (kv->kind != GGUF_U32)
        return err_set(e, ERR_FORMAT, "key 'general.alignment' has type %s, not u32: " AGAIN,
                       gguf_kind_name(kv->kind));
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
    if (!take(p, 4, &b))
        return cut_off(p, "a tensor description", e);
    uint32_t n = gguf_u32(b);
    if (n < 1 || n > 4)
        return err_set(e, ERR_FORMAT, "tensor '%s' has %" PRIu32 " dimensions, not 1 to 4: " AGAIN,
                       t->name, n);
    if (!take(p, 8 * (size_t)n, &b))
        return cut_off(p, "a tensor description", e);
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
    if (!take(p, 12, &b))
        return cut_off(p, "a tensor description", e);
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
        return cut_off(p, "the padding before the tensor data", e);
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

int gguf_parse(struct gguf *g, struct gguf_meta *meta, const void *data, size_t size,
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
