// SPDX-License-Identifier: Apache-2.0
// HuggingFace folder to GGUF: finds out what the folder holds, refuses variants of a known family
// by the key that makes them one, has the plan filled, and refuses tensors that no rule took, so
// that nothing is lost in silence. Vision parts are left out on purpose.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "convert/families/rules.h"
#include "convert/plan.h"
#include "convert/quantize/packed.h"

// What a key must be where a family does not read it; families that do are listed and look after it
// themselves. Yes and no count as 1 and 0.
static const struct setting {
    const char *key;
    double neutral;
    const char *known;
} settings[] = {
    {"final_logit_softcapping", 0, "gemma3 gemma4"},
    {"attn_logit_softcapping", 0, ""},
    {"query_pre_attn_scalar", 0, "gemma3"},
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

static int refuse_setting(const struct convert_job *j, const char *key, const struct json *v,
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
static int check_expert_choice(const struct convert_job *j, struct err *e) {
    static const char *const words[][2] = {
        {"scoring_func", "sigmoid softmax"},
        {"topk_method", "noaux_tc greedy group_limited_greedy"},
    };
    for (size_t i = 0; i < 2; i++) {
        const struct json *v = hf_get(&j->config, words[i][0]);
        const char *s = json_str(v, NULL);
        bool latents = !strcmp(j->arch, "deepseek2"); // the others have one way
        const char *allowed = latents ? words[i][1] : i ? "noaux_tc" : "sigmoid";
        if (v && (!s || !*s || !str_lists(allowed, s, strlen(s))))
            return refuse_setting(j, words[i][0], v, e);
    }
    return 0;
}

// ERR_UNSUPPORTED for a setting that models of j->arch lack.
static int check_variant(const struct convert_job *j, struct err *e) {
    for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
        const struct setting *s = &settings[i];
        const struct json *v = hf_get(&j->config, s->key);
        if (v && !str_lists(s->known, j->arch, strlen(j->arch)) && !is_neutral(v, s->neutral))
            return refuse_setting(j, s->key, v, e);
    }
    return check_expert_choice(j, e);
}

static bool has_part(const char *name, const char *part) {
    const char *at = strstr(name, part);
    return at && (at == name || at[-1] == '.');
}

// Parts of a checkpoint that a text model has no use for.
static bool is_left_out(const struct convert_job *j, const char *name) {
    uint32_t unused;
    if (map_find(&j->used, name, strlen(name), &unused))
        return true;
    if (has_part(name, "lm_head.weight") && j->model.tied)
        return true;
    static const char *const parts[] = {
        "visual.",      "vision_tower.", "audio_tower.",          "embed_vision.",
        "embed_audio.", "mm_projector.", "multi_modal_projector."};
    bool nextn = convert_is_nextn(j, name), own = !strncmp(j->arch, "qwen35", 6);
    if (j->options->mtp == CONVERT_MTP_ONLY ? !nextn : !own && has_part(name, "mtp."))
        return true;
    if (nextn && j->options->mtp == CONVERT_MTP_DROP)
        return true;
    const bool draft = !strcmp(j->arch, "eagle3") || !strcmp(j->arch, "dflash");
    if (draft && !strcmp(name, "t2d")) // d2t says the same
        return true;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        if (has_part(name, parts[i]))
            return true;
    return strstr(name, "rotary_emb.inv_freq");
}

static int check_leftovers(const struct convert_job *j, struct err *e) {
    size_t readable = safetensors_count(j->weights);
    for (size_t i = 0; i < readable + safetensors_unreadable_count(j->weights); i++) {
        const char *name = i < readable ? safetensors_at(j->weights, i)->name
                                        : safetensors_unreadable_at(j->weights, i - readable);
        if (!is_left_out(j, name))
            return err_set(e, ERR_UNSUPPORTED,
                           "%s holds the tensor '%.100s', which has no place in "
                           "this kind of model: %s",
                           j->dir, name,
                           convert_is_nextn(j, name)
                               ? "leave its prediction block out with --no-mtp"
                               : "check that config.json belongs to it");
    }
    return 0;
}

static bool has_architecture(const struct hf_file *f, const char *name) {
    const struct json *list = json_get(f->root, "architectures");
    for (size_t i = 0; i < json_len(list); i++) {
        const char *s = json_str(json_at(list, i), NULL);
        if (s && !strcmp(s, name))
            return true;
    }
    return false;
}

static bool is_eagle3(const struct hf_file *f) {
    return has_architecture(f, "LlamaForCausalLMEagle3") ||
           has_architecture(f, "Eagle3LlamaForCausalLM") ||
           has_architecture(f, "Eagle3Speculator") || has_architecture(f, "Eagle3DraftModel") ||
           hf_is(json_get(f->root, "speculators_model_type"), "eagle3");
}

// The kind of a folder, by model_type of its language model.
static const struct kind {
    const char *type, *arch;
    int (*fill)(struct convert_job *j, struct err *e);
} kinds[] = {
    {"qwen3_5", "qwen35", convert_target},
    {"qwen3_5_text", "qwen35", convert_target},
    {"qwen3_5_moe", "qwen35moe", convert_target},
    {"qwen3_5_moe_text", "qwen35moe", convert_target},
    {"qwen3", "qwen3", convert_plain},
    {"qwen2", "qwen2", convert_plain},
    {"qwen3_moe", "qwen3moe", convert_plain},
    {"glm4_moe", "glm4moe", convert_glm},
    {"deepseek_v2", "deepseek2", convert_deepseek},
    {"deepseek_v3", "deepseek2", convert_deepseek},
    {"kimi_k2", "deepseek2", convert_deepseek},
    {"glm4_moe_lite", "deepseek2", convert_deepseek},
    {"llama", "llama", convert_plain},
    {"mistral", "llama", convert_plain},
    {"laguna", "laguna", convert_laguna},
    {"gpt_oss", "gpt-oss", convert_oss},
    {"gemma3", "gemma3", convert_gemma3},
    {"gemma3_text", "gemma3", convert_gemma3},
    {"gemma4", "gemma4", convert_gemma},
    {"gemma4_text", "gemma4", convert_gemma},
};

static int fill_plan(struct convert_job *j, struct err *e) {
    const struct hf_file *f = &j->config;
    const char *type = json_str(hf_get(f, "model_type"), NULL);
    const char *arch = json_str(json_at(json_get(f->root, "architectures"), 0), NULL);
    if (has_architecture(f, "DFlashDraftModel") || has_architecture(f, "DFlash2DraftModel") ||
        has_architecture(f, "DFlashLagunaForCausalLM") || has_architecture(f, "DFlashSpeculator") ||
        has_architecture(f, "DSparkDraftModel") || has_architecture(f, "Qwen3DSparkModel") ||
        has_architecture(f, "Qwen3DSparkForCausalLM")) {
        j->arch = "dflash";
        return convert_draft(j, e);
    }
    if (is_eagle3(f)) {
        j->arch = "eagle3";
        return convert_eagle3(j, e);
    }
    for (size_t i = 0; type && i < sizeof kinds / sizeof *kinds; i++) {
        j->arch = kinds[i].arch;
        if (!strcmp(type, kinds[i].type)) {
            int rc = check_variant(j, e);
            return rc ? rc : kinds[i].fill(j, e);
        }
    }
    return err_set(
        e, ERR_UNSUPPORTED,
        "%s describes a model of type '%.40s' (%.60s); only qwen3_5, qwen3_5_moe, "
        "qwen3, qwen3_moe, qwen2, glm4_moe, glm4_moe_lite, deepseek_v2, deepseek_v3, kimi_k2, "
        "llama, mistral, laguna, gpt_oss, gemma3 and gemma4 models and DFlashDraftModel, "
        "DFlash2DraftModel, DFlashLagunaForCausalLM, Qwen3DSparkModel, DSparkDraftModel and "
        "LlamaForCausalLMEagle3 drafts can be converted",
        f->path, type ? type : "", arch ? arch : "no architecture");
}

static int convert_all(struct convert_job *j, const char *out, struct err *e) {
    int rc = hf_read(&j->config, j->dir, "config.json", true, e);
    if (!rc)
        rc = convert_read_packing(j, e);
    if (!rc)
        rc = safetensors_open(&j->weights, j->dir, e);
    if (!rc)
        rc = gguf_writer_open(&j->writer, out, e);
    if (rc)
        return rc;
    rc = fill_plan(j, e);
    if (!rc && j->options->mtp == CONVERT_MTP_ONLY && !j->nextn)
        rc = err_set(e, ERR_MISMATCH,
                     "%s holds no block that predicts further tokens, so that there is nothing to "
                     "write: leave --mtp out",
                     j->dir);
    if (!rc)
        rc = check_leftovers(j, e);
    if (!rc)
        rc = convert_write(j->writer, &j->plan, j->options, e);
    if (!rc)
        return gguf_writer_close(j->writer, e);
    gguf_writer_abort(j->writer);
    return rc;
}

int convert_hf(const char *dir, const char *out, const struct convert_options *o, struct err *e) {
    struct convert_job j = {.dir = dir, .options = o};
    int rc = convert_all(&j, out, e);
    convert_plan_fini(&j.plan);
    map_fini(&j.used);
    safetensors_close(j.weights);
    hf_close(&j.config);
    return rc;
}
