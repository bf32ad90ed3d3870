// SPDX-License-Identifier: Apache-2.0
// Qwen3 dense: a plain transformer. Every layer is full attention over normed heads that turn in
// all their dimensions (no gate, no bias, no window), then SwiGLU; a layer keeps nothing but keys
// and values. Format: docs/models.md.
#include <stdlib.h>
#include <string.h>

#include "models/model_impl.h"
#include "models/params.h"

#define ARCH "qwen3"

static bool ends_with(const char *s, const char *tail) {
    size_t n = strlen(s), m = strlen(tail);
    return n >= m && strcmp(s + n - m, tail) == 0;
}

// Tensors that would change the result and that no layer here reads.
static int refuse_variants(const struct gguf *g, struct err *e) {
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        if (ends_with(name, ".bias") || strncmp(name, "cls.", 4) == 0 ||
            strcmp(name, "rope_freqs.weight") == 0)
            return err_set(e, ERR_UNSUPPORTED,
                           "the file has a tensor %.80s, which a plain qwen3 model lacks: biases, "
                           "classifiers and rotary factors are not supported; use a file without "
                           "them",
                           name);
    }
    return 0;
}

static int read_params(struct model *m, const struct gguf *g, struct err *e) {
    struct model_params *p = &m->params;
    int64_t blocks;
    int rc = refuse_variants(g, e);
    if (!rc)
        rc = params_read_sizes(p, g, ARCH, &blocks, e);
    if (!rc)
        rc = params_read_attention(p, g, blocks, 0, e);
    if (!rc)
        rc = params_read_scaling(p, g, e);
    if (!rc)
        rc = params_read_vocab(p, g, e);
    p->n_full = p->n_layers;
    p->draft_mask = 151669; // the first id behind the tokenizer's own
    return rc;
}

static struct attention_shape attention_shape_of(const struct model_params *p) {
    return (struct attention_shape){.dim = p->dim,
                                    .n_heads = p->n_heads,
                                    .n_kv = p->n_kv,
                                    .head_dim = p->head_dim,
                                    .rope = p->rope,
                                    .eps = p->eps,
                                    .scale = p->attn_scale};
}

static int load_layer(struct model *m, const struct attention_shape *shape, int i, struct err *e) {
    const struct model_params *p = &m->params;
    struct layer *y = &m->layers[i];
    struct load *l = &m->load;
    char name[LOAD_NAME];
    y->full = true;
    y->index = i;
    int rc = load_floats(l, load_name(name, i, "attn_norm.weight"), p->dim, 1, &y->mixer_norm, e);
    if (!rc)
        rc = load_floats(l, load_name(name, i, "ffn_norm.weight"), p->dim, 1, &y->ffn_norm, e);
    if (!rc)
        rc = attention_load(&y->attention, shape, l, i, e);
    return rc ? rc : mlp_load(&y->mlp, p->dim, p->ffn, l, i, e);
}

static int add_group(struct model *m, const struct attention_shape *shape, struct err *e) {
    const struct model_params *p = &m->params;
    struct kv_shape kv = {.n_layers = p->n_layers,
                          .n_heads = p->n_kv,
                          .dk = p->head_dim,
                          .dv = p->head_dim,
                          .codec_k = m->options.codec_k,
                          .codec_v = m->options.codec_v};
    int group; // 0, which is in all layers
    int rc = model_add_group(m, &kv, 0, &group, e);
    struct attention_call call = {.shape = shape,
                                  .layout = &m->groups[0].layout,
                                  .mask = ATTEND_PATH,
                                  .choice = model_choice(m)};
    return rc ? rc : attention_check(m->x, &call, e);
}

static int load_all(struct model *m, const struct gguf *g, struct err *e) {
    (void)g;
    const struct model_params *p = &m->params;
    struct load *l = &m->load;
    struct attention_shape shape = attention_shape_of(p);
    m->layers = calloc((size_t)p->n_layers, sizeof *m->layers);
    if (!m->layers)
        return err_set(e, ERR_MEMORY, "no memory for %d layers", p->n_layers);
    int rc = add_group(m, &shape, e);
    if (!rc)
        rc = model_load_ends(m, e);
    for (int i = 0; !rc && i < p->n_layers; i++)
        rc = load_layer(m, &shape, i, e);
    return rc ? rc : attention_buffers_load(&m->ws.attention, &shape, m->options.max_rows, l, e);
}

static void forward(struct model *m, const struct pass *p) {
    const struct ops *ops = exec_ops(m->x);
    const struct model_params *q = &m->params;
    struct attention_shape shape = attention_shape_of(q);
    int64_t n = p->rows.n;
    for (int i = 0; i < q->n_layers; i++) {
        const struct layer *y = &m->layers[i];
        struct attention_call c = model_attention_call(m, p, y);
        c.shape = &shape;
        ops->norm_to_act(m->x, m->ws.h, y->mixer_norm, q->eps, n, q->dim, m->ws.act_d);
        attention_run(m->x, &c);
        ops->norm_to_act(m->x, m->ws.h, y->ffn_norm, q->eps, n, q->dim, m->ws.act_d);
        mlp_run(m->x, &m->ranks, &y->mlp, m->ws.act_d, m->ws.act_f, m->ws.h, n);
        model_tap(m, i, n);
    }
}

const struct model_desc arch_qwen3 = {ARCH, read_params, load_all, forward};
