// SPDX-License-Identifier: Apache-2.0
// Loading, planning and freeing of models. A plan is a dry load: the same recipe runs, checks every
// name and shape, and only counts. The forward function is in forward.c.
#include "models/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/num.h"
#include "formats/quant/quant.h"
#include "models/model_impl.h"
#include "models/params.h"

static const struct model_desc *const archs[] = {
    &arch_qwen35,  &arch_qwen35moe, &arch_qwen3,  &arch_qwen3moe, &arch_qwen2,     &arch_llama,
    &arch_glm4moe, &arch_gemma3,    &arch_gemma4, &arch_gpt_oss,  &arch_deepseek2, &arch_laguna};

struct model_options model_options_default(void) {
    return (struct model_options){.codec_k = KV_F16, .codec_v = KV_F16};
}

static int find_arch(const struct gguf *g, const struct model_desc **out, struct err *e) {
    const char *s;
    size_t len;
    int rc = gguf_get_str(g, "general.architecture", &s, &len, e);
    if (rc)
        return rc;
    if (!s)
        return err_set(e, ERR_FORMAT, "the file names no architecture; it is not a model");
    char known[256] = "";
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++) {
        if (strlen(archs[i]->arch) == len && memcmp(archs[i]->arch, s, len) == 0) {
            *out = archs[i];
            return 0;
        }
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", archs[i]->arch);
    }
    if (memmem(s, len, "dflash", 6) || memmem(s, len, "eagle3", 6))
        return err_set(e, ERR_UNSUPPORTED,
                       "the file is a draft (general.architecture %.*s) and no model; give the "
                       "model with -m and this file with -d",
                       (int)(len < 64 ? len : 64), s);
    return err_set(e, ERR_UNSUPPORTED,
                   "architecture %.*s is not supported as a target; use a model of one of: %s",
                   (int)(len < 64 ? len : 64), s, known);
}

static int fill_options(struct model *m, const struct model_options *o, struct err *e) {
    m->options = *o;
    if (o->max_ctx < 0 || o->max_rows < 0 || o->max_verify < 0 || o->max_seqs < 0 ||
        o->max_logits < 0 || o->max_rows > 1 << 16 || o->max_verify > 1 << 12 ||
        o->max_seqs > 1 << 12)
        return err_set(e, ERR_USAGE, "context, row and sequence limits must be positive");
    struct sparse_options rule = {
        .alpha = o->sparse.alpha, .sinks = o->sparse.sinks, .window = o->sparse.window};
    int rc = o->sparse.on ? sparse_options_check(&rule, e) : 0;
    if (rc)
        return rc;
    if (o->max_ctx > MODEL_MAX_CTX)
        return err_set(e, ERR_USAGE,
                       "a context of %lld tokens is not possible; at most %d are, --max-ctx",
                       (long long)o->max_ctx, MODEL_MAX_CTX);
    if (!o->max_ctx)
        m->options.max_ctx = min_i64(m->params.context, MODEL_MAX_CTX);
    if (!o->max_verify)
        m->options.max_verify = 128;
    if (!o->max_rows)
        m->options.max_rows = 512;
    if (m->options.max_rows < m->options.max_verify)
        m->options.max_rows = m->options.max_verify;
    if (!o->max_seqs)
        m->options.max_seqs = 8;
    if (!o->max_logits)
        m->options.max_logits = m->options.max_verify < 128 ? m->options.max_verify : 128;
    if (m->options.max_logits > m->options.max_rows)
        m->options.max_logits = m->options.max_rows;
    return ranks_init(&m->ranks, o->ranks ? o->ranks : 1, 0, e);
}

static const struct tensor *find_gguf(const void *arg, const char *name) {
    return gguf_tensor(arg, name);
}

static int check_gguf(const void *g, struct err *e) {
    return gguf_check(g, e);
}

static void done_gguf(const void *arg, const struct tensor *t) {
    gguf_release(arg, t);
}

