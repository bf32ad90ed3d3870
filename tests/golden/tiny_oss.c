// SPDX-License-Identifier: Apache-2.0
// See tiny_oss.h. transformers keep the matrices of experts transposed, gate and up in turns.
#include "golden/tiny_oss.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "golden/tiny_store.h"
#include "support/tiny_vocab.h"

enum { MAX_ITEMS = 128 };

// Value (x, y, z), x innermost, of a tensor is value first + x * by[0] + y * by[1] + z * by[2] of
// the source, whose innermost dimension is `last`.
struct item {
    char name[64], source[96];
    int n_dims;
    int64_t ne[3], by[3], first, last;
};

struct items {
    struct item of[MAX_ITEMS];
    int n;
    int layer; // -1: outside
};

static struct item *add(struct items *s, const char *name, const char *source) {
    struct item *t = &s->of[s->n++];
    *t = (struct item){.ne = {1, 1, 1}};
    if (s->layer < 0) {
        (void)snprintf(t->name, sizeof t->name, "%s", name);
        (void)snprintf(t->source, sizeof t->source, "%s", source);
    } else {
        (void)snprintf(t->name, sizeof t->name, "blk.%d.%s", s->layer, name);
        (void)snprintf(t->source, sizeof t->source, "model.layers.%d.%s", s->layer, source);
    }
    return t;
}

static void vector(struct items *s, const char *name, const char *source, int64_t n) {
    struct item *t = add(s, name, source);
    t->n_dims = 1;
    t->ne[0] = t->last = n;
    t->by[0] = 1;
}

static void matrix(struct items *s, const char *name, const char *source, int64_t k, int64_t m) {
    struct item *t = add(s, name, source);
    t->n_dims = 2;
    t->ne[0] = t->last = t->by[1] = k;
    t->ne[1] = m;
    t->by[0] = 1;
}

// Columns first, first + step, ... of [experts][k][columns] as rows of [experts][m][k].
static void experts(struct items *s, const char *name, const char *source, const int64_t ne[3],
                    int64_t first, int64_t step) {
    struct item *t = add(s, name, source);
    t->n_dims = 3;
    memcpy(t->ne, ne, sizeof t->ne);
    t->last = t->by[0] = ne[1] * step;
    t->by[1] = step;
    t->by[2] = ne[0] * t->last;
    t->first = first;
}

static void expert_bias(struct items *s, const char *name, const char *source, int64_t m, int64_t n,
                        int64_t first, int64_t step) {
    struct item *t = add(s, name, source);
    t->n_dims = 2;
    t->ne[0] = m;
    t->ne[1] = n;
    t->by[0] = step;
    t->by[1] = t->last = m * step;
    t->first = first;
}

static void layer(struct items *s, const struct tiny_target *t) {
    int64_t d = t->hidden, q = (int64_t)t->heads * t->head_dim;
    int64_t kv = (int64_t)t->kv_heads * t->head_dim, n = t->experts, f = t->expert_ffn;
    const int64_t into[3] = {d, f, n}, back[3] = {f, d, n};
    vector(s, "attn_norm.weight", "input_layernorm.weight", d);
    matrix(s, "attn_q.weight", "self_attn.q_proj.weight", d, q);
    matrix(s, "attn_k.weight", "self_attn.k_proj.weight", d, kv);
    matrix(s, "attn_v.weight", "self_attn.v_proj.weight", d, kv);
    matrix(s, "attn_output.weight", "self_attn.o_proj.weight", q, d);
    vector(s, "attn_q.bias", "self_attn.q_proj.bias", q);
    vector(s, "attn_k.bias", "self_attn.k_proj.bias", kv);
    vector(s, "attn_v.bias", "self_attn.v_proj.bias", kv);
    vector(s, "attn_output.bias", "self_attn.o_proj.bias", d);
    vector(s, "attn_sinks.weight", "self_attn.sinks", t->heads);
    vector(s, "post_attention_norm.weight", "post_attention_layernorm.weight", d);
    matrix(s, "ffn_gate_inp.weight", "mlp.router.weight", d, n);
    vector(s, "ffn_gate_inp.bias", "mlp.router.bias", n);
    experts(s, "ffn_gate_exps.weight", "mlp.experts.gate_up_proj", into, 0, 2);
    experts(s, "ffn_up_exps.weight", "mlp.experts.gate_up_proj", into, 1, 2);
    experts(s, "ffn_down_exps.weight", "mlp.experts.down_proj", back, 0, 1);
    expert_bias(s, "ffn_gate_exps.bias", "mlp.experts.gate_up_proj_bias", f, n, 0, 2);
    expert_bias(s, "ffn_up_exps.bias", "mlp.experts.gate_up_proj_bias", f, n, 1, 2);
    expert_bias(s, "ffn_down_exps.bias", "mlp.experts.down_proj_bias", d, n, 0, 1);
}

