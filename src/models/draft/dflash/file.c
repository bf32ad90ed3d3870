// SPDX-License-Identifier: Apache-2.0
// Draft files: opening, dialects, and names. Each dialect is a list of its names for the upstream
// ones; a tensor that no rule requires means a variant of DFlash that this engine does not support.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "formats/content.h"
#include "models/draft/config.h"
#include "models/draft/dflash/impl.h"
#include "models/params.h"

struct dialect_name {
    const char *upstream, *other;
};

static const struct dialect_name lucebox[] = {
    {"fc.weight", "dflash.fc.weight"}, {"enc.output_norm.weight", "dflash.hidden_norm.weight"}};
// Norms of taps, which upstream has in one tensor: %d is the tap.
static const char *const tap_norms[] = {
    [DIALECT_LUCEBOX] = "dflash.aux_hidden_norm.%d.weight",
    [DIALECT_BEELLAMA] = "dflash_aux_hidden_norm.%d.weight",
    [DIALECT_UPSTREAM] = "enc.aux_norm.%d.weight",
    [DIALECT_SAFETENSORS] = "aux_hidden_norms.%d.weight",
};
static const struct dialect_name beellama[] = {
    {"fc.weight", "dflash_fc.weight"}, {"enc.output_norm.weight", "dflash_hidden_norm.weight"}};
static const struct dialect_name zlab[] = {
    {"fc.weight", "fc.weight"},
    {"enc.output_norm.weight", "hidden_norm.weight"},
    {"output_norm.weight", "norm.weight"},
    {"token_embd.weight", "embed_tokens.weight"},
    {"output.weight", "lm_head.weight"},
    {"d2t", "d2t"},
    {"attn_norm.weight", "input_layernorm.weight"},
    {"ffn_norm.weight", "post_attention_layernorm.weight"},
    {"attn_q.weight", "self_attn.q_proj.weight"},
    {"attn_k.weight", "self_attn.k_proj.weight"},
    {"attn_v.weight", "self_attn.v_proj.weight"},
    {"attn_output.weight", "self_attn.o_proj.weight"},
    {"attn_q_norm.weight", "self_attn.q_norm.weight"},
    {"attn_k_norm.weight", "self_attn.k_norm.weight"},
    {"ffn_gate.weight", "mlp.gate_proj.weight"},
    {"ffn_up.weight", "mlp.up_proj.weight"},
    {"ffn_down.weight", "mlp.down_proj.weight"},
    {"attn_qkv.weight", "self_attn.qkv_proj.weight"},
    {"attn_gate.weight", "self_attn.g_proj.weight"},
    {"attn_q.bias", "self_attn.q_proj.bias"},
    {"attn_k.bias", "self_attn.k_proj.bias"},
    {"attn_v.bias", "self_attn.v_proj.bias"},
    {"attn_output.bias", "self_attn.o_proj.bias"},
    {"attn_sinks.weight", "self_attn.attention_sink_bias"},
    {"attn_conv_base", "attention_conv.base_kernel"},
    {"attn_conv_proj.weight", "attention_conv.kernel_projection.weight"},
    {"ffn_conv_base", "mlp_conv.base_kernel"},
    {"ffn_conv_proj.weight", "mlp_conv.kernel_projection.weight"},
    {"selector_hidden.weight", "candidate_selector.hidden_projection.weight"},
    {"selector_predecessor.weight", "candidate_selector.predecessor_codebook"},
    {"selector_successor.weight", "candidate_selector.successor_codebook"},
    {"markov_w1.weight", "markov_head.markov_w1.weight"},
    {"markov_w2.weight", "markov_head.markov_w2.weight"},
    {"markov_gate.weight", "markov_head.gate_proj.weight"},
    {"markov_gate.bias", "markov_head.gate_proj.bias"},
    {"conf_proj.weight", "confidence_head.proj.weight"},
    {"conf_proj.bias", "confidence_head.proj.bias"},
    {"dflash.domino.gru.weight_ih", "prefix_gru.weight_ih_l0"},
    {"dflash.domino.gru.weight_hh", "prefix_gru.weight_hh_l0"},
    {"dflash.domino.head.w1", "embed_proj.0.weight"},
    {"dflash.domino.head.w2", "embed_proj.2.weight"},
};

static const char *lookup(const struct dialect_name *list, size_t n, const char *name) {
    for (size_t i = 0; i < n; i++) {
        if (strcmp(list[i].upstream, name) == 0)
            return list[i].other;
    }
    return NULL;
}

#define LOOKUP(list, name) lookup(list, sizeof(list) / sizeof *(list), name)

