// SPDX-License-Identifier: Apache-2.0
// The DFlash draft against an independent transcription: marginals of the first block after
// contexts below and above the window, for full, sliding and mixed layers, from the authors'
// safetensors and from three GGUF dialects, which must agree to the bit; and the same marginals
// when the draft's context grew by steps of many sizes, by a commit, or went back and on. Of
// DFlash2 and DSpark also what is added for the token before, of the best candidates.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/quant/quant.h"
#include "golden/dialects.h"
#include "golden/rig.h"
#include "models/draft/dflash/dflash.h"
#include "unit/test.h"

static const double TOLERANCE = 1e-4;

struct bench {
    struct rig r;
    int64_t per;  // values of one block: guesses * tokens of the head
    float *first; // [n_index][per] logits from the safetensors
};

static void check(int rc, const char *what, const struct err *e) {
    if (rc != 0)
        fail_msg("%s: %s (code %d)", what, e->text, rc);
}

static void draft_block(struct bench *b, struct dflash *d, struct sequence *s, int32_t anchor,
                        float *logits) {
    struct err e = {0};
    int64_t len = sequence_len(s), n = golden_rows_per_index(&b->r.g);
    check(dflash_draft(d, &s, &anchor, 1, &e), "dflash_draft", &e);
    assert_int_equal(sequence_len(s), len);
    exec_ops(b->r.x)->download(b->r.x, logits, dflash_logits(d, 0, n),
                               (size_t)b->per * sizeof *logits);
}

// Compares each row's log-probabilities with the golden ones of context i.
static void compare(const struct bench *b, int i, const float *logits, const char *way) {
    const struct golden *g = &b->r.g;
    int64_t v = g->columns;
    double worst = 0;
    float *row = malloc((size_t)v * sizeof *row);
    assert_non_null(row);
    for (int k = 0; k < golden_rows_per_index(g); k++) {
        memcpy(row, logits + k * v, (size_t)v * sizeof *row);
        golden_log_softmax(row, v);
        double e = golden_error(row, g->rows + i * b->per + k * v, v);
        if (!(e <= TOLERANCE))
            fail_msg("%s, context %d, row %d: relative error %.2e", way, g->index[i], k + 1, e);
        worst = e > worst ? e : worst;
    }
    printf("%-22s context %2d worst relative error %.2e\n", way, g->index[i], worst);
    free(row);
}

// The candidates' log-probabilities after each of the row before, as far as they sum to 1 there,
// against the golden ones of context i. The draft has just been run.
static void compare_pairs(struct bench *b, struct dflash *d, int i, const char *way) {
    const struct golden *g = &b->r.g;
    int n = (int)golden_rows_per_index(g), k = g->top;
    int32_t *ids = calloc((size_t)(n * k), sizeof *ids);
    float *logp = calloc((size_t)(n * k), sizeof *logp), line[GOLDEN_MAX_TOP];
    struct err e = {0};
    double worst = 0;
    assert_true(ids && logp && k <= GOLDEN_MAX_TOP);
    struct topk_args top = {
        .logits = dflash_logits(d, 0, n), .n = n, .k = k, .ids = ids, .logp = logp};
    draft_head_topk(dflash_head(d), b->r.x, &top);
    const struct dflash_selection s = {
        .depth = n, .k = k, .anchor = g->anchors[i], .ids = ids, .logp = logp};
    check(dflash_select(d, &s, &e), "dflash_select", &e);
    assert_memory_equal(ids, g->candidates + i * n * k, (size_t)(n * k) * sizeof *ids);
    for (int at = 0; at < n * k; at++) {
        int row = at / k;
        memcpy(line, logp, (size_t)k * sizeof *line);
        if (row)
            dflash_select_line(d, &s, row, at % k, line);
        golden_log_softmax(line, k);
        double error = golden_error(line, g->pairs + ((int64_t)i * n * k + at) * k, k);
        if (!(error <= TOLERANCE))
            fail_msg("%s, context %d, row %d after candidate %d: relative error %.2e", way,
                     g->index[i], row + 1, at % k, error);
        worst = error > worst ? error : worst;
    }
    printf("%-22s context %2d worst relative error %.2e, selector\n", way, g->index[i], worst);
    free(ids);
    free(logp);
}

// Each context in a sequence of its own.
static void fresh_contexts(struct bench *b, struct dflash *d, float *all, const char *way) {
    const struct golden *g = &b->r.g;
    for (int i = 0; i < g->n_index; i++) {
        struct sequence *s = rig_sequence(&b->r);
        rig_prompt(&b->r, s, 0, g->index[i], NULL);
        draft_block(b, d, s, g->anchors[i], all + i * b->per);
        compare(b, i, all + i * b->per, way);
        if (g->top)
            compare_pairs(b, d, i, way);
        sequence_destroy(s);
    }
}

