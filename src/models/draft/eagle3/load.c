// SPDX-License-Identifier: Apache-2.0
// Weights and memory of an EAGLE-3 draft.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "models/checkpoint.h"
#include "models/draft/eagle3/impl.h"

struct eagle3_options eagle3_options_default(void) {
    return (struct eagle3_options){.codec_k = KV_F16, .codec_v = KV_F16};
}

static int load_divisors(struct eagle3 *m, struct err *e) {
    static const char name[] = "rope_freqs.weight";
    const int n = m->params.rope.dims / 2;
    m->shape.rope.factors = m->params.rope_divisors[0] > 0 ? m->params.rope_divisors : NULL;
    if (!eagle3_file_find(&m->file, name))
        return 0;
    int rc = load_host_floats(&m->path.load, name, n, &m->divisors, e);
    for (int i = 0; !rc && !m->path.load.dry && i < n; i++)
        if (!(m->divisors[i] > 0) || !isfinite(m->divisors[i]))
            rc =
                err_set(e, ERR_FORMAT,
                        "the draft's tensor %s divides rotary angle %d by %g; positive numbers are "
                        "needed",
                        name, i, (double)m->divisors[i]);
    m->shape.rope.factors = m->divisors;
    return rc;
}

// Shape and group of keys and values, and that the backend has what the draft needs.
static int make_shape(struct eagle3 *m, const struct eagle3_options *o, struct err *e) {
    const struct eagle3_params *p = &m->params;
    const struct kv_shape kv = {.n_layers = 1,
                                .n_heads = p->n_kv,
                                .dk = p->head_dim,
                                .dv = p->head_dim,
                                .codec_k = o->codec_k,
                                .codec_v = o->codec_v};
    const struct attention_call call = {
        .shape = &m->shape, .layout = &m->path.layout, .mask = ATTEND_PATH};
    m->shape =
        (struct attention_shape){.dim = p->dim,
                                 .in_dim = 2 * p->dim,
                                 .n_heads = p->n_heads,
                                 .n_kv = p->n_kv,
                                 .head_dim = p->head_dim,
                                 .rope = p->rope,
                                 .eps = p->eps,
                                 .scale = 1.0f / sqrtf((float)p->head_dim),
                                 .no_qk_norm = true,
                                 .bias = eagle3_file_find(&m->file, "blk.0.attn_q.bias"),
                                 .out_bias = eagle3_file_find(&m->file, "blk.0.attn_output.bias")};
    int rc = load_divisors(m, e);
    if (!rc)
        rc = kv_layout_init(&m->path.layout, &kv, e);
    if (!rc)
        rc = attention_check(m->path.x, &call, e);
    return rc ? rc : exec_takes(m->path.x, &(struct ops_needs){.norm = true}, e);
}

// The draft's own where it has one, else the target's.
static int load_embedding(struct eagle3 *m, struct err *e) {
    static const char name[] = "token_embd.weight";
    const struct model *t = m->path.target;
    m->embed = t->embed;
    if (eagle3_file_find(&m->file, name))
        return load_weight(&m->path.load, name, m->params.dim, t->params.vocab, &m->embed, e);
    if (m->params.dim == t->params.dim)
        return 0;
    return err_set(
        e, ERR_MISMATCH,
        "the draft is %lld wide, the target %lld, and the draft has no %s (embed_tokens) "
        "of its own; use the draft of this target",
        (long long)m->params.dim, (long long)t->params.dim, name);
}

static const struct tensor *find_in_target(const void *target, const char *name) {
    return gguf_tensor(model_file(target), name);
}

static void done_in_target(const void *target, const struct tensor *t) {
    gguf_release(model_file(target), t);
}

static int check_target(const void *target, struct err *e) {
    return gguf_check(model_file(target), e);
}

