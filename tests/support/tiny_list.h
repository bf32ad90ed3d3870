// SPDX-License-Identifier: Apache-2.0
// The tensors of a random model while they are listed; see tiny_gguf.c, which fills and writes
// them.
#ifndef COPPICE_TESTS_SUPPORT_TINY_LIST_H
#define COPPICE_TESTS_SUPPORT_TINY_LIST_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/rng.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "support/tiny_gguf.h"

enum { MAX_TENSORS = 1024 };

struct entry {
    char name[64];
    int64_t k, m;    // m: rows of all experts together
    int64_t experts; // 0: a plain matrix
    uint32_t type;
    float mean, std;
    bool rates;         // ssm_a: minus a log-uniform number
    int64_t k_at, v_at; // attn_qkv: the rows where k and v begin
    int64_t every;      // of each so many rows only the first has the mean; 0: all have
};

struct list {
    struct entry e[MAX_TENSORS];
    int n;
    uint32_t type;
    uint64_t seed;
};

// Writes the tensors and closes w, on failure too.
int tiny_list_write(struct gguf_writer *w, const struct list *l, struct err *e);

// Adds a matrix [k -> m] of the list's type.
static inline void matrix(struct list *l, const char *name, int64_t k, int64_t m, float std) {
    uint32_t type = k % quant_format(l->type)->block ? TYPE_F32 : l->type;
    struct entry *e = &l->e[l->n++];
    *e = (struct entry){.k = k, .m = m, .type = type, .std = std};
    snprintf(e->name, sizeof e->name, "%s", name);
}

static inline void expert_matrix(struct list *l, const char *name, int64_t k, int64_t m,
                                 int64_t experts, float std) {
    matrix(l, name, k, m * experts, std);
    l->e[l->n - 1].experts = experts;
}

static inline void vector(struct list *l, const char *name, int64_t k, int64_t m, float mean,
                          float std) {
    struct entry *e = &l->e[l->n++];
    *e = (struct entry){.k = k, .m = m, .type = TYPE_F32, .mean = mean, .std = std};
    snprintf(e->name, sizeof e->name, "%s", name);
}

static inline float fan(int64_t k, float gain) {
    return gain / sqrtf((float)k);
}

static inline const char *blk(char buf[64], int i, const char *suffix) {
    snprintf(buf, 64, "blk.%d.%s", i, suffix);
    return buf;
}

// Besides the dense block; gate and up are one tensor if `fused`.
static inline void gemma_experts(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    int64_t d = t->dim, e = t->experts, f = t->expert_ffn;
    vector(l, blk(b, i, "pre_ffw_norm_2.weight"), d, 1, 1, 0.2f);
    vector(l, blk(b, i, "post_ffw_norm_1.weight"), d, 1, 1, 0.2f);
    vector(l, blk(b, i, "post_ffw_norm_2.weight"), d, 1, 1, 0.2f);
    vector(l, blk(b, i, "ffn_gate_inp.weight"), d, e, 0, 2);
    vector(l, blk(b, i, "ffn_gate_inp.scale"), d, 1, 1, 0.2f);
    vector(l, blk(b, i, "ffn_down_exps.scale"), e, 1, 1, 0.3f);
    if (t->fused) {
        expert_matrix(l, blk(b, i, "ffn_gate_up_exps.weight"), d, 2 * f, e, fan(d, 1));
    } else {
        expert_matrix(l, blk(b, i, "ffn_gate_exps.weight"), d, f, e, fan(d, 1));
        expert_matrix(l, blk(b, i, "ffn_up_exps.weight"), d, f, e, fan(d, 1));
    }
    expert_matrix(l, blk(b, i, "ffn_down_exps.weight"), f, d, e, fan(f, 3));
}

