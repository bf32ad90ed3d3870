// SPDX-License-Identifier: Apache-2.0
// Prompt compression for callers of the public interface.
#include <stdlib.h>
#include <string.h>

#include "api/api.h"
#include "compress/compress.h"
#include "coppice_compress.h"
#include "engine/session/runtime.h"

struct coppice_compressor {
    struct runtime *runtime;
    struct compressor *c;
    struct coppice_span *spans; // of the last result
};

static int open_scorer(struct coppice_compressor *c, const struct coppice_compressor_options *o,
                       struct err *e) {
    const struct device_options d = {
        .name = o->device, .threads = o->threads, .cuda_path = CUDA_PATH_AUTO};
    struct score_options s = score_options_default();
    struct runtime_device *device;
    if (!o->scorer)
        return err_set(e, ERR_USAGE, "no scorer is named; set the field scorer to a GGUF file");
    s.layers = o->layers;
    s.last = o->score_layers;
    s.dense = o->dense != 0;
    s.keep = o->memory;
    int rc = runtime_create(&c->runtime, e);
    if (!rc)
        rc = runtime_device(c->runtime, &d, &device, e);
    return rc ? rc : compressor_open(&c->c, runtime_exec(device), o->scorer, &s, e);
}

int coppice_compressor_open(struct coppice_compressor **out,
                            const struct coppice_compressor_options *options,
                            struct coppice_error *error) {
    struct err e = {0};
    struct coppice_compressor_options o;
    struct coppice_compressor *c = NULL;
    *out = NULL;
    int rc = api_take(&o, sizeof o, options, "coppice_compressor_options", &e);
    if (!rc && !(c = calloc(1, sizeof *c)))
        rc = err_set(&e, ERR_MEMORY, "no memory for a compressor");
    if (!rc)
        rc = open_scorer(c, &o, &e);
    if (rc)
        coppice_compressor_close(c);
    else
        *out = c;
    return api_result(rc, &e, error);
}

void coppice_compressor_close(struct coppice_compressor *c) {
    if (!c)
        return;
    compressor_close(c->c);
    runtime_destroy(c->runtime);
    free(c->spans);
    free(c);
}

static int options_of(const struct coppice_compress_options *from, struct compress_options *to,
                      struct err *e) {
    struct coppice_compress_options o = {0};
    struct select_options *s = &to->select;
    *to = compress_options_default();
    int rc = from ? api_take(&o, sizeof o, from, "coppice_compress_options", e) : 0;
    if (rc)
        return rc;
    if ((o.keep != 0) + (o.mass != 0) + (o.curve != NULL) > 1)
        return err_set(e, ERR_USAGE, "keep, curve and mass each say how much; set one of them");
    s->mass = o.mass != 0 ? o.mass : s->mass;
    s->least = o.least != 0 ? o.least : s->least;
    s->most = o.most != 0 ? o.most : s->most;
    s->anchors = !o.no_anchors;
    to->continued = (enum compress_continued)o.continued;
    if (o.keep != 0) {
        s->budget = SELECT_RATIO;
        s->keep = o.keep;
    }
    rc = o.curve ? select_curve_read(s, o.curve, strlen(o.curve), e) : 0;
    return rc ? rc : compress_options_check(to, e);
}

// Texts as the compressor takes them, each a part; to be freed.
static int conversation_of(const struct coppice_text *texts, int64_t n,
                           struct compress_conversation *v, struct err *e) {
    if (n < 0 || n > INT32_MAX || (n && !texts))
        return err_set(e, ERR_USAGE, "there are no %lld messages", (long long)n);
    struct compress_message *m = calloc((size_t)n + 1, sizeof *m + sizeof(struct compress_part));
    if (!m)
        return err_set(e, ERR_MEMORY, "no memory for %lld messages", (long long)n);
    struct compress_part *parts = (struct compress_part *)(m + n + 1);
    *v = (struct compress_conversation){m, n};
    for (int64_t i = 0; i < n; i++) {
        if (!texts[i].role || (!texts[i].text && texts[i].bytes))
            return err_set(e, ERR_USAGE, "message %lld has no role or no text", (long long)i + 1);
        parts[i] = (struct compress_part){texts[i].text, texts[i].bytes};
        m[i] = (struct compress_message){texts[i].role, &parts[i], 1};
    }
    return 0;
}

static int give_spans(struct coppice_compressor *c, const struct compress_result *r,
                      struct coppice_compression *out, struct err *e) {
    struct coppice_span *spans = calloc((size_t)r->n_spans + 1, sizeof *spans);
    if (!spans)
        return err_set(e, ERR_MEMORY, "no memory for %lld pieces", (long long)r->n_spans);
    for (int64_t i = 0; i < r->n_spans; i++)
        spans[i] = (struct coppice_span){r->spans[i].message, r->spans[i].begin, r->spans[i].end};
    free(c->spans);
    c->spans = spans;
    const struct coppice_compression made = {
        .spans = spans,
        .n_spans = r->n_spans,
        .from = r->from,
        .to = r->to,
        .ms_score = r->ms_score,
        .ms_others = r->ms_encode + r->ms_select,
        .reason = r->reason,
    };
    api_give(out, &made, sizeof made);
    return 0;
}

int coppice_compress(struct coppice_compressor *c, const struct coppice_text *messages, int64_t n,
                     const struct coppice_compress_options *options,
                     struct coppice_compression *out, struct coppice_error *error) {
    struct err e = {0};
    struct compress_options o;
    struct compress_conversation v = {0};
    struct compress_result r = {0};
    int rc = options_of(options, &o, &e);
    if (!rc)
        rc = conversation_of(messages, n, &v, &e);
    if (!rc)
        rc = compress_messages(c->c, &v, &o, &r, &e);
    if (!rc)
        rc = give_spans(c, &r, out, &e);
    compress_result_fini(&r);
    free((void *)v.messages);
    return api_result(rc, &e, error);
}
