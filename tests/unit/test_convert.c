// SPDX-License-Identifier: Apache-2.0
// HuggingFace folder to GGUF on a tiny invented qwen3_5 model with 3 value heads per key head and a
// draft for it. Expected values are computed from the source's own indices by loops that share
// nothing with the converter, so a wrong head order, a missing +1 or a lost tensor shows.
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "base/str.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "unit/hf_folder.h"
#include "unit/test.h"

static struct gguf *converted(const char *dir, const char *recipe, const char *target) {
    struct convert_options o = hf_options(recipe, target);
    struct err e = {0};
    struct gguf *g = NULL;
    if (convert_hf(dir, hf_out, &o, &e) || gguf_open(&g, hf_out, &e))
        fail_msg("%s", e.text);
    return g;
}

// Element (row, column) of a written F32 tensor.
static float element(const struct gguf *g, const char *name, int64_t row, int64_t column) {
    const struct tensor *t = gguf_tensor(g, name);
    float v;
    if (!t || t->type != TYPE_F32)
        fail_msg("%s is missing or no F32", name);
    memcpy(&v, (const char *)t->data + (row * t->ne[0] + column) * 4, sizeof v);
    return v;
}

// The written tensor must equal the source plus `add`, element for element.
static void same(const struct gguf *g, const char *name, const char *source, float add) {
    const struct tensor *t = gguf_tensor(g, name);
    if (!t)
        fail_msg("%s is missing", name);
    for (int64_t i = 0; i < t->bytes / 4; i++)
        if (element(g, name, 0, i) != hf_value(source, i) + add)
            fail_msg("%s differs at %d", name, (int)i);
}

static void check_plain_tensors(const struct gguf *g) {
    same(g, "token_embd.weight", "embed_tokens.weight", 0);
    same(g, "output_norm.weight", "norm.weight", 1);
    same(g, "blk.0.attn_norm.weight", "layers.0.input_layernorm.weight", 1);
    same(g, "blk.1.post_attention_norm.weight", "layers.1.post_attention_layernorm.weight", 1);
    same(g, "blk.0.ssm_norm.weight", "layers.0.linear_attn.norm.weight", 0);
    same(g, "blk.1.attn_q_norm.weight", "layers.1.self_attn.q_norm.weight", 1);
    same(g, "blk.1.attn_k_norm.weight", "layers.1.self_attn.k_norm.weight", 1);
    same(g, "blk.1.attn_q.weight", "layers.1.self_attn.q_proj.weight", 0);
    same(g, "blk.1.attn_k.weight", "layers.1.self_attn.k_proj.weight", 0);
    same(g, "blk.1.attn_v.weight", "layers.1.self_attn.v_proj.weight", 0);
    same(g, "blk.1.attn_output.weight", "layers.1.self_attn.o_proj.weight", 0);
    same(g, "blk.0.ffn_gate.weight", "layers.0.mlp.gate_proj.weight", 0);
    same(g, "blk.0.ffn_up.weight", "layers.0.mlp.up_proj.weight", 0);
    same(g, "blk.1.ffn_down.weight", "layers.1.mlp.down_proj.weight", 0);
}

// The value head that the source calls (key k, copy j) is number j * KEYS + k in the file.
static void check_head(const struct gguf *g, int k, int j) {
    static const char in[] = "layers.0.linear_attn.";
    char name[96];
    int from = k * COPIES + j, to = j * KEYS + k;
#define SOURCE(what, i) (snprintf(name, sizeof name, "%s%s", in, what), hf_value(name, (i)))
    assert_true(element(g, "blk.0.ssm_a", 0, to) == -expf(SOURCE("A_log", from)));
    assert_true(element(g, "blk.0.ssm_dt.bias", 0, to) == SOURCE("dt_bias", from));
    for (int c = 0; c < D; c++) {
        assert_true(element(g, "blk.0.ssm_alpha.weight", to, c) ==
                    SOURCE("in_proj_a.weight", from * D + c));
        assert_true(element(g, "blk.0.ssm_beta.weight", to, c) ==
                    SOURCE("in_proj_b.weight", from * D + c));
    }
    for (int r = 0; r < DV; r++) {
        int a = from * DV + r, b = to * DV + r;
        for (int c = 0; c < D; c++) {
            assert_true(element(g, "blk.0.attn_gate.weight", b, c) ==
                        SOURCE("in_proj_z.weight", a * D + c));
            assert_true(element(g, "blk.0.attn_qkv.weight", QK + b, c) ==
                        SOURCE("in_proj_qkv.weight", (QK + a) * D + c));
            assert_true(element(g, "blk.0.ssm_out.weight", c, b) ==
                        SOURCE("out_proj.weight", c * VD + a));
        }
        for (int c = 0; c < 4; c++)
            assert_true(element(g, "blk.0.ssm_conv1d.weight", QK + b, c) ==
                        SOURCE("conv1d.weight", (QK + a) * 4 + c));
    }
#undef SOURCE
}

