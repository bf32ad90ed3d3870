// SPDX-License-Identifier: Apache-2.0
// Metadata of all dialects into one normal form: taps become 0-based outputs of target layers,
// windows and causality become one flag a layer. The authors' rule for masks: a causal key decides
// for all layers; without one, sliding-window layers are causal and full ones bidirectional. What
// GGUF files say is read here, what config.json says in config.c.
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "models/draft/config.h"
#include "models/draft/dflash/impl.h"
#include "models/params.h"

enum { DEFAULT_BLOCK = 16, MAX_WIDTH = 1 << 20 };

static const char *const dialect_names[] = {"lucebox", "beellama", "upstream", "safetensors"};

// GGUF.

struct keys {
    const struct gguf *g;
    const char *arch;
    int arch_len;
    char key[160];
};

static const char *prefixed_key(struct keys *k, const char *suffix) {
    snprintf(k->key, sizeof k->key, "%.*s.%s", k->arch_len, k->arch, suffix);
    return k->key;
}

static int read_int(struct keys *k, const char *suffix, int64_t hi, int64_t otherwise, int64_t *out,
                    struct err *e) {
    return meta_int(k->g, prefixed_key(k, suffix), 1, hi, otherwise, out, e);
}

static bool is_integer_array(const struct gguf_kv *kv) {
    return kv->kind == GGUF_ARRAY && kv->elem != GGUF_STRING && kv->elem != GGUF_F32 &&
           kv->elem != GGUF_F64;
}

static int read_taps(struct dflash_params *p, struct keys *k, bool upstream, struct err *e) {
    const char *key = prefixed_key(k, upstream ? "target_layers" : "dflash.target_layer_ids");
    const struct gguf_kv *kv = gguf_find(k->g, key);
    p->n_taps = 0;
    if (!kv)
        return 0;
    if (!is_integer_array(kv) || kv->count < 1 || kv->count > DFLASH_MAX_TAPS)
        return err_set(e, ERR_FORMAT, "metadata key %s must list 1 to %d target layers", key,
                       DFLASH_MAX_TAPS);
    for (uint64_t i = 0; i < kv->count; i++) {
        int64_t id = gguf_array_int(kv, i) - (upstream ? 1 : 0);
        if (id < 0 || id > 4096)
            return err_set(e, ERR_MISMATCH, "metadata key %s taps layer %lld, which no target has",
                           key, (long long)id);
        p->taps[p->n_taps++] = (int32_t)id;
    }
    return 0;
}

// Lucebox's converter for Gemma 4 writes a window without a pattern: all layers but the last have
// it.
static bool has_window(const struct dflash_params *p, int dialect, int layer) {
    return dialect != DIALECT_LUCEBOX || p->norms_context || layer < p->n_layers - 1;
}

static int read_windows(struct dflash_params *p, struct keys *k, int dialect, struct err *e) {
    const struct gguf_kv *kv = gguf_find(k->g, prefixed_key(k, "attention.sliding_window"));
    memset(p->layer_window, 0, sizeof p->layer_window);
    p->window = 0;
    if (!kv)
        return 0;
    int rc = meta_int(k->g, k->key, 0, (int64_t)1 << 31, 0, &p->window, e);
    if (rc || p->window == 0)
        return rc;
    kv = gguf_find(k->g, prefixed_key(k, "attention.sliding_window_pattern"));
    int64_t period = 0;
    if (kv && kv->kind != GGUF_ARRAY)
        rc = meta_int(k->g, k->key, 1, DFLASH_MAX_LAYERS, 0, &period, e);
    else if (kv && (!is_integer_array(kv) || kv->count != (uint64_t)p->n_layers))
        rc = err_set(e, ERR_FORMAT, "metadata key %s must have one entry for each of %d layers",
                     k->key, p->n_layers);
    for (int i = 0; !rc && i < p->n_layers; i++)
        p->layer_window[i] = (uint8_t)(!kv      ? has_window(p, dialect, i)
                                       : period ? (i + 1) % period != 0
                                                : gguf_array_int(kv, (uint64_t)i) != 0);
    return rc;
}

