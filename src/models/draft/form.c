// SPDX-License-Identifier: Apache-2.0
// What drafts of some targets have beside the plain form, in GGUF files: YaRN (Kimi K2.5, gpt-oss),
// factors of embeddings and logits (Gemma 4), contexts that layers norm (Laguna). Kinds of drafts
// that change the arithmetic otherwise are refused by the key that tells of them.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/draft/impl.h"
#include "models/meta.h"
#include "models/params.h"

static int refuse_kinds(const struct gguf *g, const char *arch, struct err *e) {
    static const char *const parts[] = {"conv_kernel_size",      "conv_group_size",
                                        "selector_rank",         "selector_top_k",
                                        "sample_from_anchor",    "has_confidence_head",
                                        "dflash.domino.enabled", "dflash.dspark.enabled"};
    char key[PARAMS_KEY];
    double scale;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) { // a neutral value is harmless
        const struct gguf_kv *kv = gguf_find(g, params_key(key, arch, parts[i]));
        if (kv && (kv->count != 1 || kv->bytes[0] != 0))
            return err_set(e, ERR_UNSUPPORTED,
                           "the draft is a DFlash variant (key %s) that is not supported; use a "
                           "plain DFlash draft",
                           key);
    }
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

// The ends of YaRN's ramp are rounded unless the file says that they are not.
static int read_rope(struct dflash_params *p, const struct gguf *g, const char *arch,
                     struct err *e) {
    char key[PARAMS_KEY];
    bool rounds = true;
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
        rc = params_read_scaling(&own, g, e);
    if (!rc)
        rc =
            gguf_get_bool(g, params_key(key, arch, "rope.scaling.yarn_truncate"), true, &rounds, e);
    p->rope = own.rope;
    p->rope.dims = (int)dims;
    p->rope.exact_ramp = !rounds;
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

// Three programs tell of Laguna's drafts in three ways.
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
    return rc ? rc : read_kind(p, g, arch, e);
}
