// SPDX-License-Identifier: Apache-2.0
// DeepSeek-V2, -V3 and R1, Kimi K2, Moonlight, GLM-4.7-Flash: latent attention in every layer, then
// SwiGLU in the first layers, experts besides a shared one in the others. Format: docs/models.md.
#include <math.h>
#include <stdlib.h>

#include "models/decoder.h"
#include "models/params.h"

#define ARCH "deepseek2"

static const char names[] = "token_embd.weight output_norm.weight output.weight";
static const char layer_names[] =
    "attn_norm.weight attn_q.weight attn_q_a.weight attn_q_a_norm.weight attn_q_b.weight "
    "attn_kv_a_mqa.weight attn_kv_a_norm.weight attn_kv_b.weight attn_k_b.weight "
    "attn_v_b.weight attn_output.weight ffn_norm.weight ffn_gate.weight ffn_up.weight "
    "ffn_down.weight ffn_gate_inp.weight exp_probs_b.bias ffn_gate_exps.weight "
    "ffn_up_exps.weight ffn_down_exps.weight ffn_gate_up_exps.weight "
    "ffn_gate_shexp.weight ffn_up_shexp.weight ffn_down_shexp.weight";

// Widths of heads. Newer files say of what is stored how wide it is and name the heads' own widths
// *_mla; older ones have the latter only.
static int read_widths(struct mla_shape *s, const struct gguf *g, struct err *e) {
    bool newer = gguf_find(g, ARCH ".attention.key_length_mla");
    const char *k = newer ? ARCH ".attention.key_length_mla" : ARCH ".attention.key_length";
    const char *v = newer ? ARCH ".attention.value_length_mla" : ARCH ".attention.value_length";
    int64_t key, value, lora, turns, q_lora, stored = 0;
    int rc = meta_int(g, ARCH ".attention.kv_lora_rank", 32, OPS_HEAD_MAX, 0, &lora, e);
    if (!rc)
        rc = meta_int(g, ARCH ".rope.dimension_count", 2, OPS_KEY_MAX - lora, 0, &turns, e);
    if (!rc)
        rc = meta_int(g, k, turns + 1, OPS_HEAD_MAX, 0, &key, e);
    if (!rc)
        rc = meta_int(g, v, 1, OPS_HEAD_MAX, 0, &value, e);
    if (!rc)
        rc = meta_int(g, ARCH ".attention.q_lora_rank", 0, PARAMS_MAX_WIDTH, 0, &q_lora, e);
    if (!rc && newer)
        rc = meta_int(g, ARCH ".attention.key_length", 1, PARAMS_MAX_WIDTH, lora + turns, &stored,
                      e);
    if (rc)
        return rc;
    if (lora % 32 || turns % 2 || (lora + turns) % 32 || value % 32 || q_lora % 32 ||
        (newer && stored != lora + turns))
        return err_set(e, ERR_UNSUPPORTED,
                       "latent attention with latents of %lld, %lld rotary dimensions, key length "
                       "%lld, value length %lld and queries of rank %lld is not supported",
                       (long long)lora, (long long)turns, (long long)key, (long long)value,
                       (long long)q_lora);
    s->kv_lora = (int)lora;
    s->turns = (int)turns;
    s->nope = (int)(key - turns);
    s->v = (int)value;
    // Files that have one matrix for queries may name a rank all the same.
    s->q_lora = gguf_tensor(g, "blk.0.attn_q.weight") ? 0 : (int)q_lora;
    if (!s->q_lora && !gguf_tensor(g, "blk.0.attn_q.weight"))
        return err_set(e, ERR_FORMAT,
                       "metadata key " ARCH ".attention.q_lora_rank is missing, and so is tensor "
                       "blk.0.attn_q.weight; the file is incomplete");
    return 0;
}

