// SPDX-License-Identifier: Apache-2.0
// Blocks that predict further tokens, from HuggingFace folders: what is written of them, alone or
// with the model, what of them is refused, and their types when a file is quantised. That names,
// keys and bytes are those of the established converter: test_convert_established.
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/str.h"
#include "convert/synth/synth.h"
#include "formats/gguf/gguf.h"
#include "formats/quant/quant.h"
#include "unit/hf_folder.h"
#include "unit/test.h"

// Of the target of hf_folder.h.
static const struct source block[] = {
    {"mtp.fc.weight", {D, 2 * D}},
    {"mtp.norm.weight", {D}},
    {"mtp.pre_fc_norm_embedding.weight", {D}},
    {"mtp.pre_fc_norm_hidden.weight", {D}},
    {"mtp.layers.0.input_layernorm.weight", {D}},
    {"mtp.layers.0.post_attention_layernorm.weight", {D}},
    {"mtp.layers.0.mlp.gate_proj.weight", {F, D}},
    {"mtp.layers.0.mlp.up_proj.weight", {F, D}},
    {"mtp.layers.0.mlp.down_proj.weight", {D, F}},
    {"mtp.layers.0.self_attn.q_proj.weight", {2 * HD * HEADS, D}},
    {"mtp.layers.0.self_attn.k_proj.weight", {HD, D}},
    {"mtp.layers.0.self_attn.v_proj.weight", {HD, D}},
    {"mtp.layers.0.self_attn.o_proj.weight", {D, HD *HEADS}},
    {"mtp.layers.0.self_attn.q_norm.weight", {HD}},
    {"mtp.layers.0.self_attn.k_norm.weight", {HD}},
    {NULL, {0}},
};
enum { BLOCK = sizeof block / sizeof *block - 1, TRUNK = 27 };

// A layer of glm4moe and a prediction block, both with experts.
enum { FE = 16 };
#define ATTENTION(p)                                                                               \
    {p "input_layernorm.weight", {D}}, {p "post_attention_layernorm.weight", {D}},                 \
        {p "self_attn.q_proj.weight", {HD * HEADS, D}}, {p "self_attn.k_proj.weight", {HD, D}},    \
        {p "self_attn.v_proj.weight", {HD, D}}, {                                                  \
        p "self_attn.o_proj.weight", {                                                             \
            D, HD *HEADS                                                                           \
        }                                                                                          \
    }
#define MLP(p, f)                                                                                  \
    {p "gate_proj.weight", {f, D}}, {p "up_proj.weight", {f, D}}, {                                \
        p "down_proj.weight", {                                                                    \
            D, f                                                                                   \
        }                                                                                          \
    }
#define EXPERTS(p)                                                                                 \
    {p "gate.weight", {2, D}}, {p "gate.e_score_correction_bias", {2}},                            \
        MLP(p "shared_experts.", FE), MLP(p "experts.0.", FE), MLP(p "experts.1.", FE)
static const struct source glm[] = {
    {"embed_tokens.weight", {V, D}},
    {"norm.weight", {D}},
    ATTENTION("layers.0."),
    EXPERTS("layers.0.mlp."),
    ATTENTION("layers.1."),
    EXPERTS("layers.1.mlp."),
    {"layers.1.eh_proj.weight", {D, 2 * D}},
    {"layers.1.enorm.weight", {D}},
    {"layers.1.hnorm.weight", {D}},
    {"layers.1.shared_head.norm.weight", {D}},
    {"layers.1.embed_tokens.weight", {V, D}},
    {"layers.1.shared_head.head.weight", {V, D}},
    {NULL, {0}},
};
static const struct source head[] = {{"lm_head.weight", {V, D}}, {NULL, {0}}};
static const char glm_config[] =
    "{\"model_type\":\"glm4_moe\",\"vocab_size\":8,\"hidden_size\":32,\"num_hidden_layers\":1,"
    "\"intermediate_size\":64,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,"
    "\"max_position_embeddings\":128,\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\","
    "\"n_routed_experts\":2,\"num_experts_per_tok\":1,\"moe_intermediate_size\":16,"
    "\"first_k_dense_replace\":0,\"rope_theta\":10000.0,\"num_nextn_predict_layers\":1}";

static char notes[512];

static void __attribute__((format(printf, 1, 2))) keep_note(const char *format, ...) {
    va_list args;
    va_start(args, format);
    vsnprintf(notes, sizeof notes, format, args);
    va_end(args);
}

