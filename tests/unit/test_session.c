// SPDX-License-Identifier: Apache-2.0
// Sessions on a random tiny pair: every way of guessing gives the same reply, ends come where they
// should, what the caller gets in pieces is the whole, and misuse gets its sentence.
#include <math.h>
#include <stdio.h>
#include <unistd.h>

#include "engine/batch/batch.h"
#include "spec/draft/oracle.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

enum { CONTEXT = 200 };

struct fixture {
    struct tiny_pair files;
    char misfit[64];
    struct session *plain, *pair; // without and with the draft
};

static int write_files(struct fixture *f) {
    struct tiny_shape t = tiny_shape_default();
    struct tiny_draft_shape d = tiny_draft_default(&t);
    snprintf(f->misfit, sizeof f->misfit, "/tmp/coppice-session-%d-m.gguf", (int)getpid());
    int rc = tiny_pair_write(&f->files, "session");
    t.dim = 128;
    return rc ? rc : tiny_draft_write(&t, &d, f->misfit, NULL);
}

static struct session_options options_of(const struct fixture *f) {
    struct session_options o = session_options_default();
    o.model = f->files.target;
    o.threads = 1;
    o.target.max_ctx = CONTEXT;
    return o;
}

static int setup(void **state) {
    static struct fixture f;
    *state = &f;
    if (write_files(&f))
        return -1;
    struct session_options o = options_of(&f);
    if (session_open(&f.plain, &o, NULL))
        return -1;
    o.draft = f.files.draft;
    o.chunk = 7;
    o.threads = 2;
    return session_open(&f.pair, &o, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    session_close(f->plain);
    session_close(f->pair);
    tiny_pair_remove(&f->files);
    unlink(f->misfit);
    return 0;
}

static const int32_t prompt[] = {104, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100, 33, 10};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

static struct request greedy(void) {
    struct request r;
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = N_PROMPT;
    r.max_tokens = 40;
    r.ignore_eos = true;
    r.logit_hash = true;
    r.auto_budget = false;
    r.tree.budget = 22;
    return r;
}

static void assert_same(const struct reply *a, const struct reply *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_int_equal(a->hash, b->hash);
    assert_int_equal(a->end, b->end);
}

static void assert_sums(const struct reply *y) {
    int64_t committed = 0;
    for (int64_t i = 0; i < y->steps; i++) {
        assert_true(y->accepted[i] >= 1);
        committed += y->accepted[i];
    }
    assert_int_equal(committed, y->n - 1);
}

static void test_ways(void **state) {
    const struct fixture *f = *state;
    static const enum speculate ways[] = {SPECULATE_OFF, SPECULATE_LOOKUP, SPECULATE_CHAIN,
                                          SPECULATE_TREE, SPECULATE_AUTO};
    for (int hot = 0; hot < 2; hot++) {
        struct request r = greedy();
        struct reply plain, y;
        r.sample.temperature = hot ? 0.8 : 0;
        r.sample.frequency = hot ? 0.2 : 0;
        assert_int_equal(session_generate(f->plain, &r, &plain, NULL), 0);
        assert_int_equal(plain.n, 40);
        assert_int_equal(plain.steps, 39);
        assert_int_equal(plain.drafted, 0);
        assert_true(plain.hash != 0);
        for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
            r.how = ways[i];
            r.no_draft_noise = i % 2;
            assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
            assert_same(&plain, &y);
            assert_sums(&y);
            if (ways[i] == SPECULATE_CHAIN)
                assert_in_range(y.drafted, y.steps, 7 * y.steps); // block 8
            reply_fini(&y);
        }
        reply_fini(&plain);
    }
}

// With a recording the guesses are right, so few passes are needed.
static void test_oracle(void **state) {
    const struct fixture *f = *state;
    struct request r = greedy();
    struct reply plain, y;
    int32_t tokens[N_PROMPT + 40];
    assert_int_equal(session_generate(f->plain, &r, &plain, NULL), 0);
    memcpy(tokens, prompt, sizeof prompt);
    memcpy(tokens + N_PROMPT, plain.ids, (size_t)plain.n * sizeof *tokens);
    r.how = SPECULATE_ORACLE;
    r.tree.k = 1;
    r.oracle.recording = tokens;
    r.oracle.n_recording = N_PROMPT + 40;
    assert_int_equal(session_generate(f->plain, &r, &y, NULL), 0);
    assert_same(&plain, &y);
    assert_int_equal(y.steps, 2); // 39 tokens by paths of 23 and 16
    assert_int_equal(y.accepted[0], 23);
    assert_int_equal(y.accepted[1], 16);
    assert_int_equal(y.drafted, 22 + 15);
    reply_fini(&y);
    reply_fini(&plain);
}

