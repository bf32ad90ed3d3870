// SPDX-License-Identifier: Apache-2.0
// The draft: dialects agree, context absorbed in any pieces gives the same bits, windows and
// causality act where they should, several sequences at once, and drafts that do not fit.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "models/draft/dflash/impl.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { VOCAB = 300, B = 8, ROWS = B - 1, LONG = 200 };

struct block {
    float row[ROWS][VOCAB];
};

static struct tiny_draft_shape mixed_draft(const struct tiny_shape *t) {
    struct tiny_draft_shape d = tiny_draft_default(t);
    d.layers = 3;
    d.window = 24;
    return d;
}

static void draft(struct tiny_rig *r, struct sequence *s, int32_t anchor, struct block *out) {
    assert_int_equal(dflash_draft(r->d, &s, &anchor, 1, &r->e), 0);
    tiny_rig_draft_logits(r, 0, ROWS, out->row[0]);
}

// The block after the first n of a fixed list of tokens.
static void draft_after(struct tiny_rig *r, int64_t n, int64_t chunk, struct block *out) {
    int32_t tokens[LONG];
    tiny_rig_tokens(r, 4, tokens, LONG);
    struct sequence *s = tiny_rig_sequence(r);
    tiny_rig_prompt(r, s, tokens, n, chunk, NULL, NULL);
    draft(r, s, 17, out);
    sequence_destroy(s);
}

static bool equal(const struct block *a, const struct block *b) {
    const unsigned char *x = (const unsigned char *)a, *y = (const unsigned char *)b; // as bits
    return memcmp(x, y, sizeof *a) == 0;
}

static struct block *block_new(void) {
    struct block *b = calloc(1, sizeof *b);
    assert_non_null(b);
    return b;
}

static void with_draft(const struct tiny_draft_shape *d, int64_t n, struct block *out) {
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    tiny_rig_open(&r, &shape, d, NULL, "auto", 1);
    draft_after(&r, n, 64, out);
    tiny_rig_close(&r);
}

static void test_dialects(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = mixed_draft(&shape);
    struct block *want = block_new(), *got = block_new();
    with_draft(&d, 70, want);
    assert_memory_not_equal(want->row[0], want->row[1], sizeof want->row[0]);
    for (d.dialect = TINY_BEELLAMA; d.dialect <= TINY_UPSTREAM; d.dialect++) {
        with_draft(&d, 70, got);
        assert_true(equal(want, got));
    }
    d.dialect = TINY_BEELLAMA;
    d.causal = 0; // this dialect writes false always, so it means nothing
    with_draft(&d, 70, got);
    assert_true(equal(want, got));
    d.dialect = TINY_UPSTREAM; // here it makes the windowed layers bidirectional
    with_draft(&d, 70, got);
    assert_false(equal(want, got));
    free(want);
    free(got);
}

static void test_masks(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = mixed_draft(&shape), other = d;
    struct block *a = block_new(), *b = block_new();
    d.dialect = other.dialect = TINY_UPSTREAM;
    d.causal = other.causal = 1;
    other.window = 0;
    with_draft(&d, 14, a); // nothing is 24 away yet: 14 + 7 - 0 < 24
    with_draft(&other, 14, b);
    assert_true(equal(a, b));
    with_draft(&d, 70, a);
    with_draft(&other, 70, b);
    assert_false(equal(a, b));
    // Causal everywhere: an earlier row does not depend on how many rows follow.
    other.block = 5;
    struct tiny_rig r;
    tiny_rig_open(&r, &shape, &other, NULL, "auto", 1);
    int32_t tokens[LONG], anchor = 17;
    tiny_rig_tokens(&r, 4, tokens, LONG);
    struct sequence *s = tiny_rig_sequence(&r);
    tiny_rig_prompt(&r, s, tokens, 70, 64, NULL, NULL);
    assert_int_equal(dflash_draft(r.d, &s, &anchor, 1, &r.e), 0);
    tiny_rig_draft_logits(&r, 0, 4, a->row[0]);
    assert_memory_equal(a->row[0], b->row[0], 4 * sizeof a->row[0]);
    sequence_destroy(s);
    tiny_rig_close(&r);
    free(a);
    free(b);
}

