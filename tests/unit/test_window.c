// SPDX-License-Identifier: Apache-2.0
// Replies that see a window of the text (--fa-window) or pages that are chosen (--kv-pool), through
// sessions: the same for all ways of guessing, chunks and threads, after the state was dropped,
// forked, cut back, or came from a file, and in a crowd; the same as without a rule as long as
// nothing is left out; states of another rule are refused.
#include <stdio.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/batch/batch.h"
#include "engine/batch/transcript.h"
#include "models/recall.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

#define ARRAY(a) (sizeof(a) / sizeof *(a))

enum { LONGEST = 701, NEW = 150, CROWD = 4, LRU = 1 << 20 };

// Rules: --fa-window; a pool of chosen pages by its tokens below 0, of the newest ones with LRU
// besides.
struct fixture {
    struct tiny_pair files;
    int64_t rule, other, whole; // the last leaves nothing out
    int64_t n;                  // tokens of the prompt
    int32_t prompt[LONGEST];
};

static struct fixture kinds[] = {{.rule = 128, .other = 64, .whole = 512, .n = 333},
                                 {.rule = -512, .other = -448, .whole = -1024, .n = LONGEST}};
static int kind; // which of them

static int prepare(void **state, struct fixture *f, const struct tiny_shape *t, const char *name) {
    struct tiny_draft_shape d = tiny_draft_default(t);
    struct rng g = {5};
    *state = f;
    for (int i = 0; i < LONGEST; i++)
        f->prompt[i] = (int32_t)rng_below(&g, 250);
    snprintf(f->files.target, sizeof f->files.target, "/tmp/test_window_%s_%d.gguf", name,
             (int)getpid());
    snprintf(f->files.draft, sizeof f->files.draft, "/tmp/test_window_%s_%d-draft.gguf", name,
             (int)getpid());
    int rc = tiny_target_write(t, f->files.target, NULL);
    return rc ? rc : tiny_draft_write(t, &d, f->files.draft, NULL);
}

static int setup_recurrent(void **state) {
    const struct tiny_shape t = tiny_shape_default();
    return prepare(state, &kinds[kind], &t, "recurrent");
}

static int setup_plain(void **state) {
    const struct tiny_shape t = tiny_shape_plain();
    return prepare(state, &kinds[kind], &t, "plain");
}

static int setup_latent(void **state) {
    struct tiny_shape t = tiny_shape_plain();
    t.form = TINY_FORM_DEEPSEEK;
    t.heads = 4;
    t.kv_heads = 2;
    t.rope_dims = t.head_dim / 2;
    tiny_shape_experts(&t);
    return prepare(state, &kinds[kind], &t, "latent");
}

static int teardown(void **state) {
    struct fixture *f = *state;
    tiny_pair_remove(&f->files);
    return 0;
}

static struct session *open_session(const struct fixture *f, int64_t rule, int chunk, int threads) {
    const int64_t pool = rule < -LRU ? -rule - LRU : rule < 0 ? -rule : 0;
    const struct view_options view = {.window = rule > 0 ? rule : 0,
                                      .pool = pool,
                                      .policy = !pool         ? NULL
                                                : rule < -LRU ? "lru"
                                                              : "qk"};
    struct session_options o = session_options_default();
    struct session *s;
    struct err e = {0};
    o.model = f->files.target;
    o.draft = f->files.draft;
    o.device = "cpu";
    o.threads = threads;
    o.chunk = chunk;
    o.target.max_ctx = 1000;
    if (view_rule_make(&o.target.view, &view, &e) || session_open(&s, &o, &e))
        fail_msg("%s", e.text);
    return s;
}

