// SPDX-License-Identifier: Apache-2.0
// Files that must not load: each edit of a good file is refused with a sentence that names the
// culprit, and random damage to its metadata never does worse than that.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/file.h"
#include "base/rng.h"
#include "formats/quant/quant.h"
#include "support/tiny_rig.h"
#include "unit/bad_files.h"
#include "unit/test.h"

static const struct bad targets[] = {
    {0, "", {0}},
    {0, "", {.key = "qwen35.block_count", .kind = GGUF_U64, .value = 5}},
    {ERR_MISMATCH,
     "blk.3.attn_norm.weight, but only 3 layers", // and one more that predicts
     {.key = "qwen35.block_count", .kind = GGUF_U32, .value = 4}},
    {ERR_UNSUPPORTED,
     "qwen35.attention.sliding_window is 64",
     {.key = "qwen35.attention.sliding_window", .kind = GGUF_U32, .value = 64}},
    {ERR_UNSUPPORTED,
     "qwen35.attention.causal is 0",
     {.key = "qwen35.attention.causal", .kind = GGUF_BOOL, .value = 0}},
    {0, "", {.key = "qwen35.attention.causal", .kind = GGUF_BOOL, .value = 1}},
    {0, "", {.key = "qwen35.logit_scale", .kind = GGUF_F32, .number = 0}},
    {ERR_UNSUPPORTED,
     "qwen35.final_logit_softcapping is 30",
     {.key = "qwen35.final_logit_softcapping", .kind = GGUF_F32, .number = 30}},
    {ERR_UNSUPPORTED,
     "blk.3.attn_sinks.weight",
     {.tensor = "blk.4.attn_norm.weight", .name = "blk.3.attn_sinks.weight"}},
    {ERR_MISMATCH,
     "blk.1.attn_qkv", // without the convolution that would make it recurrent
     {.key = "qwen35.full_attention_interval", .kind = GGUF_U32, .value = 7}},
    {0, "", {.key = "qwen35.attention.scale", .kind = GGUF_F32, .number = 0.2}},
    {ERR_UNSUPPORTED,
     "qwen3next",
     {.key = "general.architecture", .kind = GGUF_STRING, .text = "qwen3next"}},
    {ERR_FORMAT, "architecture", {.key = "general.architecture", .kind = -1}},
    {ERR_UNSUPPORTED, "prism", {.key = "prism.hadamard.size", .kind = GGUF_U32, .value = 1}},
    {ERR_FORMAT,
     "qwen35.rope.scaling.factor",
     {.key = "qwen35.rope.scaling.type", .kind = GGUF_STRING, .text = "yarn"}},
    {ERR_UNSUPPORTED,
     "longrope",
     {.key = "qwen35.rope.scaling.type", .kind = GGUF_STRING, .text = "longrope"}},
    {ERR_FORMAT, "block_count", {.key = "qwen35.block_count", .kind = -1}},
    {ERR_FORMAT, "block_count", {.key = "qwen35.block_count", .kind = GGUF_U32, .value = 0}},
    {ERR_FORMAT,
     "block_count",
     {.key = "qwen35.block_count", .kind = GGUF_U32, .value = 4294967295}},
    {ERR_MISMATCH, "blk.4.", {.key = "qwen35.block_count", .kind = GGUF_U32, .value = 6}},
    {ERR_FORMAT, "nextn", {.key = "qwen35.nextn_predict_layers", .kind = GGUF_U32, .value = 5}},
    {ERR_FORMAT, "nextn", {.key = "qwen35.nextn_predict_layers", .kind = GGUF_I32, .value = -1}},
    {ERR_FORMAT,
     "embedding_length",
     {.key = "qwen35.embedding_length", .kind = GGUF_U32, .value = 0}},
    {ERR_MISMATCH,
     "token_embd.weight",
     {.key = "qwen35.embedding_length", .kind = GGUF_U32, .value = 128}},
    {ERR_UNSUPPORTED, "32", {.key = "qwen35.embedding_length", .kind = GGUF_U32, .value = 65}},
    {ERR_MISMATCH,
     "ffn_gate",
     {.key = "qwen35.feed_forward_length", .kind = GGUF_U32, .value = 128}},
    {ERR_FORMAT, "epsilon", {.key = "qwen35.attention.layer_norm_rms_epsilon", .kind = GGUF_F32}},
    {ERR_FORMAT,
     "epsilon is missing",
     {.key = "qwen35.attention.layer_norm_rms_epsilon", .kind = -1}},
    {ERR_FORMAT, "freq_base", {.key = "qwen35.rope.freq_base", .kind = GGUF_F32, .number = -1}},
    {ERR_FORMAT,
     "dimension_count",
     {.key = "qwen35.rope.dimension_count", .kind = GGUF_U32, .value = 66}},
    {ERR_UNSUPPORTED, "31", {.key = "qwen35.rope.dimension_count", .kind = GGUF_U32, .value = 31}},
    {ERR_UNSUPPORTED,
     "value length 96",
     {.key = "qwen35.attention.value_length", .kind = GGUF_U32, .value = 96}},
    {ERR_UNSUPPORTED,
     "heads",
     {.key = "qwen35.attention.head_count_kv", .kind = GGUF_U32, .value = 3}},
    {ERR_FORMAT, "head_count", {.key = "qwen35.attention.head_count", .kind = GGUF_U32}},
    {ERR_MISMATCH,
     "attn_q.weight",
     {.key = "qwen35.attention.head_count", .kind = GGUF_U32, .value = 4}},
    {0,
     "",
     {.key = "qwen35.attention.head_count_kv",
      .kind = GGUF_ARRAY,
      .value = 5,
      .list = {0, 1, 0, 1, 1}}},
    {ERR_UNSUPPORTED,
     "2 heads in layer 3",
     {.key = "qwen35.attention.head_count_kv",
      .kind = GGUF_ARRAY,
      .value = 5,
      .list = {0, 1, 0, 2, 1}}},
    {ERR_FORMAT,
     "5 integers",
     {.key = "qwen35.attention.head_count_kv", .kind = GGUF_ARRAY, .value = 3, .list = {0, 1, 0}}},
    {ERR_FORMAT,
     "no heads",
     {.key = "qwen35.attention.head_count_kv",
      .kind = GGUF_ARRAY,
      .value = 5,
      .list = {0, 0, 0, 0, 0}}},
    {ERR_UNSUPPORTED,
     "convolution",
     {.key = "qwen35.ssm.conv_kernel", .kind = GGUF_U32, .value = 3}},
    {ERR_UNSUPPORTED, "recurrent", {.key = "qwen35.ssm.group_count", .kind = GGUF_U32, .value = 3}},
    {ERR_UNSUPPORTED, "inner", {.key = "qwen35.ssm.inner_size", .kind = GGUF_U32, .value = 255}},
    {ERR_MISMATCH,
     "blk.0.attn_qkv",
     {.key = "qwen35.ssm.group_count", .kind = GGUF_U32, .value = 1}},
    {ERR_FORMAT,
     "recurrent_layers",
     {.key = "qwen35.attention.recurrent_layers", .kind = GGUF_BOOL, .value = 1}},
    {ERR_MISMATCH, "token_embd", {.tensor = "token_embd.weight"}},
    {ERR_MISMATCH, "vocabulary", {.tensor = "token_embd.weight", .rows = 200}},
    {ERR_MISMATCH, "output.weight is [64, 200]", {.tensor = "output.weight", .rows = 200}},
    {ERR_MISMATCH, "blk.2.ssm_a", {.tensor = "blk.2.ssm_a"}},
    {ERR_MISMATCH,
     "blk.0.ssm_conv1d",
     {.tensor = "blk.0.ssm_conv1d.weight", .name = "blk.4.nextn.other"}},
    {ERR_MISMATCH, "attn_output", {.tensor = "blk.1.attn_output.weight", .rows = 32}},
    {0, "", {.tensor = "blk.4.attn_norm.weight", .name = "output_extra.weight"}},
    {ERR_UNSUPPORTED,
     "output_other",
     {.tensor = "blk.4.attn_norm.weight", .name = "output_other.weight"}},
    {ERR_UNSUPPORTED, "scale", {.tensor = "blk.4.attn_norm.weight", .name = "blk.3.ffn_up.scale"}},
};

