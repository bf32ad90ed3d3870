// SPDX-License-Identifier: Apache-2.0
// Ops that treat rows one by one: embedding look-up, norms, activation form, rotary embedding with
// the KV store, and row copies.
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"
#include "ops/cpu/cpu.h"
#include "ops/kv/rotate.h"
#include "ops/rowmath.h"

struct gather_run {
    const struct weight *w;
    const int32_t *ids;
    float *out;
    row_load_fn *load;
};

static void gather(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct gather_run *a = arg;
    for (int64_t i = begin; i < end; i++)
        a->load(a->w->source + a->ids[i] * a->w->source_row, a->out + i * a->w->k, a->w->k);
}

void cpu_gather_rows(struct exec *x, const struct weight *w, const int32_t *ids, int64_t n,
                     float *out) {
    struct cpu *c = cpu_of(x);
    struct gather_run a = {w, ids, out, cpu_loader(c, w->type)};
    cpu_run(c, n, w->k / 8, gather, &a);
}

struct norm_run {
    const struct cpu *cpu;
    const float *in, *z, *w; // w NULL: no norm
    float eps;
    int64_t n, k;
    int heads;
    struct act *out;
};

static void norm_row(const struct norm_run *a, int64_t i) {
    const struct row_kernels *r = &a->cpu->row;
    int64_t dim = a->k / a->heads;
    float *y = a->out->x + i * a->out->stride;
    const float *x = a->in + i * a->k;
    if (!a->w)
        memcpy(y, x, (size_t)a->k * sizeof *y);
    for (int64_t h = 0; a->w && h < a->k; h += dim) {
        float s = 1.0f / sqrtf(r->sum_sq(x + h, dim) / (float)dim + a->eps);
        r->scale_mul(y + h, x + h, a->w, s, dim);
        if (a->z)
            r->silu_mul(y + h, a->z + i * a->k + h, y + h, dim);
    }
}

// Items are four rows each, which are quantised while they are near.
static void norm_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct norm_run *a = arg;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = 4 * item, stop = row + 4 < a->n ? row + 4 : a->n;
        for (int64_t i = row; i < stop; i++)
            norm_row(a, i);
        act_finish_rows(a->cpu, a->out, row, stop);
    }
}

static void run_norm(struct exec *x, struct norm_run *a) {
    a->cpu = cpu_of(x);
    act_shape(a->out, a->n, a->k);
    cpu_run(cpu_of(x), ceil_div(a->n, 4), a->k * (a->z ? 10 : 3) / 3, norm_rows, a);
}

void cpu_to_act(struct exec *x, const float *in, int64_t n, int64_t k, struct act *out) {
    run_norm(x, &(struct norm_run){.in = in, .n = n, .k = k, .heads = 1, .out = out});
}

void cpu_norm_to_act(struct exec *x, const float *in, const float *w, float eps, int64_t n,
                     int64_t k, struct act *out) {
    run_norm(x, &(struct norm_run){
                    .in = in, .w = w, .eps = eps, .n = n, .k = k, .heads = 1, .out = out});
}

struct plain_norm {
    const struct row_kernels *row;
    const struct norm_args *a;
};

enum { NORM_PIECE = 512 }; // values that wait to be added

static void plain_norm_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct plain_norm *u = arg;
    const struct norm_args *a = u->a;
    float y[NORM_PIECE];
    for (int64_t i = begin; i < end; i++) {
        const float *in = a->in + i * a->k;
        float *out = a->out + i * a->k;
        float s = 1.0f / sqrtf(u->row->sum_sq(in, a->k) / (float)a->k + a->eps);
        for (int64_t at = 0; at < a->k; at += NORM_PIECE) {
            int64_t n = a->k - at < NORM_PIECE ? a->k - at : NORM_PIECE;
            u->row->scale_mul(a->add ? y : out + at, in + at, a->w ? a->w + at : NULL, s, n);
            for (int64_t j = 0; a->add && j < n; j++)
                out[at + j] += y[j];
        }
    }
}

void cpu_norm(struct exec *x, const struct norm_args *a) {
    struct plain_norm u = {&cpu_of(x)->row, a};
    if (a->conv)
        cpu_block_conv(x, a->conv);
    cpu_run(cpu_of(x), a->n, a->k / 3, plain_norm_rows, &u);
    if (a->act)
        cpu_to_act(x, a->out, a->n, a->k, a->act);
}

