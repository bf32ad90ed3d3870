// SPDX-License-Identifier: Apache-2.0
// Gemma 4 (31B, 26B-A4B with experts besides each dense block, the E models with embeddings of each
// layer): layers with a window and full ones, which have heads of another size; norms before and
// after each block; attention without a scale; GELU. Format: docs/models.md.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "models/arch/gemma.h"
#include "models/decoder.h"
#include "models/params.h"

#define ARCH "gemma4"

enum { PERIOD = 6 }; // the last of each PERIOD layers is full

// Heads of keys in the first layer with and without a window, and that others of a kind have as
// many; the widest feed-forward layer.
static int read_layers(struct model_params *p, const struct gguf *g, struct err *e) {
    int rc = 0;
    p->n_kv = p->window.n_kv = 0;
    for (int i = 0; !rc && i < p->n_layers; i++) {
        int64_t kv, ffn;
        bool windowed = false;
        rc = params_is_windowed(p, g, PERIOD, false, i, &windowed, e);
        if (!rc)
            rc = meta_of_layer(g, ARCH ".attention.head_count_kv", p->n_layers, i, 4096, &kv, e);
        if (!rc)
            rc = meta_of_layer(g, ARCH ".feed_forward_length", p->n_layers, i, PARAMS_MAX_WIDTH,
                               &ffn, e);
        if (rc)
            break;
        int *known = windowed ? &p->window.n_kv : &p->n_kv;
        if (ffn % 32)
            return err_set(e, ERR_UNSUPPORTED, "width %lld of layer %d must be a multiple of 32",
                           (long long)ffn, i);
        if ((*known && *known != kv) || p->n_heads % kv)
            return err_set(e, ERR_UNSUPPORTED,
                           "layer %d has %lld heads of keys for %d of queries, which is not "
                           "supported together with those of other layers",
                           i, (long long)kv, p->n_heads);
        *known = (int)kv;
        p->ffn = ffn > p->ffn ? ffn : p->ffn;
    }
    if (!rc && (!p->n_kv || !p->window.n_kv))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "the file has layers of one kind only; gemma4 has some with a window and some "
                     "without");
    return rc;
}

// Size of a head, and how much of it turns; with `tail` the keys of windowed layers.
static int read_heads(const struct gguf *g, const char *tail, double base, int *head_dim,
                      struct rope *rope, struct err *e) {
    char key[PARAMS_KEY], name[PARAMS_KEY];
    int64_t hd, vd, dims;
    snprintf(name, sizeof name, "attention.key_length%s", tail);
    int rc = meta_int(g, params_key(key, ARCH, name), 32, OPS_HEAD_MAX, 0, &hd, e);
    snprintf(name, sizeof name, "attention.value_length%s", tail);
    if (!rc)
        rc = meta_int(g, params_key(key, ARCH, name), 32, OPS_HEAD_MAX, hd, &vd, e);
    snprintf(name, sizeof name, "rope.dimension_count%s", tail);
    if (!rc)
        rc = meta_int(g, params_key(key, ARCH, name), 2, hd, hd, &dims, e);
    if (!rc && (hd != vd || hd % 32 || dims % 2))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "heads with key length %lld, value length %lld and %lld rotary dimensions are "
                     "not supported",
                     (long long)hd, (long long)vd, (long long)dims);
    if (rc)
        return rc;
    *head_dim = (int)hd;
    *rope = (struct rope){.dims = (int)dims};
    snprintf(name, sizeof name, "rope.freq_base%s", tail);
    return meta_positive(g, params_key(key, ARCH, name), base, &rope->base, e);
}

int gemma_read_cap(struct model_params *p, const struct gguf *g, struct err *e) {
    char key[PARAMS_KEY];
    double cap;
    int rc = gguf_get_float(g, params_key(key, p->arch, "final_logit_softcapping"), 0, &cap, e);
    if (!rc && (!(cap >= 0) || !isfinite((float)cap)))
        rc = err_set(e, ERR_UNSUPPORTED, "a cap of %g for logits is not supported", cap);
    p->logit_cap = rc ? 0 : (float)cap;
    return rc;
}

