// SPDX-License-Identifier: Apache-2.0
// One device block per sequence, cut into the arrays of struct gdn_state layer by layer. A save
// does not hold the second base: it is folded again from S_lo and the log rows by gdn_commit
// itself, which gives the same bits and halves the size.
#include "state/recurrent.h"

#include <stdlib.h>

#include "base/num.h"

// Floats of each part of one layer, rounded so that every part stays 64-byte aligned.
struct sizes {
    int64_t s, k, d, g, conv; // one base; one log row; ...; the conv inputs
    int64_t layer, save;      // sums
};

static struct sizes sizes_of(const struct gdn_shape *h) {
    struct sizes z;
    z.s = round_up((int64_t)h->n_v * h->dk * h->dv, 16);
    z.k = (int64_t)h->n_k * h->dk;
    z.d = (int64_t)h->n_v * h->dv;
    z.g = h->n_v;
    z.conv = (int64_t)(GDN_CONV - 1) * h->channels;
    z.layer = 2 * z.s + round_up(GDN_RING * z.k, 16) + round_up(GDN_RING * z.d, 16) +
              round_up(GDN_RING * z.g, 16) + 2 * round_up(z.conv, 16);
    z.save = z.s + round_up(GDN_BLOCK * z.k, 16) + round_up(GDN_BLOCK * z.d, 16) +
             round_up(GDN_BLOCK * z.g, 16) + round_up(z.conv, 16);
    return z;
}

int64_t recurrent_bytes(const struct gdn_shape *shape, int n_layers) {
    return n_layers * sizes_of(shape).layer * (int64_t)sizeof(float);
}

int64_t recurrent_save_bytes(const struct gdn_shape *shape, int n_layers) {
    return n_layers * sizes_of(shape).save * (int64_t)sizeof(float);
}

static struct gdn_state state_at(float *p, const struct sizes *z) {
    struct gdn_state s;
    s.s_lo = p;
    s.s_hi = s.s_lo + z->s;
    s.log_k = s.s_hi + z->s;
    s.log_d = s.log_k + round_up(GDN_RING * z->k, 16);
    s.log_g = s.log_d + round_up(GDN_RING * z->d, 16);
    s.conv = s.log_g + round_up(GDN_RING * z->g, 16);
    s.conv_hi = s.conv + round_up(z->conv, 16);
    return s;
}

int recurrent_init(struct recurrent *r, struct exec *x, const struct gdn_shape *shape, int n_layers,
                   struct err *e) {
    *r = (struct recurrent){.x = x, .shape = *shape, .n_layers = n_layers};
    if (n_layers == 0)
        return 0;
    size_t bytes = (size_t)recurrent_bytes(shape, n_layers);
    r->layers = calloc((size_t)n_layers, sizeof *r->layers);
    r->block = exec_alloc(x, ARENA_STATES, bytes);
    if (!r->layers || !r->block) {
        recurrent_fini(r);
        return err_set(e, ERR_MEMORY,
                       "no memory for %zu bytes of recurrent state; use fewer "
                       "sequences at once",
                       bytes);
    }
    struct sizes z = sizes_of(shape);
    for (int i = 0; i < n_layers; i++)
        r->layers[i] = state_at(r->block + i * z.layer, &z);
    return 0;
}

void recurrent_fini(struct recurrent *r) {
    if (r->block)
        exec_ops(r->x)->free(r->x, r->block);
    free(r->layers);
    *r = (struct recurrent){0};
}

static void copy_floats(struct exec *x, float *dst, const float *src, int64_t n) {
    exec_ops(x)->copy(x, dst, src, (size_t)n * sizeof(float));
}

void recurrent_reset(struct recurrent *r) {
    size_t bytes = (size_t)recurrent_bytes(&r->shape, r->n_layers);
    if (bytes)
        exec_ops(r->x)->zero(r->x, r->block, bytes);
}

void recurrent_copy(struct recurrent *dst, const struct recurrent *src) {
    struct sizes z = sizes_of(&src->shape);
    for (int i = 0; i < src->n_layers; i++) {
        struct gdn_state *d = &dst->layers[i];
        const struct gdn_state *s = &src->layers[i];
        copy_floats(dst->x, d->s_lo, s->s_lo, z.s);
        copy_floats(dst->x, d->s_hi, s->s_hi, z.s);
        copy_floats(dst->x, d->log_k, s->log_k, GDN_RING * z.k);
        copy_floats(dst->x, d->log_d, s->log_d, GDN_RING * z.d);
        copy_floats(dst->x, d->log_g, s->log_g, GDN_RING * z.g);
        copy_floats(dst->x, d->conv, s->conv, z.conv);
        copy_floats(dst->x, d->conv_hi, s->conv_hi, z.conv);
    }
}