static void test_targets(void **state) {
    (void)state;
    refuse_each(tiny_shape_default(), targets, sizeof targets / sizeof *targets);
}

// Numbers that no linear layer reads: what the backend says has the tensor's name, once.
static void test_numbers(void **state) {
    (void)state;
    const char *name = "blk.3.ffn_up.weight";
    const uint32_t type = TYPE_I32;
    struct model_options o = model_options_default();
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    struct model *m = NULL;
    struct gguf *g;
    struct str file = {0};
    shape.type = TYPE_F32; // of as many bytes
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    assert_int_equal(file_read(&file, r.target_path, 1 << 26, &r.e), 0);
    char *at = memmem(file.data, file.len, name, strlen(name)); // then a count, two sizes, the type
    assert_non_null(at);
    memcpy(at + strlen(name) + 4 + 16, &type, sizeof type);
    assert_int_equal(gguf_open_memory(&g, file.data, file.len, &r.e), 0);
    assert_int_equal(model_load(&m, r.x, g, &o, &r.e), ERR_UNSUPPORTED);
    if (strstr(r.e.text, "tensor blk.3.ffn_up.weight (I32, ") != r.e.text)
        fail_msg("%s", r.e.text);
    gguf_close(g);
    str_fini(&file);
    tiny_rig_close(&r);
}