static void check_all_tensors(const struct gguf *g) {
    check_plain_tensors(g);
    for (int k = 0; k < KEYS; k++)
        for (int j = 0; j < COPIES; j++)
            check_head(g, k, j);
    for (int r = 0; r < QK; r++) { // query and key rows stay where they are
        assert_true(element(g, "blk.0.attn_qkv.weight", r, 5) ==
                    hf_value("layers.0.linear_attn.in_proj_qkv.weight", r * D + 5));
        assert_true(element(g, "blk.0.ssm_conv1d.weight", r, 3) ==
                    hf_value("layers.0.linear_attn.conv1d.weight", r * 4 + 3));
    }
    const struct tensor *conv = gguf_tensor(g, "blk.0.ssm_conv1d.weight");
    assert_true(conv->n_dims == 2 && conv->ne[0] == 4 && conv->ne[1] == CH);
}

static void check_int(const struct gguf *g, const char *key, int64_t wanted) {
    struct err e = {0};
    int64_t v;
    assert_int_equal(gguf_get_int(g, key, INT32_MIN, INT32_MAX, -99, &v, &e), 0);
    if (v != wanted)
        fail_msg("%s is %d, not %d", key, (int)v, (int)wanted);
}

static void check_text(const struct gguf *g, const char *key, const char *wanted) {
    struct err e = {0};
    const char *s;
    size_t n;
    assert_int_equal(gguf_get_str(g, key, &s, &n, &e), 0);
    if (!s || n != strlen(wanted) || memcmp(s, wanted, n))
        fail_msg("%s is not '%s'", key, wanted);
}

static void check_list(const struct gguf *g, const char *key, int elem, uint64_t n,
                       const int *wanted) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv || kv->elem != elem || kv->count != n)
        fail_msg("%s is missing or of another kind or length", key);
    for (uint64_t i = 0; i < n; i++)
        assert_int_equal(gguf_array_int(kv, i), wanted[i]);
}

static void check_texts(const struct gguf *g, const char *key, uint64_t n,
                        const char *const *wanted) {
    const struct gguf_kv *kv = gguf_find(g, key);
    assert_true(kv && kv->elem == GGUF_STRING && kv->count == n);
    const unsigned char *cursor = kv->bytes;
    for (uint64_t i = 0; i < n; i++) {
        size_t length;
        const char *s = gguf_array_str(&cursor, &length);
        if (length != strlen(wanted[i]) || memcmp(s, wanted[i], length))
            fail_msg("%s[%d] is '%.*s'", key, (int)i, (int)length, s);
    }
}

static void check_target_keys(const struct gguf *g) {
    static const struct {
        const char *key;
        int v;
    } ints[] = {
        {"qwen35.block_count", 2},          {"qwen35.context_length", 128},
        {"qwen35.embedding_length", D},     {"qwen35.feed_forward_length", F},
        {"qwen35.attention.head_count", 2}, {"qwen35.attention.head_count_kv", 1},
        {"qwen35.attention.key_length", 8}, {"qwen35.attention.value_length", 8},
        {"qwen35.rope.dimension_count", 4}, {"qwen35.ssm.conv_kernel", 4},
        {"qwen35.ssm.state_size", DV},      {"qwen35.ssm.group_count", KEYS},
        {"qwen35.ssm.time_step_rank", NV},  {"qwen35.ssm.inner_size", VD},
        {"qwen35.vocab_size", V},           {"tokenizer.ggml.eos_token_id", 4},
        {"tokenizer.ggml.eot_token_id", 5}, {"general.file_type", 0},
    };
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        check_int(g, ints[i].key, ints[i].v);
    check_list(g, "qwen35.rope.dimension_sections", GGUF_I32, 4, (const int[]){1, 1, 0, 0});
    check_list(g, "qwen35.attention.recurrent_layers", GGUF_BOOL, 2, (const int[]){1, 0});
    assert_null(gguf_find(g, "qwen35.full_attention_interval")); // the pattern is not every 4th
    assert_null(gguf_tensor(g, "output.weight"));
    check_text(g, "general.architecture", "qwen35");
}