static const struct tensor *in_gguf(const struct draft_file *f, const char *name) {
    const char *other = f->dialect == DIALECT_LUCEBOX    ? LOOKUP(lucebox, name)
                        : f->dialect == DIALECT_BEELLAMA ? LOOKUP(beellama, name)
                                                         : NULL;
    const struct tensor *t = gguf_tensor(f->g, other ? other : name);
    const char *dot = t ? NULL : strstr(name, ".ffn_norm.weight");
    if (!dot)
        return t;
    char alias[LOAD_NAME]; // some files name the second norm after its place
    snprintf(alias, sizeof alias, "%.*s.post_attention_norm.weight", (int)(dot - name), name);
    return gguf_tensor(f->g, alias);
}

static const struct tensor *in_safetensors(const struct draft_file *f, const char *name) {
    char full[LOAD_NAME + 64];
    int layer, at = 0;
    const char *other = NULL;
    if (sscanf(name, "blk.%d.%n", &layer, &at) == 1 && at > 0) {
        other = LOOKUP(zlab, name + at);
        snprintf(full, sizeof full, "model.layers.%d.%s", layer, other ? other : "");
    } else {
        other = LOOKUP(zlab, name);
        snprintf(full, sizeof full, "model.%s", other ? other : "");
    }
    if (!other)
        return NULL;
    const struct tensor *t = safetensors_tensor(f->st, full + strlen("model."));
    return t ? t : safetensors_tensor(f->st, full);
}

// "enc.aux_norm.N.weight", the norm of tap N.
static const struct tensor *in_tap_norms(const struct draft_file *f, int tap) {
    char name[LOAD_NAME], full[LOAD_NAME + 8];
    snprintf(name, sizeof name, tap_norms[f->dialect], tap);
    if (f->g)
        return gguf_tensor(f->g, name);
    snprintf(full, sizeof full, "model.%s", name);
    const struct tensor *t = safetensors_tensor(f->st, name);
    return t ? t : safetensors_tensor(f->st, full);
}

const struct tensor *dflash_file_find(const void *file, const char *name) {
    const struct draft_file *f = file;
    int tap, end = 0;
    bool of_tap = sscanf(name, "enc.aux_norm.%d.weight%n", &tap, &end) == 1 && end > 0;
    const struct tensor *t = of_tap ? in_tap_norms(f, tap)
                             : f->g ? in_gguf(f, name)
                                    : in_safetensors(f, name);
    return draft_file_use(f, t);
}

struct known {
    const char *arch;
    int dialect;
};

// The architectures of drafts in GGUF files; NULL: another one.
static const struct known *find_known(const char *arch, size_t len) {
    static const struct known all[] = {{"qwen35-dflash-draft", DIALECT_LUCEBOX},
                                       {"gemma4-dflash-draft", DIALECT_LUCEBOX},
                                       {"dflash-draft", DIALECT_LUCEBOX},
                                       {"dflash", DIALECT_UPSTREAM}};
    for (size_t i = 0; arch && i < sizeof all / sizeof *all; i++)
        if (strlen(all[i].arch) == len && memcmp(all[i].arch, arch, len) == 0)
            return &all[i];
    return NULL;
}

bool dflash_architecture(const char *name, size_t n) {
    return find_known(name, n) != NULL;
}

static int gguf_dialect(struct draft_file *f, struct err *e) {
    const char *s;
    size_t len;
    int rc = gguf_get_str(f->g, "general.architecture", &s, &len, e);
    if (rc)
        return rc;
    const struct known *known = find_known(s, len);
    if (known) {
        f->dialect = known->dialect;
        // Two dialects share an architecture name; the name of one tensor distinguishes them.
        if (f->dialect == DIALECT_LUCEBOX && gguf_tensor(f->g, "dflash_fc.weight"))
            f->dialect = DIALECT_BEELLAMA;
        return 0;
    }
    return err_set(e, ERR_MISMATCH,
                   "general.architecture %.*s is not a DFlash draft; give the draft's file, not "
                   "another model's",
                   s ? (int)(len < 64 ? len : 64) : 4, s ? s : "none");
}

int dflash_file_open(struct draft_file *f, const char *path, struct err *e) {
    int rc = draft_file_open(f, path, e);
    f->dialect = DIALECT_SAFETENSORS;
    if (rc || !f->g)
        return rc;
    rc = gguf_dialect(f, e);
    if (rc)
        draft_file_close(f);
    return rc;
}

