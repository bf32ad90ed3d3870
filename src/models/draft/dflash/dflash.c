// SPDX-License-Identifier: Apache-2.0
// Running a DFlash draft (arXiv 2602.06036). Context: features of committed tokens become, once,
// keys and values in every layer; the context's values skip the layers' input norms. Block: B rows
// pass through the layers and see the context and, as each layer's mask says, each other. Block K
// and V are in scratch and not kept. DFlash2 has convolutions besides (conv.c) and a selector
// (selector.c), Domino a recurrent unit along the path of guesses (domino.c).
#include "models/draft/dflash/dflash.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"
#include "models/draft/dflash/impl.h"

struct dflash_options dflash_options_default(void) {
    return (struct dflash_options){
        .mask_id = -1, .window = -1, .causal = -1, .codec_k = KV_F16, .codec_v = KV_F16};
}

const struct dflash_params *dflash_params_of(const struct dflash *d) {
    return &d->params;
}

// Layers with and without a window are two KV groups; either may be missing.
static int make_groups(struct dflash *d, const struct dflash_options *o, struct err *e) {
    const struct dflash_params *p = &d->params;
    for (int windowed = 0; windowed < 2; windowed++) {
        int n = 0;
        for (int i = 0; i < p->n_layers; i++) {
            if (p->layer_window[i] != windowed)
                continue;
            d->layers[i].group = d->n_groups;
            d->layers[i].index = n++;
            d->layers[i].window = windowed ? p->window : 0;
            d->layers[i].mask = p->layer_causal[i] ? ATTEND_PATH : ATTEND_BLOCK;
        }
        if (n == 0)
            continue;
        d->window[d->n_groups] = windowed ? p->window : 0;
        struct kv_shape kv = {.n_layers = n,
                              .n_heads = p->n_kv,
                              .dk = p->head_dim,
                              .dv = p->head_dim,
                              .codec_k = o->codec_k,
                              .codec_v = o->codec_v};
        int rc = kv_layout_init(&d->layout[d->n_groups++], &kv, e);
        if (rc)
            return rc;
    }
    return 0;
}

static int load_layer(struct dflash *d, int i, struct err *e) {
    struct dflash_layer *y = &d->layers[i];
    int64_t dim = d->params.dim;
    char name[LOAD_NAME];
    int rc =
        load_floats(&d->load, load_name(name, i, "attn_norm.weight"), dim, 1, &y->mixer_norm, e);
    if (!rc)
        rc = load_floats(&d->load, load_name(name, i, "ffn_norm.weight"), dim, 1, &y->ffn_norm, e);
    if (!rc)
        rc = attention_load(&y->attention, &d->shape, &d->load, i, e);
    if (!rc && d->params.conv_taps)
        rc = dflash_conv_load(d, &y->attention_conv, i, "attn_conv_base", "attn_conv_proj.weight",
                              e);
    if (!rc && d->params.conv_taps)
        rc = dflash_conv_load(d, &y->mlp_conv, i, "ffn_conv_base", "ffn_conv_proj.weight", e);
    return rc ? rc : mlp_load(&y->mlp, dim, d->params.ffn, &d->load, i, e);
}

// Norms of taps: one tensor of rows, or one tensor each; the tensors tell whether there are some.
static int load_tap_norms(struct dflash *d, struct err *e) {
    static const char all[] = "enc.aux_norm.weight";
    const struct dflash_params *p = &d->params;
    char name[LOAD_NAME];
    int rc = 0;
    if (dflash_file_find(&d->file, all)) {
        rc = load_floats(&d->load, all, p->dim, p->n_taps, &d->tap_norms, e);
        for (int i = 0; !rc && d->tap_norms && i < p->n_taps; i++)
            d->tap_norm[i] = d->tap_norms + i * p->dim;
    } else if (dflash_file_find(&d->file, "enc.aux_norm.0.weight")) {
        for (int i = 0; !rc && i < p->n_taps; i++) {
            snprintf(name, sizeof name, "enc.aux_norm.%d.weight", i);
            rc = load_floats(&d->load, name, p->dim, 1, &d->tap_norm[i], e);
        }
    } else {
        return 0;
    }
    d->norms_taps = true;
    return rc;
}

