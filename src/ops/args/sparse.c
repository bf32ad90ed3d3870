// SPDX-License-Identifier: Apache-2.0
// Bounds of block-sparse attention and where its keys and values lie; see sparse.h.
#include "ops/args/sparse.h"

#include <math.h>

#include "ops/attention.h"

struct sparse_rows sparse_rows_paged(const struct kv_layout *l, const struct kv_plane *plane,
                                     int layer, unsigned char *const *pages, unsigned char *data) {
    bool keys = plane == &l->k;
    return (struct sparse_rows){
        .codec = keys ? l->s.codec_k : l->s.codec_v,
        .pages = pages,
        .data = data,
        .piece = l->page_bytes,
        .codes = layer * l->layer_bytes + plane->codes,
        .scales = layer * l->layer_bytes + plane->scales,
        .code_slot = plane->code_row,
        .code_head = KV_PAGE * plane->code_row,
        .scale_slot = plane->scale_row,
        .scale_head = KV_PAGE * plane->scale_row,
    };
}

int64_t sparse_kept(float density, int64_t m) {
    int64_t n = (int64_t)ceil((double)density * (double)(m + 1) - 1e-6); // 0.1f is above 0.1
    return n < 1 ? 1 : n > m + 1 ? m + 1 : n;
}

int sparse_options_check(const struct sparse_options *o, struct err *e) {
    if (!(o->alpha >= 0 && o->alpha <= 1))
        return err_set(e, ERR_USAGE,
                       "the alpha of sparse attention is %g; it is a share of the largest mass, "
                       "from 0 (dense) to 1",
                       (double)o->alpha);
    if (o->sinks < 0 || o->window < 0 || o->last_full < 0)
        return err_set(e, ERR_USAGE,
                       "sparse attention counts blocks from 0 up, not %d sinks, a window of %d or "
                       "%d last blocks",
                       o->sinks, o->window, o->last_full);
    if (!(o->density >= 0 && o->density <= 1))
        return err_set(e, ERR_USAGE, "a density of %g is no share of blocks between 0 and 1",
                       (double)o->density);
    return 0;
}

int sparse_codec_check(enum kv_codec_id id, struct err *e) {
    int rc = kv_codec_check(id, e);
    if (rc || kv_codec_of(id)->rotates == KV_AS_IS)
        return rc;
    return err_set(e, ERR_UNSUPPORTED,
                   "block-sparse attention of scorers reads keys and values that are not rotated, "
                   "which %s are; use f16, f32, bf16 or q8_0",
                   kv_codec_of(id)->name);
}

int sparse_check(const struct sparse_args *a, struct err *e) {
    const struct attend_shape shape = {
        .n_heads = a->n_heads, .n_kv = a->n_kv, .dk = a->d, .dv = a->d};
    int rc = attend_check(&shape, e);
    if (!rc)
        rc = sparse_codec_check(a->k.codec, e);
    if (!rc)
        rc = sparse_codec_check(a->v.codec, e);
    return rc ? rc : sparse_options_check(&a->opt, e);
}
