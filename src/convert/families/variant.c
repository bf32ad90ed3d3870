// SPDX-License-Identifier: Apache-2.0
// Settings that change what a model computes, in configurations of families that do not have them:
// a variant of a known family is refused by the key that makes it one, instead of being written as
// the family's usual model.
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "convert/impl.h"

// What a key must be where a family does not know it; families that do are listed and look after it
// themselves. Yes and no count as 1 and 0.
static const struct setting {
    const char *key;
    double neutral;
    const char *known;
} settings[] = {
    {"final_logit_softcapping", 0, "gemma4"},
    {"attn_logit_softcapping", 0, ""},
    {"query_pre_attn_scalar", 0, ""},
    {"logit_scale", 1, ""},
    {"logits_scaling", 1, ""},
    {"lm_head_multiplier", 1, ""},
    {"embedding_multiplier", 1, ""},
    {"residual_multiplier", 1, ""},
    {"attention_multiplier", 1, ""},
    {"clip_qkv", 0, ""},
    {"qk_layernorm", 0, ""},
    {"use_qk_norm", 0, "glm4moe qwen3 qwen3moe qwen35 qwen35moe laguna gemma4"},
    {"no_rope_layers", 0, ""},
    {"no_rope_layer_interval", 0, ""},
    {"attention_chunk_size", 0, ""},
    {"attn_temperature_tuning", 0, ""},
    {"rope_parameters.llama_4_scaling_beta", 0, ""},
    {"is_causal", 1, ""},
    {"use_bidirectional_attention", 0, "gemma4"},
    {"swiglu_limit", 0, "gpt-oss"},
    {"swiglu_alpha", 1.702, ""},
    {"moe_layer_freq", 1, ""},
    {"index_topk", 0, ""},
    {"partial_rotary_factor", 1, "qwen35 qwen35moe glm4moe laguna gemma4"},
    {"rope_parameters.partial_rotary_factor", 1, "qwen35 qwen35moe glm4moe laguna gemma4"},
    {"rope_scaling.partial_rotary_factor", 1, ""},
};

static bool holds(const char *list, const char *name) {
    return str_lists(list, name, strlen(name));
}

static int refuse(const struct convert_job *j, const char *key, const struct json *v,
                  struct err *e) {
    const char *s = json_str(v, NULL), *number = s ? NULL : json_number_text(v);
    char other[16];
    snprintf(other, sizeof other, "%s",
             json_kind_of(v) != JSON_BOOL ? "another kind"
             : json_bool(v, false)        ? "true"
                                          : "false");
    return err_set(e, ERR_UNSUPPORTED,
                   "%s has %s %.40s, which models of the architecture %s lack: this checkpoint "
                   "cannot be converted",
                   j->config.path, key,
                   s        ? s
                   : number ? number
                            : other,
                   j->arch);
}

static bool is_neutral(const struct json *v, double neutral) {
    switch (json_kind_of(v)) {
    case JSON_BOOL:
        return json_bool(v, false) == (neutral != 0);
    case JSON_INT:
    case JSON_DOUBLE:
        return json_num(v, neutral + 1) == neutral;
    case JSON_ARRAY: // one for each layer, where that is nothing special
        for (size_t i = 0; i < json_len(v); i++)
            if (!is_neutral(json_at(v, i), neutral))
                return false;
        return true;
    default:
        return false;
    }
}

// How experts are chosen.
static int check_choice(const struct convert_job *j, struct err *e) {
    static const char *const words[][2] = {
        {"scoring_func", "sigmoid softmax"},
        {"topk_method", "noaux_tc greedy group_limited_greedy"},
    };
    for (size_t i = 0; i < 2; i++) {
        const struct json *v = hf_get(&j->config, words[i][0]);
        const char *s = json_str(v, NULL);
        bool latents = !strcmp(j->arch, "deepseek2"); // the others have one way
        const char *allowed = latents ? words[i][1] : i ? "noaux_tc" : "sigmoid";
        if (v && (!s || !*s || !holds(allowed, s)))
            return refuse(j, words[i][0], v, e);
    }
    return 0;
}

int convert_check_variant(const struct convert_job *j, struct err *e) {
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const struct setting *s = &settings[i];
        const struct json *v = hf_get(&j->config, s->key);
        if (v && !holds(s->known, j->arch) && !is_neutral(v, s->neutral))
            return refuse(j, s->key, v, e);
    }
    return check_choice(j, e);
}