static const struct bad drafts[] = {
    {0, "", {0}},
    {ERR_MISMATCH, "qwen2", {.key = "general.architecture", .kind = GGUF_STRING, .text = "qwen2"}},
    {ERR_FORMAT,
     "conv_kernel_size",
     {.key = "dflash.conv_kernel_size", .kind = GGUF_U32, .value = 2}},
    {0, "", {.key = "dflash.selector_rank", .kind = GGUF_U32}},
    {ERR_MISMATCH,
     "dflash.domino.enabled",
     {.key = "dflash.domino.enabled", .kind = GGUF_U32, .value = 1}},
    {ERR_UNSUPPORTED, "lilicorr", {.key = "lilicorr.layers", .kind = GGUF_U32, .value = 1}},
    {ERR_UNSUPPORTED,
     "value_scale",
     {.key = "dflash.attention.value_scale", .kind = GGUF_F32, .number = 0.5}},
    {0, "", {.key = "dflash.sample_from_anchor", .kind = GGUF_BOOL, .value = 1}},
    {0, "", {.key = "dflash.has_confidence_head", .kind = GGUF_BOOL, .value = 1}},
    {ERR_FORMAT,
     "sample_from_anchor",
     {.key = "dflash.sample_from_anchor", .kind = GGUF_STRING, .text = "yes"}},
    {ERR_UNSUPPORTED,
     "decoder_arch",
     {.key = "dflash.decoder_arch", .kind = GGUF_STRING, .text = "lagoon"}},
    {0, "", {.key = "dflash.decoder_arch", .kind = GGUF_STRING, .text = "laguna"}},
    {0, "", {.key = "dflash.logit_scale", .kind = GGUF_F32, .number = 0.5}},
    {ERR_FORMAT, "logit_scale", {.key = "dflash.logit_scale", .kind = GGUF_F32, .number = -1}},
    {ERR_FORMAT,
     "embedding_scale",
     {.key = "dflash.embedding_scale", .kind = GGUF_F32, .number = -2}},
    {0, "", {.key = "dflash.final_logit_softcapping", .kind = GGUF_F32, .number = 30}},
    {ERR_FORMAT,
     "softcapping",
     {.key = "dflash.final_logit_softcapping", .kind = GGUF_F32, .number = -30}},
    {ERR_FORMAT,
     "rope.scaling.factor",
     {.key = "dflash.rope.scaling.type", .kind = GGUF_STRING, .text = "yarn"}},
    {ERR_UNSUPPORTED,
     "longrope",
     {.key = "dflash.rope.scaling.type", .kind = GGUF_STRING, .text = "longrope"}},
    {ERR_UNSUPPORTED,
     "dimension_count",
     {.key = "dflash.rope.dimension_count", .kind = GGUF_U32, .value = 31}},
    {ERR_MISMATCH, "wide", {.key = "dflash.embedding_length", .kind = GGUF_U32, .value = 128}},
    {ERR_FORMAT, "block_size", {.key = "dflash.block_size", .kind = GGUF_U32, .value = 65}},
    {ERR_UNSUPPORTED, "1 tokens", {.key = "dflash.block_size", .kind = GGUF_U32, .value = 1}},
    {ERR_MISMATCH, "mask", {.key = "tokenizer.ggml.mask_token_id", .kind = GGUF_U32, .value = 300}},
    {ERR_MISMATCH, "mask", {.key = "tokenizer.ggml.mask_token_id", .kind = -1}}, // 248070
    {ERR_FORMAT, "target_layers", {.key = "dflash.target_layers", .kind = GGUF_U32, .value = 1}},
    {0, "", {.key = "dflash.target_layers", .kind = -1}}, // the authors' default
    {ERR_MISMATCH, "attn_q", {.key = "dflash.attention.head_count", .kind = GGUF_U32, .value = 4}},
    {ERR_FORMAT, "head_count", {.key = "dflash.attention.head_count", .kind = GGUF_U32}},
    {ERR_MISMATCH, "blk.2.", {.key = "dflash.block_count", .kind = GGUF_U32, .value = 3}},
    {ERR_UNSUPPORTED, "blk.1.", {.key = "dflash.block_count", .kind = GGUF_U32, .value = 1}},
    {ERR_MISMATCH, "301", {.key = "dflash.vocab_size", .kind = GGUF_U32, .value = 301}},
    {0, "", {.key = "dflash.vocab_size", .kind = GGUF_U32, .value = 300}},
    {ERR_MISMATCH, "fc.weight", {.tensor = "fc.weight"}},
    {ERR_UNSUPPORTED, "markov_w1", {.tensor = "blk.0.attn_norm.weight", .name = "markov_w1"}},
    {ERR_MISMATCH, "ffn_down", {.tensor = "blk.1.ffn_down.weight", .rows = 32}},
};

