// SPDX-License-Identifier: Apache-2.0
// The DFlash draft: a z-lab folder to the GGUF dialect `dflash`. Norms are plain (no +1). The
// tapped layers are written as "input of layer k", that is id + 1. Embedding, output matrix and
// tokenizer are the target's; the tokenizer is copied so that a reader can check that they fit.
// Drafts of some targets have more than the plain form: rotary scaling (Kimi K2.5, gpt-oss, Llama
// 3), factors of embeddings and logits (Gemma 4), biases and sinks, and what Laguna's have: gates,
// a norm for each tap, one matrix of queries, keys and values. DFlash2's have convolutions and a
// selector of candidates, Domino's a recurrent unit and a head of its own.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "convert/families/rules.h"
#include "convert/vocab/vocab.h"

static bool is_laguna(const struct convert_job *j) {
    return hf_is(json_at(json_get(j->config.root, "architectures"), 0), "DFlashLagunaForCausalLM");
}

// A folder of speculators, where what describes a layer stands apart.
static bool is_speculators(const struct convert_job *j) {
    return json_kind_of(json_get(j->config.root, "transformer_layer_config")) == JSON_OBJECT;
}

// Settings of a kind of layer where kinds have their own, else of all.
static struct convert_rope rope_of(const struct convert_job *j) {
    const struct hf_file *f = &j->config;
    const char *first = json_str(json_at(hf_get(f, "layer_types"), 0), NULL);
    bool windowed = first && !strcmp(first, "sliding_attention");
    struct convert_rope r = convert_rope_of(j);
    const struct json *kind = hf_get(f, windowed ? "rope_parameters.sliding_attention"
                                                 : "rope_parameters.full_attention");
    kind = kind ? kind : hf_get(f, "rope_parameters.full_attention");
    if (windowed && hf_get(f, "swa_rope_parameters"))
        kind = hf_get(f, "swa_rope_parameters");
    r.place[0] = kind ? kind : r.place[0];
    return r;
}

int convert_put_draft_rope(struct convert_job *j, bool pairs, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct convert_rope r = rope_of(j);
    double base = json_num(hf_get(f, "rope_theta"), 0), part;
    double whole = json_num(hf_get(f, "partial_rotary_factor"), 1);
    bool bands = convert_rope_is(&r, "llama3"), yarn = convert_rope_is(&r, "yarn");
    if (!bands && !yarn && !convert_rope_is(&r, "default") && !convert_rope_is(&r, "linear"))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a rope_type other than default, linear, yarn or llama3: this draft "
                       "cannot be converted",
                       f->path);
    int rc = convert_rope_number(j, &r, "rope_theta", base, &base, e);
    if (!rc)
        rc = convert_rope_number(j, &r, "partial_rotary_factor", whole, &part, e);
    if (rc)
        return rc;
    int64_t turned = (int64_t)((double)j->dim[DIM_HD] * part);
    if (turned < 2 || turned % 2 || turned > j->dim[DIM_HD] ||
        ((bands || pairs) && turned != j->dim[DIM_HD]))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s turns %" PRId64 " of %" PRId64 " head dimensions: this draft cannot be "
                       "converted",
                       f->path, turned, j->dim[DIM_HD]);
    convert_put_f32(j, "rope.freq_base", base);
    if (turned != j->dim[DIM_HD])
        convert_put_u32(j, "rope.dimension_count", turned);
    if (yarn)
        convert_put_bool(j, "rope.scaling.yarn_truncate",
                         json_bool(convert_rope_get(&r, "truncate"), true));
    rc = convert_put_scaling(j, &r, false, e);
    return !rc && bands ? convert_add_bands(j, base, e) : rc;
}