static int load_weights(struct dflash *d, struct err *e) {
    const struct dflash_params *p = &d->params;
    struct load *l = &d->load;
    int rc = load_weight(l, "fc.weight", p->n_taps * p->dim, p->dim, &d->fc, e);
    if (!rc)
        rc = load_floats(l, "enc.output_norm.weight", p->dim, 1, &d->hidden_norm, e);
    if (!rc)
        rc = load_floats(l, "output_norm.weight", p->dim, 1, &d->out_norm, e);
    if (!rc)
        rc = dflash_ends_load(d, e);
    if (!rc)
        rc = load_tap_norms(d, e);
    for (int i = 0; !rc && i < p->n_layers; i++)
        rc = load_layer(d, i, e);
    if (!rc && p->selector_rank)
        rc = dflash_selector_load(
            d, d->target->options.max_seqs * (int64_t)dflash_guesses(p, p->block_size), e);
    if (!rc && p->gru_width)
        rc = dflash_domino_load(d, e);
    // t2d says which tokens d2t names
    return rc ? rc : draft_file_all_used(&d->file, "DFlash", "t2d", e);
}

static int host_arrays(struct dflash *d, struct err *e) {
    size_t rows = (size_t)d->n_rows, seqs = (size_t)d->target->options.max_seqs;
    d->token = calloc(rows, sizeof *d->token);
    d->parent = calloc(rows, sizeof *d->parent);
    d->seq = calloc(rows, sizeof *d->seq);
    d->index = calloc(rows, sizeof *d->index);
    d->pos = calloc(rows, sizeof *d->pos);
    bool ok = d->token && d->parent && d->seq && d->index && d->pos;
    for (int g = 0; g < d->n_groups; g++) {
        d->store[g] = calloc(rows, sizeof *d->store[g]);
        d->views[g] = calloc(seqs, sizeof *d->views[g]);
        ok = ok && d->store[g] && d->views[g];
    }
    return ok ? 0 : err_set(e, ERR_MEMORY, "no memory for a draft of %zu rows", rows);
}

enum { DIRECT_ROWS = 2048 }; // of a long prompt that are absorbed at once, at most

static int make_workspace(struct dflash *d, struct err *e) {
    const struct dflash_params *p = &d->params;
    struct load *l = &d->load;
    const int64_t seqs = d->target->options.max_seqs, guesses = dflash_guesses(p, p->block_size);
    const int64_t drafted = seqs * guesses;
    int64_t taps = p->n_taps * p->dim;
    int64_t blocks = seqs * p->block_size, taken = d->target->options.max_rows / 4;
    taken = min_i64(taken, DIRECT_ROWS) / DFLASH_PENDING * DFLASH_PENDING;
    d->absorb_rows = taken > DFLASH_PENDING ? taken : 0;
    taken = d->absorb_rows ? taken : DFLASH_PENDING;
    d->n_rows = max_i64(blocks, taken);
    d->logits_rows = d->target->options.max_logits;
    if (d->logits_rows < guesses)
        d->logits_rows = guesses;
    if (d->logits_rows > drafted)
        d->logits_rows = drafted;
    int rc = load_buffer(l, d->n_rows * p->dim, &d->h, e);
    if (!rc)
        rc = load_act(l, taken, taps, &d->act_taps, e);
    if (!rc && d->norms_taps)
        rc = load_buffer(l, taken * taps, &d->normed, e);
    if (!rc)
        rc = load_buffer(l, DFLASH_PENDING * p->dim, &d->precomputed, e);
    if (!rc && !p->norms_context)
        rc = load_buffer(
            l, 2 * DFLASH_PENDING * min_i64(p->n_layers, DFLASH_TOGETHER) * p->n_kv * p->head_dim,
            &d->stored, e);
    if (!rc)
        rc = load_act(l, d->n_rows, p->dim, &d->act_d, e);
    if (!rc)
        rc = load_act(l, blocks, p->ffn, &d->act_f, e);
    if (!rc)
        rc = attention_buffers_load(&d->attention, &d->shape, d->n_rows, l, e);
    if (!rc && p->conv_taps)
        rc = load_buffer(l, blocks * p->dim, &d->apart, e);
    if (!rc && p->conv_taps)
        rc = load_buffer(l, blocks * p->dim, &d->sublayer_in, e);
    if (!rc && p->conv_taps)
        rc = load_buffer(l, blocks * dflash_conv_width(p), &d->kernels, e);
    if (!rc)
        rc = load_buffer(l, drafted * p->dim, &d->wanted, e);
    if (!rc)
        rc = load_buffer(l, d->logits_rows * d->head.rows, &d->logits, e);
    if (!rc)
        rc = load_buffer(l, model_max_pass_rows(&d->target->options) * taps, &d->features, e);
    for (int g = 0; !rc && g < d->n_groups; g++) {
        void *pages = NULL;
        int64_t n = ceil_div(blocks, KV_PAGE);
        rc = load_bytes(l, n * d->layout[g].page_bytes, &pages, e);
        d->scratch[g] = pages;
        if (!rc)
            rc = kv_pool_create(&d->pool[g], d->x, &d->layout[g], 0, e);
        if (!rc)
            kv_pool_join(d->pool[g], d->target->options.pages);
    }
    return rc ? rc : host_arrays(d, e);
}