// The same of a draft with convolutions of two taps and a selector of rank 24 over 8 candidates.
static const struct bad drafts2[] = {
    {0, "", {0}},
    {0, "", {.key = "dflash.selector_top_k", .kind = GGUF_U32, .value = 9}},
    {ERR_FORMAT, "go together", {.key = "dflash.selector_top_k", .kind = -1}},
    {ERR_FORMAT,
     "selector_top_k",
     {.key = "dflash.selector_top_k", .kind = GGUF_U32, .value = 1025}},
    {ERR_FORMAT, "selector_rank", {.key = "dflash.selector_rank", .kind = -1}},
    {ERR_FORMAT,
     "groups of 24 of 64",
     {.key = "dflash.conv_group_size", .kind = GGUF_U32, .value = 24}},
    {ERR_FORMAT, "conv_kernel_size", {.key = "dflash.conv_kernel_size", .kind = -1}},
    {ERR_MISMATCH,
     "blk.0.attn_conv_base is [64, 2, 2]",
     {.key = "dflash.conv_kernel_size", .kind = GGUF_U32, .value = 3}},
    {ERR_MISMATCH,
     "selector_hidden.weight is [64, 24]",
     {.key = "dflash.selector_rank", .kind = GGUF_U32, .value = 32}},
    {ERR_MISMATCH, "blk.1.ffn_conv_proj.weight", {.tensor = "blk.1.ffn_conv_proj.weight"}},
    {ERR_MISMATCH, "blk.0.attn_conv_base", {.tensor = "blk.0.attn_conv_base"}},
    {ERR_MISMATCH, "no tensor selector_successor.weight", {.tensor = "selector_successor.weight"}},
    {ERR_MISMATCH,
     "selector_predecessor.weight is [24, 200] but [24, 300]",
     {.tensor = "selector_predecessor.weight", .rows = 200}},
};

// Those with an embedding, and a head for some tokens.
static const struct bad drafts_own[] = {
    {0, "", {0}},
    {ERR_MISMATCH, "output.weight is [64, 150] but [64, 300]", {.tensor = "d2t"}},
    {ERR_MISMATCH, "output.weight is missing", {.tensor = "output.weight"}},
    {ERR_MISMATCH, "output.weight is [64, 100]", {.tensor = "output.weight", .rows = 100}},
    {ERR_MISMATCH, "token_embd.weight", {.tensor = "token_embd.weight", .rows = 200}},
};

// With a Markov head of those tokens. What t2d says is not read; what is not known is refused.
static const struct bad dsparks_own[] = {
    {0, "", {0}},
    {0, "", {.tensor = "conf_proj.bias", .name = "t2d"}},
    {ERR_UNSUPPORTED, "t2e", {.tensor = "conf_proj.bias", .name = "t2e"}},
    {ERR_MISMATCH,
     "markov_w2.weight is [24, 100] but [24, 150]",
     {.tensor = "markov_w2.weight", .rows = 100}},
    {ERR_MISMATCH,
     "markov_w1.weight is [24, 150] but [24, 300]",
     {.tensor = "markov_w1.weight", .rows = 150}},
};