// Keys that are absent where a factor is 1, or the target's own.
static int put_factors(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    static const struct {
        const char *hf, *key;
        double neutral;
    } list[] = {{"input_embedding_scale", NULL, 1},
                {"output_multiplier", "logit_scale", 1},
                {"final_logit_softcapping", "final_logit_softcapping", 0}};
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char nested[64];
        snprintf(nested, sizeof nested, "dflash_config.%s", list[i].hf);
        const struct json *v = hf_get(f, nested);
        v = v ? v : hf_get(f, list[i].hf);
        double value = json_num(v, list[i].neutral);
        // Where nothing is said of them the target's hold, but not for drafts of speculators.
        if (is_speculators(j) && i != 1 && !v)
            convert_put_f32(j, i ? list[i].key : "embedding_scale", value);
        if (value == list[i].neutral)
            continue;
        if (!(value > 0) || !list[i].key) // the target's factor, which a file's takes the place of
            return err_set(e, ERR_UNSUPPORTED,
                           "%s has %s %g: this draft cannot be converted, use its safetensors",
                           f->path, list[i].hf, value);
        convert_put_f32(j, list[i].key, value);
    }
    return 0;
}

static int put_form_keys(struct convert_job *j, struct err *e) {
    if (is_laguna(j))
        convert_put_str(j, "decoder_arch", "laguna");
    int rc = hf_check_silu(&j->config, e);
    if (!rc)
        rc = convert_put_draft_rope(j, false, e);
    return rc ? rc : put_factors(j, e);
}

// One tensor of a row for each tap.
static int take_tap_norms(struct convert_job *j, int64_t taps, struct err *e) {
    struct convert_item item = {.name = "enc.aux_norm.weight",
                                .n_parts = (int)taps,
                                .n_dims = 2,
                                .ne = {j->dim[DIM_D], taps, 1, 1}};
    const struct tensor **parts = arena_array(&j->plan.arena, (size_t)taps, sizeof *parts);
    if (!parts)
        return err_set(e, ERR_MEMORY, "not enough memory for the list of tensors");
    for (int i = 0; i < taps; i++) {
        char hf[64];
        snprintf(hf, sizeof hf, "aux_hidden_norms.%d.weight", i);
        int rc = convert_find_part(j, hf, -1, parts, i, &item, e);
        if (rc)
            return rc;
    }
    item.src = parts[0];
    item.parts = parts;
    return convert_add(j, &item, e);
}

// Queries, keys and values, which lie one below the other.
static int take_fused(struct convert_job *j, const struct tensor *t, int layer, struct err *e) {
    static const char *const names[] = {"attn_q", "attn_k", "attn_v"};
    const int64_t d = j->dim[DIM_D], rows[] = {j->dim[DIM_Q], j->dim[DIM_KV], j->dim[DIM_KV]};
    const int64_t all[] = {d, rows[0] + rows[1] + rows[2]};
    int64_t first = 0;
    int rc = convert_check_shape(t, all, 2, e);
    for (int i = 0; !rc && i < 3; i++) {
        char name[64];
        snprintf(name, sizeof name, "blk.%d.%s.weight", layer, names[i]);
        struct convert_item item = {.src = t,
                                    .name = name,
                                    .n_dims = 2,
                                    .ne = {d, rows[i], 1, 1},
                                    .cut = {rows[i] * d, all[1] * d, first * d}};
        rc = convert_add(j, &item, e);
        first += rows[i];
    }
    return rc;
}

static int take_gate(struct convert_job *j, int layer, struct err *e) {
    static const struct convert_rule gate = {"self_attn.g_proj.weight", "attn_gate.weight",
                                             .dims = {DIM_D, DIM_G}};
    const struct tensor *t;
    int rc = convert_find(j, gate.hf, layer, &t, e);
    if (rc || !t)
        return rc;
    j->dim[DIM_G] = t->ne[1] == j->heads ? j->heads : j->dim[DIM_Q];
    return convert_take(j, &gate, layer, e);
}