static int read_causal(struct keys *k, int dialect, int *causal, struct err *e) {
    bool v;
    *causal = -1;
    if (dialect == DIALECT_LUCEBOX || !gguf_find(k->g, prefixed_key(k, "attention.causal")))
        return 0;
    int rc = gguf_get_bool(k->g, k->key, false, &v, e);
    if (!rc && (dialect == DIALECT_UPSTREAM || v)) // beellama writes false into every file
        *causal = v;
    return rc;
}

static int read_mask_and_block(struct dflash_params *p, struct keys *k, bool upstream,
                               struct err *e) {
    const char *mask =
        upstream ? "tokenizer.ggml.mask_token_id" : prefixed_key(k, "dflash.mask_token_id");
    int64_t block = 0;
    int rc = meta_int(k->g, mask, 0, 1 << 24, p->mask_id, &p->mask_id, e);
    if (!rc)
        rc = read_int(k, upstream ? "block_size" : "dflash.block_size", DFLASH_MAX_BLOCK,
                      DEFAULT_BLOCK, &block, e);
    p->block_size = (int)block;
    return rc;
}

static int read_shape(struct dflash_params *p, struct keys *k, struct err *e) {
    int64_t layers = 0, hd = 0, vd = 0;
    int rc = read_int(k, "block_count", DFLASH_MAX_LAYERS, 0, &layers, e);
    p->n_layers = (int)layers;
    if (!rc)
        rc = read_int(k, "embedding_length", MAX_WIDTH, 0, &p->dim, e);
    if (!rc)
        rc = read_int(k, "feed_forward_length", MAX_WIDTH, 0, &p->ffn, e);
    if (!rc)
        rc = meta_heads(k->g, prefixed_key(k, "attention.head_count"), layers, &p->n_heads, e);
    if (!rc)
        rc = meta_heads(k->g, prefixed_key(k, "attention.head_count_kv"), layers, &p->n_kv, e);
    if (!rc)
        rc = read_int(k, "attention.key_length", OPS_HEAD_MAX, p->dim / p->n_heads, &hd, e);
    if (!rc)
        rc = read_int(k, "attention.value_length", OPS_HEAD_MAX, hd, &vd, e);
    if (!rc && hd != vd)
        rc = err_set(e, ERR_UNSUPPORTED,
                     "the draft's key length %lld and value length %lld "
                     "differ, which is not supported",
                     (long long)hd, (long long)vd);
    p->head_dim = (int)hd;
    return rc;
}

static bool is_arch(const struct keys *k, const char *name) {
    return (int)strlen(name) == k->arch_len && memcmp(k->arch, name, strlen(name)) == 0;
}

static int read_floats(struct dflash_params *p, struct keys *k, struct err *e) {
    int64_t context;
    float otherwise = p->rope.base;
    int rc =
        meta_positive(k->g, prefixed_key(k, "attention.layer_norm_rms_epsilon"), 1e-6, &p->eps, e);
    if (!rc)
        rc = meta_positive(k->g, prefixed_key(k, "rope.freq_base"), (double)otherwise,
                           &p->rope.base, e);
    if (!rc)
        rc = read_int(k, "context_length", (int64_t)1 << 31, 1, &context, e);
    // Early conversions without the checkpoint's configuration carry these two placeholders.
    if (!rc && is_arch(k, "qwen35-dflash-draft") && p->rope.base == 1e6f && context == 32768)
        p->rope.base = otherwise;
    return rc;
}

