// SPDX-License-Identifier: Apache-2.0
// Qwen3.5, dense (qwen35) and with experts (qwen35moe): a hybrid of Gated DeltaNet layers and gated
// full-attention layers. Norm weights in GGUF files are final (nothing is added here), ssm_a is
// already negative, value head h reads key head h mod n_k, post_attention_norm is the norm before
// the feed-forward block, and blocks beyond the backbone (next-token-prediction layers) are
// ignored. With experts, every layer has a shared one, whose gate is a row's own. Format:
// docs/models.md.
#include <stdlib.h>
#include <string.h>

#include "models/model_impl.h"
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

static const char *const names[] = {"token_embd.weight", "output_norm.weight", "output.weight",
                                    NULL};
static const char *const layer_names[] = {"attn_norm.weight",
                                          "post_attention_norm.weight",
                                          "attn_q.weight",
                                          "attn_k.weight",
                                          "attn_v.weight",
                                          "attn_qkv.weight",
                                          "attn_output.weight",
                                          "attn_q_norm.weight",
                                          "attn_k_norm.weight",
                                          "attn_gate.weight",
                                          "ssm_alpha.weight",
                                          "ssm_beta.weight",
                                          "ssm_out.weight",
                                          "ssm_conv1d.weight",
                                          "ssm_a",
                                          "ssm_dt.bias",
                                          "ssm_norm.weight",
                                          "ffn_gate.weight",
                                          "ffn_up.weight",
                                          "ffn_down.weight",
                                          "ffn_gate_inp.weight",
                                          "ffn_gate_exps.weight",
                                          "ffn_up_exps.weight",
                                          "ffn_down_exps.weight",
                                          "ffn_gate_up_exps.weight",
                                          "ffn_gate_inp_shexp.weight",
                                          "ffn_gate_shexp.weight",
                                          "ffn_up_shexp.weight",
                                          "ffn_down_shexp.weight",
                                          NULL};

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
        rc = params_refuse_scaling(g, p->arch, e);
    if (!rc)
        rc = params_read_attention(p, g, blocks, 1e7, e);
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

static struct attention_shape attention_shape_of(const struct model_params *p) {
    return (struct attention_shape){.dim = p->dim,
                                    .n_heads = p->n_heads,
                                    .n_kv = p->n_kv,
                                    .head_dim = p->head_dim,
                                    .rope = p->rope,
                                    .eps = p->eps,
                                    .scale = p->attn_scale,
                                    .gated = true};
}

static int load_kinds(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int rc = 0, n_recurrent = 0;
    p->n_full = 0;
    for (int i = 0; !rc && i < p->n_layers; i++) {
        bool recurrent = false;
        rc = layer_kind(m, g, i, &recurrent, e);
        m->layers[i].full = !recurrent;
        m->layers[i].index = recurrent ? n_recurrent++ : p->n_full++;
    }
    if (!rc && n_recurrent)
        rc = read_recurrent(&p->gdn, g, p->arch, e);
    struct kv_shape kv = {.n_layers = p->n_full,
                          .n_heads = p->n_kv,
                          .dk = p->head_dim,
                          .dv = p->head_dim,
                          .codec_k = m->options.codec_k,
                          .codec_v = m->options.codec_v};
    int group; // 0, which is in all layers
    return rc || !p->n_full ? rc : model_add_group(m, &kv, 0, &group, e);
}

static int load_layer(struct model *m, int i, struct err *e) {
    const struct model_params *p = &m->params;
    struct layer *y = &m->layers[i];
    struct load *l = &m->load;
    struct attention_shape shape = attention_shape_of(p);
    char name[LOAD_NAME];
    int rc = load_floats(l, load_name(name, i, "attn_norm.weight"), p->dim, 1, &y->mixer_norm, e);
    if (!rc)
        rc = load_floats(l, load_name(name, i, "post_attention_norm.weight"), p->dim, 1,
                         &y->ffn_norm, e);
    if (!rc)
        rc = y->full ? attention_load(&y->attention, &shape, l, i, e)
                     : deltanet_load(&y->deltanet, &p->gdn, p->dim, l, i, e);
    if (rc)
        return rc;
    return p->moe.experts ? moe_load(&y->moe, &p->moe, p->dim, l, i, e)
                          : mlp_load(&y->mlp, p->dim, p->ffn, l, i, e);
}

