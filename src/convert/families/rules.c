// SPDX-License-Identifier: Apache-2.0
// Rules and keys that decoder architectures share: matrices under their usual names, those of
// experts, rotary settings wherever a config.json has them, and what stands at both ends of a plan.
// A checkpoint holds experts fused, all in one tensor with gate and up one after the other, or one
// tensor an expert; a GGUF file has one tensor each for gate, up and down, with an expert as its
// outermost dimension.
#include "convert/families/rules.h"
#include "convert/vocab/vocab.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "formats/quant/quant.h"

const struct convert_rule convert_begin[] = {
    {"embed_tokens.weight", "token_embd.weight", .dims = {DIM_D, DIM_V}},
    {"norm.weight", "output_norm.weight", .dims = {DIM_D}},
    {0},
};
const struct convert_rule convert_output = {"lm_head.weight", "output.weight",
                                            .dims = {DIM_D, DIM_V}};

const struct convert_rule convert_attention[] = {
    {"input_layernorm.weight", "attn_norm.weight", .dims = {DIM_D}},
    {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_Q}},
    {"self_attn.k_proj.weight", "attn_k.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.v_proj.weight", "attn_v.weight", .dims = {DIM_D, DIM_KV}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_Q, DIM_D}},
    {0},
};
const struct convert_rule convert_qkv_biases[] = {
    {"self_attn.q_proj.bias", "attn_q.bias", .dims = {DIM_Q}},
    {"self_attn.k_proj.bias", "attn_k.bias", .dims = {DIM_KV}},
    {"self_attn.v_proj.bias", "attn_v.bias", .dims = {DIM_KV}},
    {0},
};
const struct convert_rule convert_head_norms[] = {
    {"self_attn.q_norm.weight", "attn_q_norm.weight", .dims = {DIM_HD}},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", .dims = {DIM_HD}},
    {0},
};
const struct convert_rule convert_ffn_norm = {"post_attention_layernorm.weight", "ffn_norm.weight",
                                              .dims = {DIM_D}};
const struct convert_rule convert_dense[] = {
    {"mlp.gate_proj.weight", "ffn_gate.weight", .dims = {DIM_D, DIM_F}},
    {"mlp.up_proj.weight", "ffn_up.weight", .dims = {DIM_D, DIM_F}},
    {"mlp.down_proj.weight", "ffn_down.weight", .dims = {DIM_F, DIM_D}},
    {0},
};
const struct convert_rule convert_router = {"mlp.gate.weight", "ffn_gate_inp.weight",
                                            .dims = {DIM_D, DIM_E}};
const struct convert_rule convert_choice_bias = {"mlp.gate.e_score_correction_bias",
                                                 "exp_probs_b.bias", .dims = {DIM_E}};
const struct convert_rule convert_shared_expert[] = {
    {"mlp.shared_experts.gate_proj.weight", "ffn_gate_shexp.weight", .dims = {DIM_D, DIM_FS}},
    {"mlp.shared_experts.up_proj.weight", "ffn_up_shexp.weight", .dims = {DIM_D, DIM_FS}},
    {"mlp.shared_experts.down_proj.weight", "ffn_down_shexp.weight", .dims = {DIM_FS, DIM_D}},
    {0},
};

struct convert_model convert_model_of(const struct convert_job *j, bool tied) {
    return (struct convert_model){
        .recipe = j->options->recipe,
        .layers = (int)(j->layers + j->nextn),
        .tied = json_bool(hf_get(&j->config, "tie_word_embeddings"), tied),
        .shared = j->heads >= 4 * j->kv_heads,
        .experts = (int)j->dim[DIM_E],
    };
}

int convert_end(struct convert_job *j, struct err *e) {
    int rc = j->model.tied ? 0 : convert_take(j, &convert_output, -1, e);
    return rc ? rc : convert_vocab_hf(j->writer, j->dir, j->dim[DIM_V], e);
}