static int read_sizes(struct model_params *p, const struct gguf *g, struct err *e) {
    int64_t n, heads, borrowing;
    p->arch = ARCH;
    int rc = meta_int(g, ARCH ".block_count", 1, PARAMS_MAX_LAYERS, 0, &n, e);
    if (!rc)
        rc = meta_int(g, ARCH ".context_length", 1, (int64_t)1 << 31, 0, &p->context, e);
    if (!rc)
        rc = meta_int(g, ARCH ".embedding_length", 32, PARAMS_MAX_WIDTH, 0, &p->dim, e);
    if (!rc && p->dim % 32)
        rc = err_set(e, ERR_UNSUPPORTED, "width %lld must be a multiple of 32", (long long)p->dim);
    if (!rc)
        rc = meta_positive(g, ARCH ".attention.layer_norm_rms_epsilon", 0, &p->eps, e);
    if (!rc)
        rc = meta_int(g, ARCH ".attention.head_count", 1, 4096, 0, &heads, e);
    if (!rc)
        rc = meta_int(g, ARCH ".attention.shared_kv_layers", 0, n - 1, 0, &borrowing, e);
    if (!rc)
        rc = meta_int(g, ARCH ".attention.sliding_window", 1, (int64_t)1 << 31, 0, &p->window.width,
                      e);
    if (!rc)
        rc = gemma_read_cap(p, g, e);
    if (!rc)
        rc = meta_int(g, ARCH ".embedding_length_per_layer_input", 0, PARAMS_MAX_WIDTH, 0,
                      &p->per_layer, e);
    if (rc)
        return rc;
    if (p->per_layer % 32)
        return err_set(e, ERR_UNSUPPORTED, "embeddings of %lld values a layer are not supported",
                       (long long)p->per_layer);
    p->n_layers = p->n_full = (int)n;
    p->n_heads = (int)heads;
    p->borrowing = (int)borrowing;
    p->attn_scale = 1;
    p->embed_scale = sqrtf((float)p->dim);
    return 0;
}

static const char names[] =
    "token_embd.weight output_norm.weight output.weight rope_freqs.weight "
    "per_layer_token_embd.weight per_layer_model_proj.weight per_layer_proj_norm.weight";
static const char layer_names[] =
    "attn_norm.weight attn_q.weight attn_k.weight attn_v.weight attn_qkv.weight "
    "attn_output.weight attn_q_norm.weight attn_k_norm.weight ffn_norm.weight "
    "ffn_gate.weight ffn_up.weight ffn_down.weight post_ffw_norm.weight inp_gate.weight "
    "proj.weight post_norm.weight rope_freqs.weight post_attention_norm.weight "
    "layer_output_scale.weight ffn_gate_inp.weight ffn_gate_inp.scale "
    "pre_ffw_norm_2.weight post_ffw_norm_1.weight post_ffw_norm_2.weight "
    "ffn_gate_exps.weight ffn_up_exps.weight ffn_gate_up_exps.weight "
    "ffn_down_exps.weight ffn_down_exps.scale";

static int read_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int64_t experts;
    int rc = meta_int(g, ARCH ".expert_count", 0, OPS_EXPERTS_MAX, 0, &experts, e);
    if (!rc && experts) {
        p->moe = (struct moe_shape){.score = ROUTE_SOFTMAX,
                                    .normalise = true,
                                    .scale = 1,
                                    .scales = true,
                                    .activation = ACTIVATION_GELU_TANH};
        rc = params_read_experts(p, g, ARCH, e);
    }
    if (!rc)
        rc = params_refuse_tensors(g, ARCH, names, layer_names, e);
    if (!rc)
        rc = read_sizes(p, g, e);
    if (!rc)
        rc = read_layers(p, g, e);
    if (!rc)
        rc = read_heads(g, "", 0, &p->head_dim, &p->rope, e);
    if (!rc)
        rc = read_heads(g, "_swa", 10000, &p->window.head_dim, &p->window.rope, e);
    if (!rc)
        rc = rope_scaling_read(p, g, e);
    p->draft_mask = 4; // <mask>
    return rc ? rc : params_read_vocab(p, g, e);
}

static struct attention_shape shape_of(const struct model *m, bool windowed) {
    const struct model_params *p = &m->params;
    struct attention_shape s = decoder_attention_shape(p);
    s.v_norm = true;
    if (windowed) {
        s.n_kv = p->window.n_kv;
        s.head_dim = p->window.head_dim;
        s.rope = p->window.rope;
    } else {
        s.rope.factors = m->rope_factors;
    }
    return s;
}

static struct ple_shape ple_shape_of(const struct model_params *p) {
    return (struct ple_shape){
        .dim = p->dim, .width = p->per_layer, .layers = p->n_layers, .eps = p->eps};
}

