// SPDX-License-Identifier: Apache-2.0
// Streams the tensors of a plan into a GGUF file: decode, transform and encode a piece on all
// threads, write it. Two piece buffers are all the memory used, whatever the model's size; a piece
// is 2^18 elements, or a whole row where that is longer and has importances.
#include <float.h>
#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/num.h"
#include "base/pool.h"
#include "convert/plan.h"
#include "convert/quantize/packed.h"
#include "formats/quant/quant.h"

enum {
    PIECE = 1 << 18, // elements decoded at a time; a multiple of every block
    SLICE = 1 << 13, // elements a thread encodes at a time; likewise
};
#define HALF_MAX 65504.0f

struct stream {
    const struct gguf *source; // see struct convert_plan
    struct pool *pool;
    float *values;
    unsigned char *encoded;
    const struct convert_options *options;
    int64_t done, total; // bytes of the source
};

static void decode_source(const struct tensor *t, int64_t at, int64_t n, float *dst) {
    if (t->type == CONVERT_PACKED) {
        convert_unpack(t, at, n, dst);
        return;
    }
    const struct quant_format *f = quant_format(t->type);
    f->dequantize((const unsigned char *)t->data + quant_row_bytes(f, at), dst, n);
}

static int64_t item_elements(const struct convert_item *it) {
    int64_t total = 1;
    for (int i = 0; i < it->n_dims; i++)
        total *= it->ne[i];
    return total;
}

// Bytes of n elements of an item's source.
static int64_t source_size(const struct convert_item *it, int64_t n) {
    return it->src->type == CONVERT_PACKED ? convert_packed_bytes(it->src, n)
                                           : quant_row_bytes(quant_format(it->src->type), n);
}

// Bytes of the source that an item reads.
static int64_t source_bytes(const struct convert_item *it) {
    return source_size(it, item_elements(it));
}

// Decodes elements at..at+n of a result that is cut from slices of the source.
static void decode_cut(const struct convert_item *it, int64_t at, int64_t n, float *dst) {
    const struct convert_cut *c = &it->cut;
    for (int64_t run; n > 0; at += run, dst += run, n -= run) {
        int64_t inside = at % c->slice;
        run = c->slice - inside < n ? c->slice - inside : n;
        decode_source(it->src, at / c->slice * c->stride + c->offset + inside, run, dst);
    }
}

// Decodes elements at..at+n of a result that is made of several sources.
static void decode_parts(const struct convert_item *it, int64_t at, int64_t n, float *dst) {
    int64_t part = item_elements(it) / it->n_parts;
    for (int64_t run; n > 0; at += run, dst += run, n -= run) {
        int64_t inside = at % part;
        run = part - inside < n ? part - inside : n;
        decode_source(it->parts[at / part], inside, run, dst);
    }
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
        run = min_i64(run, n);
        if (it->cut.slice)
            decode_cut(it, from, run, dst);
        else
            decode_source(it->src, from, run, dst);
        at += run;
        dst += run;
        n -= run;
    }
}

static void decode_item(const struct convert_item *it, int64_t at, int64_t n, float *dst) {
    if (it->remap.unit)
        decode_remapped(it, at, n, dst);
    else if (it->cut.slice)
        decode_cut(it, at, n, dst);
    else if (it->n_parts)
        decode_parts(it, at, n, dst);
    else
        decode_source(it->src, at, n, dst);
}

static void apply_op(enum convert_op op, float *v, int64_t n) {
    for (int64_t i = 0; i < n && op == OP_PLUS_ONE; i++)
        v[i] += 1.0f;
    for (int64_t i = 0; i < n && op == OP_NEG_EXP; i++)
        v[i] = -expf(v[i]);
}

// The first value that is not finite or that the type cannot hold; n when there is none.
static int64_t first_wrong(const struct convert_item *it, const float *v, int64_t n) {
    // A half is in every type but these.
    bool half = it->type != TYPE_F32 && it->type != TYPE_BF16 && it->type != TYPE_MXFP4;
    const float max = half ? HALF_MAX : FLT_MAX;
    for (int64_t i = 0; i < n; i++)
        if (!(fabsf(v[i]) <= max))
            return i;
    return n;
}

