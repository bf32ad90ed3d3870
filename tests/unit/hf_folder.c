// SPDX-License-Identifier: Apache-2.0
// Writes the folders that the converter's tests read; see hf_folder.h.
#include "unit/hf_folder.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/rng.h"
#include "base/str.h"
#include "unit/test.h"

const struct source hf_target_tensors[] = {
    {"embed_tokens.weight", {V, D}},
    {"norm.weight", {D}},
    {"layers.0.input_layernorm.weight", {D}},
    {"layers.0.post_attention_layernorm.weight", {D}},
    {"layers.0.mlp.gate_proj.weight", {F, D}},
    {"layers.0.mlp.up_proj.weight", {F, D}},
    {"layers.0.mlp.down_proj.weight", {D, F}},
    {"layers.0.linear_attn.in_proj_qkv.weight", {CH, D}},
    {"layers.0.linear_attn.in_proj_z.weight", {VD, D}},
    {"layers.0.linear_attn.in_proj_a.weight", {NV, D}},
    {"layers.0.linear_attn.in_proj_b.weight", {NV, D}},
    {"layers.0.linear_attn.A_log", {NV}},
    {"layers.0.linear_attn.dt_bias", {NV}},
    {"layers.0.linear_attn.conv1d.weight", {CH, 1, 4}},
    {"layers.0.linear_attn.norm.weight", {DV}},
    {"layers.0.linear_attn.out_proj.weight", {D, VD}},
    {"layers.1.input_layernorm.weight", {D}},
    {"layers.1.post_attention_layernorm.weight", {D}},
    {"layers.1.mlp.gate_proj.weight", {F, D}},
    {"layers.1.mlp.up_proj.weight", {F, D}},
    {"layers.1.mlp.down_proj.weight", {D, F}},
    {"layers.1.self_attn.q_proj.weight", {2 * HD * HEADS, D}},
    {"layers.1.self_attn.k_proj.weight", {HD, D}},
    {"layers.1.self_attn.v_proj.weight", {HD, D}},
    {"layers.1.self_attn.o_proj.weight", {D, HD *HEADS}},
    {"layers.1.self_attn.q_norm.weight", {HD}},
    {"layers.1.self_attn.k_norm.weight", {HD}},
    {NULL, {0}},
};

const struct source hf_draft_tensors[] = {
    {"fc.weight", {D, 2 * D}},
    {"hidden_norm.weight", {D}},
    {"norm.weight", {D}},
    {"layers.0.input_layernorm.weight", {D}},
    {"layers.0.post_attention_layernorm.weight", {D}},
    {"layers.0.self_attn.q_proj.weight", {2 * HD, D}},
    {"layers.0.self_attn.k_proj.weight", {HD, D}},
    {"layers.0.self_attn.v_proj.weight", {HD, D}},
    {"layers.0.self_attn.o_proj.weight", {D, 2 * HD}},
    {"layers.0.self_attn.q_norm.weight", {HD}},
    {"layers.0.self_attn.k_norm.weight", {HD}},
    {"layers.0.mlp.gate_proj.weight", {F, D}},
    {"layers.0.mlp.up_proj.weight", {F, D}},
    {"layers.0.mlp.down_proj.weight", {D, F}},
    {NULL, {0}},
};

const char hf_target_config[] =
    "{\"architectures\":[\"Qwen3_5ForCausalLM\"],\"model_type\":\"qwen3_5_text\",\"vocab_size\":8,"
    "\"hidden_size\":32,\"num_hidden_layers\":2,\"intermediate_size\":64,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,\"rms_norm_eps\":1e-06,"
    "\"max_position_embeddings\":128,\"tie_word_embeddings\":true,"
    "\"layer_types\":[\"linear_attention\",\"full_attention\"],\"linear_num_key_heads\":2,"
    "\"linear_num_value_heads\":6,\"linear_key_head_dim\":4,\"linear_value_head_dim\":4,"
    "\"linear_conv_kernel_dim\":4,\"rope_parameters\":{\"rope_type\":\"default\","
    "\"rope_theta\":10000000.0,\"partial_rotary_factor\":0.5,\"mrope_section\":[1,1,0]},"
    "\"eos_token_id\":4}";

const char hf_draft_config[] =
    "{\"architectures\":[\"DFlashDraftModel\"],\"model_type\":\"qwen3\",\"vocab_size\":8,"
    "\"hidden_size\":32,\"num_hidden_layers\":1,\"intermediate_size\":64,"
    "\"num_attention_heads\":2,\"num_key_value_heads\":1,\"head_dim\":8,\"rms_norm_eps\":1e-06,"
    "\"max_position_embeddings\":128,\"num_target_layers\":2,\"rope_theta\":10000000.0,"
    "\"layer_types\":[\"sliding_attention\"],\"sliding_window\":16,"
    "\"dflash_config\":{\"mask_token_id\":6,\"target_layer_ids\":[0,1],\"block_size\":4}}";

