// SPDX-License-Identifier: Apache-2.0
// Sequences over a real tiny model: cutting back, checkpoints, forks, and every allocation that can
// fail failing once, after which the sequence must go on as if nothing had been called.
#include <stdlib.h>

#include "base/rng.h"
#include "formats/quant/quant.h"
#include "models/draft/dflash/impl.h"
#include "ops/exec.h"
#include "support/tiny_rig.h"
#include "unit/test.h"

enum { LONG = 300 };

static void open_rig(struct tiny_rig *r) {
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    d.layers = 3;
    d.window = 20;
    tiny_rig_open(r, &shape, &d, NULL, "auto", 1);
}

static void same_answer(const struct tiny_answer *a, const struct tiny_answer *b) {
    assert_memory_equal(a, b, sizeof *a);
}

// The answer of a fresh sequence over these tokens.
static struct tiny_answer fresh_answer(struct tiny_rig *r, const int32_t *tokens, int64_t n) {
    struct sequence *s = tiny_rig_sequence(r);
    tiny_rig_prompt(r, s, tokens, n, 64, NULL, NULL);
    struct tiny_answer a = tiny_rig_ask(r, s);
    sequence_destroy(s);
    return a;
}

static void test_truncate(void **state) {
    (void)state;
    static const struct {
        int64_t len, to, kept;
    } cases[] = {{70, 70, 70}, {70, 69, 64},    {70, 64, 64}, {70, 63, 0},
                 {64, 64, 64}, {64, 63, 0},     {63, 40, 32}, {31, 30, 0},
                 {33, 32, 32}, {129, 128, 128}, {150, 0, 0},  {0, 0, 0}};
    struct tiny_rig r;
    int32_t tokens[LONG];
    open_rig(&r);
    tiny_rig_tokens(&r, 1, tokens, LONG);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int drafted = 0; drafted < 2; drafted++) {
            int64_t kept = -1, to = cases[i].to;
            int32_t anchor = 1;
            struct sequence *s = tiny_rig_sequence(&r);
            tiny_rig_prompt(&r, s, tokens, cases[i].len, 64, NULL, NULL);
            if (drafted)
                assert_int_equal(dflash_draft(r.d, &s, &anchor, 1, &r.e), 0);
            assert_int_equal(sequence_truncate(s, to, &kept, &r.e), 0);
            assert_int_equal(kept, cases[i].kept);
            assert_int_equal(sequence_len(s), kept);
            assert_memory_equal(sequence_tokens(s) ? sequence_tokens(s) : tokens, tokens,
                                (size_t)kept * sizeof *tokens);
            tiny_rig_prompt(&r, s, tokens + kept, to - kept, 64, NULL, NULL);
            struct tiny_answer a = tiny_rig_ask(&r, s), b = fresh_answer(&r, tokens, to);
            same_answer(&a, &b);
            assert_int_equal(sequence_truncate(s, to + 2, &kept, &r.e), ERR_USAGE);
            assert_int_equal(sequence_truncate(s, -1, &kept, &r.e), ERR_USAGE);
            sequence_destroy(s);
        }
    }
    tiny_rig_close(&r);
}

// Checkpoints at every stage, restored in any order, into another sequence too.
static void test_checkpoints(void **state) {
    (void)state;
    struct tiny_rig r;
    struct checkpoint *c[10];
    int32_t tokens[LONG];
    open_rig(&r);
    tiny_rig_tokens(&r, 2, tokens, LONG);
    struct sequence *s = tiny_rig_sequence(&r), *other = tiny_rig_sequence(&r);
    for (int i = 0; i < 10; i++) {
        assert_int_equal(sequence_checkpoint(s, &c[i], &r.e), 0);
        assert_int_equal(checkpoint_len(c[i]), 29 * i / 32 * 32);
        assert_memory_equal(checkpoint_tokens(c[i]), tokens,
                            (size_t)checkpoint_len(c[i]) * sizeof *tokens);
        assert_true(checkpoint_bytes(c[i]) > 0);
        tiny_rig_prompt(&r, s, tokens + 29 * i, 29, 64, NULL, NULL);
        int32_t anchor = 3;
        if (i % 3 == 0) // some with drafted context, some with pending features
            assert_int_equal(dflash_draft(r.d, &s, &anchor, 1, &r.e), 0);
    }
    for (int i = 0; i < 10; i++) {
        int at = (i * 7 + 3) % 10;
        struct sequence *to = i % 2 ? s : other;
        assert_int_equal(sequence_restore(to, c[at], &r.e), 0);
        int64_t len = sequence_len(to);
        assert_int_equal(len, checkpoint_len(c[at]));
        tiny_rig_prompt(&r, to, tokens + len, 20, 64, NULL, NULL);
        struct tiny_answer a = tiny_rig_ask(&r, to), b = fresh_answer(&r, tokens, len + 20);
        same_answer(&a, &b);
    }
    sequence_destroy(s); // checkpoints outlive the sequence
    assert_int_equal(sequence_restore(other, c[9], &r.e), 0);
    struct tiny_answer a = tiny_rig_ask(&r, other),
                       b = fresh_answer(&r, tokens, checkpoint_len(c[9]));
    same_answer(&a, &b);
    sequence_destroy(other);
    for (int i = 0; i < 10; i++)
        checkpoint_destroy(c[i]);
    tiny_rig_close(&r);
}

