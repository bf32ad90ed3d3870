// SPDX-License-Identifier: Apache-2.0
// The model scorer: its memory, loading, and the pass over a text, layer by layer.
#include "compress/score/score.h"

#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "base/pool.h"
#include "compress/score/kept.h"
#include "formats/quant/quant.h"
#include "models/blocks/attention.h"
#include "models/blocks/feed_forward.h"
#include "models/decoder.h"
#include "ops/copier.h"

// Rows that dense attention takes at a time: keys of earlier rows are then read by the page.
enum { SCORE_DENSE_ROWS = 256 };

struct score_layer {
    float *attn_norm, *ffn_norm;
    struct attention_block attention; // of the last one only wq, wk and the norms
    struct mlp_block mlp;
};

// Of one chunk of rows.
struct score_chunk {
    float *q, *v, *q_rot; // [C][heads][d], [C][kv][d], [C][heads][d]
    float *query;         // [SCORE_QUERIES][heads][d]
    struct act *in, *attn, *mid;
};

// Of one text; grows.
struct score_text {
    int64_t cap;             // tokens
    float *h, *k;            // [cap][D], [cap][kv][d]
    float *mass, *work;      // [SCORE_QUERIES][cap]
    unsigned char *pages;    // [cap / KV_PAGE]
    float *means, *blocks;   // see struct sparse_args
    int32_t *count, *list;   // likewise
    int64_t *pos;            // host [cap]
    struct kv_slot *slots;   // host [cap]
    unsigned char **page_of; // host [cap / KV_PAGE]
};

// Embeddings on their way to the device . Zeroed is closed.
struct score_embed {
    struct exec *x;
    const struct tensor *table;
    struct pool *pool; // NULL: the caller's thread alone
    struct copier *copier;
    float *rows[2]; // host [chunk][D], used in turn
    uint64_t ticket[2];
    int turn;
    const int32_t *ids;
};

struct model_scorer {
    struct scorer base;
    struct exec *x;
    struct model_params p;
    struct score_options o;
    struct load load;
    struct kv_layout layout;
    const struct tensor *embed;
    struct score_layer *layers; // [o.layers]
    struct score_chunk c;
    struct score_text t;
    int32_t *parent, *seq; // host [chunk]: a chain of one sequence
    float *host;           // host [SCORE_QUERIES][cap]
    struct score_embed embedding;
    struct score_kept kept;
    int64_t known; // tokens of the last text that were kept
};

// Of one text: what is known of it, and what is to be kept; both in whole blocks.
struct score_reuse {
    struct score_kept_text *text; // NULL: nothing is kept
    int64_t known, blocks;
};

// Embeddings of a text, which are looked up on the host: a table of all tokens would be as large
// there as many layers. They go to the device in two buffers in turn, so that rows are made and
// copied while the first layer runs over those before them.

enum {
    GRAIN = 64,
    THREADS = 16
}; // rows of a piece of work; most threads concurrently with a device

static void make_rows(void *arg, int64_t begin, int64_t end, int worker) {
    const struct score_embed *m = arg;
    const struct quant_format *f = quant_format(m->table->type);
    int64_t d = m->table->ne[0], row = quant_row_bytes(f, d);
    (void)worker;
    for (int64_t i = begin; i < end; i++)
        f->dequantize((const char *)m->table->data + m->ids[i] * row, m->rows[m->turn] + i * d, d);
}

// For up to that many rows at a time.
static int score_embed_open(struct score_embed *m, struct exec *x, const struct tensor *table,
                            int64_t rows, struct err *e) {
    int rc = 0;
    m->x = x;
    m->table = table;
    for (int i = 0; i < 2 && !rc; i++) {
        m->rows[i] = exec_host_alloc(x, (size_t)(rows * table->ne[0]) * sizeof(float));
        if (!m->rows[i])
            rc = err_set(e, ERR_MEMORY, "no memory for chunks of %lld rows", (long long)rows);
    }
    if (!rc)
        rc = copier_create(&m->copier, x, e);
    if (!rc && exec_is_device(x)) {
        rc = pool_create(&m->pool, 0, e);
        if (!rc && pool_threads(m->pool) > THREADS) {
            pool_destroy(m->pool);
            m->pool = NULL;
            rc = pool_create(&m->pool, THREADS, e);
        }
    }
    return rc;
}

static void score_embed_close(struct score_embed *m) {
    pool_destroy(m->pool);
    copier_destroy(m->copier);
    for (int i = 0; i < 2 && m->x; i++)
        exec_host_free(m->x, m->rows[i]);
}

