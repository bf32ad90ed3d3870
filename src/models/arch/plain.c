// SPDX-License-Identifier: Apache-2.0
// The plain decoder: every layer is full attention, then SwiGLU or experts, each after an RMSNorm.
// A row says what an architecture has besides that. What a file has besides the tensors of such a
// model is refused by name: it would change the result. Format: docs/models.md.
#include <string.h>

#include "base/str.h"
#include "models/decoder.h"
#include "models/params.h"

static bool has_experts(const struct plain_decoder *f) {
    return f->experts.scale > 0;
}

// Tensors of a plain layer; rotary tables of old files are what every reader computes.
static bool is_known(const struct model_desc *d, const char *name) {
    static const char layer[] = "attn_norm.weight attn_q.weight attn_k.weight attn_v.weight "
                                "attn_qkv.weight attn_output.weight ffn_norm.weight "
                                "ffn_gate.weight ffn_up.weight ffn_down.weight rope_freqs "
                                "attn_rot_embd";
    static const char norms[] = "attn_q_norm.weight attn_k_norm.weight";
    static const char biases[] = "attn_q.bias attn_k.bias attn_v.bias attn_qkv.bias";
    static const char experts[] = "ffn_gate_inp.weight ffn_gate_exps.weight ffn_up_exps.weight "
                                  "ffn_down_exps.weight ffn_gate_up_exps.weight";
    static const char shared[] = "exp_probs_b.bias ffn_gate_shexp.weight ffn_up_shexp.weight "
                                 "ffn_down_shexp.weight";
    const struct plain_decoder *f = &d->plain;
    const char *lists[] = {layer,
                           f->qk_norm != PLAIN_ABSENT ? norms : "",
                           f->bias != PLAIN_ABSENT ? biases : "",
                           f->bias == PLAIN_IF_THERE ? "attn_output.bias" : "",
                           has_experts(f) ? experts : "",
                           f->experts.shared ? shared : "",
                           d->ffn_norm ? d->ffn_norm : ""};
    const char *part = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    if (!part)
        return params_lists("token_embd.weight output_norm.weight output.weight", name) ||
               (f->factors && !strcmp(name, "rope_freqs.weight"));
    bool known = false;
    for (size_t i = 0; !known && i < sizeof lists / sizeof *lists; i++)
        known = params_lists(lists[i], part + 1);
    return known;
}

static int refuse_tensors(const struct model *m, const struct gguf *g, struct err *e) {
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        if (!params_is_for_drafting(name) && !is_known(m->desc, name))
            return err_set(e, ERR_UNSUPPORTED,
                           "the file has a tensor %.80s, which a plain %s model lacks; use a file "
                           "without it",
                           name, m->desc->arch);
    }
    return 0;
}

static int read_plain_sizes(struct model *m, const struct gguf *g, int64_t *blocks, struct err *e) {
    struct model_params *p = &m->params;
    const struct plain_decoder *f = &m->desc->plain;
    p->moe = f->experts;
    int rc = has_experts(f) ? params_read_experts(p, g, m->desc->arch, e) : 0;
    if (!rc)
        rc = params_read_sizes(p, g, m->desc->arch, blocks, e);
    if (!rc && f->experts.shared)
        return params_read_lead(p, g, true, e);
    if (has_experts(f))
        p->ffn = 0; // what a file names is the size of layers that it does not have
    return rc;
}

static int read_plain(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    const struct plain_decoder *f = &m->desc->plain;
    int64_t blocks;
    int rc = refuse_tensors(m, g, e);
    if (!rc)
        rc = read_plain_sizes(m, g, &blocks, e);
    if (!rc)
        rc = params_read_attention(p, g, blocks, f->base, e);
    if (!rc)
        rc = rope_scaling_read(p, g, e);
    if (!rc)
        rc = params_read_vocab(p, g, e);
    p->rope.pairs = f->pairs;
    p->n_full = p->n_layers;
    p->draft_mask = f->draft_mask;
    return rc;
}

