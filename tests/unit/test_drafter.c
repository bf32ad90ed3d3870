// SPDX-License-Identifier: Apache-2.0
// Each drafter asked directly: how deep and wide it answers, where its guesses come from, and what
// it refuses. Guesses cannot change an output, so only a test like this sees a drafter that guesses
// badly.
#include "test.h"

#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "spec/drafter.h"
#include "spec/step.h"
#include "support/tiny_gguf.h"

enum { CONTEXT = 128, BLOCK = 8 };

struct fixture {
    struct exec *x;
    struct gguf *file;
    struct model *model;
    struct dflash *dflash;
    struct sequence *seq;
};

// 7 8 9 stands twice; then comes 1 2 3 4, where 2 3 has been seen before with 50 behind it.
static const int32_t text[] = {2, 3, 50, 51, 7, 8, 9, 60, 61, 7, 8, 9, 1, 2};
enum { LEN = sizeof text / sizeof *text };

static int setup(void **state) {
    static struct fixture f;
    char path[64];
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    struct model_options o = model_options_default();
    struct dflash_options q = dflash_options_default();
    struct forest rows = {0};
    *state = &f;
    o.max_ctx = CONTEXT;
    snprintf(path, sizeof path, "/tmp/coppice-drafter-%d.gguf", (int)getpid());
    int rc = tiny_target_write(&t, path, NULL);
    if (!rc)
        rc = gguf_open(&f.file, path, NULL);
    if (!rc)
        rc = exec_create_cpu(&f.x, "auto", 1, NULL);
    if (!rc)
        rc = model_load(&f.model, f.x, f.file, &o, NULL);
    if (!rc)
        rc = tiny_draft_write(&t, &d, path, NULL);
    if (!rc)
        rc = dflash_load(&f.dflash, f.model, path, &q, NULL);
    unlink(path);
    if (!rc)
        rc = model_sequence(f.model, &f.seq, NULL);
    if (!rc)
        rc = forest_init(&rows, LEN, NULL);
    if (rc)
        return rc;
    forest_reset(&rows);
    forest_chain(&rows, 0, 0, text, LEN, true);
    rc = model_forward(f.model, &rows, &f.seq, 1, NULL);
    forest_fini(&rows);
    return rc;
}

static int teardown(void **state) {
    struct fixture *f = *state;
    sequence_destroy(f->seq);
    dflash_destroy(f->dflash);
    model_destroy(f->model);
    exec_destroy(f->x);
    gguf_close(f->file);
    return 0;
}

static struct drafter *make(const struct fixture *f, enum draft_kind kind,
                            const struct draft_config *oracle) {
    struct draft_config c = oracle ? *oracle : (struct draft_config){0};
    struct drafter *d = NULL;
    c.model = f->model;
    c.dflash = f->dflash;
    c.max_k = 8;
    assert_int_equal(drafter_create(&d, kind, &c, NULL), 0);
    return d;
}

static struct proposal ask(const struct fixture *f, struct drafter *d, int32_t root, int k,
                           int max_depth) {
    struct draft_request r = {.seq = f->seq, .root = root, .k = k, .max_depth = max_depth};
    struct proposal p = {0};
    assert_int_equal(drafter_propose(d, &r, &p, NULL), 0);
    return p;
}

static void test_dflash(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, DRAFT_DFLASH, NULL);
    assert_string_equal(drafter_name(d), "dflash");
    assert_int_equal(drafter_max_depth(d), BLOCK - 1);
    struct proposal p = ask(f, d, 3, 5, 32);
    assert_int_equal(p.depth, BLOCK - 1);
    assert_int_equal(p.k, 5);
    int32_t first[3] = {p.ids[0], p.ids[5], p.ids[10]};
    for (int r = 0; r < p.depth * p.k; r++) {
        assert_in_range(p.ids[r], 0, 299);
        assert_true(p.logp[r] <= 0);
        assert_true(r % p.k == 0 || p.logp[r] <= p.logp[r - 1]);
    }
    p = ask(f, d, 3, 1, 3); // the same guesses, cut to what is of use
    assert_int_equal(p.depth, 3);
    assert_int_equal(p.k, 1);
    assert_memory_equal(p.ids, first, sizeof first);
    p = ask(f, d, 3, 1, 0);
    assert_int_equal(p.depth, 0);
    struct draft_request r = {.seq = f->seq, .root = 3, .k = 2, .max_depth = 32, .worth = 2};
    assert_int_equal(drafter_propose(d, &r, &p, NULL), 0); // a shorter block
    assert_int_equal(p.depth, 2);
    r.worth = 100;
    assert_int_equal(drafter_propose(d, &r, &p, NULL), 0);
    assert_int_equal(p.depth, BLOCK - 1);
    drafter_destroy(d);
}