// Whether pages of a group may go to host memory.
static bool pages_move(const struct model *m, const struct model_group *g) {
    return m->options.pages && m->options.pages->host && !g->window;
}

static struct kv_stream *make_stream(struct model *m) {
    struct arena *a = &m->pass.arena;
    struct kv_stream *s = arena_array(a, 1, sizeof *s);
    const size_t seqs = (size_t)m->options.max_seqs;
    if (!s)
        return NULL;
    *s = (struct kv_stream){.room = ceil_div(m->options.max_ctx, KV_PAGE)};
    s->views = arena_array(a, seqs, sizeof *s->views);
    s->tables = arena_array(a, seqs * (size_t)s->room, sizeof *s->tables);
    s->n_pages = arena_array(a, seqs, sizeof *s->n_pages);
    return s->views && s->tables && s->n_pages ? s : NULL;
}

// Host arrays of the pass record.
static int record_init(struct model *m, struct err *e) {
    struct pass_record *r = &m->pass;
    size_t rows = (size_t)model_max_rows(m), seqs = (size_t)m->options.max_seqs;
    int32_t **ints[] = {&r->token,    &r->parent, &r->seq,  &r->logit_row,
                        &r->identity, &r->place,  &r->tree, &r->path};
    bool ok = true;
    r->view_pages = (size_t)view_most_pages(&m->options.view, m->options.max_ctx);
    for (size_t i = 0; i < sizeof ints / sizeof *ints; i++)
        ok = (*ints[i] = arena_array(&r->arena, rows, sizeof **ints[i])) && ok;
    for (int i = 0; i < m->n_groups; i++) {
        struct model_group *g = &m->groups[i];
        g->store = arena_array(&r->arena, rows, sizeof *g->store);
        g->target = arena_array(&r->arena, rows, sizeof *g->target);
        g->source = arena_array(&r->arena, rows, sizeof *g->source);
        g->views = arena_array(&r->arena, seqs, sizeof *g->views);
        ok = ok && g->store && g->target && g->source && g->views;
        if (r->view_pages && !g->window)
            ok = (g->seen = arena_array(&r->arena, seqs * r->view_pages, sizeof *g->seen)) && ok;
        if (pages_move(m, g))
            ok = (g->stream = make_stream(m)) && ok;
    }
    if (r->view_pages)
        ok = (r->seen_pos = arena_array(&r->arena, rows, sizeof *r->seen_pos)) && ok;
    r->runs = arena_array(&r->arena, seqs, sizeof *r->runs);
    r->slices = arena_array(&r->arena, seqs, sizeof *r->slices);
    r->commits = arena_array(&r->arena, seqs, sizeof *r->commits);
    r->chain = arena_array(&r->arena, seqs, sizeof *r->chain);
    r->len = arena_array(&r->arena, seqs, sizeof *r->len);
    r->len_now = arena_array(&r->arena, seqs, sizeof *r->len_now);
    r->sparse_end = arena_array(&r->arena, seqs, sizeof *r->sparse_end);
    r->states = arena_array(&r->arena, seqs, sizeof *r->states);
    r->version = arena_array(&r->arena, seqs, sizeof *r->version);
    if (!ok || !r->runs || !r->slices || !r->commits || !r->chain || !r->len || !r->len_now ||
        !r->states || !r->version || !r->sparse_end)
        return err_set(e, ERR_MEMORY, "no memory for a pass of %zu rows", rows);
    m->ws.choice.end = r->sparse_end;
    for (size_t i = 0; i < rows; i++)
        r->identity[i] = (int32_t)i;
    return 0;
}

// Bytes of a layer's keys and values of n positions as fp16, where a codec with scales stores them.
static int64_t fp16_bytes(const struct model_group *g, int64_t n) {
    const struct kv_shape *s = &g->layout.s;
    if (g->window || s->v_in_k || (!g->layout.k.scale_row && !g->layout.v.scale_row))
        return 0;
    return round_up(n, KV_PAGE) * s->n_heads * (s->dk + s->dv) * 2;
}

