// SPDX-License-Identifier: Apache-2.0
// Prediction blocks and EAGLE-3 drafts against independent transcriptions: the distribution after a
// root, after guesses one after the other, and after another first guess, below contexts on both
// sides of a page's edge; from the target's own file, which the converter has made, and from a file
// of the block alone, which must agree to the bit; drafts from their folder; and the same when the
// context grew by steps of many sizes, by a commit, went back and on, or belongs to a fork.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "formats/quant/quant.h"
#include "golden/rig.h"
#include "golden/variants.h"
#include "models/draft/eagle3/eagle3.h"
#include "models/draft/mtp/mtp.h"
#include "unit/test.h"

static const double TOLERANCE = 1e-4;

struct bench {
    struct rig r;
    struct mtp *m; // or
    struct eagle3 *eagle3;
    struct path *d;
    int64_t columns; // tokens of the head
    float *rows;     // [GOLDEN_MTP_ROWS][columns] of the last guesses
    float *first;    // [n_index][GOLDEN_MTP_ROWS][columns] from the target's file
};

static void check(int rc, const char *what, const struct err *e) {
    if (rc != 0)
        fail_msg("%s: %s (code %d)", what, e->text, rc);
}

// Runs rows of one call and keeps their logits, [n][columns].
static void run_rows(struct bench *b, const struct path_row *rows, int n, float *logits) {
    struct err e = {0};
    check(path_rows(b->d, rows, n, &e), "mtp_rows", &e);
    const size_t bytes = (size_t)(n * b->columns) * sizeof *logits;
    exec_ops(b->r.x)->download(b->r.x, logits, path_logits(b->d, 0, n), bytes);
}

static void begin(struct bench *b, struct sequence *s) {
    struct err e = {0};
    check(path_begin(b->d, &s, 1, &e), "mtp_begin", &e);
    assert_true(path_ready(b->d, 0));
}

// Tokens one below the other, the first of them the root.
static void run_chain(struct bench *b, struct sequence *s, const int32_t *tokens, int n,
                      float *logits) {
    begin(b, s);
    for (int i = 0; i < n; i++)
        run_rows(b, &(struct path_row){0, i - 1, tokens[i]}, 1, logits + i * b->columns);
}

// Logits of all that the fixture asks of context i, in b->rows, as a tree and as chains, which must
// agree to the bit. Guesses leave no trace.
static void guess(struct bench *b, struct sequence *s, int i) {
    const int32_t *t = b->r.g.guesses[i], other[2] = {t[0], t[GOLDEN_OTHER]};
    const struct path_row both[2] = {{0, 0, t[1]}, {0, 0, t[GOLDEN_OTHER]}};
    const size_t row = (size_t)b->columns * sizeof *b->rows;
    int64_t v = b->columns, len = sequence_len(s);
    float *chain = malloc(GOLDEN_CHAIN * row), *pair = malloc(2 * row);
    assert_true(chain && pair);
    begin(b, s);
    run_rows(b, &(struct path_row){0, -1, t[0]}, 1, b->rows);
    run_rows(b, both, 2, pair);
    memcpy(b->rows + v, pair, row);
    memcpy(b->rows + GOLDEN_OTHER * v, pair + v, row);
    run_rows(b, &(struct path_row){0, 1, t[2]}, 1, b->rows + 2 * v); // rows 1 and 2 are those two
    run_rows(b, &(struct path_row){0, 3, t[3]}, 1, b->rows + 3 * v);
    run_chain(b, s, t, GOLDEN_CHAIN, chain);
    assert_memory_equal(chain, b->rows, GOLDEN_CHAIN * row);
    run_chain(b, s, other, 2, chain);
    assert_memory_equal(chain + v, b->rows + GOLDEN_OTHER * v, row);
    assert_int_equal(sequence_len(s), len);
    free(chain);
    free(pair);
}

// Compares each row's log-probabilities with the golden ones of context i.
static void compare(const struct bench *b, int i, const char *way) {
    const struct golden *g = &b->r.g;
    double worst = 0;
    float *row = malloc((size_t)b->columns * sizeof *row);
    assert_non_null(row);
    for (int k = 0; k < GOLDEN_MTP_ROWS; k++) {
        memcpy(row, b->rows + k * b->columns, (size_t)b->columns * sizeof *row);
        golden_log_softmax(row, b->columns);
        double e = golden_error(row, g->rows + (i * GOLDEN_MTP_ROWS + k) * b->columns, b->columns);
        if (!(e <= TOLERANCE))
            fail_msg("%s, context %d, row %d: relative error %.2e", way, g->index[i], k, e);
        worst = e > worst ? e : worst;
    }
    printf("%-22s context %2d worst relative error %.2e\n", way, g->index[i], worst);
    free(row);
}

