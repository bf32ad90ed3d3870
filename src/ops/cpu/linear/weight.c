// SPDX-License-Identifier: Apache-2.0
// Weights in the CPU's own order (struct weight in ops/cpu/simd/row/row.h): 16 output rows side by
// side, so that a vector lane is an output row and no sum ever crosses lanes. Repacking runs once,
// at load.
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"
#include "ops/cpu/cpu.h"
#include "ops/cpu/pages.h"

static int64_t number_bytes(enum code_form f) {
    return f == FORM_F32 ? 4 : 2;
}

// Shape and sizes of a tensor's packed form; false when linear layers cannot read it.
static bool layout(const struct tensor *t, bool woven, struct weight *w) {
    const struct quant_code_type *row = quant_code_type(t->type);
    const struct quant_format *q = quant_format(t->type);
    if (!row || t->ne[2] < 1 || t->ne[2] > OPS_EXPERTS_MAX || t->ne[3] != 1 ||
        quant_row_bytes(q, t->ne[0]) < 0)
        return false;
    *w = (struct weight){
        .type = t->type,
        .form = row->form,
        .k = t->ne[0],
        .m = t->ne[1],
        .experts = t->ne[2],
        .tiles = ceil_div(t->ne[1], TILE),
        .source = t->data,
        .source_row = quant_row_bytes(q, t->ne[0]),
    };
    if (!row->take) {
        int64_t k = w->form == FORM_BF16 ? round_up(w->k, GROUP) : w->k;
        w->scales_at = k * TILE * number_bytes(w->form);
        w->tile_bytes = round_up(w->scales_at, 64);
        return true;
    }
    const struct form *f = code_form(w->form);
    int64_t groups = w->k / GROUP, codes = groups * group_bytes(*f);
    w->woven = woven;
    w->scales_at = woven ? 0 : codes;
    int64_t scales = woven ? ceil_div(groups, WOVEN) * scale_bytes(*f)
                           : ceil_div(groups * scale_bytes(*f), WOVEN);
    w->tile_bytes = round_up(codes + scales, 64);
    return true;
}

int64_t cpu_weight_bytes(const struct exec *x, const struct tensor *t) {
    struct weight w;
    const struct cpu *c = (const struct cpu *)x;
    return layout(t, c->row.woven, &w) ? w.experts * w.tiles * w.tile_bytes : 0;
}

// Codes of a group: words of four go to the lane's place in each vector. Bytes lose the offset
// here; shorter codes keep it.
static void put_words(unsigned char *p, const unsigned char *words, int n) {
    for (int j = 0; j < n; j++)
        memcpy(p + 64 * j, words + 4 * j, 4);
}

static void put_bytes(unsigned char *p, const uint8_t *code, unsigned char offset) {
    unsigned char b[GROUP];
    for (int i = 0; i < GROUP; i++)
        b[i] = (unsigned char)(code[i] - offset);
    put_words(p, b, GROUP / 4);
}

static void put_nibbles(unsigned char *p, const uint8_t *code) {
    unsigned char b[GROUP / 2];
    for (int i = 0; i < GROUP / 2; i++)
        b[i] = (unsigned char)((code[i] & 15) | (code[i + GROUP / 2] & 15) << 4);
    put_words(p, b, GROUP / 8);
}

static void put_upper_bits(unsigned char *p, const uint8_t *code) {
    unsigned char b[8];
    for (int i = 0; i < 8; i++)
        b[i] = (unsigned char)(code[i] >> 4 | code[8 + i] >> 4 << 2 | code[16 + i] >> 4 << 4 |
                               code[24 + i] >> 4 << 6);
    put_words(p, b, 2);
}

static void put_codes(const struct form *f, unsigned char *codes, const struct quant_codes *u,
                      int count, int lane) {
    unsigned char *p = codes + 4 * lane;
    for (int i = 0; i < count; i += GROUP, p += group_bytes(*f)) {
        if (f->bits == 8) {
            put_bytes(p, u->code + i, (unsigned char)(f->shift ? 1 << f->shift : 0));
            continue;
        }
        put_nibbles(p, u->code + i);
        if (f->bits == 6)
            put_upper_bits(p + 256, u->code + i);
    }
}

// group: the block's first group of 32; count: values in the block.
static void put_scales(const struct form *f, unsigned char *scales, const struct quant_codes *u,
                       int64_t group, int count, int lane) {
    int subs = count / GROUP * f->subs;
    if (f->scale == SCALE_FLOAT) {
        for (int s = 0; s < subs; s++)
            memcpy(scales + ((group * f->subs + s) * TILE + lane) * 4, &u->f[s], 4);
    } else if (f->scale == SCALE_HALF) {
        unsigned char *p = scales + group * 2 * TILE * (1 + f->min);
        memcpy(p + 2 * lane, &u->d, 2);
        if (f->min)
            memcpy(p + 2 * (TILE + lane), &u->dm, 2);
    } else {
        int n = subs * TILE;
        unsigned char *p = scales + group / 8 * (n + 2 * TILE) * (1 + f->min);
        unsigned char *d = p + n * (1 + f->min);
        memcpy(d + 2 * lane, &u->d, 2);
        if (f->min)
            memcpy(d + 2 * (TILE + lane), &u->dm, 2);
        for (int s = 0; s < subs; s++) {
            p[s * TILE + lane] = (unsigned char)u->s[s];
            if (f->min)
                p[n + s * TILE + lane] = (unsigned char)u->m[s];
        }
    }
}

