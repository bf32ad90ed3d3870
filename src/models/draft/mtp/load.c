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
    const struct model_params *p = &m->path.target->params;
    int n = params_nextn_blocks(mtp_file(m), &m->block);
    if (n < 1)
        return err_set(e, ERR_MISMATCH,
                       "the file has no tensor blk.%d.nextn.eh_proj.weight: it has no block that "
                       "predicts further tokens; use another draft",
                       p->n_layers);
    if (!m->path.target->desc->nextn)
        return err_set(e, ERR_UNSUPPORTED,
                       "prediction blocks (tensor blk.%d.nextn.eh_proj.weight) of architecture %s "
                       "are not supported; use another draft",
                       m->block, p->arch);
    if (n > 1)
        return err_set(e, ERR_UNSUPPORTED,
                       "the file has %d prediction blocks (metadata key %s.nextn_predict_layers), "
                       "one of them is supported; use another draft",
                       n, p->arch);
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
    struct load *l = &m->path.load;
    char name[LOAD_NAME];
    struct layer *y = &m->layer;
    if (has_feed_forward(m))
        return decoder_load_block(l, m->path.target, m->block, y, e);
    m->attention_only = true;
    int rc = load_floats(l, load_name(name, m->block, "attn_norm.weight"),
                         m->path.target->params.dim, 1, &y->mixer_norm, e);
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
    return own && !same_values(own, gguf_tensor(model_file(m->path.target), of_target));
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
    const struct tensor *of_target = gguf_tensor(model_file(m->path.target), usual);
    return own && of_target && own->ne[0] == of_target->ne[0] && own->ne[1] == of_target->ne[1] &&
           own->bytes < of_target->bytes;
}

// The target may have a second head of a smaller type, for drafts.
static int load_head(struct mtp *m, struct err *e) {
    static const char extra[] = "output_extra.weight", own[] = "nextn.shared_head_head.weight";
    const struct model_params *p = &m->path.target->params;
    const struct gguf *g = model_file(m->path.target);
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
        s.whole = m->path.target->head;
    }
    int rc = draft_head_load(&m->path.head, &m->path.load, &s, e);
    const struct tensor *t = rc ? NULL : mtp_find(m, s.tensor);
    m->path.pass_bytes += t ? (double)t->bytes * (double)m->path.head.rows / (double)t->ne[1] : 0;
    return rc;
}

// Bytes of the block's tensors that a row reads; of an embedding or head of its own they are
// counted apart, or are a row.
static double block_bytes(const struct mtp *m) {
    const struct gguf *g = mtp_file(m);
    const struct model_params *p = &m->path.target->params;
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
    const struct model_params *p = &m->path.target->params;
    struct load *l = &m->path.load;
    char name[LOAD_NAME];
    const int b = m->block;
    m->embed = m->path.target->embed;
    m->gnorm = m->path.target->out_norm;
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
    m->path.pass_bytes = block_bytes(m);
    if (!rc)
        rc = load_head(m, e);
    return rc ? rc : load_layer(m, e);
}

// The group of keys and values, and that the backend has what the block needs.
static int make_group(struct mtp *m, struct err *e) {
    const struct attention_shape *s = &m->layer.shape;
    const struct mla_shape *latent = &m->path.target->params.mla;
    const struct kv_shape kv = {.n_layers = 1,
                                .n_heads = s->n_kv,
                                .dk = s->head_dim,
                                .dv = s->head_dim,
                                .codec_k = m->options.codec_k,
                                .codec_v = m->options.codec_v};
    const struct kv_shape of_latents = mla_kv(latent, 1, m->options.codec_k, m->options.codec_v);
    const struct attention_call call = {.shape = s, .layout = &m->path.layout, .mask = ATTEND_PATH};
    int rc = kv_layout_init(&m->path.layout, m->latent ? &of_latents : &kv, e);
    if (!rc)
        rc = m->latent ? mla_check(m->path.x, latent, &m->path.layout, NULL, e)
                       : attention_check(m->path.x, &call, e);
    return rc ? rc : exec_takes(m->path.x, &(struct ops_needs){.norm = true}, e);
}

static int make_workspace(struct mtp *m, struct err *e) {
    struct path *d = &m->path;
    const struct model_params *p = &d->target->params;
    struct load *l = &d->load;
    const int64_t ffn = m->attention_only ? 0 : m->experts ? p->moe.shared : p->ffn;
    path_rows_of(d);
    int rc = load_buffer(l, d->n_rows * p->dim, &m->h, e);
    if (!rc)
        rc = load_buffer(l, d->n_rows * 2 * p->dim, &m->pair, e);
    if (!rc)
        rc = load_buffer(l, model_max_pass_rows(&d->target->options) * p->dim, &m->features, e);
    if (!rc)
        rc = load_act(l, d->n_rows, 2 * p->dim, &m->act_pair, e);
    if (!rc && ffn)
        rc = load_act(l, d->draft_rows, ffn, &m->act_f, e);
    if (!rc)
        rc = m->latent ? mla_buffers_load(&m->mla, &p->mla, d->n_rows, l, e)
                       : attention_buffers_load(&m->attention, &m->layer.shape, d->n_rows, l, e);
    if (!rc && m->experts)
        rc = moe_buffers_load(&m->moe, &p->moe, p->dim, d->draft_rows, l, e);
    return rc ? rc : path_workspace(d, e);
}

static int build(struct mtp *m, const char *path, bool dry, struct err *e) {
    int rc = path == DRAFT_OF_TARGET ? 0 : gguf_open(&m->own, path, e);
    if (!rc && m->own)
        rc = mtp_check_sidecar(m, e);
    if (!rc)
        rc = find_block(m, e);
    if (rc)
        return rc;
    m->path.load = (struct load){.x = m->path.x,
                                 .find = mtp_find,
                                 .done = mtp_done,
                                 .check = mtp_check_file,
                                 .arg = m,
                                 .dry = dry};
    m->path.target->desc->nextn(m->path.target, &m->layer);
    m->latent = m->path.target->params.mla.kv_lora > 0;
    m->experts = decoder_has_experts(&m->path.target->params, m->block);
    rc = make_group(m, e);
    if (!rc)
        rc = load_weights(m, e);
    if (!rc && !dry)
        rc = mtp_check_file(m, e);
    if (!rc)
        rc = make_workspace(m, e);
    path_limits(&m->path, 2 * m->path.dim, m->path.target->params.n_heads,
                m->path.target->params.head_dim);
    if (!rc && !dry)
        rc = exec_reserve(m->path.x, &m->path.load.limits, e);
    return rc || dry ? rc : exec_status(m->path.x, e);
}

static int attach_to_target(struct mtp *m, struct err *e) {
    static const int32_t normed[1] = {MODEL_TAP_NORMED};
    struct model_reader r = {
        .kind = &m->path.kind, .layers = normed, .n_layers = 1, .features = m->features};
    return model_attach(m->path.target, &r, e);
}

int mtp_load(struct mtp **out, struct model *target, const char *path, const struct mtp_options *o,
             bool dry, struct err *e) {
    struct mtp *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a prediction block");
    m->options = *o;
    m->path.dim = target->params.dim;
    m->path.logit_cap = target->params.logit_cap;
    int rc = path_init(&m->path, &mtp_path_block, target, o->depth, e);
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

void mtp_destroy(struct mtp *m) {
    if (!m)
        return;
    path_fini(&m->path);
    if (m->own)
        gguf_close(m->own);
    free(m);
}

int mtp_block(const struct mtp *m) {
    return m->block;
}

struct path *mtp_path(struct mtp *m) {
    return &m->path;
}