static int refuse_value(const struct convert_item *it, int64_t at, float v, struct err *e) {
    if (!isfinite(v))
        return err_set(e, ERR_FORMAT,
                       "element %" PRId64 " of tensor '%s' is not finite: the "
                       "checkpoint is broken, get it again",
                       at, it->name);
    return err_set(e, ERR_UNSUPPORTED,
                   "element %" PRId64 " of tensor '%s' is %g, too large "
                   "for %s: use BF16 or F32",
                   at, it->name, (double)v, quant_format(it->type)->name);
}

struct encode_job {
    const struct convert_item *item;
    const struct quant_format *format;
    float *values;
    unsigned char *out;
    int64_t at, count; // the piece within the item's elements
    atomic_bool wrong; // values were found that must not be encoded
};

// Decodes, transforms and checks elements from .. from + n of the piece.
static bool decode_slice(struct encode_job *j, int64_t from, int64_t n) {
    float *v = j->values + from;
    decode_item(j->item, j->at + from, n, v);
    apply_op(j->item->op, v, n);
    if (first_wrong(j->item, v, n) == n)
        return true;
    atomic_store_explicit(&j->wrong, true, memory_order_relaxed);
    return false;
}

static void encode_slices(void *arg, int64_t begin, int64_t end, int worker) {
    struct encode_job *j = arg;
    (void)worker;
    for (int64_t s = begin; s < end; s++) {
        int64_t at = s * SLICE, n = j->count - at < SLICE ? j->count - at : SLICE;
        if (decode_slice(j, at, n))
            j->format->quantize(j->values + at, j->out + quant_row_bytes(j->format, at), n);
    }
}

// With importances: whole rows, of which those of a slice share them.
static void encode_rows(void *arg, int64_t begin, int64_t end, int worker) {
    struct encode_job *j = arg;
    (void)worker;
    int64_t row = j->item->ne[0], first = j->at / row;
    for (int64_t r = begin; r < end; r++) {
        int64_t at = r * row, slice = (first + r) / j->item->ne[1];
        if (decode_slice(j, at, row))
            j->format->quantize_weighted(j->values + at, j->item->importance + slice * row,
                                         j->out + quant_row_bytes(j->format, at), row);
    }
}

static bool is_weighted(const struct convert_item *it) {
    return it->importance && quant_format(it->type)->quantize_weighted;
}

// Elements decoded at a time: with importances whole rows, at least one.
static int64_t piece_size(const struct convert_item *it) {
    if (!is_weighted(it))
        return PIECE;
    return it->ne[0] < PIECE ? PIECE / it->ne[0] * it->ne[0] : it->ne[0];
}

// Decodes and encodes elements at .. at + n on all threads.
static int encode_piece(const struct stream *s, const struct convert_item *it, int64_t at,
                        int64_t n, struct err *e) {
    struct encode_job job = {.item = it,
                             .format = quant_format(it->type),
                             .values = s->values,
                             .out = s->encoded,
                             .at = at,
                             .count = n};
    int64_t row = it->ne[0];
    if (is_weighted(it))
        pool_run(s->pool, n / row, row < SLICE ? SLICE / row : 1, encode_rows, &job);
    else
        pool_run(s->pool, ceil_div(n, SLICE), 1, encode_slices, &job);
    if (!atomic_load_explicit(&job.wrong, memory_order_relaxed))
        return 0;
    int64_t i = first_wrong(it, s->values, n);
    return refuse_value(it, at + i, s->values[i], e);
}

// Reports how far the source has been read; non-zero when the caller stops it.
static int report_progress(struct stream *s, const struct convert_item *it, int64_t bytes,
                           struct err *e) {
    const struct convert_options *o = s->options;
    if (o->progress && o->progress(o->progress_arg, it->name, s->done + bytes, s->total))
        return err_set(e, ERR_STATE, "stopped in tensor '%s'; nothing was written", it->name);
    return 0;
}

// Gives back the pages of elements at .. at + n of a source that is read in order.
static void release_piece(const struct stream *s, const struct convert_item *it, int64_t at,
                          int64_t n) {
    if (!s->source || it->remap.unit)
        return;
    const struct quant_format *f = quant_format(it->src->type);
    struct tensor piece = *it->src;
    piece.data = (const unsigned char *)it->src->data + quant_row_bytes(f, at);
    piece.bytes = quant_row_bytes(f, n);
    gguf_release(s->source, &piece);
}

