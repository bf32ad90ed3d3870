// SPDX-License-Identifier: Apache-2.0
// Keys as the established converter writes them. Absent ones have the values that other readers
// give them; what no layer here computes is refused.
#include "models/params.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/meta.h"

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

static bool is_text(const char *s, size_t n, const char *text) {
    return strlen(text) == n && memcmp(s, text, n) == 0;
}

static int refuse_kind(const char *type, size_t len, struct err *e) {
    return err_set(e, ERR_UNSUPPORTED,
                   "rotary scaling of type %.*s is not supported; use a file without it",
                   (int)(len < 32 ? len : 32), type);
}

// The factor, by the older key too; 1 where a file has neither, and 0 stands for 1. key: the one
// that was read.
static int read_factor(const struct gguf *g, const char *arch, double *factor, char *key,
                       struct err *e) {
    *factor = 1;
    if (!gguf_find(g, params_key(key, arch, "rope.scaling.factor")) &&
        !gguf_find(g, params_key(key, arch, "rope.scale_linear")))
        return 0;
    int rc = gguf_get_float(g, key, 1, factor, e);
    *factor = *factor == 0 ? 1 : *factor;
    if (!rc && !(*factor > 0 && *factor <= FLT_MAX))
        rc = err_set(e, ERR_FORMAT, "metadata key %s is %g; a positive number is needed", key,
                     *factor);
    return rc;
}

int params_refuse_scaling(const struct gguf *g, const char *arch, struct err *e) {
    char key[PARAMS_KEY];
    const char *type;
    size_t len;
    double factor;
    int rc = gguf_get_str(g, params_key(key, arch, "rope.scaling.type"), &type, &len, e);
    if (rc || (type && is_text(type, len, "none")))
        return rc;
    if (type)
        return refuse_kind(type, len, e);
    rc = read_factor(g, arch, &factor, key, e);
    if (!rc && factor != 1)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "metadata key %s is %g: rotary scaling is not supported for a %s model; use a "
                     "file without it",
                     key, factor, arch);
    return rc;
}

// The magnitude is the authors' 1 + 0.1 ln(factor) unless the file has its own.
static int read_yarn(struct rope *r, struct model_params *p, const struct gguf *g, struct err *e) {
    char key[PARAMS_KEY];
    float own = (float)(1 + 0.1 * log((double)r->factor)), more = 1;
    double ramp;
    int rc = meta_int(g, params_key(key, p->arch, "rope.scaling.original_context_length"), 1,
                      (int64_t)1 << 31, p->context, &r->trained, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.yarn_beta_fast"), 32,
                           &r->beta_fast, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.yarn_beta_slow"), 1,
                           &r->beta_slow, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.yarn_attn_factor"),
                           (double)own, &own, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.attn_factor"), 1, &more, e);
    if (!rc)
        rc = gguf_get_float(g, params_key(key, p->arch, "rope.scaling.yarn_ext_factor"), 1, &ramp,
                            e);
    if (!rc && !(ramp <= 1))
        rc =
            err_set(e, ERR_UNSUPPORTED, "metadata key %s is %g; at most 1 is supported", key, ramp);
    if (rc)
        return rc;
    r->ramp = ramp < 0 ? 1 : (float)ramp; // below 0: not set
    r->magnitude = own * more;
    double reach = (double)r->factor * (double)r->trained;
    if (reach > (double)p->context && reach <= (double)((int64_t)1 << 31))
        p->context = (int64_t)reach;
    return 0;
}

int params_read_scaling(struct model_params *p, const struct gguf *g, struct err *e) {
    char key[PARAMS_KEY];
    const char *type;
    size_t len;
    struct rope *r = &p->rope;
    int rc = gguf_get_str(g, params_key(key, p->arch, "rope.scaling.type"), &type, &len, e);
    if (rc || (type && is_text(type, len, "none")))
        return rc;
    bool yarn = type && is_text(type, len, "yarn");
    if (type && !yarn && !is_text(type, len, "linear"))
        return refuse_kind(type, len, e);
    double factor;
    rc = read_factor(g, p->arch, &factor, key, e);
    if (!rc && type && !gguf_find(g, key))
        rc = err_set(e, ERR_FORMAT, "metadata key %s is missing; the file is incomplete",
                     params_key(key, p->arch, "rope.scaling.factor"));
    if (!rc && (type || factor != 1)) // without a type it is linear
        r->factor = (float)factor;
    return rc || !yarn ? rc : read_yarn(r, p, g, e);
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

static bool is_listed(const char *const *list, const char *name) {
    while (*list && strcmp(*list, name) != 0)
        list++;
    return *list;
}

int params_refuse_tensors(const struct gguf *g, const char *arch, const char *const *names,
                          const char *const *layer, struct err *e) {
    for (size_t i = 0; i < gguf_tensor_count(g); i++) {
        const char *name = gguf_tensor_at(g, i)->name;
        const char *part = strncmp(name, "blk.", 4) == 0 ? strchr(name + 4, '.') : NULL;
        if (part && strncmp(part, ".nextn.", 7) == 0) // of a block that is left alone
            continue;
        if (part ? !is_listed(layer, part + 1) : !is_listed(names, name))
            return err_set(e, ERR_UNSUPPORTED,
                           "the file has a tensor %.80s, which a %s model lacks; use a file "
                           "without it",
                           name, arch);
    }
    return 0;
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