// Values inside dflash_config, and then those inside dspark_config, win over those at the top, and
// these over those of the layer, which speculators describe apart.
const struct json *dflash_config_find(const struct json *c, const char *key) {
    static const char *const inside[] = {"dflash_config", "dspark_config"};
    for (size_t i = 0; i < sizeof inside / sizeof *inside; i++) {
        const struct json *v = json_get(json_get(c, inside[i]), key);
        if (json_kind_of(v) != JSON_NULL)
            return v;
    }
    const struct json *v = json_get(c, key);
    return json_kind_of(v) != JSON_NULL ? v
                                        : json_get(json_get(c, "transformer_layer_config"), key);
}

int dflash_config_int(const struct json *c, const char *key, int64_t lo, int64_t hi,
                      int64_t otherwise, int64_t *out, struct err *e) {
    const struct json *v = dflash_config_find(c, key);
    *out = json_int(v, otherwise);
    if (json_kind_of(v) != JSON_NULL && json_kind_of(v) != JSON_INT)
        return err_set(e, ERR_FORMAT, "config.json: %s must be an integer", key);
    if (*out < lo || *out > hi)
        return err_set(e, ERR_FORMAT, "config.json: %s is %lld or missing; %lld to %lld is needed",
                       key, (long long)*out, (long long)lo, (long long)hi);
    return 0;
}

uint64_t dflash_content(struct dflash *d) {
    const struct draft_file *f = &d->file;
    const struct dflash_params *p = &d->params;
    struct hash h;
    if (d->content)
        return d->content;
    hash_begin(&h, 0);
    for (size_t i = 0; i < draft_file_count(f); i++)
        content_add_tensor(&h, draft_file_at(f, i));
    hash_add(&h, p->taps, (size_t)p->n_taps * sizeof *p->taps);
    hash_add(&h, &p->rope.base, sizeof p->rope.base);
    hash_add(&h, &p->eps, sizeof p->eps);
    if (p->norms_context)
        hash_add(&h, "context", 7);
    if (p->rope.factor > 0 || p->rope.dims != p->head_dim || d->divisors) {
        const float more[] = {(float)p->rope.dims,    p->rope.factor,
                              p->rope.ramp,           p->rope.beta_fast,
                              p->rope.beta_slow,      p->rope.magnitude,
                              (float)p->rope.trained, p->rope.exact_ramp ? 1 : 0};
        hash_add(&h, more, sizeof more);
        hash_add(&h, p->rope_divisors, sizeof p->rope_divisors);
    }
    d->content = hash_end(&h) | 1; // never 0
    return d->content;
}

// What drafts of some targets have besides the plain form, in GGUF files: YaRN (Kimi K2.5,
// gpt-oss), factors of embeddings and logits (Gemma 4), contexts that layers norm (Laguna). Kinds
// of drafts that change the arithmetic otherwise are refused by the key that names them.

static int refuse_kinds(const struct gguf *g, const char *arch, struct err *e) {
    char key[PARAMS_KEY];
    double scale;
    const struct gguf_kv *kv = gguf_find(g, params_key(key, arch, "dflash.dspark.enabled"));
    if (kv && (kv->count != 1 || kv->bytes[0] != 0)) // a neutral value is harmless
        return err_set(e, ERR_UNSUPPORTED,
                       "the draft is a DFlash variant (key %s) that is not supported; use a plain "
                       "DFlash draft",
                       key);
    int rc = gguf_get_float(g, params_key(key, arch, "attention.value_scale"), 1, &scale, e);
    if (!rc && scale != 1 && scale != 0)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "the draft scales by %s = %g, which is not supported; use a plain DFlash "
                     "draft",
                     key, scale);
    for (size_t i = 0; !rc && i < gguf_kv_count(g); i++) {
        const char *name = gguf_kv_at(g, i)->key;
        if (strncmp(name, "lilicorr.", 9) == 0)
            rc = err_set(e, ERR_UNSUPPORTED,
                         "the draft is a LiLiCorr variant (key %s), which is not supported; use a "
                         "plain DFlash draft",
                         name);
    }
    return rc;
}

// Whether the ends of YaRN's ramp are rounded only this program's converter writes; elsewhere it is
// as in the target.
static int read_rope(struct dflash_params *p, const struct gguf *g, const char *arch,
                     struct err *e) {
    char key[PARAMS_KEY];
    int64_t dims;
    struct model_params own = {.arch = arch, .rope = p->rope};
    int rc = meta_int(g, params_key(key, arch, "rope.dimension_count"), 2, p->head_dim, p->head_dim,
                      &dims, e);
    if (!rc && dims % 2)
        rc = err_set(e, ERR_UNSUPPORTED, "metadata key %s is %lld; an even number is needed", key,
                     (long long)dims);
    if (!rc)
        rc = meta_int(g, params_key(key, arch, "context_length"), 1, (int64_t)1 << 31, 1,
                      &own.context, e);
    if (!rc)
        rc = rope_scaling_read(&own, g, e);
    p->rope = own.rope;
    p->rope.dims = (int)dims;
    return rc;
}

