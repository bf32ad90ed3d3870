// SPDX-License-Identifier: Apache-2.0
// Both ends of a DFlash draft: what it reads tokens through, and what it scores them by. Most have
// neither and use the target's. What a file brings of its own is used, as it was trained; its head
// may score some tokens only, which `d2t` names, and so may what is guessed.
#include <math.h>

#include "models/draft/dflash/impl.h"

// Row i of the head is of token d2t[i] in GGUF files, of i + d2t[i] in safetensors.
static int load_own_head(struct dflash *d, const struct tensor *list, struct err *e) {
    const struct model *t = d->target;
    const int64_t vocab = t->params.vocab, wanted = d->params.head_rows;
    const struct draft_head_source s = {.tensor = "output.weight",
                                        .dim = d->params.dim,
                                        .size = list ? list->ne[0] : vocab,
                                        .tokens = t->load.arg,
                                        .tokens_of = list,
                                        .n_tokens = vocab,
                                        .offsets = d->file.st != NULL};
    int rc = list ? draft_file_check(&d->file, e) : 0;
    if (!rc && wanted && wanted != s.size)
        rc = err_set(e, ERR_MISMATCH,
                     "the draft's head scores %lld tokens (draft_vocab_size) but %s; the file is "
                     "damaged or of another target",
                     (long long)wanted,
                     list ? "d2t names another number" : "no tensor d2t names them");
    return rc ? rc : draft_head_load(&d->head, &d->load, &s, e);
}

int dflash_ends_load(struct dflash *d, struct err *e) {
    const struct model *t = d->target;
    const struct tensor *list = dflash_file_find(&d->file, "d2t");
    const int64_t dim = d->params.dim, vocab = t->params.vocab;
    bool own;
    d->embed = t->embed;
    d->head = (struct draft_head){.w = t->head, .rows = vocab};
    int rc = dflash_dspark_pass_over(d, &own, e);
    if (rc || !own)
        return rc;
    if (dflash_file_find(&d->file, "token_embd.weight"))
        rc = load_weight(&d->load, "token_embd.weight", dim, vocab, &d->embed, e);
    if (!rc && (list || d->params.head_rows || dflash_file_find(&d->file, "output.weight")))
        rc = load_own_head(d, list, e);
    return rc;
}

const struct draft_head *dflash_head(const struct dflash *d) {
    return &d->head;
}

int64_t dflash_logits_rows(const struct dflash *d) {
    return d->logits_rows;
}

const float *dflash_logits(struct dflash *d, int64_t first, int64_t n) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    if (n < 1 || n > d->logits_rows || first < 0 || first > d->drafted - n)
        return NULL;
    if (first < d->logits_first || first + n > d->logits_first + d->logits_n ||
        exec_epoch_failed(d->x, d->logits_epoch)) {
        ops->norm_to_act(d->x, d->wanted + first * p->dim, d->out_norm, p->eps, n, p->dim,
                         d->act_d);
        struct linear_job head = {.w = d->head.w, .out = d->logits};
        ops->linear(d->x, &head, 1, d->act_d, n);
        if (p->logit_scale != 1 || p->logit_cap > 0)
            ops->scale(d->x, &(struct scale_args){d->logits, n * d->head.rows, p->logit_scale,
                                                  p->logit_cap});
        d->logits_epoch = exec_epoch(d->x);
        d->logits_first = first;
        d->logits_n = n;
    }
    return d->logits + (first - d->logits_first) * d->head.rows;
}
