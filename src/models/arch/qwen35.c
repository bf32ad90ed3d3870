// SPDX-License-Identifier: Apache-2.0
// Qwen3.5, dense (qwen35) and with experts (qwen35moe): a hybrid of Gated DeltaNet layers and gated
// full-attention layers. Norm weights in GGUF files are final (nothing is added here), ssm_a is
// already negative, value head h reads key head h mod n_k, post_attention_norm is the norm before
// the feed-forward block, and a block beyond the backbone (next-token prediction) is no layer but
// may serve as a draft (models/draft). With experts, every layer has a shared one, whose gate is a
// row's own. Format: docs/models.md.
#include <stdlib.h>
#include <string.h>

#include "models/decoder.h"
#include "models/params.h"

static int refuse_variants(const struct gguf *g, struct err *e) {
    for (size_t i = 0; i < gguf_kv_count(g); i++) {
        const char *key = gguf_kv_at(g, i)->key;
        if (strncmp(key, "prism.hadamard.", 15) == 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "the file has rotated weights (key %s), which are not supported; use "
                           "the ordinary file of this model",
                           key);
    }
    return 0;
}

static const char names[] = "token_embd.weight output_norm.weight output.weight";
static const char layer_names[] =
    "attn_norm.weight post_attention_norm.weight attn_q.weight attn_k.weight "
    "attn_v.weight attn_qkv.weight attn_output.weight attn_q_norm.weight "
    "attn_k_norm.weight attn_gate.weight ssm_alpha.weight ssm_beta.weight ssm_out.weight "
    "ssm_conv1d.weight ssm_a ssm_dt.bias ssm_norm.weight ffn_gate.weight ffn_up.weight "
    "ffn_down.weight ffn_gate_inp.weight ffn_gate_exps.weight ffn_up_exps.weight "
    "ffn_down_exps.weight ffn_gate_up_exps.weight ffn_gate_inp_shexp.weight "
    "ffn_gate_shexp.weight ffn_up_shexp.weight ffn_down_shexp.weight";

static int read_recurrent(struct gdn_shape *s, const struct gguf *g, const char *arch,
                          struct err *e) {
    char key[PARAMS_KEY];
    int64_t conv, state, groups, rank, inner;
    int rc = meta_int(g, params_key(key, arch, "ssm.conv_kernel"), 1, 64, GDN_CONV, &conv, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "ssm.state_size"), 32, 256, 0, &state, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "ssm.group_count"), 1, 1024, 0, &groups, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "ssm.time_step_rank"), 1, 4096, 0, &rank, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "ssm.inner_size"), 1, PARAMS_MAX_WIDTH, rank * state,
                      &inner, e);
    if (rc)
        return rc;
    if (conv != GDN_CONV || rank % groups != 0 || inner != rank * state || state % 32 != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "recurrent layers with %lld value heads over %lld key heads, state size "
                       "%lld, inner size %lld and convolution of %lld are not supported",
                       (long long)rank, (long long)groups, (long long)state, (long long)inner,
                       (long long)conv);
    *s = (struct gdn_shape){.n_k = (int)groups,
                            .n_v = (int)rank,
                            .dk = (int)state,
                            .dv = (int)state,
                            .channels = (int)(2 * groups * state + inner)};
    return 0;
}

// Softmax over all experts and weights that add up to 1; the shared expert's gate always.
static const struct moe_shape experts = {
    .score = ROUTE_SOFTMAX, .normalise = true, .shared_gate = true};

static int read_sizes(struct model *m, const struct gguf *g, int64_t *blocks, struct err *e) {
    struct model_params *p = &m->params;
    const char *arch = m->desc->arch;
    if (m->desc != &arch_qwen35moe)
        return params_read_sizes(p, g, arch, blocks, e);
    p->moe = experts;
    int rc = params_read_experts(p, g, arch, e);
    if (!rc)
        rc = params_read_sizes(p, g, arch, blocks, e);
    if (!rc)
        rc = params_read_shared(p, g, p->ffn, e);
    p->ffn = p->moe.shared;
    return rc;
}