static int take_form_layer(struct convert_job *j, int layer, struct err *e) {
    static const struct convert_rule whole[] = {
        {"self_attn.q_proj.weight", "attn_q.weight", .dims = {DIM_D, DIM_Q}},
        {"self_attn.k_proj.weight", "attn_k.weight", .dims = {DIM_D, DIM_KV}},
        {"self_attn.v_proj.weight", "attn_v.weight", .dims = {DIM_D, DIM_KV}},
        {0},
    };
    static const struct convert_rule extra[] = {
        {"self_attn.q_proj.bias", "attn_q.bias", .dims = {DIM_Q}},
        {"self_attn.k_proj.bias", "attn_k.bias", .dims = {DIM_KV}},
        {"self_attn.v_proj.bias", "attn_v.bias", .dims = {DIM_KV}},
        {"self_attn.o_proj.bias", "attn_output.bias", .dims = {DIM_D}},
        {"self_attn.attention_sink_bias", "attn_sinks.weight", .dims = {DIM_NV}},
        {0},
    };
    const struct tensor *t;
    const bool biased = json_bool(hf_get(&j->config, "attention_bias"), false);
    int rc = convert_find(j, "self_attn.qkv_proj.weight", layer, &t, e);
    if (!rc)
        rc = t ? take_fused(j, t, layer, e) : convert_take_all(j, whole, layer, e);
    if (!rc)
        rc = take_gate(j, layer, e);
    j->dim[DIM_NV] = j->heads;
    for (const struct convert_rule *r = extra; !rc && r->hf; r++) {
        rc = convert_find(j, r->hf, layer, &t, e);
        bool named = biased && strstr(r->hf, "_proj.bias");
        if (!rc && (t || named))
            rc = convert_take(j, r, layer, e);
    }
    return rc;
}

// Sizes of DFlash2 in the places of others that drafts lack: taps of convolutions, their two sides,
// the width of a row's kernels, the selector's rank.
enum { DIM_KERNEL = DIM_CONV, DIM_SIDES = DIM_DV, DIM_KERNELS = DIM_C, DIM_RANK = DIM_L };

// DFlash2: what its folders name in dflash_config or at the top, and keys of the same names.
static const struct part {
    const char *name;
    int64_t max;
} parts[] = {{"conv_kernel_size", 64},
             {"conv_group_size", 1 << 20},
             {"selector_rank", 1 << 12},
             {"selector_top_k", 1 << 10}};

static bool is_dflash2(const struct convert_job *j) {
    return hf_is(json_at(json_get(j->config.root, "architectures"), 0), "DFlash2DraftModel");
}

static int put_parts(struct convert_job *j, struct err *e) {
    int64_t value[4], *d = j->dim;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char nested[64];
        snprintf(nested, sizeof nested, "dflash_config.%s", parts[i].name);
        const char *key = hf_get(&j->config, nested) ? nested : parts[i].name;
        int rc = hf_int(&j->config, key, 1, parts[i].max, -1, &value[i], e);
        if (rc)
            return rc;
        convert_put_u32(j, parts[i].name, value[i]);
    }
    if (d[DIM_D] % value[1])
        return err_set(e, ERR_FORMAT,
                       "conv_group_size in %s is %" PRId64 ", which does not divide the hidden "
                       "size %" PRId64 ": get the file again",
                       j->config.path, value[1], d[DIM_D]);
    d[DIM_SIDES] = 2;
    d[DIM_KERNEL] = value[0];
    d[DIM_KERNELS] = 2 * value[0] * (d[DIM_D] / value[1]);
    d[DIM_RANK] = value[2];
    return 0;
}

static bool is_domino(const struct convert_job *j) {
    const struct json *kind = hf_get(&j->config, "dflash_config.projector_type");
    return hf_is(kind, "domino") || hf_is(kind, "causal_v5");
}

// Sizes of Domino in the places of others that drafts lack: gates and width of the recurrent unit,
// with it the width of the head's input, width of the head.
enum { DIM_GATES = DIM_CONV, DIM_UNIT = DIM_DV, DIM_JOINED = DIM_C, DIM_HEAD = DIM_L };