// Biases of the router and of experts, sinks of heads.
static inline void oss_tensors(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    vector(l, blk(b, i, "attn_output.bias"), t->dim, 1, 0, 0.3f);
    vector(l, blk(b, i, "attn_sinks.weight"), t->heads, 1, 0, 1);
    vector(l, blk(b, i, "ffn_gate_inp.bias"), t->experts, 1, 0, 0.3f);
    vector(l, blk(b, i, "ffn_gate_exps.bias"), t->expert_ffn, t->experts, 0, 0.3f);
    vector(l, blk(b, i, "ffn_up_exps.bias"), t->expert_ffn, t->experts, 0, 0.3f);
    vector(l, blk(b, i, "ffn_down_exps.bias"), t->dim, t->experts, 0, 0.3f);
}

static inline bool laguna_windowed(int i) {
    return i % 2 != 0;
}

static inline int laguna_heads(const struct tiny_shape *t, int i) {
    return t->heads + (laguna_windowed(i) ? t->kv_heads : 0);
}

static inline void laguna_gate(struct list *l, const struct tiny_shape *t, int i) {
    char b[64];
    int64_t heads = laguna_heads(t, i);
    matrix(l, blk(b, i, "attn_gate.weight"), t->dim, t->seed / 2 % 2 ? heads * t->head_dim : heads,
           fan(t->dim, 1));
}

static inline void put_u32(struct gguf_writer *w, const char *arch, const char *key, int64_t v);
static inline void put_f32(struct gguf_writer *w, const char *arch, const char *key, float v);

static inline void put_laguna_keys(struct gguf_writer *w, const struct tiny_shape *t) {
    int32_t heads[64];
    for (int i = 0; i < t->layers; i++)
        heads[i] = laguna_heads(t, i);
    gguf_put_array(w, "laguna.attention.head_count", GGUF_I32, heads, (uint64_t)t->layers);
    put_u32(w, "laguna", "feed_forward_length", t->ffn);
    put_u32(w, "laguna", "expert_shared_feed_forward_length", t->shared_ffn);
    put_u32(w, "laguna", "leading_dense_block_count", 1);
    put_u32(w, "laguna", "attention.sliding_window", TINY_WINDOW);
    put_u32(w, "laguna", "attention.sliding_window_pattern", 2);
    put_u32(w, "laguna", "rope.dimension_count", t->rope_dims);
    put_f32(w, "laguna", "rope.freq_base_swa", 1e4f);
    put_f32(w, "laguna", "expert_weights_scale", 1.5f);
    put_f32(w, "laguna", "router_logit_softcapping", 3);
    gguf_put_str(w, "laguna.rope.scaling.type", "yarn", 4);
    put_f32(w, "laguna", "rope.scaling.factor", 4);
    put_u32(w, "laguna", "rope.scaling.original_context_length", 128);
}

// About normal: a sum of four uniforms.
static inline float noise(uint64_t seed, uint64_t tensor, uint64_t i) {
    uint64_t u = rng_hash(seed, tensor, i, 0);
    double s = 0;
    for (int j = 0; j < 4; j++, u >>= 16)
        s += (double)(u & 65535);
    return (float)((s - 131070.0) / 37837.0);
}

static inline void put_u32(struct gguf_writer *w, const char *arch, const char *key, int64_t v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_put_int(w, name, GGUF_U32, v);
}

static inline void put_f32(struct gguf_writer *w, const char *arch, const char *key, float v) {
    char name[96];
    snprintf(name, sizeof name, "%s.%s", arch, key);
    gguf_put_f32(w, name, v);
}

// Of a draft: all layers but the last have it.
static inline void put_window(struct gguf_writer *w, const char *a,
                              const struct tiny_draft_shape *d) {
    char key[96];
    uint8_t pattern[64];
    if (d->window <= 0)
        return;
    put_u32(w, a, "attention.sliding_window", d->window);
    for (int i = 0; i < d->layers; i++)
        pattern[i] = i < d->layers - 1;
    snprintf(key, sizeof key, "%s.attention.sliding_window_pattern", a);
    gguf_put_array(w, key, GGUF_BOOL, pattern, (uint64_t)d->layers);
}

#endif