static int read_factors(struct dflash_params *p, const struct gguf *g, const char *arch,
                        struct err *e) {
    char key[PARAMS_KEY];
    double cap;
    int rc = meta_positive(g, params_key(key, arch, "embedding_scale"), (double)p->embed_scale,
                           &p->embed_scale, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, arch, "logit_scale"), 1, &p->logit_scale, e);
    if (!rc)
        rc = gguf_get_float(g, params_key(key, arch, "final_logit_softcapping"),
                            (double)p->logit_cap, &cap, e);
    if (!rc && (!(cap >= 0) || !isfinite((float)cap)))
        rc =
            err_set(e, ERR_FORMAT, "metadata key %s is %g; a number from 0 up is needed", key, cap);
    if (!rc)
        p->logit_cap = (float)cap;
    return rc;
}

const struct dflash_part dflash_parts[4] = {{"conv_kernel_size", DFLASH_MAX_BLOCK},
                                            {"conv_group_size", 1 << 20},
                                            {"selector_rank", 1 << 12},
                                            {"selector_top_k", OPS_TOPK_MAX}};

int dflash_take_parts(struct dflash_params *p, const int64_t part[4], struct err *e) {
    const bool conv = part[0] > 0, selector = part[2] > 0;
    if ((conv && (part[1] < 1 || p->dim % part[1])) || (selector && part[3] < 1) ||
        conv != selector)
        return err_set(e, ERR_FORMAT,
                       "the draft has convolutions of %lld rows (conv_kernel_size) in groups of "
                       "%lld of %lld channels (conv_group_size) and a selector of rank %lld over "
                       "%lld candidates (selector_rank, selector_top_k), which do not go together; "
                       "get the file again",
                       (long long)part[0], (long long)part[1], (long long)p->dim,
                       (long long)part[2], (long long)part[3]);
    p->conv_taps = (int)part[0];
    p->conv_group = (int)part[1];
    p->pairs = selector ? DFLASH_PAIRS_SELECTOR : DFLASH_PAIRS_NONE;
    p->selector_rank = (int)part[2];
    p->selector_k = (int)part[3];
    return 0;
}

static int read_parts(struct dflash_params *p, const struct gguf *g, const char *arch,
                      struct err *e) {
    char key[PARAMS_KEY];
    int64_t part[4];
    int rc = 0;
    for (int i = 0; !rc && i < 4; i++)
        rc = meta_int(g, params_key(key, arch, dflash_parts[i].key), 0, dflash_parts[i].max, 0,
                      &part[i], e);
    return rc ? rc : dflash_take_parts(p, part, e);
}

// Three programs describe Laguna's drafts in three ways.
static int read_kind(struct dflash_params *p, const struct gguf *g, const char *arch,
                     struct err *e) {
    static const char *const flags[] = {"dflash.context_kv_layer_norm", "dflash.laguna"};
    char key[PARAMS_KEY];
    const char *kind;
    size_t n;
    int rc = gguf_get_str(g, params_key(key, arch, "decoder_arch"), &kind, &n, e);
    if (rc)
        return rc;
    p->norms_context = kind && n == 6 && memcmp(kind, "laguna", n) == 0;
    if (kind && !p->norms_context && !(n == 5 && memcmp(kind, "qwen3", n) == 0))
        return err_set(e, ERR_UNSUPPORTED,
                       "the draft is of kind %.*s (key %s), which is not supported; laguna and "
                       "qwen3 are",
                       (int)(n < 32 ? n : 32), kind, key);
    for (int i = 0; !rc && i < 2; i++) {
        bool flag;
        rc = gguf_get_bool(g, params_key(key, arch, flags[i]), false, &flag, e);
        p->norms_context = p->norms_context || (!rc && flag);
    }
    return rc;
}

int dflash_read_form(struct dflash_params *p, const struct gguf *g, const char *arch,
                     struct err *e) {
    int rc = refuse_kinds(g, arch, e);
    if (!rc)
        rc = read_rope(p, g, arch, e);
    if (!rc)
        rc = read_factors(p, g, arch, e);
    if (!rc)
        rc = read_parts(p, g, arch, e);
    return rc ? rc : read_kind(p, g, arch, e);
}
