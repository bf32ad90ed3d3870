// SPDX-License-Identifier: Apache-2.0
// Plain glue; the folder goes away with the rig.
#include "support/tiny_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "unit/test.h"

static void must(const struct tiny_rig *r, int code) {
    if (code)
        fail_msg("%s", r->e.text);
}

void tiny_rig_open(struct tiny_rig *r, const struct tiny_shape *shape,
                   const struct tiny_draft_shape *draft, const struct model_options *o,
                   const char *level, int threads) {
    *r = (struct tiny_rig){.shape = *shape};
    struct model_options options = o ? *o : model_options_default();
    if (!o)
        options.codec_k = options.codec_v = KV_F32;
    snprintf(r->dir, sizeof r->dir, "/tmp/coppice-tiny-XXXXXX");
    assert_non_null(mkdtemp(r->dir));
    snprintf(r->target_path, sizeof r->target_path, "%s/target.gguf", r->dir);
    snprintf(r->draft_path, sizeof r->draft_path, "%s/draft.gguf", r->dir);
    must(r, tiny_target_write(shape, r->target_path, &r->e));
    must(r, exec_create_cpu(&r->x, level, threads, &r->e));
    must(r, gguf_open(&r->g, r->target_path, &r->e));
    must(r, model_load(&r->m, r->x, r->g, &options, &r->e));
    must(r, forest_init(&r->f, model_max_rows(r->m), &r->e));
    if (!draft)
        return;
    struct dflash_options od = dflash_options_default();
    od.codec_k = options.codec_k;
    od.codec_v = options.codec_v;
    r->draft_shape = *draft;
    must(r, tiny_draft_write(shape, draft, r->draft_path, &r->e));
    must(r, dflash_load(&r->d, r->m, r->draft_path, &od, &r->e));
}

void tiny_rig_close(struct tiny_rig *r) {
    forest_fini(&r->f);
    dflash_destroy(r->d);
    model_destroy(r->m);
    gguf_close(r->g);
    exec_destroy(r->x);
    unlink(r->target_path);
    unlink(r->draft_path);
    rmdir(r->dir);
}

struct sequence *tiny_rig_sequence(struct tiny_rig *r) {
    struct sequence *s = NULL;
    must(r, model_sequence(r->m, &s, &r->e));
    return s;
}

static void fetch(struct tiny_rig *r, const float *device, float *host) {
    assert_non_null(device);
    exec_ops(r->x)->download(r->x, host, device,
                             (size_t)model_params_of(r->m)->vocab * sizeof(float));
}

void tiny_rig_logits(struct tiny_rig *r, int64_t first, int64_t n, float *host) {
    for (int64_t i = 0; i < n; i++)
        fetch(r, model_logits_at(r->m, first + i), host + i * model_params_of(r->m)->vocab);
}

void tiny_rig_draft_logits(struct tiny_rig *r, int64_t first, int64_t n, float *host) {
    for (int64_t i = 0; i < n; i++)
        fetch(r, dflash_logits(r->d, first + i, 1), host + i * model_params_of(r->m)->vocab);
}

void tiny_rig_prompt(struct tiny_rig *r, struct sequence *s, const int32_t *tokens, int64_t n,
                     int64_t chunk, float *all, float *last) {
    int64_t vocab = model_params_of(r->m)->vocab;
    for (int64_t at = 0; at < n; at += chunk) {
        int64_t part = n - at < chunk ? n - at : chunk;
        bool want = last && at + part == n;
        forest_reset(&r->f);
        assert_true(forest_chain(&r->f, 0, sequence_len(s), tokens + at, part, want) >= 0);
        for (int64_t i = 0; all && i < part; i++)
            r->f.logits_requested[i] = 1;
        must(r, model_forward(r->m, &r->f, &s, 1, &r->e));
        if (all)
            tiny_rig_logits(r, 0, part, all + at * vocab);
        if (want)
            tiny_rig_logits(r, all ? part - 1 : 0, 1, last);
    }
}

struct tiny_answer tiny_rig_ask(struct tiny_rig *r, struct sequence *s) {
    struct tiny_answer a;
    int32_t next = 5;
    must(r, dflash_draft(r->d, &s, &next, 1, &r->e));
    tiny_rig_draft_logits(r, 0, 1, a.draft);
    tiny_rig_prompt(r, s, &next, 1, 1, NULL, a.target);
    must(r, exec_status(r->x, &r->e));
    return a;
}

void tiny_rig_tokens(const struct tiny_rig *r, uint64_t seed, int32_t *tokens, int64_t n) {
    struct rng g = {rng_mix(seed)};
    for (int64_t i = 0; i < n; i++)
        tokens[i] = (int32_t)rng_below(&g, (uint32_t)r->shape.vocab);
}

void tiny_rig_tree(struct tiny_rig *r, const struct sequence *s, uint64_t seed, int n, int depth) {
    struct rng g = {rng_mix(seed + 77)};
    uint32_t vocab = (uint32_t)r->shape.vocab;
    forest_reset(&r->f);
    forest_root(&r->f, 0, sequence_len(s), (int32_t)rng_below(&g, vocab), true);
    while (r->f.n < n) {
        // Mostly deepen a recent row, so that long paths occur.
        int64_t back = (int64_t)rng_below(&g, (uint32_t)(r->f.n < 4 ? r->f.n : 4));
        int64_t parent =
            rng_below(&g, 4) ? r->f.n - 1 - back : (int64_t)rng_below(&g, (uint32_t)r->f.n);
        if (r->f.pos[parent] - sequence_len(s) >= depth)
            parent = 0;
        forest_add(&r->f, (int32_t)parent, (int32_t)rng_below(&g, vocab), true);
    }
}
