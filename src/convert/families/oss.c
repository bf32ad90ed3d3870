// SPDX-License-Identifier: Apache-2.0
// gpt-oss: experts in MXFP4 as the authors' folders hold them, 16 bytes a block and its scale apart
// (convert/write.c puts them together), or as plain matrices, which lie transposed; rows of gate
// and up take turns. Biases everywhere.
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "convert/families/rules.h"
#include "formats/quant/quant.h"

static const struct convert_rule layer_rules[] = {
    {"self_attn.o_proj.bias", "attn_output.bias", .dims = {DIM_D}},
    {"self_attn.sinks", "attn_sinks.weight", .dims = {DIM_ONE}},
    {"post_attention_layernorm.weight", "post_attention_norm.weight", .dims = {DIM_D}},
    {"mlp.router.weight", "ffn_gate_inp.weight", .dims = {DIM_D, DIM_E}},
    {"mlp.router.bias", "ffn_gate_inp.bias", .dims = {DIM_E}},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", .dims = {DIM_D, DIM_E}},
    {0},
};

// The matrices of experts: of rows first, first + step, ... of a source.
static const struct matrix {
    const char *hf, *gguf;
    unsigned char k, m;
    int64_t first, step;
} matrices[] = {
    {"gate_up_proj", "ffn_gate_exps", DIM_D, DIM_FE, 0, 2},
    {"gate_up_proj", "ffn_up_exps", DIM_D, DIM_FE, 1, 2},
    {"down_proj", "ffn_down_exps", DIM_FE, DIM_D, 0, 1},
};

static void put_expert_name(const struct matrix *m, const char *tail, char hf[64]) {
    snprintf(hf, 64, "mlp.experts.%s%s", m->hf, tail);
}

// A part of the tensor in bytes, of the shape ne[4].
static int find_bytes(struct convert_job *j, const char *hf, int layer, const int64_t *ne,
                      const struct tensor **out, struct err *e) {
    *out = convert_find_bytes(j, hf, layer);
    return *out ? convert_check_shape(*out, ne, 4, e) : convert_missing(j, hf, layer, e);
}

static int find_values(struct convert_job *j, const char *hf, int layer, const int64_t *ne,
                       const struct tensor **out, struct err *e) {
    int rc = convert_find(j, hf, layer, out, e);
    if (!rc && !*out)
        rc = convert_missing(j, hf, layer, e);
    return rc ? rc : convert_check_shape(*out, ne, 3, e);
}

// Blocks of 16 bytes, whose scales are a tensor of their own.
static int take_packed(struct convert_job *j, const struct matrix *m, int layer, struct err *e) {
    char name[64];
    int64_t k = j->dim[m->k], rows = j->dim[m->m] * m->step, experts = j->dim[DIM_E];
    const int64_t blocks[4] = {16, k / 32, rows, experts}, scales[4] = {k / 32, rows, experts, 1};
    struct convert_item item = {.name = name, .n_dims = 3, .ne = {k, j->dim[m->m], experts, 1}};
    if (k % 32)
        return err_set(e, ERR_UNSUPPORTED, "%s has experts of width %" PRId64 ", no multiple of 32",
                       j->config.path, k);
    put_expert_name(m, "_blocks", name);
    int rc = find_bytes(j, name, layer, blocks, &item.src, e);
    put_expert_name(m, "_scales", name);
    if (!rc)
        rc = find_bytes(j, name, layer, scales, &item.scales, e);
    item.cut = (struct convert_cut){1, m->step, m->first}; // of rows
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, m->gguf);
    return rc ? rc : convert_add(j, &item, e);
}

// [experts][k][rows]: transposed, of the rows that the cut leaves.
static int take_plain(struct convert_job *j, const struct matrix *m, int layer, struct err *e) {
    char name[64];
    int64_t k = j->dim[m->k], rows = j->dim[m->m], experts = j->dim[DIM_E];
    const int64_t ne[3] = {rows * m->step, k, experts};
    struct convert_item item = {.name = name, .n_dims = 3, .ne = {k, rows, experts, 1}};
    put_expert_name(m, "", name);
    int rc = find_values(j, name, layer, ne, &item.src, e);
    item.cut = (struct convert_cut){1, m->step, m->first};
    item.remap = (struct convert_remap){.unit = 1, .keys = (int)k, .copies = (int)rows};
    snprintf(name, sizeof name, "blk.%d.%s.weight", layer, m->gguf);
    return rc ? rc : convert_add(j, &item, e);
}

