// SPDX-License-Identifier: Apache-2.0
// See variants.h. Files of one architecture are written by many programs, and a key that this one
// does not read would be a result that is wrong without an error.
#include "models/variants.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "models/load.h"
#include "models/params.h"

// Keys, the value with which they change nothing (0 as well, where they are no switches), and the
// architectures that read them.
static const struct relative {
    const char *key;
    double neutral;
    const char *known;
} relatives[] = {
    {"attention.causal", 1, ""},
    {"attention.sliding_window", 0, "gemma4 gpt-oss laguna"},
    {"attention.clamp_kqv", 0, ""},
    {"attention.max_alibi_bias", 0, ""},
    {"attention.temperature_scale", 0, ""},
    {"attention.indexer.top_k", 0, ""},
    {"attention.shared_kv_layers", 0, "gemma4"},
    {"attn_logit_softcapping", 0, ""},
    {"final_logit_softcapping", 0, "gemma4"},
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

static bool holds(const char *list, const char *name) {
    return str_lists(list, name, strlen(name));
}

// The value of a key, of a list the element that is furthest from neutral; false for texts.
static bool value_of(const struct gguf_kv *kv, double neutral, double *v) {
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

int variants_refuse_keys(const struct model_params *p, const struct gguf *g, struct err *e) {
    char key[PARAMS_KEY];
    double v;
    for (size_t i = 0; i < sizeof relatives / sizeof *relatives; i++) {
        const struct relative *r = &relatives[i];
        const struct gguf_kv *kv = gguf_find(g, params_key(key, p->arch, r->key));
        if (!kv || holds(r->known, p->arch))
            continue;
        bool number = value_of(kv, r->neutral, &v);
        bool off = v == 0 && kv->kind != GGUF_BOOL;
        if (!number || (v != r->neutral && !off))
            return refuse_key(p->arch, key, v, e);
    }
    const struct gguf_kv *kv = gguf_find(g, params_key(key, p->arch, "attention.scale"));
    if (kv && holds(fixed_scale, p->arch) && value_of(kv, 0, &v) && v != 0 &&
        fabs(v / (double)p->attn_scale - 1) > 1e-3)
        return refuse_key(p->arch, key, v, e);
    return 0;
}

// Blocks behind the last layer are left alone if they predict further tokens.
static int refuse_blocks(const struct model_params *p, const struct gguf *g, struct err *e) {
    char nextn[LOAD_NAME];
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        long block = strncmp(name, "blk.", 4) == 0 ? strtol(name + 4, NULL, 10) : -1;
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

int variants_refuse_tensors(const struct model_params *p, const struct gguf *g, struct err *e) {
    static const char *const even[] = {"attn_q.bias", "attn_k.bias", "attn_v.bias",
                                       "attn_output.bias", "layer_output_scale.weight"};
    int rc = refuse_blocks(p, g, e);
    for (size_t i = 0; !rc && i < sizeof even / sizeof *even; i++)
        rc = refuse_some(p, g, even[i], 0, e);
    bool norms = !holds("qwen35 qwen35moe gemma4", p->arch); // which have layers without
    if (!rc && norms)
        rc = refuse_some(p, g, "attn_q_norm.weight", 0, e);
    if (!rc && norms)
        rc = refuse_some(p, g, "attn_k_norm.weight", 0, e);
    return rc || !p->moe.experts ? rc : refuse_some(p, g, "exp_probs_b.bias", p->moe.lead, e);
}
