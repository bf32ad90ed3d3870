// SPDX-License-Identifier: Apache-2.0
// Files of plain decoders (qwen3, qwen2, llama) that must not load: each edit of a good file is
// refused with a sentence that names the culprit.
#include <stdlib.h>
#include <unistd.h>

#include "models/params.h"
#include "unit/bad_files.h"
#include "unit/test.h"

// The same for the plain architecture: 4 layers, 2/1 heads of 64.
static const struct bad plain_targets[] = {
    {0, "", {0}},
    {0, "", {.key = "qwen3.rope.scaling.type", .kind = GGUF_STRING, .text = "none"}},
    {0, "", {.key = "qwen3.rope.dimension_count", .kind = GGUF_U32, .value = 32}},
    {ERR_UNSUPPORTED,
     "use a model of one of: qwen35",
     {.key = "general.architecture", .kind = GGUF_STRING, .text = "qwen9"}},
    {ERR_UNSUPPORTED,
     "longrope",
     {.key = "qwen3.rope.scaling.type", .kind = GGUF_STRING, .text = "longrope"}},
    {ERR_FORMAT,
     "qwen3.rope.scaling.factor",
     {.key = "qwen3.rope.scaling.type", .kind = GGUF_STRING, .text = "yarn"}},
    {ERR_FORMAT, "qwen3.block_count", {.key = "qwen3.block_count", .kind = -1}},
    {ERR_FORMAT, "qwen3.context_length", {.key = "qwen3.context_length", .kind = -1}},
    {ERR_FORMAT, "qwen3.rope.freq_base", {.key = "qwen3.rope.freq_base", .kind = -1}},
    {ERR_FORMAT, "epsilon", {.key = "qwen3.attention.layer_norm_rms_epsilon", .kind = GGUF_F32}},
    {ERR_FORMAT, "head_count_kv", {.key = "qwen3.attention.head_count_kv", .kind = GGUF_U32}},
    {ERR_UNSUPPORTED,
     "2 heads over 3",
     {.key = "qwen3.attention.head_count_kv", .kind = GGUF_U32, .value = 3}},
    {ERR_UNSUPPORTED,
     "value length 32",
     {.key = "qwen3.attention.value_length", .kind = GGUF_U32, .value = 32}},
    {ERR_MISMATCH,
     "blk.0.attn_q.weight is [64, 128] but [64, 256] is expected",
     {.key = "qwen3.attention.head_count", .kind = GGUF_U32, .value = 4}},
    {ERR_MISMATCH,
     "blk.0.ffn_gate",
     {.key = "qwen3.feed_forward_length", .kind = GGUF_U32, .value = 64}},
    {ERR_MISMATCH, "blk.5.attn_norm", {.key = "qwen3.block_count", .kind = GGUF_U32, .value = 7}},
    {ERR_MISMATCH, "token_embd", {.tensor = "token_embd.weight"}},
    {0, "", {.tensor = "output.weight"}}, // then the embedding is the head
    {ERR_MISMATCH, "output.weight is [64, 200]", {.tensor = "output.weight", .rows = 200}},
    {0, "", {.tensor = "blk.4.attn_norm.weight", .name = "output_extra.weight"}},
    {ERR_MISMATCH, "output_norm", {.tensor = "output_norm.weight"}},
    {ERR_MISMATCH, "blk.2.attn_k_norm", {.tensor = "blk.2.attn_k_norm.weight"}},
    {ERR_MISMATCH, "blk.3.ffn_norm", {.tensor = "blk.3.ffn_norm.weight"}},
    {ERR_MISMATCH, "blk.1.attn_v", {.tensor = "blk.1.attn_v.weight", .rows = 32}},
    {ERR_UNSUPPORTED,
     "blk.4.attn_q.bias",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.4.attn_q.bias"}},
    {ERR_UNSUPPORTED,
     "cls.output",
     {.tensor = "blk.4.attn_norm.weight", .name = "cls.output.weight"}},
    {ERR_UNSUPPORTED,
     "rope_freqs",
     {.tensor = "blk.4.attn_norm.weight", .name = "rope_freqs.weight"}},
};

// Llama: factors of the rotary angles, biases if there; and qwen2, which has biases.
static const struct bad llama_targets[] = {
    {0, "", {0}},
    {0, "", {.tensor = "rope_freqs.weight"}},
    {0, "", {.key = "llama.rope.freq_base", .kind = -1}},
    {0, "", {.tensor = "blk.4.attn_norm.weight", .name = "blk.4.attn_rot_embd"}},
    {ERR_MISMATCH,
     "rope_freqs.weight is [32] but [16, 1]",
     {.key = "llama.rope.dimension_count", .kind = GGUF_U32, .value = 32}},
    {ERR_MISMATCH, // without the key: as many as there are query heads
     "blk.0.attn_k.weight is [64, 64] but [64, 128] is expected",
     {.key = "llama.attention.head_count_kv", .kind = -1}},
    {ERR_UNSUPPORTED,
     "llama.expert_count is 8",
     {.key = "llama.expert_count", .kind = GGUF_U32, .value = 8}},
    {ERR_UNSUPPORTED,
     "llama.attention.sliding_window is 64",
     {.key = "llama.attention.sliding_window", .kind = GGUF_U32, .value = 64}},
    {0, "", {.key = "llama.rope.scaling.alpha", .kind = GGUF_F32, .number = 1}},
    {ERR_UNSUPPORTED,
     "llama.rope.scaling.alpha is 1000",
     {.key = "llama.rope.scaling.alpha", .kind = GGUF_F32, .number = 1000}},
    {ERR_UNSUPPORTED,
     "llama.rope.scale is 0.5",
     {.key = "llama.rope.scale", .kind = GGUF_F32, .number = 0.5}},
    {ERR_FORMAT,
     "llama.rope.scale_linear is -4",
     {.key = "llama.rope.scale_linear", .kind = GGUF_F32, .number = -4}},
    {ERR_UNSUPPORTED,
     "llama.logit_scale",
     {.key = "llama.logit_scale", .kind = GGUF_F32, .number = 0.5}},
    {ERR_UNSUPPORTED,
     "llama.attention.causal is 0",
     {.key = "llama.attention.causal", .kind = GGUF_BOOL, .value = 0}},
    {ERR_UNSUPPORTED,
     "longrope",
     {.key = "llama.rope.scaling.type", .kind = GGUF_STRING, .text = "longrope"}},
    {ERR_UNSUPPORTED,
     "blk.4.ffn_up.bias",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.4.ffn_up.bias"}},
    {ERR_UNSUPPORTED,
     "blk.4.attn_q_norm.weight",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.4.attn_q_norm.weight"}},
    {ERR_UNSUPPORTED,
     "rope_factors_long",
     {.tensor = "blk.4.attn_norm.weight", .name = "rope_factors_long.weight"}},
};
static const struct bad hybrid_targets[] = {
    {0, "", {.key = "qwen35.rope.scale_linear", .kind = GGUF_F32, .number = 1}},
    {0, "", {.key = "qwen35.rope.scaling.factor", .kind = GGUF_F32, .number = 4}},
    {ERR_FORMAT,
     "qwen35.rope.scale_linear is -4",
     {.key = "qwen35.rope.scale_linear", .kind = GGUF_F32, .number = -4}},
};
static const struct bad qwen2_targets[] = {
    {0, "", {0}},
    {ERR_MISMATCH, "blk.2.attn_k.bias is missing", {.tensor = "blk.2.attn_k.bias"}},
    {ERR_UNSUPPORTED,
     "blk.4.attn_output.bias",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.4.attn_output.bias"}},
    {ERR_UNSUPPORTED,
     "rope_freqs",
     {.tensor = "blk.4.attn_norm.weight", .name = "rope_freqs.weight"}},
};

static void test_plain_targets(void **state) {
    (void)state;
    refuse_each(tiny_shape_plain(), plain_targets, sizeof plain_targets / sizeof *plain_targets);
}

static void test_llama_targets(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain();
    shape.form = TINY_FORM_LLAMA;
    refuse_each(shape, llama_targets, sizeof llama_targets / sizeof *llama_targets);
    shape.form = TINY_FORM_QWEN2;
    refuse_each(shape, qwen2_targets, sizeof qwen2_targets / sizeof *qwen2_targets);
    shape = tiny_shape_default();
    refuse_each(shape, hybrid_targets, sizeof hybrid_targets / sizeof *hybrid_targets);
}

// What rotary scaling is read from a file with these keys.
static void test_scaling_keys(void **state) {
    (void)state;
    static const struct {
        const char *type; // NULL: none is named
        float factor, older, want;
    } rows[] = {
        {NULL, 4, 0, 4},     {NULL, 0, 4, 4},     {NULL, 8, 4, 8},
        {"linear", 4, 0, 4}, {"linear", 0, 4, 4}, {NULL, 0, 0, 0},
        {NULL, 1, 0, 0},     {"none", 4, 0, 0},   {"yarn", 0, 4, 4},
    };
    char path[] = "/tmp/coppice-scaling-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct model_params p = {.arch = "llama", .context = 1024};
        struct gguf_writer *w;
        struct gguf *g;
        struct err e;
        assert_int_equal(gguf_writer_open(&w, path, &e), 0);
        if (rows[i].type)
            gguf_put_str(w, "llama.rope.scaling.type", rows[i].type, strlen(rows[i].type));
        if (rows[i].factor > 0)
            gguf_put_f32(w, "llama.rope.scaling.factor", rows[i].factor);
        if (rows[i].older > 0)
            gguf_put_f32(w, "llama.rope.scale_linear", rows[i].older);
        assert_int_equal(gguf_writer_close(w, &e), 0);
        assert_int_equal(gguf_open(&g, path, &e), 0);
        assert_int_equal(rope_scaling_read(&p, g, &e), 0);
        if (p.rope.factor != rows[i].want)
            fail_msg("row %zu: a factor of %g, not %g", i, (double)p.rope.factor,
                     (double)rows[i].want);
        gguf_close(g);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plain_targets),
        cmocka_unit_test(test_llama_targets),
        cmocka_unit_test(test_scaling_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