int convert_read_experts(struct convert_job *j, const char *count, const char *per_row,
                         int64_t *used, struct err *e) {
    int64_t *d = j->dim;
    const struct hf_number rows[] = {
        {count, 1, 1 << 16, -1, &d[DIM_E], NULL},
        {per_row, 1, 0, -1, used, &d[DIM_E]},
        {"moe_intermediate_size", 1, 1 << 24, -1, &d[DIM_FE], NULL},
    };
    return hf_ints(&j->config, rows, sizeof rows / sizeof *rows, e);
}

void convert_put_experts(struct convert_job *j, int64_t used) {
    convert_put_u32(j, "expert_count", j->dim[DIM_E]);
    convert_put_u32(j, "expert_used_count", used);
    convert_put_u32(j, "expert_feed_forward_length", j->dim[DIM_FE]);
}

int convert_read_either(const struct convert_job *j, const char *key, int64_t i, const char *a,
                        const char *b, bool *is, struct err *e) {
    const struct json *list = hf_get(&j->config, key);
    const char *s = json_str(json_at(list, (size_t)i), NULL);
    if (!list)
        return 0;
    if ((int64_t)json_len(list) != j->layers || !s || (strcmp(s, a) != 0 && strcmp(s, b) != 0))
        return err_set(e, ERR_FORMAT,
                       "%s in %s does not name %s or %s for each of %" PRId64
                       " layers: get the file again",
                       key, j->config.path, a, b, j->layers);
    *is = !strcmp(s, a);
    return 0;
}

int convert_refuse_true(const struct hf_file *f, const char *const *keys, size_t n, struct err *e) {
    for (size_t i = 0; i < n; i++)
        if (json_bool(hf_get(f, keys[i]), false))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s has %s true: this checkpoint cannot be converted", f->path, keys[i]);
    return 0;
}

void convert_put_str(struct convert_job *j, const char *key, const char *s) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", j->arch, key);
    gguf_put_str(j->writer, full, s, strlen(s));
}

void convert_put_bool(struct convert_job *j, const char *key, bool v) {
    char full[96];
    snprintf(full, sizeof full, "%s.%s", j->arch, key);
    gguf_put_bool(j->writer, full, v);
}

void convert_put_widths(struct convert_job *j, int64_t context) {
    convert_put_u32(j, "block_count", j->layers + j->nextn);
    convert_put_nextn(j);
    convert_put_u32(j, "context_length", context);
    convert_put_u32(j, "embedding_length", j->dim[DIM_D]);
    convert_put_u32(j, "feed_forward_length", j->dim[DIM_F]);
    convert_put_u32(j, "vocab_size", j->dim[DIM_V]);
}

void convert_put_heads(struct convert_job *j) {
    convert_put_u32(j, "attention.head_count_kv", j->kv_heads);
    convert_put_u32(j, "attention.key_length", j->dim[DIM_HD]);
    convert_put_u32(j, "attention.value_length", j->dim[DIM_HD]);
}

int convert_put_sizes(struct convert_job *j, double eps, struct err *e) {
    int64_t context;
    int rc = hf_int(&j->config, "max_position_embeddings", 1, INT32_MAX, -1, &context, e);
    if (!rc)
        rc = hf_float(&j->config, "rms_norm_eps", eps, &eps, e);
    if (rc)
        return rc;
    convert_put_widths(j, context);
    convert_put_heads(j);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", eps);
    return 0;
}

struct convert_rope convert_rope_of(const struct convert_job *j) {
    const struct hf_file *f = &j->config;
    return (struct convert_rope){{hf_get(f, "rope_parameters"), hf_get(f, "rope_scaling")}};
}

const struct json *convert_rope_get(const struct convert_rope *r, const char *key) {
    const struct json *v = NULL;
    for (size_t i = 0; i < 2 && !v; i++)
        v = json_get(r->place[i], key);
    return v;
}

static const char *type_of(const struct json *place) {
    const char *s = json_str(json_get(place, "rope_type"), NULL);
    s = s ? s : json_str(json_get(place, "type"), NULL);
    return s ? s : "default";
}

