// SPDX-License-Identifier: Apache-2.0
// Laguna (XS.2, M.1): full layers and, in XS.2, layers with a window, which have another number of
// heads and turn otherwise; what comes out of attention is gated by softplus; after some dense
// layers sigmoids choose experts with a bias of each for the choice alone, besides a shared one.
// Format: docs/models.md.
#include <math.h>
#include <stdlib.h>

#include "models/decoder.h"
#include "models/params.h"

#define ARCH "laguna"

static const char names[] = "token_embd.weight output_norm.weight output.weight";
static const char layer_names[] =
    "attn_norm.weight attn_q.weight attn_k.weight attn_v.weight attn_qkv.weight "
    "attn_gate.weight attn_output.weight attn_q_norm.weight attn_k_norm.weight "
    "ffn_norm.weight ffn_gate.weight ffn_up.weight ffn_down.weight ffn_gate_inp.weight "
    "exp_probs_b.bias ffn_gate_exps.weight ffn_up_exps.weight ffn_gate_up_exps.weight "
    "ffn_down_exps.weight ffn_gate_shexp.weight ffn_up_shexp.weight "
    "ffn_down_shexp.weight";

enum { PERIOD = 4 }; // the first of each PERIOD layers is full

static int is_windowed(const struct gguf *g, const struct model_params *p, int i, bool *windowed,
                       struct err *e) {
    *windowed = false;
    return p->window.width ? params_is_windowed(p, g, PERIOD, true, i, windowed, e) : 0;
}

// Heads of queries of both kinds of layers; all have as many of keys.
static int read_layers(struct model_params *p, const struct gguf *g, struct err *e) {
    int rc = 0;
    for (int i = 0; !rc && i < p->n_layers; i++) {
        int64_t heads, kv;
        bool windowed = false;
        rc = is_windowed(g, p, i, &windowed, e);
        if (!rc)
            rc = meta_of_layer(g, ARCH ".attention.head_count", p->n_layers, i, 4096, &heads, e);
        if (!rc)
            rc = meta_of_layer(g, ARCH ".attention.head_count_kv", p->n_layers, i, 4096, &kv, e);
        if (rc)
            break;
        int *known = windowed ? &p->window.n_heads : &p->n_heads;
        if ((*known && *known != heads) || (p->n_kv && p->n_kv != kv) || heads % kv ||
            heads / kv > OPS_GROUP_MAX)
            return err_set(e, ERR_UNSUPPORTED,
                           "layer %d has %lld heads of queries and %lld of keys, which is not "
                           "supported together with those of other layers",
                           i, (long long)heads, (long long)kv);
        *known = (int)heads;
        p->n_kv = p->window.n_kv = (int)kv;
    }
    if (!rc && !p->n_heads)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "metadata key " ARCH ".attention.sliding_window_pattern leaves no layer "
                     "without a window; such files are not supported");
    return rc;
}

static int read_turn(const struct gguf *g, const char *dims_key, const char *base_key, int head,
                     double base, struct rope *rope, struct err *e) {
    int64_t dims;
    int rc = meta_int(g, dims_key, 2, head, head, &dims, e);
    if (!rc && dims % 2)
        rc = err_set(e, ERR_UNSUPPORTED, "metadata key %s is %lld; an even number is needed",
                     dims_key, (long long)dims);
    if (rc)
        return rc;
    *rope = (struct rope){.dims = (int)dims};
    return meta_positive(g, base_key, base, &rope->base, e);
}

static int read_heads(struct model_params *p, const struct gguf *g, struct err *e) {
    int64_t hd, vd;
    int rc = meta_int(g, ARCH ".attention.key_length", 32, OPS_HEAD_MAX, 0, &hd, e);
    if (!rc)
        rc = meta_int(g, ARCH ".attention.value_length", 32, OPS_HEAD_MAX, hd, &vd, e);
    if (!rc && (hd != vd || hd % 32))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "heads with key length %lld and value length %lld are not supported",
                     (long long)hd, (long long)vd);
    if (rc)
        return rc;
    p->head_dim = p->window.head_dim = (int)hd;
    p->attn_scale = (float)(1.0 / sqrt((double)hd));
    rc =
        read_turn(g, ARCH ".rope.dimension_count", ARCH ".rope.freq_base", (int)hd, 0, &p->rope, e);
    if (!rc && p->window.width)
        rc = read_turn(g, ARCH ".rope.dimension_count_swa", ARCH ".rope.freq_base_swa", (int)hd,
                       (double)p->rope.base, &p->window.rope, e);
    return rc ? rc : rope_scaling_read(p, g, e);
}

static int read_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int64_t blocks;
    double cap = 0;
    p->moe = (struct moe_shape){.score = ROUTE_SIGMOID, .normalise = true};
    int rc = params_refuse_tensors(g, ARCH, names, layer_names, e);
    if (!rc)
        rc = params_read_experts(p, g, ARCH, e);
    if (!rc)
        rc = params_read_sizes(p, g, ARCH, &blocks, e);
    if (!rc)
        rc = params_read_lead(p, g, false, e);
    if (!rc)
        rc = params_read_shared(p, g, 0, e);
    if (!rc)
        rc = gguf_get_float(g, ARCH ".router_logit_softcapping", 0, &cap, e);
    if (!rc && (!(cap >= 0) || !isfinite((float)cap)))
        rc = err_set(e, ERR_FORMAT,
                     "metadata key " ARCH ".router_logit_softcapping is %g; a positive number is "
                     "needed",
                     cap);
    if (!rc)
        rc = meta_int(g, ARCH ".attention.sliding_window", 0, (int64_t)1 << 31, 0, &p->window.width,
                      e);
    if (!rc)
        rc = read_layers(p, g, e);
    if (!rc)
        rc = read_heads(p, g, e);
    p->moe.logit_cap = (float)cap;
    p->n_full = p->n_layers;
    p->draft_mask = 12; // of its drafts
    return rc ? rc : params_read_vocab(p, g, e);
}

// Group 0 has the full layers, 1 those with a window. Whether outputs of heads or each of their
// values have a gate shows in the tensor.
static int place_layers(struct model *m, const struct gguf *g, struct err *e) {
    const struct model_params *p = &m->params;
    int count[2] = {0, 0}, rc = 0;
    for (int i = 0; !rc && i < p->n_layers; i++) {
        struct layer *y = &m->layers[i];
        char name[LOAD_NAME];
        bool windowed = false;
        rc = is_windowed(g, p, i, &windowed, e);
        const struct tensor *gate = gguf_tensor(g, load_name(name, i, "attn_gate.weight"));
        y->full = true;
        y->windowed = windowed;
        y->group = windowed;
        y->index = count[windowed]++;
        y->shape = decoder_attention_shape(p);
        y->shape.gate_width = 1;
        if (windowed) {
            y->shape.n_heads = p->window.n_heads;
            y->shape.rope = p->window.rope;
        }
        if (gate && gate->ne[1] != y->shape.n_heads)
            y->shape.gate_width = p->head_dim; // or the shape is refused when it is loaded
    }
    return rc;
}

const struct model_desc arch_laguna = {.arch = ARCH,
                                       .params = read_params,
                                       .place = place_layers,
                                       .load = decoder_load,
                                       .buffers = decoder_buffers,
                                       .forward = decoder_forward};