// Before a text's embeddings: what is queued by now may still use, or clear, where they go.
static void score_embed_begin(struct score_embed *m) {
    copier_after_compute(m->copier);
}

// out[n][D] = embeddings, for ops that are queued from now on; nothing that was queued since
// score_embed_begin may use out.
static void score_embed(struct score_embed *m, const int32_t *ids, int64_t n, float *out) {
    if (n <= 0)
        return;
    struct err e; // a copy that fails leaves a fault of the device
    m->turn ^= 1;
    m->ids = ids;
    copier_wait(m->copier, m->ticket[m->turn], &e);
    if (m->pool)
        pool_run(m->pool, n, GRAIN, make_rows, m);
    else
        make_rows(m, 0, n, 0);
    m->ticket[m->turn] = copier_to_device(m->copier, out, m->rows[m->turn],
                                          (size_t)(n * m->table->ne[0]) * sizeof(float));
    copier_before_compute(m->copier, m->ticket[m->turn]);
}

// The scorer's memory: counted for a plan, and taken for a text.

// A text's tokens are counted in 32 bits, and a scorer's positions beyond that mean nothing.
enum { TOKENS_MAX = 1 << 24 };

static int64_t chunk_of(const struct score_options *o) {
    return o->chunk ? o->chunk : SCORE_CHUNK;
}

static int64_t act_bytes(const struct exec *x, int64_t n, int64_t k) {
    return x ? exec_act_bytes(x, n, k) : 2 * n * k;
}

static int64_t page_bytes(const struct model_params *m, const struct score_options *o) {
    return 2 * KV_PAGE * m->n_kv * kv_codec_bytes(o->codec, m->head_dim);
}

struct score_plan score_plan_shape(const struct model_params *m, const struct exec *x,
                                   const struct score_options *o, int64_t n, int64_t weights) {
    int64_t c = chunk_of(o), d = m->head_dim, q = m->n_heads * d, kv = m->n_kv * d, f = 4;
    n = round_up(n, c); // as it is taken
    int64_t pages = ceil_div(n, KV_PAGE), blocks = sparse_blocks(n), own = c / SPARSE_BLOCK;
    struct score_plan p = {
        .weights = weights,
        .hidden = n * m->dim * f,
        .keys = n * kv * f,
        .pages = pages * page_bytes(m, o),
        .chunk = (2 * c * q + c * kv + SCORE_QUERIES * q) * f + act_bytes(x, c, m->dim) +
                 act_bytes(x, c, q) + act_bytes(x, c, m->ffn),
        .blocks = o->dense ? 0 : blocks * kv * f + own * m->n_heads * (2 * blocks + 1) * f,
        .mass = 2 * SCORE_QUERIES * n * f,
    };
    p.total = p.weights + p.hidden + p.keys + p.pages + p.chunk + p.blocks + p.mass;
    return p;
}

static void score_release(struct model_scorer *s) {
    const struct ops *ops = exec_ops(s->x);
    struct score_text *t = &s->t;
    void *const device[] = {t->h,     t->k,      t->mass,  t->work, t->pages,
                            t->means, t->blocks, t->count, t->list};
    for (size_t i = 0; i < sizeof device / sizeof *device; i++)
        if (device[i])
            ops->free(s->x, device[i]);
    free(t->pos);
    free(t->slots);
    free(t->page_of);
    exec_host_free(s->x, s->host);
    s->host = NULL;
    *t = (struct score_text){0};
}

static bool take_device(struct model_scorer *s, int64_t n) {
    const struct model_params *m = &s->p;
    struct score_text *t = &s->t;
    int64_t kv = m->n_kv * m->head_dim, f = 4, pages = ceil_div(n, KV_PAGE);
    int64_t blocks = sparse_blocks(n), own = chunk_of(&s->o) / SPARSE_BLOCK * m->n_heads;
    struct {
        void **at;
        int64_t bytes;
    } all[] = {
        {(void **)&t->h, n * m->dim * f},
        {(void **)&t->k, n * kv * f},
        {(void **)&t->mass, SCORE_QUERIES * n * f},
        {(void **)&t->work, SCORE_QUERIES * n * f},
        {(void **)&t->pages, pages * s->layout.page_bytes},
        {(void **)&t->means, s->o.dense ? 0 : blocks * kv * f},
        {(void **)&t->blocks, s->o.dense ? 0 : own * blocks * f},
        {(void **)&t->count, s->o.dense ? 0 : own * f},
        {(void **)&t->list, s->o.dense ? 0 : own * blocks * f},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (!all[i].bytes)
            continue;
        *all[i].at = exec_alloc(s->x, ARENA_WORK, (size_t)all[i].bytes);
        if (!*all[i].at)
            return false;
    }
    return true;
}