static void check_tokenizer(const struct gguf *g) {
    static const char *const tokens[] = {"a",       "b",       "\xc4\xa0", "ab",
                                         "<|end|>", "<think>", "[PAD6]",   "[PAD7]"};
    static const char *const merges[] = {"a b", "ab \xc4\xa0", "\xc4\xa0 a"};
    struct err e = {0};
    bool yes;
    check_text(g, "tokenizer.ggml.model", "gpt2");
    check_text(g, "tokenizer.ggml.pre", "qwen35");
    check_texts(g, "tokenizer.ggml.tokens", 8, tokens);
    check_texts(g, "tokenizer.ggml.merges", 3, merges);
    check_list(g, "tokenizer.ggml.token_type", GGUF_I32, 8, (const int[]){1, 1, 1, 1, 3, 4, 5, 5});
    assert_int_equal(gguf_get_bool(g, "tokenizer.ggml.normalizer.nfc", false, &yes, &e), 0);
    assert_true(yes);
    assert_int_equal(gguf_get_bool(g, "tokenizer.ggml.add_bos_token", true, &yes, &e), 0);
    assert_false(yes);
}

static void converts_a_target(void **state) {
    (void)state;
    hf_write_folders();
    struct gguf *g = converted(hf_target, "F32", NULL);
    check_all_tensors(g);
    check_target_keys(g);
    check_tokenizer(g);
    check_text(g, "tokenizer.chat_template", "{{ x }}");
    assert_int_equal(gguf_tensor_count(g), 27);
    gguf_close(g);
    hf_write_edited(hf_target, "chat_template.jinja", "{{ y }}", NULL, NULL);
    g = converted(hf_target, "F32", NULL);
    check_text(g, "tokenizer.chat_template", "{{ y }}");
    gguf_close(g);
}

// The multimodal form: text_config, another prefix, vision parts, a head of its own.
static void converts_a_multimodal_folder(void **state) {
    (void)state;
    static const struct source more[] = {{"lm_head.weight", {V, D}},
                                         {"model.visual.patch_embed.proj.weight", {2, 2, 2, 2, 2}},
                                         {"model.visual.norm.weight", {3}},
                                         {NULL, {0}}};
    struct str s = {0};
    hf_write_folders();
    str_puts(&s, "{\"model_type\":\"qwen3_5\",\"tie_word_embeddings\":false,\"text_config\":");
    str_puts(&s, hf_target_config);
    str_puts(&s, "}");
    hf_write_edited(hf_target, "config.json", s.data, "\"tie_word_embeddings\":true,", "");
    str_fini(&s);
    hf_write_weights(hf_target, "model.language_model.", hf_target_tensors, more, NULL);
    struct gguf *g = converted(hf_target, "F32", NULL);
    check_all_tensors(g);
    same(g, "output.weight", "lm_head.weight", 0);
    assert_int_equal(gguf_tensor_count(g), 28);
    gguf_close(g);
}

static void check_draft(const struct gguf *g) {
    check_text(g, "general.architecture", "dflash");
    check_int(g, "dflash.block_count", 1);
    check_int(g, "dflash.block_size", 4);
    check_int(g, "dflash.attention.head_count", 2);
    check_int(g, "dflash.attention.sliding_window", 16);
    check_int(g, "tokenizer.ggml.mask_token_id", 6);
    check_list(g, "dflash.target_layers", GGUF_I32, 2, (const int[]){1, 2}); // id + 1
    check_list(g, "dflash.attention.sliding_window_pattern", GGUF_BOOL, 1, (const int[]){1});
    assert_null(gguf_find(g, "dflash.attention.causal"));
    same(g, "fc.weight", "fc.weight", 0);
    same(g, "enc.output_norm.weight", "hidden_norm.weight", 0);
    same(g, "output_norm.weight", "norm.weight", 0);
    same(g, "blk.0.attn_norm.weight", "layers.0.input_layernorm.weight", 0);
    same(g, "blk.0.ffn_norm.weight", "layers.0.post_attention_layernorm.weight", 0);
    same(g, "blk.0.attn_output.weight", "layers.0.self_attn.o_proj.weight", 0);
    assert_int_equal(gguf_tensor_count(g), 14);
    check_tokenizer(g);
}

static void converts_a_draft(void **state) {
    (void)state;
    struct err e = {0};
    struct convert_options o = hf_options("F32", NULL);
    bool causal;
    hf_write_folders();
    struct gguf *g = converted(hf_draft, "F32", hf_target);
    check_draft(g);
    gguf_close(g);
    assert_int_equal(convert_hf(hf_target, hf_second, &o, &e), 0);
    hf_write_edited(hf_draft, "config.json", hf_draft_config, "\"hidden_size\"",
                    "\"is_causal\":false,\"hidden_size\"");
    hf_write_weights(hf_draft, "model.", hf_draft_tensors, NULL, NULL);
    g = converted(hf_draft, "F32", hf_second); // the target as a GGUF file
    assert_int_equal(gguf_get_bool(g, "dflash.attention.causal", true, &causal, &e), 0);
    assert_false(causal);
    check_tokenizer(g);
    gguf_close(g);
}

