// SPDX-License-Identifier: Apache-2.0
// The model scorer: loading, and the pass over a text, layer by layer.
#include "compress/score/score.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "compress/score/impl.h"

struct score_options score_options_default(void) {
    return (struct score_options){
        .chunk = SCORE_CHUNK, .sparse = SPARSE_OPTIONS_QWEN3, .codec = KV_F16};
}

int score_options_check(const struct score_options *o, struct err *e) {
    if (o->layers < 0 || o->last < 0)
        return err_set(e, ERR_USAGE, "numbers of layers cannot be negative");
    if (o->keep < 0)
        return err_set(e, ERR_USAGE, "memory for what a scorer keeps cannot be negative");
    if (o->chunk < 0 || o->chunk % SPARSE_BLOCK || o->chunk > 1 << 16)
        return err_set(e, ERR_USAGE, "a scorer's chunk of %d rows is no multiple of %d up to 65536",
                       o->chunk, SPARSE_BLOCK);
    int rc = kv_codec_check(o->codec, e);
    return rc ? rc : sparse_options_check(&o->sparse, e);
}

static const struct tensor *find_tensor(const void *arg, const char *name) {
    return gguf_tensor(arg, name);
}

static void done_tensor(const void *arg, const struct tensor *t) {
    gguf_release(arg, t);
}

static int check_arch(const struct gguf *g, struct err *e) {
    const char *s;
    size_t n;
    int rc = gguf_get_str(g, "general.architecture", &s, &n, e);
    if (rc || (s && n == 5 && !memcmp(s, "qwen3", n)))
        return rc;
    return err_set(e, ERR_UNSUPPORTED,
                   "it is of architecture %.*s, but a scorer is a qwen3 model; use a small "
                   "Qwen3 such as the 0.6B",
                   s ? (int)(n < 64 ? n : 64) : 4, s ? s : "none");
}

static struct attention_shape shape_of(const struct model_params *p) {
    return (struct attention_shape){.dim = p->dim,
                                    .n_heads = p->n_heads,
                                    .n_kv = p->n_kv,
                                    .head_dim = p->head_dim,
                                    .rope = p->rope,
                                    .eps = p->eps,
                                    .scale = p->attn_scale};
}

// Of the last layer that is run only what its score needs.
static int load_last(struct model_scorer *s, struct score_layer *y, int i, struct err *e) {
    const struct model_params *p = &s->p;
    struct load *l = &s->load;
    struct attention_block *b = &y->attention;
    int64_t q = (int64_t)p->n_heads * p->head_dim, kv = (int64_t)p->n_kv * p->head_dim;
    char name[LOAD_NAME];
    const char *fused = load_name(name, i, "attn_qkv.weight");
    if (l->find(l->arg, fused)) {
        const struct load_rows parts[2] = {{q + 2 * kv, 0, q}, {q + 2 * kv, q, kv}};
        int rc = load_weight_rows(l, fused, p->dim, &parts[0], &b->wq, e);
        if (!rc)
            rc = load_weight_rows(l, fused, p->dim, &parts[1], &b->wk, e);
        if (rc)
            return rc;
    } else {
        int rc = load_weight(l, load_name(name, i, "attn_q.weight"), p->dim, q, &b->wq, e);
        if (!rc)
            rc = load_weight(l, load_name(name, i, "attn_k.weight"), p->dim, kv, &b->wk, e);
        if (rc)
            return rc;
    }
    int rc =
        load_floats(l, load_name(name, i, "attn_q_norm.weight"), p->head_dim, 1, &b->q_norm, e);
    return rc ? rc
              : load_floats(l, load_name(name, i, "attn_k_norm.weight"), p->head_dim, 1, &b->k_norm,
                            e);
}

