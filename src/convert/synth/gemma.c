// SPDX-License-Identifier: Apache-2.0
// Gemma 4 of random weights: layers with a window and full ones, some of which borrow keys; experts
// beside dense blocks, or embeddings of layers.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/synth/impl.h"

// Layers at most; how loud blocks are beside the embedding, which is the head as well: else each
// token would predict itself.
enum { MOST = 128, LOUD = 4 };

static bool is_full(const struct synth_shape *s, int i) {
    return (i + 1) % s->period == 0;
}

// The last layers of the shape do, but never the first of a kind, as when layers are left out.
static int borrowing(const struct synth_shape *s) {
    int most = s->layers - s->period;
    return s->borrowing < most ? s->borrowing : most > 0 ? most : 0;
}

static bool borrows(const struct synth_shape *s, int i) {
    return i >= s->layers - borrowing(s);
}

static int64_t width(const struct synth_shape *s, int i) {
    return s->wide && borrows(s, i) ? 2 * s->ffn : s->ffn;
}

static void attention(struct synth_builder *b, const struct synth_shape *s, int i) {
    bool full = is_full(s, i);
    int64_t hd = full ? s->full_head : s->head_dim, q = s->heads * hd;
    int64_t kv = (full ? s->full_kv : s->kv) * hd;
    // Scores are not divided by anything, so that norms of heads are small.
    float size = 2 / powf((float)hd, 0.25f);
    synth_matrix(b, i, "attn_q.weight", s->dim, q, 1);
    synth_matrix(b, i, "attn_output.weight", q, s->dim, 1);
    synth_vector(b, i, "attn_q_norm.weight", hd, size, size / 5);
    if (borrows(s, i))
        return;
    synth_matrix(b, i, "attn_k.weight", s->dim, kv, 1);
    synth_vector(b, i, "attn_k_norm.weight", hd, size, size / 5);
    if (!full || !s->k_eq_v)
        synth_matrix(b, i, "attn_v.weight", s->dim, kv, 1);
}

static void experts(struct synth_builder *b, const struct synth_shape *s, int i) {
    const int64_t in[3] = {s->dim, 2 * s->expert_ffn, s->experts};
    const int64_t out[3] = {s->expert_ffn, s->dim, s->experts};
    synth_matrix(b, i, "ffn_gate_inp.weight", s->dim, s->experts, 2 * sqrt((double)s->dim));
    synth_norm(b, i, "ffn_gate_inp.scale", s->dim);
    synth_norm(b, i, "ffn_down_exps.scale", s->experts);
    synth_norm(b, i, "pre_ffw_norm_2.weight", s->dim);
    synth_norm(b, i, "post_ffw_norm_1.weight", s->dim);
    synth_norm(b, i, "post_ffw_norm_2.weight", s->dim);
    synth_experts(b, i, "ffn_gate_up_exps.weight", in);
    synth_experts(b, i, "ffn_down_exps.weight", out);
}

void synth_gemma_tensors(struct synth_builder *b, const struct synth_shape *s) {
    int64_t all = s->layers * s->per_layer;
    synth_vector(b, -1, "rope_freqs.weight", s->full_head / 2, 1.5f, 0.5f);
    if (all) {
        synth_matrix(b, -1, "per_layer_token_embd.weight", all, s->vocab, 1);
        synth_matrix(b, -1, "per_layer_model_proj.weight", s->dim, all, 1);
        synth_norm(b, -1, "per_layer_proj_norm.weight", s->per_layer);
    }
    for (int i = 0; i < s->layers; i++) {
        synth_norm(b, i, "attn_norm.weight", s->dim);
        attention(b, s, i);
        synth_vector(b, i, "post_attention_norm.weight", s->dim, LOUD, LOUD / 5.0f);
        synth_norm(b, i, "ffn_norm.weight", s->dim);
        synth_matrix(b, i, "ffn_gate.weight", s->dim, width(s, i), 1);
        synth_matrix(b, i, "ffn_up.weight", s->dim, width(s, i), 1);
        synth_matrix(b, i, "ffn_down.weight", width(s, i), s->dim, 1);
        synth_vector(b, i, "post_ffw_norm.weight", s->dim, LOUD, LOUD / 5.0f);
        if (s->experts)
            experts(b, s, i);
        if (!all)
            continue;
        synth_matrix(b, i, "inp_gate.weight", s->dim, s->per_layer, 1);
        synth_matrix(b, i, "proj.weight", s->per_layer, s->dim, 1);
        synth_norm(b, i, "post_norm.weight", s->dim);
    }
}

static void put(struct gguf_writer *w, const char *key, int64_t v) {
    char full[96];
    snprintf(full, sizeof full, "gemma4.%s", key);
    gguf_put_int(w, full, GGUF_U32, v);
}

void synth_gemma_metadata(struct gguf_writer *w, const struct synth_shape *s) {
    int32_t kv[MOST], ffn[MOST];
    uint8_t windowed[MOST];
    uint64_t n = (uint64_t)s->layers;
    for (int i = 0; i < s->layers; i++) {
        windowed[i] = !is_full(s, i);
        kv[i] = windowed[i] ? s->kv : s->full_kv;
        ffn[i] = (int32_t)width(s, i);
    }
    gguf_put_array(w, "gemma4.attention.head_count_kv", GGUF_I32, kv, n);
    gguf_put_array(w, "gemma4.feed_forward_length", GGUF_I32, ffn, n);
    gguf_put_array(w, "gemma4.attention.sliding_window_pattern", GGUF_BOOL, windowed, n);
    put(w, "attention.sliding_window", s->window);
    put(w, "attention.shared_kv_layers", borrowing(s));
    put(w, "attention.key_length", s->full_head);
    put(w, "attention.value_length", s->full_head);
    put(w, "attention.key_length_swa", s->head_dim);
    put(w, "attention.value_length_swa", s->head_dim);
    put(w, "embedding_length_per_layer_input", s->per_layer);
    gguf_put_f32(w, "gemma4.final_logit_softcapping", 30);
    gguf_put_f32(w, "gemma4.attention.layer_norm_rms_epsilon", 1e-6f);
    gguf_put_f32(w, "gemma4.rope.freq_base", 1e6f);
    gguf_put_f32(w, "gemma4.rope.freq_base_swa", 1e4f);
}