static struct request request_of(const struct fixture *f, enum speculate how) {
    struct request r;
    request_init(&r);
    r.prompt = f->prompt;
    r.n_prompt = f->n;
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

static uint64_t hash_with(const struct fixture *f, int64_t window, int chunk, int threads,
                          enum speculate how) {
    struct session *s = open_session(f, window, chunk, threads);
    struct request r = request_of(f, how);
    uint64_t hash = hash_of(s, &r);
    session_close(s);
    return hash;
}

// Guesses that are right: trees that would reach over the ends of views, if they were let.
static void test_right_guesses(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, f->rule, 512, 2);
    struct request r = request_of(f, SPECULATE_OFF);
    int32_t recording[LONGEST + NEW];
    struct reply y;
    assert_int_equal(session_generate(s, &r, &y, NULL), 0);
    const uint64_t want = y.hash;
    memcpy(recording, f->prompt, (size_t)f->n * sizeof *recording);
    memcpy(recording + f->n, y.ids, NEW * sizeof *recording);
    reply_fini(&y);
    r.how = SPECULATE_ORACLE;
    r.tree.max_depth = 15;
    r.oracle = (struct draft_config){.recording = recording, .n_recording = f->n + NEW};
    assert_int_equal(session_generate(s, &r, &y, NULL), 0);
    assert_true(y.hash == want && y.n == NEW && y.steps < NEW / 6);
    reply_fini(&y);
    session_close(s);
}

// Neither chunks nor threads nor guesses change a bit; the window does, and one that leaves nothing
// out does not.
static void test_ways(void **state) {
    const struct fixture *f = *state;
    static const int chunks[] = {1, 7, 64, 129, 300};
    static const enum speculate ways[] = {SPECULATE_TREE, SPECULATE_LOOKUP, SPECULATE_CHAIN,
                                          SPECULATE_OFF, SPECULATE_TREE};
    const uint64_t want = hash_with(f, f->rule, 512, 2, SPECULATE_OFF);
    for (size_t i = 0; i < ARRAY(chunks); i++)
        assert_true(hash_with(f, f->rule, chunks[i], 1 + (int)i % 2, ways[i]) == want);
    const uint64_t all = hash_with(f, 0, 512, 2, SPECULATE_OFF);
    assert_true(want != all);
    assert_true(hash_with(f, f->other, 512, 2, SPECULATE_OFF) != want);
    assert_true(hash_with(f, f->whole, 512, 2, SPECULATE_TREE) == all);
    assert_true(hash_with(f, 320, 512, 2, SPECULATE_OFF) ==
                hash_with(f, -LRU - 448, 100, 2, SPECULATE_TREE));
}

// Side by side with others, whose state is dropped in the middle of the reply, and from a prefix.
static void test_again(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, f->rule, 200, 2);
    struct request r = request_of(f, SPECULATE_TREE);
    struct sequence *prefix = NULL;
    struct reply y[CROWD];
    struct job *j[CROWD];
    struct batch *b;
    const uint64_t want = hash_of(s, &r);
    int stepped = 1, drops = 0;
    assert_int_equal(batch_create(&b, s, CROWD, NULL), 0);
    for (int i = 0; i < CROWD; i++) {
        r.how = i % 2 ? SPECULATE_OFF : SPECULATE_TREE;
        assert_int_equal(batch_join(b, &r, &y[i], &j[i], NULL), 0);
    }
    while (stepped) {
        assert_int_equal(batch_step(b, &stepped, NULL), 0);
        for (int i = 0; i < 2; i++)
            if (y[i].n > 70 + 20 * i && !job_ended(j[i]) && !(drops >> i & 1)) {
                assert_int_equal(job_drop(j[i], NULL), 0);
                drops |= 1 << i;
            }
    }
    assert_int_equal(drops, 3);
    for (int i = 0; i < CROWD; i++)
        assert_true(y[i].hash == want && y[i].n == NEW);
    assert_true(y[0].recomputed > f->n);
    batch_destroy(b);
    for (int i = 0; i < CROWD; i++)
        reply_fini(&y[i]);
    assert_int_equal(session_prefill(s, f->prompt, 200, &prefix, NULL), 0);
    r.prefix = prefix;
    assert_true(hash_of(s, &r) == want);
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

// A next turn is read from the last prompt's end on, also where states cannot be cut to it.
static void test_reads_again(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, f->rule, 150, 2);
    struct request r = request_of(f, SPECULATE_TREE);
    struct transcript *t;
    struct reply y;
    r.max_tokens = 90;
    assert_int_equal(transcript_create(&t, s, NULL), 0);
    assert_int_equal(transcript_append(t, f->prompt, f->n, NULL), 0);
    go_on(t, f, 90);
    assert_int_equal(transcript_append(t, f->prompt, 40, NULL), 0);
    assert_true(transcript_ready(t) > f->n - 32 && transcript_ready(t) <= f->n);
    assert_int_equal(transcript_generate(t, &r, &y, NULL), 0);
    assert_true(y.fed >= 130 && y.fed < 130 + 32);
    reply_fini(&y);
    assert_int_equal(transcript_cut(t, f->n, NULL), 0);
    assert_true(transcript_ready(t) == 0 || transcript_ready(t) == f->n);
    transcript_destroy(t);
    session_close(s);
}

