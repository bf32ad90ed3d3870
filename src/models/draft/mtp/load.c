// SPDX-License-Identifier: Apache-2.0
// What the block must fit, its weights and memory. Its layer is loaded by the target's own recipe
// (decoder_load_block); embedding, head and last norm are the target's unless the block has its
// own.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/checkpoint.h"
#include "models/decoder.h"
#include "models/draft/mtp/impl.h"

struct mtp_options mtp_options_default(void) {
    return (struct mtp_options){.codec_k = KV_F16, .codec_v = KV_F16};
}

// Which block it is, and that this architecture has such blocks.
static int find_block(struct mtp *m, struct err *e) {
    const struct model_params *p = &m->target->params;
    int n = params_nextn_blocks(mtp_file(m), &m->block);
    if (n < 1)
        return err_set(e, ERR_MISMATCH,
                       "the file has no tensor blk.%d.nextn.eh_proj.weight: it has no block that "
                       "predicts further tokens; use another draft",
                       p->n_layers);
    if (!m->target->desc->nextn)
        return err_set(e, ERR_UNSUPPORTED,
                       "prediction blocks (tensor blk.%d.nextn.eh_proj.weight) of architecture %s "
                       "are not supported; use another draft",
                       m->block, p->arch);
    if (n > 1)
        return err_set(e, ERR_UNSUPPORTED,
                       "the file has %d prediction blocks (metadata key %s.nextn_predict_layers), "
                       "one of them is supported; use another draft",
                       n, p->arch);
    if (!m->own && m->block < p->n_layers)
        return err_set(e, ERR_MISMATCH,
                       "tensor blk.%d.nextn.eh_proj.weight is of a layer of the model; the file is "
                       "damaged",
                       m->block);
    const struct tensor *t = mtp_tensor(m, "nextn.eh_proj.weight");
    if (t->ne[0] == p->dim)
        return err_set(e, ERR_UNSUPPORTED,
                       "tensor %s takes %lld values, but embedding and hidden state side by side "
                       "are %lld; this kind of block is not supported",
                       t->name, (long long)t->ne[0], 2 * (long long)p->dim);
    return 0;
}

// Blocks of small dense models may have attention alone; a norm without matrices is not used.
static bool has_feed_forward(const struct mtp *m) {
    return m->experts || m->latent || mtp_tensor(m, "ffn_gate.weight") ||
           mtp_tensor(m, "ffn_up.weight") || mtp_tensor(m, "ffn_down.weight");
}

static int load_layer(struct mtp *m, struct err *e) {
    struct load *l = &m->load;
    char name[LOAD_NAME];
    struct layer *y = &m->layer;
    if (has_feed_forward(m))
        return decoder_load_block(l, m->target, m->block, y, e);
    m->attention_only = true;
    int rc = load_floats(l, load_name(name, m->block, "attn_norm.weight"), m->target->params.dim, 1,
                         &y->mixer_norm, e);
    return rc ? rc : attention_load(&y->attention, &y->shape, l, m->block, e);
}

// Whether two tensors hold the same values, as far as samples tell: published blocks come with
// copies of the embedding and the head, which would only take memory.
static bool same_values(const struct tensor *a, const struct tensor *b) {
    enum { SAMPLES = 256, BYTES = 64 };
    if (!b || a->type != b->type || a->bytes != b->bytes || a->bytes < BYTES)
        return false;
    const int64_t step = max_i64((a->bytes - BYTES) / SAMPLES, 1);
    bool same = true;
    for (int64_t at = 0; same && at <= a->bytes - BYTES; at += step)
        same = memcmp((const char *)a->data + at, (const char *)b->data + at, BYTES) == 0;
    return same;
}

// Whether the block has this tensor, and it is no copy of the target's.
static bool has_own(const struct mtp *m, const char *suffix, const char *of_target) {
    const struct tensor *own = mtp_tensor(m, suffix);
    return own && !same_values(own, gguf_tensor(model_file(m->target), of_target));
}

// A sidecar may have a head that was trained for some tokens, and say which (d2t).
static bool trained_head(struct mtp *m, struct draft_head_source *s, char *name) {
    const struct tensor *list = m->own ? gguf_tensor(m->own, "d2t") : NULL;
    const struct tensor *head = mtp_tensor(m, "nextn.shared_head_head.weight");
    if (!list)
        return false;
    m->own_output = !head;
    head = head ? head : gguf_tensor(m->own, "output.weight");
    s->tensor = m->own_output ? "output.weight"
                              : load_name(name, m->block, "nextn.shared_head_head.weight");
    s->size = head ? head->ne[1] : list->ne[0];
    s->tokens_of = list;
    return true;
}

