// SPDX-License-Identifier: Apache-2.0
// Domino drafts against an independent implementation: the logits of all tokens along several paths
// of guesses, each path alone and all of them as one tree, whose bits must agree; from the authors'
// safetensors, from the GGUF file that convert makes of them, and from Lucebox's form, which must
// agree to the bit; and candidates, which must be ordered as these logits.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "golden/dialects.h"
#include "golden/rig.h"
#include "models/draft/draft.h"
#include "unit/test.h"

static const double TOLERANCE = 1e-4;
enum { K = 8 };

struct bench {
    struct rig r;
    struct draft *d;
    struct sequence *s;
    int context;  // of g->index
    int64_t per;  // values of one context
    float *first; // [n_index][per] logits from the safetensors
};

static void check(int rc, const char *what, const struct err *e) {
    if (rc != 0)
        fail_msg("%s: %s (code %d)", what, e->text, rc);
}

static const int32_t *path_of(const struct bench *b, int path) {
    const struct golden *g = &b->r.g;
    return g->paths + (b->context * g->n_paths + path) * (golden_guesses(g) - 1);
}

// The k candidates are ordered, and as far apart as the logits of their tokens.
static void check_candidates(const float *logits, const int32_t *ids, const float *logp) {
    for (int c = 1; c < K; c++) {
        const double apart = (double)logits[ids[c]] - (double)logits[ids[c - 1]];
        assert_true(logp[c] <= logp[c - 1] && logp[0] <= 0);
        if (!(fabs((double)logp[c] - (double)logp[c - 1] - apart) < 1e-4))
            fail_msg("candidates %d and %d are %g apart, their logits %g", c - 1, c,
                     (double)logp[c] - (double)logp[c - 1], apart);
    }
}

// A draft over paths from .. to - 1 as one tree; logits of path p into out[p - from][guesses].
static void run_paths(struct bench *b, int from, int to, float *out) {
    const struct golden *g = &b->r.g;
    const int n = to - from, guesses = golden_guesses(g);
    struct draft_node nodes[8];
    struct draft_guesses found;
    struct err e = {0};
    struct draft_level l = {.seq = b->s, .root = g->anchors[b->context], .n = 1, .k = K};
    assert_true(n <= 8);
    check(draft_begin(b->d, &l, 1, &e), "draft_begin", &e);
    for (l.depth = 0; l.depth < guesses; l.depth++) {
        for (int p = 0; l.depth && p < n; p++)
            nodes[p] = (struct draft_node){.parent = l.depth == 1 ? 0 : 1 + n * (l.depth - 2) + p,
                                           .token = path_of(b, from + p)[l.depth - 1],
                                           .depth = l.depth};
        l.n = l.depth ? n : 1;
        l.nodes = l.depth ? nodes : NULL;
        check(draft_run_level(b->d, &l, 1, &found, &e), "draft_run_level", &e);
        assert_int_equal(found.k, K);
        for (int p = 0; p < n; p++) {
            const int node = l.depth ? p : 0;
            float *row = out + ((int64_t)p * guesses + l.depth) * g->target.vocab;
            check(dflash_path_logits(draft_dflash(b->d), 0, node, row, &e), "logits", &e);
            check_candidates(row, found.ids + node * K, found.logp + node * K);
        }
    }
}

// All paths of a context, one by one, into logits [n_paths][guesses][vocab], and as a tree.
static void run_context(struct bench *b, float *logits) {
    const struct golden *g = &b->r.g;
    const int64_t path = golden_guesses(g) * (int64_t)g->target.vocab;
    float *tree = malloc((size_t)b->per * sizeof *tree);
    assert_non_null(tree);
    b->s = rig_sequence(&b->r);
    rig_prompt(&b->r, b->s, 0, g->index[b->context], NULL);
    for (int p = 0; p < g->n_paths; p++)
        run_paths(b, p, p + 1, logits + p * path);
    run_paths(b, 0, g->n_paths, tree);
    assert_memory_equal(tree, logits, (size_t)b->per * sizeof *tree);
    sequence_destroy(b->s);
    free(tree);
}

static double worst_error(const struct bench *b, const float *logits) {
    const struct golden *g = &b->r.g;
    const int64_t v = g->target.vocab;
    double worst = 0;
    float *row = malloc((size_t)v * sizeof *row);
    assert_non_null(row);
    for (int64_t i = 0; i < g->n_index * golden_rows_per_index(g); i++) {
        memcpy(row, logits + i * v, (size_t)v * sizeof *row);
        golden_log_softmax(row, v);
        worst = fmax(worst, golden_error(row, g->rows + i * v, v));
    }
    free(row);
    return worst;
}

static void run_form(struct bench *b, const char *path, const char *dialect, float *all) {
    struct dflash_options o = dflash_options_default();
    struct err e = {0};
    o.codec_k = o.codec_v = KV_F32;
    check(draft_open(&b->d, b->r.m, &(struct draft_source){.path = path, .dflash = &o}, &e), path,
          &e);
    assert_string_equal(dflash_params_of(draft_dflash(b->d))->dialect, dialect);
    assert_int_equal(draft_traits(b->d).depends, DRAFT_BY_PATH);
    assert_int_equal(draft_traits(b->d).max_depth, golden_guesses(&b->r.g));
    for (b->context = 0; b->context < b->r.g.n_index; b->context++)
        run_context(b, all + b->context * b->per);
    draft_destroy(b->d);
}

static void same_bits(struct bench *b, const char *path, const char *dialect) {
    const size_t bytes = (size_t)(b->per * b->r.g.n_index) * sizeof(float);
    float *all = malloc(bytes);
    assert_non_null(all);
    run_form(b, path, dialect, all);
    assert_memory_equal(all, b->first, bytes);
    free(all);
}

static void test_domino(void **state) {
    struct bench b = {0};
    struct err e = {0};
    char path[128];
    rig_init(&b.r, *state);
    const struct golden *g = &b.r.g;
    b.per = golden_rows_per_index(g) * g->target.vocab;
    b.first = malloc((size_t)(b.per * g->n_index) * sizeof *b.first);
    assert_true(b.first && g->n_paths > 1);
    run_form(&b, b.r.files.draft_hf, "safetensors", b.first);
    const double worst = worst_error(&b, b.first);
    printf("%s: worst relative error %.2e\n", (const char *)*state, worst);
    if (!(worst <= TOLERANCE))
        fail_msg("%s: relative error %.2e", (const char *)*state, worst);
    same_bits(&b, b.r.files.draft_gguf, "upstream");
    if (strcmp(*state, "domino_g4") == 0) { // whose guesses are all corrected, as Lucebox's are
        (void)snprintf(path, sizeof path, "%s/lucebox.gguf", b.r.files.dir);
        check(dialect_write(DIALECT_LUCEBOX, b.r.files.draft_gguf, path, &g->target, &g->draft, &e),
              path, &e);
        same_bits(&b, path, "lucebox");
        (void)unlink(path);
    }
    free(b.first);
    rig_fini(&b.r);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(test_domino, "domino_r2"),
                                       cmocka_unit_test_prestate(test_domino, "domino_q3"),
                                       cmocka_unit_test_prestate(test_domino, "domino_g4")};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
