// SPDX-License-Identifier: Apache-2.0
// What all states of a cache have in common, learnt from one of no tokens; see impl.h.
#include "engine/cache/impl.h"
#include "models/checkpoint.h"

int cache_nothing(const struct cache *c, struct cache_nothing *out, struct err *e) {
    struct model *m = session_model(c->session);
    *out = (struct cache_nothing){0};
    int rc = model_sequence(m, &out->seq, e);
    if (!rc)
        rc = sequence_checkpoint(out->seq, &out->checkpoint, e);
    out->source = (struct image_source){
        .checkpoint = out->checkpoint, .device = model_kind(m), .vocab = model_params_of(m)->vocab};
    return rc;
}

void cache_nothing_fini(struct cache_nothing *n) {
    checkpoint_destroy(n->checkpoint);
    sequence_destroy(n->seq);
}
