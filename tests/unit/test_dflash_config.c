// SPDX-License-Identifier: Apache-2.0
// The authors' config.json of a draft: what the keys of the published ones become, and that what
// changes the arithmetic in a way that is not known is refused by its name.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/draft/dflash/impl.h"
#include "unit/test.h"

static const char plain[] =
    "{\"architectures\":[\"DFlashDraftModel\"],\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
    "\"vocab_size\":300,\"layer_types\":[\"full_attention\",\"full_attention\"],"
    "\"rope_theta\":50000,\"block_size\":8,"
    "\"dflash_config\":{\"mask_token_id\":1,\"target_layer_ids\":[0,1]%s}%s}";
static const char mixed[] =
    "{\"architectures\":[\"DFlashDraftModel\"],\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"head_dim\":32,\"sliding_window\":16,"
    "\"layer_types\":[\"sliding_attention\",\"full_attention\"],\"dflash_config\":"
    "{\"mask_token_id\":1,\"target_layer_ids\":[0,1],\"block_size\":8%s}%s}";
static const char laguna[] =
    "{\"architectures\":[\"DFlashLagunaForCausalLM\"],\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
    "\"vocab_size\":300,\"draft_vocab_size\":300,\"sliding_window\":16,"
    "\"layer_types\":[\"sliding_attention\",\"sliding_attention\"],\"dflash_config\":"
    "{\"mask_token_id\":1,\"target_layer_ids\":[0,1],\"block_size\":8%s}%s}";

// As for a Gemma 4 target: embeddings times 8, logits capped at 30.
static int read_config(struct dflash_params *p, int *causal, const char *form, const char *nested,
                       const char *top, struct err *e) {
    struct draft_file f = {.dialect = DIALECT_SAFETENSORS};
    char text[2048];
    *p = (struct dflash_params){.rope = {.base = 1e6f},
                                .embed_scale = 8,
                                .logit_scale = 1,
                                .logit_cap = 30,
                                .block_size = 16};
    int n = snprintf(text, sizeof text, form, nested, top);
    assert_int_equal(json_parse(&f.config, text, (size_t)n, e), 0);
    int rc = dflash_read_config(p, &f, causal, e);
    json_free(f.config);
    return rc;
}

static void near(float got, double want) {
    if (!(fabs((double)got / want - 1) < 1e-5))
        fail_msg("%g, want %g", (double)got, want);
}

static void published(void **state) {
    (void)state;
    struct dflash_params p;
    struct err e;
    int causal;
    assert_int_equal(read_config(&p, &causal, plain, "", "", &e), 0);
    assert_true(p.rope.dims == 32 && p.rope.base == 50000.0f && p.rope.factor == 0);
    assert_true(p.embed_scale == 8 && p.logit_cap == 30 && !p.norms_context && causal == -1);
    // Kimi K2.5
    assert_int_equal(
        read_config(&p, &causal, plain, "",
                    ",\"rope_scaling\":{\"type\":\"yarn\",\"factor\":64.0,\"mscale\":1,"
                    "\"mscale_all_dim\":1,\"original_max_position_embeddings\":4096}",
                    &e),
        0);
    assert_true(p.rope.factor == 64 && p.rope.trained == 4096 && p.rope.beta_fast == 32 &&
                p.rope.beta_slow == 1 && p.rope.ramp == 1 && !p.rope.exact_ramp);
    near(p.rope.magnitude, 1 + 0.1 * log(64));
    // gpt-oss
    assert_int_equal(
        read_config(&p, &causal, plain, "",
                    ",\"rope_parameters\":{\"rope_type\":\"yarn\",\"factor\":32,"
                    "\"rope_theta\":150000,\"truncate\":false,\"attention_factor\":1.5,"
                    "\"original_max_position_embeddings\":4096}",
                    &e),
        0);
    assert_true(p.rope.base == 150000.0f && p.rope.exact_ramp && p.rope.magnitude == 1.5f);
    // JetSpec, whose key yields to the others
    assert_int_equal(read_config(&p, &causal, plain, ",\"causal_head\":true", "", &e), 0);
    assert_int_equal(causal, 1);
    assert_int_equal(
        read_config(&p, &causal, plain, ",\"causal_head\":true,\"causal\":false", "", &e), 0);
    assert_int_equal(causal, 0);
    // Llama 3.1: short waves stay, long ones are divided by the factor
    assert_int_equal(read_config(&p, &causal, plain, "",
                                 ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
                                 "\"low_freq_factor\":1,\"high_freq_factor\":4,"
                                 "\"original_max_position_embeddings\":8192}",
                                 &e),
                     0);
    assert_true(p.rope.factor == 0 && p.rope_divisors[0] == 1 && p.rope_divisors[15] == 8);
    assert_int_equal(read_config(&p, &causal, plain, ",\"input_embedding_scale\":0.5",
                                 ",\"output_multiplier\":2,\"final_logit_softcapping\":20", &e),
                     0);
    assert_true(p.embed_scale == 4 && p.logit_scale == 2 && p.logit_cap == 20);
    assert_int_equal(
        read_config(&p, &causal, laguna, ",\"causal\":true",
                    ",\"rope_parameters\":{\"sliding_attention\":{\"rope_theta\":500000,"
                    "\"partial_rotary_factor\":0.5}}",
                    &e),
        0);
    assert_true(p.norms_context && causal == 1 && p.window == 16);
    assert_true(p.rope.base == 500000.0f && p.rope.dims == 16);
}