static int load_all(struct model *m, const struct gguf *g, struct err *e) {
    const struct model_params *p = &m->params;
    struct attention_shape shape = attention_shape_of(p);
    m->layers = calloc((size_t)p->n_layers, sizeof *m->layers);
    if (!m->layers)
        return err_set(e, ERR_MEMORY, "no memory for %d layers", p->n_layers);
    int rc = load_kinds(m, g, e);
    struct attention_call call = {.shape = &shape,
                                  .layout = &m->groups[0].layout,
                                  .mask = ATTEND_PATH,
                                  .choice = model_choice(m)};
    if (!rc && p->n_full)
        rc = attention_check(m->x, &call, e);
    if (!rc && p->moe.experts)
        rc = moe_check(m->x, e);
    if (!rc)
        rc = model_load_ends(m, e);
    for (int i = 0; !rc && i < p->n_layers; i++)
        rc = load_layer(m, i, e);
    return rc;
}

static int load_buffers(struct model *m, int64_t rows, struct err *e) {
    const struct model_params *p = &m->params;
    struct attention_shape shape = attention_shape_of(p);
    int rc = p->n_full ? attention_buffers_load(&m->ws.attention, &shape, rows, &m->load, e) : 0;
    if (!rc && p->n_full < p->n_layers)
        rc = deltanet_buffers_load(&m->ws.deltanet, &p->gdn, rows, &m->load, e);
    return rc;
}

static void run_attention(struct model *m, const struct pass *p, const struct layer *y) {
    struct attention_shape shape = attention_shape_of(&m->params);
    struct attention_call c = model_attention_call(m, p, y);
    c.shape = &shape;
    attention_run(m->x, &c);
}

static void run_deltanet(struct model *m, const struct pass *p, const struct layer *y) {
    const struct pass_record *r = &m->pass;
    const struct gdn_rows *own = &m->ws.verify[y->index];
    struct gdn_rows rows = m->ws.deltanet.rows;
    struct deltanet_slices slices = {.chain = r->chain,
                                     .run = r->slices,
                                     .commit = r->commits,
                                     .identity = r->identity,
                                     .tree = r->tree,
                                     .n_tree = r->n_tree,
                                     .keep = own};
    if (!r->layerwise) {
        rows.u = own->u;
        rows.k = own->k;
        rows.g = own->g;
        rows.d = own->d;
    }
    for (int i = 0; i < p->n_seqs; i++) {
        r->states[i] = &p->seqs[i]->recurrent.layers[y->index];
        r->len_now[i] = p->len[i];
    }
    struct deltanet_call c = {
        .ranks = &m->ranks,
        .shape = m->params.gdn,
        .eps = m->params.eps,
        .block = &y->deltanet,
        .buf = &m->ws.deltanet,
        .rows = rows,
        .in_rows = &p->rows,
        .runs = r->runs,
        .n_runs = r->n_runs,
        .states = r->states,
        .len = r->len_now,
        .slices = r->layerwise ? &slices : NULL,
        .in = m->ws.act_d,
        .h = m->ws.h,
    };
    deltanet_run(m->x, &c);
}

static void forward(struct model *m, const struct pass *p) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *q = &m->params;
    int64_t n = p->rows.n;
    for (int i = 0; i < q->n_layers; i++) {
        const struct layer *y = &m->layers[i];
        ops->norm_to_act(m->x, m->ws.h, y->mixer_norm, q->eps, n, q->dim, m->ws.act_d);
        if (y->full)
            run_attention(m, p, y);
        else
            run_deltanet(m, p, y);
        ops->norm_to_act(m->x, m->ws.h, y->ffn_norm, q->eps, n, q->dim, m->ws.act_d);
        if (q->moe.experts)
            model_run_experts(m, y, n);
        else
            mlp_run(m->x, &m->ranks, &y->mlp, m->ws.act_d, m->ws.act_f, m->ws.h, n);
        model_tap(m, i, n);
    }
}

const struct model_desc arch_qwen35 = {"qwen35", read_params, load_all, load_buffers, forward};
const struct model_desc arch_qwen35moe = {"qwen35moe", read_params, load_all, load_buffers,
                                          forward};
