// SPDX-License-Identifier: Apache-2.0
// The converter on checkpoints with one thing wrong: each gets a sentence that names it, and no
// output file appears.
#include <math.h>
#include <unistd.h>

#include "unit/hf_folder.h"
#include "unit/test.h"

static void refused(const char *dir, const char *recipe, const char *target, const char *part) {
    struct convert_options o = hf_options(recipe, target);
    struct err e = {0};
    int rc = convert_hf(dir, hf_out, &o, &e);
    if (rc >= 0 || rc != e.code || !strstr(e.text, part))
        fail_msg("%d \"%s\", wanted \"%s\"", rc, e.text, part);
    assert_int_equal(access(hf_out, F_OK), -1);
}

struct bad_config {
    const char *from, *to, *part;
};

static const struct bad_config bad_targets[] = {
    {"qwen3_5_text", "mamba", "type 'mamba'"},
    {"\"hidden_size\":32", "\"hidden_size\":33", "config.json implies"},
    {"\"hidden_size\":32,", "", "lacks 'hidden_size'"},
    {"\"hidden_size\":32", "\"hidden_size\":-1", "'hidden_size' in"},
    {"\"hidden_size\":32", "\"hidden_size\":1000000000000000000000", "'hidden_size' in"},
    {"\"hidden_size\":32", "\"hidden_size\":\"32\"", "is no integer"},
    {"\"num_hidden_layers\":2", "\"num_hidden_layers\":3", "each of 3 layers"},
    {"\"full_attention\"]", "\"sliding\"]", "layer_types"},
    {"\"linear_num_value_heads\":6", "\"linear_num_value_heads\":5", "must be a multiple"},
    {"\"linear_key_head_dim\":4", "\"linear_key_head_dim\":8", "sizes equal"},
    {"\"mrope_section\":[1,1,0]", "\"mrope_section\":[1,1,1]", "do not fit together"},
    {"\"rope_type\":\"default\"", "\"rope_type\":\"longrope\"", "rope_type"},
    {"\"rope_theta\":10000000.0", "\"rope_theta\":0", "rope_theta"},
    {"\"tie_word_embeddings\":true", "\"tie_word_embeddings\":false", "no tensor 'lm_head.weight'"},
    {"\"head_dim\":8", "\"head_dim\":8,\"attention_bias\":true", "attention_bias"},
    {"\"head_dim\":8", "\"head_dim\":8,\"hidden_act\":\"gelu\"", "hidden_act 'gelu'"},
    {"\"head_dim\":8", "\"head_dim\":8,\"hidden_act\":7", "hidden_act 'no text'"},
    {"\"vocab_size\":8", "\"vocab_size\":5", "config.json implies"},
    {"}", "", "config.json"},
};

static void refuses_bad_targets(void **state) {
    (void)state;
    static const struct source more[] = {{"model.layers.0.extra.weight", {2}}, {NULL, {0}}};
    unlink(hf_out);
    for (size_t i = 0; i < sizeof bad_targets / sizeof *bad_targets; i++) {
        hf_write_folders();
        hf_write_edited(hf_target, "config.json", hf_target_config, bad_targets[i].from,
                        bad_targets[i].to);
        refused(hf_target, "F32", NULL, bad_targets[i].part);
    }
    hf_write_folders();
    hf_write_weights(hf_target, "model.", hf_target_tensors, more, NULL);
    refused(hf_target, "F32", NULL, "no place in this kind of model");
    struct edit x = {.drop = "layers.1.self_attn.k_proj.weight"};
    hf_write_weights(hf_target, "model.", hf_target_tensors, NULL, &x);
    refused(hf_target, "F32", NULL, "'layers.1.self_attn.k_proj.weight'");
    x = (struct edit){.reshape = "layers.0.linear_attn.in_proj_z.weight"};
    hf_write_weights(hf_target, "model.", hf_target_tensors, NULL, &x);
    refused(hf_target, "F32", NULL, "in_proj_z.weight' has shape [32, 23, 1]");
    x = (struct edit){.nan = "layers.0.mlp.up_proj.weight", .poison = NAN};
    hf_write_weights(hf_target, "model.", hf_target_tensors, NULL, &x);
    refused(hf_target, "Q8_0", NULL, "element 1 of tensor 'blk.0.ffn_up.weight' is not finite");
    x.poison = 1e6f;
    hf_write_weights(hf_target, "model.", hf_target_tensors, NULL, &x);
    refused(hf_target, "F16", NULL, "too large for F16");
    refused("/nonexistent", "F32", NULL, "/nonexistent/config.json");
}