// A shorter block is what a draft that was trained with that size would make.
static void test_shorter_block(void **state) {
    enum { SHORT = 3 };
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = mixed_draft(&shape), small = d;
    struct block *a = block_new(), *b = block_new();
    struct tiny_rig r;
    int32_t tokens[LONG], anchor = 17;
    small.block = SHORT;
    for (int i = 0; i < 2; i++) {
        tiny_rig_open(&r, &shape, i ? &small : &d, NULL, "auto", 1);
        tiny_rig_tokens(&r, 4, tokens, LONG);
        struct sequence *s = tiny_rig_sequence(&r);
        tiny_rig_prompt(&r, s, tokens, 70, 64, NULL, NULL);
        assert_int_equal(dflash_draft_block(r.d, &s, &anchor, 1, SHORT, &r.e), 0);
        tiny_rig_draft_logits(&r, 0, SHORT - 1, i ? b->row[0] : a->row[0]);
        assert_int_equal(dflash_draft_block(r.d, &s, &anchor, 1, 1, &r.e), ERR_USAGE);
        assert_int_equal(dflash_draft_block(r.d, &s, &anchor, 1, B + 1, &r.e), ERR_USAGE);
        sequence_destroy(s);
        tiny_rig_close(&r);
    }
    assert_memory_equal(a->row[0], b->row[0], (SHORT - 1) * sizeof a->row[0]);
    with_draft(&d, 70, b); // the whole block attends to more, so its first row differs
    assert_memory_not_equal(a->row[0], b->row[0], sizeof a->row[0]);
    free(a);
    free(b);
}

// Drafts after 70 tokens with options that override the file's values.
static void with_options(const struct tiny_draft_shape *shape_d, const struct dflash_options *o,
                         struct block *out) {
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_rig r;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    assert_int_equal(tiny_draft_write(&shape, shape_d, r.draft_path, &r.e), 0);
    assert_int_equal(dflash_load(&r.d, r.m, r.draft_path, o, &r.e), 0);
    draft_after(&r, 70, 64, out);
    tiny_rig_close(&r);
}

static void test_overrides(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape windowed = mixed_draft(&shape), full = windowed, other = windowed;
    struct dflash_options none = dflash_options_default(), o = none;
    struct block *a = block_new(), *b = block_new();
    full.window = 0;
    with_options(&windowed, &none, a);
    o.window = 24; // as the file says it: all layers but the last
    with_options(&full, &o, b);
    assert_true(equal(a, b));
    o.window = 0;
    with_options(&windowed, &o, b);
    with_options(&full, &none, a);
    assert_true(equal(a, b));
    o = none;
    o.mask_id = 7;
    with_options(&full, &o, b);
    for (int i = 0; i < ROWS; i++) // every row is a mask's: none is the anchor's
        assert_memory_not_equal(a->row[i], b->row[i], sizeof a->row[i]);
    other = full;
    other.mask = 7;
    with_options(&other, &none, a);
    assert_true(equal(a, b));
    o = none;
    o.causal = 1;
    with_options(&full, &o, a);
    o.mask_id = 7;
    with_options(&full, &o, b);
    for (int i = 0; i < ROWS; i++)
        assert_memory_not_equal(a->row[i], b->row[i], sizeof a->row[i]);
    o = none;
    o.n_taps = 2;
    o.taps[0] = full.taps[1];
    o.taps[1] = full.taps[0];
    with_options(&full, &o, a);
    other = full;
    other.taps[0] = full.taps[1];
    other.taps[1] = full.taps[0];
    with_options(&other, &none, b);
    assert_true(equal(a, b));
    with_options(&full, &none, b);
    assert_false(equal(a, b));
    free(a);
    free(b);
}

