// SPDX-License-Identifier: Apache-2.0
// Keys as the established converter writes them. Absent ones have the values that other readers
// give them; what no layer here computes is refused.
#include "models/params.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "models/load.h"

const char *params_key(char *buf, const char *arch, const char *suffix) {
    snprintf(buf, PARAMS_KEY, "%s.%s", arch, suffix);
    return buf;
}

int params_read_sizes(struct model_params *p, const struct gguf *g, const char *arch,
                      int64_t *blocks, struct err *e) {
    char key[PARAMS_KEY];
    int64_t nextn = 0;
    p->arch = arch;
    int rc = meta_int(g, params_key(key, arch, "block_count"), 1, PARAMS_MAX_LAYERS, 0, blocks, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "nextn_predict_layers"), 0, *blocks - 1, 0, &nextn,
                      e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "context_length"), 1, (int64_t)1 << 31, 0,
                      &p->context, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "embedding_length"), 32, PARAMS_MAX_WIDTH, 0,
                      &p->dim, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "feed_forward_length"), p->moe.experts ? 0 : 32,
                      PARAMS_MAX_WIDTH, 0, &p->ffn, e);
    if (!rc && (p->dim % 32 || p->ffn % 32))
        rc = err_set(e, ERR_UNSUPPORTED, "widths %lld and %lld must be multiples of 32",
                     (long long)p->dim, (long long)p->ffn);
    if (!rc)
        rc = meta_positive(g, params_key(key, arch, "attention.layer_norm_rms_epsilon"), 0, &p->eps,
                           e);
    if (!rc)
        p->n_layers = (int)(*blocks - nextn);
    return rc;
}

int params_read_attention(struct model_params *p, const struct gguf *g, int64_t blocks, double base,
                          struct err *e) {
    char key[PARAMS_KEY];
    int64_t hd, vd, rope;
    double scale;
    const char *arch = p->arch;
    int rc = meta_heads(g, params_key(key, arch, "attention.head_count"), blocks, &p->n_heads, e);
    p->n_kv = p->n_heads;
    if (!rc && gguf_find(g, params_key(key, arch, "attention.head_count_kv")))
        rc = meta_heads(g, key, blocks, &p->n_kv, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "attention.key_length"), 32, OPS_HEAD_MAX,
                      p->dim / p->n_heads, &hd, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "attention.value_length"), 32, OPS_HEAD_MAX, hd, &vd,
                      e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "rope.dimension_count"), 2, hd, hd, &rope, e);
    if (!rc)
        rc = gguf_get_float(g, params_key(key, arch, "attention.scale"), 0, &scale, e);
    if (rc)
        return rc;
    if (hd != vd || hd % 32 != 0 || rope % 2 != 0 || p->n_heads % p->n_kv != 0 ||
        p->n_heads / p->n_kv > OPS_GROUP_MAX)
        return err_set(e, ERR_UNSUPPORTED,
                       "attention with %d heads over %d, key length %lld, value length %lld and "
                       "%lld rotary dimensions is not supported",
                       p->n_heads, p->n_kv, (long long)hd, (long long)vd, (long long)rope);
    p->head_dim = (int)hd;
    p->rope = (struct rope){.dims = (int)rope};
    p->attn_scale = scale > 0 ? (float)scale : (float)(1.0 / sqrt((double)hd));
    return meta_positive(g, params_key(key, arch, "rope.freq_base"), base, &p->rope.base, e);
}

int params_is_windowed(const struct model_params *p, const struct gguf *g, int period,
                       bool full_first, int i, bool *windowed, struct err *e) {
    char key[PARAMS_KEY];
    int64_t counts;
    const struct gguf_kv *kv =
        gguf_find(g, params_key(key, p->arch, "attention.sliding_window_pattern"));
    if (kv && kv->kind == GGUF_ARRAY) {
        if (kv->count != (uint64_t)p->n_layers || kv->elem == GGUF_STRING || kv->elem == GGUF_F32 ||
            kv->elem == GGUF_F64)
            return err_set(e, ERR_FORMAT, "metadata key %s must have %d values", key, p->n_layers);
        *windowed = gguf_array_int(kv, (uint64_t)i) != 0;
        return 0;
    }
    int rc = meta_int(g, key, 1, PARAMS_MAX_LAYERS, period, &counts, e);
    *windowed = !rc && i % counts != (full_first ? 0 : counts - 1);
    return rc;
}

bool params_lists(const char *words, const char *name) {
    return str_lists(words, name, strlen(name));
}