// What passes need of ops, besides what the weights and activations determine.
static void set_limits(struct model *m) {
    const struct model_params *p = &m->params;
    struct exec_limits l = {.rows = m->options.max_rows,
                            .seqs = m->options.max_seqs,
                            .context = m->options.max_ctx,
                            .tree = m->options.max_verify,
                            .vocab = p->vocab,
                            .n_heads = p->n_full ? max_i32(p->n_heads, p->window.n_heads) : 0,
                            .head_dim = p->head_dim};
    if (l.tree < GDN_BLOCK)
        l.tree = GDN_BLOCK;
    if (l.rows < l.tree)
        l.rows = l.tree;
    if (p->n_full < p->n_layers)
        l.gdn = p->gdn;
    for (int i = 0; i < m->n_groups; i++)
        l.fp16_kv = max_i64(l.fp16_kv, fp16_bytes(&m->groups[i], l.context));
    l.fp16_kv = min_i64(l.fp16_kv, m->options.fp16_kv);
    exec_limits_join(&m->load.limits, &l);
}

// Experts on the host's CPU, once it is known how many layers have some.
static int host_init(struct model *m, bool dry, struct err *e) {
    const struct moe_shape *s = &m->params.moe;
    const int n = m->options.cpu_experts, all = m->load.expert_layers;
    if (!all)
        return err_set(e, ERR_UNSUPPORTED,
                       "--cpu-experts is for models of experts, and this model has none; leave it "
                       "out");
    if (n < 0 || n > all)
        return err_set(
            e, ERR_USAGE,
            "--cpu-experts %d is not possible: %d layers of this model have experts; use "
            "at most %d",
            n, all, all);
    if (dry)
        return 0;
    snprintf(m->kind, sizeof m->kind, "%.120s, experts of %d layers on %s", exec_kind(m->x), n,
             exec_kind(m->options.cpu));
    return expert_host_create(&m->host, m->x, m->options.cpu,
                              &(struct expert_host_shape){.rows = model_max_rows(m),
                                                          .dim = m->params.dim,
                                                          .ffn = s->ffn,
                                                          .experts = s->experts,
                                                          .used = s->used},
                              e);
}

// The whole recipe, dry or real.
static int build_model(struct model *m, struct exec *x, const struct gguf *g,
                       const struct model_options *o, bool dry, struct err *e) {
    m->x = x;
    m->load = (struct load){.x = x,
                            .find = find_gguf,
                            .done = done_gguf,
                            .check = check_gguf,
                            .arg = g,
                            .dry = dry,
                            .host = o->cpu,
                            .host_layers = o->cpu_experts};
    if (!dry && exec_is_device(x))
        gguf_stream(g);
    m->params.rope_options = o->rope;
    int rc = find_arch(g, &m->desc, e);
    if (!rc)
        rc = params_refuse_sidecar(g, e);
    if (!rc)
        rc = m->desc->params(m, g, e);
    if (!rc)
        rc = params_refuse_relatives(&m->params, g, e);
    if (!rc)
        rc = fill_options(m, o, e);
    if (!rc && !dry && o->experts.n)
        rc = expert_store_create(&m->load.store, x, &o->experts, o->lending.own, e);
    if (!rc)
        rc = m->desc->load(m, g, e);
    if (!rc)
        rc = params_refuse_uneven(&m->params, g, e);
    if (!rc && o->cpu_experts)
        rc = host_init(m, dry, e);
    if (!rc && !dry)
        rc = gguf_check(g, e);
    if (!rc && m->load.store && !dry)
        rc = expert_store_finish(m->load.store, o->uses, e);
    if (rc)
        return rc;
    rc = model_workspace_init(m, dry, e);
    set_limits(m);
    if (!rc && !dry)
        rc = exec_reserve(x, &m->load.limits, e);
    if (!rc && !dry)
        rc = record_init(m, e);
    if (!rc && !dry)
        rc = model_workspace_lend(m, e);
    for (int i = 0; !rc && !dry && i < m->n_groups; i++) {
        struct model_group *at = &m->groups[i];
        rc = kv_pool_create(&at->pool, x, &at->layout, 0, e);
        if (!rc)
            kv_pool_join(at->pool, o->pages);
        if (!rc && pages_move(m, at))
            rc = kv_pool_use_host(at->pool, o->pages->host, e);
    }
    return rc || dry ? rc : exec_status(x, e);
}

