// SPDX-License-Identifier: Apache-2.0
// The runtime: devices are found again or refused, memory is reserved, planned around and given
// back, two models on one device take turns and give the tokens that each gives alone, and what
// does not fit is refused with the holders of the memory.
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "engine/batch/batch.h"
#include "support/tiny_gguf.h"

enum { CONTEXT = 256, NEW_TOKENS = 24 };
static const int64_t MIB = 1 << 20;

static struct fixture {
    char target[64], draft[64], scorer[64];
} files;

static int setup(void **state) {
    (void)state;
    struct tiny_shape t = tiny_shape_default(), s = t;
    struct tiny_draft_shape d = tiny_draft_default(&t);
    int pid = (int)getpid();
    snprintf(files.target, sizeof files.target, "/tmp/coppice-runtime-%d-t.gguf", pid);
    snprintf(files.draft, sizeof files.draft, "/tmp/coppice-runtime-%d-d.gguf", pid);
    snprintf(files.scorer, sizeof files.scorer, "/tmp/coppice-runtime-%d-s.gguf", pid);
    s.dim = 128;
    s.layers = 2;
    s.seed = 7;
    return tiny_target_write(&t, files.target, NULL) ||
           tiny_draft_write(&t, &d, files.draft, NULL) || tiny_target_write(&s, files.scorer, NULL);
}

static int teardown(void **state) {
    (void)state;
    unlink(files.target);
    unlink(files.draft);
    unlink(files.scorer);
    return 0;
}

static struct runtime *open_runtime(void) {
    struct runtime *r = NULL;
    struct err e = {0};
    assert_int_equal(runtime_create(&r, &e), 0);
    return r;
}

static struct runtime_device *open_cpu(struct runtime *r, int64_t memory_limit) {
    struct runtime_device *d = NULL;
    struct err e = {0};
    struct device_options o = {
        .name = "cpu", .threads = 1, .cuda_path = CUDA_PATH_AUTO, .memory_limit = memory_limit};
    assert_int_equal(runtime_device(r, &o, &d, &e), 0);
    return d;
}

static struct session_options options_of(struct runtime *r, const char *model, const char *draft) {
    struct session_options o = session_options_default();
    o.runtime = r;
    o.device = "cpu";
    o.model = model;
    o.draft = draft;
    o.target.max_ctx = CONTEXT;
    return o;
}

static void a_device_is_opened_once(void **state) {
    (void)state;
    struct runtime *r = open_runtime();
    struct runtime_device *cpu = open_cpu(r, 0), *again = NULL;
    struct err e = {0};
    struct device_options o = {.name = "cpu", .cuda_path = CUDA_PATH_AUTO};
    assert_int_equal(runtime_device(r, &o, &again, &e), 0);
    assert_ptr_equal(again, cpu);
    o.cpu_level = "auto";
    o.threads = 1;
    assert_int_equal(runtime_device(r, &o, &again, &e), 0);
    assert_ptr_equal(again, cpu);
    o.threads = 2;
    assert_int_equal(runtime_device(r, &o, &again, &e), ERR_STATE);
    assert_null(again);
    assert_non_null(strstr(e.text, "threads"));
    o.threads = 0;
    o.cpu_level = "scalar";
    assert_int_equal(runtime_device(r, &o, &again, &e), ERR_STATE);
    o.cpu_level = NULL;
    o.memory_limit = 5;
    assert_int_equal(runtime_device(r, &o, &again, &e), ERR_STATE);
    o.memory_limit = 0;
    o.timing = true;
    assert_int_equal(runtime_device(r, &o, &again, &e), ERR_STATE);
    o.name = "quantum";
    assert_int_equal(runtime_device(r, &o, &again, &e), ERR_USAGE);
    runtime_destroy(r);
    runtime_destroy(NULL);
}

// "auto" is the same device each time, whichever it was at first.
static void auto_stays_what_it_was(void **state) {
    (void)state;
    struct runtime *r = open_runtime();
    struct runtime_device *one = NULL, *two = NULL;
    struct err e = {0};
    struct device_options o = {.name = "auto", .cuda_path = CUDA_PATH_AUTO};
    assert_int_equal(runtime_device(r, &o, &one, &e), 0);
    assert_int_equal(runtime_device(r, &o, &two, &e), 0);
    assert_ptr_equal(one, two);
    runtime_destroy(r);
}

