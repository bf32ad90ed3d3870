// SPDX-License-Identifier: Apache-2.0
// Prompts that are read sparsely, through sessions: a reply is the same for all ways of cutting the
// prompt, threads, guessing, and after its state was dropped, cut back, or came from a file; states
// of another rule are refused.
#include <stdio.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/batch/batch.h"
#include "engine/batch/transcript.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

#define ARRAY(a) (sizeof(a) / sizeof *(a))

enum { PROMPT = 777, NEW = 24 };

struct fixture {
    struct tiny_pair files;
    int32_t prompt[PROMPT];
    struct sparse_rule rule;
};

static int setup(void **state) {
    static struct fixture f;
    struct rng g = {5};
    *state = &f;
    for (int i = 0; i < PROMPT; i++)
        f.prompt[i] = (int32_t)rng_below(&g, 250);
    f.rule = (struct sparse_rule){true, 0.7f, 0, 1};
    return tiny_pair_write(&f.files, "sparse");
}

static int teardown(void **state) {
    struct fixture *f = *state;
    tiny_pair_remove(&f->files);
    return 0;
}

static struct session *open_session(const struct fixture *f, const struct sparse_rule *rule,
                                    int chunk, int threads) {
    struct session_options o = session_options_default();
    struct session *s;
    struct err e = {0};
    o.model = f->files.target;
    o.draft = f->files.draft;
    o.device = "cpu";
    o.threads = threads;
    o.chunk = chunk;
    o.target.max_ctx = 1000;
    o.target.sparse = *rule;
    if (session_open(&s, &o, &e))
        fail_msg("%s", e.text);
    return s;
}

static struct request request_of(const struct fixture *f, enum speculate how) {
    struct request r;
    request_init(&r);
    r.prompt = f->prompt;
    r.n_prompt = PROMPT;
    r.max_tokens = NEW;
    r.ignore_eos = true;
    r.logit_hash = true;
    r.how = how;
    r.auto_budget = false;
    r.tree.budget = 12;
    return r;
}

static uint64_t hash_of(struct session *s, const struct request *r) {
    struct reply y;
    struct err e = {0};
    if (session_generate(s, r, &y, &e))
        fail_msg("%s", e.text);
    uint64_t hash = y.hash;
    assert_int_equal(y.n, r->max_tokens);
    reply_fini(&y);
    return hash;
}

static uint64_t hash_with(const struct fixture *f, const struct sparse_rule *rule, int chunk,
                          int threads, enum speculate how) {
    struct session *s = open_session(f, rule, chunk, threads);
    struct request r = request_of(f, how);
    uint64_t hash = hash_of(s, &r);
    session_close(s);
    return hash;
}

// Neither chunks nor threads nor guesses change a bit; the rule does, and alpha = 0 does not.
static void test_chunks(void **state) {
    const struct fixture *f = *state;
    static const int chunks[] = {1, 7, 33, 64, 127, 128, 129, 300};
    static const enum speculate ways[] = {SPECULATE_TREE, SPECULATE_LOOKUP, SPECULATE_CHAIN};
    const struct sparse_rule none = {0}, all = {.on = true};
    uint64_t want = hash_with(f, &f->rule, 512, 2, SPECULATE_OFF);
    for (size_t i = 0; i < ARRAY(chunks); i++)
        assert_true(hash_with(f, &f->rule, chunks[i], 1 + (int)i % 2,
                              i % 2 ? SPECULATE_OFF : ways[i % 3]) == want);
    uint64_t dense = hash_with(f, &none, 512, 2, SPECULATE_OFF);
    assert_true(want != dense);
    assert_true(hash_with(f, &all, 33, 1, SPECULATE_TREE) == dense);
}

// A job whose state is dropped in the middle of its reply, and one that goes on from a prefix.
static void test_again(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, &f->rule, 200, 2);
    struct request r = request_of(f, SPECULATE_TREE);
    struct sequence *prefix = NULL;
    struct reply y;
    struct batch *b;
    struct job *j;
    uint64_t want = hash_of(s, &r);
    int stepped = 1, drops = 0;
    assert_int_equal(batch_create(&b, s, 1, NULL), 0);
    assert_int_equal(batch_join(b, &r, &y, &j, NULL), 0);
    while (!job_ended(j)) {
        assert_int_equal(batch_step(b, &stepped, NULL), 0);
        if (y.n > 8 && !drops++)
            assert_int_equal(job_drop(j, NULL), 0);
    }
    assert_true(y.recomputed > PROMPT && y.hash == want);
    batch_destroy(b);
    reply_fini(&y);
    assert_int_equal(session_prefill(s, f->prompt, 600, &prefix, NULL), 0);
    r.prefix = prefix;
    assert_true(hash_of(s, &r) == want);
    // What has been read densely does not become sparse.
    r.prefix = NULL;
    r.in_place = prefix;
    r.sparse_end = 300;
    struct err e = {0};
    assert_int_equal(session_generate(s, &r, &y, &e), ERR_STATE);
    assert_non_null(strstr(e.text, "read as a prompt up to token 600"));
    reply_fini(&y);
    sequence_destroy(prefix);
    session_close(s);
}