static int put_domino(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    const char *head = hf_get(f, "dflash_config.emb_dim") ? "dflash_config.emb_dim" : "emb_dim";
    int64_t *d = j->dim, skip;
    const struct hf_number rows[] = {
        {"dflash_config.gru_hidden_dim", 1, 1 << 14, -1, &d[DIM_UNIT], NULL},
        {head, 1, 1 << 12, -1, &d[DIM_HEAD], NULL},
        {"dflash_config.pure_draft_prefix_len", 0, 4096, 0, &skip, NULL}};
    int rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    if (rc)
        return rc;
    d[DIM_GATES] = 3 * d[DIM_UNIT];
    d[DIM_JOINED] = d[DIM_D] + d[DIM_UNIT];
    convert_put_u32(j, "domino.gru_hidden_dim", d[DIM_UNIT]);
    convert_put_u32(j, "domino.emb_dim", d[DIM_HEAD]);
    convert_put_u32(j, "domino.pure_draft_prefix_len", skip);
    convert_put_bool(j, "domino.shift_label",
                     json_bool(hf_get(f, "dflash_config.shift_label"), false));
    return 0;
}

static const struct convert_rule domino_rules[] = {
    {"prefix_gru.weight_ih_l0", "dflash.domino.gru.weight_ih", .dims = {DIM_D, DIM_GATES}},
    {"prefix_gru.weight_hh_l0", "dflash.domino.gru.weight_hh", .dims = {DIM_UNIT, DIM_GATES}},
    {"embed_proj.0.weight", "dflash.domino.head.w1", .dims = {DIM_JOINED, DIM_HEAD}},
    {"embed_proj.2.weight", "dflash.domino.head.w2", .dims = {DIM_HEAD, DIM_V}},
    {0},
};

static const struct convert_rule selector_rules[] = {
    {"candidate_selector.hidden_projection.weight", "selector_hidden.weight",
     .dims = {DIM_D, DIM_RANK}},
    {"candidate_selector.predecessor_codebook", "selector_predecessor.weight",
     .dims = {DIM_RANK, DIM_V}},
    {"candidate_selector.successor_codebook", "selector_successor.weight",
     .dims = {DIM_RANK, DIM_V}},
    {0},
};

static const struct convert_rule convolution_rules[] = {
    {"attention_conv.base_kernel", "attn_conv_base", .dims = {DIM_D, DIM_KERNEL, DIM_SIDES}},
    {"attention_conv.kernel_projection.weight", "attn_conv_proj.weight",
     .dims = {DIM_D, DIM_KERNELS}},
    {"mlp_conv.base_kernel", "ffn_conv_base", .dims = {DIM_D, DIM_KERNEL, DIM_SIDES}},
    {"mlp_conv.kernel_projection.weight", "ffn_conv_proj.weight", .dims = {DIM_D, DIM_KERNELS}},
    {0},
};

// Tensors of a layer (outside of layers: -1) besides those of all drafts.
static int take_form_tensors(struct convert_job *j, int layer, int64_t taps, struct err *e) {
    const struct tensor *t;
    int rc = 0;
    if (is_dflash2(j))
        rc = convert_take_all(j, layer < 0 ? selector_rules : convolution_rules, layer, e);
    if (is_domino(j) && layer < 0)
        rc = convert_take_all(j, domino_rules, -1, e);
    if (!rc && layer >= 0)
        return take_form_layer(j, layer, e);
    if (!rc)
        rc = convert_find(j, "aux_hidden_norms.0.weight", -1, &t, e);
    return rc || !t ? rc : take_tap_norms(j, taps, e);
}

enum { MAX_LAYERS = 256, MAX_TAPS = 64 };

static const struct convert_rule draft_layer_rules[] = {
    {"input_layernorm.weight", "attn_norm.weight", .dims = {DIM_D}},
    {"self_attn.o_proj.weight", "attn_output.weight", .dims = {DIM_Q, DIM_D}},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", .dims = {DIM_HD}},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", .dims = {DIM_HD}},
    {"post_attention_layernorm.weight", "ffn_norm.weight", .dims = {DIM_D}},
    {"mlp.gate_proj.weight", "ffn_gate.weight", .dims = {DIM_D, DIM_F}},
    {"mlp.up_proj.weight", "ffn_up.weight", .dims = {DIM_D, DIM_F}},
    {"mlp.down_proj.weight", "ffn_down.weight", .dims = {DIM_F, DIM_D}},
    {0},
};