// Whether a sidecar has the target's head in fewer bytes: where rows of it are copied, these are.
static bool smaller_head(const struct mtp *m, const char *usual) {
    const struct tensor *own = m->own ? gguf_tensor(m->own, "output.weight") : NULL;
    const struct tensor *of_target = gguf_tensor(model_file(m->target), usual);
    return own && of_target && own->ne[0] == of_target->ne[0] && own->ne[1] == of_target->ne[1] &&
           own->bytes < of_target->bytes;
}

// The target may have a second head of a smaller type, for drafts.
static int load_head(struct mtp *m, struct err *e) {
    static const char extra[] = "output_extra.weight", own[] = "nextn.shared_head_head.weight";
    const struct model_params *p = &m->target->params;
    const struct gguf *g = model_file(m->target);
    const char *usual = p->tied ? "token_embd.weight" : "output.weight";
    char name[LOAD_NAME];
    struct draft_head_source s = {.dim = p->dim,
                                  .size = p->vocab,
                                  .tokens = g,
                                  .vocab = m->options.vocab,
                                  .n_tokens = p->vocab};
    if (!trained_head(m, &s, name) && has_own(m, own, usual)) {
        s.tensor = load_name(name, m->block, own);
    } else if (!s.tokens_of) {
        m->own_output = smaller_head(m, usual);
        s.loaded = m->own_output || !gguf_tensor(g, extra);
        s.tensor = m->own_output ? "output.weight" : s.loaded ? usual : extra;
        s.whole = m->target->head;
    }
    int rc = draft_head_load(&m->head, &m->load, &s, e);
    const struct tensor *t = rc ? NULL : mtp_find(m, s.tensor);
    m->pass_bytes += t ? (double)t->bytes * (double)m->head.rows / (double)t->ne[1] : 0;
    return rc;
}

// Bytes of the block's tensors that a row reads; of an embedding or head of its own they are
// counted apart, or are a row.
static double block_bytes(const struct mtp *m) {
    const struct gguf *g = mtp_file(m);
    const struct model_params *p = &m->target->params;
    double bytes = 0;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        int layer;
        if (sscanf(t->name, "blk.%d.", &layer) != 1 || layer != m->block ||
            strstr(t->name, "nextn.embed_tokens") || strstr(t->name, "nextn.shared_head_head"))
            continue;
        bool one_of_many = p->moe.experts && t->n_dims == 3 && t->ne[2] == p->moe.experts;
        bytes += (one_of_many ? (double)p->moe.used / p->moe.experts : 1) * (double)t->bytes;
    }
    return bytes;
}

static int load_weights(struct mtp *m, struct err *e) {
    const struct model_params *p = &m->target->params;
    struct load *l = &m->load;
    char name[LOAD_NAME];
    const int b = m->block;
    m->embed = m->target->embed;
    m->gnorm = m->target->out_norm;
    int rc = load_floats(l, load_name(name, b, "nextn.enorm.weight"), p->dim, 1, &m->enorm, e);
    if (!rc)
        rc = load_floats(l, load_name(name, b, "nextn.hnorm.weight"), p->dim, 1, &m->hnorm, e);
    if (!rc)
        rc = load_weight(l, load_name(name, b, "nextn.eh_proj.weight"), 2 * p->dim, p->dim,
                         &m->join, e);
    if (!rc && mtp_tensor(m, "nextn.shared_head_norm.weight"))
        rc = load_floats(l, load_name(name, b, "nextn.shared_head_norm.weight"), p->dim, 1,
                         &m->gnorm, e);
    if (!rc && has_own(m, "nextn.embed_tokens.weight", "token_embd.weight"))
        rc = load_weight(l, load_name(name, b, "nextn.embed_tokens.weight"), p->dim, p->vocab,
                         &m->embed, e);
    m->pass_bytes = block_bytes(m);
    if (!rc)
        rc = load_head(m, e);
    return rc ? rc : load_layer(m, e);
}