// What drafting needs of ops, besides what the weights and activations determine.
static void set_limits(struct dflash *d) {
    const struct dflash_params *p = &d->params;
    const struct model *t = d->target;
    const int64_t nodes = p->gru_width ? (int64_t)t->options.max_seqs * DFLASH_WIDTH : 0;
    struct exec_limits l = {.rows = max_i64(d->n_rows, nodes),
                            .seqs = t->options.max_seqs,
                            .context = t->options.max_ctx + p->block_size,
                            .inputs = p->dim,
                            .outputs = t->params.vocab, // of the target's head
                            .vocab = t->params.vocab,
                            .n_heads = p->n_heads,
                            .head_dim = p->head_dim};
    exec_limits_join(&d->load.limits, &l);
}

static int attach_to_target(struct dflash *d, struct err *e) {
    struct model_reader r = {.kind = &d->kind,
                             .layers = d->params.taps,
                             .n_layers = d->params.n_taps,
                             .features = d->features};
    return model_attach(d->target, &r, e);
}

// What layers have besides the plain form: their tensors tell. The first speaks for all; where
// another differs, its tensors do not fit.
static int make_shape(struct dflash *d, struct err *e) {
    const struct dflash_params *p = &d->params;
    const struct draft_file *f = &d->file;
    const struct tensor *gate = dflash_file_find(f, "blk.0.attn_gate.weight");
    const struct tensor *divisors = dflash_file_find(f, "rope_freqs.weight");
    d->shape = (struct attention_shape){.dim = p->dim,
                                        .n_heads = p->n_heads,
                                        .n_kv = p->n_kv,
                                        .head_dim = p->head_dim,
                                        .rope = p->rope,
                                        .eps = p->eps,
                                        .scale = 1.0f / sqrtf((float)p->head_dim),
                                        .bias = dflash_file_find(f, "blk.0.attn_q.bias") ||
                                                dflash_file_find(f, "blk.0.attn_qkv.bias"),
                                        .out_bias = dflash_file_find(f, "blk.0.attn_output.bias"),
                                        .sinks = dflash_file_find(f, "blk.0.attn_sinks.weight"),
                                        .gate_width = !gate                       ? 0
                                                      : gate->ne[1] == p->n_heads ? 1
                                                                                  : p->head_dim};
    d->shape.rope.factors = p->rope_divisors[0] > 0 ? p->rope_divisors : NULL;
    if (!divisors)
        return 0;
    int rc = load_host_floats(&d->load, "rope_freqs.weight", p->rope.dims / 2, &d->divisors, e);
    for (int i = 0; !rc && !d->load.dry && i < p->rope.dims / 2; i++)
        if (!(d->divisors[i] > 0) || !isfinite(d->divisors[i]))
            rc = err_set(e, ERR_FORMAT,
                         "the draft's tensor rope_freqs.weight divides rotary angle %d by %g; "
                         "positive numbers are needed",
                         i, (double)d->divisors[i]);
    d->shape.rope.factors = d->divisors;
    return rc;
}

// What a draft needs besides attention: ops that not every backend has.
static int check_ops(const struct dflash *d, struct err *e) {
    const struct dflash_params *p = &d->params;
    const bool gated = p->pairs == DFLASH_PAIRS_GATED;
    const struct ops_needs needs = {
        .norm = d->norms_taps || p->norms_context || p->conv_taps || p->gru_width || gated,
        .block_conv = p->conv_taps,
        .scale = p->embed_scale != 1 || p->logit_scale != 1 || p->logit_cap > 0};
    return exec_takes(d->x, &needs, e);
}