// Each context in a sequence of its own. all: [n_index][GOLDEN_MTP_ROWS][columns]
static void fresh_contexts(struct bench *b, float *all, const char *way) {
    const struct golden *g = &b->r.g;
    int64_t per = GOLDEN_MTP_ROWS * b->columns;
    for (int i = 0; i < g->n_index; i++) {
        struct sequence *s = rig_sequence(&b->r);
        rig_prompt(&b->r, s, 0, g->index[i], NULL);
        guess(b, s, i);
        memcpy(all + i * per, b->rows, (size_t)per * sizeof *all);
        compare(b, i, way);
        sequence_destroy(s);
    }
}

// One sequence that grows by 1, 2, ... tokens with guesses after every step.
static void growing_context(struct bench *b) {
    const struct golden *g = &b->r.g;
    struct sequence *s = rig_sequence(&b->r);
    int at = 0, step = 1;
    for (int i = 0; i < g->n_index; i++) {
        while (at < g->index[i]) {
            int to = at + step < g->index[i] ? at + step : g->index[i];
            rig_prompt(&b->r, s, at, to, NULL);
            at = to;
            step = 1 + step * 5 % 17;
            if (at < g->index[i])
                run_chain(b, s, &g->ids[at], 1, b->rows);
        }
        guess(b, s, i);
        compare(b, i, "growing context");
    }
    sequence_destroy(s);
}

// After a verified tree of which two tokens are kept: their rows are made anew from what the target
// computed.
static void after_commit(struct bench *b) {
    struct rig *r = &b->r;
    const struct golden *g = &r->g;
    int last = g->n_index - 1, at = g->index[last] - 2;
    struct err e = {0};
    struct sequence *s = rig_sequence(r);
    rig_prompt(r, s, 0, at, NULL);
    run_chain(b, s, &g->ids[at], 2, b->rows);
    forest_reset(&r->f);
    int32_t path[2];
    path[0] = forest_root(&r->f, 0, at, g->ids[at], true);
    (void)forest_add(&r->f, path[0], (g->ids[at + 1] + 1) % g->target.vocab, true);
    path[1] = forest_add(&r->f, path[0], g->ids[at + 1], true);
    (void)forest_add(&r->f, path[1], 7, true);
    check(model_forward(r->m, &r->f, &s, 1, &e), "model_forward", &e);
    check(model_commit(r->m, &s, &(struct model_path){0, path, 2}, 1, &e), "model_commit", &e);
    guess(b, s, last);
    compare(b, last, "after a commit");
    sequence_destroy(s);
}

// Other tokens up to position len, guesses, then back to h, where the shared part of the ids ends.
static void cut_back(struct bench *b, struct sequence *s, int len, int h, struct checkpoint **c) {
    struct err e = {0};
    int64_t kept = -1;
    const int32_t guesses[] = {9, 8};
    rig_shift_ids(&b->r, h, 1);
    rig_prompt(&b->r, s, (int)sequence_len(s), len, NULL);
    run_chain(b, s, guesses, 2, b->rows);
    rig_shift_ids(&b->r, h, -1);
    if (c)
        check(sequence_checkpoint(s, c, &e), "sequence_checkpoint", &e);
    check(sequence_truncate(s, h, &kept, &e), "sequence_truncate", &e);
    assert_int_equal(kept, h);
}

// The block's state goes back with the sequence: by truncation, and into a checkpoint that was made
// before other tokens came.
static void after_going_back(struct bench *b) {
    struct rig *r = &b->r;
    const struct golden *g = &r->g;
    int last = g->n_index - 1, n = g->index[last], h = n / 32 * 32;
    struct err e = {0};
    struct sequence *s = rig_sequence(r);
    struct checkpoint *c = NULL;
    int64_t kept = -1;
    cut_back(b, s, n - 1, h, &c);
    cut_back(b, s, h + 1, h, NULL);
    rig_prompt(r, s, h, n, NULL);
    guess(b, s, last);
    compare(b, last, "truncated");
    check(sequence_truncate(s, 0, &kept, &e), "sequence_truncate", &e);
    cut_back(b, s, 5, 0, NULL);
    check(sequence_restore(s, c, &e), "sequence_restore", &e);
    // With a recurrent part the checkpoint is at h already, else it has the other tokens too.
    check(sequence_truncate(s, h, &kept, &e), "sequence_truncate", &e);
    assert_int_equal(kept, h);
    rig_prompt(r, s, h, n, NULL);
    guess(b, s, last);
    compare(b, last, "restored");
    checkpoint_destroy(c);
    sequence_destroy(s);
}

// A fork and its origin go on apart, and both have what was there before.
static void after_fork(struct bench *b) {
    struct rig *r = &b->r;
    const struct golden *g = &r->g;
    int last = g->n_index - 1, n = g->index[last], h = n - 3;
    struct err e = {0};
    struct sequence *s = rig_sequence(r), *copy = NULL;
    rig_prompt(r, s, 0, h, NULL);
    run_chain(b, s, &g->ids[h], 1, b->rows);
    check(sequence_fork(s, &copy, &e), "sequence_fork", &e);
    rig_shift_ids(r, h, 1);
    rig_prompt(r, s, h, n, NULL);
    run_chain(b, s, &g->ids[0], 2, b->rows);
    rig_shift_ids(r, h, -1);
    rig_prompt(r, copy, h, n, NULL);
    guess(b, copy, last);
    compare(b, last, "forked");
    sequence_destroy(copy);
    sequence_destroy(s);
}