// YaRN here scales scores instead of cosines: by (1 + l ln factor)^2, where l is the key below.
static int read_turning(struct model_params *p, const struct gguf *g, struct err *e) {
    struct mla_shape *s = &p->mla;
    double l;
    p->rope = (struct rope){.first = s->kv_lora, .dims = s->turns, .pairs = ROPE_NEIGHBOURS};
    int rc = meta_positive(g, ARCH ".rope.freq_base", 10000, &p->rope.base, e);
    if (!rc)
        rc = rope_scaling_read(p, g, e);
    if (!rc)
        rc = gguf_get_float(g, ARCH ".rope.scaling.yarn_log_multiplier", 0, &l, e);
    if (!rc && !(l >= 0 && l <= 1))
        rc = err_set(
            e, ERR_FORMAT,
            "metadata key " ARCH ".rope.scaling.yarn_log_multiplier is %g; 0 to 1 is expected", l);
    if (rc)
        return rc;
    double m = 1;
    if (l > 0 && p->rope.factor > 1) {
        m = 1 + l * log((double)p->rope.factor);
        p->rope.magnitude = p->rope_options.magnitude > 0 ? p->rope_options.magnitude : 1;
    }
    s->rope = p->rope;
    s->scale = (float)(m * m / sqrt((double)(s->nope + s->turns)));
    return 0;
}

static int read_attention(struct model_params *p, const struct gguf *g, int64_t blocks,
                          struct err *e) {
    struct mla_shape *s = &p->mla;
    int rc = meta_heads(g, ARCH ".attention.head_count", blocks, &p->n_heads, e);
    if (!rc && p->n_heads > OPS_GROUP_MAX)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "metadata key " ARCH ".attention.head_count is %d; up to %d are supported",
                     p->n_heads, OPS_GROUP_MAX);
    if (!rc)
        rc = read_widths(s, g, e);
    if (!rc)
        rc = read_turning(p, g, e);
    s->dim = p->dim;
    s->n_heads = p->n_heads;
    s->eps = p->eps;
    s->latent_eps = 1e-6f; // whatever the other norms have (the authors' code)
    p->n_kv = 1;
    p->head_dim = s->kv_lora + s->turns;
    p->attn_scale = s->scale;
    return rc;
}

// Files without the key: what has a bias for the choice has sigmoids. With softmax, groups are as
// good as their best expert (DeepSeek-V2), with sigmoids as their two best (-V3).
static void finish_experts(struct model_params *p, const struct gguf *g) {
    if (!gguf_find(g, ARCH ".expert_gating_func") && p->moe.choice_bias)
        p->moe.score = ROUTE_SIGMOID;
    p->moe.group_best = p->moe.score == ROUTE_SOFTMAX;
}

static int read_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int64_t blocks;
    p->moe = (struct moe_shape){.score = ROUTE_SOFTMAX, .scale = 1};
    int rc = params_refuse_tensors(g, ARCH, names, layer_names, e);
    if (!rc)
        rc = params_read_experts(p, g, ARCH, e);
    if (!rc)
        rc = params_read_sizes(p, g, ARCH, &blocks, e);
    if (!rc)
        rc = params_read_lead(p, g, false, e);
    if (!rc)
        rc = read_attention(p, g, blocks, e);
    if (!rc)
        rc = params_read_vocab(p, g, e);
    finish_experts(p, g);
    p->n_full = p->n_layers;
    p->draft_mask = p->vocab == 163840 ? 163838 : 0; // of Kimi's drafts
    return rc;
}

static void place_nextn(const struct model *m, struct layer *y) {
    (void)m;
    *y = (struct layer){.full = true};
}

static int place_layers(struct model *m, const struct gguf *g, struct err *e) {
    (void)g;
    (void)e;
    for (int i = 0; i < m->params.n_layers; i++)
        m->layers[i] = (struct layer){.full = true, .index = i};
    return 0;
}

const struct model_desc arch_deepseek2 = {.arch = ARCH,
                                          .params = read_params,
                                          .place = place_layers,
                                          .load = decoder_load,
                                          .buffers = decoder_buffers,
                                          .forward = decoder_forward,
                                          .nextn = place_nextn};