static void test_lookup(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, DRAFT_LOOKUP, NULL);
    struct proposal p = ask(f, d, 3, 8, 5); // ... 1 2 and 3: 2 3 was followed by 50 51 7 8 9
    static const int32_t want[] = {50, 51, 7, 8, 9};
    assert_int_equal(p.depth, 0);
    assert_int_equal(p.n_chains, 1);
    assert_int_equal(p.chains[0].len, 5);
    assert_memory_equal(p.chains[0].ids, want, sizeof want);
    assert_true(fabsf(p.chains[0].logp - logf(2 / 3.5f)) < 1e-6f);
    p = ask(f, d, 200, 8, 5);
    assert_int_equal(p.n_chains, 0);
    p = ask(f, d, 3, 8, 2);
    assert_int_equal(p.chains[0].len, 2);
    assert_memory_equal(p.chains[0].ids, want, 2 * sizeof *want);
    drafter_destroy(d);
}

static void test_off(void **state) {
    const struct fixture *f = *state;
    struct drafter *d = make(f, DRAFT_OFF, NULL);
    struct proposal p = ask(f, d, 3, 8, 5);
    assert_int_equal(p.depth + p.n_chains, 0);
    assert_int_equal(drafter_max_depth(d), 0);
    drafter_destroy(d);
}

// A block may be longer than a tree is deep; what lies beyond is not asked for.
static void test_long_block(void **state) {
    const struct fixture *f = *state;
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape shape = tiny_draft_default(&t);
    struct dflash_options q = dflash_options_default();
    struct model_options o = model_options_default();
    struct fixture g = {.x = f->x, .file = f->file};
    char path[64];
    shape.block = 40;
    snprintf(path, sizeof path, "/tmp/coppice-drafter-%d-long.gguf", (int)getpid());
    assert_int_equal(tiny_draft_write(&t, &shape, path, NULL), 0);
    assert_int_equal(model_load(&g.model, g.x, g.file, &o, NULL), 0);
    assert_int_equal(dflash_load(&g.dflash, g.model, path, &q, NULL), 0);
    unlink(path);
    assert_int_equal(model_sequence(g.model, &g.seq, NULL), 0);
    struct drafter *d = make(&g, DRAFT_DFLASH, NULL);
    assert_int_equal(drafter_max_depth(d), TREE_MAX_DEPTH);
    assert_int_equal(ask(&g, d, 3, TREE_MAX_K, 100).depth, TREE_MAX_DEPTH);
    drafter_destroy(d);
    sequence_destroy(g.seq);
    dflash_destroy(g.dflash);
    model_destroy(g.model);
}

// Where the recorded token stands among the candidates, at error rates 0, 1 and between.
static void test_oracle(void **state) {
    const struct fixture *f = *state;
    int32_t recording[LEN + 40];
    for (int i = 0; i < LEN + 40; i++)
        recording[i] = 100 + i;
    static const double rates[] = {0, 0.3, 1};
    for (int i = 0; i < 3; i++) {
        struct draft_config c = {
            .recording = recording, .n_recording = LEN + 40, .error_rate = rates[i], .seed = 5};
        struct drafter *d = make(f, DRAFT_ORACLE, &c);
        struct proposal p = ask(f, d, 3, 8, 32);
        int first = 0, later = 0;
        assert_int_equal(p.depth, 32);
        for (int depth = 1; depth <= 32; depth++)
            for (int r = 0; r < 8; r++) {
                bool truth = p.ids[(depth - 1) * 8 + r] == recording[LEN + depth];
                first += truth && r == 0;
                later += truth && r > 0;
            }
        if (i == 0)
            assert_int_equal(first, 32);
        if (i == 1)
            assert_in_range(first, 14, 30);
        if (i == 2)
            assert_int_equal(first, 0);
        assert_true(i == 0 ? later == 0 : later >= 1);
        drafter_destroy(d);
    }
}

// The recording's end is the end of the guesses.
static void test_short_recording(void **state) {
    const struct fixture *f = *state;
    int32_t recording[LEN + 4] = {0};
    struct draft_config c = {.recording = recording, .n_recording = LEN + 4};
    struct drafter *d = make(f, DRAFT_ORACLE, &c);
    assert_int_equal(ask(f, d, 3, 2, 32).depth, 3); // positions LEN + 1 .. LEN + 3
    drafter_destroy(d);
}

static void test_refused(void **state) {
    const struct fixture *f = *state;
    struct draft_config c = {.model = f->model, .max_k = 8};
    struct drafter *d = NULL;
    struct err e = {0};
    assert_int_equal(drafter_create(&d, DRAFT_DFLASH, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "draft model"));
    assert_int_equal(drafter_create(&d, DRAFT_ORACLE, &c, &e), ERR_USAGE);
    c.recording = text;
    c.error_rate = 2;
    assert_int_equal(drafter_create(&d, DRAFT_ORACLE, &c, &e), ERR_USAGE);
    assert_null(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dflash),  cmocka_unit_test(test_lookup),
        cmocka_unit_test(test_off),     cmocka_unit_test(test_long_block),
        cmocka_unit_test(test_oracle),  cmocka_unit_test(test_short_recording),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