// Group 0 has the layers with a window, 1 the others. A layer that borrows has the place of the
// last one of its kind that does not.
static int place_layers(struct model *m, const struct gguf *g, struct err *e) {
    const struct model_params *p = &m->params;
    int count[2] = {0, 0}, rc = decoder_load_factors(m, g, e);
    for (int i = 0; !rc && i < p->n_layers; i++) {
        struct layer *y = &m->layers[i];
        char name[LOAD_NAME];
        rc = params_is_windowed(p, g, PERIOD, false, i, &y->windowed, e);
        y->full = true;
        y->group = y->windowed ? 0 : 1;
        y->shape = shape_of(m, y->windowed);
        y->shape.borrows = i >= p->n_layers - p->borrowing;
        y->shape.v_is_k = !y->shape.borrows &&
                          !gguf_tensor(g, load_name(name, i, "attn_v.weight")) &&
                          !gguf_tensor(g, load_name(name, i, "attn_qkv.weight"));
        if (!rc && y->shape.v_is_k && y->windowed)
            rc = err_set(e, ERR_MISMATCH,
                         "tensor %s is missing; the file is incomplete, since only full layers' "
                         "values are their keys",
                         load_name(name, i, "attn_v.weight"));
        if (!rc && y->shape.borrows && !count[y->group])
            rc = err_set(e, ERR_FORMAT,
                         "layer %d reads keys of an earlier layer of its kind, of which there is "
                         "none",
                         i);
        y->index = y->shape.borrows ? count[y->group] - 1 : count[y->group]++;
    }
    return rc;
}

static int load_norms(struct model *m, int i, struct err *e) {
    struct layer *y = &m->layers[i];
    char name[LOAD_NAME];
    const struct {
        const char *name;
        float **at;
    } norms[] = {{"attn_norm.weight", &y->mixer_norm},
                 {"post_attention_norm.weight", &y->mixer_out_norm},
                 {"ffn_norm.weight", &y->ffn_norm},
                 {"post_ffw_norm.weight", &y->ffn_out_norm}};
    int rc = 0;
    for (int k = 0; !rc && k < 4; k++)
        rc = load_floats(&m->load, load_name(name, i, norms[k].name), m->params.dim, 1, norms[k].at,
                         e);
    return rc;
}

// The router reads the stream normed by its own weights over the root of the width.
static int load_experts_of(struct model *m, int i, struct err *e) {
    const struct model_params *p = &m->params;
    struct layer *y = &m->layers[i];
    struct load *l = &m->load;
    char name[LOAD_NAME];
    const struct {
        const char *name;
        float **at;
    } norms[] = {{"pre_ffw_norm_2.weight", &y->moe_norms.in},
                 {"ffn_gate_inp.scale", &y->moe_norms.router},
                 {"post_ffw_norm_2.weight", &y->moe_norms.out},
                 {"post_ffw_norm_1.weight", &y->moe_norms.dense_out}};
    int rc = 0;
    l->own_scales = true;
    for (int k = 0; !rc && k < 4; k++)
        rc = load_floats(l, load_name(name, i, norms[k].name), p->dim, 1, norms[k].at, e);
    if (!rc)
        rc = moe_load(&y->moe, &p->moe, p->dim, l, i, e);
    l->own_scales = false;
    if (!rc && !l->dry)
        exec_ops(m->x)->scale(
            m->x, &(struct scale_args){y->moe_norms.router, p->dim, 1 / sqrtf((float)p->dim), 0});
    return rc;
}

static int load_layer(struct model *m, const struct gguf *g, int i, struct err *e) {
    const struct model_params *p = &m->params;
    struct layer *y = &m->layers[i];
    struct load *l = &m->load;
    struct ple_shape ple = ple_shape_of(p);
    char name[LOAD_NAME], key[PARAMS_KEY];
    float *scale = NULL;
    int64_t ffn;
    int rc = load_norms(m, i, e);
    if (!rc)
        rc = attention_load(&y->attention, &y->shape, l, i, e);
    if (!rc)
        rc = meta_of_layer(g, params_key(key, p->arch, "feed_forward_length"), p->n_layers, i,
                           PARAMS_MAX_WIDTH, &ffn, e);
    if (!rc)
        rc = mlp_load(&y->mlp, p->dim, ffn, l, i, e);
    y->mlp.activation = ACTIVATION_GELU_TANH;
    if (!rc && p->moe.experts)
        rc = load_experts_of(m, i, e);
    if (!rc && p->per_layer)
        rc = ple_layer_load(&y->ple, &ple, l, i, e);
    if (!rc && gguf_tensor(g, load_name(name, i, "layer_output_scale.weight")))
        rc = load_host_floats(l, name, 1, &scale, e);
    y->out_scale = scale ? *scale : 1;
    return rc;
}