static int load_layers(struct model_scorer *s, struct err *e) {
    const struct model_params *p = &s->p;
    const struct attention_shape shape = shape_of(p);
    struct load *l = &s->load;
    char name[LOAD_NAME];
    int rc = 0;
    for (int i = 0; i < s->o.layers && !rc; i++) {
        struct score_layer *y = &s->layers[i];
        rc = load_floats(l, load_name(name, i, "attn_norm.weight"), p->dim, 1, &y->attn_norm, e);
        if (!rc && i == s->o.layers - 1)
            return load_last(s, y, i, e);
        if (!rc)
            rc = attention_load(&y->attention, &shape, l, i, e);
        if (!rc)
            rc = load_floats(l, load_name(name, i, "ffn_norm.weight"), p->dim, 1, &y->ffn_norm, e);
        if (!rc)
            rc = mlp_load(&y->mlp, p->dim, p->ffn, l, i, e);
    }
    return rc;
}

static int load_chunk(struct model_scorer *s, struct err *e) {
    const struct model_params *p = &s->p;
    struct score_chunk *c = &s->c;
    struct load *l = &s->load;
    int64_t n = s->o.chunk, q = (int64_t)p->n_heads * p->head_dim;
    int rc = load_buffer(l, n * q, &c->q, e);
    if (!rc)
        rc = load_buffer(l, n * p->n_kv * p->head_dim, &c->v, e);
    if (!rc)
        rc = load_buffer(l, n * q, &c->q_rot, e);
    if (!rc)
        rc = load_buffer(l, SCORE_QUERIES * q, &c->query, e);
    if (!rc)
        rc = load_act(l, n, p->dim, &c->in, e);
    if (!rc)
        rc = load_act(l, n, q, &c->attn, e);
    return rc ? rc : load_act(l, n, p->ffn, &c->mid, e);
}

static int check_backend(const struct model_scorer *s, struct err *e) {
    const struct ops *ops = exec_ops(s->x);
    if (!ops->key_mass)
        return err_set(e, ERR_UNSUPPORTED, "%s has no op that scores prompts; use --device cpu",
                       exec_label(s->x));
    if (!s->o.dense && !ops->sparse_attend)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has no block-sparse attention; score with dense attention",
                       exec_label(s->x));
    return 0;
}

// Checks and counts, or loads, with the options' zeros filled in.
static int build(struct model_scorer *s, const struct gguf *g, const struct score_options *o,
                 bool dry, struct err *e) {
    struct model_plan plan;
    const struct model_options options = model_options_default();
    s->o = *o;
    s->load =
        (struct load){.x = s->x, .find = find_tensor, .done = done_tensor, .arg = g, .dry = dry};
    int rc = score_options_check(o, e);
    if (!rc)
        rc = check_arch(g, e);
    if (!rc)
        rc = model_plan(&plan, &s->p, NULL, g, &options, e);
    if (rc)
        return rc;
    s->o.chunk = o->chunk ? o->chunk : SCORE_CHUNK;
    s->o.layers = o->layers && o->layers < s->p.n_layers ? o->layers : s->p.n_layers;
    s->o.last = o->last && o->last < s->o.layers ? o->last : s->o.layers;
    s->embed = gguf_tensor(g, "token_embd.weight");
    const struct kv_shape kv = {1,     s->p.n_kv,  s->p.head_dim, s->p.head_dim,
                                false, s->o.codec, s->o.codec};
    rc = kv_layout_init(&s->layout, &kv, e);
    s->layers = rc ? NULL : calloc((size_t)s->o.layers, sizeof *s->layers);
    if (!rc && !s->layers)
        rc = err_set(e, ERR_MEMORY, "no memory for %d layers of a scorer", s->o.layers);
    return rc ? rc : load_layers(s, e);
}

static void score_destroy(struct scorer *base) {
    struct model_scorer *s = (struct model_scorer *)base;
    if (s->x)
        score_release(s);
    score_kept_fini(&s->kept);
    load_fini(&s->load);
    free(s->layers);
    free(s->parent);
    free(s->seq);
    score_embed_close(&s->embedding);
    free(s);
}

