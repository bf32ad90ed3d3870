// SPDX-License-Identifier: Apache-2.0
// Loading, planning and describing a pair for callers of the public interface.
#include <stdlib.h>
#include <string.h>

#include "api/api.h"

enum { DEFAULT_BUDGET = 63 };

// `own` speaks for keys, or for values, alone; NULL leaves it to `both`.
static int kv_type(const char *own, const char *what, const char *both, enum kv_codec_id *out,
                   struct err *e) {
    if (own)
        return kv_codec_by_name(own, what, out, e);
    return both ? kv_codec_by_name(both, "kv_type", out, e) : 0;
}

static int check(const struct coppice_load_options *o, struct err *e) {
    if (!o->model)
        return err_set(e, ERR_USAGE, "no model is named; set the field model to a GGUF file");
    if (o->max_budget < 0 || o->max_budget > TREE_MAX_BUDGET)
        return err_set(e, ERR_USAGE, "max_budget is %d, not within 0 to %d", o->max_budget,
                       TREE_MAX_BUDGET);
    if (!(o->sparse_prefill >= 0 && o->sparse_prefill <= 1))
        return err_set(e, ERR_USAGE, "sparse_prefill is %g, not within 0 to 1", o->sparse_prefill);
    if (o->max_ctx < 0 || o->max_ctx > INT64_C(1) << 24 || o->memory_limit < 0 || o->threads < 0)
        return err_set(e, ERR_USAGE,
                       "max_ctx, memory_limit or threads is negative or too large; "
                       "0 means the default");
    return 0;
}

// The session's options of a caller's, checked.
static int translate(const struct coppice_load_options *from, struct session_options *o,
                     int *budget, struct err *e) {
    struct coppice_load_options in;
    int rc = api_take(&in, sizeof in, from, "coppice_load_options", e);
    if (!rc)
        rc = check(&in, e);
    *o = session_options_default();
    if (!rc)
        rc = kv_type(in.kv_type_k, "kv_type_k", in.kv_type, &o->target.codec_k, e);
    if (!rc)
        rc = kv_type(in.kv_type_v, "kv_type_v", in.kv_type, &o->target.codec_v, e);
    if (rc)
        return rc;
    if (in.sparse_prefill > 0)
        o->target.sparse =
            (struct sparse_rule){true, (float)in.sparse_prefill, SPARSE_SINKS, SPARSE_WINDOW};
    *budget = in.max_budget ? in.max_budget : DEFAULT_BUDGET;
    o->model = in.model;
    o->draft = in.draft;
    o->device = in.device ? in.device : o->device;
    o->cpu_level = in.cpu_level ? in.cpu_level : o->cpu_level;
    o->threads = in.threads;
    o->vram_limit = in.memory_limit;
    o->note = in.note;
    o->note_arg = in.note_arg;
    o->price_folder = in.price_folder;
    o->target.max_ctx = in.max_ctx;
    o->target.memory_limit = in.memory_limit;
    o->target.max_seqs = 1;
    o->target.max_verify = 1 + *budget;
    return 0;
}

int coppice_plan(const struct coppice_load_options *options, struct coppice_plan *out,
                 struct coppice_error *error) {
    struct err e = {0};
    struct session_options o;
    struct memory_plan p = {0};
    int budget, rc = translate(options, &o, &budget, &e);
    if (!rc)
        rc = session_measure(&o, &p, &e);
    struct coppice_plan plan = {.weights = p.weights,
                                .draft = p.draft,
                                .workspace = p.scratch,
                                .state = p.state,
                                .kv_per_1k = kv_needs_per_1k(&p.kv),
                                .total = plan_total(&p),
                                .available = p.available,
                                .max_ctx = p.context,
                                .trained_ctx = p.trained,
                                .kv_windows = kv_needs_windows(&p.kv, p.context, p.step)};
    if (!rc || rc == ERR_MEMORY)
        api_give(out, &plan, sizeof plan);
    return api_result(rc, &e, error);
}

int coppice_load(struct coppice_model **out, const struct coppice_load_options *options,
                 struct coppice_error *error) {
    struct err e = {0};
    struct session_options o;
    struct coppice_model *m = NULL;
    int budget, rc = translate(options, &o, &budget, &e);
    if (rc)
        return api_result(rc, &e, error);
    m = calloc(1, sizeof *m);
    if (m) {
        m->max_budget = budget;
        m->target = strdup(o.model);
        m->draft = o.draft ? strdup(o.draft) : NULL;
    }
    if (!m || !m->target || (o.draft && !m->draft)) {
        rc = err_set(&e, ERR_MEMORY, "no memory for a model's handle");
    } else {
        o.model = m->target;
        o.draft = m->draft;
        rc = session_open(&m->s, &o, &e);
    }
    if (rc)
        coppice_free(m);
    else
        *out = m;
    return api_result(rc, &e, error);
}

void coppice_free(struct coppice_model *m) {
    if (!m)
        return;
    session_close(m->s);
    free(m->target);
    free(m->draft);
    free(m);
}

void coppice_info(const struct coppice_model *m, struct coppice_info *out) {
    const struct model *model = session_model(m->s);
    const struct model_params *p = model_params_of(model);
    const struct tokenizer *t = session_tokenizer(m->s);
    struct coppice_info info = {.architecture = p->arch,
                                .device = exec_label(model_exec(model)),
                                .vocabulary = p->vocab,
                                .max_ctx = model_max_ctx(model),
                                .bos = t ? tokenizer_bos(t) : -1,
                                .eos = t ? tokenizer_eos(t) : -1,
                                .has_tokenizer = t != NULL,
                                .has_draft = session_draft(m->s) != NULL};
    api_give(out, &info, sizeof info);
}