void recurrent_rewind(struct recurrent *r) {
    struct sizes z = sizes_of(&r->shape);
    for (int i = 0; i < r->n_layers; i++)
        copy_floats(r->x, r->layers[i].conv, r->layers[i].conv_hi, z.conv);
}

// The parts of one layer in a save.
struct save_parts {
    float *s, *k, *d, *g, *conv;
};

static struct save_parts parts_at(float *p, const struct sizes *z) {
    struct save_parts a;
    a.s = p;
    a.k = a.s + z->s;
    a.d = a.k + round_up(GDN_BLOCK * z->k, 16);
    a.g = a.d + round_up(GDN_BLOCK * z->d, 16);
    a.conv = a.g + round_up(GDN_BLOCK * z->g, 16);
    return a;
}

int recurrent_save_make(struct recurrent_save *s, struct exec *x, const struct gdn_shape *shape,
                        int n_layers, struct err *e) {
    *s = (struct recurrent_save){.x = x};
    if (n_layers == 0)
        return 0;
    size_t bytes = (size_t)recurrent_save_bytes(shape, n_layers);
    s->block = exec_alloc(x, ARENA_STATES, bytes);
    if (!s->block)
        return err_set(e, ERR_MEMORY, "no memory for a checkpoint of %zu bytes; keep fewer", bytes);
    return 0;
}

int recurrent_save_init(struct recurrent_save *s, const struct recurrent *r, int64_t len,
                        struct err *e) {
    int rc = recurrent_save_make(s, r->x, &r->shape, r->n_layers, e);
    if (rc || r->n_layers == 0)
        return rc;
    struct sizes z = sizes_of(&r->shape);
    int64_t slot = (len / GDN_BLOCK - 1) * GDN_BLOCK % GDN_RING; // of row h - 32
    for (int i = 0; i < r->n_layers; i++) {
        const struct gdn_state *g = &r->layers[i];
        struct save_parts a = parts_at(s->block + i * z.save, &z);
        copy_floats(r->x, a.s, g->s_lo, z.s);
        copy_floats(r->x, a.k, g->log_k + slot * z.k, GDN_BLOCK * z.k);
        copy_floats(r->x, a.d, g->log_d + slot * z.d, GDN_BLOCK * z.d);
        copy_floats(r->x, a.g, g->log_g + slot * z.g, GDN_BLOCK * z.g);
        copy_floats(r->x, a.conv, g->conv_hi, z.conv);
    }
    return 0;
}

void recurrent_save_fini(struct recurrent_save *s) {
    if (s->block)
        exec_ops(s->x)->free(s->x, s->block);
    *s = (struct recurrent_save){0};
}

int recurrent_restore(struct recurrent *r, const struct recurrent_save *s, int64_t h,
                      struct err *e) {
    if (r->n_layers == 0)
        return 0;
    const struct ops *ops = exec_ops(r->x);
    struct sizes z = sizes_of(&r->shape);
    // gdn_commit also reads conv inputs; what it makes of these zeros is replaced below.
    float *u = ops->alloc(r->x, (size_t)(GDN_BLOCK * (int64_t)r->shape.channels) * sizeof *u);
    if (!u)
        return err_set(e, ERR_MEMORY, "no memory to restore a checkpoint; free some sequences");
    int32_t path[GDN_BLOCK];
    for (int i = 0; i < GDN_BLOCK; i++)
        path[i] = i;
    for (int i = 0; i < r->n_layers; i++) {
        struct gdn_state *g = &r->layers[i];
        struct save_parts a = parts_at(s->block + i * z.save, &z);
        copy_floats(r->x, g->s_hi, a.s, z.s);
        struct gdn_rows rows = {.u = u, .k = a.k, .g = a.g, .d = a.d};
        struct gdn_commit_seq seq = {g, h - GDN_BLOCK, path, GDN_BLOCK};
        struct gdn_commit_args commit = {
            .shape = r->shape, .n_layers = 1, .seqs = &seq, .n_seqs = 1, .rows = &rows};
        ops->gdn_commit(r->x, &commit);
        copy_floats(r->x, g->conv, a.conv, z.conv);
        copy_floats(r->x, g->conv_hi, a.conv, z.conv);
    }
    ops->free(r->x, u);
    return 0;
}