// As poolside/Laguna-XS.2-speculator.dflash has it: layers apart, taps by what they read, a head
// for some tokens; and what Red Hat's for Gemma 4 has not of the target's.
static void speculators(void **state) {
    static const char form[] =
        "{\"architectures\":[\"DFlashDraftModel\"],\"speculators_model_type\":\"dflash\","
        "\"aux_hidden_state_layer_ids\":[1,9,17,36,39],\"block_size\":8,\"mask_token_id\":12,"
        "\"draft_vocab_size\":32000,\"target_hidden_size\":null%s,\"transformer_layer_config\":"
        "{\"model_type\":\"llama\",\"hidden_size\":2048,\"intermediate_size\":8192,"
        "\"num_hidden_layers\":5,\"num_attention_heads\":16,\"num_key_value_heads\":8,"
        "\"head_dim\":128,\"vocab_size\":100352,\"rms_norm_eps\":1e-5%s}}";
    static const int32_t taps[] = {0, 8, 16, 35, 38};
    (void)state;
    struct dflash_params p;
    struct err e;
    int causal;
    assert_int_equal(read_config(&p, &causal, form, "", "", &e), 0);
    assert_true(p.dim == 2048 && p.ffn == 8192 && p.n_layers == 5 && p.n_heads == 16);
    assert_true(p.n_kv == 8 && p.head_dim == 128 && p.block_size == 8 && p.mask_id == 12);
    assert_true(p.n_taps == 5 && p.head_rows == 32000 && p.eps == 1e-5f && causal == -1);
    assert_memory_equal(p.taps, taps, sizeof taps);
    assert_true(p.embed_scale == 1 && p.logit_cap == 0 && p.rope.base == 10000);
    assert_int_equal(read_config(&p, &causal, form,
                                 ",\"sliding_window_non_causal\":true,\"sliding_window\":2048",
                                 ",\"layer_types\":[\"sliding_attention\",\"sliding_attention\","
                                 "\"sliding_attention\",\"sliding_attention\",\"full_attention\"],"
                                 "\"sliding_window\":null,\"rope_parameters\":"
                                 "{\"rope_type\":\"default\",\"rope_theta\":500000}",
                                 &e),
                     0);
    assert_true(causal == 0 && p.window == 2048 && p.layer_window[3] && !p.layer_window[4]);
    assert_true(p.rope.base == 500000);
}

// As RedHatAI/Qwen3.6-35B-A3B-speculator.dspark has it: a Markov head besides. The anchor's row
// guesses only where a key says so, unlike other DSpark drafts.
static void speculators_dspark(void **state) {
    static const char form[] =
        "{\"architectures\":[\"DSparkDraftModel\"],\"speculators_model_type\":\"dspark\","
        "\"aux_hidden_state_layer_ids\":[2,20],\"block_size\":8,\"mask_token_id\":12,"
        "\"draft_vocab_size\":32000,\"markov_rank\":256,\"markov_head_type\":\"vanilla\","
        "\"enable_confidence_head\":true%s,\"transformer_layer_config\":"
        "{\"model_type\":\"qwen3\",\"hidden_size\":2048,\"intermediate_size\":6144,"
        "\"num_hidden_layers\":5,\"num_attention_heads\":32,\"num_key_value_heads\":8,"
        "\"head_dim\":128,\"vocab_size\":248320%s}}";
    (void)state;
    struct dflash_params p;
    struct err e;
    int causal;
    assert_int_equal(read_config(&p, &causal, form, "", "", &e), 0);
    assert_true(p.dspark && p.pairs == DFLASH_PAIRS_MARKOV && p.selector_rank == 256);
    assert_true(!p.from_anchor && p.head_rows == 32000 && p.taps[0] == 1 && p.taps[1] == 19);
    assert_int_equal(read_config(&p, &causal, form, ",\"sample_from_anchor\":true", "", &e), 0);
    assert_true(p.from_anchor);
    assert_int_equal(read_config(&p, &causal, form, ",\"markov_head_type\":\"rnn\"", "", &e),
                     ERR_UNSUPPORTED);
}

