// SPDX-License-Identifier: Apache-2.0
// Streams the tensors of a plan into a GGUF file: decode a piece, transform it, encode it on all
// threads, write it. Two piece buffers are all the memory used, whatever the model's size.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/pool.h"
#include "formats/convert_impl.h"
#include "formats/quant.h"

enum {
    PIECE = 1 << 18, // elements decoded at a time; a multiple of every block
    SLICE = 1 << 13, // elements a thread encodes at a time; likewise
};
#define HALF_MAX 65504.0f

struct stream {
    struct pool *pool;
    float *values;
    unsigned char *encoded;
};

int convert_plan_add(struct convert_plan *p, const struct convert_item *item, struct err *e) {
    if (p->count == p->cap) {
        size_t cap = p->cap ? 2 * p->cap : 256;
        struct convert_item *items = realloc(p->items, cap * sizeof *items);
        if (!items)
            return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
        p->items = items;
        p->cap = cap;
    }
    p->items[p->count] = *item;
    const char *name = arena_strndup(&p->arena, item->name, strlen(item->name));
    if (!name)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    p->items[p->count++].name = name;
    return 0;
}

void convert_plan_fini(struct convert_plan *p) {
    free(p->items);
    arena_fini(&p->arena);
    *p = (struct convert_plan){0};
}

static void decode(const struct tensor *t, int64_t at, int64_t n, float *dst) {
    const struct quant_format *f = quant_format(t->type);
    f->dequantize((const unsigned char *)t->data + quant_row_bytes(f, at), dst, n);
}

// Decodes elements at..at+n of the result, run by run, from where they lie in the source.
static void decode_remapped(const struct convert_item *it, int64_t at, int64_t n, float *dst) {
    const struct convert_remap *m = &it->remap;
    int heads = m->keys * m->copies;
    while (n > 0) {
        int64_t from = at, run = m->skip - at;
        if (at >= m->skip) {
            int64_t unit = (at - m->skip) / m->unit, inside = (at - m->skip) % m->unit;
            int64_t period = unit / heads, head = unit % heads;
            int64_t source = head % m->keys * m->copies + head / m->keys;
            from = m->skip + (period * heads + source) * m->unit + inside;
            run = m->unit - inside;
        }
        run = run < n ? run : n;
        decode(it->src, from, run, dst);
        at += run;
        dst += run;
        n -= run;
    }
}

static void apply_op(enum convert_op op, float *v, int64_t n) {
    for (int64_t i = 0; i < n && op == OP_PLUS_ONE; i++)
        v[i] += 1.0f;
    for (int64_t i = 0; i < n && op == OP_NEG_EXP; i++)
        v[i] = -expf(v[i]);
}

static int check_values(const struct convert_item *it, const float *v, int64_t at, int64_t n,
                        struct err *e) {
    bool half = it->type != TYPE_F32 && it->type != TYPE_BF16; // a half is in every other type
    for (int64_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            return err_set(e, ERR_FORMAT,
                           "element %" PRId64 " of tensor '%s' is not finite: the "
                           "checkpoint is broken, get it again",
                           at + i, it->name);
        if (half && fabsf(v[i]) > HALF_MAX)
            return err_set(e, ERR_UNSUPPORTED,
                           "element %" PRId64 " of tensor '%s' is %g, too large "
                           "for %s: use BF16 or F32",
                           at + i, it->name, (double)v[i], quant_format(it->type)->name);
    }
    return 0;
}

struct encode_job {
    const struct quant_format *format;
    const float *values;
    unsigned char *out;
    int64_t count;
};

static void encode_slices(void *arg, int64_t begin, int64_t end, int worker) {
    const struct encode_job *j = arg;
    (void)worker;
    for (int64_t s = begin; s < end; s++) {
        int64_t at = s * SLICE, n = j->count - at < SLICE ? j->count - at : SLICE;
        j->format->quantize(j->values + at, j->out + quant_row_bytes(j->format, at), n);
    }
}

static int write_encoded(struct gguf_writer *w, const struct stream *s,
                         const struct convert_item *it, struct err *e) {
    const struct quant_format *f = quant_format(it->type);
    int64_t total = 1;
    for (int i = 0; i < it->n_dims; i++)
        total *= it->ne[i];
    int rc = 0;
    for (int64_t at = 0; at < total && !rc; at += PIECE) {
        int64_t n = total - at < PIECE ? total - at : PIECE;
        if (it->remap.unit)
            decode_remapped(it, at, n, s->values);
        else
            decode(it->src, at, n, s->values);
        apply_op(it->op, s->values, n);
        rc = check_values(it, s->values, at, n, e);
        if (rc)
            return rc;
        struct encode_job job = {f, s->values, s->encoded, n};
        pool_run(s->pool, (n + SLICE - 1) / SLICE, 1, encode_slices, &job);
        rc = gguf_write_data(w, s->encoded, (size_t)quant_row_bytes(f, n), e);
    }
    return rc;
}

static int write_item(struct gguf_writer *w, const struct stream *s, const struct convert_item *it,
                      struct err *e) {
    const struct quant_format *from = quant_format(it->src->type), *to = quant_format(it->type);
    bool untouched = from == to && it->op == OP_NONE && !it->remap.unit;
    if (untouched && (from->block > 1 || !from->dequantize || !from->quantize))
        return gguf_write_data(w, it->src->data, (size_t)it->src->bytes, e);
    if (!from->dequantize || !to->quantize)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor '%s' cannot be converted from %s to %s: start from "
                       "a file in F16, BF16 or F32",
                       it->name, from->name, to->name);
    return write_encoded(w, s, it, e);
}

static int write_all(struct gguf_writer *w, const struct convert_plan *p, const struct stream *s,
                     const struct convert_options *o, struct err *e) {
    int64_t total = 0, done = 0;
    for (size_t i = 0; i < p->count; i++)
        total += p->items[i].src->bytes;
    for (size_t i = 0; i < p->count; i++) {
        const struct convert_item *it = &p->items[i];
        int rc = write_item(w, s, it, e);
        if (rc)
            return rc;
        done += it->src->bytes;
        if (o->progress && o->progress(o->progress_arg, it->name, done, total))
            return err_set(e, ERR_STATE, "stopped after tensor '%s'; nothing was written",
                           it->name);
    }
    return 0;
}

int convert_write(struct gguf_writer *w, const struct convert_plan *p,
                  const struct convert_options *o, struct err *e) {
    struct stream s = {0};
    for (size_t i = 0; i < p->count; i++) {
        const struct convert_item *it = &p->items[i];
        gguf_add_tensor(w, it->name, it->type, it->n_dims, it->ne);
    }
    int rc = pool_create(&s.pool, o->threads, e);
    if (rc)
        return rc;
    s.values = malloc(PIECE * sizeof *s.values);
    s.encoded = malloc(PIECE * sizeof(float));
    if (s.values && s.encoded)
        rc = write_all(w, p, &s, o, e);
    else
        rc = err_set(e, ERR_MEMORY, "not enough memory for the conversion buffers");
    free(s.values);
    free(s.encoded);
    pool_destroy(s.pool);
    return rc;
}