// Types with the fallbacks for rows of 32 and 24 elements.
static void picks_types(void **state) {
    (void)state;
    static const struct {
        const char *recipe, *tensor;
        int type;
    } cases[] = {
        {"F16", "blk.1.attn_q.weight", TYPE_F16},
        {"F16", "blk.0.ssm_conv1d.weight", TYPE_F32},
        {"F16", "blk.0.ssm_alpha.weight", TYPE_F16},
        {"BF16", "token_embd.weight", TYPE_BF16},
        {"Q8_0", "token_embd.weight", TYPE_Q8_0},
        {"Q8_0", "blk.0.ssm_alpha.weight", TYPE_Q8_0},
        {"Q8_0", "blk.0.ssm_out.weight", TYPE_F16},
        {"Q4_0", "blk.0.ssm_beta.weight", TYPE_Q8_0},
        {"Q4_0", "token_embd.weight", TYPE_Q8_0},
        {"Q4_0", "blk.1.attn_k.weight", TYPE_Q4_0},
        {"Q4_K", "blk.1.attn_k.weight", TYPE_Q5_0},
        {"Q5_K", "blk.1.ffn_up.weight", TYPE_Q5_1},
        {"Q6_K", "blk.1.ffn_down.weight", TYPE_Q8_0},
        {"Q4_K_M", "blk.0.ffn_down.weight", TYPE_Q5_0},
        {"Q4_K_M", "blk.1.attn_v.weight", TYPE_Q8_0},
        {"Q8_0", "blk.0.attn_norm.weight", TYPE_F32},
        {"Q8_0", "blk.0.ssm_a", TYPE_F32},
    };
    struct convert_options f32 = hf_options("F32", NULL);
    struct err e = {0};
    hf_write_folders();
    assert_int_equal(convert_hf(hf_target, hf_second, &f32, &e), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct convert_options o = hf_options(cases[i].recipe, NULL);
        struct gguf *g = NULL;
        assert_int_equal(convert_quantize(hf_second, hf_out, &o, &e), 0);
        assert_int_equal(gguf_open(&g, hf_out, &e), 0);
        const struct tensor *t = gguf_tensor(g, cases[i].tensor);
        if (!t || (int)t->type != cases[i].type)
            fail_msg("%s: %s has type %d", cases[i].recipe, cases[i].tensor, t ? (int)t->type : -1);
        check_tokenizer(g);
        gguf_close(g);
    }
}

static size_t read_all(const char *path, char *buffer, size_t room) {
    FILE *f = fopen(path, "rb");
    size_t n = f ? fread(buffer, 1, room, f) : 0;
    if (f)
        fclose(f);
    return n;
}

// Quantising an F32 file gives the very bytes of converting to that type at once.
static void quantises_like_converting(void **state) {
    (void)state;
    static const char *const names[] = {"Q8_0", "F16", "Q4_K_M", "F32"};
    static char a[1 << 18], b[1 << 18];
    struct err e = {0};
    char direct[96];
    hf_write_folders();
    snprintf(direct, sizeof direct, "%s/direct.gguf", hf_root);
    for (int i = 0; i < 4; i++) {
        struct convert_options f32 = hf_options("F32", NULL), o = hf_options(names[i], NULL);
        assert_int_equal(convert_hf(hf_target, hf_second, &f32, &e), 0);
        assert_int_equal(convert_hf(hf_target, direct, &o, &e), 0);
        assert_int_equal(convert_quantize(hf_second, hf_out, &o, &e), 0);
        size_t n = read_all(direct, a, sizeof a);
        assert_true(n > 1000 && n < sizeof a);
        assert_int_equal(read_all(hf_out, b, sizeof b), n);
        assert_memory_equal(a, b, n);
    }
    unlink(direct);
}

static int stop_at_once(void *arg, const char *name, int64_t done, int64_t total) {
    (void)name;
    assert_true(done > 0 && done <= total);
    return ++*(int *)arg == 3;
}

static void stops_on_request(void **state) {
    (void)state;
    int calls = 0;
    struct convert_options o = hf_options("F32", NULL);
    struct err e = {0};
    unlink(hf_out);
    hf_write_folders();
    o.progress = stop_at_once;
    o.progress_arg = &calls;
    assert_int_equal(convert_hf(hf_target, hf_out, &o, &e), ERR_STATE);
    assert_int_equal(calls, 3);
    assert_int_equal(access(hf_out, F_OK), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(converts_a_target),         cmocka_unit_test(converts_a_multimodal_folder),
        cmocka_unit_test(converts_a_draft),          cmocka_unit_test(picks_types),
        cmocka_unit_test(quantises_like_converting), cmocka_unit_test(stops_on_request),
    };
    return cmocka_run_group_tests(tests, hf_set_up, hf_tear_down);
}