static bool take_host(struct model_scorer *s, int64_t n) {
    struct score_text *t = &s->t;
    int64_t pages = ceil_div(n, KV_PAGE);
    t->pos = calloc((size_t)n, sizeof *t->pos);
    t->slots = calloc((size_t)n, sizeof *t->slots);
    t->page_of = calloc((size_t)pages, sizeof *t->page_of);
    s->host = exec_host_alloc(s->x, (size_t)(SCORE_QUERIES * n) * sizeof *s->host);
    if (!t->pos || !t->slots || !t->page_of || !s->host)
        return false;
    for (int64_t i = 0; i < pages; i++)
        t->page_of[i] = t->pages + i * s->layout.page_bytes;
    for (int64_t i = 0; i < n; i++) {
        t->pos[i] = i;
        t->slots[i] = (struct kv_slot){t->page_of[i / KV_PAGE], (int32_t)(i % KV_PAGE)};
    }
    return true;
}

// The needs of a text of n tokens.
static struct exec_limits score_limits(const struct model_scorer *s, int64_t n) {
    struct exec_limits l = {.rows = s->o.chunk,
                            .seqs = 1,
                            .context = n,
                            .n_heads = s->p.n_heads,
                            .head_dim = s->p.head_dim};
    exec_limits_join(&l, &s->load.limits);
    return l;
}

// Memory for a text of n tokens, which stays for the next ones. ERR_MEMORY, ERR_LIMIT.
static int score_reserve(struct model_scorer *s, int64_t n, struct err *e) {
    if (n > TOKENS_MAX)
        return err_set(e, ERR_LIMIT, "the text has %lld tokens for the scorer; at most %d are read",
                       (long long)n, TOKENS_MAX);
    if (n <= s->t.cap)
        return 0;
    score_release(s);
    exec_trim(s->x); // what was too small for this text is of no use to it
    n = round_up(n, s->o.chunk);
    const struct exec_limits l = score_limits(s, n);
    int rc = exec_reserve(s->x, &l, e);
    if (rc)
        return rc;
    if (!take_device(s, n) || !take_host(s, n)) {
        struct score_plan p = score_plan_shape(&s->p, s->x, &s->o, n, s->load.weight_bytes);
        score_release(s);
        return err_set(e, ERR_MEMORY,
                       "no memory to score %lld tokens, which takes %.2f GB besides the scorer's "
                       "%.2f GB of weights",
                       (long long)n, (double)(p.total - p.weights) / 1e9, (double)p.weights / 1e9);
    }
    s->t.cap = n;
    return 0;
}

// What a text has in common with texts before it is not computed again: the scorer's side of
// kept.h. What the attention of the last layer would need is not kept, since it is never run.
// A block of 128 tokens gives the same in every text that begins with the tokens up to its end, but
// for the last blocks of a text, which see everything (struct sparse_options): those are neither
// kept nor taken.

static void set_kept_shape(struct model_scorer *s) {
    struct score_kept *k = &s->kept;
    size_t row = (size_t)(s->p.n_kv * s->p.head_dim) * sizeof(float);
    k->layers = s->o.layers;
    k->limit = s->o.keep;
    k->bytes[SCORE_KEPT_KEYS] = row * SPARSE_BLOCK;
    k->bytes[SCORE_KEPT_PAGES] = SPARSE_BLOCK / KV_PAGE * (size_t)s->layout.page_bytes;
    k->bytes[SCORE_KEPT_MEANS] = s->o.dense ? 0 : row;
}

// Whole blocks at the begin of a text of n tokens that what follows them cannot change.
static int64_t lasting_blocks(const struct model_scorer *s, int64_t n) {
    bool all = s->o.dense || s->o.sparse.density > 0; // no block is special
    int64_t whole = n / SPARSE_BLOCK;
    return all ? whole : min_i64(whole, max_i64(sparse_blocks(n) - s->o.sparse.last_full, 0));
}