void cpu_gated_norm_to_act(struct exec *x, const struct gated_norm_args *a) {
    run_norm(x, &(struct norm_run){.in = a->in,
                                   .z = a->z,
                                   .w = a->w,
                                   .eps = a->eps,
                                   .n = a->n,
                                   .k = (int64_t)a->heads * a->dv,
                                   .heads = a->heads,
                                   .out = a->out});
}

row_load_fn *cpu_loader(const struct cpu *c, uint32_t type) {
    switch (type) {
    case TYPE_F16:
        return c->row.load_f16;
    case TYPE_BF16:
        return c->row.load_bf16;
    case TYPE_Q8_0:
        return c->row.load_q8_0;
    default:
        return quant_format(type)->dequantize;
    }
}

static bool is_kind(const struct rope_steps *s, const struct rope *r) {
    return s->id && rope_same(&s->rope, r);
}

// The angles of a rotary embedding, which take the oldest ones' place when they are new.
static const struct rope_steps *steps_of(struct cpu *c, const struct rope *r) {
    for (int i = 0; i < ROPE_KINDS; i++)
        if (is_kind(&c->steps[i], r))
            return &c->steps[i];
    struct rope_steps *s = &c->steps[c->rope_ids % ROPE_KINDS];
    s->id = ++c->rope_ids;
    s->rope = *r;
    rope_angles(r, s->angle);
    if (r->factors) { // the caller may free its own
        memcpy(s->factors, r->factors, (size_t)(r->dims / 2) * sizeof *r->factors);
        s->rope.factors = s->factors;
    }
    return s;
}

// Cosines and sines of a position, from double precision and remembered.
static const float *position_angles(struct cpu *c, int64_t pos, const struct rope_steps *steps) {
    uint64_t h = (uint64_t)pos * 0x9E3779B97F4A7C15u + steps->id * 31;
    struct rope_slot *s = &c->rope[(h ^ h >> 32) % ROPE_SLOTS];
    if (s->id == steps->id && s->pos == pos)
        return s->cs;
    int pairs = steps->rope.dims / 2;
    double magnitude = steps->rope.magnitude > 0 ? (double)steps->rope.magnitude : 1;
    for (int i = 0; i < pairs; i++) {
        double angle = (double)pos * steps->angle[i];
        s->cs[i] = (float)(cos(angle) * magnitude);
        s->cs[pairs + i] = (float)(sin(angle) * magnitude);
    }
    s->pos = pos;
    s->id = steps->id;
    return s->cs;
}

struct qk_run {
    const struct cpu *cpu;
    const struct qk_args *a;
    kv_encode_fn *store_k, *store_v;
    int64_t first; // row of angles[0]
};

// RMSNorm of `dim` values with weights w, NULL: without.
static void norm_values(const struct qk_run *u, const float *x, const float *w, int dim, float eps,
                        float *out) {
    const struct row_kernels *r = &u->cpu->row;
    float s = 1.0f / sqrtf(r->sum_sq(x, dim) / (float)dim + eps);
    r->scale_mul(out, x, w, s, dim);
}

static void norm_head(const struct qk_run *u, const float *x, const float *w, int dim, float *out) {
    norm_values(u, x, w, dim, u->a->eps, out);
}

static void rotate(const struct rope *r, const float *cs, float *x) {
    int pairs = r->dims / 2;
    bool near = r->pairs == ROPE_NEIGHBOURS;
    x += r->first;
    for (int i = 0; i < pairs; i++) {
        float *a = near ? x + 2 * i : x + i, *b = near ? a + 1 : a + pairs;
        float p = *a, q = *b;
        *a = p * cs[i] - q * cs[pairs + i];
        *b = q * cs[i] + p * cs[pairs + i];
    }
}

// A head of q or k as it is stored; w NULL: no norm.
static void norm_rope(const struct qk_run *u, const float *x, const float *w, const float *cs,
                      float *out) {
    if (w)
        norm_head(u, x, w, u->a->dk, out);
    else
        memcpy(out, x, (size_t)u->a->dk * sizeof *out);
    rotate(&u->a->rope, cs, out);
    if (u->a->layout->rotate_k)
        kv_rotate(out, u->a->dk, u->a->layout->rotate_k);
}