// The same of a draft with a gated Markov head of rank 24.
static const struct bad dsparks[] = {
    {0, "", {0}},
    {0, "", {.key = "dflash.sample_from_anchor", .kind = GGUF_BOOL, .value = 0}},
    {0, "", {.key = "dflash.markov_head_type", .kind = GGUF_STRING, .text = "Gated"}},
    {ERR_UNSUPPORTED,
     "dflash.markov_head_type is rnn",
     {.key = "dflash.markov_head_type", .kind = GGUF_STRING, .text = "rnn"}},
    {ERR_UNSUPPORTED,
     "dflash.markov_head_type is fir",
     {.key = "dflash.markov_head_type", .kind = GGUF_STRING, .text = "fir"}},
    {ERR_UNSUPPORTED,
     "markov_gate", // not read of a vanilla one
     {.key = "dflash.markov_head_type", .kind = GGUF_STRING, .text = "vanilla"}},
    {ERR_FORMAT, "markov_head_type", {.key = "dflash.markov_head_type", .kind = GGUF_U32}},
    {ERR_UNSUPPORTED, "markov_w2", {.tensor = "markov_w1.weight"}},
    {ERR_MISMATCH,
     "a Markov head of rank 24 but no tensor markov_w2.weight",
     {.tensor = "markov_w2.weight"}},
    {ERR_MISMATCH,
     "markov_w1.weight is [24, 200] but [24, 300]",
     {.tensor = "markov_w1.weight", .rows = 200}},
    {ERR_MISMATCH, "markov_gate.weight", {.tensor = "markov_gate.weight", .rows = 20}},
    {ERR_MISMATCH, "markov_gate.bias", {.tensor = "markov_gate.bias"}},
    {0, "", {.tensor = "conf_proj.bias"}},
    {ERR_MISMATCH,
     "output.weight is [64, 200] but the target's is [64, 300]",
     {.tensor = "output.weight", .rows = 200}},
};

static void refuse_drafts(struct tiny_draft_shape d, const struct bad *list, size_t n) {
    const struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    char good[128];
    d.dialect = TINY_UPSTREAM;
    d.mask = 299;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    snprintf(good, sizeof good, "%s/good.gguf", r.dir);
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    struct dflash_options o = dflash_options_default();
    for (size_t i = 0; i < n; i++) {
        const struct bad *b = &list[i];
        struct dflash *load = NULL;
        rewrite(good, r.draft_path, &b->edit);
        int code = dflash_load(&load, r.m, r.draft_path, &o, &r.e);
        // A dropped norm is missed before the stranger in its place is seen.
        bool ok = code == b->code && (!code || strstr(r.e.text, b->word));
        if (b->edit.name && code == ERR_MISMATCH)
            ok = strstr(r.e.text, b->edit.tensor) != NULL;
        if (!ok)
            fail_msg("case %zu (%s): %d, \"%s\"", i, b->word, code, code ? r.e.text : "");
        dflash_destroy(load);
    }
    unlink(good);
    tiny_rig_close(&r);
}

static void test_drafts(void **state) {
    (void)state;
    const struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    refuse_drafts(d, drafts, sizeof drafts / sizeof *drafts);
    d.conv = 2;
    refuse_drafts(d, drafts2, sizeof drafts2 / sizeof *drafts2);
    d.conv = 0;
    d.own = true;
    refuse_drafts(d, drafts_own, sizeof drafts_own / sizeof *drafts_own);
    d.markov = true;
    refuse_drafts(d, dsparks_own, sizeof dsparks_own / sizeof *dsparks_own);
    d.own = false;
    d.gated = d.copies = true;
    refuse_drafts(d, dsparks, sizeof dsparks / sizeof *dsparks);
}

// Loads the good upstream draft with one edit and returns what was made of it.
static struct dflash_params params_of(struct tiny_rig *r, const char *good, const struct edit *d) {
    struct dflash *load = NULL;
    struct dflash_options o = dflash_options_default();
    rewrite(good, r->draft_path, d);
    if (dflash_load(&load, r->m, r->draft_path, &o, &r->e))
        fail_msg("%s", r->e.text);
    struct dflash_params p = *dflash_params_of(load);
    dflash_destroy(load);
    return p;
}

