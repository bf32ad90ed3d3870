// SPDX-License-Identifier: Apache-2.0
// Transcripts under random appends, cuts, replies, forks and restores: whatever was done to one,
// its next tokens and their logits are those of a fresh run over the same tokens, and no more is
// run than the rules of cutting back request. Then allocations that fail.
#include "test.h"

#include "base/rng.h"
#include "engine/batch/batch.h"
#include "engine/batch/transcript.h"
#include "ops/exec.h"
#include "support/tiny_gguf.h"

enum { CONTEXT = 400, TEXTS = 3, MARKS = 2, ROUNDS = 250 };

struct fixture {
    struct tiny_pair files;
    struct session *s;
};

static int setup(void **state) {
    static struct fixture f;
    struct session_options o = session_options_default();
    if (tiny_pair_write(&f.files, "transcript"))
        return -1;
    o.model = f.files.target;
    o.draft = f.files.draft;
    o.device = "cpu";
    o.threads = 1;
    o.chunk = 50;
    o.target.max_ctx = CONTEXT;
    *state = &f;
    return session_open(&f.s, &o, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    session_close(f->s);
    tiny_pair_remove(&f->files);
    return 0;
}

static struct request request_of(int64_t n, int how) {
    struct request r;
    request_init(&r);
    r.max_tokens = n;
    r.ignore_eos = r.logit_hash = true;
    r.how = (enum speculate)how;
    return r;
}

// Generates n tokens and checks them against a fresh run.
static void reply_as_fresh(struct fixture *f, struct transcript *t, int64_t n, int how) {
    struct request r = request_of(n, how);
    struct reply y, want;
    int64_t len = transcript_len(t), ready = transcript_ready(t);
    r.prompt = transcript_tokens(t);
    r.n_prompt = len;
    r.how = SPECULATE_OFF;
    assert_int_equal(session_generate(f->s, &r, &want, NULL), 0);
    r.how = (enum speculate)how;
    assert_int_equal(transcript_generate(t, &r, &y, NULL), 0);
    assert_int_equal(y.n, want.n);
    assert_int_equal(y.hash, want.hash);
    assert_memory_equal(y.ids, want.ids, (size_t)y.n * sizeof *y.ids);
    assert_int_equal(transcript_len(t), len + y.n);
    assert_int_equal(transcript_ready(t), len + y.n - 1);
    if (ready < len)
        assert_int_equal(y.fed, len - ready);
    assert_int_equal(want.fed, len);
    reply_fini(&y);
    reply_fini(&want);
}

// One random operation on text `at`; may put another text or mark in place of an old one.
static void do_something(struct fixture *f, struct rng *r, struct transcript **texts,
                         struct snapshot **marks) {
    int at = (int)rng_below(r, TEXTS), other = (int)rng_below(r, TEXTS);
    int mark = (int)rng_below(r, MARKS);
    struct transcript *t = texts[at], *copy = NULL;
    int64_t len = transcript_len(t), ready = transcript_ready(t);
    int32_t ids[40];
    int n = 1 + (int)rng_below(r, 40);
    switch (rng_below(r, 6)) {
    case 0:
        for (int i = 0; i < n; i++)
            ids[i] = (int32_t)rng_below(r, 256);
        assert_int_equal(transcript_append(t, ids, len + n < CONTEXT - 45 ? n : 0, NULL), 0);
        break;
    case 1:
        n = (int)rng_below(r, (uint32_t)len + 1);
        assert_int_equal(transcript_cut(t, n, NULL), 0);
        assert_int_equal(transcript_len(t), n);
        assert_int_equal(transcript_ready(t), ready <= n             ? ready
                                              : ready / 32 * 32 <= n ? ready / 32 * 32
                                                                     : 0);
        break;
    case 2:
        if (at == other || transcript_fork(t, &copy, NULL))
            break;
        transcript_destroy(texts[other]);
        texts[other] = copy;
        break;
    case 3:
        snapshot_destroy(marks[mark]);
        assert_int_equal(transcript_save(t, &marks[mark], NULL), 0);
        assert_true(snapshot_bytes(marks[mark]) > len * 4);
        break;
    case 4:
        if (!marks[mark])
            break;
        assert_int_equal(transcript_restore(t, marks[mark], NULL), 0);
        assert_true(transcript_len(t) >= snapshot_ready(marks[mark]));
        break;
    default:
        if (len > 0 && len < CONTEXT - 45)
            reply_as_fresh(f, t, 1 + n, (int)rng_below(r, SPECULATE_OFF + 1));
    }
}

static void anything_goes_on_as_fresh(void **state) {
    struct fixture *f = *state;
    struct transcript *texts[TEXTS] = {0};
    struct snapshot *marks[MARKS] = {0};
    struct rng r = {.state = 7};
    for (int i = 0; i < TEXTS; i++)
        assert_int_equal(transcript_create(&texts[i], f->s, NULL), 0);
    for (int i = 0; i < ROUNDS; i++)
        do_something(f, &r, texts, marks);
    for (int i = 0; i < TEXTS; i++) {
        int32_t one = 65;
        int64_t len = transcript_len(texts[i]);
        assert_int_equal(transcript_cut(texts[i], len < 300 ? len : 300, NULL), 0);
        assert_int_equal(transcript_append(texts[i], &one, 1, NULL), 0);
        reply_as_fresh(f, texts[i], 5, SPECULATE_TREE);
        transcript_destroy(texts[i]);
    }
    for (int i = 0; i < MARKS; i++)
        snapshot_destroy(marks[i]);
}

static void refuses_what_cannot_be(void **state) {
    struct fixture *f = *state;
    struct transcript *t = NULL;
    struct err e = {0};
    struct reply y;
    struct request r = request_of(3, SPECULATE_OFF);
    const int32_t wrong[] = {1, -1};
    assert_int_equal(transcript_create(&t, f->s, NULL), 0);
    for (int64_t n = 0; n < 2; n++) {
        r.max_tokens = n;
        assert_int_equal(transcript_generate(t, &r, &y, &e), ERR_USAGE);
        assert_non_null(strstr(e.text, "empty"));
    }
    assert_int_equal(transcript_append(t, wrong, 2, &e), ERR_MISMATCH);
    assert_non_null(strstr(e.text, "-1 at place 1"));
    assert_int_equal(transcript_append(t, wrong, -1, &e), ERR_USAGE);
    assert_int_equal(transcript_cut(t, 1, &e), ERR_USAGE);
    assert_int_equal(transcript_cut(t, 0, &e), 0);
    assert_int_equal(transcript_len(t), 0);
    transcript_destroy(t);
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

static int attempt(struct transcript *t, const struct snapshot *mark, int kind) {
    struct request r = request_of(70, SPECULATE_TREE);
    struct transcript *copy = NULL;
    struct snapshot *b = NULL;
    struct reply y = {0};
    int rc;
    switch (kind) {
    case 0:
        rc = transcript_fork(t, &copy, NULL);
        transcript_destroy(copy);
        return rc;
    case 1:
        rc = transcript_save(t, &b, NULL);
        snapshot_destroy(b);
        return rc;
    case 2:
        return transcript_restore(t, mark, NULL);
    default:
        rc = transcript_generate(t, &r, &y, NULL);
        reply_fini(&y);
        return rc;
    }
}

static void failed_allocations_break_nothing(void **state) {
    struct fixture *f = *state;
    struct exec *x = model_exec(session_model(f->s));
    const struct ops *good = exec_ops(x);
    struct ops broken = *good;
    int32_t ids[100];
    int failures = 0;
    real_alloc = good->alloc;
    real_alloc_in = x->alloc_in;
    broken.alloc = failing_alloc;
    for (int i = 0; i < 100; i++)
        ids[i] = 32 + i;
    for (int kind = 0; kind < 4; kind++) {
        for (int at = 0, rc = -1; rc != 0; at++) {
            struct transcript *t = NULL, *hold = NULL;
            struct snapshot *mark = NULL;
            assert_int_equal(transcript_create(&t, f->s, NULL), 0);
            assert_int_equal(transcript_append(t, ids, 100, NULL), 0);
            reply_as_fresh(f, t, 3, SPECULATE_OFF);
            assert_int_equal(transcript_fork(t, &hold, NULL), 0); // shared pages must be copied
            assert_int_equal(transcript_save(hold, &mark, NULL), 0);
            if (kind == 3)
                assert_int_equal(transcript_cut(t, 40, NULL), 0);
            fail_at = at;
            x->ops = &broken;
            x->alloc_in = failing_alloc_in;
            rc = attempt(t, mark, kind);
            x->ops = good;
            x->alloc_in = real_alloc_in;
            failures += rc != 0;
            assert_true(rc == 0 || rc == ERR_MEMORY);
            reply_as_fresh(f, t, 3, SPECULATE_TREE);
            reply_as_fresh(f, hold, 3, SPECULATE_OFF);
            snapshot_destroy(mark);
            transcript_destroy(t);
            transcript_destroy(hold);
            assert_true(at < 60);
        }
    }
    assert_true(failures >= 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(anything_goes_on_as_fresh),
        cmocka_unit_test(refuses_what_cannot_be),
        cmocka_unit_test(failed_allocations_break_nothing),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