static int build_draft(struct dflash *d, const char *path, const struct dflash_options *o, bool dry,
                       struct err *e) {
    int rc = dflash_file_open(&d->file, path, e);
    d->load = (struct load){.x = d->x,
                            .find = dflash_file_find,
                            .done = draft_file_done,
                            .check = draft_file_check,
                            .arg = &d->file,
                            .dry = dry};
    if (!rc)
        rc = dflash_read_params(&d->params, &d->file, &d->target->params, o, e);
    if (!rc)
        rc = dflash_check_vocab(&d->file, d->target->params.vocab, d->target->load.arg, e);
    if (rc)
        return rc;
    const struct dflash_params *p = &d->params;
    rc = make_shape(d, e);
    if (rc)
        return rc;
    d->layers = calloc((size_t)p->n_layers, sizeof *d->layers);
    if (!d->layers)
        return err_set(e, ERR_MEMORY, "no memory for %d draft layers", p->n_layers);
    rc = make_groups(d, o, e);
    for (int i = 0; !rc && i < p->n_layers; i++) {
        const struct dflash_layer *y = &d->layers[i];
        struct attention_call call = {.shape = &d->shape,
                                      .layout = &d->layout[y->group],
                                      .mask = y->mask,
                                      .window = y->window};
        rc = attention_check(d->x, &call, e);
    }
    if (!rc)
        rc = load_weights(d, e);
    if (!rc)
        rc = check_ops(d, e);
    if (!rc)
        rc = make_workspace(d, e);
    set_limits(d);
    if (!rc && !dry)
        rc = exec_reserve(d->x, &d->load.limits, e);
    return rc || dry ? rc : exec_status(d->x, e);
}

// Makes a draft of the target; a dry one is not attached.
static int create_draft(struct dflash **out, struct model *target, const char *path,
                        const struct dflash_options *o, bool dry, struct err *e) {
    struct dflash *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ERR_MEMORY, "no memory for a draft");
    d->target = target;
    d->x = target->x;
    dflash_state_kind(d);
    int rc = model_check_reader(target, d->kind.name, e);
    if (!rc)
        rc = build_draft(d, path, o, dry, e);
    if (!rc && !dry)
        rc = attach_to_target(d, e);
    if (rc) {
        dflash_destroy(d);
        return rc;
    }
    *out = d;
    return 0;
}

int dflash_load(struct dflash **out, struct model *target, const char *path,
                const struct dflash_options *o, struct err *e) {
    return create_draft(out, target, path, o, false, e);
}

int dflash_load_dry(struct dflash **out, struct model *target, const char *path,
                    const struct dflash_options *o, struct err *e) {
    return create_draft(out, target, path, o, true, e);
}

void dflash_plan_of(const struct dflash *d, struct draft_plan *out) {
    const struct dflash_params *p = &d->params;
    *out = (struct draft_plan){.weights = d->load.weight_bytes,
                               .scratch = d->load.buffer_bytes,
                               .limits = d->load.limits,
                               .pending =
                                   DFLASH_PENDING * p->n_taps * p->dim * (int64_t)sizeof(float)};
    for (int g = 0; g < d->n_groups; g++)
        kv_needs_add(&out->kv, &d->layout[g], d->window[g], DFLASH_PENDING);
}

void dflash_destroy(struct dflash *d) {
    if (!d)
        return;
    model_detach(d->target, &d->kind);
    load_fini(&d->load);
    for (int g = 0; g < DFLASH_GROUPS; g++) {
        kv_pool_destroy(d->pool[g]);
        free(d->store[g]);
        free(d->views[g]);
    }
    dflash_selector_fini(d);
    draft_head_fini(&d->head);
    dflash_domino_fini(d);
    free(d->token);
    free(d->parent);
    free(d->seq);
    free(d->index);
    free(d->pos);
    free(d->layers);
    draft_file_close(&d->file);
    free(d);
}

static int prepare_draft(const struct dflash *d, struct sequence *const *seqs,
                         const int32_t *anchors, int n, struct err *e) {
    if (n < 1 || n > d->target->options.max_seqs)
        return err_set(e, ERR_USAGE, "drafting for %d sequences is not possible; the limit is %d",
                       n, d->target->options.max_seqs);
    for (int i = 0; i < n; i++) {
        struct sequence *s = seqs[i];
        if (anchors[i] < 0 || anchors[i] >= d->target->params.vocab)
            return err_set(e, ERR_USAGE, "token id %d is outside the vocabulary of %lld",
                           (int)anchors[i], (long long)d->target->params.vocab);
        struct dflash_state *state = dflash_state_of(d, s);
        if (!state)
            return err_set(e, ERR_MISMATCH,
                           "sequence %d has no state for this draft; create it "
                           "after loading the draft",
                           i);
        int rc = sequence_write(s, e);
        if (!rc)
            rc = dflash_state_reserve(state, e);
        if (rc)
            return rc;
    }
    return 0;
}