static const struct convert_rule global_rules[] = {
    {"fc.weight", "fc.weight", .dims = {DIM_TAPS, DIM_D}},
    {"hidden_norm.weight", "enc.output_norm.weight", .dims = {DIM_D}},
    {"norm.weight", "output_norm.weight", .dims = {DIM_D}},
    {0},
};

struct draft {
    int64_t context, block, mask, depth; // depth: layers of the target
    double eps;
    int32_t taps[MAX_TAPS];
    size_t n_taps;
    bool sliding[MAX_LAYERS];
    int64_t window; // 0: no sliding layer
};

// Marks of relatives whose forward pass differs from the plain draft's.
static int check_draft(const struct convert_job *j, struct err *e) {
    static const char *const marks[] = {
        "markov_rank",
        "dflash_config.attention_value_scale",
        "dflash_config.conv_kernel_size",
        "dflash_config.selector_rank",
    };
    const struct hf_file *f = &j->config;
    const size_t n = sizeof marks / sizeof *marks - (is_dflash2(j) ? 2 : 0);
    for (size_t i = convert_is_dspark(j); i < n; i++) // a factor of 1 changes nothing
        if (json_num(hf_get(f, marks[i]), 0) != 1 && hf_get(f, marks[i]))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s has '%s', which only other kinds of draft have: "
                           "this one cannot be converted",
                           f->path, marks[i]);
    const char *kind = json_str(hf_get(f, "speculators_model_type"), NULL);
    if (kind && strcmp(kind, "dflash") != 0 && strcmp(kind, "dspark") != 0)
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has the speculators_model_type '%.40s', neither dflash nor dspark: this "
                       "draft cannot be converted",
                       f->path, kind);
    if (hf_get(f, "aux_hidden_state_layer_ids") && !is_speculators(j))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has 'aux_hidden_state_layer_ids' without a 'transformer_layer_config': "
                       "this draft cannot be converted",
                       f->path);
    return 0;
}

static int read_draft_sizes(struct convert_job *j, struct draft *d, struct err *e) {
    const struct hf_file *f = &j->config;
    int rc = convert_read_sizes(j, true, e);
    if (!rc && j->layers > MAX_LAYERS)
        rc = err_set(e, ERR_LIMIT,
                     "%s has %" PRId64 " layers, more than the %d that a draft may have: get the "
                     "file again",
                     f->path, j->layers, MAX_LAYERS);
    char block[64], mask[64], depth[64];
    const struct hf_number rows[] = {
        {"max_position_embeddings", 1, INT32_MAX, -1, &d->context, NULL},
        {convert_draft_key(f, "block_size", block, sizeof block), 2, 4096, -1, &d->block, NULL},
        {convert_draft_key(f, "mask_token_id", mask, sizeof mask), 0, j->dim[DIM_V] - 1, -1,
         &d->mask, NULL},
        {convert_draft_key(f, "num_target_layers", depth, sizeof depth), is_speculators(j) ? -1 : 1,
         4096, -1, &d->depth, NULL},
    };
    if (!rc)
        rc = hf_ints(f, rows, sizeof rows / sizeof *rows, e);
    return rc ? rc : hf_float(f, "rms_norm_eps", 1e-6, &d->eps, e);
}