static void load(struct bench *b, const char *path) {
    struct mtp_options o = mtp_options_default();
    struct err e = {0};
    o.codec_k = o.codec_v = KV_F32;
    o.depth = GOLDEN_CHAIN;
    check(mtp_load(&b->m, b->r.m, path, &o, false, &e), "mtp_load", &e);
    b->d = mtp_path(b->m);
    assert_int_equal(path_depth(b->d), GOLDEN_CHAIN);
}

static void load_eagle3(struct bench *b, const char *path) {
    struct eagle3_options o = eagle3_options_default();
    struct err e = {0};
    o.codec_k = o.codec_v = KV_F32;
    o.depth = GOLDEN_CHAIN;
    check(eagle3_load(&b->eagle3, b->r.m, path, &o, false, &e), "eagle3_load", &e);
    b->d = eagle3_path(b->eagle3);
    const struct draft_head *head = path_head(b->d);
    assert_int_equal(head->rows, b->columns);
    for (int i = 0; i < head->rows; i++) // lists have every other token, counted from 1
        assert_int_equal(head->ids ? head->ids[i] : i,
                         b->columns < b->r.g.target.vocab ? 2 * i + 1 : i);
}

// A file of the block alone gives the bits that the target's file gave.
static void same_bits(struct bench *b) {
    struct err e = {0};
    size_t n = (size_t)(GOLDEN_MTP_ROWS * b->columns * b->r.g.n_index);
    float *all = malloc(n * sizeof *all);
    char path[128];
    assert_non_null(all);
    (void)snprintf(path, sizeof path, "%s/sidecar.gguf", b->r.files.dir);
    check(variant_write(VARIANT_SIDECAR, b->r.files.gguf, path, &e), path, &e);
    load(b, path);
    fresh_contexts(b, all, "a file of its own");
    assert_memory_equal(all, b->first, n * sizeof *all);
    mtp_destroy(b->m);
    (void)unlink(path);
    free(all);
}

// The GGUF file that the converter made of the folder gives what the folder gave, but for the order
// of sums: heads that turn by halves there turn by neighbours here.
static void same_answers(struct bench *b) {
    size_t n = (size_t)(GOLDEN_MTP_ROWS * b->columns * b->r.g.n_index);
    float *all = malloc(n * sizeof *all);
    assert_non_null(all);
    load_eagle3(b, b->r.files.draft_gguf);
    fresh_contexts(b, all, "a GGUF file");
    const double error = golden_error(all, b->first, (int64_t)n);
    printf("GGUF against folder: relative difference %.2e\n", error);
    assert_true(error < 1e-5);
    eagle3_destroy(b->eagle3);
    free(all);
}

static void open_bench(struct bench *b, const char *name) {
    printf("%s\n", name);
    rig_init(&b->r, name);
    b->columns = b->r.g.columns;
    b->rows = malloc((size_t)(GOLDEN_MTP_ROWS * b->columns) * sizeof *b->rows);
    b->first = malloc((size_t)(GOLDEN_MTP_ROWS * b->columns * b->r.g.n_index) * sizeof *b->first);
    assert_true(b->rows && b->first);
}

static void close_bench(struct bench *b) {
    free(b->rows);
    free(b->first);
    rig_fini(&b->r);
}

static void all_ways(struct bench *b, const char *way) {
    fresh_contexts(b, b->first, way);
    growing_context(b);
    after_commit(b);
    after_going_back(b);
    after_fork(b);
}

static void test_mtp(void **state) {
    struct bench b = {0};
    open_bench(&b, *state);
    assert_true(b.r.g.has_mtp);
    load(&b, DRAFT_OF_TARGET);
    all_ways(&b, "the target's file");
    mtp_destroy(b.m);
    same_bits(&b);
    close_bench(&b);
}

static void test_eagle3(void **state) {
    struct bench b = {0};
    open_bench(&b, *state);
    assert_true(b.r.g.has_eagle3);
    load_eagle3(&b, b.r.files.draft_hf);
    all_ways(&b, "the draft's folder");
    eagle3_destroy(b.eagle3);
    same_answers(&b);
    close_bench(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_mtp, "mtp_r1_tied"),
        cmocka_unit_test_prestate(test_mtp, "mtp_r3_untied"),
        cmocka_unit_test_prestate(test_mtp, "mtp_r3moe"),
        cmocka_unit_test_prestate(test_mtp, "mtp_r1moe"),
        cmocka_unit_test_prestate(test_mtp, "mtp_glm_norms"),
        cmocka_unit_test_prestate(test_mtp, "mtp_glm_air"),
        cmocka_unit_test_prestate(test_mtp, "mtp_ds3"),
        cmocka_unit_test_prestate(test_eagle3, "eagle3_q3"),
        cmocka_unit_test_prestate(test_eagle3, "eagle3_l3"),
        cmocka_unit_test_prestate(test_eagle3, "eagle3_r3"),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