// A head of K that comes apart.
static void join_key(const struct qk_run *u, int64_t head, const float *cs, float *out) {
    const struct qk_args *a = u->a;
    const int rest = a->dk - a->dv;
    norm_values(u, a->k + head * a->dv, a->value_norm, a->dv, a->value_eps, out);
    memcpy(out + a->dv, a->k_rest + head * rest, (size_t)rest * sizeof *out);
    rotate(&a->rope, cs, out);
    if (a->layout->rotate_k)
        kv_rotate(out, a->dk, a->layout->rotate_k);
}

static void store_head(const struct qk_run *u, int64_t i, int h, const float *cs) {
    const struct qk_args *a = u->a;
    const struct kv_layout *l = a->layout;
    const struct kv_slot *s = &a->store[i];
    struct kv_row k = kv_row_at(l, &l->k, s->page, a->layer, h, s->slot);
    struct kv_row v = kv_row_at(l, &l->v, s->page, a->layer, h, s->slot);
    float tmp[OPS_KEY_MAX];
    if (a->k_rest)
        join_key(u, i * a->n_kv + h, cs, tmp);
    else
        norm_rope(u, a->k + (i * a->n_kv + h) * a->dk, a->k_norm, cs, tmp);
    u->store_k(tmp, k.codes, k.scales, a->dk);
    if (l->s.v_in_k)
        return;
    const float *from = a->v + (i * a->n_kv + h) * a->dv;
    if (a->v_norm)
        norm_head(u, from, NULL, a->dv, tmp);
    else if (l->rotate_v)
        memcpy(tmp, from, (size_t)a->dv * sizeof *tmp);
    if (l->rotate_v)
        kv_rotate(tmp, a->dv, l->rotate_v);
    u->store_v(a->v_norm || l->rotate_v ? tmp : from, v.codes, v.scales, a->dv);
}

static void qk_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct qk_run *u = arg;
    const struct qk_args *a = u->a;
    for (int64_t at = begin; at < end; at++) {
        int64_t i = u->first + at;
        const float *cs = u->cpu->angles[at];
        for (int h = 0; a->q && h < a->n_heads; h++)
            norm_rope(u, a->q + (i * a->n_heads + h) * a->q_stride, a->q_norm, cs,
                      a->q_out + (i * a->n_heads + h) * a->dk);
        for (int h = 0; a->k && h < a->n_kv; h++)
            store_head(u, i, h, cs);
    }
}

void cpu_qk_norm_rope_store(struct exec *x, const struct qk_args *a, const struct rows *r) {
    struct cpu *c = cpu_of(x);
    const struct rope_steps *steps = steps_of(c, &a->rope);
    for (int64_t first = 0; first < r->n; first += ROPE_ROWS) {
        int64_t n = r->n - first < ROPE_ROWS ? r->n - first : ROPE_ROWS;
        for (int64_t i = 0; i < n; i++)
            memcpy(c->angles[i], position_angles(c, r->pos[first + i], steps),
                   (size_t)a->rope.dims * sizeof(float));
        struct qk_run u = {c, a, c->row.kv_store[a->layout->s.codec_k],
                           c->row.kv_store[a->layout->s.codec_v], first};
        cpu_run(c, n, (a->n_heads + 4 * a->n_kv) * a->dk / 4, qk_rows, &u);
    }
}

void cpu_copy_rows(struct exec *x, void *dst, size_t dst_stride, const void *src,
                   const int32_t *index, int64_t n, size_t row_bytes) {
    (void)x;
    unsigned char *to = dst;
    const unsigned char *from = src;
    for (int64_t i = 0; i < n; i++)
        memmove(to + (size_t)i * dst_stride, from + (size_t)index[i] * row_bytes, row_bytes);
}

static void copy_row(const struct kv_plane *p, struct kv_row to, struct kv_row from) {
    memmove(to.codes, from.codes, (size_t)p->code_row);
    memmove(to.scales, from.scales, (size_t)p->scale_row);
}