static void write_folder(const char *config, const char *from, const char *to,
                         const struct source *more, const struct edit *x) {
    hf_write_folders();
    hf_write_edited(hf_target, "config.json", config, from, to);
    hf_write_weights(hf_target, "model.", config == glm_config ? glm : hf_target_tensors, more, x);
}

static struct gguf *converted(const char *out, enum convert_mtp mtp) {
    struct convert_options o = hf_options("F32", NULL);
    struct err e = {0};
    struct gguf *g = NULL;
    o.mtp = mtp;
    o.note = keep_note;
    notes[0] = 0;
    if (convert_hf(hf_target, out, &o, &e) || gguf_open(&g, out, &e))
        fail_msg("%s", e.text);
    return g;
}

static void check_int(const struct gguf *g, const char *key, int64_t wanted) {
    struct err e = {0};
    int64_t v = -1;
    assert_int_equal(gguf_get_int(g, key, 0, INT32_MAX, 0, &v, &e), 0);
    if (v != wanted)
        fail_msg("%s is %d, not %d", key, (int)v, (int)wanted);
}

static void same(const struct gguf *g, const char *name, const char *source, float add) {
    const struct tensor *t = gguf_tensor(g, name);
    if (!t || t->type != TYPE_F32)
        fail_msg("%s is missing or no F32", name);
    for (int64_t i = 0; i < t->bytes / 4; i++) {
        float v;
        memcpy(&v, (const char *)t->data + 4 * i, sizeof v);
        if (v != hf_value(source, i) + add)
            fail_msg("%s differs at %d", name, (int)i);
    }
}

static void check_block(const struct gguf *g) {
    same(g, "blk.2.nextn.eh_proj.weight", "mtp.fc.weight", 0);
    same(g, "blk.2.nextn.enorm.weight", "mtp.pre_fc_norm_embedding.weight", 1);
    same(g, "blk.2.nextn.hnorm.weight", "mtp.pre_fc_norm_hidden.weight", 1);
    same(g, "blk.2.nextn.shared_head_norm.weight", "mtp.norm.weight", 1);
    same(g, "blk.2.attn_norm.weight", "mtp.layers.0.input_layernorm.weight", 1);
    same(g, "blk.2.post_attention_norm.weight", "mtp.layers.0.post_attention_layernorm.weight", 1);
    same(g, "blk.2.attn_q.weight", "mtp.layers.0.self_attn.q_proj.weight", 0);
    same(g, "blk.2.attn_k_norm.weight", "mtp.layers.0.self_attn.k_norm.weight", 1);
    same(g, "blk.2.ffn_down.weight", "mtp.layers.0.mlp.down_proj.weight", 0);
    check_int(g, "qwen35.block_count", 3);
    check_int(g, "qwen35.nextn_predict_layers", 1);
    const struct gguf_kv *kinds = gguf_find(g, "qwen35.attention.recurrent_layers");
    assert_true(kinds && kinds->count == 3 && gguf_array_int(kinds, 2) == 0);
}

#define WITH_KEY "\"vocab_size\":8", "\"vocab_size\":8,\"mtp_num_hidden_layers\":1"

static void writes_the_block(void **state) {
    (void)state;
    write_folder(hf_target_config, WITH_KEY, block, NULL);
    struct gguf *g = converted(hf_out, CONVERT_MTP_KEEP);
    check_block(g);
    same(g, "blk.1.attn_q.weight", "layers.1.self_attn.q_proj.weight", 0);
    assert_int_equal(gguf_tensor_count(g), TRUNK + BLOCK);
    assert_string_equal(notes, "");
    gguf_close(g);
    g = converted(hf_out, CONVERT_MTP_ONLY);
    check_block(g);
    assert_int_equal(gguf_tensor_count(g), 2 + BLOCK); // embedding, which is the head, last norm
    assert_non_null(gguf_find(g, "tokenizer.ggml.tokens"));
    gguf_close(g);
}

// Folders of fine-tunes have the key without the block, or the block without the key.
static void counts_tensors(void **state) {
    (void)state;
    write_folder(hf_target_config, NULL, NULL, block, NULL);
    struct gguf *g = converted(hf_out, CONVERT_MTP_KEEP);
    check_block(g);
    assert_non_null(strstr(notes, "mtp_num_hidden_layers 0, but the folder holds 1 such blocks"));
    gguf_close(g);
    write_folder(hf_target_config, WITH_KEY, NULL, NULL);
    g = converted(hf_out, CONVERT_MTP_KEEP);
    check_int(g, "qwen35.block_count", 2);
    assert_null(gguf_find(g, "qwen35.nextn_predict_layers"));
    assert_non_null(strstr(notes, "mtp_num_hidden_layers 1, but the folder holds 0 such blocks"));
    gguf_close(g);
}