static int read_gguf(struct dflash_params *p, const struct draft_file *f, int *causal,
                     struct err *e) {
    struct keys k = {.g = f->g};
    size_t len;
    char arch[64];
    bool upstream = f->dialect == DIALECT_UPSTREAM;
    int rc = gguf_get_str(f->g, "general.architecture", &k.arch, &len, e);
    k.arch_len = (int)len;
    snprintf(arch, sizeof arch, "%.*s", k.arch_len, k.arch);
    if (!rc)
        rc = read_shape(p, &k, e);
    if (!rc)
        rc = read_floats(p, &k, e);
    if (!rc)
        rc = dflash_read_form(p, f->g, arch, e);
    // Lucebox's program takes a draft with these tensors for Laguna's, whatever the keys say.
    if (!rc && f->dialect == DIALECT_LUCEBOX)
        p->norms_context |= gguf_tensor(f->g, "blk.0.attn_gate.weight") ||
                            gguf_tensor(f->g, "dflash.aux_hidden_norm.0.weight");
    if (!rc)
        rc = dflash_dspark_gguf(p, f, arch, e);
    if (!rc)
        rc = dflash_domino_gguf(p, f, arch, e);
    if (!rc)
        rc = read_mask_and_block(p, &k, upstream, e);
    if (!rc)
        rc = read_taps(p, &k, upstream, e);
    if (!rc)
        rc = read_windows(p, &k, f->dialect, e);
    return rc ? rc : read_causal(&k, f->dialect, causal, e);
}

// Overrides and what the file leaves out.

int dflash_check_vocab(const struct draft_file *f, int64_t vocab, const struct gguf *target,
                       struct err *e) {
    int64_t own = json_int(dflash_config_find(f->config, "vocab_size"), 0);
    int rc = 0;
    if (f->g) {
        struct keys k = {.g = f->g};
        size_t len;
        rc = gguf_get_str(f->g, "general.architecture", &k.arch, &len, e);
        k.arch_len = (int)len;
        if (!rc)
            rc = meta_int(f->g, prefixed_key(&k, "vocab_size"), 0, (int64_t)1 << 31, 0, &own, e);
    }
    if (!rc && own && own != vocab)
        rc = err_set(e, ERR_MISMATCH,
                     "the draft is for a vocabulary of %lld tokens (vocab_size) but the target's "
                     "embedding has %lld rows; use the draft of this target",
                     (long long)own, (long long)vocab);
    return rc || !f->g ? rc : draft_check_tokens(f->g, target, e);
}

// Evenly spaced taps as the authors choose them for n > 1: round half to even.
static void default_taps(struct dflash_params *p, int n, int depth) {
    p->n_taps = n;
    for (int i = 0; i < n; i++)
        p->taps[i] = n == 1 ? depth / 2 : (int32_t)lrint(1 + (double)i * (depth - 4) / (n - 1));
}

static int resolve_taps(struct dflash_params *p, const struct draft_file *f,
                        const struct model_params *t, const struct dflash_options *o,
                        struct err *e) {
    const struct tensor *fc = dflash_file_find(f, "fc.weight");
    if (!fc)
        return err_set(e, ERR_MISMATCH,
                       "the draft has no tensor fc.weight; it is not a DFlash "
                       "draft");
    int64_t n = fc->ne[0] / p->dim;
    if (fc->ne[0] % p->dim || n < 1 || n > DFLASH_MAX_TAPS)
        return err_set(e, ERR_MISMATCH,
                       "the draft's fc.weight has %lld columns, which is no "
                       "multiple of its width %lld",
                       (long long)fc->ne[0], (long long)p->dim);
    if (o->n_taps > 0 && o->n_taps <= DFLASH_MAX_TAPS) {
        p->n_taps = o->n_taps;
        memcpy(p->taps, o->taps, (size_t)o->n_taps * sizeof *o->taps);
    } else if (p->n_taps == 0) {
        default_taps(p, (int)n, t->n_layers);
    }
    if (p->n_taps != n)
        return err_set(e, ERR_MISMATCH,
                       "the draft's fc.weight takes %lld target layers but %d are "
                       "named; the list of taps is wrong",
                       (long long)n, p->n_taps);
    for (int i = 0; i < p->n_taps; i++) {
        if (p->taps[i] < 0 || p->taps[i] >= t->n_layers)
            return err_set(
                e, ERR_MISMATCH,
                "the draft taps target layer %d (target_layers) but the target has %d; it was "
                "made for another model, use the draft of this target",
                (int)p->taps[i], t->n_layers);
    }
    return 0;
}