bool params_is_for_drafting(const char *name) {
    const char *part = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
    return part ? strncmp(part, ".nextn.", 7) == 0 : strcmp(name, "output_extra.weight") == 0;
}

int params_refuse_tensors(const struct gguf *g, const char *arch, const char *names,
                          const char *layer, struct err *e) {
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        const char *part = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
        if (!params_is_for_drafting(name) &&
            !params_lists(part ? layer : names, part ? part + 1 : name))
            return err_set(e, ERR_UNSUPPORTED,
                           "the file has a tensor %.80s, which a %s model lacks; use a file "
                           "without it",
                           name, arch);
    }
    return 0;
}

// The number in a name "blk.N.nextn.eh_proj.weight", or -1. Names with zeros in front, as which no
// tensor is looked up, are of no block.
static int nextn_block(const char *name) {
    char *end;
    if (strncmp(name, "blk.", 4) != 0 || name[4] < '0' || name[4] > '9' ||
        (name[4] == '0' && name[5] != '.'))
        return -1;
    long n = strtol(name + 4, &end, 10);
    return n <= PARAMS_MAX_LAYERS && strcmp(end, ".nextn.eh_proj.weight") == 0 ? (int)n : -1;
}

int params_nextn_blocks(const struct gguf *g, int *lowest) {
    int n = 0;
    *lowest = -1;
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        int block = nextn_block(gguf_tensor_at(g, i)->name);
        n += block >= 0;
        if (block >= 0 && (*lowest < 0 || block < *lowest))
            *lowest = block;
    }
    return n;
}

bool params_is_sidecar(const struct gguf *g, int *block) {
    return params_nextn_blocks(g, block) &&
           (*block == 0 || !gguf_tensor(g, "blk.0.attn_norm.weight"));
}

int params_refuse_sidecar(const struct gguf *g, struct err *e) {
    int block;
    if (!params_is_sidecar(g, &block))
        return 0;
    return err_set(e, ERR_UNSUPPORTED,
                   "the file has a block that predicts further tokens (tensor "
                   "blk.%d.nextn.eh_proj.weight), but not its model; give the model with -m and "
                   "this file with -d",
                   block);
}

int params_read_vocab(struct model_params *p, const struct gguf *g, struct err *e) {
    const struct tensor *t = gguf_tensor(g, "token_embd.weight");
    if (!t)
        return err_set(e, ERR_MISMATCH,
                       "tensor token_embd.weight is missing; the file is "
                       "incomplete or no language model");
    p->vocab = t->ne[1];
    p->tied = !gguf_tensor(g, "output.weight");
    const struct gguf_kv *tokens = gguf_find(g, "tokenizer.ggml.tokens");
    if (p->vocab < 1 || p->vocab > 1 << 24 || (tokens && tokens->count > (uint64_t)p->vocab))
        return err_set(e, ERR_MISMATCH,
                       "tensor token_embd.weight has %lld rows, which does not fit the file's "
                       "vocabulary",
                       (long long)p->vocab);
    return 0;
}

// Keys of mixtures of experts. What an architecture does where a key is absent stands in the shape
// already; a value that no op computes is refused by its key.

static int read_gating(struct moe_shape *s, const struct gguf *g, const char *arch, struct err *e) {
    char key[PARAMS_KEY];
    static const enum route_score scores[] = {ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_SOFTMAX_CHOSEN};
    enum { SCORES = sizeof scores / sizeof *scores };
    int64_t v;
    int rc = meta_int(g, params_key(key, arch, "expert_gating_func"), 0, INT32_MAX, 0, &v, e);
    if (rc || v == 0) // as written by converters that do not support
        return rc;
    if (v > SCORES)
        return err_set(e, ERR_UNSUPPORTED,
                       "metadata key %s is %lld, a way of choosing experts that is not supported; "
                       "1 (softmax), 2 (sigmoid) and 3 (softmax of the chosen) are",
                       key, (long long)v);
    s->score = scores[v - 1];
    return 0;
}

static int read_weights(struct moe_shape *s, const struct gguf *g, const char *arch,
                        struct err *e) {
    char key[PARAMS_KEY];
    double scale;
    int rc = gguf_get_bool(g, params_key(key, arch, "expert_weights_norm"), s->normalise,
                           &s->normalise, e);
    if (!rc)
        rc = gguf_get_float(g, params_key(key, arch, "expert_weights_scale"), 0, &scale, e);
    if (rc)
        return rc;
    if (!(scale >= 0 && scale <= 1e6))
        return err_set(e, ERR_FORMAT, "metadata key %s is %g; a positive number is needed", key,
                       scale);
    if (scale > 0) // 0: not set
        s->scale = (float)scale;
    return 0;
}