// Verifies a random tree and commits its leftmost path; the draft may precompute for its rows.
static void step_tree(struct tiny_rig *r, struct sequence *s, struct rng *g) {
    int32_t path[16], n = 0;
    tiny_rig_tree(r, s, rng_next(g), 12, 7);
    assert_int_equal(model_forward(r->m, &r->f, &s, 1, &r->e), 0);
    if (rng_below(g, 2))
        model_precompute(r->m);
    for (int32_t row = 0; row < r->f.n; row++) {
        if (r->f.parent[row] == (n ? path[n - 1] : -1))
            path[n++] = row;
    }
    assert_int_equal(model_commit(r->m, &s, &(struct model_path){0, path, n}, 1, &r->e), 0);
}

// Goes back to the checkpoint or replaces it.
static void step_checkpoint(struct tiny_rig *r, struct sequence *s, struct rng *g,
                            struct checkpoint **c) {
    if (*c && rng_below(g, 2)) {
        assert_int_equal(sequence_restore(s, *c, &r->e), 0);
        assert_int_equal(sequence_len(s), checkpoint_len(*c));
        return;
    }
    checkpoint_destroy(*c);
    *c = NULL;
    assert_int_equal(sequence_checkpoint(s, c, &r->e), 0);
}

static void step_truncate(struct tiny_rig *r, struct sequence *s, struct rng *g) {
    int64_t n = (int64_t)rng_below(g, 40), kept;
    n = n > sequence_len(s) ? 0 : n;
    assert_int_equal(sequence_truncate(s, sequence_len(s) - n, &kept, &r->e), 0);
}

// A random walk of prompts, commits, drafts, cuts, checkpoints and forks.
static struct sequence *wander(struct tiny_rig *r, struct rng *g, int steps) {
    struct sequence *s = tiny_rig_sequence(r), *fork;
    struct checkpoint *c = NULL;
    struct block *scrap = block_new();
    int32_t tokens[64], first[450];
    tiny_rig_tokens(r, rng_next(g), first, 450);
    if (rng_below(g, 2)) // as long as one prompt is absorbed directly
        tiny_rig_prompt(r, s, first, 450, 1 + rng_below(g, 64), NULL, NULL);
    for (int i = 0; i < steps; i++) {
        int64_t n = 1 + rng_below(g, 60);
        uint32_t what = rng_below(g, 6);
        tiny_rig_tokens(r, rng_next(g), tokens, 64);
        if (what == 0) {
            tiny_rig_prompt(r, s, tokens, n, 1 + rng_below(g, 64), NULL, NULL);
        } else if (what == 1) {
            step_tree(r, s, g);
        } else if (what == 2) {
            draft(r, s, tokens[0], scrap);
        } else if (what == 3) {
            step_truncate(r, s, g);
        } else if (what == 4) {
            step_checkpoint(r, s, g, &c);
        } else {
            assert_int_equal(sequence_fork(s, &fork, &r->e), 0);
            tiny_rig_prompt(r, s, tokens, 40, 64, NULL, NULL); // must not reach the fork
            draft(r, s, 3, scrap);
            sequence_destroy(s);
            s = fork;
        }
    }
    checkpoint_destroy(c);
    free(scrap);
    return s;
}

// However a sequence came about, it drafts and goes on as one prompt over its tokens does.
static void check_pieces(struct tiny_rig *r, uint64_t seed) {
    struct rng g = {rng_mix(seed)};
    struct block *want = block_new(), *got = block_new();
    float last[2][VOCAB];
    int32_t next = 9;
    struct sequence *s = wander(r, &g, 24), *plain = tiny_rig_sequence(r);
    tiny_rig_prompt(r, plain, sequence_tokens(s), sequence_len(s), 512, NULL, NULL);
    draft(r, plain, 11, want);
    draft(r, s, 11, got);
    assert_true(equal(want, got));
    tiny_rig_prompt(r, plain, &next, 1, 1, NULL, last[0]);
    tiny_rig_prompt(r, s, &next, 1, 1, NULL, last[1]);
    assert_memory_equal(last[0], last[1], sizeof last[0]);
    sequence_destroy(s);
    sequence_destroy(plain);
    free(want);
    free(got);
}

