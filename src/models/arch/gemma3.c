// SPDX-License-Identifier: Apache-2.0
// Gemma 3 (270M, 1B, 4B, 12B, 27B; text only): five layers with a window, which turn by a base of
// their own, then a full one; norms of heads, before and after each block; GELU. Format:
// docs/models.md.
#include <math.h>

#include "models/arch/gemma.h"
#include "models/decoder.h"
#include "models/params.h"

#define ARCH "gemma3"

enum {
    PERIOD = 6,     // the last of each PERIOD layers is full
    LAYERS_27B = 62 // of the one size whose scores are scaled by the share of the stream of a head
};

static const char names[] = "token_embd.weight output_norm.weight output.weight";
static const char layer_names[] =
    "attn_norm.weight attn_q.weight attn_k.weight attn_v.weight attn_qkv.weight "
    "attn_output.weight attn_q_norm.weight attn_k_norm.weight post_attention_norm.weight "
    "ffn_norm.weight ffn_gate.weight ffn_up.weight ffn_down.weight post_ffw_norm.weight";

static int is_windowed(const struct model_params *p, const struct gguf *g, int i, bool *windowed,
                       struct err *e) {
    *windowed = false;
    return p->window.width ? params_is_windowed(p, g, PERIOD, false, i, windowed, e) : 0;
}

// Layers with a window have the others' heads and turn by their own base, never slower.
static int read_window(struct model_params *p, const struct gguf *g, struct err *e) {
    bool windowed = true;
    int rc =
        meta_int(g, ARCH ".attention.sliding_window", 0, (int64_t)1 << 31, 0, &p->window.width, e);
    for (int i = 0; !rc && windowed && i < p->n_layers; i++)
        rc = is_windowed(p, g, i, &windowed, e);
    if (!rc && windowed)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "each of the file's %d layers has a window; gemma3 has some without",
                     p->n_layers);
    p->window.n_heads = p->n_heads;
    p->window.n_kv = p->n_kv;
    p->window.head_dim = p->head_dim;
    p->window.rope = (struct rope){.dims = p->rope.dims};
    return rc ? rc : meta_positive(g, ARCH ".rope.freq_base_swa", 10000, &p->window.rope.base, e);
}

static int read_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int64_t blocks;
    int rc = params_refuse_tensors(g, ARCH, names, layer_names, e);
    if (!rc)
        rc = params_read_sizes(p, g, ARCH, &blocks, e);
    if (!rc)
        rc = params_read_attention(p, g, blocks, 0, e);
    if (!rc)
        rc = read_window(p, g, e);
    if (!rc)
        rc = rope_scaling_read(p, g, e);
    if (!rc)
        rc = gemma_read_cap(p, g, e);
    if (rc)
        return rc;
    if (p->n_layers == LAYERS_27B && !gguf_find(g, ARCH ".attention.scale"))
        p->attn_scale = 1 / sqrtf((float)(p->dim / p->n_heads));
    p->n_full = p->n_layers;
    p->embed_scale = sqrtf((float)p->dim);
    p->draft_mask = 4; // <mask>
    return params_read_vocab(p, g, e);
}

// Group 0 has the full layers, 1 those with a window.
static int place_layers(struct model *m, const struct gguf *g, struct err *e) {
    int count[2] = {0, 0}, rc = 0;
    for (int i = 0; !rc && i < m->params.n_layers; i++) {
        struct layer *y = &m->layers[i];
        rc = is_windowed(&m->params, g, i, &y->windowed, e);
        y->full = true;
        y->group = y->windowed;
        y->index = count[y->group]++;
        y->shape = decoder_attention_shape(&m->params);
        if (y->windowed)
            y->shape.rope = m->params.window.rope;
    }
    return rc;
}

const struct model_desc arch_gemma3 = {
    .arch = ARCH,
    .params = read_params,
    .place = place_layers,
    .load = gemma_load,
    .buffers = gemma_buffers,
    .forward = gemma_forward,
    .needs = {.activation = ACTIVATION_GELU_TANH, .norm = true, .scale = true}};
