// SPDX-License-Identifier: Apache-2.0
// What a text has in common with texts before it is not computed again: the scorer's side of
// kept.h. What the attention of the last layer would need is not kept, since it is never run.
// A block of 128 tokens gives the same in every text that begins with the tokens up to its end, but
// for the last blocks of a text, which see everything (struct sparse_options): those are neither
// kept nor taken.
#include "base/num.h"
#include "compress/score/impl.h"

static void shape(struct model_scorer *s) {
    struct score_kept *k = &s->kept;
    size_t row = (size_t)(s->p.n_kv * s->p.head_dim) * sizeof(float);
    k->layers = s->o.layers;
    k->limit = s->o.keep;
    k->bytes[SCORE_KEPT_KEYS] = row * SPARSE_BLOCK;
    k->bytes[SCORE_KEPT_PAGES] = SPARSE_BLOCK / KV_PAGE * (size_t)s->layout.page_bytes;
    k->bytes[SCORE_KEPT_MEANS] = s->o.dense ? 0 : row;
}

// Whole blocks at the begin of a text of n tokens that what follows them cannot change.
static int64_t lasting(const struct model_scorer *s, int64_t n) {
    bool all = s->o.dense || s->o.sparse.density > 0; // no block is special
    int64_t whole = n / SPARSE_BLOCK;
    return all ? whole : min_i64(whole, max_i64(sparse_blocks(n) - s->o.sparse.last_full, 0));
}

struct score_reuse score_reuse_begin(struct model_scorer *s, const struct score_call *c) {
    struct score_reuse u = {0};
    s->known = 0;
    if (s->o.keep <= 0)
        return u;
    shape(s);
    int64_t blocks = lasting(s, c->n), most = min_i64(blocks, c->query / SPARSE_BLOCK);
    struct score_kept_text *from = score_kept_find(&s->kept, c->ids, c->n, most, &u.known);
    u.text = blocks ? score_kept_room(&s->kept, from, u.known, c->ids, blocks) : NULL;
    if (!u.text)
        return (struct score_reuse){0};
    u.blocks = u.text->blocks;
    s->known = u.known * SPARSE_BLOCK;
    return u;
}

// Where the blocks of a part lie on the device.
static unsigned char *device(const struct model_scorer *s, enum score_kept_part part,
                             int64_t block) {
    unsigned char *const at[SCORE_KEPT_PARTS] = {[SCORE_KEPT_KEYS] = (unsigned char *)s->t.k,
                                                 [SCORE_KEPT_PAGES] = s->t.pages,
                                                 [SCORE_KEPT_MEANS] = (unsigned char *)s->t.means};
    return at[part] + (size_t)block * s->kept.bytes[part];
}

void score_reuse_layer(struct model_scorer *s, const struct score_reuse *u, int layer) {
    for (int i = 0; i < SCORE_KEPT_PARTS && u->known; i++) {
        enum score_kept_part part = (enum score_kept_part)i;
        size_t bytes = score_kept_part(&s->kept, layer, part);
        if (bytes)
            exec_ops(s->x)->upload(s->x, device(s, part, 0),
                                   score_kept_at(&s->kept, u->text, layer, part, 0),
                                   (size_t)u->known * bytes);
    }
}

void score_reuse_take(struct model_scorer *s, const struct score_reuse *u, int layer) {
    for (int i = 0; i < SCORE_KEPT_PARTS && u->blocks > u->known; i++) {
        enum score_kept_part part = (enum score_kept_part)i;
        size_t bytes = score_kept_part(&s->kept, layer, part);
        if (bytes)
            exec_ops(s->x)->download(s->x, score_kept_at(&s->kept, u->text, layer, part, u->known),
                                     device(s, part, u->known),
                                     (size_t)(u->blocks - u->known) * bytes);
    }
}