// The group of keys and values, and that the backend has what the block needs.
static int make_group(struct mtp *m, struct err *e) {
    const struct attention_shape *s = &m->layer.shape;
    const struct mla_shape *latent = &m->target->params.mla;
    const struct kv_shape kv = {.n_layers = 1,
                                .n_heads = s->n_kv,
                                .dk = s->head_dim,
                                .dv = s->head_dim,
                                .codec_k = m->options.codec_k,
                                .codec_v = m->options.codec_v};
    const struct kv_shape of_latents = mla_kv(latent, 1, m->options.codec_k, m->options.codec_v);
    const struct attention_call call = {.shape = s, .layout = &m->layout, .mask = ATTEND_PATH};
    int rc = kv_layout_init(&m->layout, m->latent ? &of_latents : &kv, e);
    if (!rc)
        rc = m->latent ? mla_check(m->x, latent, &m->layout, NULL, e)
                       : attention_check(m->x, &call, e);
    return rc ? rc : exec_takes(m->x, &(struct ops_needs){.norm = true}, e);
}

static int host_arrays(struct mtp *m, struct err *e) {
    const size_t rows = (size_t)m->n_rows, seqs = (size_t)m->target->options.max_seqs;
    const size_t named = seqs * MTP_WIDTH;
    m->token = calloc(rows, sizeof *m->token);
    m->parent = calloc(rows, sizeof *m->parent);
    m->seq = calloc(rows, sizeof *m->seq);
    m->index = calloc(rows, sizeof *m->index);
    m->pos = calloc(rows, sizeof *m->pos);
    m->store = calloc(rows, sizeof *m->store);
    m->views = calloc(seqs, sizeof *m->views);
    m->members = calloc(seqs, sizeof *m->members);
    m->seqs = calloc(seqs, sizeof *m->seqs);
    m->wanted = calloc(named, sizeof *m->wanted);
    m->rows = calloc(named, sizeof *m->rows);
    m->noise = calloc(named, sizeof *m->noise);
    m->ids = calloc(named * (size_t)m->max_k, sizeof *m->ids);
    m->logp = calloc(named * (size_t)m->max_k, sizeof *m->logp);
    if (m->token && m->parent && m->seq && m->index && m->pos && m->store && m->views &&
        m->members && m->seqs && m->wanted && m->rows && m->noise && m->ids && m->logp)
        return 0;
    return err_set(e, ERR_MEMORY, "no memory for a prediction block of %zu rows", rows);
}

// Rows of a prompt that are absorbed at once, and of a draft's pass, at most; candidates of a node.
enum { ABSORBED_ROWS = 512, DRAFT_ROWS = 128, MAX_K = 64 };
_Static_assert((int)DRAFT_ROWS >= (int)MTP_NODES, "a pass has room for a whole tree");

static int make_workspace(struct mtp *m, struct err *e) {
    const struct model_params *p = &m->target->params;
    const struct model_options *o = &m->target->options;
    struct load *l = &m->load;
    const int64_t seqs = o->max_seqs;
    const int64_t ffn = m->attention_only ? 0 : m->experts ? p->moe.shared : p->ffn;
    m->absorb_rows = max_i64(min_i64(o->max_rows, ABSORBED_ROWS), MTP_TAIL);
    m->draft_rows = max_i64(seqs, DRAFT_ROWS);
    m->n_rows = max_i64(m->absorb_rows, m->draft_rows);
    m->logits_rows = min_i64(seqs * MTP_WIDTH, o->max_logits);
    m->max_k = (int)min_i64(MAX_K, m->head.rows);
    const struct {
        int64_t n;
        float **at;
    } buffers[] = {{m->n_rows * p->dim, &m->h},
                   {m->n_rows * p->dim, &m->u},
                   {m->n_rows * 2 * p->dim, &m->pair},
                   {seqs * MTP_NODES * p->dim, &m->g},
                   {m->logits_rows * m->head.rows, &m->logits},
                   {model_max_pass_rows(o) * p->dim, &m->features}};
    void *pages = NULL;
    int rc = 0;
    for (size_t i = 0; !rc && i < sizeof buffers / sizeof *buffers; i++)
        rc = load_buffer(l, buffers[i].n, buffers[i].at, e);
    if (!rc)
        rc = load_act(l, m->n_rows, 2 * p->dim, &m->act_pair, e);
    if (!rc)
        rc = load_act(l, m->n_rows, p->dim, &m->act_d, e);
    if (!rc && ffn)
        rc = load_act(l, m->draft_rows, ffn, &m->act_f, e);
    if (!rc)
        rc = m->latent ? mla_buffers_load(&m->mla, &p->mla, m->n_rows, l, e)
                       : attention_buffers_load(&m->attention, &m->layer.shape, m->n_rows, l, e);
    if (!rc && m->experts)
        rc = moe_buffers_load(&m->moe, &p->moe, p->dim, m->draft_rows, l, e);
    if (!rc)
        rc = load_bytes(l, ceil_div(seqs * MTP_NODES, KV_PAGE) * m->layout.page_bytes, &pages, e);
    m->scratch = pages;
    if (!rc)
        rc = kv_pool_create(&m->pool, m->x, &m->layout, 0, e);
    if (rc)
        return rc;
    kv_pool_join(m->pool, o->pages);
    return host_arrays(m, e);
}