static void test_pieces(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = mixed_draft(&shape);
    struct tiny_rig r;
    shape.context = 4096;
    tiny_rig_open(&r, &shape, &d, NULL, "auto", 1);
    for (uint64_t seed = 0; seed < 30; seed++)
        check_pieces(&r, seed);
    tiny_rig_close(&r);
}

// What was precomputed for a tree's rows is what the draft goes on from: their features are gone.
static void test_precomputed(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = mixed_draft(&shape);
    struct block *want = block_new(), *got = block_new();
    struct tiny_rig r;
    int used = 0;
    tiny_rig_open(&r, &shape, &d, NULL, "auto", 1);
    for (uint64_t seed = 1; seed <= 10; seed++) {
        struct rng g = {rng_mix(seed)};
        int32_t tokens[40];
        struct sequence *s = tiny_rig_sequence(&r), *plain = tiny_rig_sequence(&r);
        tiny_rig_tokens(&r, seed, tokens, 40);
        tiny_rig_prompt(&r, s, tokens, 40, 64, NULL, NULL);
        draft(&r, s, 5, got);
        step_tree(&r, s, &g);
        struct dflash_state *state_s = dflash_state_of(r.d, s);
        const int64_t n = state_s->n_seen, dim = r.d->params.n_taps * r.d->target->params.dim;
        if (r.d->precomputed_pass && state_s->seen_pass == r.d->precomputed_pass) {
            assert_int_equal(n, sequence_len(s) - 40);
            memset(state_s->pending, 0, (size_t)(n * dim) * sizeof *state_s->pending);
            used++;
        }
        draft(&r, s, 11, got);
        tiny_rig_prompt(&r, plain, sequence_tokens(s), sequence_len(s), 512, NULL, NULL);
        draft(&r, plain, 11, want);
        assert_true(equal(want, got));
        sequence_destroy(s);
        sequence_destroy(plain);
    }
    assert_in_range(used, 2, 8);
    tiny_rig_close(&r);
    free(want);
    free(got);
}

static void test_many(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = mixed_draft(&shape);
    struct tiny_rig r;
    struct sequence *s[3];
    struct block *alone = block_new(), *all = calloc(3, sizeof *all);
    int32_t tokens[LONG], anchors[3] = {1, 2, 3};
    tiny_rig_open(&r, &shape, &d, NULL, "auto", 2);
    tiny_rig_tokens(&r, 8, tokens, LONG);
    for (int i = 0; i < 3; i++) {
        s[i] = tiny_rig_sequence(&r);
        tiny_rig_prompt(&r, s[i], tokens, 20 + 60 * i, 64, NULL, NULL);
    }
    assert_int_equal(dflash_draft(r.d, s, anchors, 3, &r.e), 0);
    tiny_rig_draft_logits(&r, 0, 3 * ROWS, all->row[0]);
    for (int i = 0; i < 3; i++) {
        draft(&r, s[i], anchors[i], alone);
        assert_true(equal(&all[i], alone));
        sequence_destroy(s[i]);
    }
    free(alone);
    free(all);
    tiny_rig_close(&r);
}

// Tries to load a draft of this shape for the rig's target.
static int try_load(struct tiny_rig *r, const struct tiny_shape *t,
                    const struct tiny_draft_shape *shape, const struct dflash_options *o) {
    struct dflash *d = NULL;
    char path[128];
    snprintf(path, sizeof path, "%s/other.gguf", r->dir);
    assert_int_equal(tiny_draft_write(t, shape, path, &r->e), 0);
    int code = dflash_load(&d, r->m, path, o, &r->e);
    if (!code)
        assert_string_equal(dflash_params_of(d)->dialect, "lucebox");
    dflash_destroy(d);
    unlink(path);
    return code;
}

