// SPDX-License-Identifier: Apache-2.0
// Making and freeing of what all drafts of this sort have: workspace, pool, what ops must be ready
// for.
#include <stdlib.h>

#include "base/num.h"
#include "models/draft/path/impl.h"

int path_init(struct path *d, const struct path_block *block, struct model *target, int depth,
              struct err *e) {
    d->block = block;
    d->target = target;
    d->x = target->x;
    d->depth = depth ? depth : PATH_DEPTH;
    path_state_kind(d);
    int rc = model_check_reader(target, d->kind.name, e);
    if (!rc && (d->depth < 1 || d->depth > PATH_MAX_DEPTH))
        rc = err_set(e, ERR_USAGE, "guesses %d tokens deep are not possible; 1 to %d are", d->depth,
                     PATH_MAX_DEPTH);
    return rc;
}

// Rows of a prompt that are absorbed at once, and of a draft's pass, at most; candidates of a node.
enum { ABSORBED_ROWS = 512, DRAFT_ROWS = 128, MAX_K = 64 };
_Static_assert((int)DRAFT_ROWS >= (int)PATH_NODES, "a pass has room for a whole tree");

void path_rows_of(struct path *d) {
    const struct model_options *o = &d->target->options;
    d->absorb_rows = max_i64(min_i64(o->max_rows, ABSORBED_ROWS), PATH_TAIL);
    d->draft_rows = max_i64(o->max_seqs, DRAFT_ROWS);
    d->n_rows = max_i64(d->absorb_rows, d->draft_rows);
    d->logits_rows = min_i64((int64_t)o->max_seqs * PATH_WIDTH, o->max_logits);
    d->logits_rows = min_i64(d->logits_rows, d->n_rows); // they are put side by side in u
}

static int host_arrays(struct path *d, struct err *e) {
    const size_t rows = (size_t)d->n_rows, seqs = (size_t)d->target->options.max_seqs;
    const size_t named = seqs * PATH_WIDTH;
    d->max_k = (int)min_i64(MAX_K, d->head.rows);
    d->token = calloc(rows, sizeof *d->token);
    d->parent = calloc(rows, sizeof *d->parent);
    d->seq = calloc(rows, sizeof *d->seq);
    d->index = calloc(rows, sizeof *d->index);
    d->pos = calloc(rows, sizeof *d->pos);
    d->store = calloc(rows, sizeof *d->store);
    d->views = calloc(seqs, sizeof *d->views);
    d->members = calloc(seqs, sizeof *d->members);
    d->seqs = calloc(seqs, sizeof *d->seqs);
    d->wanted = calloc(named, sizeof *d->wanted);
    d->rows = calloc(named, sizeof *d->rows);
    d->noise = calloc(named, sizeof *d->noise);
    d->ids = calloc(named * (size_t)d->max_k, sizeof *d->ids);
    d->logp = calloc(named * (size_t)d->max_k, sizeof *d->logp);
    if (d->token && d->parent && d->seq && d->index && d->pos && d->store && d->views &&
        d->members && d->seqs && d->wanted && d->rows && d->noise && d->ids && d->logp)
        return 0;
    return err_set(e, ERR_MEMORY, "no memory for a draft of %zu rows", rows);
}

int path_workspace(struct path *d, struct err *e) {
    struct load *l = &d->load;
    const int64_t nodes = (int64_t)d->target->options.max_seqs * PATH_NODES;
    void *pages = NULL;
    int rc = load_buffer(l, d->n_rows * d->dim, &d->u, e);
    if (!rc)
        rc = load_buffer(l, nodes * d->dim, &d->g, e);
    if (!rc)
        rc = load_buffer(l, d->logits_rows * d->head.rows, &d->logits, e);
    if (!rc)
        rc = load_act(l, d->n_rows, d->dim, &d->act_d, e);
    if (!rc)
        rc = load_bytes(l, ceil_div(nodes, KV_PAGE) * d->layout.page_bytes, &pages, e);
    d->scratch = pages;
    if (!rc)
        rc = kv_pool_create(&d->pool, d->x, &d->layout, 0, e);
    if (rc)
        return rc;
    kv_pool_join(d->pool, d->target->options.pages);
    return host_arrays(d, e);
}

void path_limits(struct path *d, int64_t inputs, int n_heads, int head_dim) {
    const struct model_options *o = &d->target->options;
    struct exec_limits l = {.rows = d->n_rows,
                            .seqs = o->max_seqs,
                            .context = o->max_ctx + PATH_MAX_DEPTH,
                            .inputs = inputs,
                            .outputs = d->head.rows,
                            .vocab = d->target->params.vocab,
                            .n_heads = n_heads,
                            .head_dim = head_dim};
    exec_limits_join(&d->load.limits, &l);
}

void path_plan(const void *self, struct draft_plan *p) {
    const struct path *d = self;
    *p = (struct draft_plan){.weights = d->load.weight_bytes,
                             .scratch = d->load.buffer_bytes,
                             .limits = d->load.limits,
                             .pending = PATH_TAIL * d->dim * (int64_t)sizeof(float)};
    kv_needs_add(&p->kv, &d->layout, 0, PATH_TAIL);
}

void path_describe_head(const struct path *d, struct str *out) {
    if (d->head.ids)
        str_printf(out, ", %lld of %lld tokens", (long long)d->head.rows,
                   (long long)d->target->params.vocab);
}

bool path_knows(const void *self, int32_t token) {
    return draft_head_has(&((const struct path *)self)->head, token);
}

struct path *path_of(void *self) {
    return self;
}

struct draft_traits path_traits(const void *self) {
    const struct path *d = self;
    return (struct draft_traits){.name = d->block->kind,
                                 .depends = DRAFT_BY_PATH,
                                 .max_depth = d->depth,
                                 .trained_depth = 1,
                                 .passes = 1,
                                 .pass_bytes = d->pass_bytes,
                                 .width = PATH_TREE_WIDTH};
}

void path_fini(struct path *d) {
    model_detach(d->target, &d->kind);
    load_fini(&d->load);
    draft_head_fini(&d->head);
    kv_pool_destroy(d->pool);
    free(d->token);
    free(d->parent);
    free(d->seq);
    free(d->index);
    free(d->pos);
    free(d->store);
    free(d->views);
    free(d->members);
    free(d->seqs);
    free(d->wanted);
    free(d->rows);
    free(d->noise);
    free(d->ids);
    free(d->logp);
}

int path_depth(const struct path *d) {
    return d->depth;
}