static void override_params(struct dflash_params *p, const struct dflash_options *o, int causal) {
    if (o->mask_id >= 0)
        p->mask_id = o->mask_id;
    if (o->block_size > 0)
        p->block_size = o->block_size;
    if (o->rope_base > 0)
        p->rope.base = o->rope_base;
    if (o->causal >= 0)
        causal = o->causal;
    else if (causal < 0 && p->norms_context)
        causal = 1; // as all of Laguna's are
    for (int i = 0; o->window >= 0 && i < p->n_layers; i++)
        p->layer_window[i] = o->window > 0 && i < p->n_layers - 1;
    if (o->window >= 0)
        p->window = o->window;
    for (int i = 0; i < p->n_layers; i++)
        p->layer_causal[i] = causal >= 0 ? causal != 0 : p->layer_window[i];
}

// Distances within a window are never beyond training.
static bool all_windowed(const struct dflash_params *p) {
    bool all = p->window > 0;
    for (int i = 0; i < p->n_layers; i++)
        all = all && p->layer_window[i];
    return all;
}

static int check_fit(const struct dflash_params *p, const struct model_params *t, struct err *e) {
    if (p->dim != t->dim)
        return err_set(
            e, ERR_MISMATCH,
            "the draft is %lld wide (embedding_length, hidden_size) but the target %lld; use "
            "the draft of this target",
            (long long)p->dim, (long long)t->dim);
    if (p->mask_id < 0 || p->mask_id >= t->vocab)
        return err_set(e, ERR_MISMATCH,
                       "the draft's mask token %lld (mask_token_id) is outside the target's "
                       "vocabulary of %lld; use the draft of this target or override the id",
                       (long long)p->mask_id, (long long)t->vocab);
    if (p->block_size < 2 || p->block_size > DFLASH_MAX_BLOCK)
        return err_set(e, ERR_UNSUPPORTED,
                       "a draft block of %d tokens is not possible; 2 to %d are", p->block_size,
                       DFLASH_MAX_BLOCK);
    if (p->n_kv < 1 || p->n_heads % p->n_kv || p->n_heads / p->n_kv > OPS_GROUP_MAX ||
        p->head_dim < 32 || p->head_dim > OPS_HEAD_MAX || p->head_dim % 32 || p->ffn % 32)
        return err_set(e, ERR_UNSUPPORTED,
                       "a draft with %d heads over %d of width %d and a "
                       "feed-forward width of %lld is not supported",
                       p->n_heads, p->n_kv, p->head_dim, (long long)p->ffn);
    return 0;
}

int dflash_read_params(struct dflash_params *p, const struct draft_file *f,
                       const struct model_params *target, const struct dflash_options *o,
                       struct err *e) {
    int causal = -1;
    *p = (struct dflash_params){
        .dialect = dialect_names[f->dialect],
        .mask_id = target->draft_mask,
        .block_size = DEFAULT_BLOCK,
        .rope = {.base = target->rope.base, .exact_ramp = target->rope.exact_ramp},
        .embed_scale = target->embed_scale > 0 ? target->embed_scale : 1,
        .logit_scale = 1,
        .logit_cap = target->logit_cap};
    int rc = f->g ? read_gguf(p, f, &causal, e) : dflash_read_config(p, f, &causal, e);
    if (rc)
        return rc;
    override_params(p, o, causal);
    if (!all_windowed(p))
        rc = rope_scaling_follow(&p->rope, target, e);
    if (!rc)
        rc = check_fit(p, target, e);
    if (!rc)
        rc = dflash_domino_check(p, e);
    return rc ? rc : resolve_taps(p, f, target, o, e);
}