// What drafting needs of ops, besides what the weights and activations determine.
static void set_limits(struct mtp *m) {
    const struct model_params *p = &m->target->params;
    const struct model_options *o = &m->target->options;
    struct exec_limits l = {.rows = m->n_rows,
                            .seqs = o->max_seqs,
                            .context = o->max_ctx + MTP_MAX_DEPTH,
                            .inputs = 2 * p->dim,
                            .outputs = m->head.rows,
                            .vocab = p->vocab,
                            .n_heads = p->n_heads,
                            .head_dim = p->head_dim};
    exec_limits_join(&m->load.limits, &l);
}

static int build(struct mtp *m, const char *path, bool dry, struct err *e) {
    int rc = path == DRAFT_OF_TARGET ? 0 : gguf_open(&m->own, path, e);
    if (!rc && m->own)
        rc = mtp_check_sidecar(m, e);
    if (!rc)
        rc = find_block(m, e);
    if (rc)
        return rc;
    if (m->options.depth < 1 || m->options.depth > MTP_MAX_DEPTH)
        return err_set(e, ERR_USAGE, "guesses %d tokens deep are not possible; 1 to %d are",
                       m->options.depth, MTP_MAX_DEPTH);
    m->load = (struct load){.x = m->x,
                            .find = mtp_find,
                            .done = mtp_done,
                            .check = mtp_check_file,
                            .arg = m,
                            .dry = dry};
    m->target->desc->nextn(m->target, &m->layer);
    m->latent = m->target->params.mla.kv_lora > 0;
    m->experts = decoder_has_experts(&m->target->params, m->block);
    rc = make_group(m, e);
    if (!rc)
        rc = load_weights(m, e);
    if (!rc && !dry)
        rc = mtp_check_file(m, e);
    if (!rc)
        rc = make_workspace(m, e);
    set_limits(m);
    if (!rc && !dry)
        rc = exec_reserve(m->x, &m->load.limits, e);
    return rc || dry ? rc : exec_status(m->x, e);
}

static int attach_to_target(struct mtp *m, struct err *e) {
    static const int32_t normed[1] = {MODEL_TAP_NORMED};
    struct model_reader r = {
        .kind = &m->kind, .layers = normed, .n_layers = 1, .features = m->features};
    return model_attach(m->target, &r, e);
}

int mtp_load(struct mtp **out, struct model *target, const char *path, const struct mtp_options *o,
             bool dry, struct err *e) {
    struct mtp *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a prediction block");
    m->options = *o;
    m->options.depth = o->depth ? o->depth : MTP_DEPTH;
    m->target = target;
    m->x = target->x;
    mtp_state_kind(m);
    int rc = model_check_reader(target, m->kind.name, e);
    if (!rc)
        rc = build(m, path, dry, e);
    if (!rc && !dry)
        rc = attach_to_target(m, e);
    if (rc) {
        mtp_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

void mtp_plan_of(const struct mtp *m, struct draft_plan *p) {
    *p = (struct draft_plan){.weights = m->load.weight_bytes,
                             .scratch = m->load.buffer_bytes,
                             .limits = m->load.limits,
                             .pending = MTP_TAIL * m->target->params.dim * (int64_t)sizeof(float)};
    kv_needs_add(&p->kv, &m->layout, 0, MTP_TAIL);
}

void mtp_destroy(struct mtp *m) {
    if (!m)
        return;
    model_detach(m->target, &m->kind);
    load_fini(&m->load);
    draft_head_fini(&m->head);
    kv_pool_destroy(m->pool);
    free(m->token);
    free(m->parent);
    free(m->seq);
    free(m->index);
    free(m->pos);
    free(m->store);
    free(m->views);
    free(m->members);
    free(m->seqs);
    free(m->wanted);
    free(m->rows);
    free(m->noise);
    free(m->ids);
    free(m->logp);
    if (m->own)
        gguf_close(m->own);
    free(m);
}

int mtp_depth(const struct mtp *m) {
    return m->options.depth;
}

int mtp_block(const struct mtp *m) {
    return m->block;
}
