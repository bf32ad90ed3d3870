// SPDX-License-Identifier: Apache-2.0
// A random model with a prediction block that is loaded, for the tests of such blocks.
#ifndef COPPICE_TESTS_UNIT_MTP_SCENE_H
#define COPPICE_TESTS_UNIT_MTP_SCENE_H

#include "models/draft/mtp/impl.h"
#include "ops/exec.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { LONG = 300, ROW = TINY_VOCAB };

// Kinds of targets: attention between recurrent layers, dense and with experts; attention only,
// with keys of heads and with latents; a block without a feed-forward part, and with an embedding
// and a head of its own.
enum kind { DENSE, EXPERTS, GLM, LATENT, BARE, OWN, KINDS };

static inline struct tiny_shape shape_of(enum kind k) {
    struct tiny_shape t = k == GLM      ? tiny_shape_form(TINY_FORM_GLM)
                          : k == LATENT ? tiny_shape_form(TINY_FORM_DEEPSEEK)
                                        : tiny_shape_default();
    if (k == EXPERTS)
        tiny_shape_experts(&t);
    t.nextn = 1;
    t.nextn_bare = k == BARE;
    t.nextn_own = k == OWN;
    t.seed = k == OWN ? 5 : 1; // 5: no norm of its own
    return t;
}

struct scene {
    struct tiny_rig r;
    struct mtp *m;
    int32_t tokens[LONG];
};

static inline void open_scene_as(struct scene *c, const struct tiny_shape *t, int max_rows,
                                 int tokens) {
    struct model_options o = model_options_default();
    o.codec_k = o.codec_v = KV_F32;
    o.max_rows = o.max_verify = max_rows;
    struct mtp_options mo = {.codec_k = KV_F32, .codec_v = KV_F32, .vocab = {.rows = tokens}};
    tiny_rig_open(&c->r, t, NULL, &o, "auto", 1);
    if (mtp_load(&c->m, c->r.m, DRAFT_OF_TARGET, &mo, false, &c->r.e))
        fail_msg("%s", c->r.e.text);
    tiny_rig_tokens(&c->r, 3, c->tokens, LONG);
}

static inline void open_scene(struct scene *c, enum kind k) {
    const struct tiny_shape t = shape_of(k);
    open_scene_as(c, &t, 160,
                  0); // pieces longer than what waits, and than what is absorbed at once
}

static inline void close_scene(struct scene *c) {
    mtp_destroy(c->m);
    tiny_rig_close(&c->r);
}

static inline void must(struct scene *c, int rc) {
    if (rc)
        fail_msg("%s", c->r.e.text);
}

static inline void fetch(struct scene *c, int64_t first, int64_t n, float *out) {
    for (int64_t i = 0; i < n; i++) {
        const float *row = path_logits(mtp_path(c->m), first + i, 1);
        assert_non_null(row);
        exec_ops(c->r.x)->download(c->r.x, out + i * ROW, row, ROW * sizeof *out);
    }
}

// A sequence with the first n tokens, in pieces of `chunk`.
static inline struct sequence *text(struct scene *c, int64_t n, int64_t chunk) {
    struct sequence *s = tiny_rig_sequence(&c->r);
    tiny_rig_prompt(&c->r, s, c->tokens, n, chunk, NULL, NULL);
    return s;
}

// Logits of a chain of rows with these tokens.
static inline void chain(struct scene *c, struct sequence *s, const int32_t *tokens, int n,
                         float *out) {
    must(c, path_begin(mtp_path(c->m), &s, 1, &c->r.e));
    assert_true(path_ready(mtp_path(c->m), 0));
    for (int i = 0; i < n; i++) {
        const struct path_row row = {0, i - 1, tokens[i]};
        must(c, path_rows(mtp_path(c->m), &row, 1, &c->r.e));
        fetch(c, 0, 1, out + i * ROW);
    }
}

static const int32_t guesses[] = {5, 11, 7, 250, 9, 30};

// The same, compared with a fresh sequence of the first n tokens.
static inline void drafts_as_fresh(struct scene *c, struct sequence *s, const char *what) {
    static float want[3 * ROW], got[3 * ROW];
    assert_memory_equal(sequence_tokens(s), c->tokens, (size_t)sequence_len(s) * sizeof(int32_t));
    struct sequence *fresh = text(c, sequence_len(s), 150);
    chain(c, fresh, guesses, 3, want);
    chain(c, s, guesses, 3, got);
    if (memcmp(want, got, sizeof want) != 0)
        fail_msg("%s: a sequence of %lld tokens drafts otherwise than a fresh one", what,
                 (long long)sequence_len(s));
    sequence_destroy(fresh);
}

#endif
