// SPDX-License-Identifier: Apache-2.0
// Files of gemma3 and gemma4 that must not load: each edit of a good file is refused with a
// sentence that names the culprit.
#include <math.h>
#include <unistd.h>

#include "models/model.h"
#include "ops/ops.h"
#include "unit/bad_files.h"
#include "unit/test.h"

// 4 layers: a window of 48 in those of even numbers, the last two without keys; heads of 64 and
// 128.
static const struct bad edits[] = {
    {0, "", {0}},
    {0, "", {.key = "gemma4.final_logit_softcapping", .kind = -1}},
    {0, "", {.key = "gemma4.rope.freq_base_swa", .kind = -1}},
    {0, "", {.tensor = "rope_freqs.weight"}},
    {ERR_MISMATCH,
     "blk.1.layer_output_scale.weight is missing",
     {.tensor = "blk.1.layer_output_scale.weight"}},
    {ERR_UNSUPPORTED,
     "gemma4.attention.scale is 0.5",
     {.key = "gemma4.attention.scale", .kind = GGUF_F32, .number = 0.5}},
    {0, "", {.key = "gemma4.attention.scale", .kind = GGUF_F32, .number = 1}},
    {ERR_UNSUPPORTED,
     "gemma4.attn_logit_softcapping is 50",
     {.key = "gemma4.attn_logit_softcapping", .kind = GGUF_F32, .number = 50}},
    {ERR_FORMAT,
     "gemma4.expert_used_count is missing",
     {.key = "gemma4.expert_count", .kind = GGUF_U32, .value = 8}},
    {ERR_FORMAT,
     "gemma4.attention.sliding_window is missing",
     {.key = "gemma4.attention.sliding_window", .kind = -1}},
    {ERR_FORMAT,
     "sliding_window_pattern must have 4",
     {.key = "gemma4.attention.sliding_window_pattern",
      .kind = GGUF_ARRAY,
      .value = 3,
      .list = {1, 0, 1}}},
    {ERR_UNSUPPORTED,
     "layers of one kind",
     {.key = "gemma4.attention.sliding_window_pattern",
      .kind = GGUF_ARRAY,
      .value = 4,
      .list = {0, 0, 0, 0}}},
    {ERR_FORMAT,
     "head_count_kv must have 4",
     {.key = "gemma4.attention.head_count_kv", .kind = GGUF_ARRAY, .value = 2, .list = {1, 1}}},
    {ERR_UNSUPPORTED,
     "layer 2 has 2 heads",
     {.key = "gemma4.attention.head_count_kv",
      .kind = GGUF_ARRAY,
      .value = 4,
      .list = {1, 1, 2, 1}}},
    {ERR_FORMAT,
     "feed_forward_length has 0 in layer 1",
     {.key = "gemma4.feed_forward_length",
      .kind = GGUF_ARRAY,
      .value = 4,
      .list = {96, 0, 192, 192}}},
    {ERR_MISMATCH,
     "blk.3.ffn_gate",
     {.key = "gemma4.feed_forward_length",
      .kind = GGUF_ARRAY,
      .value = 4,
      .list = {96, 96, 192, 96}}},
    {ERR_FORMAT,
     "gemma4.attention.key_length is missing",
     {.key = "gemma4.attention.key_length", .kind = -1}},
    {ERR_UNSUPPORTED,
     "value length 64",
     {.key = "gemma4.attention.value_length", .kind = GGUF_U32, .value = 64}},
    {ERR_FORMAT,
     "layer 2 reads keys of an earlier layer",
     {.key = "gemma4.attention.sliding_window_pattern",
      .kind = GGUF_ARRAY,
      .value = 4,
      .list = {0, 0, 1, 0}}},
    {ERR_FORMAT,
     "shared_kv_layers",
     {.key = "gemma4.attention.shared_kv_layers", .kind = GGUF_U32, .value = 4}},
    {ERR_UNSUPPORTED,
     "cap of -1",
     {.key = "gemma4.final_logit_softcapping", .kind = GGUF_F32, .number = -1}},
    {ERR_MISMATCH,
     "per_layer_token_embd.weight is [128, 300] but [256, 300]",
     {.key = "gemma4.embedding_length_per_layer_input", .kind = GGUF_U32, .value = 64}},
    {ERR_FORMAT,
     "gemma4.rope.scaling.factor",
     {.key = "gemma4.rope.scaling.type", .kind = GGUF_STRING, .text = "yarn"}},
    {ERR_MISMATCH,
     "blk.0.post_ffw_norm.weight is missing",
     {.tensor = "blk.0.post_ffw_norm.weight"}},
    {ERR_UNSUPPORTED,
     "blk.2.attn_q.bias",
     {.tensor = "blk.2.layer_output_scale.weight", .name = "blk.2.attn_q.bias"}},
    {ERR_MISMATCH, "blk.0.attn_k.weight is missing", {.tensor = "blk.0.attn_k.weight"}},
    {ERR_MISMATCH, "blk.3.inp_gate.weight is missing", {.tensor = "blk.3.inp_gate.weight"}},
};