// One sequence that grows by 1, 2, ... tokens with a draft after every step.
static void growing_context(struct bench *b, struct dflash *d) {
    const struct golden *g = &b->r.g;
    struct sequence *s = rig_sequence(&b->r);
    float *logits = malloc((size_t)b->per * sizeof *logits);
    assert_non_null(logits);
    int at = 0, step = 1;
    for (int i = 0; i < g->n_index; i++) {
        while (at < g->index[i]) {
            int to = at + step < g->index[i] ? at + step : g->index[i];
            rig_prompt(&b->r, s, at, to, NULL);
            at = to;
            step = 1 + step * 5 % 17;
            if (at < g->index[i])
                draft_block(b, d, s, g->ids[at], logits);
        }
        draft_block(b, d, s, g->anchors[i], logits);
        compare(b, i, logits, "growing context");
    }
    free(logits);
    sequence_destroy(s);
}

// The draft keeps no trace of guesses: after a verified tree of which two tokens are kept.
static void after_commit(struct bench *b, struct dflash *d) {
    struct rig *r = &b->r;
    const struct golden *g = &r->g;
    int last = g->n_index - 1, at = g->index[last] - 2;
    struct err e = {0};
    struct sequence *s = rig_sequence(r);
    float *logits = malloc((size_t)b->per * sizeof *logits);
    assert_non_null(logits);
    rig_prompt(r, s, 0, at, NULL);
    draft_block(b, d, s, g->ids[at], logits);
    forest_reset(&r->f);
    int32_t path[2];
    path[0] = forest_root(&r->f, 0, at, g->ids[at], true);
    (void)forest_add(&r->f, path[0], (g->ids[at + 1] + 1) % g->target.vocab, true);
    path[1] = forest_add(&r->f, path[0], g->ids[at + 1], true);
    (void)forest_add(&r->f, path[1], 7, true);
    check(model_forward(r->m, &r->f, &s, 1, &e), "model_forward", &e);
    check(model_commit(r->m, &s, &(struct model_path){0, path, 2}, 1, &e), "model_commit", &e);
    draft_block(b, d, s, g->anchors[last], logits);
    compare(b, last, logits, "after a commit");
    free(logits);
    sequence_destroy(s);
}

// Other tokens up to position len, then back to h, where the shared part of the ids ends. c: NULL,
// or gets a checkpoint made before the way back.
static void cut_back(struct bench *b, struct dflash *d, struct sequence *s, int len, int h,
                     struct checkpoint **c) {
    struct err e = {0};
    int64_t kept = -1;
    float *logits = malloc((size_t)b->per * sizeof *logits);
    assert_non_null(logits);
    int at = (int)sequence_len(s);
    rig_shift_ids(&b->r, h, 1);
    rig_prompt(&b->r, s, at, len, NULL);
    if (d)
        draft_block(b, d, s, 9, logits);
    rig_shift_ids(&b->r, h, -1);
    if (c)
        check(sequence_checkpoint(s, c, &e), "sequence_checkpoint", &e);
    check(sequence_truncate(s, h, &kept, &e), "sequence_truncate", &e);
    assert_int_equal(kept, h);
    free(logits);
}

// The draft's state goes back with the sequence: by truncation, and into a checkpoint that was
// made before other tokens came, whether the draft had read the context or not.
static void after_going_back(struct bench *b, struct dflash *d, bool drafted) {
    struct rig *r = &b->r;
    const struct golden *g = &r->g;
    int last = g->n_index - 1, n = g->index[last], h = n / 32 * 32;
    struct err e = {0};
    struct sequence *s = rig_sequence(r);
    struct checkpoint *c = NULL;
    int64_t kept = -1;
    float *logits = malloc((size_t)b->per * sizeof *logits);
    assert_non_null(logits);
    cut_back(b, drafted ? d : NULL, s, n - 1, h, &c);
    cut_back(b, drafted ? d : NULL, s, h + 1, h, NULL);
    rig_prompt(r, s, h, n, NULL);
    draft_block(b, d, s, g->anchors[last], logits);
    compare(b, last, logits, drafted ? "truncated, drafted" : "truncated");
    check(sequence_truncate(s, 0, &kept, &e), "sequence_truncate", &e);
    cut_back(b, d, s, 5, 0, NULL);
    check(sequence_restore(s, c, &e), "sequence_restore", &e);
    // With a recurrent part the checkpoint is at h already, else it has the other tokens too.
    check(sequence_truncate(s, h, &kept, &e), "sequence_truncate", &e);
    assert_int_equal(kept, h);
    rig_prompt(r, s, h, n, NULL);
    draft_block(b, d, s, g->anchors[last], logits);
    compare(b, last, logits, drafted ? "restored, drafted" : "restored");
    checkpoint_destroy(c);
    sequence_destroy(s);
    free(logits);
}