static void fill_blocks(struct dflash *d, struct sequence *const *seqs, const int32_t *anchors,
                        int n, int b) {
    for (int i = 0; i < n * b; i++) {
        int s = i / b, j = i % b;
        d->token[i] = j ? (int32_t)d->params.mask_id : anchors[s];
        d->parent[i] = j ? i - 1 : -1;
        d->seq[i] = s;
        d->pos[i] = seqs[s]->len + j;
        for (int g = 0; g < d->n_groups; g++)
            d->store[g][i] = (struct kv_slot){
                d->scratch[g] + (int64_t)(i / KV_PAGE) * d->layout[g].page_bytes, i % KV_PAGE};
    }
    for (int g = 0; g < d->n_groups; g++) {
        for (int s = 0; s < n; s++)
            d->views[g][s] = kv_view_of(&dflash_state_of(d, seqs[s])->kv[g]);
    }
    const int first = dflash_first(&d->params);
    for (int i = 0; i < n * (b - first); i++)
        d->index[i] = i / (b - first) * b + i % (b - first) + first;
}

// block: rows of each sequence.
static void run_layers(struct dflash *d, const struct rows *rows, int block) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    for (int i = 0; i < p->n_layers; i++) {
        const struct dflash_layer *y = &d->layers[i];
        if (p->conv_taps)
            dflash_conv_before(d, i ? &y[-1].mlp_conv : NULL, &y->attention_conv, y->mixer_norm,
                               rows->n, block);
        else
            ops->norm_to_act(d->x, d->h, y->mixer_norm, p->eps, rows->n, p->dim, d->act_d);
        struct attention_call c = {.shape = &d->shape,
                                   .block = &y->attention,
                                   .buf = &d->attention,
                                   .ranks = &ranks_one,
                                   .rows = rows,
                                   .layout = &d->layout[y->group],
                                   .layer = y->index,
                                   .store = d->store[y->group],
                                   .views = d->views[y->group],
                                   .mask = y->mask,
                                   .window = y->window,
                                   .in = d->act_d,
                                   .h = d->h,
                                   .apart = d->apart};
        attention_run(d->x, &c);
        if (!p->conv_taps) {
            ops->norm_to_act(d->x, d->h, y->ffn_norm, p->eps, rows->n, p->dim, d->act_d);
            mlp_run(d->x, &ranks_one, &y->mlp, d->act_d, d->act_f, d->h, rows->n);
            continue;
        }
        dflash_conv_before(d, &y->attention_conv, &y->mlp_conv, y->ffn_norm, rows->n, block);
        mlp_run_apart(d->x, &ranks_one, &y->mlp, d->act_d, d->act_f, d->apart, rows->n);
    }
    if (p->conv_taps)
        dflash_conv_after(d, &d->layers[p->n_layers - 1].mlp_conv, rows->n, block);
}

int dflash_draft(struct dflash *d, struct sequence *const *seqs, const int32_t *anchors, int n,
                 struct err *e) {
    return dflash_draft_block(d, seqs, anchors, n, d->params.block_size, e);
}

int dflash_draft_block(struct dflash *d, struct sequence *const *seqs, const int32_t *anchors,
                       int n, int block, struct err *e) {
    const struct ops *ops = exec_ops(d->x);
    const struct dflash_params *p = &d->params;
    const int guesses = dflash_guesses(p, block);
    if (guesses < 1 || block > p->block_size)
        return err_set(e, ERR_USAGE, "a block of %d tokens is not within %d to the draft's %d",
                       block, dflash_first(p) + 1, p->block_size);
    d->drafted = d->logits_n = 0;
    d->selector.ahead = d->selector.ready = false;
    int rc = prepare_draft(d, seqs, anchors, n, e);
    if (rc)
        return rc;
    for (int i = 0; i < n; i++) {
        struct dflash_state *s = dflash_state_of(d, seqs[i]);
        dflash_absorb(d, s, s->pending);
    }
    fill_blocks(d, seqs, anchors, n, block);
    int64_t drafted = (int64_t)n * guesses;
    struct rows rows = dflash_rows(d, (int64_t)n * block);
    size_t row = (size_t)p->dim * sizeof(float);
    ops->gather_rows(d->x, d->embed, d->token, rows.n, d->h);
    if (p->embed_scale != 1)
        ops->scale(d->x, &(struct scale_args){d->h, rows.n * p->dim, p->embed_scale, 0});
    run_layers(d, &rows, block);
    ops->copy_rows(d->x, d->wanted, row, d->h, d->index, drafted, row);
    d->drafted = drafted;
    return 0;
}