// As if the folder had none.
static void leaves_it_out(void **state) {
    (void)state;
    struct str with = {0}, without = {0};
    struct err e = {0};
    write_folder(hf_target_config, WITH_KEY, block, NULL);
    gguf_close(converted(hf_out, CONVERT_MTP_DROP));
    assert_string_equal(notes, "");
    hf_write_folders();
    gguf_close(converted(hf_second, CONVERT_MTP_KEEP));
    assert_int_equal(file_read(&with, hf_out, 1 << 20, &e), 0);
    assert_int_equal(file_read(&without, hf_second, 1 << 20, &e), 0);
    assert_int_equal(with.len, without.len);
    assert_memory_equal(with.data, without.data, with.len);
    str_fini(&with);
    str_fini(&without);
    write_folder(glm_config, NULL, NULL, head, NULL);
    struct gguf *g = converted(hf_out, CONVERT_MTP_DROP);
    check_int(g, "glm4moe.block_count", 1);
    assert_null(gguf_tensor(g, "blk.1.attn_q.weight"));
    gguf_close(g);
}

// An embedding or head of the block's own is written where it is not the model's.
static void drops_copies(void **state) {
    (void)state;
    static const struct edit edits[] = {
        {.copy = "layers.1.embed_tokens.weight", .of = "embed_tokens.weight"},
        {.copy = "layers.1.shared_head.head.weight", .of = "lm_head.weight"},
    };
    static const char *const names[] = {"blk.1.nextn.embed_tokens.weight",
                                        "blk.1.nextn.shared_head_head.weight"};
    write_folder(glm_config, NULL, NULL, head, NULL);
    struct gguf *g = converted(hf_out, CONVERT_MTP_KEEP);
    same(g, names[0], "layers.1.embed_tokens.weight", 0);
    same(g, names[1], "layers.1.shared_head.head.weight", 0);
    same(g, "blk.1.nextn.eh_proj.weight", "layers.1.eh_proj.weight", 0);
    same(g, "blk.1.nextn.enorm.weight", "layers.1.enorm.weight", 0);
    check_int(g, "glm4moe.nextn_predict_layers", 1);
    check_int(g, "glm4moe.block_count", 2);
    gguf_close(g);
    for (int i = 0; i < 2; i++) {
        write_folder(glm_config, NULL, NULL, head, &edits[i]);
        g = converted(hf_out, CONVERT_MTP_KEEP);
        assert_null(gguf_tensor(g, names[i]));
        assert_non_null(gguf_tensor(g, names[1 - i]));
        gguf_close(g);
    }
}

static void refused(enum convert_mtp mtp, const char *words) {
    struct convert_options o = hf_options("F32", NULL);
    struct err e = {0};
    o.mtp = mtp;
    if (!convert_hf(hf_target, hf_out, &o, &e) || !strstr(e.text, words))
        fail_msg("\"%s\", wanted \"%s\"", e.text, words);
}

static void refuses_by_name(void **state) {
    (void)state;
    static const struct source odd[] = {{"mtp.layers.1.input_layernorm.weight", {D}}, {NULL, {0}}};
    static const struct source alone[] = {{"mtp.fc.weight", {D, D}}, {NULL, {0}}};
    const struct edit drop = {.drop = "mtp.layers.0.self_attn.k_proj.weight"};
    const struct edit dense = {.drop = "layers.1.mlp.gate.weight"};
    const struct edit shape = {.reshape = "mtp.fc.weight"};
    write_folder(hf_target_config, NULL, NULL, block, &drop);
    refused(CONVERT_MTP_KEEP, "no tensor 'mtp.layers.0.self_attn.k_proj.weight': the checkpoint is "
                              "not complete, get it again, or leave its prediction block out with "
                              "--no-mtp");
    write_folder(hf_target_config, NULL, NULL, block, &shape);
    refused(CONVERT_MTP_KEEP, "'mtp.fc.weight' has shape [64, 31");
    write_folder(hf_target_config, NULL, NULL, alone, NULL);
    refused(CONVERT_MTP_KEEP, "--no-mtp");
    write_folder(hf_target_config, NULL, NULL, odd, NULL);
    refused(CONVERT_MTP_KEEP, "'mtp.layers.1.input_layernorm.weight', of prediction block 1");
    hf_write_folders();
    refused(CONVERT_MTP_ONLY, "holds no block that predicts further tokens");
    write_folder(glm_config, NULL, NULL, head, &dense);
    refused(CONVERT_MTP_KEEP, "no tensor 'layers.1.mlp.gate.weight'");
    write_folder(glm_config, "\"num_hidden_layers\":1", "\"num_hidden_layers\":2", head, NULL);
    refused(CONVERT_MTP_KEEP, "'model.layers.1.eh_proj.weight', which has no place"); // of a layer
}