static void test_fork(void **state) {
    (void)state;
    struct tiny_rig r;
    int32_t tokens[LONG], ours[40], theirs[40];
    open_rig(&r);
    tiny_rig_tokens(&r, 3, tokens, LONG);
    tiny_rig_tokens(&r, 4, ours, 40);
    tiny_rig_tokens(&r, 5, theirs, 40);
    struct sequence *s = tiny_rig_sequence(&r), *f;
    tiny_rig_prompt(&r, s, tokens, 77, 64, NULL, NULL);
    assert_int_equal(sequence_fork(s, &f, &r.e), 0);
    for (int i = 0; i < 40; i += 5) { // taking turns
        tiny_rig_prompt(&r, s, ours + i, 5, 64, NULL, NULL);
        tiny_rig_prompt(&r, f, theirs + i, 5, 64, NULL, NULL);
    }
    struct tiny_answer a = tiny_rig_ask(&r, s), b = tiny_rig_ask(&r, f);
    memcpy(tokens + 77, ours, sizeof ours);
    struct tiny_answer want = fresh_answer(&r, tokens, 117);
    same_answer(&want, &a);
    memcpy(tokens + 77, theirs, sizeof theirs);
    want = fresh_answer(&r, tokens, 117);
    same_answer(&want, &b);
    sequence_destroy(f);
    sequence_destroy(s);
    tiny_rig_close(&r);
}

// Without recurrent layers: cuts, checkpoints and forks at any length, and pages shared up to it.
static void test_without_recurrent(void **state) {
    (void)state;
    static const int64_t cuts[][2] = {{150, 149}, {150, 129}, {150, 128}, {150, 127}, {150, 65},
                                      {150, 64},  {150, 63},  {150, 1},   {150, 0},   {64, 63},
                                      {65, 64},   {33, 32},   {31, 30},   {200, 130}};
    struct tiny_rig r;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    int32_t tokens[LONG], anchor = 1;
    shape.interval = 1;
    tiny_rig_open(&r, &shape, &d, NULL, "auto", 1);
    assert_int_equal(model_params_of(r.m)->n_full, shape.layers);
    tiny_rig_tokens(&r, 7, tokens, LONG);
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        int64_t len = cuts[i][0], to = cuts[i][1], kept = -1;
        struct sequence *s = tiny_rig_sequence(&r), *whole, *f;
        struct checkpoint *c;
        tiny_rig_prompt(&r, s, tokens, len, 64, NULL, NULL);
        if (i % 2)
            assert_int_equal(dflash_draft(r.d, &s, &anchor, 1, &r.e), 0);
        assert_int_equal(sequence_fork(s, &whole, &r.e), 0);
        assert_int_equal(sequence_truncate(s, to, &kept, &r.e), 0);
        assert_int_equal(kept, to);
        int64_t pages = kv_pool_used(r.m->groups[0].pool);
        assert_int_equal(pages, (len + KV_PAGE - 1) / KV_PAGE); // all shared
        assert_int_equal(sequence_checkpoint(s, &c, &r.e), 0);
        assert_int_equal(checkpoint_len(c), to);
        struct tiny_answer want = fresh_answer(&r, tokens, to),
                           long_want = fresh_answer(&r, tokens, len);
        struct tiny_answer a = tiny_rig_ask(&r, s); // writes where the others share
        same_answer(&a, &want);
        a = tiny_rig_ask(&r, whole);
        same_answer(&a, &long_want);
        assert_int_equal(sequence_restore(whole, c, &r.e), 0);
        assert_int_equal(sequence_fork(whole, &f, &r.e), 0);
        a = tiny_rig_ask(&r, whole);
        same_answer(&a, &want);
        a = tiny_rig_ask(&r, f);
        same_answer(&a, &want);
        checkpoint_destroy(c);
        sequence_destroy(f);
        sequence_destroy(whole);
        sequence_destroy(s);
    }
    tiny_rig_close(&r);
}