int gemma_buffers(struct model *m, int64_t rows, struct err *e) {
    const struct model_params *p = &m->params;
    struct load *l = &m->load;
    struct ple_shape ple = ple_shape_of(p);
    int rc = decoder_buffers(m, rows, e);
    if (!rc)
        rc = load_buffer(l, rows * p->dim, &m->ws.apart, e);
    if (!rc && p->moe.experts)
        rc = load_buffer(l, rows * p->dim, &m->ws.experts_apart, e);
    if (!rc && p->moe.experts)
        rc = load_act(l, rows, p->dim, &m->ws.router, e);
    return rc || !p->per_layer ? rc : ple_buffers_load(&m->ws.ple, &ple, rows, l, e);
}

int gemma_load(struct model *m, const struct gguf *g, struct err *e) {
    const struct model_params *p = &m->params;
    struct ple_shape ple = ple_shape_of(p);
    int rc = decoder_begin(m, g, e);
    if (!rc && p->per_layer)
        rc = ple_load(&m->ple, &ple, p->vocab, &m->load, e);
    for (int i = 0; !rc && i < p->n_layers; i++)
        rc = load_layer(m, g, i, e);
    return rc;
}

// h += norm(apart).
static void join_normed(struct model *m, const float *norm, int64_t n) {
    exec_ops(m->x)->norm(m->x, &(struct norm_args){.in = m->ws.apart,
                                                   .w = norm,
                                                   .eps = m->params.eps,
                                                   .n = n,
                                                   .k = m->params.dim,
                                                   .out = m->ws.h,
                                                   .add = true});
}

// What the dense block has left apart is normed, and besides it come the experts, from the same
// stream.
static void run_experts(struct model *m, const struct layer *y, int64_t n) {
    const struct ops *ops = exec_ops(m->x);
    const struct workspace *w = &m->ws;
    int64_t dim = m->params.dim;
    float eps = m->params.eps;
    struct norm_args dense = {
        .in = w->apart, .w = y->moe_norms.dense_out, .eps = eps, .n = n, .k = dim, .out = w->apart};
    ops->norm(m->x, &dense);
    ops->norm_to_act(m->x, w->h, y->moe_norms.router, eps, n, dim, w->router);
    ops->norm_to_act(m->x, w->h, y->moe_norms.in, eps, n, dim, w->act_d);
    moe_run(m->x, &(struct moe_call){.ranks = &m->ranks,
                                     .shape = &m->params.moe,
                                     .block = &y->moe,
                                     .buf = &w->moe,
                                     .host = m->host,
                                     .in = w->act_d,
                                     .router_in = w->router,
                                     .h = w->h,
                                     .apart = w->experts_apart,
                                     .n = n,
                                     .dim = dim});
    struct norm_args experts = {.in = w->experts_apart,
                                .w = y->moe_norms.out,
                                .eps = eps,
                                .n = n,
                                .k = dim,
                                .out = w->apart,
                                .add = true};
    ops->norm(m->x, &experts);
}

void gemma_forward(struct model *m, const struct pass *p) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *q = &m->params;
    const struct workspace *w = &m->ws;
    struct ple_shape ple = ple_shape_of(q);
    int64_t n = p->rows.n, all = n * q->dim;
    struct ple_call own = {&m->ranks, &ple, &w->ple, w->h, w->act_d, w->apart, n};
    ops->scale(m->x, &(struct scale_args){w->h, all, q->embed_scale, 0});
    if (q->per_layer)
        ple_begin(m->x, &m->ple, &own, p->rows.token);
    for (int i = 0; i < q->n_layers; i++) {
        const struct layer *y = &m->layers[i];
        struct attention_call c = decoder_attention_call(m, p, y);
        c.apart = w->apart;
        ops->norm_to_act(m->x, w->h, y->mixer_norm, q->eps, n, q->dim, w->act_d);
        attention_run(m->x, &c);
        join_normed(m, y->mixer_out_norm, n);
        ops->norm_to_act(m->x, w->h, y->ffn_norm, q->eps, n, q->dim, w->act_d);
        mlp_run_apart(m->x, &m->ranks, &y->mlp, w->act_d, w->act_f, w->apart, n);
        if (q->moe.experts)
            run_experts(m, y, n);
        join_normed(m, y->ffn_out_norm, n);
        if (q->per_layer)
            ple_run(m->x, &y->ple, &own, i);
        if (y->out_scale != 1)
            ops->scale(m->x, &(struct scale_args){w->h, all, y->out_scale, 0});
        model_tap(m, i, n);
    }
}

const struct model_desc arch_gemma4 = {
    .arch = ARCH,
    .params = read_params,
    .place = place_layers,
    .load = gemma_load,
    .buffers = gemma_buffers,
    .forward = gemma_forward,
    .needs = {.activation = ACTIVATION_GELU_TANH, .norm = true, .scale = true, .activate = true}};