// What a draft's file leaves out or says in another way.
static void test_draft_params(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    shape.layers = 12;
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    struct tiny_rig r;
    char good[128];
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    snprintf(good, sizeof good, "%s/good.gguf", r.dir);
    d.dialect = TINY_UPSTREAM;
    d.layers = 4;
    d.n_taps = 4;
    d.window = 24;
    memcpy(d.taps, (int[]){0, 3, 4, 11}, 4 * sizeof *d.taps);
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    struct dflash_params p = params_of(&r, good, &(struct edit){0});
    assert_memory_equal(p.taps, ((int32_t[]){0, 3, 4, 11}), 16);
    assert_memory_equal(p.layer_window, "\1\1\1\0", 4);
    assert_memory_equal(p.layer_causal, "\1\1\1\0", 4);
    // 1 + 8 i / 3, to the nearest
    p = params_of(&r, good, &(struct edit){.key = "dflash.target_layers", .kind = -1});
    assert_memory_equal(p.taps, ((int32_t[]){1, 4, 6, 9}), 16);
    p = params_of(&r, good,
                  &(struct edit){.key = "dflash.attention.sliding_window_pattern",
                                 .kind = GGUF_U32,
                                 .value = 2});
    assert_memory_equal(p.layer_window, "\1\0\1\0", 4);
    p = params_of(&r, good, &(struct edit){.key = "dflash.attention.causal", .kind = GGUF_BOOL});
    assert_memory_equal(p.layer_causal, "\0\0\0\0", 4);
    p = params_of(&r, good, &(struct edit){.key = "dflash.block_size", .kind = -1});
    assert_int_equal(p.block_size, 16);
    // The placeholder rotary base of early conversions, and the same number where it is meant.
    shape.context = 32768;
    d.dialect = TINY_LUCEBOX;
    struct edit million = {
        .key = "qwen35-dflash-draft.rope.freq_base", .kind = GGUF_F32, .number = 1e6};
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    assert_true(params_of(&r, good, &million).rope.base == 1e7f);
    shape.context = 4096;
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    assert_true(params_of(&r, good, &million).rope.base == 1e6f);
    unlink(good);
    tiny_rig_close(&r);
}

// Lucebox's files leave out what its program knows.
static void test_draft_of_lucebox(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    struct tiny_rig r;
    char good[128];
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    snprintf(good, sizeof good, "%s/good.gguf", r.dir);
    d.layers = 4;
    d.window = 24;
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    // A window without a pattern, as Lucebox writes it for Gemma 4, spares the last layer.
    struct dflash_params p = params_of(
        &r, good,
        &(struct edit){.key = "qwen35-dflash-draft.attention.sliding_window_pattern", .kind = -1});
    assert_memory_equal(p.layer_window, "\1\1\1\0", 4);
    assert_memory_equal(p.layer_causal, "\1\1\1\0", 4);
    // Gates and norms of taps are Laguna's, with or without the key; then all layers have it.
    d.laguna = true;
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    p = params_of(
        &r, good,
        &(struct edit){.key = "qwen35-dflash-draft.dflash.context_kv_layer_norm", .kind = -1});
    assert_true(p.norms_context);
    assert_memory_equal(p.layer_causal, "\1\1\1\1", 4);
    p = params_of(
        &r, good,
        &(struct edit){.key = "qwen35-dflash-draft.attention.sliding_window_pattern", .kind = -1});
    assert_memory_equal(p.layer_window, "\1\1\1\1", 4);
    unlink(good);
    tiny_rig_close(&r);
}

// What a draft's file leaves out is the target's: rotary base, MASK of the published drafts.
static void test_draft_of_plain(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    struct dflash_options o = dflash_options_default();
    struct dflash *load = NULL;
    struct tiny_rig r;
    char good[128];
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    snprintf(good, sizeof good, "%s/good.gguf", r.dir);
    shape.context = 32768;
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    struct edit million = {
        .key = "qwen35-dflash-draft.rope.freq_base", .kind = GGUF_F32, .number = 1e6};
    assert_true(params_of(&r, good, &million).rope.base == 1e6f); // here no placeholder
    million.kind = -1;
    assert_true(params_of(&r, good, &million).rope.base == 1e6f);
    rewrite(good, r.draft_path,
            &(struct edit){.key = "qwen35-dflash-draft.dflash.mask_token_id", .kind = -1});
    assert_int_equal(dflash_load(&load, r.m, r.draft_path, &o, &r.e), ERR_MISMATCH);
    assert_non_null(strstr(r.e.text, "mask token 151669"));
    unlink(good);
    tiny_rig_close(&r);
}