static int read_groups(struct moe_shape *s, const struct gguf *g, const char *arch, struct err *e) {
    char key[PARAMS_KEY];
    int64_t groups, used;
    int rc = meta_int(g, params_key(key, arch, "expert_group_count"), 0, s->experts, 1, &groups, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "expert_group_used_count"), 0, s->experts, 1, &used,
                      e);
    if (rc || groups <= 1)
        return rc;
    if (used < 1 || used > groups || s->experts % groups || s->used > s->experts / groups * used)
        return err_set(e, ERR_FORMAT,
                       "metadata key %s is %lld, but %d of %d experts cannot be chosen from so "
                       "many of %lld groups",
                       key, (long long)used, s->used, s->experts, (long long)groups);
    s->groups = (int)groups;
    s->groups_used = (int)used;
    return 0;
}

int params_read_experts(struct model_params *p, const struct gguf *g, const char *arch,
                        struct err *e) {
    char key[PARAMS_KEY];
    struct moe_shape *s = &p->moe;
    int64_t experts, used, ffn;
    int rc = meta_int(g, params_key(key, arch, "expert_count"), 1, OPS_EXPERTS_MAX, 0, &experts, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "expert_used_count"), 1,
                      experts < OPS_EXPERTS_USED_MAX ? experts : OPS_EXPERTS_USED_MAX, 0, &used, e);
    const struct gguf_kv *dense = gguf_find(g, params_key(key, arch, "feed_forward_length"));
    ffn = 0;
    if (!rc && dense && dense->kind != GGUF_ARRAY)
        rc = meta_int(g, key, 0, PARAMS_MAX_WIDTH, 0, &ffn, e);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "expert_feed_forward_length"), 32, PARAMS_MAX_WIDTH,
                      ffn / used, &s->ffn, e);
    if (!rc && s->ffn % 32)
        rc = err_set(e, ERR_UNSUPPORTED, "metadata key %s is %lld; a multiple of 32 is supported",
                     key, (long long)s->ffn);
    if (rc)
        return rc;
    s->experts = (int)experts;
    s->used = (int)used;
    if (!(s->scale > 0))
        s->scale = 1;
    rc = read_gating(s, g, arch, e);
    if (!rc)
        rc = read_weights(s, g, arch, e);
    return rc ? rc : read_groups(s, g, arch, e);
}

int params_read_shared(struct model_params *p, const struct gguf *g, int64_t otherwise,
                       struct err *e) {
    char key[PARAMS_KEY];
    int64_t *width = &p->moe.shared;
    int rc = meta_int(g, params_key(key, p->arch, "expert_shared_feed_forward_length"), 32,
                      PARAMS_MAX_WIDTH, otherwise, width, e);
    if (!rc && *width % 32)
        rc = err_set(e, ERR_UNSUPPORTED, "metadata key %s is %lld; a multiple of 32 is supported",
                     key, (long long)*width);
    return rc;
}

int params_read_lead(struct model_params *p, const struct gguf *g, bool shared_too, struct err *e) {
    char key[PARAMS_KEY], name[LOAD_NAME];
    int64_t lead, shared;
    int rc = meta_int(g, params_key(key, p->arch, "leading_dense_block_count"), 0, p->n_layers - 1,
                      0, &lead, e);
    if (!rc)
        rc = meta_int(g, params_key(key, p->arch, "expert_shared_count"), shared_too ? 1 : 0, 64, 0,
                      &shared, e);
    if (!rc && lead && !p->ffn)
        rc = err_set(e, ERR_FORMAT,
                     "metadata key %s.feed_forward_length is missing, but %lld layers are dense; "
                     "the file is incomplete",
                     p->arch, (long long)lead);
    if (rc)
        return rc;
    p->moe.lead = (int)lead;
    p->moe.shared = shared * p->moe.ffn;
    p->moe.choice_bias = gguf_tensor(g, load_name(name, p->moe.lead, "exp_probs_b.bias"));
    return 0;
}

// Variants: files of one architecture are written by many programs, and a key that this one does
// not read would be a result that is wrong without an error.