// What is written for older programs, or by hand, counts where the newer place has the default.
bool convert_rope_is(const struct convert_rope *r, const char *type) {
    const char *newer = type_of(r->place[0]);
    return !strcmp(strcmp(newer, "default") ? newer : type_of(r->place[1]), type);
}

int convert_rope_number(const struct convert_job *j, const struct convert_rope *r, const char *key,
                        double otherwise, double *out, struct err *e) {
    const struct json *v = convert_rope_get(r, key);
    *out = json_num(v, v ? -1 : otherwise);
    if (*out > 0 && *out <= INT32_MAX)
        return 0;
    return err_set(e, ERR_FORMAT,
                   "%s lacks '%s' among its rope settings or it is no positive number: get the "
                   "file again",
                   j->config.path, key);
}

static double yarn_magnitude(double factor, double slope) {
    return factor > 1 ? 1 + 0.1 * slope * log(factor) : 1;
}

// What drafts have in another way: the factor of keys and queries, from two slopes where there are
// two, and whether the ramp's ends are rounded.
static void put_target_yarn(struct convert_job *j, const struct convert_rope *r, double factor) {
    const double own = json_num(convert_rope_get(r, "mscale"), 0);
    const double all = json_num(convert_rope_get(r, "mscale_all_dim"), 0);
    const double magnitude = yarn_magnitude(factor, own) / yarn_magnitude(factor, all);
    if (own > 0 && all > 0 && !convert_rope_get(r, "attention_factor"))
        convert_put_f32(j, "rope.scaling.yarn_attn_factor", magnitude);
    if (!json_bool(convert_rope_get(r, "truncate"), true))
        convert_put_bool(j, "rope.scaling.yarn_truncate", false);
}

// Without a factor it is how much longer the context is than the original one, and without that
// all of the context is the original one.
int convert_put_scaling(struct convert_job *j, const struct convert_rope *r, bool target,
                        struct err *e) {
    static const char original[] = "original_max_position_embeddings";
    static const char *const extra[][2] = {
        {"extrapolation_factor", "rope.scaling.yarn_ext_factor"},
        {"attention_factor", "rope.scaling.yarn_attn_factor"},
        {"beta_fast", "rope.scaling.yarn_beta_fast"},
        {"beta_slow", "rope.scaling.yarn_beta_slow"},
    };
    const bool yarn = convert_rope_is(r, "yarn");
    const double context = json_num(hf_get(&j->config, "max_position_embeddings"), 0);
    double factor, length = 0;
    int rc = 0;
    if (!yarn && !convert_rope_is(r, "linear"))
        return 0;
    if (yarn && (!target || convert_rope_get(r, original)))
        rc = convert_rope_number(j, r, original, 0, &length, e);
    if (!rc)
        rc = convert_rope_number(j, r, "factor", length > 0 ? context / length : 0, &factor, e);
    if (rc)
        return rc;
    convert_put_str(j, "rope.scaling.type", yarn ? "yarn" : "linear");
    convert_put_f32(j, "rope.scaling.factor", factor);
    if (length > 0)
        convert_put_u32(j, "rope.scaling.original_context_length", (int64_t)length);
    for (size_t i = 0; yarn && i < sizeof extra / sizeof *extra; i++)
        if (convert_rope_get(r, extra[i][0]))
            convert_put_f32(j, extra[i][1], json_num(convert_rope_get(r, extra[i][0]), 0));
    if (yarn && target)
        put_target_yarn(j, r, factor);
    return 0;
}

int convert_add_divisors(struct convert_job *j, int64_t n, float **out, struct err *e) {
    struct tensor *t = arena_alloc(&j->plan.arena, sizeof *t);
    *out = arena_array(&j->plan.arena, (size_t)n, sizeof **out);
    if (!t || !*out)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    *t = (struct tensor){.name = "rope_freqs.weight",
                         .type = TYPE_F32,
                         .n_dims = 1,
                         .ne = {n, 1, 1, 1},
                         .data = *out,
                         .bytes = n * (int64_t)sizeof **out};
    struct convert_item item = {.src = t, .name = t->name, .n_dims = 1, .ne = {n, 1, 1, 1}};
    return convert_add(j, &item, e);
}