// Whether the ends of YaRN's ramp are rounded is the target's, unless the draft's file says it.
static void test_draft_ramp(void **state) {
    (void)state;
    for (int exact = 0; exact < 2; exact++) {
        const struct tiny_shape shape = tiny_shape_form(exact ? TINY_FORM_OSS : TINY_FORM_DEEPSEEK);
        struct tiny_draft_shape d = tiny_draft_default(&shape);
        struct edit rounds = {.key = "dflash.rope.scaling.yarn_truncate", .kind = GGUF_BOOL};
        struct tiny_rig r;
        char good[128];
        tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
        snprintf(good, sizeof good, "%s/good.gguf", r.dir);
        d.dialect = TINY_UPSTREAM;
        d.yarn = true;
        assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
        assert_int_equal(params_of(&r, good, &(struct edit){0}).rope.exact_ramp, exact);
        assert_true(params_of(&r, good, &rounds).rope.exact_ramp);
        rounds.value = 1;
        assert_false(params_of(&r, good, &rounds).rope.exact_ramp);
        unlink(good);
        tiny_rig_close(&r);
    }
}

// Kinds of layers named by a list, which must agree with the tensors; the scale of attention.
static void test_target_params(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    struct model_options o = model_options_default();
    uint8_t kinds[4] = {1, 0, 1, 0};
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    assert_true(model_params_of(r.m)->attn_scale == 0.125f);
    for (int wrong = 0; wrong < 2; wrong++) {
        struct gguf_writer *w;
        struct gguf *g;
        struct model_plan plan;
        struct model_params p;
        kinds[2] = !wrong;
        assert_int_equal(gguf_writer_open(&w, r.draft_path, &r.e), 0);
        for (size_t i = 0; i < gguf_kv_count(r.g); i++)
            gguf_put_kv(w, gguf_kv_at(r.g, i));
        gguf_put_array(w, "qwen35.attention.recurrent_layers", GGUF_BOOL, kinds, 4);
        gguf_put_f32(w, "qwen35.attention.scale", 0.25f);
        copy_tensors(r.g, w, &(struct edit){0});
        assert_int_equal(gguf_open(&g, r.draft_path, &r.e), 0);
        assert_int_equal(model_plan(&plan, &p, NULL, g, &o, &r.e), wrong ? ERR_MISMATCH : 0);
        if (wrong)
            assert_non_null(strstr(r.e.text, "layer 2"));
        else
            assert_true(p.attn_scale == 0.25f && p.n_full == 2);
        gguf_close(g);
    }
    tiny_rig_close(&r);
}

// The plain target with rotary scaling: what the parameters become, or the refusal.
static int plan_scaled(struct tiny_rig *r, const char *type, const struct edit *more, int n,
                       struct model_params *p) {
    struct gguf_writer *w;
    struct gguf *g;
    struct model_plan plan;
    struct model_options o = model_options_default();
    assert_int_equal(gguf_writer_open(&w, r->draft_path, &r->e), 0);
    for (size_t i = 0; i < gguf_kv_count(r->g); i++)
        gguf_put_kv(w, gguf_kv_at(r->g, i));
    gguf_put_str(w, "qwen3.rope.scaling.type", type, strlen(type));
    gguf_put_f32(w, "qwen3.rope.scaling.factor", 4);
    for (int i = 0; i < n; i++)
        put_key(w, &more[i]);
    copy_tensors(r->g, w, &(struct edit){0});
    assert_int_equal(gguf_open(&g, r->draft_path, &r->e), 0);
    int rc = model_plan(&plan, p, NULL, g, &o, &r->e);
    gguf_close(g);
    return rc;
}

static void test_scaling(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_plain();
    struct tiny_rig r;
    struct model_params p;
    struct edit more[] = {
        {.key = "qwen3.rope.scaling.original_context_length", .kind = GGUF_U32, .value = 512},
        {.key = "qwen3.rope.scaling.yarn_attn_factor", .kind = GGUF_F32, .number = 1.5},
        {.key = "qwen3.rope.scaling.yarn_ext_factor", .kind = GGUF_F32, .number = 2}};
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    assert_true(model_params_of(r.m)->rope.factor == 0 && model_params_of(r.m)->context == 1024);
    assert_int_equal(plan_scaled(&r, "linear", NULL, 0, &p), 0);
    assert_true(p.rope.factor == 4 && p.rope.ramp == 0 && p.context == 1024);
    assert_int_equal(plan_scaled(&r, "yarn", more, 1, &p), 0);
    assert_true(p.rope.factor == 4 && p.rope.ramp == 1 && p.rope.trained == 512);
    assert_true(p.rope.beta_fast == 32 && p.rope.beta_slow == 1 && p.context == 2048);
    assert_true(p.rope.magnitude > 1.13862f && p.rope.magnitude < 1.13864f);
    assert_int_equal(plan_scaled(&r, "yarn", more, 2, &p), 0);
    assert_true(p.rope.magnitude == 1.5f);
    assert_int_equal(plan_scaled(&r, "yarn", more, 3, &p), ERR_UNSUPPORTED);
    assert_non_null(strstr(r.e.text, "yarn_ext_factor is 2"));
    tiny_rig_close(&r);
}