// The target's head, of which rows may be chosen.
static int load_target_head(struct eagle3 *m, const struct eagle3_options *o, struct err *e) {
    struct path *d = &m->path;
    const struct model_params *t = &d->target->params;
    const struct draft_head_source s = {.tensor = t->tied ? "token_embd.weight" : "output.weight",
                                        .dim = t->dim,
                                        .size = t->vocab,
                                        .loaded = true,
                                        .whole = d->target->head,
                                        .tokens = model_file(d->target),
                                        .vocab = o->vocab};
    struct load of_draft = d->load;
    if (m->params.dim != t->dim)
        return err_set(
            e, ERR_MISMATCH,
            "the draft has no output.weight (lm_head) and another width than the target; "
            "use the draft of this target");
    d->load.find = find_in_target;
    d->load.done = done_in_target;
    d->load.check = check_target;
    d->load.arg = d->target;
    int rc = draft_head_load(&d->head, &d->load, &s, e);
    d->load.find = of_draft.find;
    d->load.done = of_draft.done;
    d->load.check = of_draft.check;
    d->load.arg = of_draft.arg;
    return rc;
}

// Row i of the head is of token d2t[i] in GGUF files, of i + d2t[i] in safetensors.
static int load_head(struct eagle3 *m, const struct eagle3_options *o, struct err *e) {
    static const char name[] = "output.weight";
    struct path *d = &m->path;
    const struct tensor *own = eagle3_file_find(&m->file, name);
    const struct tensor *list = eagle3_file_find(&m->file, "d2t");
    const int64_t vocab = d->target->params.vocab;
    const struct draft_head_source s = {.tensor = name,
                                        .dim = d->dim,
                                        .size = list ? list->ne[0] : vocab,
                                        .tokens = model_file(d->target),
                                        .vocab = o->vocab,
                                        .tokens_of = list,
                                        .n_tokens = vocab,
                                        .offsets = m->file.st};
    int rc = list ? draft_file_check(&m->file, e) : 0;
    if (rc)
        return rc;
    return own || list ? draft_head_load(&d->head, &d->load, &s, e) : load_target_head(m, o, e);
}

// Bytes of what a row reads.
static double pass_bytes(const struct eagle3 *m) {
    static const char *const parts[] = {"attn_q.weight",      "attn_k.weight",   "attn_v.weight",
                                        "attn_output.weight", "ffn_gate.weight", "ffn_up.weight",
                                        "ffn_down.weight"};
    char name[LOAD_NAME];
    double bytes = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        const struct tensor *t = eagle3_file_find(&m->file, load_name(name, 0, parts[i]));
        bytes += t ? (double)t->bytes : 0;
    }
    const struct tensor *head = eagle3_file_find(&m->file, "output.weight");
    if (!head)
        head = find_in_target(m->path.target,
                              m->path.target->params.tied ? "token_embd.weight" : "output.weight");
    return bytes +
           (head ? (double)head->bytes / (double)head->ne[1] * (double)m->path.head.rows : 0);
}

static int load_norms(struct eagle3 *m, struct err *e) {
    struct load *l = &m->path.load;
    const int64_t dim = m->params.dim, wide = m->params.n_taps * m->params.target_dim;
    int rc = load_floats(l, "blk.0.attn_norm.weight", dim, 1, &m->token_norm, e);
    if (!rc)
        rc = load_floats(l, "blk.0.attn_norm_2.weight", dim, 1, &m->hidden_norm, e);
    if (!rc)
        rc = load_floats(l, "blk.0.ffn_norm.weight", dim, 1, &m->ffn_norm, e);
    if (!rc)
        rc = load_floats(l, "output_norm.weight", dim, 1, &m->out_norm, e);
    if (!rc && m->params.norm_before_fc)
        rc = load_floats(l, "enc.output_norm.weight", wide, 1, &m->taps_norm, e);
    m->path.head_norm = m->params.norm_output ? NULL : m->out_norm;
    return rc;
}