static uint64_t go_on(struct transcript *t, const struct fixture *f, int64_t n) {
    struct request r = request_of(f, SPECULATE_TREE);
    struct reply y;
    r.max_tokens = n;
    assert_int_equal(transcript_generate(t, &r, &y, NULL), 0);
    uint64_t hash = y.hash;
    reply_fini(&y);
    return hash;
}

// A second turn after a reply: undisturbed, after the reply was cut back and made again, and from
// a file, where the state ends within the reply.
static void test_turns(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, &f->rule, 150, 2);
    struct transcript *t, *u;
    struct snapshot *mark;
    char path[64];
    snprintf(path, sizeof path, "/tmp/test_sparse_%d.ckpt", (int)getpid());
    assert_int_equal(transcript_create(&t, s, NULL), 0);
    assert_int_equal(transcript_append(t, f->prompt, 600, NULL), 0);
    go_on(t, f, 50);
    assert_int_equal(transcript_fork(t, &u, NULL), 0);
    assert_int_equal(transcript_append(t, f->prompt + 600, 150, NULL), 0);
    uint64_t want = go_on(t, f, NEW);
    assert_int_equal(transcript_cut(t, 720, NULL), 0); // within the second turn
    assert_int_equal(transcript_cut(t, 641, NULL), 0); // and the reply: some of it is run again
    assert_int_equal(transcript_append(t, transcript_tokens(u) + 641, 9, NULL), 0);
    assert_int_equal(transcript_append(t, f->prompt + 600, 150, NULL), 0);
    assert_true(go_on(t, f, NEW) == want);
    assert_int_equal(transcript_save(u, &mark, NULL), 0);
    assert_int_equal(snapshot_write(mark, path, NULL), 0);
    snapshot_destroy(mark);
    assert_int_equal(snapshot_read(&mark, s, path, NULL), 0);
    assert_int_equal(transcript_restore(t, mark, NULL), 0);
    snapshot_destroy(mark);
    assert_int_equal(transcript_append(t, f->prompt + 600, 150, NULL), 0);
    assert_true(go_on(t, f, NEW) == want);
    transcript_destroy(t);
    transcript_destroy(u);
    session_close(s);
    // Another rule, and none.
    const struct sparse_rule rules[] = {{0}, {true, 0.5f, 0, 1}, {true, 0.7f, 0, 2}};
    for (size_t i = 0; i < ARRAY(rules); i++) {
        struct err e = {0};
        s = open_session(f, &rules[i], 150, 2);
        assert_int_equal(snapshot_read(&mark, s, path, &e), ERR_MISMATCH);
        assert_non_null(strstr(e.text, "--sparse-prefill"));
        session_close(s);
    }
    unlink(path);
}

// A prompt that grows before anything is chosen is one prompt, however it came.
static void test_growing(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, &f->rule, 150, 2);
    struct request r = request_of(f, SPECULATE_OFF);
    struct transcript *t;
    struct snapshot *mark;
    char path[64];
    uint64_t want = hash_of(s, &r);
    snprintf(path, sizeof path, "/tmp/test_sparse_grow_%d.ckpt", (int)getpid());
    assert_int_equal(transcript_create(&t, s, NULL), 0);
    assert_int_equal(transcript_append(t, f->prompt, 500, NULL), 0);
    go_on(t, f, 0);
    assert_int_equal(transcript_save(t, &mark, NULL), 0);
    assert_int_equal(snapshot_write(mark, path, NULL), 0);
    snapshot_destroy(mark);
    go_on(t, f, 10);
    assert_int_equal(transcript_cut(t, 480, NULL), 0);
    assert_int_equal(transcript_append(t, f->prompt + 480, PROMPT - 480, NULL), 0);
    assert_true(go_on(t, f, NEW) == want);
    assert_int_equal(snapshot_read(&mark, s, path, NULL), 0);
    assert_int_equal(transcript_restore(t, mark, NULL), 0);
    snapshot_destroy(mark);
    assert_int_equal(transcript_append(t, f->prompt + 500, PROMPT - 500, NULL), 0);
    assert_true(go_on(t, f, NEW) == want);
    transcript_destroy(t);
    session_close(s);
    unlink(path);
}

static void test_refused(void **state) {
    const struct fixture *f = *state;
    struct session_options o = session_options_default();
    struct session *s;
    struct err e = {0};
    o.model = f->files.target;
    o.device = "cpu";
    o.target.sparse = (struct sparse_rule){true, 2, 0, 1};
    assert_int_equal(session_open(&s, &o, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "alpha"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),  cmocka_unit_test(test_again),
        cmocka_unit_test(test_turns),   cmocka_unit_test(test_growing),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