static struct attention_shape plain_shape(const struct model *m) {
    const struct model_params *p = &m->params;
    const struct plain_decoder *f = &m->desc->plain;
    bool norm = f->qk_norm == PLAIN_THERE || (f->qk_norm == PLAIN_IF_THERE && p->qk_norm);
    bool maybe = f->bias == PLAIN_IF_THERE;
    struct attention_shape s = decoder_attention_shape(p);
    s.no_qk_norm = !norm;
    s.bias = f->bias == PLAIN_THERE || (maybe && p->qkv_bias);
    s.out_bias = maybe && p->out_bias;
    s.rope.factors = m->rope_factors;
    return s;
}

// A bias or a norm in the first layer must be in all.
static void find_options(struct model_params *p, const struct gguf *g) {
    p->qkv_bias = gguf_tensor(g, "blk.0.attn_q.bias") || gguf_tensor(g, "blk.0.attn_qkv.bias");
    p->out_bias = gguf_tensor(g, "blk.0.attn_output.bias");
    p->qk_norm = gguf_tensor(g, "blk.0.attn_q_norm.weight");
}

static int place_plain(struct model *m, const struct gguf *g, struct err *e) {
    find_options(&m->params, g);
    int rc = m->desc->plain.factors ? decoder_load_factors(m, g, e) : 0;
    for (int i = 0; !rc && i < m->params.n_layers; i++)
        m->layers[i] = (struct layer){.full = true, .index = i, .shape = plain_shape(m)};
    return rc;
}

static void place_nextn(const struct model *m, struct layer *y) {
    *y = (struct layer){.full = true, .shape = plain_shape(m)};
}

#define PLAIN(name)                                                                                \
    .arch = name, .params = read_plain, .place = place_plain, .load = decoder_load,                \
    .buffers = decoder_buffers, .forward = decoder_forward

// Qwen3, dense and with experts: norms of queries and keys.
const struct model_desc arch_qwen3 = {
    PLAIN("qwen3"),
    .plain = {.qk_norm = PLAIN_THERE,
              .pairs = ROPE_HALVES,
              .draft_mask = 151669}, // the first id after the tokenizer's own
};

const struct model_desc arch_qwen3moe = {
    PLAIN("qwen3moe"),
    .plain = {.qk_norm = PLAIN_THERE,
              .pairs = ROPE_HALVES,
              .experts = {.score = ROUTE_SOFTMAX, .normalise = true, .scale = 1},
              .draft_mask = 151669},
};

// Qwen2 and Qwen2.5 (also Coder, QwQ and the R1 distillates of them): biases of queries, keys and
// values.
const struct model_desc arch_qwen2 = {
    PLAIN("qwen2"),
    .plain = {.bias = PLAIN_THERE, .pairs = ROPE_HALVES, .base = 10000, .draft_mask = 151669},
};

// Llama 2 and 3, and Mistral files of that kind, whose converter has put the two values of a rotary
// pair side by side. From Llama 3.1 on a tensor divides the slow angles.
const struct model_desc arch_llama = {
    PLAIN("llama"),
    .plain = {.bias = PLAIN_IF_THERE,
              .factors = true,
              .pairs = ROPE_NEIGHBOURS,
              .base = 10000,
              .draft_mask = 128002}, // <|reserved_special_token_0|> of Llama 3
};

// GLM-4.5 to 4.7 and Air: biases and, in the larger ones, norms of heads, of which the first half
// turns; after some dense layers, sigmoids choose experts with a bias of each for the choice alone,
// besides a shared one.
const struct model_desc arch_glm4moe = {
    PLAIN("glm4moe"), .nextn = place_nextn, .ffn_norm = "post_attention_norm.weight",
    .plain = {.qk_norm = PLAIN_IF_THERE,
              .bias = PLAIN_IF_THERE,
              .pairs = ROPE_HALVES,
              .experts = {.score = ROUTE_SIGMOID, .shared = 1, .choice_bias = true, .scale = 1},
              .draft_mask = 151363}, // the first id after the tokenizer's own
};