static int load_weights(struct eagle3 *m, const struct eagle3_options *o, struct err *e) {
    const struct eagle3_params *p = &m->params;
    struct load *l = &m->path.load;
    int rc = load_weight(l, "fc.weight", p->n_taps * p->target_dim, p->dim, &m->fc, e);
    if (!rc)
        rc = load_norms(m, e);
    if (!rc)
        rc = attention_load(&m->attention, &m->shape, l, 0, e);
    if (!rc)
        rc = mlp_load(&m->mlp, p->dim, p->ffn, l, 0, e);
    if (!rc)
        rc = load_embedding(m, e);
    if (!rc)
        rc = load_head(m, o, e);
    if (rc)
        return rc;
    m->path.pass_bytes = pass_bytes(m);
    return draft_file_all_used(&m->file, "EAGLE-3", "t2d", e); // t2d says which tokens d2t names
}

static int make_workspace(struct eagle3 *m, struct err *e) {
    struct path *d = &m->path;
    const struct eagle3_params *p = &m->params;
    struct load *l = &d->load;
    const int64_t wide = p->n_taps * p->target_dim;
    path_rows_of(d);
    int rc = load_buffer(l, d->n_rows * p->dim, &m->h, e);
    if (!rc)
        rc = load_buffer(l, d->n_rows * 2 * p->dim, &m->pair, e);
    if (!rc)
        rc = load_buffer(l, d->n_rows * wide, &m->gathered, e);
    if (!rc)
        rc = load_buffer(l, model_max_pass_rows(&d->target->options) * wide, &m->features, e);
    if (!rc)
        rc = load_act(l, d->n_rows, wide, &m->act_taps, e);
    if (!rc)
        rc = load_act(l, d->n_rows, 2 * p->dim, &m->act_pair, e);
    if (!rc)
        rc = load_act(l, d->draft_rows, p->ffn, &m->act_f, e);
    if (!rc)
        rc = attention_buffers_load(&m->attend, &m->shape, d->n_rows, l, e);
    return rc ? rc : path_workspace(d, e);
}

static int build(struct eagle3 *m, const char *path, const struct eagle3_options *o, bool dry,
                 struct err *e) {
    struct path *d = &m->path;
    int rc = draft_file_open(&m->file, path, e);
    if (!rc)
        rc = eagle3_read_params(&m->params, &m->file, d->target, e);
    if (rc)
        return rc;
    const struct eagle3_params *p = &m->params;
    d->dim = p->dim;
    d->eps = p->eps;
    d->load = (struct load){.x = d->x,
                            .find = eagle3_file_find,
                            .done = draft_file_done,
                            .check = draft_file_check,
                            .arg = &m->file,
                            .dry = dry};
    rc = make_shape(m, o, e);
    if (!rc)
        rc = load_weights(m, o, e);
    if (!rc)
        rc = make_workspace(m, e);
    path_limits(d, max_i64(2 * p->dim, p->n_taps * p->target_dim), p->n_heads, p->head_dim);
    if (!rc && !dry)
        rc = exec_reserve(d->x, &d->load.limits, e);
    return rc || dry ? rc : exec_status(d->x, e);
}

static int attach_to_target(struct eagle3 *m, struct err *e) {
    struct model_reader r = {.kind = &m->path.kind,
                             .layers = m->params.taps,
                             .n_layers = m->params.n_taps,
                             .features = m->features};
    return model_attach(m->path.target, &r, e);
}

int eagle3_load(struct eagle3 **out, struct model *target, const char *path,
                const struct eagle3_options *o, bool dry, struct err *e) {
    struct eagle3 *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a draft");
    int rc = path_init(&m->path, &eagle3_path_block, target, o->depth, e);
    if (!rc)
        rc = build(m, path, o, dry, e);
    if (!rc && !dry)
        rc = attach_to_target(m, e);
    if (rc) {
        eagle3_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

void eagle3_destroy(struct eagle3 *m) {
    if (!m)
        return;
    path_fini(&m->path);
    draft_file_close(&m->file);
    free(m);
}

const struct eagle3_params *eagle3_params_of(const struct eagle3 *m) {
    return &m->params;
}

struct path *eagle3_path(struct eagle3 *m) {
    return &m->path;
}