static int write_encoded(struct gguf_writer *w, struct stream *s, const struct convert_item *it,
                         struct err *e) {
    const struct quant_format *f = quant_format(it->type);
    int64_t total = item_elements(it), piece = piece_size(it);
    int rc = 0;
    for (int64_t at = 0; at < total && !rc; at += piece) {
        int64_t n = total - at < piece ? total - at : piece;
        rc = encode_piece(s, it, at, n, e);
        if (rc)
            return rc;
        rc = gguf_write_data(w, s->encoded, (size_t)quant_row_bytes(f, n), e);
        release_piece(s, it, at, n);
        if (!rc)
            rc = report_progress(s, it, source_size(it, at + n), e);
    }
    return rc;
}

// The 17 bytes of a block: its scale, then value i in the low and i + 16 in the high half of byte
// i.
static void pack_block(unsigned char *out, const unsigned char *in, unsigned char scale) {
    out[0] = scale;
    for (int i = 0; i < 16; i++) {
        int low = in[i / 2] >> (i % 2 ? 4 : 0), high = in[8 + i / 2] >> (i % 2 ? 4 : 0);
        out[1 + i] = (unsigned char)((low & 15) | (high & 15) << 4);
    }
}

static int write_packed(struct gguf_writer *w, struct stream *s, const struct convert_item *it,
                        struct err *e) {
    const unsigned char *blocks = it->src->data, *scales = it->scales->data;
    int64_t n = it->ne[0] / 32, rows = it->ne[1] * it->ne[2], max = (int64_t)PIECE * 4 / 17;
    for (int64_t r = 0; r < rows; r++) {
        int64_t from = (r * it->cut.stride + it->cut.offset) * n;
        for (int64_t b = 0, k; b < n; b += k) {
            k = n - b < max ? n - b : max;
            for (int64_t i = 0; i < k; i++)
                pack_block(s->encoded + i * 17, blocks + (from + b + i) * 16, scales[from + b + i]);
            int rc = gguf_write_data(w, s->encoded, (size_t)k * 17, e);
            if (rc)
                return rc;
        }
    }
    return report_progress(s, it, source_bytes(it), e);
}

static int write_item(struct gguf_writer *w, struct stream *s, const struct convert_item *it,
                      struct err *e) {
    const struct quant_format *from = quant_format(it->src->type), *to = quant_format(it->type);
    if (it->scales)
        return write_packed(w, s, it, e);
    if (it->src->type == CONVERT_PACKED && to->quantize)
        return write_encoded(w, s, it, e);
    bool whole = !it->remap.unit && !it->cut.slice && !it->n_parts;
    bool untouched = from == to && it->op == OP_NONE && whole;
    if (untouched && (from->block > 1 || !from->dequantize || !from->quantize)) {
        int rc = gguf_write_data(w, it->src->data, (size_t)it->src->bytes, e);
        return rc ? rc : report_progress(s, it, it->src->bytes, e);
    }
    if (!from->dequantize || !to->quantize)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor '%s' cannot be converted from %s to %s: start from "
                       "a file in F16, BF16 or F32",
                       it->name, from->name, to->name);
    return write_encoded(w, s, it, e);
}

static int write_items(struct gguf_writer *w, const struct convert_plan *p, struct stream *s,
                       struct err *e) {
    for (size_t i = 0; i < p->count; i++)
        s->total += source_bytes(&p->items[i]);
    for (size_t i = 0; i < p->count; i++) {
        const struct convert_item *it = &p->items[i];
        int rc = write_item(w, s, it, e);
        if (rc)
            return rc;
        s->done += source_bytes(it);
        if (p->source)
            gguf_release(p->source, it->src);
    }
    return 0;
}

int convert_write(struct gguf_writer *w, const struct convert_plan *p,
                  const struct convert_options *o, struct err *e) {
    struct stream s = {.source = p->source, .options = o};
    int64_t piece = PIECE;
    if (o->split_size)
        gguf_writer_split(w, o->split_size);
    for (size_t i = 0; i < p->count; i++) {
        const struct convert_item *it = &p->items[i];
        gguf_add_tensor(w, it->name, it->type, it->n_dims, it->ne);
        piece = max_i64(piece_size(it), piece);
    }
    int rc = pool_create(&s.pool, o->threads, e);
    if (rc)
        return rc;
    s.values = malloc((size_t)piece * sizeof *s.values);
    s.encoded = malloc((size_t)piece * sizeof(float));
    if (s.values && s.encoded)
        rc = write_items(w, p, &s, e);
    else
        rc = err_set(e, ERR_MEMORY, "not enough memory for the conversion buffers");
    free(s.values);
    free(s.encoded);
    pool_destroy(s.pool);
    return rc;
}