static void plan_of(struct model_plan *out, const struct model *m) {
    const struct model_params *p = &m->params;
    int n_recurrent = p->n_layers - p->n_full;
    *out = (struct model_plan){.weights = m->load.weight_bytes,
                               .scratch = m->load.buffer_bytes,
                               .limits = m->load.limits,
                               .rows = m->load.rows_bytes,
                               .room = m->load.rows_bytes + m->load.rows_wide,
                               .experts = m->load.classes,
                               .expert_bytes = m->load.expert_bytes,
                               .expert_layers = m->load.expert_layers,
                               .host_bytes = m->load.host_bytes};
    for (int i = 0; i < m->n_groups; i++) {
        const struct model_group *g = &m->groups[i];
        kv_needs_add(&out->kv, &g->layout, g->window, 0);
        out->kv.of[i].staged = g->window ? 0 : kv_host_staged(&g->layout);
    }
    out->step = model_max_pass_rows(&m->options);
    out->recurrent = n_recurrent ? recurrent_bytes(&p->gdn, n_recurrent) : 0;
    out->checkpoint = n_recurrent ? recurrent_save_bytes(&p->gdn, n_recurrent) : 0;
}

int model_dry(struct model **out, const struct exec *x, const struct gguf *g,
              const struct model_options *o, struct err *e) {
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a model");
    // A dry load only gets sizes from the backend.
    int rc = build_model(m, (struct exec *)x, g, o, true, e);
    if (rc) {
        model_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

int model_plan(struct model_plan *out, struct model_params *params, const struct exec *x,
               const struct gguf *g, const struct model_options *o, struct err *e) {
    struct model *m;
    int rc = model_dry(&m, x, g, o, e);
    if (rc)
        return rc;
    plan_of(out, m);
    if (params)
        *params = m->params;
    model_destroy(m);
    return 0;
}

static int check_limit(const struct model_plan *plan, const struct model_params *of,
                       const struct model_options *o, struct err *e) {
    int64_t ctx = o->max_ctx ? o->max_ctx : of->context;
    int64_t kv = kv_needs_max(&plan->kv, ctx, plan->step);
    int64_t need = plan->weights + plan->scratch + plan->recurrent + kv;
    if (o->memory_limit <= 0 || need <= o->memory_limit)
        return 0;
    return err_set(e, ERR_MEMORY,
                   "the model needs %lld MiB (weights %lld, workspace %lld, %lld tokens of context "
                   "%lld) but the limit is %lld MiB; use a smaller file or a shorter context",
                   (long long)(need >> 20), (long long)(plan->weights >> 20),
                   (long long)(plan->scratch >> 20), (long long)ctx,
                   (long long)((kv + plan->recurrent) >> 20), (long long)(o->memory_limit >> 20));
}

// What is known of a model before anything is made of it.
static int check_plan(struct exec *x, const struct gguf *g, const struct model_options *o,
                      struct err *e) {
    struct model_plan plan;
    struct model_params of;
    if (o->memory_limit <= 0 && !exec_is_device(x))
        return 0;
    int rc = model_plan(&plan, &of, x, g, o, e);
    if (!rc)
        rc = check_limit(&plan, &of, o, e);
    if (!rc) // experts that come and go lie in their slots
        load_make_room(x, plan.weights - (o->experts.n ? plan.expert_bytes : 0));
    return rc;
}

int model_load(struct model **out, struct exec *x, const struct gguf *g,
               const struct model_options *o, struct err *e) {
    int rc = check_plan(x, g, o, e);
    if (rc)
        return rc;
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for a model");
    rc = build_model(m, x, g, o, false, e);
    if (rc) {
        model_destroy(m);
        return rc;
    }
    *out = m;
    return 0;
}

void model_destroy(struct model *m) {
    if (!m)
        return;
    load_fini(&m->load);
    expert_host_destroy(m->host);
    expert_store_destroy(m->load.store);
    for (int i = 0; i < m->n_groups; i++)
        kv_pool_destroy(m->groups[i].pool);
    arena_fini(&m->pass.arena);
    model_pages_fini(m);
    free(m->ws.verify);
    free(m->layers);
    free(m);
}

const struct model_params *model_params_of(const struct model *m) {
    return &m->params;
}

struct exec *model_exec(const struct model *m) {
    return m->x;
}

const char *model_kind(const struct model *m) {
    return m->kind[0] ? m->kind : exec_kind(m->x);
}

struct expert_store *model_experts(const struct model *m) {
    return m->load.store;
}

int64_t model_max_ctx(const struct model *m) {
    return m->options.max_ctx;
}

int model_max_verify(const struct model *m) {
    return m->options.max_verify;
}

int model_max_seqs(const struct model *m) {
    return m->options.max_seqs;
}

struct sequence_spec model_spec(const struct model *m) {
    struct sequence_spec s = {.x = m->x,
                              .n_groups = m->n_groups,
                              .shape = m->params.gdn,
                              .n_recurrent = m->params.n_layers - m->params.n_full,
                              .n_attached = m->n_readers,
                              .sparse = m->options.sparse,
                              .view = m->options.view,
                              .max_len = m->options.max_ctx};
    for (int i = 0; i < m->n_groups; i++)
        s.groups[i] = (struct seq_group){m->groups[i].pool, m->groups[i].window};
    for (int i = 0; i < m->n_readers; i++)
        s.attached[i] = m->readers[i].kind;
    return s;
}

int model_sequence(const struct model *m, struct sequence **out, struct err *e) {
    struct sequence_spec s = model_spec(m);
    return sequence_create(out, &s, e);
}

int model_check_reader(const struct model *m, const char *name, struct err *e) {
    for (int i = 0; i < m->n_readers; i++)
        if (strcmp(m->readers[i].kind->name, name) == 0)
            return err_set(
                e, ERR_STATE,
                "the target has a %s already and takes one of a kind; leave one of them out", name);
    if (m->n_readers == SEQ_ATTACHED)
        return err_set(e, ERR_LIMIT, "a target takes at most %d that read along", SEQ_ATTACHED);
    return 0;
}

static int check_taps(const struct model *m, const struct model_reader *r, struct err *e) {
    bool normed = r->n_layers == 1 && r->layers[0] == MODEL_TAP_NORMED;
    for (int i = 0; !normed && i < r->n_layers; i++)
        if (r->layers[i] < 0 || r->layers[i] >= m->params.n_layers)
            return err_set(
                e, ERR_USAGE,
                "the %s reads the output of layer %d; the target has layers 0 to %d, and "
                "its hidden state after the output norm is read alone",
                r->kind->name, (int)r->layers[i], m->params.n_layers - 1);
    return exec_takes(m->x, &(struct ops_needs){.norm = normed}, e);
}

int model_attach(struct model *m, const struct model_reader *r, struct err *e) {
    int rc = model_check_reader(m, r->kind->name, e);
    if (!rc)
        rc = check_taps(m, r, e);
    if (rc)
        return rc;
    m->readers[m->n_readers++] = *r;
    return 0;
}

void model_detach(struct model *m, const struct attachment_kind *kind) {
    int n = 0;
    for (int i = 0; i < m->n_readers; i++)
        if (m->readers[i].kind != kind)
            m->readers[n++] = m->readers[i];
    m->n_readers = n;
}