// Tapped layers, which speculators name by what they read (the output of the one before), or the
// formula of files that do not list them (one tap per draft layer).
static int read_taps(const struct convert_job *j, struct draft *d, struct err *e) {
    const bool inputs = is_speculators(j);
    char buf[64];
    const char *key = inputs ? "aux_hidden_state_layer_ids"
                             : convert_draft_key(&j->config, "target_layer_ids", buf, sizeof buf);
    const struct json *ids = hf_get(&j->config, key);
    if (!ids && inputs)
        return err_set(e, ERR_FORMAT, "%s lacks '%s': get the file again", j->config.path, key);
    int64_t n = ids ? (int64_t)json_len(ids) : j->layers;
    if (n < 1 || n > MAX_TAPS)
        return err_set(e, ERR_FORMAT,
                       "%s in %s lists %" PRId64 " layers, not 1 to %d: get the file again", key,
                       j->config.path, n, MAX_TAPS);
    d->n_taps = (size_t)n;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = d->depth / 2;
        if (ids)
            id = json_int(json_at(ids, (size_t)i), -1) - inputs;
        else if (n > 1)
            id = (int64_t)nearbyint(1.0 + (double)(i * (d->depth - 4)) / (double)(n - 1));
        if (id < 0 || id >= (d->depth < 0 ? 4096 : d->depth))
            return err_set(e, ERR_MISMATCH,
                           "the draft taps layer %" PRId64 " of a target with %" PRId64
                           " layers (%s): give a draft made for its target",
                           id, d->depth, j->config.path);
        d->taps[i] = (int32_t)(id + 1);
    }
    return 0;
}

// Which layers see a sliding window only, and how wide it is.
static int read_windows(const struct convert_job *j, struct draft *d, struct err *e) {
    const struct hf_file *f = &j->config;
    const struct json *types = hf_get(f, "layer_types");
    bool all = json_bool(hf_get(f, "dflash_config.use_swa"), false), any = all;
    bool wanted = json_bool(hf_get(f, "use_sliding_window"), true);
    if (types && (int64_t)json_len(types) != j->layers)
        return err_set(e, ERR_FORMAT,
                       "layer_types in %s lists %zu layers, not %" PRId64 ": get the file again",
                       f->path, json_len(types), j->layers);
    for (int64_t i = 0; i < j->layers; i++) {
        const char *s = json_str(json_at(types, (size_t)i), NULL);
        if (types && (!s || (strcmp(s, "full_attention") && strcmp(s, "sliding_attention"))))
            return err_set(e, ERR_UNSUPPORTED,
                           "layer_types in %s has '%.30s' for layer %" PRId64
                           ", not full_attention or sliding_attention: this draft cannot be "
                           "converted",
                           f->path, s ? s : "", i);
        d->sliding[i] = all || (wanted && s && !strcmp(s, "sliding_attention"));
        any |= d->sliding[i];
    }
    d->window = 0;
    if (!any)
        return 0;
    return hf_int(f, all ? "dflash_config.swa_window_size" : "sliding_window", 1, INT32_MAX, -1,
                  &d->window, e);
}

static void put_draft_keys(struct convert_job *j, const struct draft *d) {
    struct gguf_writer *w = j->writer;
    static const char *const causal[] = {"is_causal", "dflash_config.is_causal",
                                         "dflash_config.causal", "dflash_config.causal_head"};
    convert_put_widths(j, d->context);
    convert_put_u32(j, "attention.head_count", j->heads);
    convert_put_heads(j);
    convert_put_u32(j, "block_size", d->block);
    convert_put_f32(j, "attention.layer_norm_rms_epsilon", d->eps);
    convert_put_array(j, "target_layers", GGUF_I32, d->taps, d->n_taps);
    if (d->window) {
        convert_put_u32(j, "attention.sliding_window", d->window);
        convert_put_array(j, "attention.sliding_window_pattern", GGUF_BOOL, d->sliding,
                          (uint64_t)j->layers);
    }
    for (size_t i = 0; i < sizeof causal / sizeof *causal; i++) {
        const struct json *v = hf_get(&j->config, causal[i]);
        if (json_kind_of(v) != JSON_BOOL)
            continue;
        gguf_put_bool(w, "dflash.attention.causal", json_bool(v, false));
        break;
    }
    if (json_bool(hf_get(&j->config, "sliding_window_non_causal"), false))
        gguf_put_bool(w, "dflash.attention.causal", false);
    gguf_put_int(w, "tokenizer.ggml.mask_token_id", GGUF_U32, d->mask);
}

// The sizes of the target that a draft must agree with.
struct target_sizes {
    int64_t width, layers, vocab;
    bool sections; // turns by three positions
};