static void test_fit(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default(), wide = shape;
    struct tiny_draft_shape good = tiny_draft_default(&shape), d = good;
    struct dflash_options o = dflash_options_default();
    struct tiny_rig r;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    assert_int_equal(try_load(&r, &shape, &good, &o), 0);
    assert_int_equal(try_load(&r, &shape, &good, &o), 0); // a detached target takes another one
    wide.dim = 96;
    assert_int_equal(try_load(&r, &wide, &good, &o), ERR_MISMATCH);
    assert_non_null(strstr(r.e.text, "96"));
    d.taps[1] = 4;
    assert_int_equal(try_load(&r, &shape, &d, &o), ERR_MISMATCH);
    assert_non_null(strstr(r.e.text, "layer 4"));
    d = good;
    d.mask = VOCAB;
    assert_int_equal(try_load(&r, &shape, &d, &o), ERR_MISMATCH);
    assert_non_null(strstr(r.e.text, "mask"));
    o.mask_id = 5;
    assert_int_equal(try_load(&r, &shape, &d, &o), 0);
    o = dflash_options_default();
    o.n_taps = 3;
    assert_int_equal(try_load(&r, &shape, &good, &o), ERR_MISMATCH);
    struct dflash *none = NULL;
    o = dflash_options_default();
    assert_int_equal(dflash_load(&none, r.m, r.target_path, &o, &r.e), ERR_MISMATCH);
    assert_non_null(strstr(r.e.text, "qwen35"));
    assert_int_not_equal(dflash_load(&none, r.m, "/nonexistent.gguf", &o, &r.e), 0);
    tiny_rig_close(&r);
}

// Sequences from before the draft run on, but cannot be drafted for.
static void test_late_draft(void **state) {
    (void)state;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape shape_d = tiny_draft_default(&shape);
    struct dflash_options o = dflash_options_default();
    struct dflash *d = NULL;
    struct tiny_rig r;
    int32_t tokens[100], anchor = 1;
    tiny_rig_open(&r, &shape, NULL, NULL, "auto", 1);
    tiny_rig_tokens(&r, 8, tokens, 100);
    struct sequence *s = tiny_rig_sequence(&r);
    assert_int_equal(tiny_draft_write(&shape, &shape_d, r.draft_path, &r.e), 0);
    assert_int_equal(dflash_load(&d, r.m, r.draft_path, &o, &r.e), 0);
    tiny_rig_prompt(&r, s, tokens, 100, 64, NULL, NULL);
    assert_int_equal(dflash_draft(d, &s, &anchor, 1, &r.e), ERR_MISMATCH);
    sequence_destroy(s);
    s = NULL;
    assert_int_equal(model_sequence(r.m, &s, &r.e), 0); // with state of a draft that reads no more
    model_detach(r.m, &d->kind);
    forest_reset(&r.f);
    forest_root(&r.f, 0, 0, 1, true);
    assert_int_equal(model_forward(r.m, &r.f, &s, 1, &r.e), ERR_MISMATCH);
    sequence_destroy(s);
    s = NULL;
    dflash_destroy(d);
    d = NULL;
    assert_int_equal(dflash_load(&d, r.m, r.draft_path, &o, &r.e), 0);
    struct dflash *second = NULL;
    assert_int_equal(dflash_load(&second, r.m, r.draft_path, &o, &r.e), ERR_STATE);
    sequence_destroy(s);
    dflash_destroy(d);
    tiny_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_dialects),      cmocka_unit_test(test_masks),
        cmocka_unit_test(test_shorter_block), cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_many),
        cmocka_unit_test(test_precomputed),   cmocka_unit_test(test_fit),
        cmocka_unit_test(test_late_draft),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