int score_plan_of(struct score_plan *p, const struct exec *x, const struct gguf *g,
                  const struct score_options *o, int64_t n, struct err *e) {
    struct model_scorer *s = calloc(1, sizeof *s);
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a scorer's plan");
    s->x = (struct exec *)x; // a dry load only asks it for sizes
    int rc = build(s, g, o, true, e);
    if (!rc) {
        *p = score_plan_shape(&s->p, x, &s->o, n, s->load.weight_bytes);
        p->chunk += s->load.buffer_bytes;
        p->total += s->load.buffer_bytes;
        const struct exec_limits l = score_limits(s, round_up(n, s->o.chunk));
        p->own = x ? exec_own_bytes(x, &l) : 0;
    }
    score_destroy(&s->base);
    return rc;
}

int64_t score_known(const struct scorer *s) {
    return ((const struct model_scorer *)s)->known;
}

int64_t score_held(const struct scorer *s) {
    return score_kept_bytes(&((const struct model_scorer *)s)->kept);
}

static int host_memory(struct model_scorer *s, struct err *e) {
    size_t n = (size_t)s->o.chunk;
    s->parent = calloc(n, sizeof *s->parent);
    s->seq = calloc(n, sizeof *s->seq);
    if (!s->parent || !s->seq)
        return err_set(e, ERR_MEMORY, "no memory for chunks of %zu rows", n);
    for (int i = 0; i < s->o.chunk; i++)
        s->parent[i] = i - 1;
    return score_embed_open(&s->embedding, s->x, s->embed, s->o.chunk, e);
}

// A chunk of rows of the text.
struct span {
    int64_t first, n;
};

static void attend_dense(struct model_scorer *s, const struct span *at) {
    const struct model_params *p = &s->p;
    const struct ops *ops = exec_ops(s->x);
    struct attend_args a = {
        .shape = {.n_heads = p->n_heads,
                  .n_kv = p->n_kv,
                  .dk = p->head_dim,
                  .dv = p->head_dim,
                  .scale = p->attn_scale,
                  .mask = ATTEND_PATH},
        .layout = &s->layout,
        .q = s->c.q_rot,
        .store = s->t.slots + at->first,
        .out = s->c.attn,
    };
    const struct kv_view view = {s->t.page_of, at->first};
    const struct rows r = {at->n, NULL, s->parent, s->seq, s->t.pos + at->first, exec_pass(s->x)};
    a.seqs = &view;
    ops->attend(s->x, &a, &r);
}

static void attend_sparse(struct model_scorer *s, const struct span *at, int64_t total) {
    const struct model_params *p = &s->p;
    const struct ops *ops = exec_ops(s->x);
    const struct sparse_args a = {
        .n_heads = p->n_heads,
        .n_kv = p->n_kv,
        .d = p->head_dim,
        .scale = p->attn_scale,
        .opt = s->o.sparse,
        .first = at->first,
        .n = at->n,
        .total = total,
        .q = s->c.q_rot,
        .k = sparse_rows_paged(&s->layout, &s->layout.k, 0, s->t.page_of, NULL),
        .v = sparse_rows_paged(&s->layout, &s->layout.v, 0, s->t.page_of, NULL),
        .means = s->t.means,
        .mass = s->t.blocks,
        .count = s->t.count,
        .list = s->t.list,
        .out = s->c.attn,
    };
    ops->sparse_means(s->x, &a);
    ops->sparse_select(s->x, &a);
    ops->sparse_attend(s->x, &a);
}