static void windows(void **state) {
    (void)state;
    struct dflash_params p;
    struct err e;
    int causal;
    // MiMo: all layers have a window and see the whole block; a list of layers comes first, and a
    // window that is not used is none
    assert_int_equal(
        read_config(&p, &causal, plain, ",\"use_swa\":true,\"swa_window_size\":24", "", &e), 0);
    assert_true(p.window == 24 && p.layer_window[0] && p.layer_window[1] && causal == 0);
    assert_int_equal(
        read_config(&p, &causal, mixed, ",\"use_swa\":true,\"swa_window_size\":24", "", &e), 0);
    assert_true(p.window == 24 && p.layer_window[0] && !p.layer_window[1] && causal == -1);
    assert_int_equal(read_config(&p, &causal, mixed, "", ",\"use_sliding_window\":false", &e), 0);
    assert_true(p.window == 0 && !p.layer_window[0] && causal == -1);
}

static void domino(void **state) {
    (void)state;
    static const char known[] = ",\"gru_hidden_dim\":1024,\"emb_dim\":256,"
                                "\"pure_draft_prefix_len\":1,\"shift_label\":true,"
                                "\"projector_type\":\"%s\"";
    static const char *const kinds[] = {"domino", "causal_v5", "dflash"};
    struct dflash_params p;
    struct err e = {0};
    char nested[256];
    int causal;
    for (int i = 0; i < 3; i++) {
        (void)snprintf(nested, sizeof nested, known, kinds[i]);
        assert_int_equal(read_config(&p, &causal, plain, nested, "", &e), 0);
        assert_int_equal(p.gru_width, i < 2 ? 1024 : 0);
        assert_true(i == 2 || (p.gru_head == 256 && p.gru_skip == 1));
        assert_int_equal(p.from_anchor, i < 2);
        assert_int_equal(dflash_guesses(&p, 8), i < 2 ? 8 : 7);
    }
    assert_int_equal(read_config(&p, &causal, plain, // the width of the head may be at the top
                                 ",\"projector_type\":\"domino\",\"gru_hidden_dim\":64",
                                 ",\"emb_dim\":32", &e),
                     0);
    assert_true(p.gru_head == 32 && p.gru_skip == 0 && !p.from_anchor);
}

static const char deepspec[] =
    "{\"architectures\":[\"Qwen3DSparkModel\"],\"hidden_size\":64,\"intermediate_size\":96,"
    "\"num_hidden_layers\":2,\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":32,"
    "\"vocab_size\":300,\"block_size\":7,\"mask_token_id\":2,\"target_layer_ids\":[1,0],"
    "\"rms_norm_eps\":0.001%s%s}";