static const struct bad_config bad_drafts[] = {
    {"\"hidden_size\":32", "\"hidden_size\":64", "hidden size is 64"},
    {"\"num_target_layers\":2", "\"num_target_layers\":3", "target layers is 3"},
    {"\"vocab_size\":8", "\"vocab_size\":9", "vocabulary is 9"},
    {"[0,1]", "[0,2]", "taps layer 2 of a target with 2 layers"},
    {"[0,1]", "[]", "lists 0 layers"},
    {"[0,1]", "[1]", "fc.weight' has shape"},
    {"\"mask_token_id\":6", "\"mask_token_id\":8", "mask_token_id"},
    {"\"sliding_window\":16", "\"use_sliding_window\":true", "sliding_window"},
    {"sliding_attention", "chunked", "'chunked' for layer 0"},
    {"\"block_size\":4", "\"block_size\":4,\"selector_rank\":8", "selector_rank"},
    {"\"head_dim\":8", "\"head_dim\":8,\"markov_rank\":8", "markov_w1"},
    {"\"head_dim\":8", "\"head_dim\":8,\"markov_rank\":8,\"markov_head_type\":\"rnn\"",
     "markov_head_type"},
    {"\"head_dim\":8", "\"head_dim\":8,\"markov_rank\":4097", "markov_rank"},
    {"\"head_dim\":8", "\"head_dim\":8,\"hidden_act\":\"gelu\"", "hidden_act 'gelu'"},
    {"\"head_dim\":8", "\"head_dim\":8,\"draft_vocab_size\":7", "draft_vocab_size"},
    {"\"head_dim\":8", "\"head_dim\":8,\"attention_bias\":true", "self_attn.q_proj.bias"},
    {"\"head_dim\":8", "\"head_dim\":8,\"partial_rotary_factor\":1.5", "turns 12 of 8"},
    {"\"head_dim\":8", "\"head_dim\":8,\"rope_scaling\":{\"rope_type\":\"longrope\"}", "rope_type"},
    {"\"block_size\":4", "\"block_size\":4,\"input_embedding_scale\":2", "input_embedding_scale"},
    {"\"rope_theta\":10000000.0", "\"rope_theta\":0", "rope_theta"},
};

// Half of each head turns: its halves would not be pairs of what turns.
static const char eagle3_config[] =
    "{\"architectures\":[\"LlamaForCausalLMEagle3\"],\"vocab_size\":8,\"hidden_size\":32,"
    "\"num_hidden_layers\":1,\"intermediate_size\":64,\"num_attention_heads\":2,"
    "\"num_key_value_heads\":1,\"head_dim\":8,\"max_position_embeddings\":128,"
    "\"rope_theta\":10000.0,\"partial_rotary_factor\":0.5}";

static void refuses_bad_drafts(void **state) {
    (void)state;
    unlink(hf_out);
    for (size_t i = 0; i < sizeof bad_drafts / sizeof *bad_drafts; i++) {
        hf_write_folders();
        hf_write_edited(hf_draft, "config.json", hf_draft_config, bad_drafts[i].from,
                        bad_drafts[i].to);
        refused(hf_draft, "F32", hf_target, bad_drafts[i].part);
    }
    hf_write_folders();
    refused(hf_draft, "F32", NULL, "--target-dir");
    refused(hf_draft, "F32", "/nonexistent", "/nonexistent");
    hf_write_edited(hf_draft, "config.json", eagle3_config, NULL, NULL);
    refused(hf_draft, "F32", hf_target, "turns 4 of 8 head dimensions");
}