// What a windowed draft has dropped cannot be cut back to; then nothing is kept.
static void test_cut_past_window(void **state) {
    (void)state;
    struct tiny_rig r;
    struct tiny_shape shape = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&shape);
    int32_t tokens[LONG], anchor = 1;
    int all = 0, none = 0;
    shape.interval = 1;
    d.layers = 3;
    d.window = 20;
    tiny_rig_open(&r, &shape, &d, NULL, "auto", 1);
    tiny_rig_tokens(&r, 8, tokens, LONG);
    for (int64_t to = 250; to > 0; to -= 9) {
        struct sequence *s = tiny_rig_sequence(&r);
        int64_t kept = -1;
        tiny_rig_prompt(&r, s, tokens, 251, 64, NULL, NULL);
        assert_int_equal(dflash_draft(r.d, &s, &anchor, 1, &r.e), 0);
        assert_int_equal(sequence_truncate(s, to, &kept, &r.e), 0);
        // Pages below 251 - 20 - 64 are gone: the first two.
        assert_int_equal(kept, to - 20 + 1 >= 128 ? to : 0);
        all += kept == to;
        none += kept == 0;
        tiny_rig_prompt(&r, s, tokens + kept, to - kept, 64, NULL, NULL);
        struct tiny_answer a = tiny_rig_ask(&r, s), want = fresh_answer(&r, tokens, to);
        same_answer(&a, &want);
        sequence_destroy(s);
    }
    assert_true(all > 5 && none > 5);
    tiny_rig_close(&r);
}

// The n-th device allocation from now on fails.
static void *(*real_alloc)(struct exec *x, size_t bytes);
static int fail_at;
static void *failing_alloc(struct exec *x, size_t bytes) {
    return fail_at-- == 0 ? NULL : real_alloc(x, bytes);
}
static void *(*real_alloc_in)(struct exec *x, enum exec_arena arena, size_t bytes);
static void *failing_alloc_in(struct exec *x, enum exec_arena arena, size_t bytes) {
    return fail_at-- == 0 ? NULL : real_alloc_in(x, arena, bytes);
}

static int attempt(struct tiny_rig *r, struct sequence *s, const struct checkpoint *saved, int kind,
                   const int32_t *tokens) {
    struct checkpoint *c = NULL;
    struct sequence *f = NULL;
    int32_t anchor = 1;
    int code;
    switch (kind) {
    case 0:
        code = sequence_checkpoint(s, &c, &r->e);
        checkpoint_destroy(c);
        return code;
    case 1:
        code = sequence_fork(s, &f, &r->e);
        sequence_destroy(f);
        return code;
    case 2:
        code = sequence_restore(s, saved, &r->e);
        return code;
    case 3:
        forest_reset(&r->f);
        forest_chain(&r->f, 0, sequence_len(s), tokens, 130, true);
        return model_forward(r->m, &r->f, &s, 1, &r->e);
    default:
        return dflash_draft(r->d, &s, &anchor, 1, &r->e);
    }
}

// Of the target, and of the draft, which has two groups.
enum { DRAFT_GROUPS = 2 };
static int64_t pages_used(const struct tiny_rig *r) {
    int64_t n = 0;
    for (int i = 0; i < r->m->n_groups; i++)
        n += kv_pool_used(r->m->groups[i].pool);
    for (int i = 0; i < DRAFT_GROUPS; i++)
        n += kv_pool_used(r->d->pool[i]);
    return n;
}

static void test_failing_memory(void **state) {
    (void)state;
    struct tiny_rig r;
    int32_t tokens[LONG];
    open_rig(&r);
    tiny_rig_tokens(&r, 6, tokens, LONG);
    struct tiny_answer want = fresh_answer(&r, tokens, 100);
    struct ops broken = *exec_ops(r.x);
    const struct ops *good = exec_ops(r.x);
    int failures = 0;
    real_alloc = good->alloc;
    real_alloc_in = r.x->alloc_in;
    broken.alloc = failing_alloc;
    for (int kind = 0; kind < 5; kind++) {
        for (int at = 0, code = -1; code != 0; at++) {
            struct sequence *s = tiny_rig_sequence(&r), *hold;
            struct checkpoint *saved;
            tiny_rig_prompt(&r, s, tokens, 100, 64, NULL, NULL);
            assert_int_equal(sequence_fork(s, &hold, &r.e), 0); // shared pages must be copied
            assert_int_equal(sequence_checkpoint(hold, &saved, &r.e), 0);
            int64_t before = pages_used(&r);
            fail_at = at;
            r.x->ops = &broken;
            r.x->alloc_in = failing_alloc_in;
            code = attempt(&r, s, saved, kind, tokens);
            r.x->ops = good;
            r.x->alloc_in = real_alloc_in;
            if (code) {
                failures++;
                // No group keeps what another one lacks, but for copies of the page it ends in.
                assert_in_range(pages_used(&r), before, before + DRAFT_GROUPS);
                assert_int_equal(code, ERR_MEMORY);
                assert_int_equal(sequence_len(s), 100);
                struct tiny_answer got = tiny_rig_ask(&r, s);
                same_answer(&want, &got);
            }
            checkpoint_destroy(saved);
            sequence_destroy(s);
            sequence_destroy(hold);
            assert_true(at < 50);
        }
    }
    assert_true(failures > 5);
    tiny_rig_close(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_truncate),
        cmocka_unit_test(test_checkpoints),
        cmocka_unit_test(test_fork),
        cmocka_unit_test(test_without_recurrent),
        cmocka_unit_test(test_cut_past_window),
        cmocka_unit_test(test_failing_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
