// SPDX-License-Identifier: Apache-2.0
// Keys as the established converter writes them, then options of the same meaning.
#include "models/rope_scaling.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "base/num.h"
#include "models/params.h"

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

// The authors' factor of cosines; llama.cpp's files leave it out where no pair keeps its angle.
static float yarn_magnitude(float factor, float ramp) {
    return factor > 1 && ramp > 0 ? (float)(1 + 0.1 * log((double)factor)) : 1;
}

// What a factor is for, if that is a length at all.
static int64_t reach_of(float factor, int64_t trained, int64_t otherwise) {
    double reach = (double)factor * (double)trained;
    return reach >= 1 && reach <= (double)((int64_t)1 << 31) ? (int64_t)reach : otherwise;
}

static int read_yarn(struct rope *r, struct model_params *p, const struct gguf *g, struct err *e) {
    char key[PARAMS_KEY];
    float own = 1, more = 1;
    double ramp = 1;
    bool rounds = !r->exact_ramp;
    int rc = meta_int(g, params_key(key, p->arch, "rope.scaling.original_context_length"), 1,
                      (int64_t)1 << 31, p->context, &r->trained, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.yarn_beta_fast"), 32,
                           &r->beta_fast, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.yarn_beta_slow"), 1,
                           &r->beta_slow, e);
    if (!rc)
        rc = gguf_get_bool(g, params_key(key, p->arch, "rope.scaling.yarn_truncate"), rounds,
                           &rounds, e);
    if (!rc)
        rc = gguf_get_float(g, params_key(key, p->arch, "rope.scaling.yarn_ext_factor"), 1, &ramp,
                            e);
    if (!rc && !(ramp <= 1))
        rc =
            err_set(e, ERR_UNSUPPORTED, "metadata key %s is %g; at most 1 is supported", key, ramp);
    r->exact_ramp = !rounds;
    r->ramp = ramp < 0 ? 1 : (float)ramp; // below 0: not set
    own = yarn_magnitude(r->factor, r->ramp);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.yarn_attn_factor"),
                           (double)own, &own, e);
    if (!rc)
        rc = meta_positive(g, params_key(key, p->arch, "rope.scaling.attn_factor"), 1, &more, e);
    r->magnitude = own * more;
    p->context = rc ? 0 : max_i64(p->context, reach_of(r->factor, r->trained, 0));
    return rc;
}

static int read_file_scaling(struct model_params *p, const struct gguf *g, struct err *e) {
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

int rope_scaling_read(struct model_params *p, const struct gguf *g, struct err *e) {
    int rc = read_file_scaling(p, g, e);
    return rc ? rc : rope_scaling_apply(&p->rope, &p->context, &p->rope_options, e);
}

static bool rope_options_given(const struct rope_options *o) {
    return o->scaling || o->factor > 0 || o->base > 0 || o->trained > 0 || o->has_ramp ||
           o->magnitude > 0 || o->beta_slow > 0 || o->beta_fast > 0;
}

void rope_options_print(const struct rope_options *o, struct str *out) {
    static const char *const kinds[] = {"", "none", "linear", "yarn"};
    const struct {
        const char *name;
        double value;
        bool given;
    } rows[] = {{"rope-scale", (double)o->factor, o->factor > 0},
                {"rope-freq-base", (double)o->base, o->base > 0},
                {"yarn-orig-ctx", (double)o->trained, o->trained > 0},
                {"yarn-ext-factor", (double)o->ramp, o->has_ramp},
                {"yarn-attn-factor", (double)o->magnitude, o->magnitude > 0},
                {"yarn-beta-slow", (double)o->beta_slow, o->beta_slow > 0},
                {"yarn-beta-fast", (double)o->beta_fast, o->beta_fast > 0}};
    const char *between = "";
    if (o->scaling) {
        str_printf(out, "--rope-scaling %s", kinds[o->scaling]);
        between = " ";
    }
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].given)
            continue;
        str_printf(out, "%s--%s %.9g", between, rows[i].name, rows[i].value);
        between = " ";
    }
}