// Looks for what is known of a text, and makes room for what will be.
static struct score_reuse score_reuse_begin(struct model_scorer *s, const struct score_call *c) {
    struct score_reuse u = {0};
    s->known = 0;
    if (s->o.keep <= 0)
        return u;
    set_kept_shape(s);
    int64_t blocks = lasting_blocks(s, c->n), max = min_i64(blocks, c->query / SPARSE_BLOCK);
    struct score_kept_text *from = score_kept_find(&s->kept, c->ids, c->n, max, &u.known);
    u.text = blocks ? score_kept_room(&s->kept, from, u.known, c->ids, blocks) : NULL;
    if (!u.text)
        return (struct score_reuse){0};
    u.blocks = u.text->blocks;
    s->known = u.known * SPARSE_BLOCK;
    return u;
}

// Where the blocks of a part lie on the device.
static unsigned char *kept_on_device(const struct model_scorer *s, enum score_kept_part part,
                                     int64_t block) {
    unsigned char *const at[SCORE_KEPT_PARTS] = {[SCORE_KEPT_KEYS] = (unsigned char *)s->t.k,
                                                 [SCORE_KEPT_PAGES] = s->t.pages,
                                                 [SCORE_KEPT_MEANS] = (unsigned char *)s->t.means};
    return at[part] + (size_t)block * s->kept.bytes[part];
}

// Puts a layer's known blocks where they are read; takes those that are new.
static void score_reuse_layer(struct model_scorer *s, const struct score_reuse *u, int layer) {
    for (int i = 0; i < SCORE_KEPT_PARTS && u->known; i++) {
        enum score_kept_part part = (enum score_kept_part)i;
        size_t bytes = score_kept_part(&s->kept, layer, part);
        if (bytes)
            exec_ops(s->x)->upload(s->x, kept_on_device(s, part, 0),
                                   score_kept_at(&s->kept, u->text, layer, part, 0),
                                   (size_t)u->known * bytes);
    }
}

static void score_reuse_take(struct model_scorer *s, const struct score_reuse *u, int layer) {
    for (int i = 0; i < SCORE_KEPT_PARTS && u->blocks > u->known; i++) {
        enum score_kept_part part = (enum score_kept_part)i;
        size_t bytes = score_kept_part(&s->kept, layer, part);
        if (bytes)
            exec_ops(s->x)->download(s->x, score_kept_at(&s->kept, u->text, layer, part, u->known),
                                     kept_on_device(s, part, u->known),
                                     (size_t)(u->blocks - u->known) * bytes);
    }
}

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
    int rc = sparse_codec_check(o->codec, e);
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
    const struct attention_shape shape = decoder_attention_shape(p);
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
static int build_scorer(struct model_scorer *s, const struct gguf *g, const struct score_options *o,
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
    s->x = (struct exec *)x; // a dry load only gets sizes from it
    int rc = build_scorer(s, g, o, true, e);
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
    const struct linear_job out = {.w = y->attention.wo, .out = h, .add = true};
    linear_reduce(&ranks_one, s->x, &out, s->c.attn, at->n);
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
static void embed_rows(struct model_scorer *s, const int32_t *ids, int64_t first, int64_t n) {
    score_embed(&s->embedding, ids + first, n, s->t.h + first * s->p.dim);
}

static void run_layers(struct model_scorer *s, const int32_t *ids, int64_t n_q, int64_t n,
                       const struct score_reuse *u) {
    int64_t first = u->known * SPARSE_BLOCK, step = s->o.dense ? SCORE_DENSE_ROWS : s->o.chunk;
    if (step > s->o.chunk)
        step = s->o.chunk;
    score_embed_begin(&s->embedding);
    embed_rows(s, ids, n - n_q, n_q); // the others come chunk by chunk
    for (int i = 0; i < s->o.layers; i++) {
        const struct score_layer *y = &s->layers[i];
        bool scored = i >= s->o.layers - s->o.last, last = i == s->o.layers - 1;
        if (scored)
            make_queries(s, y, n - n_q, n_q);
        score_reuse_layer(s, u, i);
        for (int64_t at = first; at < n; at += step) {
            const struct span c = {at, n - at < step ? n - at : step};
            if (i == 0)
                embed_rows(s, ids, at, min_i64(at + c.n, n - n_q) - at);
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

static int prepare_load(struct exec *x, const struct gguf *g, const struct score_options *o,
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
    int rc = exec_is_device(x) ? prepare_load(x, g, o, e) : 0;
    if (!rc)
        rc = build_scorer(s, g, o, false, e);
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