// Settings of the scaling "llama3": short waves keep their frequency, long ones are slowed by
// `factor`, and those between blend.
struct bands {
    double factor, low, high, length;
};

static float band_divisor(const struct bands *b, float frequency) {
    float wave = 6.283185307179586f / frequency;
    if (wave < (float)(b->length / b->high))
        return 1;
    if (wave > (float)(b->length / b->low))
        return (float)b->factor;
    float smooth = ((float)b->length / wave - (float)b->low) / (float)(b->high - b->low);
    return 1 / ((1 - smooth) / (float)b->factor + smooth);
}

int convert_add_bands(struct convert_job *j, double base, struct err *e) {
    struct bands b = {0};
    int64_t half = j->dim[DIM_HD] / 2;
    float *values;
    const struct convert_rope r = convert_rope_of(j);
    int rc = convert_rope_number(j, &r, "factor", 8, &b.factor, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "low_freq_factor", 1, &b.low, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "high_freq_factor", 4, &b.high, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "original_max_position_embeddings", 8192, &b.length, e);
    if (!rc && b.high <= b.low)
        rc = err_set(e, ERR_FORMAT,
                     "high_freq_factor in %s is not above low_freq_factor: get the file again",
                     j->config.path);
    if (!rc)
        rc = convert_add_divisors(j, half, &values, e);
    for (int64_t i = 0; !rc && i < half; i++)
        values[i] = band_divisor(&b, 1 / powf((float)base, (float)(2 * i) / (float)j->dim[DIM_HD]));
    return rc;
}

static const struct matrix {
    const char *hf, *gguf;
    unsigned char dims[2];
} matrices[] = {
    {"gate_proj", "ffn_gate_exps.weight", {DIM_D, DIM_FE}},
    {"up_proj", "ffn_up_exps.weight", {DIM_D, DIM_FE}},
    {"down_proj", "ffn_down_exps.weight", {DIM_FE, DIM_D}},
};
enum { MATRICES = sizeof matrices / sizeof *matrices };

static void shape_experts(const struct convert_job *j, const struct matrix *m,
                          struct convert_item *it) {
    it->n_dims = 3;
    it->ne[0] = j->dim[m->dims[0]];
    it->ne[1] = j->dim[m->dims[1]];
    it->ne[2] = j->dim[DIM_E];
    it->ne[3] = 1;
}

// A fused tensor, whose name may end in ".weight"; *out NULL when there is none.
static int find_fused(struct convert_job *j, const char *name, int layer, const struct tensor **out,
                      struct err *e) {
    char full[64];
    snprintf(full, sizeof full, "mlp.experts.%s", name);
    int rc = convert_find(j, full, layer, out, e);
    if (rc || *out)
        return rc;
    snprintf(full, sizeof full, "mlp.experts.%s.weight", name);
    return convert_find(j, full, layer, out, e);
}

// Gate and up are the halves of each expert's rows.
static int take_fused_experts(struct convert_job *j, const struct tensor *gate_up, int layer,
                              struct err *e) {
    int64_t half = j->dim[DIM_D] * j->dim[DIM_FE];
    const int64_t both[3] = {j->dim[DIM_D], 2 * j->dim[DIM_FE], j->dim[DIM_E]};
    const struct tensor *down;
    int rc = find_fused(j, "down_proj", layer, &down, e);
    if (!rc && !down)
        rc = convert_missing(j, "mlp.experts.down_proj", layer, e);
    if (!rc)
        rc = convert_check_shape(gate_up, both, 3, e);
    for (int i = 0; i < MATRICES && !rc; i++) {
        char name[64];
        struct convert_item item = {.src = i < 2 ? gate_up : down, .name = name};
        shape_experts(j, &matrices[i], &item);
        if (i < 2)
            item.cut = (struct convert_cut){half, 2 * half, i * half};
        else
            rc = convert_check_shape(down, item.ne, 3, e);
        snprintf(name, sizeof name, "blk.%d.%s", layer, matrices[i].gguf);
        if (!rc)
            rc = convert_add(j, &item, e);
    }
    return rc;
}