// Options that do not go together; kind and factor are what they and the file come to.
static int check_rope_options(const struct rope_options *o, enum rope_scaling kind, float factor,
                              struct err *e) {
    if (o->scaling == ROPE_UNSCALED && o->factor > 0)
        return err_set(e, ERR_USAGE,
                       "--rope-scaling none leaves positions as they are, and --rope-scale slows "
                       "them down; give one of them");
    if (o->scaling > ROPE_UNSCALED && !(factor > 0 && factor != 1))
        return err_set(e, ERR_USAGE,
                       "--rope-scaling %s has no factor, and the model's file has none either; "
                       "give one with --rope-scale",
                       kind == ROPE_YARN ? "yarn" : "linear");
    if (kind != ROPE_YARN &&
        (o->trained > 0 || o->has_ramp || o->magnitude > 0 || o->beta_slow > 0 || o->beta_fast > 0))
        return err_set(e, ERR_USAGE,
                       "the options --yarn-* are for YaRN, which neither the model's file nor "
                       "--rope-scaling asks for; add --rope-scaling yarn or leave them out");
    return 0;
}

// r has what the file says of YaRN, or of anything else. A magnitude that differs from the usual
// one does so with another factor as well.
static void set_yarn(struct rope *r, float factor, int64_t trained, const struct rope_options *o) {
    const bool of_file = r->trained > 0;
    const float usual = yarn_magnitude(r->factor, r->ramp);
    const float own = of_file && r->magnitude > 0 ? r->magnitude / usual : 1;
    r->factor = factor;
    r->ramp = o->has_ramp ? o->ramp : of_file ? r->ramp : 1;
    r->magnitude = yarn_magnitude(factor, r->ramp) * (o->magnitude > 0 ? o->magnitude : own);
    r->beta_fast = o->beta_fast > 0 ? o->beta_fast : of_file ? r->beta_fast : 32;
    r->beta_slow = o->beta_slow > 0 ? o->beta_slow : of_file ? r->beta_slow : 1;
    r->trained = trained;
}

int rope_scaling_apply(struct rope *r, int64_t *context, const struct rope_options *o,
                       struct err *e) {
    const bool scaled = r->factor > 0 && r->factor != 1, yarn = scaled && r->trained > 0;
    const float factor = o->factor > 0 ? o->factor : scaled ? r->factor : 1;
    enum rope_scaling kind = o->scaling;
    if (!rope_options_given(o))
        return 0;
    if (o->base > 0)
        r->base = o->base;
    if (!kind && yarn)
        kind = ROPE_YARN;
    else if (!kind && (scaled || o->factor > 0))
        kind = ROPE_LINEAR;
    int rc = check_rope_options(o, kind, factor, e);
    if (rc || !kind)
        return rc;
    int64_t trained = yarn ? r->trained : *context;
    if (scaled && !yarn)
        trained = max_i64(1, (int64_t)((double)*context / (double)r->factor));
    trained = o->trained > 0 ? o->trained : trained;
    if (kind == ROPE_YARN) {
        set_yarn(r, factor, trained, o);
    } else {
        r->factor = kind == ROPE_LINEAR ? factor : 0;
        r->ramp = r->magnitude = 0;
        r->trained = 0;
    }
    *context = reach_of(kind == ROPE_UNSCALED ? 1 : factor, trained, trained);
    return 0;
}

int rope_scaling_follow(struct rope *r, const struct model_params *target, struct err *e) {
    struct rope_options o = target->rope_options, scaling = o;
    const struct rope *t = &target->rope;
    int64_t context = target->context;
    scaling.base = 0; // a base alone says nothing of scaling
    if (rope_options_given(&scaling) && t->factor > 0 && t->factor != 1) {
        o.scaling = t->trained > 0 ? ROPE_YARN : ROPE_LINEAR;
        o.factor = t->factor;
        o.trained = t->trained;
    }
    return rope_scaling_apply(r, &context, &o, e);
}