// With 6 experts of width 32, gate and up in one tensor.
static const struct bad expert_targets[] = {
    {0, "", {0}},
    {ERR_FORMAT, "expert_used_count is missing", {.key = "gemma4.expert_used_count", .kind = -1}},
    {ERR_MISMATCH,
     "ffn_gate_up_exps.weight is [64, 64, 6] but [64, 128, 6] is expected",
     {.key = "gemma4.expert_feed_forward_length", .kind = GGUF_U32, .value = 64}},
    {ERR_MISMATCH, "blk.0.ffn_gate_exps", {.tensor = "blk.0.ffn_gate_up_exps.weight"}},
    {ERR_MISMATCH, "blk.1.ffn_down_exps.scale", {.tensor = "blk.1.ffn_down_exps.scale"}},
    {ERR_MISMATCH, "blk.1.ffn_gate_inp.scale", {.tensor = "blk.1.ffn_gate_inp.scale"}},
    {ERR_MISMATCH, "blk.2.post_ffw_norm_2", {.tensor = "blk.2.post_ffw_norm_2.weight"}},
    {ERR_UNSUPPORTED,
     "exp_probs_b",
     {.tensor = "blk.3.post_norm.weight", .name = "blk.3.exp_probs_b.bias"}},
};

#define GEMMA3(which, n) {.key = "gemma3." which, .kind = GGUF_U32, .value = (n)}
#define SCALED(which, x) {.key = "gemma3." which, .kind = GGUF_F32, .number = (x)}
// 4 layers: a window of 48 in those of even numbers, the others turn four times slower.
static const struct bad gemma3_targets[] = {
    {0, "", {0}},
    {0, "", {.key = "gemma3.rope.scaling.factor", .kind = -1}},
    {0, "", SCALED("attention.scale", 0.5)},
    {0, "", SCALED("rope.freq_base_swa", 20000)},
    {0, "", SCALED("final_logit_softcapping", 30)},
    {0, "", GEMMA3("attention.sliding_window", 0)}, // all of them are full
    {0, "", GEMMA3("attention.sliding_window_pattern", 3)},
    {0,
     "",
     {.key = "gemma3.attention.sliding_window_pattern",
      .kind = GGUF_ARRAY,
      .value = 4,
      .list = {1, 1, 1, 0}}},
    {ERR_UNSUPPORTED, "each of the file's 4 layers has a window",
     GEMMA3("attention.sliding_window_pattern", 6)},
    {ERR_FORMAT, "sliding_window_pattern", GEMMA3("attention.sliding_window_pattern", 0)},
    {ERR_FORMAT,
     "sliding_window_pattern must have 4",
     {.key = "gemma3.attention.sliding_window_pattern",
      .kind = GGUF_ARRAY,
      .value = 3,
      .list = {1, 0, 1}}},
    {ERR_FORMAT, "freq_base_swa is -1", SCALED("rope.freq_base_swa", -1)},
    {ERR_FORMAT, "freq_base is missing", {.key = "gemma3.rope.freq_base", .kind = -1}},
    {ERR_UNSUPPORTED, "cap of -1", SCALED("final_logit_softcapping", -1)},
    {ERR_UNSUPPORTED, "attn_logit_softcapping is 50", SCALED("attn_logit_softcapping", 50)},
    {ERR_UNSUPPORTED, "expert_count is 8", GEMMA3("expert_count", 8)},
    {ERR_UNSUPPORTED, "value length 32", GEMMA3("attention.value_length", 32)},
    {ERR_UNSUPPORTED,
     "llama3",
     {.key = "gemma3.rope.scaling.type", .kind = GGUF_STRING, .text = "llama3"}},
    {ERR_MISMATCH,
     "blk.0.post_ffw_norm.weight is missing",
     {.tensor = "blk.0.post_ffw_norm.weight"}},
    {ERR_MISMATCH, "blk.1.attn_q_norm.weight is missing", {.tensor = "blk.1.attn_q_norm.weight"}},
    {ERR_UNSUPPORTED,
     "rope_freqs.weight",
     {.tensor = "blk.3.ffn_norm.weight", .name = "rope_freqs.weight"}},
};

static void test_gemma3(void **state) {
    (void)state;
    refuse_each(tiny_shape_form(TINY_FORM_GEMMA3), gemma3_targets,
                sizeof gemma3_targets / sizeof *gemma3_targets);
}

// What scores are multiplied by in a model of that many layers.
static float scale_of(int layers) {
    static const char path[] = "/tmp/coppice-gemma3-scale.gguf";
    struct tiny_shape t = tiny_shape_form(TINY_FORM_GEMMA3);
    struct model_options o = model_options_default();
    struct exec *x;
    struct gguf *g;
    struct model *m;
    struct err e = {0};
    t.layers = layers;
    if (tiny_target_write(&t, path, &e) || gguf_open(&g, path, &e) ||
        exec_create_cpu(&x, "auto", 1, &e) || model_load(&m, x, g, &o, &e))
        fail_msg("%s", e.text);
    float scale = model_params_of(m)->attn_scale;
    model_destroy(m);
    exec_destroy(x);
    gguf_close(g);
    unlink(path);
    return scale;
}

// 27B, which has 62 layers, divides by the root of a head's share of the stream, here 32, and its
// files do not say so; the others by that of a head's size, 64.
static void test_scale(void **state) {
    (void)state;
    assert_true(scale_of(48) == 0.125f);
    assert_true(scale_of(62) == 1 / sqrtf(32));
}

static void test_experts(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_plain();
    t.form = TINY_FORM_GEMMA4;
    t.fused = true;
    tiny_shape_experts(&t);
    refuse_each(t, expert_targets, sizeof expert_targets / sizeof *expert_targets);
}

static void test_gemma(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain();
    shape.form = TINY_FORM_GEMMA4;
    refuse_each(shape, edits, sizeof edits / sizeof *edits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gemma),
        cmocka_unit_test(test_gemma3),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_experts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
