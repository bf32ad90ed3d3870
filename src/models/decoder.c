// SPDX-License-Identifier: Apache-2.0
// See decoder.h. Layers of every kind go through here; what an architecture does otherwise (norms
// after its blocks, embeddings of each layer) is in its file.
#include "models/decoder.h"

#include <math.h>
#include <stdlib.h>

#include "base/num.h"

static bool is_latent(const struct model *m) {
    return m->params.mla.kv_lora > 0;
}

bool decoder_has_experts(const struct model_params *p, int i) {
    return p->moe.experts && i >= p->moe.lead;
}

// Of the layers that store keys and values themselves: those of one group are alike.
static int add_groups(struct model *m, struct err *e) {
    const struct model_params *p = &m->params;
    int rc = 0;
    for (; !rc && m->n_groups < SEQ_GROUPS; m->n_groups++) {
        struct model_group *g = &m->groups[m->n_groups];
        const struct layer *one = NULL;
        struct kv_shape kv = {.codec_k = m->options.codec_k, .codec_v = m->options.codec_v};
        for (int i = 0; i < p->n_layers; i++) {
            const struct layer *y = &m->layers[i];
            bool stores = y->full && y->group == m->n_groups && !y->shape.borrows;
            kv.n_layers += stores;
            one = stores ? y : one;
        }
        if (!one)
            break;
        kv.n_heads = one->shape.n_kv;
        kv.dk = kv.dv = one->shape.head_dim;
        if (is_latent(m))
            kv = mla_kv(&p->mla, kv.n_layers, kv.codec_k, kv.codec_v);
        rc = kv_layout_init(&g->layout, &kv, e);
        g->window = one->windowed ? p->window.width : 0;
    }
    return rc;
}

static int check_backend(struct model *m, struct err *e) {
    const struct model_params *p = &m->params;
    struct ops_needs needs = m->desc->needs;
    needs.experts = p->moe.experts > 0;
    needs.scale = needs.scale || p->moe.logit_cap > 0;
    int rc = exec_takes(m->x, &needs, e);
    for (int i = 0; !rc && i < p->n_layers; i++) {
        const struct layer *y = &m->layers[i];
        const struct model_group *g = &m->groups[y->group];
        struct attention_call call = {.shape = &y->shape,
                                      .layout = &g->layout,
                                      .mask = ATTEND_PATH,
                                      .window = g->window,
                                      .choice = g->window ? NULL : model_choice(m)};
        if (y->full)
            rc = is_latent(m) ? mla_check(m->x, &p->mla, &g->layout, call.choice, e)
                              : attention_check(m->x, &call, e);
    }
    return rc;
}

// The embeddings, the head, which is the same matrix in a tied model, and the norm before it.
static int load_ends(struct model *m, struct err *e) {
    const struct model_params *p = &m->params;
    int rc = load_weight(&m->load, "token_embd.weight", p->dim, p->vocab, &m->embed, e);
    m->head = m->embed;
    if (!rc && !p->tied)
        rc = load_weight(&m->load, "output.weight", p->dim, p->vocab, &m->head, e);
    return rc ? rc : load_floats(&m->load, "output_norm.weight", p->dim, 1, &m->out_norm, e);
}

int decoder_begin(struct model *m, const struct gguf *g, struct err *e) {
    int n = m->params.n_layers;
    m->layers = calloc((size_t)n, sizeof *m->layers);
    if (!m->layers)
        return err_set(e, ERR_MEMORY, "no memory for %d layers", n);
    int rc = m->desc->place(m, g, e);
    if (!rc)
        rc = add_groups(m, e);
    if (!rc)
        rc = check_backend(m, e);
    return rc ? rc : load_ends(m, e);
}

int decoder_load_block(struct load *l, const struct model *m, int i, struct layer *y,
                       struct err *e) {
    const struct model_params *p = &m->params;
    const char *ffn_norm = m->desc->ffn_norm ? m->desc->ffn_norm : "ffn_norm.weight";
    char name[LOAD_NAME];
    int rc = load_floats(l, load_name(name, i, "attn_norm.weight"), p->dim, 1, &y->mixer_norm, e);
    if (!rc)
        rc = load_floats(l, load_name(name, i, ffn_norm), p->dim, 1, &y->ffn_norm, e);
    if (!rc)
        rc = !y->full       ? deltanet_load(&y->deltanet, &p->gdn, p->dim, l, i, e)
             : is_latent(m) ? mla_load(&y->mla, &p->mla, l, i, e)
                            : attention_load(&y->attention, &y->shape, l, i, e);
    if (rc)
        return rc;
    return decoder_has_experts(p, i) ? moe_load(&y->moe, &p->moe, p->dim, l, i, e)
                                     : mlp_load(&y->mlp, p->dim, p->ffn, l, i, e);
}

int decoder_load(struct model *m, const struct gguf *g, struct err *e) {
    int rc = decoder_begin(m, g, e);
    for (int i = 0; !rc && i < m->params.n_layers; i++)
        rc = decoder_load_block(&m->load, m, i, &m->layers[i], e);
    return rc;
}