// A draft that carries a tokenizer must carry the target's.
static void test_tokens(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    struct tiny_rig r;
    char good[128];
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    snprintf(good, sizeof good, "%s/good.gguf", r.dir);
    assert_int_equal(tiny_draft_write(&shape, &d, good, &r.e), 0);
    for (int kind = 0; kind < 3; kind++) { // the target's list, one text changed, one missing
        const char *texts[300];
        size_t len[300];
        const struct gguf_kv *kv = gguf_find(r.g, "tokenizer.ggml.tokens");
        const unsigned char *at = kv->bytes;
        struct gguf *g;
        struct gguf_writer *w;
        struct dflash *load = NULL;
        struct dflash_options o = dflash_options_default();
        for (int i = 0; i < 300; i++)
            texts[i] = gguf_array_str(&at, &len[i]);
        if (kind == 1)
            texts[280] = "[PAD_80]";
        assert_int_equal(gguf_open(&g, good, &r.e), 0);
        assert_int_equal(gguf_writer_open(&w, r.draft_path, &r.e), 0);
        for (size_t i = 0; i < gguf_kv_count(g); i++)
            gguf_put_kv(w, gguf_kv_at(g, i));
        gguf_put_str_array(w, "tokenizer.ggml.tokens", texts, len, kind == 2 ? 299 : 300);
        copy_tensors(g, w, &(struct edit){0});
        gguf_close(g);
        assert_int_equal(dflash_load(&load, r.m, r.draft_path, &o, &r.e), kind ? ERR_MISMATCH : 0);
        if (kind)
            assert_non_null(strstr(r.e.text, kind == 1 ? "token 280" : "299"));
        dflash_destroy(load);
    }
    unlink(good);
    tiny_rig_close(&r);
}

// Random bytes of the metadata and tensor descriptions change; loading may fail, nothing more.
static void test_damage(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    struct str file = {0};
    struct rng g = {rng_mix(5)};
    int loaded = 0, refused = 0;
    shape.vocab = 64;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    assert_int_equal(file_read(&file, r.target_path, 1 << 26, &r.e), 0);
    size_t meta = (size_t)((const char *)gguf_tensor_at(r.g, 0)->data -
                           (const char *)gguf_kv_at(r.g, 0)->bytes);
    struct model_options o = model_options_default();
    o.max_rows = o.max_verify = 8;
    o.max_ctx = 64;
    for (int i = 0; i < 4000; i++) {
        struct gguf *bad;
        struct model *m = NULL;
        size_t at[3];
        char old[3];
        int n = 1 + (int)rng_below(&g, 3);
        for (int j = 0; j < n; j++) {
            at[j] = 24 + rng_below(&g, (uint32_t)meta);
            old[j] = file.data[at[j]];
            file.data[at[j]] = (char)(rng_below(&g, 2) ? old[j] ^ (1 << rng_below(&g, 8))
                                                       : (int)rng_below(&g, 256));
        }
        if (gguf_open_memory(&bad, file.data, file.len, &r.e) == 0) {
            int code = model_load(&m, r.x, bad, &o, &r.e);
            loaded += code == 0;
            refused += code != 0;
            assert_true(code == 0 || r.e.text[0]);
            model_destroy(m);
            gguf_close(bad);
        }
        while (n-- > 0)
            file.data[at[n]] = old[n];
    }
    print_message("loaded %d, refused %d of 4000\n", loaded, refused);
    assert_true(loaded > 10 && refused > 100);
    str_fini(&file);
    tiny_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_targets),          cmocka_unit_test(test_drafts),
        cmocka_unit_test(test_draft_params),     cmocka_unit_test(test_target_params),
        cmocka_unit_test(test_tokens),           cmocka_unit_test(test_damage),
        cmocka_unit_test(test_draft_of_lucebox), cmocka_unit_test(test_draft_of_plain),
        cmocka_unit_test(test_draft_ramp),       cmocka_unit_test(test_scaling),
        cmocka_unit_test(test_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