static void reservations_are_counted_and_released(void **state) {
    (void)state;
    struct runtime *r = open_runtime();
    struct runtime_device *d = open_cpu(r, 100 * MIB);
    struct reservation *a = NULL, *b = NULL, *c = NULL;
    struct reservation want = {.who = "one.gguf", .bytes = {[ARENA_WEIGHTS] = 50 * MIB}};
    struct err e = {0};
    assert_int_equal(runtime_available(d), 100 * MIB);
    assert_int_equal(runtime_reserve(d, &want, 10 * MIB, runtime_available(d), &a, &e), 0);
    assert_int_equal(runtime_available(d), 40 * MIB);
    // The backend's own 10 MiB serve both.
    struct reservation two = {.who = "two.gguf",
                              .bytes = {[ARENA_STATES] = 20 * MIB, [ARENA_PAGES] = 20 * MIB}};
    assert_int_equal(runtime_reserve(d, &two, 10 * MIB, runtime_available(d), &b, &e), 0);
    assert_int_equal(runtime_available(d), 1);
    want.bytes[ARENA_WEIGHTS] = MIB;
    assert_int_equal(runtime_reserve(d, &want, 0, runtime_available(d), &c, &e), ERR_MEMORY);
    assert_null(c);
    assert_non_null(strstr(e.text, "one.gguf holds 50.00 MiB (weights 50.00 MiB)"));
    assert_non_null(strstr(e.text, "two.gguf holds 40.00 MiB (states 20.00 MiB, pages 20.00 MiB)"));
    runtime_release(d, a);
    assert_int_equal(runtime_available(d), 50 * MIB); // its own stays
    assert_int_equal(runtime_reserve(d, &want, 12 * MIB, runtime_available(d), &c, &e), 0);
    assert_int_equal(runtime_available(d), 47 * MIB);
    runtime_release(d, b);
    runtime_release(d, c);
    runtime_release(d, NULL);
    assert_int_equal(reservations_total(runtime_reservations(d)), 12 * MIB);
    runtime_destroy(r);
}

static void no_limit_refuses_nothing(void **state) {
    (void)state;
    struct runtime *r = open_runtime();
    struct runtime_device *d = open_cpu(r, 0);
    struct reservation *a = NULL, want = {.who = "huge", .bytes = {[ARENA_WORK] = INT64_MAX / 4}};
    struct err e = {0};
    assert_int_equal(runtime_available(d), 0);
    assert_int_equal(runtime_reserve(d, &want, 0, runtime_available(d), &a, &e), 0);
    runtime_destroy(r); // gives back what was forgotten
}

static const int32_t prompt[] = {104, 101, 108, 108, 111, 32, 119, 111, 114, 108, 100, 33, 10};
enum { N_PROMPT = sizeof prompt / sizeof *prompt };

static struct request request_of(enum speculate how) {
    struct request q;
    request_init(&q);
    q.prompt = prompt;
    q.n_prompt = N_PROMPT;
    q.max_tokens = NEW_TOKENS;
    q.ignore_eos = true;
    q.logit_hash = true;
    q.how = how;
    q.auto_budget = false;
    q.tree.budget = 12;
    return q;
}

static void alone(const char *model, struct reply *out) {
    struct session_options o = options_of(NULL, model, NULL);
    struct session *s = NULL;
    struct request q = request_of(SPECULATE_OFF);
    struct err e = {0};
    o.threads = 1;
    assert_int_equal(session_open(&s, &o, &e), 0);
    assert_int_equal(session_generate(s, &q, out, &e), 0);
    session_close(s);
}

static void same(const struct reply *a, const struct reply *b) {
    assert_int_equal(a->n, NEW_TOKENS);
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_true(a->hash == b->hash);
}

// A pair and a scorer step in turn on one device; the pair guesses, the scorer does not.
static void two_models_give_what_each_gives_alone(void **state) {
    (void)state;
    struct runtime *r = open_runtime();
    struct reply want[2], got[2];
    struct session *s[2] = {NULL, NULL};
    struct batch *b[2] = {NULL, NULL};
    struct job *j[2];
    struct err e = {0};
    open_cpu(r, 0);
    alone(files.target, &want[0]);
    alone(files.scorer, &want[1]);
    struct session_options o[2] = {options_of(r, files.target, files.draft),
                                   options_of(r, files.scorer, NULL)};
    struct request q[2] = {request_of(SPECULATE_TREE), request_of(SPECULATE_OFF)};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(session_open(&s[i], &o[i], &e), 0);
        assert_int_equal(batch_create(&b[i], s[i], 1, &e), 0);
        assert_int_equal(batch_join(b[i], &q[i], &got[i], &j[i], &e), 0);
    }
    assert_ptr_equal(session_device(s[0]), session_device(s[1]));
    for (int stepped[2] = {1, 1}; stepped[0] || stepped[1];)
        for (int i = 0; i < 2; i++)
            assert_int_equal(batch_step(b[i], &stepped[i], &e), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(job_failed(j[i], &e), 0);
        same(&want[i], &got[i]);
        batch_destroy(b[i]);
        session_close(s[i]);
        reply_fini(&want[i]);
        reply_fini(&got[i]);
    }
    runtime_destroy(r);
}

