// SPDX-License-Identifier: Apache-2.0
// See plain.h. What a file has beside the tensors of such a model is refused by name: it would
// change the result. Format: docs/models.md.
#include "models/plain.h"

#include <stdlib.h>
#include <string.h>

#include "models/params.h"

static const struct plain_arch *arch_of(const struct model *m) {
    return (const struct plain_arch *)m->desc; // its first member
}

static bool has_experts(const struct plain_arch *f) {
    return f->experts.scale > 0;
}

// Tensors of a plain layer; rotary tables of old files are what every reader computes.
static bool is_known(const struct plain_arch *f, const char *name) {
    static const char *const layer[] = {
        "attn_norm.weight", "attn_q.weight",   "attn_k.weight",   "attn_v.weight",
        "attn_qkv.weight",  "ffn_norm.weight", "ffn_gate.weight", "attn_output.weight",
        "ffn_up.weight",    "ffn_down.weight", "rope_freqs",      "attn_rot_embd",
    };
    static const char *const norms[] = {"attn_q_norm.weight", "attn_k_norm.weight"};
    static const char *const biases[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias",
                                         "attn_qkv.bias", "attn_output.bias"};
    static const char *const experts[] = {
        "ffn_gate_inp.weight",   "ffn_gate_exps.weight",    "ffn_up_exps.weight",
        "ffn_down_exps.weight",  "ffn_gate_up_exps.weight", "exp_probs_b.bias",
        "ffn_gate_shexp.weight", "ffn_up_shexp.weight",     "ffn_down_shexp.weight"};
    size_t n_experts = !has_experts(f) ? 0 : f->experts.shared ? 9 : 5;
    size_t n_biases = f->bias == PLAIN_NO_BIAS ? 0 : f->bias == PLAIN_BIAS ? 4 : 5;
    const char *part = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    if (!part)
        return !strcmp(name, "token_embd.weight") || !strcmp(name, "output_norm.weight") ||
               !strcmp(name, "output.weight") || (f->factors && !strcmp(name, "rope_freqs.weight"));
    if (strncmp(++part, "nextn.", 6) == 0) // of a block that is left alone
        return true;
    if (f->ffn_norm && !strcmp(part, f->ffn_norm))
        return true;
    for (size_t i = 0; i < sizeof layer / sizeof *layer; i++)
        if (!strcmp(part, layer[i]))
            return true;
    for (size_t i = 0; f->qk_norm != PLAIN_NO_NORM && i < sizeof norms / sizeof *norms; i++)
        if (!strcmp(part, norms[i]))
            return true;
    for (size_t i = 0; i < n_experts; i++)
        if (!strcmp(part, experts[i]))
            return true;
    for (size_t i = 0; i < n_biases; i++)
        if (!strcmp(part, biases[i]))
            return true;
    return false;
}

static int refuse_tensors(const struct model *m, const struct gguf *g, struct err *e) {
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        if (!is_known(arch_of(m), name))
            return err_set(e, ERR_UNSUPPORTED,
                           "the file has a tensor %.80s, which a plain %s model lacks; use a file "
                           "without it",
                           name, m->desc->arch);
    }
    return 0;
}

static int read_sizes(struct model *m, const struct gguf *g, int64_t *blocks, struct err *e) {
    struct model_params *p = &m->params;
    const struct plain_arch *f = arch_of(m);
    p->moe = f->experts;
    int rc = has_experts(f) ? params_read_experts(p, g, f->desc.arch, e) : 0;
    if (!rc)
        rc = params_read_sizes(p, g, f->desc.arch, blocks, e);
    if (!rc && f->experts.shared)
        return params_read_lead(p, g, true, e);
    if (has_experts(f))
        p->ffn = 0; // what a file names is the size of layers that it does not have
    return rc;
}

int plain_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    const struct plain_arch *f = arch_of(m);
    int64_t blocks;
    int rc = refuse_tensors(m, g, e);
    if (!rc)
        rc = read_sizes(m, g, &blocks, e);
    if (!rc)
        rc = params_read_attention(p, g, blocks, f->base, e);
    if (!rc)
        rc = params_read_scaling(p, g, e);
    if (!rc)
        rc = params_read_vocab(p, g, e);
    p->rope.pairs = f->pairs;
    p->n_full = p->n_layers;
    p->draft_mask = f->draft_mask;
    return rc;
}