// Keys, the value with which they change nothing (0 as well, where they are no switches), and the
// architectures that read them.
static const struct relative {
    const char *key;
    double neutral;
    const char *known;
} relatives[] = {
    {"attention.causal", 1, ""},
    {"attention.sliding_window", 0, "gemma3 gemma4 gpt-oss laguna"},
    {"attention.clamp_kqv", 0, ""},
    {"attention.max_alibi_bias", 0, ""},
    {"attention.temperature_scale", 0, ""},
    {"attention.indexer.top_k", 0, ""},
    {"attention.shared_kv_layers", 0, "gemma4"},
    {"attn_logit_softcapping", 0, ""},
    {"final_logit_softcapping", 0, "gemma3 gemma4"},
    {"router_logit_softcapping", 0, "laguna"},
    {"rope.scale", 1, ""},
    {"rope.scaling.alpha", 1, ""},
    {"rope.scaling.yarn_log_multiplier", 0, "deepseek2"},
    {"logit_scale", 1, ""},
    {"embedding_scale", 1, ""},
    {"residual_scale", 1, ""},
    {"use_parallel_residual", 0, ""},
    {"interleave_moe_layer_step", 1, ""},
    {"moe_every_n_layers", 1, ""},
    {"moe_latent_size", 0, ""},
    {"expert_latent_length", 0, ""},
    {"swiglu_clamp_exp", 0, ""},
    {"swiglu_clamp_shexp", 0, ""},
    {"expert_count", 0, "qwen3moe qwen35moe glm4moe gpt-oss laguna deepseek2 gemma4"},
};
// These have their own idea of it.
static const char fixed_scale[] = "deepseek2 laguna gemma4";

// The value of a key, of a list the element that is furthest from neutral; false for texts.
static bool value_of_key(const struct gguf_kv *kv, double neutral, double *v) {
    int kind = kv->kind == GGUF_ARRAY ? kv->elem : kv->kind;
    *v = neutral;
    if (kind == GGUF_STRING || kind == GGUF_ARRAY)
        return false;
    for (uint64_t i = 0; i < kv->count; i++) {
        double x = gguf_array_float(kv, i);
        if (x != neutral && x != 0)
            *v = x;
        else if (*v == neutral)
            *v = x;
    }
    return true;
}

static int refuse_key(const char *arch, const char *key, double v, struct err *e) {
    return err_set(
        e, ERR_UNSUPPORTED,
        "metadata key %s is %g, which a %s model does not have; this kind of file is not "
        "supported",
        key, v, arch);
}

int params_refuse_relatives(const struct model_params *p, const struct gguf *g, struct err *e) {
    char key[PARAMS_KEY];
    double v;
    for (size_t i = 0; i < sizeof relatives / sizeof *relatives; i++) {
        const struct relative *r = &relatives[i];
        const struct gguf_kv *kv = gguf_find(g, params_key(key, p->arch, r->key));
        if (!kv || params_lists(r->known, p->arch))
            continue;
        bool number = value_of_key(kv, r->neutral, &v);
        bool off = v == 0 && kv->kind != GGUF_BOOL;
        if (!number || (v != r->neutral && !off))
            return refuse_key(p->arch, key, v, e);
    }
    const struct gguf_kv *kv = gguf_find(g, params_key(key, p->arch, "attention.scale"));
    if (kv && params_lists(fixed_scale, p->arch) && value_of_key(kv, 0, &v) && v != 0 &&
        fabs(v / (double)p->attn_scale - 1) > 1e-3)
        return refuse_key(p->arch, key, v, e);
    return 0;
}

// Blocks after the last layer are left alone if they predict further tokens. One that the metadata
// counts among the layers would be computed as a layer.
static int refuse_blocks(const struct model_params *p, const struct gguf *g, struct err *e) {
    char nextn[LOAD_NAME];
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        long block = strncmp(name, "blk.", 4) == 0 ? strtol(name + 4, NULL, 10) : -1;
        if (block >= 0 && block < p->n_layers && params_is_for_drafting(name))
            return err_set(e, ERR_MISMATCH,
                           "tensor %.80s is of a block that predicts further tokens, but by the "
                           "metadata keys %s.block_count and %s.nextn_predict_layers it is one of "
                           "the %d layers; convert the model again",
                           name, p->arch, p->arch, p->n_layers);
        if (block < p->n_layers)
            continue;
        if (block > PARAMS_MAX_LAYERS ||
            !gguf_tensor(g, load_name(nextn, (int)block, "nextn.eh_proj.weight")))
            return err_set(e, ERR_MISMATCH,
                           "the file has a tensor %.80s, but only %d layers by its metadata key "
                           "%s.block_count; it is damaged or of another kind",
                           name, p->n_layers, p->arch);
    }
    return 0;
}