const char hf_tokenizer[] =
    "{\"added_tokens\":[{\"id\":4,\"content\":\"<|end|>\",\"special\":true},"
    "{\"id\":5,\"content\":\"<think>\",\"special\":false}],\"normalizer\":{\"type\":\"NFC\"},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
    "\"pattern\":{\"Regex\":\"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?"
    "[\\\\p{L}\\\\p{M}]+|\\\\p{N}| ?[^\\\\s\\\\p{L}\\\\p{M}\\\\p{N}]+[\\\\r\\\\n]*|"
    "\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"}},{\"type\":\"ByteLevel\"}]},"
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"\xc4\xa0\":2,\"ab\":3},"
    "\"merges\":[[\"a\",\"b\"],\"ab \xc4\xa0\",[\" \",\"a\"]]}}";

char hf_root[] = "/tmp/coppice-convert-XXXXXX";
char hf_target[64], hf_draft[64], hf_out[64], hf_second[64];

static void write_bytes(const char *dir, const char *name, const char *data, size_t n) {
    char path[160];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

// Writes text with the first `from` in it replaced by `to` (from NULL: unchanged).
void hf_write_edited(const char *dir, const char *name, const char *text, const char *from,
                     const char *to) {
    struct str s = {0};
    const char *at = from ? strstr(text, from) : NULL;
    if (from && !at)
        fail_msg("'%s' does not occur in %s", from, name);
    str_append(&s, text, at ? (size_t)(at - text) : strlen(text));
    if (at) {
        str_puts(&s, to);
        str_puts(&s, at + strlen(from));
    }
    write_bytes(dir, name, s.data, s.len);
    str_fini(&s);
}

// The value of element i of a source tensor, known by its name without prefix.
float hf_value(const char *name, int64_t i) {
    uint64_t h = rng_hash(1, hash_bytes(name, strlen(name), 7), (uint64_t)i, 0);
    return 2.0f * rng_unit(h) - 1.0f;
}

static int64_t elements(const struct source *t) {
    int64_t n = 1;
    for (int i = 0; t->shape[i]; i++)
        n *= t->shape[i];
    return n;
}

static void put_tensor(struct str *header, struct str *data, const char *prefix,
                       const struct source *t, const struct edit *x) {
    struct source s = *t;
    if (x && x->reshape && !strcmp(x->reshape, t->name))
        s.shape[0]--;
    size_t begin = data->len;
    const char *values = x && x->copy && !strcmp(x->copy, t->name) ? x->of : t->name;
    for (int64_t i = 0; i < elements(&s); i++) {
        float v = hf_value(values, i);
        if (x && x->nan && !strcmp(x->nan, t->name) && i == 1)
            v = x->poison;
        str_append(data, (const char *)&v, sizeof v);
    }
    str_printf(header, "%s\"%s%s\":{\"dtype\":\"F32\",\"shape\":[", header->len > 1 ? "," : "",
               prefix, t->name);
    for (int i = 0; s.shape[i]; i++)
        str_printf(header, "%s%d", i ? "," : "", (int)s.shape[i]);
    str_printf(header, "],\"data_offsets\":[%zu,%zu]}", begin, data->len);
}

void hf_write_weights(const char *dir, const char *prefix, const struct source *list,
                      const struct source *more, const struct edit *x) {
    struct str header = {0}, data = {0}, file = {0};
    str_putc(&header, '{');
    for (; list->name; list++)
        if (!x || !x->drop || strcmp(x->drop, list->name))
            put_tensor(&header, &data, prefix, list, x);
    for (; more && more->name; more++)
        if (!x || !x->drop || strcmp(x->drop, more->name))
            put_tensor(&header, &data, "", more, x);
    str_putc(&header, '}');
    for (int i = 0; i < 8; i++)
        str_putc(&file, (char)(header.len >> 8 * i & 255));
    str_append(&file, header.data, header.len);
    str_append(&file, data.data, data.len);
    write_bytes(dir, "model.safetensors", file.data, file.len);
    str_fini(&header);
    str_fini(&data);
    str_fini(&file);
}

void hf_write_folders(void) {
    hf_write_edited(hf_target, "config.json", hf_target_config, NULL, NULL);
    hf_write_edited(hf_target, "tokenizer.json", hf_tokenizer, NULL, NULL);
    hf_write_edited(hf_target, "tokenizer_config.json",
                    "{\"eos_token\":{\"content\":\"<|end|>\"},\"chat_template\":\"{{ x }}\"}", NULL,
                    NULL);
    hf_write_edited(hf_target, "generation_config.json", "{\"eos_token_id\":[4,5]}", NULL, NULL);
    hf_write_weights(hf_target, "model.", hf_target_tensors, NULL, NULL);
    hf_write_edited(hf_draft, "config.json", hf_draft_config, NULL, NULL);
    hf_write_weights(hf_draft, "", hf_draft_tensors, NULL, NULL);
}

int hf_set_up(void **state) {
    (void)state;
    if (!mkdtemp(hf_root))
        return -1;
    snprintf(hf_target, sizeof hf_target, "%s/target", hf_root);
    snprintf(hf_draft, sizeof hf_draft, "%s/draft", hf_root);
    snprintf(hf_out, sizeof hf_out, "%s/out.gguf", hf_root);
    snprintf(hf_second, sizeof hf_second, "%s/second.gguf", hf_root);
    return mkdir(hf_target, 0777) || mkdir(hf_draft, 0777);
}

int hf_tear_down(void **state) {
    (void)state;
    static const char *const names[] = {"config.json",           "tokenizer.json",
                                        "tokenizer_config.json", "generation_config.json",
                                        "model.safetensors",     "chat_template.jinja"};
    char path[160];
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", hf_target, names[i]);
        unlink(path);
        snprintf(path, sizeof path, "%s/%s", hf_draft, names[i]);
        unlink(path);
    }
    unlink(hf_out);
    unlink(hf_second);
    return rmdir(hf_target) || rmdir(hf_draft) || rmdir(hf_root); // nothing else may be left
}

struct convert_options hf_options(const char *recipe, const char *target) {
    return (struct convert_options){
        .recipe = convert_recipe(recipe), .target_dir = target, .threads = 2};
}