// What is measured of choices changes nothing, and there is one for each page of positions.
static void test_recall(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, f->rule, 100, 2);
    const struct request r = request_of(f, SPECULATE_TREE);
    const uint64_t want = hash_of(s, &r);
    model_recall_begin(session_model(s));
    assert_true(hash_of(s, &r) == want);
    const struct model_recall y = model_recall_of(session_model(s));
    if (f->rule < 0) {
        const int64_t later = (f->n + NEW - 1) / KV_PAGE - f->n / KV_PAGE;
        assert_int_equal(y.n, 1 + later);
        assert_int_equal(y.n_last, later);
        assert_true(y.chosen > 0 && y.chosen < (double)y.n);
        assert_true(y.last > 0 && y.last < (double)y.n_last);
        assert_true(y.newest > 0 && y.newest < (double)y.n);
    } else {
        assert_int_equal(y.n, 0);
    }
    session_close(s);
}

// A reply in parts, cut back and made again, and from a file. A second turn reads all before it as
// a prompt, as does a text that holds the first reply from the begin.
static void test_turns(void **state) {
    const struct fixture *f = *state;
    struct session *s = open_session(f, f->rule, 150, 2);
    struct transcript *t, *u;
    struct snapshot *mark;
    char path[64];
    snprintf(path, sizeof path, "/tmp/test_window_%d.ckpt", (int)getpid());
    assert_int_equal(transcript_create(&t, s, NULL), 0);
    assert_int_equal(transcript_append(t, f->prompt, f->n, NULL), 0);
    go_on(t, f, 90);
    assert_int_equal(transcript_save(t, &mark, NULL), 0);
    assert_int_equal(snapshot_write(mark, path, NULL), 0);
    snapshot_destroy(mark);
    assert_int_equal(transcript_fork(t, &u, NULL), 0);
    const uint64_t want = go_on(t, f, 60);
    assert_true(go_on(u, f, 60) == want);
    assert_int_equal(transcript_cut(u, f->n + 90, NULL), 0);
    assert_true(go_on(u, f, 60) == want);
    assert_int_equal(snapshot_read(&mark, s, path, NULL), 0);
    assert_int_equal(snapshot_prompt(mark), f->n);
    assert_int_equal(transcript_restore(u, mark, NULL), 0);
    assert_true(go_on(u, f, 60) == want);
    assert_int_equal(transcript_append(t, f->prompt, 50, NULL), 0);
    const uint64_t second = go_on(t, f, NEW);
    transcript_destroy(u);
    assert_int_equal(transcript_create(&u, s, NULL), 0);
    assert_int_equal(transcript_append(u, transcript_tokens(t), f->n + 200, NULL), 0);
    assert_true(go_on(u, f, NEW) == second);
    snapshot_destroy(mark);
    transcript_destroy(t);
    transcript_destroy(u);
    session_close(s);
    const int64_t others[] = {0, f->other};
    for (size_t i = 0; i < ARRAY(others); i++) {
        struct err e = {0};
        s = open_session(f, others[i], 150, 2);
        assert_int_equal(snapshot_read(&mark, s, path, &e), ERR_MISMATCH);
        assert_non_null(strstr(e.text, "--fa-window"));
        session_close(s);
    }
    unlink(path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),  cmocka_unit_test(test_right_guesses),
        cmocka_unit_test(test_again), cmocka_unit_test(test_reads_again),
        cmocka_unit_test(test_turns), cmocka_unit_test(test_recall)};
    int failed = 0;
    for (int i = 0; i < 2; i++) {
        kind = i;
        failed += cmocka_run_group_tests_name("recurrent", tests, setup_recurrent, teardown);
        failed += cmocka_run_group_tests_name("plain", tests, setup_plain, teardown);
        failed += cmocka_run_group_tests_name("latent", tests, setup_latent, teardown);
    }
    return failed;
}