static int take_bias(struct convert_job *j, const struct matrix *m, int layer, struct err *e) {
    char name[64];
    int64_t rows = j->dim[m->m];
    const int64_t ne[3] = {rows * m->step, j->dim[DIM_E], 1};
    struct convert_item item = {.name = name, .n_dims = 2, .ne = {rows, j->dim[DIM_E], 1, 1}};
    put_expert_name(m, "_bias", name);
    int rc = find_values(j, name, layer, ne, &item.src, e);
    item.cut = (struct convert_cut){1, m->step, m->first};
    snprintf(name, sizeof name, "blk.%d.%s.bias", layer, m->gguf);
    return rc ? rc : convert_add(j, &item, e);
}

static int take_oss_layer(struct convert_job *j, int i, struct err *e) {
    bool packed = convert_find_bytes(j, "mlp.experts.gate_up_proj_blocks", i);
    int rc = convert_take_all(j, convert_attention, i, e);
    if (!rc)
        rc = convert_take_all(j, convert_qkv_biases, i, e);
    j->dim[DIM_ONE] = j->heads; // of sinks
    if (!rc)
        rc = convert_take_all(j, layer_rules, i, e);
    for (size_t k = 0; !rc && k < sizeof matrices / sizeof *matrices; k++) {
        rc = packed ? take_packed(j, &matrices[k], i, e) : take_plain(j, &matrices[k], i, e);
        if (!rc && matrices[k].step > 1)
            rc = take_bias(j, &matrices[k], i, e);
    }
    return rc;
}

static int check_oss(const struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct json *types = hf_get(f, "layer_types");
    if (!json_bool(hf_get(f, "attention_bias"), true) ||
        json_num(hf_get(f, "swiglu_limit"), 7) != 7)
        return err_set(
            e, ERR_UNSUPPORTED,
            "%s has attention_bias false or a swiglu_limit other than 7: this checkpoint "
            "cannot be converted",
            f->path);
    for (int64_t i = 0; types && i < j->layers; i++) {
        const char *s = json_str(json_at(types, (size_t)i), NULL);
        if (!s || strcmp(s, i % 2 ? "full_attention" : "sliding_attention") != 0)
            return err_set(
                e, ERR_UNSUPPORTED,
                "layer_types in %s does not begin with sliding_attention and take turns: "
                "this checkpoint cannot be converted",
                f->path);
    }
    return hf_check_silu(f, e);
}

static int put_oss_rope(struct convert_job *j, struct err *e) {
    const struct convert_rope r = convert_rope_of(j);
    double base = json_num(hf_get(&j->config, "rope_theta"), 150000);
    int rc = convert_rope_number(j, &r, "rope_theta", base, &base, e);
    if (!rc && !convert_rope_is(&r, "yarn"))
        rc = err_set(e, ERR_UNSUPPORTED,
                     "%s has a rope_type other than yarn: this checkpoint cannot be converted",
                     j->config.path);
    if (rc)
        return rc;
    convert_put_f32(j, "rope.freq_base", base);
    if (json_bool(convert_rope_get(&r, "truncate"), true))
        convert_put_bool(j, "rope.scaling.yarn_truncate", true);
    return convert_put_scaling(j, &r, true, e);
}

int convert_oss(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    int64_t *d = j->dim, used, window;
    int rc = convert_read_sizes(j, true, e);
    if (!rc)
        rc = check_oss(j, e);
    if (!rc)
        rc = hf_int(f, "num_local_experts", 1, 1 << 16, -1, &d[DIM_E], e);
    if (!rc)
        rc = hf_int(f,
                    hf_get(f, "num_experts_per_tok") ? "num_experts_per_tok" : "experts_per_token",
                    1, d[DIM_E], -1, &used, e);
    if (!rc)
        rc = hf_int(f, "sliding_window", 1, INT32_MAX, -1, &window, e);
    if (rc)
        return rc;
    d[DIM_FE] = d[DIM_F];
    j->model = convert_model_of(j, false);
    convert_put_general(j);
    rc = convert_put_sizes(j, 1e-5, e);
    convert_put_u32(j, "attention.head_count", j->heads);
    convert_put_u32(j, "attention.sliding_window", window);
    convert_put_experts(j, used);
    if (!rc)
        rc = put_oss_rope(j, e);
    if (!rc)
        rc = convert_take_all(j, convert_begin, -1, e);
    for (int i = 0; i < j->layers && !rc; i++)
        rc = take_oss_layer(j, i, e);
    return rc ? rc : convert_end(j, e);
}
