// SPDX-License-Identifier: Apache-2.0
// gpt-oss: every second layer has a window; heads have sinks, everything has biases; experts are
// chosen by their logits and gated by a clamped SwiGLU. Format: docs/models.md.
#include <stdlib.h>

#include "models/decoder.h"
#include "models/params.h"

#define ARCH "gpt-oss"

static const char names[] = "token_embd.weight output_norm.weight output.weight";
static const char layer_names[] =
    "attn_norm.weight attn_q.weight attn_q.bias attn_k.weight attn_k.bias attn_v.weight "
    "attn_v.bias attn_qkv.weight attn_qkv.bias attn_output.weight attn_output.bias "
    "attn_sinks.weight ffn_gate_inp.weight ffn_gate_inp.bias ffn_gate_exps.weight "
    "ffn_gate_exps.bias ffn_up_exps.weight ffn_up_exps.bias ffn_down_exps.weight "
    "ffn_down_exps.bias post_attention_norm.weight";

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
    p->rope.exact_ramp = true; // as the authors have it, unless the file says otherwise
    if (!rc)
        rc = rope_scaling_read(p, g, e);
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
    struct attention_shape s = decoder_attention_shape(p);
    s.no_qk_norm = s.bias = s.out_bias = s.sinks = true;
    return s;
}

// Group 0 has the layers with a window, which are the even ones, 1 the others.
static int place_layers(struct model *m, const struct gguf *g, struct err *e) {
    (void)g;
    (void)e;
    for (int i = 0; i < m->params.n_layers; i++)
        m->layers[i] = (struct layer){.full = true,
                                      .group = i % 2,
                                      .index = i / 2,
                                      .windowed = i % 2 == 0,
                                      .shape = shape_of(&m->params)};
    return 0;
}

const struct model_desc arch_gpt_oss = {
    .arch = ARCH,
    .params = read_params,
    .place = place_layers,
    .load = decoder_load,
    .buffers = decoder_buffers,
    .forward = decoder_forward,
    .ffn_norm = "post_attention_norm.weight",
    .needs = {.activation = ACTIVATION_SWIGLU_CLAMPED, .bias = true}};