static int check_fit(const struct convert_job *j, struct convert_fit *d,
                     const struct target_sizes *t, const char *target, struct err *e) {
    const struct {
        const char *what;
        int64_t draft, target;
    } pairs[] = {{"hidden size", d->width, t->width},
                 {"target layers", d->layers, t->layers},
                 {"vocabulary", j->dim[DIM_V], t->vocab}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].draft >= 0 && pairs[i].draft != pairs[i].target)
            return err_set(e, ERR_MISMATCH,
                           "the draft's %s is %" PRId64 ", but %s has %" PRId64
                           ": give the target that this draft was made for",
                           pairs[i].what, pairs[i].draft, target, pairs[i].target);
    d->layers = t->layers;
    return 0;
}

// A target that turns by three positions sees a draft that turns by the first alone.
static void put_sections(struct convert_job *j) {
    const int32_t sections[4] = {(int32_t)(j->dim[DIM_HD] / 2), 0, 0, 0};
    convert_put_array(j, "rope.dimension_sections", GGUF_I32, sections, 4);
}

static int fit_folder(struct convert_job *j, struct convert_fit *d, const char *dir,
                      struct err *e) {
    struct hf_file f = {0};
    struct target_sizes t = {0};
    int rc = hf_read(&f, dir, "config.json", true, e);
    const struct hf_number rows[] = {
        {"hidden_size", 1, 1 << 20, -1, &t.width, NULL},
        {"num_hidden_layers", 1, 4096, -1, &t.layers, NULL},
        {"vocab_size", 1, 1 << 24, -1, &t.vocab, NULL},
    };
    if (!rc)
        rc = hf_ints(&f, rows, sizeof rows / sizeof *rows, e);
    if (!rc)
        rc = check_fit(j, d, &t, dir, e);
    if (!rc &&
        (hf_get(&f, "rope_parameters.mrope_section") || hf_get(&f, "rope_scaling.mrope_section")))
        put_sections(j);
    if (!rc)
        rc = convert_vocab_hf(j->writer, dir, j->dim[DIM_V], e);
    hf_close(&f);
    return rc;
}

static int gguf_sizes(const struct gguf *g, struct target_sizes *t, struct err *e) {
    const char *arch;
    char key[128];
    size_t n;
    int64_t mtp = 0;
    const struct tensor *embd = gguf_tensor(g, "token_embd.weight");
    int rc = gguf_get_str(g, "general.architecture", &arch, &n, e);
    if (rc)
        return rc;
    if (!arch || n > 64 || !embd)
        return err_set(e, ERR_MISMATCH, "%s is no complete language model: give the draft's target",
                       gguf_path(g));
    t->vocab = embd->ne[1];
    snprintf(key, sizeof key, "%.*s.embedding_length", (int)n, arch);
    rc = gguf_get_int(g, key, 1, 1 << 20, 0, &t->width, e);
    snprintf(key, sizeof key, "%.*s.block_count", (int)n, arch);
    if (!rc)
        rc = gguf_get_int(g, key, 1, 4096, 0, &t->layers, e);
    snprintf(key, sizeof key, "%.*s.nextn_predict_layers", (int)n, arch);
    if (!rc)
        rc = gguf_get_int(g, key, 0, t->layers, 0, &mtp, e);
    t->layers -= mtp;
    snprintf(key, sizeof key, "%.*s.rope.dimension_sections", (int)n, arch);
    t->sections = gguf_find(g, key) != NULL;
    return rc;
}

static int fit_gguf(struct convert_job *j, struct convert_fit *d, const char *path, struct err *e) {
    struct gguf *g = NULL;
    struct target_sizes t = {0};
    int rc = gguf_open(&g, path, e);
    if (!rc)
        rc = gguf_sizes(g, &t, e);
    if (!rc)
        rc = check_fit(j, d, &t, path, e);
    if (!rc && t.sections)
        put_sections(j);
    if (!rc)
        rc = convert_vocab_gguf(j->writer, g, e);
    gguf_close(g);
    return rc;
}