static int read_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int64_t blocks;
    int rc = refuse_variants(g, e);
    if (!rc)
        rc = params_refuse_tensors(g, m->desc->arch, names, layer_names, e);
    p->draft_mask = 248070;
    if (!rc)
        rc = read_sizes(m, g, &blocks, e);
    if (!rc)
        rc = params_read_attention(p, g, blocks, 1e7, e);
    if (!rc)
        rc = rope_scaling_read(p, g, e);
    return rc ? rc : params_read_vocab(p, g, e);
}

// Whether layer i is recurrent; the first source that says so decides, and two must not disagree.
static int layer_kind(const struct model *m, const struct gguf *g, int i, bool *recurrent,
                      struct err *e) {
    const char *arch = m->params.arch;
    char name[LOAD_NAME], key[PARAMS_KEY];
    int64_t blocks = 0;
    int rc = meta_int(g, params_key(key, arch, "block_count"), 1, PARAMS_MAX_LAYERS, 0, &blocks, e);
    if (rc)
        return rc;
    int64_t interval;
    bool conv = gguf_tensor(g, load_name(name, i, "ssm_conv1d.weight")) != NULL;
    const struct gguf_kv *list = gguf_find(g, params_key(key, arch, "attention.recurrent_layers"));
    if (list) {
        if (list->kind != GGUF_ARRAY || list->elem != GGUF_BOOL || list->count != (uint64_t)blocks)
            return err_set(e, ERR_FORMAT, "metadata key %s must have %lld booleans", key,
                           (long long)blocks);
        *recurrent = gguf_array_int(list, (uint64_t)i) != 0;
        if (*recurrent != conv)
            return err_set(e, ERR_MISMATCH,
                           "layer %d is %s by the metadata but not by its "
                           "tensors; the file is damaged",
                           i, *recurrent ? "recurrent" : "attention");
        return 0;
    }
    *recurrent = conv;
    if (conv)
        return 0;
    const struct gguf_kv *kv = gguf_find(g, params_key(key, arch, "attention.head_count_kv"));
    if (kv && kv->kind == GGUF_ARRAY) {
        *recurrent = gguf_array_int(kv, (uint64_t)i) == 0;
        return 0;
    }
    rc = meta_int(g, params_key(key, arch, "full_attention_interval"), 1, PARAMS_MAX_LAYERS, 4,
                  &interval, e);
    *recurrent = !rc && (i + 1) % interval != 0;
    return rc;
}

static struct attention_shape full_attention(const struct model_params *p) {
    struct attention_shape s = decoder_attention_shape(p);
    s.gated = true;
    return s;
}

// Always attention, whatever the layers before are.
static void place_nextn(const struct model *m, struct layer *y) {
    *y = (struct layer){.full = true, .shape = full_attention(&m->params)};
}

static int place_layers(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int rc = 0, n_recurrent = 0;
    p->n_full = 0;
    for (int i = 0; !rc && i < p->n_layers; i++) {
        struct layer *y = &m->layers[i];
        bool recurrent = false;
        rc = layer_kind(m, g, i, &recurrent, e);
        y->full = !recurrent;
        y->index = recurrent ? n_recurrent++ : p->n_full++;
        if (y->full)
            y->shape = full_attention(p);
    }
    return rc || !n_recurrent ? rc : read_recurrent(&p->gdn, g, p->arch, e);
}

#define QWEN35(name)                                                                               \
    .arch = name, .params = read_params, .place = place_layers, .load = decoder_load,              \
    .buffers = decoder_buffers, .forward = decoder_forward, .nextn = place_nextn,                  \
    .ffn_norm = "post_attention_norm.weight"

const struct model_desc arch_qwen35 = {QWEN35("qwen35")};
const struct model_desc arch_qwen35moe = {QWEN35("qwen35moe")};
