// SPDX-License-Identifier: Apache-2.0
// Files with experts that must not load, and what the sentence names.
#include "models/model.h"
#include "ops/exec.h"
#include "support/tiny_rig.h"
#include "unit/bad_files.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "unit/test.h"

// With experts: 6 of width 32, of which 2 are used.
#define EXPERTS(which, number) {.key = "qwen3moe." which, .kind = GGUF_U32, .value = (number)}
static const struct bad expert_targets[] = {
    {0, "", {0}},
    {0, "", EXPERTS("feed_forward_length", 4096)}, // of layers that there are not
    {0, "", EXPERTS("expert_gating_func", 1)},
    {0, "", EXPERTS("expert_gating_func", 2)},
    {0, "", EXPERTS("expert_gating_func", 3)},
    {0, "", {.key = "qwen3moe.expert_weights_scale", .kind = GGUF_F32, .number = 2.5}},
    {0, "", {.key = "qwen3moe.expert_weights_norm", .kind = GGUF_BOOL, .value = 0}},
    {ERR_UNSUPPORTED, "expert_gating_func is 4", EXPERTS("expert_gating_func", 4)},
    {ERR_FORMAT,
     "expert_weights_scale is -1",
     {.key = "qwen3moe.expert_weights_scale", .kind = GGUF_F32, .number = -1}},
    {ERR_FORMAT, "expert_count", {.key = "qwen3moe.expert_count", .kind = -1}},
    {ERR_FORMAT, "expert_count", EXPERTS("expert_count", 1025)},
    {ERR_MISMATCH, "blk.0.ffn_gate_inp.weight is [64, 6] but [64, 8] is expected",
     EXPERTS("expert_count", 8)},
    {ERR_FORMAT, "expert_used_count is missing", {.key = "qwen3moe.expert_used_count", .kind = -1}},
    {ERR_FORMAT, "expert_used_count", EXPERTS("expert_used_count", 7)},
    {ERR_FORMAT,
     "expert_feed_forward_length is missing",
     {.key = "qwen3moe.expert_feed_forward_length", .kind = -1}},
    {ERR_UNSUPPORTED, "multiple of 32", EXPERTS("expert_feed_forward_length", 48)},
    {ERR_MISMATCH, "blk.0.ffn_gate_exps.weight is [64, 32, 6] but [64, 64, 6] is expected",
     EXPERTS("expert_feed_forward_length", 64)},
    {ERR_MISMATCH, "blk.2.ffn_down_exps", {.tensor = "blk.2.ffn_down_exps.weight"}},
    {ERR_MISMATCH, "blk.3.ffn_gate_inp", {.tensor = "blk.3.ffn_gate_inp.weight"}},
    {ERR_UNSUPPORTED,
     "scale",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.3.ffn_up_exps.scale"}},
    {ERR_FORMAT, "2 of 6 experts cannot be chosen from so many of 4 groups",
     EXPERTS("expert_group_count", 4)},
};

// With a shared expert of width 64 as well.
static const struct bad shared_targets[] = {
    {0, "", {0}},
    {ERR_FORMAT,
     "expert_shared_feed_forward_length is missing",
     {.key = "qwen35moe.expert_shared_feed_forward_length", .kind = -1}},
    {ERR_UNSUPPORTED,
     "multiple of 32",
     {.key = "qwen35moe.expert_shared_feed_forward_length", .kind = GGUF_U32, .value = 33}},
    {ERR_MISMATCH,
     "ffn_gate_shexp.weight is [64, 64] but [64, 96] is expected",
     {.key = "qwen35moe.expert_shared_feed_forward_length", .kind = GGUF_U32, .value = 96}},
    {ERR_MISMATCH, "blk.1.ffn_down_shexp", {.tensor = "blk.1.ffn_down_shexp.weight"}},
    {ERR_MISMATCH, "blk.3.ffn_gate_inp_shexp", {.tensor = "blk.3.ffn_gate_inp_shexp.weight"}},
};

// After a dense layer of width 96, with groups, biases and norms.
#define GLM(which, number) {.key = "glm4moe." which, .kind = GGUF_U32, .value = (number)}
static const struct bad glm_targets[] = {
    {0, "", {0}},
    {0, "", GLM("expert_group_count", 1)},
    {ERR_MISMATCH, "blk.0.ffn_gate_inp", GLM("leading_dense_block_count", 0)},
    {ERR_MISMATCH, "blk.1.ffn_gate.weight", GLM("leading_dense_block_count", 2)},
    {ERR_FORMAT, "leading_dense_block_count", GLM("leading_dense_block_count", 4)},
    {ERR_FORMAT,
     "feed_forward_length is missing, but 1 layers are dense",
     {.key = "glm4moe.feed_forward_length", .kind = -1}},
    {ERR_FORMAT,
     "expert_shared_count is missing",
     {.key = "glm4moe.expert_shared_count", .kind = -1}},
    {ERR_MISMATCH, "ffn_gate_shexp.weight is [64, 64] but [64, 32] is expected",
     GLM("expert_shared_count", 1)},
    {ERR_MISMATCH, "blk.2.exp_probs_b.bias", {.tensor = "blk.2.exp_probs_b.bias"}},
    {ERR_MISMATCH, "blk.3.attn_k.bias", {.tensor = "blk.3.attn_k.bias"}},
    {ERR_MISMATCH, "blk.3.attn_q_norm", {.tensor = "blk.3.attn_q_norm.weight"}},
    {ERR_MISMATCH, "post_attention_norm", {.tensor = "blk.1.post_attention_norm.weight"}},
    {ERR_UNSUPPORTED,
     "ffn_gate_inp_shexp",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.2.ffn_gate_inp_shexp.weight"}},
};

// Latent attention: 2 heads of 32 + 32 values over latents of 96, queries of rank 32.
#define DEEP(which, number) {.key = "deepseek2." which, .kind = GGUF_U32, .value = (number)}
static const struct bad latent_targets[] = {
    {0, "", {0}},
    {0, "", DEEP("expert_gating_func", 1)},
    {0, "", {.key = "deepseek2.rope.scaling.yarn_log_multiplier", .kind = -1}},
    {ERR_UNSUPPORTED, "expert_gating_func is 4", DEEP("expert_gating_func", 4)},
    {ERR_FORMAT, "kv_lora_rank", {.key = "deepseek2.attention.kv_lora_rank", .kind = -1}},
    {ERR_UNSUPPORTED, "latents of 64", DEEP("attention.kv_lora_rank", 64)},
    {ERR_FORMAT, "kv_lora_rank", DEEP("attention.kv_lora_rank", 1024)},
    {ERR_FORMAT,
     "rope.dimension_count is missing",
     {.key = "deepseek2.rope.dimension_count", .kind = -1}},
    {ERR_UNSUPPORTED, "33 rotary dimensions", DEEP("rope.dimension_count", 33)},
    {ERR_UNSUPPORTED, "value length 33", DEEP("attention.value_length_mla", 33)},
    {ERR_MISMATCH, "blk.0.attn_q_b.weight", DEEP("attention.key_length_mla", 96)},
    {ERR_FORMAT, "key_length_mla", DEEP("attention.key_length_mla", 32)},
    {ERR_UNSUPPORTED, "latents of 96", DEEP("attention.key_length", 160)},
    {ERR_FORMAT,
     "q_lora_rank is missing, and so is",
     {.key = "deepseek2.attention.q_lora_rank", .kind = -1}},
    {ERR_UNSUPPORTED, "up to 128", DEEP("attention.head_count", 129)},
    {ERR_FORMAT,
     "yarn_log_multiplier is -1",
     {.key = "deepseek2.rope.scaling.yarn_log_multiplier", .kind = GGUF_F32, .number = -1}},
    {ERR_FORMAT, "leading_dense_block_count", DEEP("leading_dense_block_count", 4)},
    {ERR_MISMATCH, "blk.0.attn_k_b", {.tensor = "blk.0.attn_k_b.weight"}},
    {ERR_MISMATCH, "blk.1.attn_v_b", {.tensor = "blk.1.attn_v_b.weight"}},
    {ERR_MISMATCH, "attn_kv_a_norm", {.tensor = "blk.2.attn_kv_a_norm.weight"}},
    {ERR_MISMATCH, "blk.2.exp_probs_b.bias", {.tensor = "blk.2.exp_probs_b.bias"}},
    {ERR_UNSUPPORTED,
     "attn_k.bias",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.2.attn_k.bias"}},
};

static const struct bad older_latent_targets[] = {
    {0, "", {0}},
    {ERR_MISMATCH, "blk.0.attn_kv_b.weight is [96, 128]", DEEP("attention.value_length", 64)},
    {ERR_MISMATCH, "blk.3.attn_k_b", {.tensor = "blk.3.attn_kv_b.weight"}},
};

// Layers 0 and 2 full with 2 heads, 1 and 3 with a window and 3; a dense layer of width 96 first.
#define LAGUNA(which, number) {.key = "laguna." which, .kind = GGUF_U32, .value = (number)}
static const struct bad laguna_targets[] = {
    {0, "", {0}},
    {0, "", {.key = "laguna.expert_gating_func", .kind = -1}},
    {0, "", {.key = "laguna.rope.freq_base_swa", .kind = -1}},
    {0, "", {.key = "laguna.router_logit_softcapping", .kind = -1}},
    {ERR_UNSUPPORTED, "expert_gating_func is 4", LAGUNA("expert_gating_func", 4)},
    {ERR_FORMAT,
     "router_logit_softcapping is -1",
     {.key = "laguna.router_logit_softcapping", .kind = GGUF_F32, .number = -1}},
    {ERR_FORMAT,
     "expert_shared_feed_forward_length is missing",
     {.key = "laguna.expert_shared_feed_forward_length", .kind = -1}},
    {ERR_FORMAT, "key_length is missing", {.key = "laguna.attention.key_length", .kind = -1}},
    {ERR_FORMAT, "freq_base is missing", {.key = "laguna.rope.freq_base", .kind = -1}},
    {ERR_UNSUPPORTED, "value length 32", LAGUNA("attention.value_length", 32)},
    {ERR_UNSUPPORTED, "dimension_count_swa is 33", LAGUNA("rope.dimension_count_swa", 33)},
    {ERR_FORMAT, "head_count is missing", {.key = "laguna.attention.head_count", .kind = -1}},
    {ERR_MISMATCH, "blk.1.attn_q.weight", LAGUNA("attention.head_count", 2)},
    // Without windows, or with another pattern, numbers of heads are not those of a kind.
    {ERR_UNSUPPORTED, "layer 1 has 3 heads", LAGUNA("attention.sliding_window", 0)},
    {ERR_UNSUPPORTED, "layer 2 has 2 heads", LAGUNA("attention.sliding_window_pattern", 4)},
    {ERR_UNSUPPORTED, "3 heads of queries and 2", LAGUNA("attention.head_count_kv", 2)},
    {ERR_FORMAT, "leading_dense_block_count", LAGUNA("leading_dense_block_count", 4)},
    {ERR_MISMATCH, "blk.1.attn_gate.weight is missing", {.tensor = "blk.1.attn_gate.weight"}},
    {ERR_MISMATCH, "blk.2.exp_probs_b.bias", {.tensor = "blk.2.exp_probs_b.bias"}},
    {ERR_MISMATCH, "blk.3.attn_k_norm", {.tensor = "blk.3.attn_k_norm.weight"}},
    {ERR_UNSUPPORTED,
     "ffn_gate_inp_shexp",
     {.tensor = "blk.1.attn_norm.weight", .name = "blk.2.ffn_gate_inp_shexp.weight"}},
};

static void test_laguna_targets(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_plain();
    t.form = TINY_FORM_LAGUNA;
    t.rope_dims = 32;
    tiny_shape_experts(&t);
    refuse_each(t, laguna_targets, sizeof laguna_targets / sizeof *laguna_targets);
    t.seed = 3; // gates of values
    refuse_each(t, laguna_targets, 1);
}

static void test_latent_targets(void **state) {
    (void)state;
    struct tiny_shape deep = tiny_shape_plain();
    deep.form = TINY_FORM_DEEPSEEK;
    deep.rope_dims = 32;
    deep.seed = 3;
    tiny_shape_experts(&deep);
    refuse_each(deep, latent_targets, sizeof latent_targets / sizeof *latent_targets);
    deep.fused = true;
    deep.seed = 1;
    refuse_each(deep, older_latent_targets,
                sizeof older_latent_targets / sizeof *older_latent_targets);
}

static void test_expert_targets(void **state) {
    (void)state;
    struct tiny_shape plain = tiny_shape_plain(), shared = tiny_shape_default();
    tiny_shape_experts(&plain);
    tiny_shape_experts(&shared);
    struct tiny_shape glm = tiny_shape_plain();
    glm.form = TINY_FORM_GLM;
    glm.rope_dims = 32;
    tiny_shape_experts(&glm);
    refuse_each(glm, glm_targets, sizeof glm_targets / sizeof *glm_targets);
    refuse_each(plain, expert_targets, sizeof expert_targets / sizeof *expert_targets);
    refuse_each(shared, shared_targets, sizeof shared_targets / sizeof *shared_targets);
}

static int64_t largest_of_weights;

static void *watch_alloc(struct exec *x, enum exec_arena arena, size_t bytes) {
    if (arena == ARENA_WEIGHTS && (int64_t)bytes > largest_of_weights)
        largest_of_weights = (int64_t)bytes;
    return exec_ops(x)->alloc(x, bytes);
}

// The piece of memory that weights are to lie in has no room for experts that come and go: those
// have slots.
static void test_room_of_weights(void **state) {
    (void)state;
    enum { ROUNDED = 1 << 20 };
    struct tiny_shape t = tiny_shape_plain();
    struct tiny_rig r;
    struct model_plan p;
    struct gguf *g;
    struct model *m = NULL;
    struct model_options o = model_options_default();
    o.max_rows = o.max_verify = 32;
    tiny_shape_experts(&t);
    tiny_rig_open(&r, &t, NULL, NULL, "auto", 1);
    assert_int_equal(gguf_open(&g, r.target_path, &r.e), 0);
    assert_int_equal(model_plan(&p, NULL, r.x, g, &o, &r.e), 0);
    assert_true(p.expert_bytes > 0 && p.expert_bytes < p.weights);
    r.x->device = true;
    r.x->alloc_in = watch_alloc;
    assert_int_equal(model_load(&m, r.x, g, &o, &r.e), 0);
    model_destroy(m);
    assert_int_equal(largest_of_weights, p.weights + ROUNDED);
    largest_of_weights = 0;
    o.experts = p.experts;
    assert_int_equal(expert_classes_share(&o.experts, expert_classes_min(&o.experts), &r.e), 0);
    assert_int_equal(model_load(&m, r.x, g, &o, &r.e), ERR_UNSUPPORTED); // a CPU has no slots
    assert_int_equal(largest_of_weights, p.weights - p.expert_bytes + ROUNDED);
    r.x->device = false;
    r.x->alloc_in = NULL;
    gguf_close(g);
    tiny_rig_close(&r);
}

// A file that is cut or written to while it is read.
static void test_changed_file(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_plain();
    struct tiny_rig r;
    struct model_options o = model_options_default();
    o.max_rows = o.max_verify = 32;
    tiny_shape_experts(&t);
    tiny_rig_open(&r, &t, NULL, NULL, "auto", 1);
    for (int way = 0; way < 3; way++) {
        struct gguf *g;
        struct model *m = NULL;
        const struct edit none = {0};
        rewrite(r.target_path, r.draft_path, &none);
        assert_int_equal(gguf_open(&g, r.draft_path, &r.e), 0);
        if (way == 0)
            assert_int_equal(truncate(r.draft_path, (off_t)gguf_bytes(g) / 2), 0);
        if (way == 1)
            assert_int_equal(utimensat(AT_FDCWD, r.draft_path, NULL, 0), 0);
        if (way == 2) { // another one in its place
            char other[128];
            snprintf(other, sizeof other, "%s.new", r.draft_path);
            rewrite(r.target_path, other, &none);
            assert_int_equal(rename(other, r.draft_path), 0);
        }
        assert_int_equal(model_load(&m, r.x, g, &o, &r.e), way < 2 ? ERR_IO : 0);
        assert_true(way == 2 || strstr(r.e.text, "has changed while it was read"));
        model_destroy(m);
        gguf_close(g);
    }
    remove(r.draft_path);
    tiny_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_expert_targets), cmocka_unit_test(test_latent_targets),
        cmocka_unit_test(test_laguna_targets), cmocka_unit_test(test_room_of_weights),
        cmocka_unit_test(test_changed_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