// The type of a tensor of the first file after quantising it; imatrix may be NULL.
static int type_after(const char *recipe, const char *name, const struct imatrix *m,
                      struct convert_report *r) {
    struct convert_options o = hf_options(recipe, NULL);
    struct gguf *g = NULL;
    struct err e = {0};
    o.imatrix = m;
    o.report = r;
    if (convert_quantize(hf_second, hf_out, &o, &e) || gguf_open(&g, hf_out, &e))
        fail_msg("%s: %s", recipe, e.text);
    const struct tensor *t = gguf_tensor(g, name);
    int type = t ? (int)t->type : -1;
    check_int(g, "qwen35.nextn_predict_layers", 1);
    gguf_close(g);
    return type;
}

// Importances of all matrices of the layers, as `coppice imatrix` writes them.
static struct imatrix *importances(void) {
    static double squares[1024];
    struct imatrix_sum sums[128];
    struct imatrix *m = NULL;
    struct gguf *g = NULL;
    struct gguf_writer *w = NULL;
    struct err e = {0};
    size_t n = 0;
    for (int i = 0; i < 1024; i++)
        squares[i] = 1 + i % 7;
    assert_int_equal(gguf_open(&g, hf_second, &e), 0);
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const struct tensor *t = gguf_tensor_at(g, i);
        if (t->n_dims == 2 && !strncmp(t->name, "blk.", 4) && strncmp(t->name, "blk.4.", 6) != 0 &&
            n < 128 && t->ne[0] <= 1024)
            sums[n++] = (struct imatrix_sum){t->name, squares, t->ne[0], 1, 0, NULL};
    }
    const struct imatrix_info info = {"text", 1, 1};
    if (gguf_writer_open(&w, hf_out, &e) || imatrix_write(w, sums, n, &info, &e) ||
        imatrix_open(&m, hf_out, &e))
        fail_msg("%s", e.text);
    gguf_close(g);
    return m;
}

// The joining matrix keeps eight bits; a block without importances gets no type that needs some.
static void keeps_bits(void **state) {
    (void)state;
    static const char joins[] = "blk.4.nextn.eh_proj.weight", query[] = "blk.4.attn_q.weight";
    const struct synth_options o = {
        .shape = synth_shape("qwen35-tiny-mtp"), .recipe = convert_recipe("F16"), .threads = 1};
    struct convert_report r;
    struct err e = {0};
    assert_non_null(o.shape);
    if (synth_write(hf_second, &o, &e))
        fail_msg("%s", e.text);
    assert_int_equal(type_after("Q4_K_M", joins, NULL, &r), TYPE_Q8_0);
    assert_int_equal(type_after("Q2_K", joins, NULL, &r), TYPE_Q8_0);
    assert_int_equal(type_after("BF16", joins, NULL, &r), TYPE_BF16);
    assert_int_equal(type_after("Q4_K_M", query, NULL, &r), TYPE_Q4_K);
    assert_int_equal(r.unweighted, 0);
    struct imatrix *m = importances();
    assert_int_equal(type_after("IQ2_XXS", joins, m, &r), TYPE_Q8_0);
    assert_int_equal(type_after("IQ2_XXS", query, m, &r), TYPE_Q8_0);
    assert_true(r.unweighted >= 8);
    assert_int_equal(type_after("IQ2_XXS", "blk.3.attn_q.weight", m, &r), TYPE_IQ2_XXS);
    assert_int_equal(type_after("Q4_K_M", query, m, &r), TYPE_Q4_K);
    imatrix_close(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_the_block), cmocka_unit_test(counts_tensors),
        cmocka_unit_test(leaves_it_out),    cmocka_unit_test(drops_copies),
        cmocka_unit_test(refuses_by_name),  cmocka_unit_test(keeps_bits),
    };
    return cmocka_run_group_tests(tests, hf_set_up, hf_tear_down);
}
