// SPDX-License-Identifier: Apache-2.0
// The DFlash draft: a z-lab folder to the GGUF dialect `dflash`. Norms are plain (no +1). The
// tapped layers are written as "input of layer k", that is id + 1. Embedding, output matrix and
// tokenizer are the target's; the tokenizer is copied so that a reader can check that they fit.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "convert/families/rules.h"

enum { MAX_LAYERS = 256, MAX_TAPS = 64 };

static const struct convert_rule layer_rules[] = {
    {"input_layernorm.weight", "attn_norm.weight", {DIM_D}, OP_NONE, 0},
    {"self_attn.o_proj.weight", "attn_output.weight", {DIM_Q, DIM_D}, OP_NONE, 0},
    {"self_attn.q_norm.weight", "attn_q_norm.weight", {DIM_HD}, OP_NONE, 0},
    {"self_attn.k_norm.weight", "attn_k_norm.weight", {DIM_HD}, OP_NONE, 0},
    {"post_attention_layernorm.weight", "ffn_norm.weight", {DIM_D}, OP_NONE, 0},
    {"mlp.gate_proj.weight", "ffn_gate.weight", {DIM_D, DIM_F}, OP_NONE, 0},
    {"mlp.up_proj.weight", "ffn_up.weight", {DIM_D, DIM_F}, OP_NONE, 0},
    {"mlp.down_proj.weight", "ffn_down.weight", {DIM_F, DIM_D}, OP_NONE, 0},
    {0},
};

static const struct convert_rule global_rules[] = {
    {"fc.weight", "fc.weight", {DIM_TAPS, DIM_D}, OP_NONE, 0},
    {"hidden_norm.weight", "enc.output_norm.weight", {DIM_D}, OP_NONE, 0},
    {"norm.weight", "output_norm.weight", {DIM_D}, OP_NONE, 0},
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

// A member of dflash_config, else of the top level.
static const char *nested(const struct hf_file *f, const char *in_config, const char *top) {
    return hf_get(f, in_config) ? in_config : top;
}

// Marks of relatives whose forward pass differs from the plain draft's.
static int check_supported(const struct hf_file *f, struct err *e) {
    static const char *const marks[] = {
        "dflash_config.conv_kernel_size", "dflash_config.selector_rank",         "markov_rank",
        "aux_hidden_state_layer_ids",     "dflash_config.attention_value_scale",
    };
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) // a factor of 1 changes nothing
        if (json_num(hf_get(f, marks[i]), 0) != 1 && hf_get(f, marks[i]))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s has '%s', which only other kinds of draft have: "
                           "this one cannot be converted",
                           f->path, marks[i]);
    const struct json *vocab = hf_get(f, "draft_vocab_size");
    if (vocab && json_int(vocab, -1) != json_int(hf_get(f, "vocab_size"), -2))
        return err_set(e, ERR_UNSUPPORTED,
                       "%s has a draft_vocab_size other than vocab_size: this draft cannot be "
                       "converted",
                       f->path);
    return 0;
}

static int read_sizes(struct convert_job *j, struct draft *d, struct err *e) {
    const struct hf_file *f = &j->config;
    int rc = convert_read_sizes(j, true, e);
    if (!rc && j->layers > MAX_LAYERS)
        rc = err_set(e, ERR_LIMIT,
                     "%s has %" PRId64 " layers, more than the %d that a draft may have: get the "
                     "file again",
                     f->path, j->layers, MAX_LAYERS);
    if (!rc)
        rc = hf_int(f, "max_position_embeddings", 1, INT32_MAX, -1, &d->context, e);
    if (!rc)
        rc = hf_int(f, nested(f, "dflash_config.block_size", "block_size"), 2, 4096, -1, &d->block,
                    e);
    if (!rc)
        rc = hf_int(f, "dflash_config.mask_token_id", 0, j->dim[DIM_V] - 1, -1, &d->mask, e);
    if (!rc)
        rc = hf_int(f, nested(f, "dflash_config.num_target_layers", "num_target_layers"), 1, 4096,
                    -1, &d->depth, e);
    return rc ? rc : hf_float(f, "rms_norm_eps", 1e-6, &d->eps, e);
}

