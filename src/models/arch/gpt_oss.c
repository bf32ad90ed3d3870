// SPDX-License-Identifier: Apache-2.0
// gpt-oss: every second layer has a window; heads have sinks, everything has biases; experts are
// chosen by their logits and gated by a clamped SwiGLU. Format: docs/models.md.
#include <stdlib.h>

#include "models/model_impl.h"
#include "models/params.h"

#define ARCH "gpt-oss"

static const char *const names[] = {"token_embd.weight", "output_norm.weight", "output.weight",
                                    NULL};
static const char *const layer_names[] = {"attn_norm.weight",
                                          "attn_q.weight",
                                          "attn_q.bias",
                                          "attn_k.weight",
                                          "attn_k.bias",
                                          "attn_v.weight",
                                          "attn_v.bias",
                                          "attn_qkv.weight",
                                          "attn_qkv.bias",
                                          "attn_output.weight",
                                          "attn_output.bias",
                                          "attn_sinks.weight",
                                          "ffn_gate_inp.weight",
                                          "ffn_gate_inp.bias",
                                          "ffn_gate_exps.weight",
                                          "ffn_gate_exps.bias",
                                          "ffn_up_exps.weight",
                                          "ffn_up_exps.bias",
                                          "ffn_down_exps.weight",
                                          "ffn_down_exps.bias",
                                          "post_attention_norm.weight",
                                          NULL};

// The ends of YaRN's ramp are not rounded, as the authors have it, unless the file says so.
static int read_rounding(struct rope *r, const struct gguf *g, struct err *e) {
    bool rounds = false;
    int rc = gguf_get_bool(g, ARCH ".rope.scaling.yarn_truncate", false, &rounds, e);
    r->exact_ramp = !rounds;
    return rc;
}

static int read_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int64_t blocks;
    p->moe = (struct moe_shape){
        .score = ROUTE_SOFTMAX_CHOSEN, .biases = true, .activation = ACTIVATION_SWIGLU_CLAMPED};
    int rc = params_refuse_tensors(g, ARCH, names, layer_names, e);
    if (!rc)
        rc = params_read_experts(p, g, ARCH, e);
    if (!rc)
        rc = params_read_sizes(p, g, ARCH, &blocks, e);
    if (!rc)
        rc = params_read_attention(p, g, blocks, 150000, e);
    if (!rc)
        rc = params_read_scaling(p, g, e);
    if (!rc)
        rc = read_rounding(&p->rope, g, e);
    if (!rc)
        rc = params_read_vocab(p, g, e);
    if (!rc)
        rc = meta_int(g, ARCH ".attention.sliding_window", 1, (int64_t)1 << 31, 0, &p->window.width,
                      e);
    p->n_full = p->n_layers;
    p->ffn = 0;             // there are no layers without experts
    p->draft_mask = 200000; // the first id without a text of its own
    return rc;
}

static struct attention_shape shape_of(const struct model_params *p) {
    return (struct attention_shape){.dim = p->dim,
                                    .n_heads = p->n_heads,
                                    .n_kv = p->n_kv,
                                    .head_dim = p->head_dim,
                                    .rope = p->rope,
                                    .eps = p->eps,
                                    .scale = p->attn_scale,
                                    .no_qk_norm = true,
                                    .bias = true,
                                    .out_bias = true,
                                    .sinks = true};
}

// Group 0 has the layers with a window, which are the even ones, 1 the others.
static int add_groups(struct model *m, const struct attention_shape *shape, struct err *e) {
    const struct model_params *p = &m->params;
    int rc = 0, count[2] = {0, 0};
    for (int i = 0; i < p->n_layers; i++) {
        struct layer *y = &m->layers[i];
        y->full = true;
        y->group = i % 2;
        y->index = count[y->group]++;
    }
    for (int k = 0; !rc && k < 2 && count[k]; k++) {
        int group;
        struct kv_shape kv = {.n_layers = count[k],
                              .n_heads = p->n_kv,
                              .dk = p->head_dim,
                              .dv = p->head_dim,
                              .codec_k = m->options.codec_k,
                              .codec_v = m->options.codec_v};
        rc = model_add_group(m, &kv, k ? 0 : p->window.width, &group, e);
        struct attention_call call = {.shape = shape,
                                      .layout = &m->groups[k].layout,
                                      .mask = ATTEND_PATH,
                                      .window = m->groups[k].window,
                                      .choice = k ? model_choice(m) : NULL};
        if (!rc)
            rc = attention_check(m->x, &call, e);
    }
    return rc;
}

static int load_layer(struct model *m, const struct attention_shape *shape, int i, struct err *e) {
    const struct model_params *p = &m->params;
    struct layer *y = &m->layers[i];
    struct load *l = &m->load;
    char name[LOAD_NAME];
    int rc = load_floats(l, load_name(name, i, "attn_norm.weight"), p->dim, 1, &y->mixer_norm, e);
    if (!rc)
        rc = load_floats(l, load_name(name, i, "post_attention_norm.weight"), p->dim, 1,
                         &y->ffn_norm, e);
    if (!rc)
        rc = attention_load(&y->attention, shape, l, i, e);
    return rc ? rc : moe_load(&y->moe, &p->moe, p->dim, l, i, e);
}

static int load_all(struct model *m, const struct gguf *g, struct err *e) {
    (void)g;
    const struct model_params *p = &m->params;
    struct attention_shape shape = shape_of(p);
    m->layers = calloc((size_t)p->n_layers, sizeof *m->layers);
    if (!m->layers)
        return err_set(e, ERR_MEMORY, "no memory for %d layers", p->n_layers);
    const struct ops_needs needs = {
        .activation = ACTIVATION_SWIGLU_CLAMPED, .bias = true, .experts = true};
    int rc = exec_takes(m->x, &needs, e);
    if (!rc)
        rc = add_groups(m, &shape, e);
    if (!rc)
        rc = model_load_ends(m, e);
    for (int i = 0; !rc && i < p->n_layers; i++)
        rc = load_layer(m, &shape, i, e);
    return rc;
}

static int load_buffers(struct model *m, int64_t rows, struct err *e) {
    struct attention_shape shape = shape_of(&m->params);
    return attention_buffers_load(&m->ws.attention, &shape, rows, &m->load, e);
}

static void forward(struct model *m, const struct pass *p) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *q = &m->params;
    struct attention_shape shape = shape_of(q);
    int64_t n = p->rows.n;
    for (int i = 0; i < q->n_layers; i++) {
        const struct layer *y = &m->layers[i];
        struct attention_call c = model_attention_call(m, p, y);
        c.shape = &shape;
        ops->norm_to_act(m->x, m->ws.h, y->mixer_norm, q->eps, n, q->dim, m->ws.act_d);
        attention_run(m->x, &c);
        ops->norm_to_act(m->x, m->ws.h, y->ffn_norm, q->eps, n, q->dim, m->ws.act_d);
        model_run_experts(m, y, n);
        model_tap(m, i, n);
    }
}

const struct model_desc arch_gpt_oss = {ARCH, read_params, load_all, load_buffers, forward};