static const struct bad_config bad_tokenizers[] = {
    {"\"type\":\"BPE\"", "\"type\":\"Unigram\"", "not BPE"},
    {"\"NFC\"", "\"Lowercase\"", "normaliser"},
    {"\"ab\":3", "\"ab\":8", "id 8, but the model has 8 ids"},
    {"\"ab\":3", "\"ab\":2", "id 2 in"},
    {"\"content\":\"<think>\"", "\"content\":\"ab\"", "has the ids 3 and 5"},
    {"[\"a\",\"b\"]", "[\"a\"]", "merge 0"},
    {"\"ab \xc4\xa0\"", "\"ab\"", "merge 1"},
    {"{\"type\":\"ByteLevel\"}", "{\"type\":\"Digits\"}", "pre-tokenizer"},
    {"|\\\\p{N}|", "|\\\\p{N}{1,3}|", "pre-tokenizer"},
    {"[\\\\p{L}\\\\p{M}]+|", "[\\\\p{Lu}]+|", "pre-tokenizer"},
    {"\"model\":{", "\"model\":{\"ignore_merges\":true,", "ignore_merges"},
    {"\"vocab\":{", "\"vocab\":[{", "tokenizer.json"},
};

static void refuses_bad_tokenizers(void **state) {
    (void)state;
    unlink(hf_out);
    for (size_t i = 0; i < sizeof bad_tokenizers / sizeof *bad_tokenizers; i++) {
        hf_write_folders();
        hf_write_edited(hf_target, "tokenizer.json", hf_tokenizer, bad_tokenizers[i].from,
                        bad_tokenizers[i].to);
        refused(hf_target, "F32", NULL, bad_tokenizers[i].part);
    }
    hf_write_folders();
    hf_write_edited(hf_target, "chat_template.jinja", "{{ caf\xE9 }}", NULL, NULL);
    refused(hf_target, "F32", NULL, "chat_template.jinja is not UTF-8");
    hf_write_edited(hf_target, "chat_template.jinja", "{{ x }}", NULL, NULL);
}

// Configurations of plain transformers are refused before their tensors are looked for.
static void refuses_bad_plain(void **state) {
    (void)state;
    static const char plain[] =
        "{\"model_type\":\"llama\",\"vocab_size\":8,\"hidden_size\":32,\"num_hidden_layers\":2,"
        "\"intermediate_size\":64,\"num_attention_heads\":2,\"max_position_embeddings\":128,"
        "\"rms_norm_eps\":1e-05,\"hidden_act\":\"silu\",\"mlp_bias\":false,"
        "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}";
    static const struct bad_config bad[] = {
        {"\"mlp_bias\":false", "\"mlp_bias\":true", "mlp_bias true"},
        {"silu", "relu2", "hidden_act 'relu2'"},
        {"llama3", "dynamic", "rope_type"},
        {"llama\"", "qwen3\"", "rope_type"},
        {"\"num_attention_heads\":2", "\"num_attention_heads\":2,\"head_dim\":7", "heads of 7"},
        {"\"factor\":8", "\"factor\":-8", "'factor' among its rope settings"},
        {"\"factor\":8", "\"high_freq_factor\":0.5", "not above low_freq_factor"},
        {"\"hidden_size\":32,", "", "lacks 'hidden_size'"},
        {"\"max_position_embeddings\":128,", "", "lacks 'max_position_embeddings'"},
        {"\"vocab_size\":8", "\"vocab_size\":9", "config.json implies"},
        {"{", "{ ", "no tensor 'layers.0.self_attn.q_proj.weight'"},
    };
    unlink(hf_out);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        hf_write_folders();
        hf_write_edited(hf_target, "config.json", plain, bad[i].from, bad[i].to);
        refused(hf_target, "F32", NULL, bad[i].part);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(refuses_bad_targets),
        cmocka_unit_test(refuses_bad_drafts),
        cmocka_unit_test(refuses_bad_tokenizers),
        cmocka_unit_test(refuses_bad_plain),
    };
    return cmocka_run_group_tests(tests, hf_set_up, hf_tear_down);
}
