// SPDX-License-Identifier: Apache-2.0
// Gemma 3: gemma3_text, or gemma3 with its language model in text_config, whose published files
// leave out what the authors take for granted. Norms are stored without the one that they are
// counted from; layers with a window turn by a base of their own.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"

enum { MAX_LAYERS = 1024, PERIOD = 6, LAYERS_27B = 62 };

static const struct convert_rule outside[] = {
    {"embed_tokens.weight", "token_embd.weight", .dims = {DIM_D, DIM_V}},
    {"norm.weight", "output_norm.weight", .dims = {DIM_D}, .op = OP_PLUS_ONE},
    {0},
};
static const struct convert_rule every_layer[] = {
    {"input_layernorm.weight", "attn_norm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_Q}},
    {"self_attn.k_proj.weight", "attn_k.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.v_proj.weight", "attn_v.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_Q, DIM_D}},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {DIM_HD}, OP_PLUS_ONE, 0},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {DIM_HD}, OP_PLUS_ONE, 0},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {"pre_feedforward_layernorm.weight", "ffn_norm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {"post_feedforward_layernorm.weight", "post_ffw_norm.weight", {DIM_D}, OP_PLUS_ONE, 0},
    {0},
};

struct gemma3 {
    int64_t context, window;
    double eps, scalar, base, base_swa, cap;
    struct convert_rope full;
    uint8_t windowed[MAX_LAYERS];
};

static int check_gemma3(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    static const char *const parts[] = {"attention_bias"};
    if (hf_get(f, "hidden_activation") &&
        !hf_string_is(f, "hidden_activation", "gelu_pytorch_tanh"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has another hidden_activation than gelu_pytorch_tanh: this checkpoint "
                       "cannot be converted",
                       f->path);
    return convert_refuse_true(f, parts, 1, e);
}

// Without layer_types the last of each six layers, or of as many as are stated, is full.
static int read_layers(const struct convert_job *j, struct gemma3 *g, struct err *e) {
    const struct hf_file *f = &j->config;
    const char *key =
        hf_get(f, "sliding_window_pattern") ? "sliding_window_pattern" : "_sliding_window_pattern";
    int64_t period;
    bool any = false;
    int rc = hf_int(f, key, 1, MAX_LAYERS, PERIOD, &period, e);
    for (int64_t i = 0; i < j->layers && !rc; i++) {
        bool full = (i + 1) % period == 0;
        rc = convert_read_either(j, "layer_types", i, "full_attention", "sliding_attention", &full,
                                 e);
        g->windowed[i] = !full;
        any = any || !full;
    }
    if (!rc && any)
        rc = hf_int(f, "sliding_window", 1, INT32_MAX, -1, &g->window, e);
    return rc;
}

// Sizes, most of which published files name only where they are not these.
static int read_sizes(struct convert_job *j, struct gemma3 *g, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim;
    const struct hf_number rows[] = {
        {"hidden_size", 1, 1 << 20, -1, &d[DIM_D], NULL},
        {"intermediate_size", 1, 1 << 24, -1, &d[DIM_F], NULL},
        {"num_hidden_layers", 1, MAX_LAYERS, -1, &j->layers, NULL},
        {"vocab_size", 1, 1 << 24, 262208, &d[DIM_V], NULL},
        {"num_attention_heads", 1, 4096, 8, &j->heads, NULL},
        {"num_key_value_heads", 1, 4096, 4, &j->kv_heads, NULL},
        {"head_dim", 2, 4096, 256, &d[DIM_HD], NULL},
        {"max_position_embeddings", 1, INT32_MAX, 131072, &g->context, NULL},
    };
    int rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    if (!rc)
        rc = hf_float(f, "rms_norm_eps", 1e-6, &g->eps, e);
    if (!rc)
        rc = hf_float(f, "query_pre_attn_scalar", 256, &g->scalar, e);
    g->cap = json_num(hf_get(f, "final_logit_softcapping"), 0);
    d[DIM_Q] = j->heads * d[DIM_HD];
    d[DIM_KV] = j->kv_heads * d[DIM_HD];
    if (!rc)
        rc = check_gemma3(j, e);
    return rc ? rc : read_layers(j, g, e);
}

// The base of layers of a kind: among their rotary settings, or under an older key.
static int read_base(const struct convert_job *j, const struct convert_rope *r, const char *older,
                     double otherwise, double *base, struct err *e) {
    if (!convert_rope_get(r, "rope_theta"))
        return hf_float(&j->config, older, otherwise, base, e);
    return convert_rope_number(j, r, "rope_theta", 0, base, e);
}

static int read_rope(const struct convert_job *j, struct gemma3 *g, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct convert_rope windowed = {{hf_get(f, "rope_parameters.sliding_attention"), NULL}};
    g->full = (struct convert_rope){
        {hf_get(f, "rope_parameters.full_attention"), hf_get(f, "rope_scaling")}};
    if ((!convert_rope_is(&g->full, "default") && !convert_rope_is(&g->full, "linear")) ||
        !convert_rope_is(&windowed, "default"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default and, in full layers, linear: this "
                       "checkpoint cannot be converted",
                       f->path);
    int rc = read_base(j, &g->full, "rope_theta", 1e6, &g->base, e);
    return rc ? rc : read_base(j, &windowed, "rope_local_base_freq", 1e4, &g->base_swa, e);
}

// What readers take for granted is not written: each sixth layer is full, windows turn by a base of
// 10,000, scores are divided by the root of a head's size (in 27B, of its share of the stream).
static void put_unusual(struct convert_job *j, const struct gemma3 *g) {
    bool usual = true;
    int64_t share = j->layers == LAYERS_27B ? j->dim[DIM_D] / j->heads : j->dim[DIM_HD];
    for (int64_t i = 0; i < j->layers; i++)
        usual = usual && g->windowed[i] == ((i + 1) % PERIOD != 0);
    if (g->window && !usual)
        convert_put_array(j, "attention.sliding_window_pattern", GGUF_BOOL, g->windowed,
                          (uint64_t)j->layers);
    if (g->window && g->base_swa != 1e4)
        convert_put_f32(j, "rope.freq_base_swa", g->base_swa);
    if (g->scalar != (double)share)
        convert_put_f32(j, "attention.scale", 1 / sqrt(g->scalar));
    if (g->cap > 0)
        convert_put_f32(j, "final_logit_softcapping", g->cap);
}

static int put_keys(struct convert_job *j, const struct gemma3 *g, struct err *e) {
    convert_put_widths(j, g->context);
    convert_put_u32(j, "attention.head_count", j->heads);
    convert_put_heads(j);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", g->eps);
    convert_put_f32(j, "rope.freq_base", g->base);
    if (g->window)
        convert_put_u32(j, "attention.sliding_window", g->window);
    put_unusual(j, g);
    return convert_put_scaling(j, &g->full, true, e);
}

int convert_gemma3(struct convert_job *j, struct err *e) {
    struct gemma3 g = {0};
    int rc = read_sizes(j, &g, e);
    if (!rc)
        rc = read_rope(j, &g, e);
    if (rc)
        return rc;
    j->copies = 1;
    j->model = convert_model_of(j, true);
    convert_put_general(j);
    rc = put_keys(j, &g, e);
    if (!rc)
        rc = convert_take_all(j, outside, -1, e);
    for (int i = 0; i < j->layers && !rc; i++) {
        rc = convert_take_all(j, every_layer, i, e);
        if (!rc)
            rc = convert_take_all(j, convert_dense, i, e);
    }
    return rc ? rc : convert_end(j, e);
}