int convert_fit_target(struct convert_job *j, struct convert_fit *d, struct err *e) {
    const char *target = j->options->target_dir;
    struct stat st;
    char own[4096];
    if (target)
        return !stat(target, &st) && S_ISDIR(st.st_mode) ? fit_folder(j, d, target, e)
                                                         : fit_gguf(j, d, target, e);
    snprintf(own, sizeof own, "%s/tokenizer.json", j->dir);
    if (!stat(own, &st))
        return convert_vocab_hf(j->writer, j->dir, j->dim[DIM_V], e);
    return err_set(e, ERR_USAGE,
                   "%s is a draft without a tokenizer: name its target with "
                   "--target-dir",
                   j->dir);
}

// Embedding and head of the draft's own.
static int take_ends(struct convert_job *j, struct err *e) {
    static const struct convert_rule rules[] = {
        {"embed_tokens.weight", "token_embd.weight", .dims = {DIM_D, DIM_V}},
        {"lm_head.weight", "output.weight", .dims = {DIM_D, DIM_DRAFT_ROWS}},
    };
    int rc = 0;
    for (int i = 0; !rc && i < 2; i++)
        rc = convert_take_present(j, &rules[i], e);
    return rc;
}

// Which tokens the head scores, all or those of d2t.
static int take_tokens(struct convert_job *j, struct err *e) {
    j->dim[DIM_DRAFT_ROWS] = j->dim[DIM_V];
    int rc = convert_take_tokens(j, &j->dim[DIM_DRAFT_ROWS], e);
    int64_t named = json_int(hf_get(&j->config, "draft_vocab_size"), j->dim[DIM_DRAFT_ROWS]);
    if (!rc && named != j->dim[DIM_DRAFT_ROWS])
        rc = err_set(e, ERR_MISMATCH,
                     "%s has a draft_vocab_size of %" PRId64 ", but its head scores %" PRId64
                     " tokens (tensor d2t): get the file again",
                     j->config.path, named, j->dim[DIM_DRAFT_ROWS]);
    return rc;
}

int convert_draft(struct convert_job *j, struct err *e) {
    struct draft d = {0};
    if (is_speculators(j))
        j->config.text = json_get(j->config.root, "transformer_layer_config");
    int rc = check_draft(j, e);
    if (!rc)
        rc = read_draft_sizes(j, &d, e);
    if (!rc)
        rc = read_taps(j, &d, e);
    if (!rc)
        rc = read_windows(j, &d, e);
    if (rc)
        return rc;
    j->dim[DIM_TAPS] = (int64_t)d.n_taps * j->dim[DIM_D];
    j->model = (struct convert_model){.recipe = j->options->recipe,
                                      .layers = (int)j->layers,
                                      .shared = j->heads >= 4 * j->kv_heads};
    convert_put_general(j);
    put_draft_keys(j, &d);
    rc = put_form_keys(j, e);
    if (!rc && is_dflash2(j))
        rc = put_parts(j, e);
    if (!rc && is_domino(j))
        rc = put_domino(j, e);
    if (!rc)
        rc = take_tokens(j, e);
    if (!rc && convert_is_dspark(j))
        rc = convert_dspark(j, e);
    if (!rc)
        rc = convert_fit_target(j, &(struct convert_fit){j->dim[DIM_D], d.depth}, e);
    if (!rc)
        rc = convert_take_all(j, global_rules, -1, e);
    if (!rc && (!convert_is_dspark(j) || j->dim[DIM_DRAFT_ROWS] != j->dim[DIM_V]))
        rc = take_ends(j, e); // which a DSpark draft with a whole head has copies of
    if (!rc)
        rc = take_form_tensors(j, -1, (int64_t)d.n_taps, e);
    for (int i = 0; i < j->layers && !rc; i++) {
        rc = take_form_tensors(j, i, (int64_t)d.n_taps, e);
        if (!rc)
            rc = convert_take_all(j, draft_layer_rules, i, e);
    }
    return rc;
}
