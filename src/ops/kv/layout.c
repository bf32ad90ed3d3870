// SPDX-License-Identifier: Apache-2.0
// Computes where codes and scales of K and V (planes) lie in a page; see layout.h.
#include "ops/kv/layout.h"

#include "ops/kv/rotate.h"

// The planes of n_heads heads of `dim` values at *at, which moves after them.
static struct kv_plane place(enum kv_codec_id id, int n_heads, int dim, int64_t *at) {
    const struct kv_codec *c = kv_codec_of(id);
    int64_t blocks = dim / c->block, rows = (int64_t)n_heads * KV_PAGE;
    struct kv_plane p = {.code_row = blocks * c->code_bytes, .scale_row = blocks * c->scale_bytes};
    p.codes = *at;
    p.scales = p.codes + rows * p.code_row;
    *at = p.scales + rows * p.scale_row;
    return p;
}

static int check_dim(enum kv_codec_id id, int dim, struct err *e) {
    int rc = kv_codec_check(id, e);
    if (rc)
        return rc;
    const struct kv_codec *c = kv_codec_of(id);
    if (dim > 0 && dim % c->block == 0)
        return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "heads of %d values cannot be stored as %s, which has blocks of %d; use another "
                   "--kv-type",
                   dim, c->name, c->block);
}

int kv_layout_init(struct kv_layout *l, const struct kv_shape *s, struct err *e) {
    int rc = check_dim(s->codec_k, s->dk, e);
    if (!rc)
        rc = check_dim(s->codec_v, s->dv, e);
    if (rc)
        return rc;
    if (s->v_in_k && (s->dv > s->dk || s->codec_v != s->codec_k))
        return err_set(e, ERR_UNSUPPORTED,
                       "values that are a part of the keys have their codec and at most their "
                       "length; %d values as %s are not within %d as %s",
                       s->dv, kv_codec_of(s->codec_v)->name, s->dk, kv_codec_of(s->codec_k)->name);
    *l = (struct kv_layout){.s = *s};
    l->k = place(s->codec_k, s->n_heads, s->dk, &l->layer_bytes);
    l->v = s->v_in_k ? l->k : place(s->codec_v, s->n_heads, s->dv, &l->layer_bytes);
    l->page_bytes = s->n_layers * l->layer_bytes;
    if (kv_codec_of(s->codec_k)->rotates != KV_AS_IS)
        l->rotate_k = kv_rotate_group(s->dk, s->v_in_k ? s->dv : 0);
    if (s->v_in_k)
        l->rotate_v = l->rotate_k; // groups of V are the first ones of K
    else if (kv_codec_of(s->codec_v)->rotates == KV_ROTATES_BOTH)
        l->rotate_v = kv_rotate_group(s->dv, 0);
    return 0;
}

int64_t kv_layout_row(const struct kv_layout *l) {
    int64_t k = l->k.code_row + l->k.scale_row, v = l->v.code_row + l->v.scale_row;
    return l->s.v_in_k ? k : k + v;
}
