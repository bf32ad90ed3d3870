// SPDX-License-Identifier: Apache-2.0
// Requests decoded side by side against the same requests alone: tokens, logits and ends are equal
// however many there are, whatever each one's parameters and way of guessing, and wherever their
// positions lie; budgets shrink so that the forest fits a pass. They join, leave, rest and fail one
// by one.
#include <stdio.h>
#include <unistd.h>

#include "base/rng.h"
#include "engine/batch/batch.h"
#include "support/automaton.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

#define ARRAY(a) (sizeof(a) / sizeof *(a))

enum { CONTEXT = 400, LIMIT = 8, NEW = 50, LONGEST = 200 };

struct fixture {
    struct tiny_pair files;
    struct session *session, *plain; // with and without the draft
    int32_t prompt[LIMIT][LONGEST];
    struct request r[LIMIT];
    int32_t recording[LIMIT][LONGEST + NEW];
};

static int setup(void **state) {
    static struct fixture f;
    struct session_options o = session_options_default();
    *state = &f;
    o.model = f.files.target;
    o.threads = 2;
    o.target.max_ctx = CONTEXT;
    if (tiny_pair_write(&f.files, "batch") || session_open(&f.plain, &o, NULL))
        return -1;
    o.draft = f.files.draft;
    return session_open(&f.session, &o, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    session_close(f->session);
    session_close(f->plain);
    tiny_pair_remove(&f->files);
    return 0;
}

// Requests whose prompts end before, on and after the borders of bases and pages.
static void make_requests(struct fixture *f, double temperature) {
    static const int lengths[LIMIT] = {1, 31, 32, 63, 64, 95, 130, 199};
    struct rng g = {99};
    for (int i = 0; i < LIMIT; i++) {
        for (int j = 0; j < lengths[i]; j++)
            f->prompt[i][j] = (int32_t)rng_below(&g, 250);
        request_init(&f->r[i]);
        f->r[i].prompt = f->prompt[i];
        f->r[i].n_prompt = lengths[i];
        f->r[i].max_tokens = NEW - i; // they end one after another
        f->r[i].ignore_eos = true;
        f->r[i].logit_hash = true;
        f->r[i].no_lookup = true;
        f->r[i].auto_budget = false;
        f->r[i].tree.budget = 22;
        f->r[i].sample.temperature = i % 4 == 3 ? 0 : temperature + 0.1 * i;
        f->r[i].sample.frequency = i % 2 ? temperature / 4 : 0;
        f->r[i].sample.seed = (uint64_t)i;
    }
}

static void run_alone(struct fixture *f, struct reply *alone) {
    for (int i = 0; i < LIMIT; i++) {
        struct request *r = &f->r[i];
        assert_int_equal(session_generate(f->session, r, &alone[i], NULL), 0);
        memcpy(f->recording[i], r->prompt, (size_t)r->n_prompt * sizeof *r->prompt);
        memcpy(f->recording[i] + r->n_prompt, alone[i].ids,
               (size_t)alone[i].n * sizeof *alone[i].ids);
        r->oracle = (struct draft_config){.recording = f->recording[i],
                                          .n_recording = r->n_prompt + alone[i].n,
                                          .error_rate = 0.2,
                                          .seed = (uint64_t)i};
    }
}

// First request `from`, n of them, against the same alone.
static void check(struct fixture *f, struct session *s, const struct reply *alone, int from, int n,
                  struct generate_cost *cost) {
    struct reply y[LIMIT];
    assert_int_equal(session_generate_many(s, f->r + from, n, y, cost, NULL), 0);
    for (int i = 0; i < n; i++) {
        const struct reply *a = &alone[from + i];
        int64_t committed = 0;
        assert_int_equal(y[i].n, a->n);
        assert_memory_equal(y[i].ids, a->ids, (size_t)a->n * sizeof *a->ids);
        assert_int_equal(y[i].hash, a->hash);
        assert_int_equal(y[i].end, a->end);
        for (int64_t j = 0; j < y[i].steps; j++)
            committed += y[i].accepted[j];
        assert_int_equal(committed, y[i].n - 1);
        reply_fini(&y[i]);
    }
}

// One way with n requests, of which budgets leave 15 nodes to each of 8.
static void check_way(struct fixture *f, const struct reply *alone, enum speculate how, int n,
                      int place) {
    struct generate_cost cost;
    int from = place % (LIMIT - n + 1);
    for (int i = from; i < from + n; i++) {
        f->r[i].how = how;
        f->r[i].tree.budget = 40;
    }
    check(f, f->session, alone, from, n, &cost);
    for (int i = from; i < from + n; i++)
        f->r[i].how = SPECULATE_OFF;
    assert_true(cost.steps > 0 && cost.tokens >= n * cost.steps);
    assert_true(cost.rows >= n * cost.steps && cost.rows <= 128 * cost.steps);
    if (how == SPECULATE_OFF)
        assert_int_equal(cost.tokens, cost.rows);
    if (how == SPECULATE_ORACLE)
        assert_true(cost.tokens > 2 * n * cost.steps);
}

static void test_same_as_alone(void **state) {
    struct fixture *f = *state;
    static const enum speculate ways[] = {SPECULATE_OFF, SPECULATE_LOOKUP, SPECULATE_CHAIN,
                                          SPECULATE_TREE, SPECULATE_ORACLE};
    static const int counts[] = {1, 2, 3, 8};
    for (int hot = 0; hot < 2; hot++) {
        struct reply alone[LIMIT];
        make_requests(f, hot ? 0.8 : 0);
        run_alone(f, alone);
        for (size_t i = 0; i < ARRAY(ways) * ARRAY(counts); i++)
            check_way(f, alone, ways[i / ARRAY(counts)], counts[i % ARRAY(counts)], (int)i);
        for (int i = 0; i < LIMIT; i++)
            reply_fini(&alone[i]);
    }
}

// Without a draft the oracle guesses as deep as a tree may be.
static void test_no_draft(void **state) {
    struct fixture *f = *state;
    struct reply alone[LIMIT];
    struct generate_cost cost;
    make_requests(f, 0);
    run_alone(f, alone);
    for (int i = 0; i < LIMIT; i++) {
        f->r[i].oracle.error_rate = 0;
        f->r[i].tree.k = 1;
        f->r[i].tree.budget = 31;
        f->r[i].how = SPECULATE_ORACLE;
    }
    check(f, f->plain, alone, 0, 4, &cost);
    assert_int_equal(cost.steps, 2); // 49 tokens, of the last request 46: 32 and the rest
    assert_int_equal(cost.rows, 4 * 32 + (17 + 16 + 15 + 14));
    for (int i = 0; i < LIMIT; i++)
        reply_fini(&alone[i]);
}

static void test_misuse(void **state) {
    struct fixture *f = *state;
    struct reply y[LIMIT + 1];
    struct generate_cost cost;
    struct err e = {0};
    make_requests(f, 0);
    f->r[0].how = SPECULATE_TREE;
    assert_int_equal(session_generate_many(f->plain, f->r, 2, y, &cost, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "-d"));
    f->r[0].how = SPECULATE_OFF;
    f->r[1].n_prompt = 0;
    assert_int_equal(session_generate_many(f->plain, f->r, 2, y, &cost, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "empty"));
    for (int i = 0; i < 2; i++)
        reply_fini(&y[i]);
    assert_int_equal(session_generate_many(f->plain, f->r, LIMIT + 1, y, &cost, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "at most 8 sequences"));
}

static void assert_same(const struct reply *a, const struct reply *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_int_equal(a->hash, b->hash);
    assert_int_equal(a->end, b->end);
}

// Every way of guessing in one batch, chosen budgets among them.
static void test_mixed_ways(void **state) {
    struct fixture *f = *state;
    static const enum speculate ways[] = {SPECULATE_TREE,   SPECULATE_OFF,    SPECULATE_CHAIN,
                                          SPECULATE_ORACLE, SPECULATE_LOOKUP, SPECULATE_TREE,
                                          SPECULATE_ORACLE, SPECULATE_OFF};
    struct reply alone[LIMIT], y[LIMIT];
    make_requests(f, 0.8);
    run_alone(f, alone);
    for (int i = 0; i < LIMIT; i++) {
        f->r[i].how = ways[i];
        f->r[i].auto_budget = i % 2;
        f->r[i].oracle.with_draft = i == 3;
        f->r[i].no_lookup = i % 3 == 0;
    }
    assert_int_equal(session_generate_many(f->session, f->r, LIMIT, y, NULL, NULL), 0);
    for (int i = 0; i < LIMIT; i++) {
        assert_same(&y[i], &alone[i]);
        reply_fini(&y[i]);
        reply_fini(&alone[i]);
    }
}

// Requests join while others run, rest, are exchanged for a fork, and leave before their end.
static void test_join_and_leave(void **state) {
    struct fixture *f = *state;
    struct reply alone[LIMIT], y[LIMIT];
    struct job *j[LIMIT] = {NULL};
    struct batch *b;
    int stepped = 1;
    make_requests(f, 0.8);
    run_alone(f, alone);
    assert_int_equal(batch_create(&b, f->session, 4, NULL), 0);
    for (int step = 0; stepped || step < 4 * LIMIT; step++) {
        int i = step / 4;
        if (step % 4 == 0 && i < LIMIT)
            assert_int_equal(batch_join(b, &f->r[i], &y[i], &j[i], NULL), 0);
        if (step == 9)
            batch_leave(b, j[1]);
        job_park(j[0], step >= 10 && step < 20);
        if (step == 25) {
            struct sequence *copy = NULL;
            assert_true(job_decodes(j[3]) && !job_ended(j[3]));
            assert_int_equal(sequence_fork(job_sequence(j[3]), &copy, NULL), 0);
            job_exchange(j[3], copy);
        }
        assert_int_equal(batch_step(b, &stepped, NULL), 0);
        assert_in_range(stepped, 0, 4);
    }
    for (int i = 0; i < LIMIT; i++) {
        if (i != 1) {
            assert_true(job_ended(j[i]));
            assert_int_equal(job_failed(j[i], NULL), 0);
            assert_same(&y[i], &alone[i]);
        } else {
            assert_true(y[i].n > 0 && y[i].n < alone[i].n);
            assert_memory_equal(y[i].ids, alone[i].ids, (size_t)y[i].n * sizeof *y[i].ids);
        }
        reply_fini(&y[i]);
        reply_fini(&alone[i]);
    }
    batch_destroy(b);
}

// A chain of tokens that are none: the member that a drafter of its own fails is left out with its
// sentence, the others go on.
static void test_one_fails(void **state) {
    struct fixture *f = *state;
    struct reply alone[LIMIT], y[LIMIT];
    struct job *j[2];
    struct batch *b;
    struct err e = {0};
    int stepped = 1;
    int32_t bad[LONGEST + NEW];
    make_requests(f, 0);
    run_alone(f, alone);
    for (size_t i = 0; i < ARRAY(bad); i++)
        bad[i] = 1 << 20;
    f->r[1].how = SPECULATE_ORACLE;
    f->r[1].oracle = (struct draft_config){.recording = bad, .n_recording = ARRAY(bad)};
    assert_int_equal(batch_create(&b, f->session, 2, NULL), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(batch_join(b, &f->r[i], &y[i], &j[i], NULL), 0);
    while (stepped)
        assert_int_equal(batch_step(b, &stepped, NULL), 0);
    assert_int_equal(job_failed(j[0], NULL), 0);
    assert_same(&y[0], &alone[0]);
    assert_int_equal(job_failed(j[1], &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "vocabulary"));
    batch_destroy(b);
    for (int i = 0; i < 2; i++)
        reply_fini(&y[i]);
    for (int i = 0; i < LIMIT; i++)
        reply_fini(&alone[i]);
}

enum { POINTS = 16 };

struct points {
    struct checkpoint *c[POINTS];
    int n, failed;
};

static void keep_point(void *arg, struct checkpoint *c, const struct err *e) {
    struct points *p = arg;
    assert_true(!c == (e->code != 0));
    assert_true(p->n < POINTS);
    p->c[p->n++] = c;
}

// Goes on from a checkpoint to the end of the request that it is from.
static void finish_from(struct session *s, const struct checkpoint *c, const struct request *r,
                        const struct reply *want) {
    struct sequence *seq = NULL;
    struct request q = *r;
    struct reply y;
    assert_int_equal(model_sequence(session_model(s), &seq, NULL), 0);
    assert_int_equal(sequence_restore(seq, c, NULL), 0);
    q.in_place = seq;
    q.n_checkpoints = 0;
    q.checkpoint_at_end = false;
    assert_int_equal(session_generate(s, &q, &y, NULL), 0);
    assert_int_equal(y.n, want->n);
    assert_memory_equal(y.ids, want->ids, (size_t)y.n * sizeof *y.ids);
    assert_int_equal(y.hash, want->hash);
    assert_int_equal(y.fed, r->n_prompt - checkpoint_len(c));
    reply_fini(&y);
    sequence_destroy(seq);
}

// Checkpoints that were requested ahead of time, of requests side by side: where they are, and that
// a request that goes on from one gives the same reply.
static void checkpoints_at_places(struct session *s, struct fixture *f, bool recurrent) {
    static const int64_t at[] = {5, 32, 33, 70, 100, 130, 160, 205, 240};
    struct points points[2] = {0};
    struct request r[2] = {f->r[7], f->r[6]}; // prompts of 199 and 130 tokens
    struct reply y[2], plain[2];
    for (int i = 0; i < 2; i++)
        r[i].logit_hash = true;
    assert_int_equal(session_generate_many(s, r, 2, plain, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) {
        r[i].checkpoint_at = at;
        r[i].n_checkpoints = ARRAY(at);
        r[i].checkpoint_at_end = true;
        r[i].checkpoint = keep_point;
        r[i].checkpoint_arg = &points[i];
    }
    assert_int_equal(session_generate_many(s, r, 2, y, NULL, NULL), 0);
    for (int i = 0; i < 2; i++) {
        int64_t end = r[i].n_prompt + y[i].n - 1;
        int n = 0;
        assert_int_equal(y[i].n, plain[i].n);
        assert_int_equal(y[i].hash, plain[i].hash);
        for (size_t j = 0; j < ARRAY(at) && at[j] <= r[i].n_prompt; j++) {
            int64_t want = recurrent ? at[j] / 32 * 32 : at[j];
            if (want == 0 || (n && checkpoint_len(points[i].c[n - 1]) == want))
                continue; // 32 and 33 are one place then
            assert_int_equal(checkpoint_len(points[i].c[n]), want);
            if (want < r[i].n_prompt)
                finish_from(s, points[i].c[n], &r[i], &y[i]);
            n++;
        }
        assert_true(points[i].n > n); // the last is of the end
        assert_int_equal(checkpoint_len(points[i].c[points[i].n - 1]),
                         recurrent ? end / 32 * 32 : end);
        for (int j = 0; j < points[i].n; j++) {
            const int32_t *ids = checkpoint_tokens(points[i].c[j]);
            int64_t len = checkpoint_len(points[i].c[j]), both = len < r[i].n_prompt ? len : 0;
            assert_memory_equal(ids, r[i].prompt, (size_t)both * sizeof *ids);
            if (len > r[i].n_prompt)
                assert_memory_equal(ids + r[i].n_prompt, y[i].ids,
                                    (size_t)(len - r[i].n_prompt) * sizeof *ids);
        }
        for (int j = 0; j < points[i].n; j++)
            checkpoint_destroy(points[i].c[j]);
        reply_fini(&y[i]);
        reply_fini(&plain[i]);
    }
}

static void checkpoints_are_made_when_requested(void **state) {
    struct fixture *f = *state;
    struct tiny_shape t = tiny_shape_default();
    struct session_options o = session_options_default();
    struct session *full = NULL;
    char path[64];
    make_requests(f, 0.7);
    checkpoints_at_places(f->plain, f, true);
    t.interval = 1; // no recurrent layers
    snprintf(path, sizeof path, "/tmp/coppice-batch-%d-f.gguf", (int)getpid());
    o.model = path;
    o.target.max_ctx = CONTEXT;
    assert_int_equal(tiny_target_write(&t, path, NULL), 0);
    assert_int_equal(session_open(&full, &o, NULL), 0);
    checkpoints_at_places(full, f, false);
    session_close(full);
    unlink(path);
    static const int64_t wrong[] = {5, 5};
    struct request r = f->r[0];
    struct reply y;
    struct err e;
    r.checkpoint_at = wrong;
    r.checkpoint = keep_point;
    r.n_checkpoints = 2;
    assert_int_equal(session_generate(f->plain, &r, &y, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "ascending"));
    r.n_checkpoints = 1;
    r.checkpoint = NULL;
    assert_int_equal(session_generate(f->plain, &r, &y, &e), ERR_USAGE);
}

// Masks that take more than a step may take: their members are left as they were, their rows are
// run again after a base, and what they say is what they say alone.
static void test_unfinished_masks(void **state) {
    enum { FEW_STEPS = 1 << 18 };
    struct fixture *f = *state;
    struct reply alone[LIMIT], y[LIMIT];
    struct job *job[LIMIT];
    struct batch *b;
    int stepped = 1, unfinished = 0;
    int64_t again = 0;
    make_requests(f, 0.8);
    assert_int_equal(batch_create(&b, f->session, LIMIT, NULL), 0);
    for (int i = 0; i < LIMIT; i++) {
        struct automaton *a;
        int64_t vocab = model_params_of(session_model(f->session))->vocab;
        assert_int_equal(automaton_create(&a, vocab, false, 7 + (uint64_t)i, NULL), 0);
        f->r[i].constraint = a->constraint;
        f->r[i].how = i % 2 ? SPECULATE_TREE : SPECULATE_OFF;
        assert_int_equal(session_generate(f->session, &f->r[i], &alone[i], NULL), 0);
        assert_int_equal(batch_join(b, &f->r[i], &y[i], &job[i], NULL), 0);
    }
    while (stepped) {
        for (int i = 0; i < LIMIT; i++) {
            bool go_on = job_unfinished(job[i]);
            unfinished += go_on;
            while (go_on && job_prepare_masks(job[i], CONSTRAINT_STEPS) == ERR_UNFINISHED)
                ;
            job_allow_masks(job[i], FEW_STEPS, FEW_STEPS);
        }
        assert_int_equal(batch_step(b, &stepped, NULL), 0);
    }
    batch_destroy(b);
    for (int i = 0; i < LIMIT; i++) {
        assert_same(&y[i], &alone[i]);
        again += y[i].recomputed;
        reply_fini(&y[i]);
        reply_fini(&alone[i]);
        constraint_drop(f->r[i].constraint);
    }
    assert_true(unfinished > LIMIT && again > 0);
}

// A text that is run again is read without the mask that comes after it.
static void test_read_without_masks(void **state) {
    enum { TOKENS = 5, STEPS = 100 };
    struct fixture *f = *state;
    struct reply alone[LIMIT], y[LIMIT];
    struct job *job[LIMIT];
    struct batch *b = NULL;
    int stepped = 1;
    make_requests(f, 0.8);
    assert_int_equal(batch_create(&b, f->session, LIMIT, NULL), 0);
    for (int i = 0; i < LIMIT; i++) {
        struct automaton *a;
        int64_t vocab = model_params_of(session_model(f->session))->vocab;
        assert_int_equal(automaton_create(&a, vocab, false, 7 + (uint64_t)i, NULL), 0);
        f->r[i].constraint = a->constraint;
        assert_int_equal(session_generate(f->session, &f->r[i], &alone[i], NULL), 0);
        assert_int_equal(batch_join(b, &f->r[i], &y[i], &job[i], NULL), 0);
        while (!job_ended(job[i]) && y[i].n < TOKENS)
            assert_int_equal(batch_step(b, &stepped, NULL), 0);
        if (job_ended(job[i]))
            continue;
        assert_int_equal(job_drop(job[i], NULL), 0);
        for (int k = 0; k < STEPS && !job_decodes(job[i]); k++) {
            job_allow_masks(job[i], 0, 0);
            assert_int_equal(batch_step(b, &stepped, NULL), 0);
        }
        assert_true(job_decodes(job[i]));
        job_allow_masks(job[i], INT64_MAX, INT64_MAX);
    }
    while (stepped)
        assert_int_equal(batch_step(b, &stepped, NULL), 0);
    batch_destroy(b);
    for (int i = 0; i < LIMIT; i++) {
        assert_same(&y[i], &alone[i]);
        reply_fini(&y[i]);
        reply_fini(&alone[i]);
        constraint_drop(f->r[i].constraint);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_same_as_alone),
        cmocka_unit_test(test_no_draft),
        cmocka_unit_test(test_misuse),
        cmocka_unit_test(test_mixed_ways),
        cmocka_unit_test(test_join_and_leave),
        cmocka_unit_test(test_one_fails),
        cmocka_unit_test(checkpoints_are_made_when_requested),
        cmocka_unit_test(test_unfinished_masks),
        cmocka_unit_test(test_read_without_masks),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