// Keys of a chunk, and unless it is the last layer all that follows from them.
static void run_chunk(struct model_scorer *s, const struct score_layer *y, const struct span *at,
                      int64_t total, bool last) {
    const struct model_params *p = &s->p;
    const struct ops *ops = exec_ops(s->x);
    float *h = s->t.h + at->first * p->dim;
    float *k = s->t.k + at->first * p->n_kv * p->head_dim;
    struct linear_job in[3] = {{.w = y->attention.wk, .out = k},
                               {.w = y->attention.wq, .out = s->c.q},
                               {.w = y->attention.wv, .out = s->c.v}};
    ops->norm_to_act(s->x, h, y->attn_norm, p->eps, at->n, p->dim, s->c.in);
    ops->linear(s->x, in, last ? 1 : 3, s->c.in, at->n);
    if (last)
        return;
    const struct qk_args qk = {
        .n_heads = p->n_heads,
        .n_kv = p->n_kv,
        .dk = p->head_dim,
        .dv = p->head_dim,
        .rope = p->rope,
        .eps = p->eps,
        .q_norm = y->attention.q_norm,
        .k_norm = y->attention.k_norm,
        .q = s->c.q,
        .q_stride = p->head_dim,
        .k = k,
        .v = s->c.v,
        .layout = &s->layout,
        .store = s->t.slots + at->first,
        .q_out = s->c.q_rot,
    };
    const struct rows r = {at->n, NULL, s->parent, s->seq, s->t.pos + at->first, exec_pass(s->x)};
    ops->qk_norm_rope_store(s->x, &qk, &r);
    if (s->o.dense)
        attend_dense(s, at);
    else
        attend_sparse(s, at, total);
    linear_reduce(&ranks_one, s->x, y->attention.wo, NULL, s->c.attn, at->n, h);
    ops->norm_to_act(s->x, h, y->ffn_norm, p->eps, at->n, p->dim, s->c.in);
    mlp_run(s->x, &ranks_one, &y->mlp, s->c.in, s->c.mid, h, at->n);
}

// The queries' projections, from the residual stream before the layer.
static void make_queries(struct model_scorer *s, const struct score_layer *y, int64_t first,
                         int64_t n) {
    const struct ops *ops = exec_ops(s->x);
    const struct linear_job job = {.w = y->attention.wq, .out = s->c.query};
    ops->norm_to_act(s->x, s->t.h + first * s->p.dim, y->attn_norm, s->p.eps, n, s->p.dim, s->c.in);
    ops->linear(s->x, &job, 1, s->c.in, n);
}

static void score_layer(struct model_scorer *s, const struct score_layer *y, int64_t n_q,
                        int64_t n) {
    const struct model_params *p = &s->p;
    const struct key_mass_args a = {
        .n_heads = p->n_heads,
        .n_kv = p->n_kv,
        .d = p->head_dim,
        .scale = p->attn_scale,
        .eps = p->eps,
        .q_norm = y->attention.q_norm,
        .k_norm = y->attention.k_norm,
        .n_q = n_q,
        .n = n,
        .q = s->c.query,
        .k = s->t.k,
        .work = s->t.work,
        .mass = s->t.mass,
    };
    exec_ops(s->x)->key_mass(s->x, &a);
}

// Embeddings of rows of the text from `first` on.
static void embed(struct model_scorer *s, const int32_t *ids, int64_t first, int64_t n) {
    score_embed(&s->embedding, ids + first, n, s->t.h + first * s->p.dim);
}

static void run_layers(struct model_scorer *s, const int32_t *ids, int64_t n_q, int64_t n,
                       const struct score_reuse *u) {
    int64_t first = u->known * SPARSE_BLOCK, step = s->o.dense ? SCORE_DENSE_ROWS : s->o.chunk;
    if (step > s->o.chunk)
        step = s->o.chunk;
    score_embed_begin(&s->embedding);
    embed(s, ids, n - n_q, n_q); // the others come chunk by chunk
    for (int i = 0; i < s->o.layers; i++) {
        const struct score_layer *y = &s->layers[i];
        bool scored = i >= s->o.layers - s->o.last, last = i == s->o.layers - 1;
        if (scored)
            make_queries(s, y, n - n_q, n_q);
        score_reuse_layer(s, u, i);
        for (int64_t at = first; at < n; at += step) {
            const struct span c = {at, n - at < step ? n - at : step};
            if (i == 0)
                embed(s, ids, at, min_i64(at + c.n, n - n_q) - at);
            run_chunk(s, y, &c, n, last);
        }
        if (scored)
            score_layer(s, y, n_q, n);
        score_reuse_take(s, u, i);
    }
}