// Tensors that files of an architecture have in all layers or in none.
static int refuse_some(const struct model_params *p, const struct gguf *g, const char *suffix,
                       int first, struct err *e) {
    char name[LOAD_NAME];
    int with = -1, without = -1;
    for (int i = first; i < p->n_layers; i++)
        *(gguf_tensor(g, load_name(name, i, suffix)) ? &with : &without) = i;
    if (with < 0 || without < 0)
        return 0;
    return err_set(e, ERR_MISMATCH,
                   "tensor %s is missing, which layer %d has; the file is incomplete",
                   load_name(name, without, suffix), with);
}

int params_refuse_uneven(const struct model_params *p, const struct gguf *g, struct err *e) {
    static const char *const even[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias",
                                       "attn_output.bias", "layer_output_scale.weight"};
    int rc = refuse_blocks(p, g, e);
    for (size_t i = 0; !rc && i < sizeof even / sizeof *even; i++)
        rc = refuse_some(p, g, even[i], 0, e);
    bool norms = !params_lists("qwen35 qwen35moe gemma4", p->arch); // which have layers without
    if (!rc && norms)
        rc = refuse_some(p, g, "attn_q_norm.weight", 0, e);
    if (!rc && norms)
        rc = refuse_some(p, g, "attn_k_norm.weight", 0, e);
    return rc || !p->moe.experts ? rc : refuse_some(p, g, "exp_probs_b.bias", p->moe.lead, e);
}

// Thin checks over the typed reads of formats/gguf/gguf.h.

int meta_int(const struct gguf *g, const char *key, int64_t lo, int64_t hi, int64_t otherwise,
             int64_t *out, struct err *e) {
    int rc = gguf_get_int(g, key, lo, hi, otherwise, out, e);
    if (!rc && *out < lo)
        return err_set(e, ERR_FORMAT, "metadata key %s is missing; the file is incomplete", key);
    return rc;
}

// A positive finite float; `otherwise` 0 means that the key is required.
int meta_positive(const struct gguf *g, const char *key, double otherwise, float *out,
                  struct err *e) {
    double v;
    int rc = gguf_get_float(g, key, otherwise, &v, e);
    if (rc)
        return rc;
    if (!(otherwise > 0) && !gguf_find(g, key))
        return err_set(e, ERR_FORMAT, "metadata key %s is missing; the file is incomplete", key);
    *out = (float)v;
    if (!(v > 0) || !isfinite(*out))
        return err_set(e, ERR_FORMAT, "metadata key %s is %g; a positive number is needed", key, v);
    return 0;
}

// Heads may be one number or an array over the blocks, in which recurrent layers have 0.
int meta_heads(const struct gguf *g, const char *key, int64_t blocks, int *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    int64_t v = 0;
    if (!kv || kv->kind != GGUF_ARRAY) {
        int rc = meta_int(g, key, 1, 4096, 0, &v, e);
        *out = (int)v;
        return rc;
    }
    if (kv->count != (uint64_t)blocks || kv->elem == GGUF_STRING || kv->elem == GGUF_F32 ||
        kv->elem == GGUF_F64)
        return err_set(e, ERR_FORMAT, "metadata key %s must have %lld integers", key,
                       (long long)blocks);
    for (uint64_t i = 0; i < kv->count; i++) {
        int64_t n = gguf_array_int(kv, i);
        if (n < 0 || n > 4096 || (v && n && n != v))
            return err_set(e, ERR_UNSUPPORTED,
                           "metadata key %s has %lld heads in layer %llu; all attention layers "
                           "must have the same number",
                           key, (long long)n, (unsigned long long)i);
        v = n ? n : v;
    }
    *out = (int)v;
    return v ? 0 : err_set(e, ERR_FORMAT, "metadata key %s names no heads", key);
}

int meta_of_layer(const struct gguf *g, const char *key, int64_t n, int64_t i, int64_t hi,
                  int64_t *out, struct err *e) {
    const struct gguf_kv *kv = gguf_find(g, key);
    if (!kv || kv->kind != GGUF_ARRAY)
        return meta_int(g, key, 1, hi, 0, out, e);
    if (kv->count != (uint64_t)n || kv->elem == GGUF_STRING || kv->elem == GGUF_F32 ||
        kv->elem == GGUF_F64)
        return err_set(e, ERR_FORMAT, "metadata key %s must have %lld integers", key, (long long)n);
    *out = gguf_array_int(kv, (uint64_t)i);
    if (*out >= 1 && *out <= hi)
        return 0;
    return err_set(e, ERR_FORMAT, "metadata key %s has %lld in layer %lld; allowed are 1 to %lld",
                   key, (long long)*out, (long long)i, (long long)hi);
}
