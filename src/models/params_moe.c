// SPDX-License-Identifier: Apache-2.0
// Keys of mixtures of experts. What an architecture does where a key is absent stands in the shape
// already; a value that no op computes is refused by its key.
#include "models/load.h"
#include "models/meta.h"
#include "models/params.h"

static int read_gating(struct moe_shape *s, const struct gguf *g, const char *arch, struct err *e) {
    char key[PARAMS_KEY];
    static const enum route_score scores[] = {ROUTE_SOFTMAX, ROUTE_SIGMOID, ROUTE_SOFTMAX_CHOSEN};
    enum { SCORES = sizeof scores / sizeof *scores };
    int64_t v;
    int rc = meta_int(g, params_key(key, arch, "expert_gating_func"), 0, INT32_MAX, 0, &v, e);
    if (rc || v == 0) // as written by converters that do not know
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