static int check_call(const struct model_scorer *s, const struct score_call *c, struct err *e) {
    int64_t n_q = c->n - c->query;
    if (c->query < 0 || n_q < 1 || n_q > SCORE_QUERIES)
        return err_set(e, ERR_USAGE, "a scorer takes 1 to %d queries at the end of %lld tokens",
                       SCORE_QUERIES, (long long)c->n);
    for (int64_t i = 0; i < c->n; i++)
        if (c->ids[i] < 0 || c->ids[i] >= s->p.vocab)
            return err_set(e, ERR_MISMATCH,
                           "token %lld is %d, but the scorer has %lld; its file's tokenizer and "
                           "embeddings disagree",
                           (long long)i, (int)c->ids[i], (long long)s->p.vocab);
    return 0;
}

// out[i] = the mean over the queries of mass[t][i]; row by row, since a column lies far apart.
static void take_means(const float *mass, int64_t n_q, int64_t n, float *out) {
    enum { AT_ONCE = 512 };
    for (int64_t from = 0; from < n; from += AT_ONCE) {
        double sum[AT_ONCE] = {0};
        int64_t count = min_i64(n - from, AT_ONCE);
        for (int64_t t = 0; t < n_q; t++)
            for (int64_t i = 0; i < count; i++)
                sum[i] += (double)mass[t * n + from + i];
        for (int64_t i = 0; i < count; i++)
            out[from + i] = (float)(sum[i] / (double)n_q);
    }
}

static void score_rest(struct scorer *base) {
    struct model_scorer *s = (struct model_scorer *)base;
    score_release(s);
    exec_trim(s->x);
}

static int score_text(struct scorer *base, const struct score_call *c, struct err *e) {
    struct model_scorer *s = (struct model_scorer *)base;
    const struct ops *ops = exec_ops(s->x);
    int64_t n_q = c->n - c->query;
    int rc = check_call(s, c, e);
    if (!rc)
        rc = score_reserve(s, c->n, e);
    if (rc)
        return rc;
    size_t bytes = (size_t)(n_q * c->n) * sizeof(float);
    ops->zero(s->x, s->t.mass, bytes);
    struct score_reuse u = score_reuse_begin(s, c);
    run_layers(s, c->ids, n_q, c->n, &u);
    ops->download(s->x, s->host, s->t.mass, bytes);
    rc = exec_status(s->x, e);
    if (rc && u.text) // which may hold anything
        score_kept_drop(&s->kept, u.text);
    if (!rc)
        take_means(s->host, n_q, c->n, c->out);
    return rc;
}

static int prepare(struct exec *x, const struct gguf *g, const struct score_options *o,
                   struct err *e) {
    struct score_plan plan;
    int rc = score_plan_of(&plan, x, g, o, 0, e);
    if (!rc)
        load_make_room(x, plan.weights);
    gguf_stream(g);
    return rc;
}

int score_open(struct scorer **out, struct exec *x, const struct gguf *g,
               const struct score_options *o, struct err *e) {
    static const struct scorer_kind kind = {score_text, score_destroy, score_rest};
    struct model_scorer *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return err_set(e, ERR_MEMORY, "no memory for a scorer");
    s->base.kind = &kind;
    s->x = x;
    int rc = exec_is_device(x) ? prepare(x, g, o, e) : 0;
    if (!rc)
        rc = build(s, g, o, false, e);
    if (!rc)
        rc = check_backend(s, e);
    if (!rc)
        rc = load_chunk(s, e);
    if (!rc)
        rc = host_memory(s, e);
    if (!rc)
        rc = exec_status(x, e);
    if (rc)
        score_destroy(&s->base);
    else
        *out = &s->base;
    return rc;
}