void cpu_kv_copy(struct exec *x, const struct kv_layout *l, const struct kv_slot *dst,
                 const struct kv_slot *src, int64_t n) {
    (void)x;
    for (int64_t at = 0; at < n * l->s.n_layers * l->s.n_heads; at++) {
        int64_t i = at / l->s.n_heads / l->s.n_layers;
        int layer = (int)(at / l->s.n_heads % l->s.n_layers), h = (int)(at % l->s.n_heads);
        copy_row(&l->k, kv_row_at(l, &l->k, dst[i].page, layer, h, dst[i].slot),
                 kv_row_at(l, &l->k, src[i].page, layer, h, src[i].slot));
        if (!l->s.v_in_k)
            copy_row(&l->v, kv_row_at(l, &l->v, dst[i].page, layer, h, dst[i].slot),
                     kv_row_at(l, &l->v, src[i].page, layer, h, src[i].slot));
    }
}

// Ops that treat values one by one.

enum { PIECE = 1024 }; // values of an item

static void scale_pieces(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct scale_args *a = arg;
    int64_t stop = min_i64(end * PIECE, a->n);
    for (int64_t i = begin * PIECE; i < stop; i++) {
        float x = a->x[i] * a->scale;
        a->x[i] = a->cap > 0 ? a->cap * row_tanh(x / a->cap) : x;
    }
}

void cpu_scale(struct exec *x, const struct scale_args *a) {
    cpu_run(cpu_of(x), ceil_div(a->n, PIECE), a->cap > 0 ? 8 * PIECE : PIECE / 8, scale_pieces,
            (void *)a);
}

struct activate_run {
    const struct cpu *cpu;
    const struct activate_args *a;
};

// Items are four rows each, which are quantised while they are near.
static void activate_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct activate_run *u = arg;
    const struct activate_args *a = u->a;
    for (int64_t item = begin; item < end; item++) {
        int64_t row = 4 * item, stop = min_i64(row + 4, a->n);
        for (int64_t i = row; i < stop; i++)
            cpu_activate_row(&u->cpu->row, a->activation, a->out->x + i * a->out->stride,
                             a->gate + i * a->gate_stride, a->up + i * a->up_stride, a->k);
        act_finish_rows(u->cpu, a->out, row, stop);
    }
}

void cpu_activate(struct exec *x, const struct activate_args *a) {
    struct activate_run u = {cpu_of(x), a};
    act_shape(a->out, a->n, a->k);
    cpu_run(cpu_of(x), ceil_div(a->n, 4), a->k * 4, activate_rows, &u);
}

enum { CONV_PIECE = 64 }; // values of a group that are summed at once

// Values at .. at + n - 1 of row i, which are of one group, at out.
static void convolve(const struct block_conv_args *a, int64_t i, int64_t at, int64_t n,
                     float *out) {
    float y[CONV_PIECE];
    const float *own = a->own + i * a->own_stride + at / a->group;
    const int64_t before = i % a->block, groups = a->dim / a->group;
    for (int o = 0; o < a->taps && o <= before; o++) {
        const float *x = a->in + (i - o) * a->dim + at, *base = a->base + o * a->dim + at;
        const float w = own[o * groups];
        for (int64_t c = 0; c < n; c++) {
            const float v = (base[c] + w) * x[c];
            y[c] = o ? y[c] + v : v;
        }
    }
    for (int64_t c = 0; c < n; c++)
        out[c] = a->add ? out[c] + y[c] : y[c];
}

static void convolve_row(const struct block_conv_args *a, int64_t i) {
    float *out = a->act ? a->act->x + i * a->act->stride : a->out + i * a->dim;
    for (int64_t g = 0; g < a->dim; g += a->group)
        for (int64_t at = g; at < g + a->group; at += CONV_PIECE)
            convolve(a, i, at, min_i64(CONV_PIECE, g + a->group - at), out + at);
}

struct conv_run {
    const struct cpu *cpu;
    const struct block_conv_args *a;
};

static void convolve_rows(void *arg, int64_t begin, int64_t end, int worker) {
    (void)worker;
    const struct conv_run *u = arg;
    for (int64_t item = begin; item < end; item++) {
        const int64_t row = 4 * item, stop = min_i64(row + 4, u->a->n);
        for (int64_t i = row; i < stop; i++)
            convolve_row(u->a, i);
        if (u->a->act)
            act_finish_rows(u->cpu, u->a->act, row, stop);
    }
}

void cpu_block_conv(struct exec *x, const struct block_conv_args *a) {
    struct conv_run u = {cpu_of(x), a};
    if (a->act)
        act_shape(a->act, a->n, a->dim);
    cpu_run(cpu_of(x), ceil_div(a->n, 4), a->dim * a->taps, convolve_rows, &u);
}