static struct attention_shape shape_of(const struct model *m) {
    const struct model_params *p = &m->params;
    const struct plain_arch *f = arch_of(m);
    bool norm = f->qk_norm == PLAIN_NORM || (f->qk_norm == PLAIN_NORM_IF_THERE && p->qk_norm);
    bool maybe = f->bias == PLAIN_BIAS_IF_THERE;
    struct attention_shape s = {.dim = p->dim,
                                .n_heads = p->n_heads,
                                .n_kv = p->n_kv,
                                .head_dim = p->head_dim,
                                .rope = p->rope,
                                .eps = p->eps,
                                .scale = p->attn_scale,
                                .no_qk_norm = !norm,
                                .bias = f->bias == PLAIN_BIAS || (maybe && p->qkv_bias),
                                .out_bias = maybe && p->out_bias};
    s.rope.factors = m->rope_factors;
    return s;
}

// A bias or a norm in the first layer must be in all.
static void find_options(struct model_params *p, const struct gguf *g) {
    p->qkv_bias = gguf_tensor(g, "blk.0.attn_q.bias") || gguf_tensor(g, "blk.0.attn_qkv.bias");
    p->out_bias = gguf_tensor(g, "blk.0.attn_output.bias");
    p->qk_norm = gguf_tensor(g, "blk.0.attn_q_norm.weight");
}

static int load_layer(struct model *m, const struct attention_shape *shape, int i, struct err *e) {
    const struct model_params *p = &m->params;
    struct layer *y = &m->layers[i];
    struct load *l = &m->load;
    const char *ffn_norm = arch_of(m)->ffn_norm ? arch_of(m)->ffn_norm : "ffn_norm.weight";
    char name[LOAD_NAME];
    y->full = true;
    y->index = i;
    int rc = load_floats(l, load_name(name, i, "attn_norm.weight"), p->dim, 1, &y->mixer_norm, e);
    if (!rc)
        rc = load_floats(l, load_name(name, i, ffn_norm), p->dim, 1, &y->ffn_norm, e);
    if (!rc)
        rc = attention_load(&y->attention, shape, l, i, e);
    if (rc)
        return rc;
    return p->moe.experts && i >= p->moe.lead ? moe_load(&y->moe, &p->moe, p->dim, l, i, e)
                                              : mlp_load(&y->mlp, p->dim, p->ffn, l, i, e);
}

static int add_group(struct model *m, const struct attention_shape *shape, struct err *e) {
    const struct model_params *p = &m->params;
    struct kv_shape kv = {.n_layers = p->n_layers,
                          .n_heads = p->n_kv,
                          .dk = p->head_dim,
                          .dv = p->head_dim,
                          .codec_k = m->options.codec_k,
                          .codec_v = m->options.codec_v};
    int group; // 0, which is in all layers
    int rc = model_add_group(m, &kv, 0, &group, e);
    struct attention_call call = {.shape = shape,
                                  .layout = &m->groups[0].layout,
                                  .mask = ATTEND_PATH,
                                  .choice = model_choice(m)};
    return rc ? rc : attention_check(m->x, &call, e);
}

int plain_load(struct model *m, const struct gguf *g, struct err *e) {
    const struct model_params *p = &m->params;
    find_options(&m->params, g);
    int rc = arch_of(m)->factors ? model_load_factors(m, g, e) : 0;
    if (rc)
        return rc;
    struct attention_shape shape = shape_of(m);
    m->layers = calloc((size_t)p->n_layers, sizeof *m->layers);
    if (!m->layers)
        return err_set(e, ERR_MEMORY, "no memory for %d layers", p->n_layers);
    rc = add_group(m, &shape, e);
    if (!rc && p->moe.experts)
        rc = moe_check(m->x, e);
    if (!rc)
        rc = model_load_ends(m, e);
    for (int i = 0; !rc && i < p->n_layers; i++)
        rc = load_layer(m, &shape, i, e);
    return rc;
}

int plain_buffers(struct model *m, int64_t rows, struct err *e) {
    struct attention_shape shape = shape_of(m);
    return attention_buffers_load(&m->ws.attention, &shape, rows, &m->load, e);
}

void plain_forward(struct model *m, const struct pass *p) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *q = &m->params;
    struct attention_shape shape = shape_of(m);
    int64_t n = p->rows.n;
    for (int i = 0; i < q->n_layers; i++) {
        const struct layer *y = &m->layers[i];
        struct attention_call c = model_attention_call(m, p, y);
        c.shape = &shape;
        ops->norm_to_act(m->x, m->ws.h, y->mixer_norm, q->eps, n, q->dim, m->ws.act_d);
        attention_run(m->x, &c);
        ops->norm_to_act(m->x, m->ws.h, y->ffn_norm, q->eps, n, q->dim, m->ws.act_d);
        if (q->moe.experts && i >= q->moe.lead)
            model_run_experts(m, y, n);
        else
            mlp_run(m->x, &m->ranks, &y->mlp, m->ws.act_d, m->ws.act_f, m->ws.h, n);
        model_tap(m, i, n);
    }
}