static void put(struct gguf_writer *w, const char *key, int64_t v) {
    char full[96];
    (void)snprintf(full, sizeof full, "gpt-oss.%s", key);
    gguf_put_int(w, full, GGUF_U32, v);
}

static void keys(struct gguf_writer *w, const struct tiny_target *t) {
    gguf_put_str(w, "general.architecture", "gpt-oss", 7);
    put(w, "block_count", t->layers);
    put(w, "context_length", 4096);
    put(w, "embedding_length", t->hidden);
    put(w, "feed_forward_length", t->expert_ffn);
    put(w, "expert_feed_forward_length", t->expert_ffn);
    put(w, "expert_count", t->experts);
    put(w, "expert_used_count", t->used);
    put(w, "attention.head_count", t->heads);
    put(w, "attention.head_count_kv", t->kv_heads);
    put(w, "attention.key_length", t->head_dim);
    put(w, "attention.value_length", t->head_dim);
    put(w, "attention.sliding_window", t->gemma.window);
    put(w, "rope.scaling.original_context_length", t->trained);
    gguf_put_f32(w, "gpt-oss.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_f32(w, "gpt-oss.rope.freq_base", (float)t->rope);
    gguf_put_f32(w, "gpt-oss.rope.scaling.factor", (float)t->yarn);
    gguf_put_str(w, "gpt-oss.rope.scaling.type", "yarn", 4);
}

static int write_item(struct gguf_writer *w, const struct item *t, const struct tiny_seed *from,
                      struct err *e) {
    float buffer[1024];
    int rc = 0;
    for (int64_t z = 0; !rc && z < t->ne[2]; z++)
        for (int64_t y = 0; !rc && y < t->ne[1]; y++) {
            for (int64_t x = 0; x < t->ne[0] && x < 1024; x++)
                buffer[x] = tiny_weight(from, t->source, t->last,
                                        t->first + x * t->by[0] + y * t->by[1] + z * t->by[2]);
            rc = gguf_write_data(w, buffer, (size_t)t->ne[0] * sizeof *buffer, e);
        }
    return rc;
}

int tiny_write_oss(const struct tiny_target *t, const char *path, struct err *e) {
    struct gguf_writer *w = NULL;
    struct items *s = calloc(1, sizeof *s);
    const struct tiny_seed from = {.seed = t->seed, .plain_norms = true};
    int rc = s ? gguf_writer_open(&w, path, e) : err_set(e, ERR_MEMORY, "no memory for a model");
    if (rc) {
        free(s);
        return rc;
    }
    s->layer = -1;
    matrix(s, "token_embd.weight", "model.embed_tokens.weight", t->hidden, t->vocab);
    matrix(s, "output.weight", "lm_head.weight", t->hidden, t->vocab);
    vector(s, "output_norm.weight", "model.norm.weight", t->hidden);
    for (s->layer = 0; s->layer < t->layers; s->layer++)
        layer(s, t);
    keys(w, t);
    if (t->vocab >= 260)
        rc = tiny_put_tokenizer(w, t->vocab, "gpt-4o", e);
    for (int i = 0; i < s->n; i++)
        gguf_add_tensor(w, s->of[i].name, TYPE_F32, s->of[i].n_dims, s->of[i].ne);
    for (int i = 0; !rc && i < s->n; i++)
        rc = write_item(w, &s->of[i], &from, e);
    free(s);
    if (!rc)
        return gguf_writer_close(w, e);
    gguf_writer_abort(w);
    return rc;
}