// Tapped layers, or the formula of files that do not list them (one tap per draft layer).
static int read_taps(const struct convert_job *j, struct draft *d, struct err *e) {
    const struct json *ids = hf_get(&j->config, "dflash_config.target_layer_ids");
    int64_t n = ids ? (int64_t)json_len(ids) : j->layers;
    if (n < 1 || n > MAX_TAPS)
        return err_set(e, ERR_FORMAT,
                       "dflash_config.target_layer_ids in %s lists %" PRId64 " layers, "
                       "not 1 to %d: get the file again",
                       j->config.path, n, MAX_TAPS);
    d->n_taps = (size_t)n;
    for (int64_t i = 0; i < n; i++) {
        int64_t id = d->depth / 2;
        if (ids)
            id = json_int(json_at(ids, (size_t)i), -1);
        else if (n > 1)
            id = (int64_t)nearbyint(1.0 + (double)(i * (d->depth - 4)) / (double)(n - 1));
        if (id < 0 || id >= d->depth)
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

static void put_keys(struct convert_job *j, const struct draft *d) {
    struct gguf_writer *w = j->writer;
    static const char *const causal[] = {"is_causal", "dflash_config.is_causal",
                                         "dflash_config.causal"};
    const struct {
        const char *key;
        int64_t v;
    } keys[] = {
        {"block_count", j->layers},
        {"context_length", d->context},
        {"embedding_length", j->dim[DIM_D]},
        {"feed_forward_length", j->dim[DIM_F]},
        {"vocab_size", j->dim[DIM_V]},
        {"attention.head_count", j->heads},
        {"attention.head_count_kv", j->kv_heads},
        {"attention.key_length", j->dim[DIM_HD]},
        {"attention.value_length", j->dim[DIM_HD]},
        {"block_size", d->block},
    };
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        convert_put_u32(j, keys[i].key, keys[i].v);
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
    gguf_put_int(w, "tokenizer.ggml.mask_token_id", GGUF_U32, d->mask);
}

// The sizes of the target that a draft must agree with.
struct target_sizes {
    int64_t width, layers, vocab;
    bool sections; // turns by three positions
};

static int check_fit(const struct convert_job *j, const struct draft *d,
                     const struct target_sizes *t, const char *target, struct err *e) {
    const struct {
        const char *what;
        int64_t draft, target;
    } pairs[] = {{"hidden size", j->dim[DIM_D], t->width},
                 {"target layers", d->depth, t->layers},
                 {"vocabulary", j->dim[DIM_V], t->vocab}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        if (pairs[i].draft != pairs[i].target)
            return err_set(e, ERR_MISMATCH,
                           "the draft's %s is %" PRId64 ", but %s has %" PRId64
                           ": give the target that this draft was made for",
                           pairs[i].what, pairs[i].draft, target, pairs[i].target);
    return 0;
}

// A target that turns by three positions sees a draft that turns by the first alone.
static void put_sections(struct convert_job *j) {
    const int32_t sections[4] = {(int32_t)(j->dim[DIM_HD] / 2), 0, 0, 0};
    convert_put_array(j, "rope.dimension_sections", GGUF_I32, sections, 4);
}

static int fit_folder(struct convert_job *j, const struct draft *d, const char *dir,
                      struct err *e) {
    struct hf_file f = {0};
    struct target_sizes t = {0};
    int rc = hf_read(&f, dir, "config.json", true, e);
    if (!rc)
        rc = hf_int(&f, "hidden_size", 1, 1 << 20, -1, &t.width, e);
    if (!rc)
        rc = hf_int(&f, "num_hidden_layers", 1, 4096, -1, &t.layers, e);
    if (!rc)
        rc = hf_int(&f, "vocab_size", 1, 1 << 24, -1, &t.vocab, e);
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

static int fit_gguf(struct convert_job *j, const struct draft *d, const char *path, struct err *e) {
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

// Copies the tokenizer of the target (or the one beside the draft) after checking the sizes.
static int fit_target(struct convert_job *j, const struct draft *d, struct err *e) {
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

int convert_draft(struct convert_job *j, struct err *e) {
    struct draft d = {0};
    int rc = check_supported(&j->config, e);
    if (!rc)
        rc = read_sizes(j, &d, e);
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
    put_keys(j, &d);
    rc = convert_draft_keys(j, e);
    if (!rc)
        rc = fit_target(j, &d, e);
    if (!rc)
        rc = convert_take_all(j, global_rules, -1, e);
    if (!rc)
        rc = convert_draft_tensors(j, -1, (int64_t)d.n_taps, e);
    for (int i = 0; i < j->layers && !rc; i++) {
        rc = convert_draft_tensors(j, i, (int64_t)d.n_taps, e);
        if (!rc)
            rc = convert_take_all(j, layer_rules, i, e);
    }
    return rc;
}