// The searched error rate gives the wanted accept length, and the run is the one predicted; with
// the draft at work with it the block limits the depth.
static void test_oracle_goal(void **state) {
    const struct fixture *f = *state;
    struct request r = greedy();
    struct reply plain, y;
    int32_t tokens[N_PROMPT + 120];
    r.max_tokens = 120;
    assert_int_equal(session_generate(f->pair, &r, &plain, NULL), 0);
    assert_int_equal(plain.n, 120);
    memcpy(tokens, prompt, sizeof prompt);
    memcpy(tokens + N_PROMPT, plain.ids, (size_t)plain.n * sizeof *tokens);
    r.how = SPECULATE_ORACLE;
    for (int i = 0; i < 12; i++) {
        static const double goals[] = {1, 2, 3.5, 5, 20, 6};
        bool with_draft = i % 2;
        r.tree.k = i % 4 < 2 ? 1 : 8;
        r.oracle = (struct draft_config){.recording = tokens,
                                         .n_recording = N_PROMPT + 120,
                                         .seed = (uint64_t)i,
                                         .with_draft = with_draft};
        struct oracle_goal goal = {.tree = r.tree,
                                   .vocab = model_params_of(session_model(f->pair))->vocab,
                                   .first = N_PROMPT,
                                   .accept_length = goals[i / 2]};
        goal.tree.max_depth = with_draft ? 7 : TREE_MAX_DEPTH; // block 8
        double mean = oracle_calibrate(&r.oracle, &goal);
        assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
        assert_same(&plain, &y);
        assert_true(fabs(119.0 / (double)y.steps - mean) < 1e-9);
        if (goals[i / 2] < 7)
            assert_true(fabs(mean - goals[i / 2]) < 0.35);
        else if (with_draft)
            assert_true(mean > 6.9 && mean <= 8);
        reply_fini(&y);
    }
    reply_fini(&plain);
}

// Going on from tokens that were run before is the same as running the whole prompt, also twice.
static void test_prefix(void **state) {
    const struct fixture *f = *state;
    struct sequence *before = NULL;
    struct err e = {0};
    struct request r = greedy();
    struct reply plain, y;
    assert_int_equal(session_generate(f->pair, &r, &plain, NULL), 0);
    assert_int_equal(session_prefill(f->pair, prompt, N_PROMPT - 1, &before, NULL), 0);
    r.prefix = before;
    for (int i = 0; i < 4; i++) {
        r.how = i % 2 ? SPECULATE_TREE : SPECULATE_OFF;
        assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
        assert_same(&plain, &y);
        reply_fini(&y);
    }
    reply_fini(&plain);
    r.n_prompt = N_PROMPT - 1;
    assert_int_equal(session_generate(f->pair, &r, &y, &e), ERR_USAGE);
    int32_t other[N_PROMPT];
    memcpy(other, prompt, sizeof other);
    other[0]++;
    r.prompt = other;
    r.n_prompt = N_PROMPT;
    assert_int_equal(session_generate(f->pair, &r, &y, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "beginning"));
    sequence_destroy(before);
}

static void test_ends(void **state) {
    const struct fixture *f = *state;
    struct request r = greedy();
    struct reply y;
    r.max_tokens = 0;
    assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
    assert_int_equal(y.n, 0);
    assert_int_equal(y.end, END_LENGTH);
    assert_int_equal(y.hash, 0);
    reply_fini(&y);
    r.max_tokens = 1;
    assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
    assert_int_equal(y.n, 1);
    assert_int_equal(y.steps, 0);
    reply_fini(&y);
    for (int how = SPECULATE_TREE; how <= SPECULATE_OFF; how++) {
        r.how = (enum speculate)how;
        r.max_tokens = 1000;
        assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
        assert_int_equal(y.n, CONTEXT - N_PROMPT);
        assert_int_equal(y.end, END_CONTEXT);
        assert_sums(&y);
        reply_fini(&y);
    }
}

// The first end-of-generation token of a long random reply must be where the reply ends.
static void test_stop(void **state) {
    const struct fixture *f = *state;
    struct request r = greedy();
    struct reply all, y;
    int found = 0;
    for (uint64_t seed = 0; seed < 20; seed++) {
        r.sample.temperature = 1.5;
        r.sample.seed = seed;
        r.max_tokens = 150;
        r.ignore_eos = true;
        r.how = SPECULATE_OFF;
        assert_int_equal(session_generate(f->plain, &r, &all, NULL), 0);
        int64_t at = 0;
        while (at < all.n && !tokenizer_is_eog(session_tokenizer(f->plain), all.ids[at]))
            at++;
        r.ignore_eos = false;
        r.how = seed % 2 ? SPECULATE_TREE : SPECULATE_LOOKUP;
        assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
        assert_int_equal(y.n, at < all.n ? at + 1 : all.n);
        assert_memory_equal(y.ids, all.ids, (size_t)y.n * sizeof *y.ids);
        assert_int_equal(y.end, at < all.n ? END_STOP : END_LENGTH);
        found += at < all.n;
        reply_fini(&y);
        reply_fini(&all);
    }
    assert_true(found >= 3);
}