static struct dflash *load(struct bench *b, const char *path, bool override) {
    const struct tiny_draft *t = &b->r.g.draft;
    struct dflash_options o = dflash_options_default();
    struct dflash *d = NULL;
    struct err e = {0};
    o.codec_k = o.codec_v = KV_F32;
    if (override && t->causal != TINY_CAUSAL_ABSENT)
        o.causal = t->causal == TINY_CAUSAL_TRUE;
    check(dflash_load(&d, b->r.m, path, &o, &e), path, &e);
    const struct dflash_params *p = dflash_params_of(d);
    assert_int_equal(p->block_size, t->block);
    assert_int_equal(p->mask_id, t->mask);
    assert_int_equal(p->n_taps, t->n_taps);
    for (int i = 0; i < t->n_taps; i++)
        assert_int_equal(p->taps[i], t->taps[i]);
    const struct draft_head *head = dflash_head(d); // of every other token, or of all
    assert_int_equal(head->rows, b->r.g.columns);
    for (int i = 0; head->ids && i < head->rows; i++)
        assert_int_equal(head->ids[i], 2 * i + 1);
    return d;
}

// A file of another form gives the bits that the safetensors gave.
static void same_bits(struct bench *b, const char *path, bool override, const char *way) {
    size_t n = (size_t)(b->per * b->r.g.n_index);
    float *all = malloc(n * sizeof *all);
    assert_non_null(all);
    struct dflash *d = load(b, path, override);
    assert_string_equal(dflash_params_of(d)->dialect, way);
    fresh_contexts(b, d, all, way);
    assert_memory_equal(all, b->first, n * sizeof *all);
    dflash_destroy(d);
    free(all);
}

static void test_draft(void **state) {
    struct bench b = {0};
    struct err e = {0};
    printf("%s\n", (const char *)*state);
    rig_init(&b.r, *state);
    b.per = golden_rows_per_index(&b.r.g) * b.r.g.columns;
    b.first = malloc((size_t)(b.per * b.r.g.n_index) * sizeof *b.first);
    assert_non_null(b.first);
    struct dflash *d = load(&b, b.r.files.draft_hf, false);
    fresh_contexts(&b, d, b.first, "safetensors");
    growing_context(&b, d);
    after_commit(&b, d);
    after_going_back(&b, d, false);
    after_going_back(&b, d, true);
    dflash_destroy(d);
    same_bits(&b, b.r.files.draft_gguf, false, "upstream");
    static const char *const names[] = {"lucebox", "beellama"};
    // DFlash2 and heads for some tokens are in the upstream one alone.
    const bool older = !b.r.g.top && b.r.g.columns == b.r.g.target.vocab;
    for (int i = 0; older && i < 2; i++) {
        char path[128];
        (void)snprintf(path, sizeof path, "%s/%s.gguf", b.r.files.dir, names[i]);
        check(dialect_write(i == 0 ? DIALECT_LUCEBOX : DIALECT_BEELLAMA, b.r.files.draft_gguf, path,
                            &b.r.g.target, &b.r.g.draft, &e),
              path, &e);
        same_bits(&b, path, true, names[i]);
        (void)unlink(path);
    }
    free(b.first);
    rig_fini(&b.r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_draft, "draft_mixed2"),
        cmocka_unit_test_prestate(test_draft, "draft_mixed4"),
        cmocka_unit_test_prestate(test_draft, "draft_full"),
        cmocka_unit_test_prestate(test_draft, "draft_noncausal"),
        cmocka_unit_test_prestate(test_draft, "draft_causal"),
        cmocka_unit_test_prestate(test_draft, "draft_q3"),
        cmocka_unit_test_prestate(test_draft, "draft_q3moe"),
        cmocka_unit_test_prestate(test_draft, "draft_r3moe"),
        cmocka_unit_test_prestate(test_draft, "draft_ds3"),
        cmocka_unit_test_prestate(test_draft, "draft_oss"),
        cmocka_unit_test_prestate(test_draft, "draft_l3"),
        cmocka_unit_test_prestate(test_draft, "draft_laguna"),
        cmocka_unit_test_prestate(test_draft, "draft_laguna_m"),
        cmocka_unit_test_prestate(test_draft, "draft_g4"),
        cmocka_unit_test_prestate(test_draft, "draft_spec_laguna"),
        cmocka_unit_test_prestate(test_draft, "draft_spec_g4"),
        cmocka_unit_test_prestate(test_draft, "draft2_r2"),
        cmocka_unit_test_prestate(test_draft, "draft2_g4"),
        cmocka_unit_test_prestate(test_draft, "dspark_q3"),
        cmocka_unit_test_prestate(test_draft, "dspark_r2"),
        cmocka_unit_test_prestate(test_draft, "dspark_g4"),
        cmocka_unit_test_prestate(test_draft, "dspark_spec_g4"),
        cmocka_unit_test_prestate(test_draft, "dspark_spec_q3"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