// DSpark: all at the top, within dflash_config or dspark_config; whether the anchor's row guesses.
static void dspark(void **state) {
    static const struct {
        const char *form, *nested, *top;
        enum dflash_pairs pairs;
        bool dspark, from_anchor;
    } list[] = {
        {plain, "", "", DFLASH_PAIRS_NONE, false, false},
        {plain, "", ",\"sample_from_anchor\":true", DFLASH_PAIRS_NONE, false, true},
        {deepspec, "", "", DFLASH_PAIRS_NONE, true, true},
        {deepspec, ",\"markov_rank\":24", "", DFLASH_PAIRS_MARKOV, true, true},
        {deepspec, ",\"markov_rank\":24", ",\"markov_head_type\":\"Gated\"", DFLASH_PAIRS_GATED,
         true, true},
        {deepspec, ",\"markov_rank\":24", ",\"sample_from_anchor\":false", DFLASH_PAIRS_MARKOV,
         true, false},
        {plain, ",\"markov_rank\":24,\"markov_head_type\":\"vanilla\"", "", DFLASH_PAIRS_MARKOV,
         true, true},
        {plain, "", ",\"dspark_config\":{\"markov_rank\":24}", DFLASH_PAIRS_MARKOV, true, true},
        {plain, ",\"projector_type\":\"dspark\"", "", DFLASH_PAIRS_NONE, true, true},
        {plain, ",\"projector_type\":\"dspark\"", ",\"dspark_bonus_anchor\":true",
         DFLASH_PAIRS_NONE, true, false},
        {plain, ",\"dspark_bonus_anchor\":true", ",\"sample_from_anchor\":true", DFLASH_PAIRS_NONE,
         false, true},
        {plain,
         ",\"conv_kernel_size\":2,\"conv_group_size\":16,\"selector_rank\":24,"
         "\"selector_top_k\":8",
         ",\"sample_from_anchor\":true", DFLASH_PAIRS_SELECTOR, false, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct dflash_params p;
        struct err e = {0};
        int causal;
        if (read_config(&p, &causal, list[i].form, list[i].nested, list[i].top, &e))
            fail_msg("case %zu: %s", i, e.text);
        if (p.pairs != list[i].pairs || p.dspark != list[i].dspark ||
            p.from_anchor != list[i].from_anchor)
            fail_msg("case %zu: %d, %d, %d", i, p.pairs, p.dspark, p.from_anchor);
        assert_int_equal(p.selector_rank, p.pairs ? 24 : 0);
        if (list[i].form == deepspec)
            assert_true(p.block_size == 7 && p.mask_id == 2 && p.taps[0] == 1 && p.eps == 0.001f);
    }
}

static void refused(void **state) {
    static const struct {
        const char *nested, *top, *word;
        int code;
    } list[] = {
        {",\"projector_type\":\"domino\",\"emb_dim\":8", "", "gru_hidden_dim", ERR_FORMAT},
        {",\"projector_type\":\"domino\",\"gru_hidden_dim\":8", "", "emb_dim", ERR_FORMAT},
        {",\"projector_type\":\"domino\",\"gru_hidden_dim\":32,\"emb_dim\":8,\"shift_label\":1", "",
         "shift_label", ERR_FORMAT},
        {",\"projector_type\":\"domino\",\"gru_hidden_dim\":32,\"emb_dim\":8,"
         "\"pure_draft_prefix_len\":-1",
         "", "pure_draft_prefix_len", ERR_FORMAT},
        {",\"conv_kernel_size\":2", "", "conv_kernel_size", ERR_FORMAT},
        {",\"selector_rank\":256", "", "selector_rank", ERR_FORMAT},
        {",\"selector_rank\":\"x\"", "", "selector_rank", ERR_FORMAT},
        {",\"conv_kernel_size\":65", "", "conv_kernel_size is 65", ERR_FORMAT},
        {",\"attention_value_scale\":0.6", "", "attention_value_scale", ERR_UNSUPPORTED},
        {",\"input_embedding_scale\":0", "", "input_embedding_scale", ERR_FORMAT},
        {"", ",\"output_multiplier\":\"x\"", "output_multiplier", ERR_FORMAT},
        {"", ",\"final_logit_softcapping\":-1", "final_logit_softcapping", ERR_FORMAT},
        {"", ",\"draft_vocab_size\":\"x\"", "draft_vocab_size", ERR_FORMAT},
        {"", ",\"speculators_model_type\":\"eagle3\"", "eagle3", ERR_UNSUPPORTED},
        {"", ",\"markov_rank\":4097", "markov_rank", ERR_FORMAT},
        {"", ",\"markov_rank\":256,\"markov_head_type\":\"rnn\"", "markov_head_type is rnn",
         ERR_UNSUPPORTED},
        {",\"markov_rank\":256,\"markov_head_type\":\"fir\"", "", "fir", ERR_UNSUPPORTED},
        {"", ",\"sample_from_anchor\":1", "sample_from_anchor", ERR_FORMAT},
        {",\"dspark_bonus_anchor\":\"no\"", "", "dspark_bonus_anchor", ERR_FORMAT},
        {"", ",\"hidden_act\":\"gelu\"", "gelu", ERR_UNSUPPORTED},
        {"", ",\"is_neox_style\":false", "is_neox_style", ERR_UNSUPPORTED},
        {"", ",\"partial_rotary_factor\":1.5", "partial_rotary_factor", ERR_FORMAT},
        {"", ",\"rope_scaling\":{\"rope_type\":\"longrope\",\"factor\":8}", "longrope",
         ERR_UNSUPPORTED},
        {"", ",\"rope_scaling\":{\"rope_type\":\"yarn\"}", "factor", ERR_FORMAT},
        {"", ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8}",
         "original_max_position_embeddings", ERR_FORMAT},
        {"",
         ",\"rope_scaling\":{\"rope_type\":\"yarn\",\"factor\":8,"
         "\"original_max_position_embeddings\":0.5}",
         "original_max_position_embeddings", ERR_FORMAT},
        {"",
         ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,"
         "\"high_freq_factor\":1}",
         "high_freq_factor", ERR_FORMAT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        struct dflash_params p;
        struct err e = {0};
        int causal;
        int rc = read_config(&p, &causal, plain, list[i].nested, list[i].top, &e);
        if (rc != list[i].code || !strstr(e.text, list[i].word))
            fail_msg("%s%s: code %d, %s", list[i].nested, list[i].top, rc, e.text);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published),   cmocka_unit_test(windows),
        cmocka_unit_test(speculators), cmocka_unit_test(speculators_dspark),
        cmocka_unit_test(domino),      cmocka_unit_test(dspark),
        cmocka_unit_test(refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