static int take_expert_parts(struct convert_job *j, const struct matrix *m, int layer,
                             struct err *e) {
    char name[64];
    struct convert_item item = {.name = name, .n_parts = (int)j->dim[DIM_E]};
    const struct tensor **parts = arena_array(&j->plan.arena, (size_t)item.n_parts, sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    shape_experts(j, m, &item);
    for (int i = 0; i < item.n_parts; i++) {
        char hf[64];
        snprintf(hf, sizeof hf, "mlp.experts.%d.%s.weight", i, m->hf);
        int rc = convert_find_part(j, hf, layer, parts, i, &item, e);
        if (rc)
            return rc;
    }
    item.src = parts[0];
    item.parts = parts;
    snprintf(name, sizeof name, "blk.%d.%s", layer, m->gguf);
    return convert_add(j, &item, e);
}

int convert_take_experts(struct convert_job *j, int layer, struct err *e) {
    const struct tensor *gate_up;
    int rc = find_fused(j, "gate_up_proj", layer, &gate_up, e);
    if (rc || gate_up)
        return rc ? rc : take_fused_experts(j, gate_up, layer, e);
    for (int i = 0; i < MATRICES && !rc; i++)
        rc = take_expert_parts(j, &matrices[i], layer, e);
    return rc;
}

// I64 tokens from I64 or I32 distances.
int convert_take_tokens(struct convert_job *j, int64_t *rows, struct err *e) {
    const struct tensor *t;
    int rc = convert_find(j, "d2t", -1, &t, e);
    if (rc || !t)
        return rc;
    if (t->n_dims != 1 || (t->type != TYPE_I64 && t->type != TYPE_I32))
        return err_set(e, ERR_FORMAT, "tensor d2t in %s is no list of integers: get the file again",
                       j->dir);
    const int64_t n = *rows = t->ne[0];
    struct tensor *out = arena_alloc(&j->plan.arena, sizeof *out);
    int64_t *ids = arena_array(&j->plan.arena, (size_t)n, sizeof *ids);
    if (!out || !ids)
        return err_set(e, ERR_MEMORY, "not enough memory for the tokens of the draft's head");
    for (int64_t i = 0; i < n; i++) {
        int32_t narrow = 0;
        if (t->type == TYPE_I64)
            memcpy(&ids[i], (const char *)t->data + i * 8, 8);
        else
            memcpy(&narrow, (const char *)t->data + i * 4, 4);
        ids[i] = t->type == TYPE_I64 ? ids[i] : narrow;
        if (ids[i] < -i || ids[i] >= j->dim[DIM_V] - i)
            return err_set(e, ERR_FORMAT,
                           "entry %" PRId64 " of tensor d2t in %s names no token: get the file "
                           "again",
                           i, j->dir);
        ids[i] += i;
    }
    *out = (struct tensor){.name = "d2t",
                           .type = TYPE_I64,
                           .n_dims = 1,
                           .ne = {n, 1, 1, 1},
                           .data = (unsigned char *)ids,
                           .bytes = n * 8};
    const struct convert_item item = {
        .src = out, .name = "d2t", .type = TYPE_I64, .n_dims = 1, .ne = {n, 1, 1, 1}};
    rc = convert_mark_used(j, t, e);
    return rc ? rc : convert_plan_add(&j->plan, &item, e);
}

int convert_take_present(struct convert_job *j, const struct convert_rule *r, struct err *e) {
    const struct tensor *t;
    int rc = convert_find(j, r->hf, -1, &t, e);
    return rc || !t ? rc : convert_take(j, r, -1, e);
}