// The second model is planned in what the first leaves, and fits once the first has gone.
static void a_refusal_says_why_a_model_does_not_fit(void **state) {
    (void)state;
    struct session_options o = options_of(NULL, files.target, NULL);
    struct memory_plan p;
    struct session *a = NULL, *b = NULL;
    struct err e = {0};
    o.threads = 1;
    assert_int_equal(session_measure(&o, &p, &e), 0);
    int64_t limit = plan_total(&p) * 3 / 2;
    struct runtime *r = open_runtime();
    struct runtime_device *d = open_cpu(r, limit);
    o = options_of(r, files.target, NULL);
    assert_int_equal(session_open(&a, &o, &e), 0);
    assert_int_equal(runtime_available(d), limit - plan_total(session_plan(a)));
    assert_int_equal(session_open(&b, &o, &e), ERR_MEMORY);
    assert_null(b);
    assert_non_null(strstr(e.text, files.target));
    assert_non_null(strstr(e.text, "holds"));
    assert_int_equal(session_measure(&o, &p, &e), ERR_MEMORY);
    assert_int_equal(p.available, runtime_available(d));
    session_close(a);
    assert_int_equal(runtime_available(d), limit);
    assert_int_equal(session_open(&b, &o, &e), 0);
    session_close(b);
    runtime_destroy(r);
}

// With room for the states and pages of one full sequence, further ones get no pages; what the
// first has let go they can have.
static void pages_of_all_sequences_are_budgeted(void **state) {
    (void)state;
    struct runtime *r = open_runtime();
    struct session *s = NULL;
    struct sequence *one = NULL, *two = NULL;
    struct err e = {0};
    int32_t text[CONTEXT];
    for (int i = 0; i < CONTEXT; i++)
        text[i] = i % 250;
    open_cpu(r, 200 * MIB);
    struct session_options o = options_of(r, files.target, files.draft);
    assert_int_equal(session_open(&s, &o, &e), 0);
    assert_int_equal(session_prefill(s, text, CONTEXT - 8, &one, &e), 0);
    assert_int_equal(session_prefill(s, text + 1, 8, &two, &e), ERR_LIMIT);
    assert_null(two);
    assert_non_null(strstr(e.text, "planned"));
    sequence_destroy(one);
    assert_int_equal(session_prefill(s, text + 1, 8, &two, &e), 0);
    sequence_destroy(two);
    assert_int_equal(session_trim(s), plan_kv(session_plan(s), CONTEXT));
    session_close(s);
    runtime_destroy(r);
}

// The only session of a runtime of its own has all that its limit leaves.
static void a_private_runtime_leaves_all_pages_to_its_session(void **state) {
    (void)state;
    struct session *s = NULL;
    struct sequence *all[3] = {NULL, NULL, NULL};
    struct err e = {0};
    int32_t text[CONTEXT];
    for (int i = 0; i < CONTEXT; i++)
        text[i] = i % 250;
    struct session_options o = options_of(NULL, files.target, NULL);
    struct memory_plan p;
    assert_int_equal(session_measure(&o, &p, &e), 0);
    o.target.memory_limit = plan_total(&p) + plan_kv(&p, CONTEXT) + 1000;
    assert_int_equal(session_open(&s, &o, &e), 0);
    for (int i = 0; i < 2; i++)
        assert_int_equal(session_prefill(s, text + i, CONTEXT - 8, &all[i], &e), 0);
    assert_int_equal(session_prefill(s, text + 2, CONTEXT - 8, &all[2], &e), ERR_LIMIT);
    for (int i = 0; i < 3; i++)
        sequence_destroy(all[i]);
    session_close(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_device_is_opened_once),
        cmocka_unit_test(auto_stays_what_it_was),
        cmocka_unit_test(reservations_are_counted_and_released),
        cmocka_unit_test(no_limit_refuses_nothing),
        cmocka_unit_test(two_models_give_what_each_gives_alone),
        cmocka_unit_test(a_refusal_says_why_a_model_does_not_fit),
        cmocka_unit_test(pages_of_all_sequences_are_budgeted),
        cmocka_unit_test(a_private_runtime_leaves_all_pages_to_its_session),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