// Where group g's codes are, and which group's place its scales take after *scales.
static unsigned char *codes_of(const struct weight *w, const struct form *f, unsigned char *tile,
                               int64_t g, unsigned char **scales, int64_t *place) {
    *scales = tile + w->scales_at;
    *place = g;
    if (!w->woven)
        return tile + g * group_bytes(*f);
    *scales = tile + g / WOVEN * (scale_bytes(*f) + WOVEN * group_bytes(*f));
    *place = g % WOVEN;
    return *scales + scale_bytes(*f) + *place * group_bytes(*f);
}

static void pack_quant_row(const struct weight *w, const struct quant_code_type *row, int64_t m) {
    const struct quant_format *q = quant_format(w->type);
    const struct form *f = code_form(w->form);
    unsigned char *tile = w->data + m / TILE * w->tile_bytes, *codes, *scales;
    const unsigned char *src = w->source + m * w->source_row;
    struct quant_codes u;
    for (int64_t k = 0; k < w->k; k += q->block, src += q->bytes) {
        row->take(src, &u);
        int64_t place;
        codes = codes_of(w, f, tile, k / GROUP, &scales, &place);
        put_codes(f, codes, &u, q->block, (int)(m % TILE));
        put_scales(f, scales, &u, place, q->block, (int)(m % TILE));
    }
}

static void pack_number_row(const struct weight *w, int64_t m) {
    int64_t each = number_bytes(w->form), side = w->form == FORM_BF16 ? 2 : 1;
    unsigned char *dst = w->data + m / TILE * w->tile_bytes + m % TILE * side * each;
    const unsigned char *src = w->source + m * w->source_row;
    for (int64_t k = 0; k < w->k; k++)
        memcpy(dst + (k / side * side * TILE + k % side) * each, src + k * each, (size_t)each);
}

struct pack {
    const struct weight *w;
    const struct row_kernels *k;
};

static void pack_some(const struct pack *a, const struct weight *w, int64_t begin, int64_t end) {
    const struct quant_code_type *row = quant_code_type(w->type);
    int64_t last = end * TILE < w->m ? end * TILE : w->m;
    for (int64_t m = begin * TILE; m < last; m++) {
        if (row->take)
            pack_quant_row(w, row, m);
        else
            pack_number_row(w, m);
    }
    for (int64_t t = begin; t < end && row->take && a->k->arrange; t++)
        a->k->arrange(w, w->data + t * w->tile_bytes);
}

static void pack_tiles(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct pack *a = arg;
    for (int64_t n; begin < end; begin += n) {
        struct weight w = weight_expert(a->w, begin / a->w->tiles);
        int64_t first = begin % w.tiles;
        n = end - begin < w.tiles - first ? end - begin : w.tiles - first;
        pack_some(a, &w, first, first + n);
    }
}

int cpu_weight_create(struct exec *x, const struct tensor *t, struct weight **out, struct err *e) {
    struct weight shape;
    *out = NULL;
    if (!layout(t, cpu_of(x)->row.woven, &shape))
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s (%s, %lld x %lld) is not a matrix, or one per expert, of a type "
                       "that linear layers read on the CPU; convert it to Q8_0 or F16",
                       t->name ? t->name : "?",
                       quant_format(t->type) ? quant_format(t->type)->name : "unknown type",
                       (long long)t->ne[0], (long long)t->ne[1]);
    if (t->n_dims > 2) {
        int rc = cpu_moe_reserve(x, shape.k, e);
        if (rc)
            return rc;
    }
    int64_t tiles = shape.experts * shape.tiles;
    struct weight *w = malloc(sizeof *w);
    unsigned char *data = pages_alloc(&cpu_of(x)->pages, (size_t)(tiles * shape.tile_bytes));
    if (!w || !data) {
        free(w);
        pages_free(&cpu_of(x)->pages, data);
        return err_set(e, ERR_MEMORY,
                       "out of memory for tensor %s (%lld bytes); use a smaller model",
                       t->name ? t->name : "?", (long long)(tiles * shape.tile_bytes));
    }
    *w = shape;
    w->data = data;
    struct pack job = {w, &cpu_of(x)->row};
    cpu_run(cpu_of(x), tiles, w->k * TILE, pack_tiles, &job);
    *out = w;
    return 0;
}

void cpu_weight_destroy(struct exec *x, struct weight *w) {
    if (w)
        pages_free(&cpu_of(x)->pages, w->data);
    free(w);
}