struct pieces {
    int32_t ids[64];
    int64_t n, stop_at;
};

static int collect(void *arg, const int32_t *ids, int64_t n) {
    struct pieces *p = arg;
    memcpy(p->ids + p->n, ids, (size_t)n * sizeof *ids);
    p->n += n;
    return p->n >= p->stop_at;
}

static void test_pieces(void **state) {
    const struct fixture *f = *state;
    struct pieces p = {.stop_at = 1000};
    struct request r = greedy();
    struct reply y;
    r.tokens = collect;
    r.tokens_arg = &p;
    r.how = SPECULATE_LOOKUP;
    assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
    assert_int_equal(p.n, y.n);
    assert_memory_equal(p.ids, y.ids, (size_t)y.n * sizeof *y.ids);
    assert_int_equal(y.end, END_LENGTH);
    reply_fini(&y);
    p = (struct pieces){.stop_at = 10};
    assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
    assert_int_equal(y.end, END_CALLER);
    assert_in_range(y.n, 10, 39);
    assert_int_equal(p.n, y.n);
    reply_fini(&y);
}

static void refuse(struct session *s, const struct request *r, int code, const char *part) {
    struct err e = {0};
    struct reply y;
    assert_int_equal(session_generate(s, r, &y, &e), code);
    assert_non_null(strstr(e.text, part));
    reply_fini(&y);
}

static void test_refused_requests(void **state) {
    const struct fixture *f = *state;
    struct request r = greedy();
    r.n_prompt = 0;
    refuse(f->pair, &r, ERR_USAGE, "empty");
    r = greedy();
    const int32_t bad[] = {1, 300};
    r.prompt = bad;
    r.n_prompt = 2;
    refuse(f->pair, &r, ERR_MISMATCH, "300 at place 1");
    int32_t many[CONTEXT] = {0};
    r.prompt = many;
    r.n_prompt = CONTEXT;
    refuse(f->pair, &r, ERR_LIMIT, "200 tokens");
    r.n_prompt = CONTEXT - 1;
    struct reply y;
    assert_int_equal(session_generate(f->pair, &r, &y, NULL), 0);
    assert_int_equal(y.n, 1);
    assert_int_equal(y.end, END_CONTEXT);
    reply_fini(&y);
    r = greedy();
    r.how = SPECULATE_CHAIN;
    refuse(f->plain, &r, ERR_USAGE, "chain needs a draft");
    r = greedy();
    r.how = SPECULATE_ORACLE;
    refuse(f->plain, &r, ERR_USAGE, "recording");
    r = greedy();
    r.sample.top_p = 0;
    refuse(f->plain, &r, ERR_USAGE, "top-p");
    r = greedy();
    r.how = SPECULATE_TREE;
    r.tree.budget = 128;
    refuse(f->pair, &r, ERR_USAGE, "128");
}

static void refuse_open(const struct session_options *o, const char *part) {
    struct err e = {0};
    struct session *s = NULL;
    assert_true(session_open(&s, o, &e) < 0);
    assert_null(s);
    assert_non_null(strstr(e.text, part));
}

static void test_refused_files(void **state) {
    const struct fixture *f = *state;
    struct session_options o = options_of(f);
    o.draft = f->misfit;
    refuse_open(&o, "128");
    o.draft = "/nonexistent/draft.gguf";
    refuse_open(&o, "/nonexistent/draft.gguf");
    o = options_of(f);
    o.model = "/nonexistent/model.gguf";
    refuse_open(&o, "/nonexistent/model.gguf");
    o.model = f->files.draft;
    refuse_open(&o, f->files.draft);
    o = options_of(f);
    o.cpu_level = "fastest";
    refuse_open(&o, "fastest");
}

static void test_encode(void **state) {
    const struct fixture *f = *state;
    struct token_list ids = {0};
    assert_int_equal(session_encode(f->plain, "hello world!\n", 13, &ids, NULL), 0);
    assert_int_equal(ids.count, N_PROMPT);
    assert_memory_equal(ids.ids, prompt, sizeof prompt);
    token_list_fini(&ids);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways),          cmocka_unit_test(test_oracle),
        cmocka_unit_test(test_oracle_goal),   cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_ends),          cmocka_unit_test(test_stop),
        cmocka_unit_test(test_pieces),        cmocka_unit_test(test_refused_requests),
        cmocka_unit_test(test_refused_files), cmocka_unit_test(test_encode),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