int decoder_load_factors(struct model *m, const struct gguf *g, struct err *e) {
    static const char name[] = "rope_freqs.weight";
    struct load *l = &m->load;
    int64_t n = m->params.rope.dims / 2;
    if (!gguf_tensor(g, name))
        return 0;
    int rc = load_host_floats(l, name, n, &m->rope_factors, e);
    for (int64_t i = 0; !rc && !l->dry && i < n; i++)
        if (!(m->rope_factors[i] > 0) || !isfinite(m->rope_factors[i]))
            rc = err_set(e, ERR_FORMAT,
                         "tensor %s divides rotary angle %lld by %g; positive numbers are needed",
                         name, (long long)i, (double)m->rope_factors[i]);
    return rc;
}

int decoder_buffers(struct model *m, int64_t rows, struct err *e) {
    const struct model_params *p = &m->params;
    struct load *l = &m->load;
    struct attention_shape wide = {.dim = p->dim}; // enough for every layer
    int rc = 0;
    for (int i = 0; i < p->n_layers; i++) {
        const struct attention_shape *s = &m->layers[i].shape;
        wide.n_heads = max_i32(wide.n_heads, s->n_heads);
        wide.n_kv = max_i32(wide.n_kv, s->n_kv);
        wide.head_dim = max_i32(wide.head_dim, s->head_dim);
        wide.gate_width = max_i32(wide.gate_width, s->gate_width);
        wide.gated |= s->gated;
    }
    if (is_latent(m))
        rc = mla_buffers_load(&m->ws.mla, &p->mla, rows, l, e);
    else if (p->n_full)
        rc = attention_buffers_load(&m->ws.attention, &wide, rows, l, e);
    if (!rc && p->n_full < p->n_layers)
        rc = deltanet_buffers_load(&m->ws.deltanet, &p->gdn, rows, l, e);
    return rc;
}

struct attention_shape decoder_attention_shape(const struct model_params *p) {
    return (struct attention_shape){.dim = p->dim,
                                    .n_heads = p->n_heads,
                                    .n_kv = p->n_kv,
                                    .head_dim = p->head_dim,
                                    .rope = p->rope,
                                    .eps = p->eps,
                                    .scale = p->attn_scale};
}

// What a layer attends over, right before it does.
static const struct kv_view *views_of(const struct model *m, const struct layer *y) {
    const struct model_group *g = &m->groups[y->group];
    return g->stream ? kv_stream_layer(g->stream, y->index) : g->views;
}

struct attention_call decoder_attention_call(const struct model *m, const struct pass *p,
                                             const struct layer *y) {
    const struct model_group *g = &m->groups[y->group];
    return (struct attention_call){
        .ranks = &m->ranks,
        .shape = &y->shape,
        .block = &y->attention,
        .buf = &m->ws.attention,
        .rows = &p->rows,
        .seen = g->window ? &p->rows : &p->seen,
        .layout = &g->layout,
        .layer = y->index,
        .store = g->store,
        .views = views_of(m, y),
        .mask = ATTEND_PATH,
        .window = g->window,
        .choice = g->window ? NULL : model_choice(m),
        .kept = model_pages_keep(m, y),
        .in = m->ws.act_d,
        .h = m->ws.h,
    };
}

static void run_latent(struct model *m, const struct pass *p, const struct layer *y) {
    const struct model_group *g = &m->groups[y->group];
    mla_run(m->x, &(struct mla_call){.ranks = &m->ranks,
                                     .shape = &m->params.mla,
                                     .block = &y->mla,
                                     .buf = &m->ws.mla,
                                     .rows = &p->rows,
                                     .seen = &p->seen,
                                     .layout = &g->layout,
                                     .layer = y->index,
                                     .store = g->store,
                                     .views = views_of(m, y),
                                     .choice = model_choice(m),
                                     .kept = model_pages_keep(m, y),
                                     .in = m->ws.act_d,
                                     .h = m->ws.h});
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

static void run_experts(struct model *m, const struct layer *y, int64_t n) {
    moe_run(m->x, &(struct moe_call){.ranks = &m->ranks,
                                     .shape = &m->params.moe,
                                     .block = &y->moe,
                                     .buf = &m->ws.moe,
                                     .host = m->host,
                                     .in = m->ws.act_d,
                                     .mid = m->ws.act_f,
                                     .h = m->ws.h,
                                     .n = n,
                                     .dim = m->params.dim});
}

void decoder_forward(struct model *m, const struct pass *p) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *q = &m->params;
    int64_t n = p->rows.n;
    for (int i = 0; i < q->n_layers; i++) {
        const struct layer *y = &m->layers[i];
        ops->norm_to_act(m->x, m->ws.h, y->mixer_norm, q->eps, n, q->dim, m->ws.act_d);
        if (!y->full) {
            run_deltanet(m, p, y);
        } else if (is_latent(m)) {
            run_latent(m, p, y);
        } else {
            struct attention_call c = decoder_attention_call(m, p, y);
            attention_run(m->x, &c);
        }
        ops->norm_to_act(m->x, m->ws.h, y->ffn_norm, q->eps, n, q->dim, m->ws.act_d);
        if (decoder_has_experts(q, i))
            run_experts(m, y, n);
        else
            mlp_run(m->x, &m->ranks, &y->mlp, m->ws.act_d, m->ws.act_f, m->ws.h, n);
        model_tap(m, i, n);
    }
}
