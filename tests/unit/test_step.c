// SPDX-License-Identifier: Apache-2.0
// How a step calls its drafters and does with their guesses, seen by a drafter that keeps the
// request and offers what the test prepared. That the output stays the same is the property test's.
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/rng.h"
#include "ops/exec.h"
#include "spec/step/step.h"
#include "support/tiny_gguf.h"

enum { DEPTH = 6, CONTEXT = 512 };

struct fixture {
    struct exec *x;
    struct gguf *file;
    struct model *model;
};

// The drafter under the test's control.
struct spy {
    int calls, fail;
    struct draft_request seen;
    struct sample_row noise[TREE_MAX_DEPTH];
    int32_t ids[DEPTH];
    float logp[DEPTH];
};

static int spy_create(void **self, const struct draft_config *c, struct err *e) {
    (void)e;
    *self = (void *)(uintptr_t)c->recording; // the spy itself, borrowed
    return 0;
}

static void spy_destroy(void *self) {
    (void)self;
}

static int spy_max_depth(const void *self) {
    (void)self;
    return DEPTH;
}

static int spy_propose(void *self, const struct draft_request *r, int n,
                       struct proposal *const *out, struct err *e) {
    struct spy *s = self;
    struct proposal *p = out[0];
    assert_int_equal(n, 1);
    s->calls++;
    s->seen = *r;
    if (r->noise)
        memcpy(s->noise, r->noise, (size_t)r->max_depth * sizeof *r->noise);
    if (s->fail)
        return err_set(e, ERR_MEMORY, "the spy fails");
    p->depth = DEPTH;
    p->k = 1;
    p->ids = s->ids;
    p->logp = s->logp;
    return 0;
}

static const struct drafter_class spy_class = {.name = "spy",
                                               .create = spy_create,
                                               .destroy = spy_destroy,
                                               .max_depth = spy_max_depth,
                                               .propose = spy_propose};

static int setup(void **state) {
    static struct fixture f;
    char path[64];
    struct tiny_shape t = tiny_shape_default();
    struct model_options o = model_options_default();
    *state = &f;
    o.max_ctx = CONTEXT;
    snprintf(path, sizeof path, "/tmp/coppice-step-%d.gguf", (int)getpid());
    int rc = tiny_target_write(&t, path, NULL);
    if (!rc)
        rc = gguf_open(&f.file, path, NULL);
    unlink(path);
    if (!rc)
        rc = exec_create_cpu(&f.x, "auto", 1, NULL);
    return rc ? rc : model_load(&f.model, f.x, f.file, &o, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    model_destroy(f->model);
    exec_destroy(f->x);
    gguf_close(f->file);
    return 0;
}

// One sequence with a prompt, and a member whose only drafter is the spy.
struct bench {
    struct spy spy;
    struct drafter *drafter;
    struct step *step;
    struct member m;
    struct sequence *seq;
};

static const struct walk_limits free_limits = {.tokens_left = 50, .context_left = 50};

static int run(struct bench *b, struct err *e) {
    struct member *m = &b->m;
    int rc = step_run(b->step, &m, 1, e);
    if (!rc && m->rc && e)
        *e = m->err;
    return rc ? rc : m->rc;
}

// Runs tokens and chooses the one after them when requested.
static void feed(struct bench *b, const int32_t *tokens, int64_t n, bool choose) {
    b->m.phase = MEMBER_PROMPT;
    b->m.piece = tokens;
    b->m.n_piece = n;
    b->m.choose = choose;
    assert_int_equal(run(b, NULL), 0);
}

// One decoding step after the newest token.
static int decode(struct bench *b, struct err *e) {
    b->m.phase = MEMBER_DECODE;
    int rc = run(b, e);
    if (!rc)
        b->m.root = b->m.walk.chosen[b->m.walk.count - 1];
    return rc;
}

static void bench_open(struct bench *b, const struct fixture *f, double temperature, int budget) {
    struct draft_config d = {.recording = (const int32_t *)(const void *)&b->spy};
    struct member_config c = {.n_drafters = 1, .share_noise = true, .hash = true};
    struct step_config s = {.model = f->model, .max_members = 1};
    static const int32_t prompt[] = {5, 6, 7, 8, 9};
    *b = (struct bench){0};
    for (int i = 0; i < DEPTH; i++)
        b->spy.logp[i] = -0.1f;
    assert_int_equal(drafter_create_class(&b->drafter, &spy_class, &d, NULL), 0);
    c.drafters[0] = b->drafter;
    c.tree = (struct tree_options){.budget = budget, .k = 3, .max_depth = TREE_MAX_DEPTH};
    sample_params_init(&c.sample);
    c.sample.temperature = temperature;
    c.sample.frequency = 0.5;
    assert_int_equal(member_init(&b->m, f->model, &c, NULL), 0);
    assert_int_equal(step_create(&b->step, &s, NULL), 0);
    assert_int_equal(model_sequence(f->model, &b->seq, NULL), 0);
    b->m.seq = b->seq;
    b->m.limits = free_limits;
    feed(b, prompt, 5, true);
    b->m.root = b->m.walk.chosen[0];
}

static void bench_close(struct bench *b) {
    member_fini(&b->m);
    step_destroy(b->step);
    sequence_destroy(b->seq);
    drafter_destroy(b->drafter);
}

// With a budget, drafters are requested what it says that a draft is worth; without one, for all.
static void test_useful_depth(void **state) {
    const struct fixture *f = *state;
    struct bench b;
    struct budget *budget;
    struct price *price;
    struct member_config c = {.n_drafters = 1};
    struct step_config s = {.model = f->model, .max_members = 1};
    bench_open(&b, f, 0, 22);
    assert_int_equal(decode(&b, NULL), 0);
    assert_int_equal(b.spy.seen.useful_depth, 0);
    member_fini(&b.m);
    step_destroy(b.step);
    assert_int_equal(budget_create(&budget, NULL), 0);
    assert_int_equal(price_create(&price, PRICE_CPU, NULL, NULL, NULL), 0);
    budget_begin(budget, NULL);
    s.price = price;
    c.drafters[0] = b.drafter;
    c.budget = budget;
    c.tree = (struct tree_options){.budget = 22, .k = 3, .max_depth = TREE_MAX_DEPTH};
    sample_params_init(&c.sample);
    int32_t root = b.m.root;
    assert_int_equal(member_init(&b.m, f->model, &c, NULL), 0);
    assert_int_equal(step_create(&b.step, &s, NULL), 0);
    b.m.seq = b.seq;
    b.m.limits = free_limits;
    b.m.root = root;
    b.spy.calls = 0;
    int near = 0;
    for (int i = 0; i < 30; i++) {
        assert_int_equal(decode(&b, NULL), 0);
        struct step_times ms = step_times_of(b.step);
        double took = ms.verify + ms.sample + ms.commit;
        double priced = price_pass_ms(price, b.m.tree.n, 1);
        near += priced > took / 5 && priced < 5 * took;
    }
    assert_true(near >= 15); // what passes take is learnt for the rows that they have
    assert_true(b.spy.calls > 0 && price_ready(price));
    assert_true(b.spy.seen.useful_depth == DEPTH || b.spy.seen.useful_depth == DEPTH / 2);
    bench_close(&b);
    budget_destroy(budget);
    price_destroy(price);
}

static void test_request(void **state) {
    struct bench b;
    bench_open(&b, *state, 0.8, 22);
    for (int64_t len = 5; len < 12;) {
        assert_int_equal(sequence_len(b.seq), len);
        int32_t root = b.m.root;
        assert_int_equal(decode(&b, NULL), 0);
        assert_ptr_equal(b.spy.seen.seq, b.seq);
        assert_int_equal(b.spy.seen.root, root);
        assert_int_equal(b.spy.seen.k, 3);
        assert_int_equal(b.spy.seen.max_depth, DEPTH);
        for (int d = 0; d < DEPTH; d++) // the guess at depth d + 1 takes this position
            assert_int_equal(b.spy.noise[d].pos, len + 1 + d);
        assert_true(b.spy.noise[0].temperature == 0.8f);
        len += b.m.walk.count;
    }
    bench_close(&b);
}

// Guesses that could only be thrown away are not requested.
static void test_limits(void **state) {
    struct bench b;
    bench_open(&b, *state, 0, 22);
    b.m.limits.tokens_left = 4;
    assert_int_equal(decode(&b, NULL), 0);
    assert_int_equal(b.spy.seen.max_depth, 3);
    assert_int_equal(b.m.tree.n, 4);
    assert_null(b.spy.seen.noise); // greedy
    b.m.limits = free_limits;
    b.m.limits.context_left = 2;
    assert_int_equal(decode(&b, NULL), 0);
    assert_int_equal(b.spy.seen.max_depth, 1);
    int calls = b.spy.calls;
    b.m.limits.context_left = 1;
    assert_int_equal(decode(&b, NULL), 0);
    assert_int_equal(b.spy.calls, calls);
    assert_int_equal(b.m.walk.end, END_CONTEXT);
    assert_int_equal(b.m.walk.count, 1);
    bench_close(&b);
}

static void test_budget_zero(void **state) {
    struct bench b;
    bench_open(&b, *state, 0, 0);
    assert_int_equal(decode(&b, NULL), 0);
    assert_int_equal(b.spy.calls, 0);
    assert_int_equal(b.m.tree.n, 1);
    assert_int_equal(sequence_len(b.seq), 6);
    assert_true(step_times_of(b.step).commit == 0);
    bench_close(&b);
}

static void test_failure(void **state) {
    struct bench b;
    struct err e = {0};
    bench_open(&b, *state, 0, 22);
    uint64_t hash = b.m.hash;
    b.spy.fail = 1;
    assert_int_equal(decode(&b, &e), ERR_MEMORY);
    assert_string_equal(e.text, "the spy fails");
    assert_int_equal(sequence_len(b.seq), 5);
    assert_int_equal(b.m.hash, hash);
    b.spy.fail = 0;
    b.spy.ids[2] = 1 << 30; // no such token
    assert_true(decode(&b, &e) < 0);
    assert_int_equal(sequence_len(b.seq), 5);
    b.spy.ids[2] = 0;
    assert_int_equal(decode(&b, &e), 0);
    bench_close(&b);
}

static void test_refused(void **state) {
    const struct fixture *f = *state;
    struct member_config c = {.tree = {.budget = 128}};
    struct step_config s = {.model = f->model, .max_members = 1000};
    struct step *step = NULL;
    struct bench b;
    struct err e = {0};
    sample_params_init(&c.sample);
    memset(&b, 0, sizeof b);
    assert_int_equal(member_init(&b.m, f->model, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "128"));
    assert_int_equal(step_create(&step, &s, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "1000"));
    bench_open(&b, f, 0, 0);
    static const int32_t none[2] = {0};
    b.m.phase = MEMBER_PROMPT;
    b.m.n_piece = 0;
    assert_int_equal(run(&b, &e), ERR_USAGE);
    uint64_t hash = b.m.hash;
    feed(&b, none, 2, false);
    assert_int_equal(b.m.hash, hash);
    assert_int_equal(b.m.walk.count, 0);
    assert_int_equal(model_wanted(f->model), 0); // nobody requested logits
    struct member *two[2] = {&b.m, &b.m};
    assert_int_equal(step_run(b.step, two, 2, &e), ERR_USAGE); // more than it was made for
    bench_close(&b);
}

// Prompt rows and roots of all members count together against the rows of a pass.
static void test_too_many_rows(void **state) {
    const struct fixture *f = *state;
    static const int32_t many[1 << 12] = {0};
    struct step_config c = {.model = f->model, .max_members = 2};
    struct bench a, b;
    struct step *step;
    struct err e = {0};
    bench_open(&a, f, 0, 22);
    bench_open(&b, f, 0, 22);
    assert_int_equal(step_create(&step, &c, NULL), 0);
    a.m.phase = MEMBER_PROMPT;
    a.m.piece = many;
    a.m.n_piece = model_max_rows(f->model);
    a.m.choose = false;
    b.m.phase = MEMBER_DECODE;
    struct member *both[2] = {&a.m, &b.m};
    assert_int_equal(step_run(step, both, 2, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "513 rows"));
    assert_int_equal(sequence_len(b.seq), 5);
    a.m.n_piece = 100;
    assert_int_equal(step_run(step, both, 2, &e), 0);
    assert_int_equal(sequence_len(a.seq), 105);
    step_destroy(step);
    bench_close(&a);
    bench_close(&b);
}

// A member that cannot have the memory it needs is left out and unchanged.
static void test_left_out(void **state) {
    struct bench b;
    struct err e = {0};
    static const int32_t many[CONTEXT] = {0};
    bench_open(&b, *state, 0, 22);
    b.m.phase = MEMBER_PROMPT;
    b.m.piece = many;
    b.m.n_piece = CONTEXT;
    b.m.choose = false;
    assert_int_equal(run(&b, &e), ERR_LIMIT);
    assert_int_equal(sequence_len(b.seq), 5);
    b.m.n_piece = 3;
    assert_int_equal(run(&b, &e), 0);
    assert_int_equal(sequence_len(b.seq), 8);
    bench_close(&b);
}

// A draft that predicts the target's very logits, and shares its noise, must guess its draws: the
// first candidate under noise is the sampled token. Without the noise it often is not.
static void test_shared_noise(void **state) {
    const struct fixture *f = *state;
    const struct ops *ops = exec_ops(f->x);
    enum { ROWS = 32, VOCAB = 300 };
    static float logits[ROWS * VOCAB];
    struct rng g = {21};
    struct sample_params p;
    struct sampler *s;
    int32_t choice[ROWS], noisy[ROWS], bare[ROWS];
    float logp[ROWS];
    int agree = 0;
    for (int i = 0; i < ROWS * VOCAB; i++)
        logits[i] = 4 * rng_unit(rng_next(&g));
    sample_params_init(&p);
    p.temperature = 0.8;
    p.seed = 7;
    assert_int_equal(sampler_create(&s, &p, ROWS, VOCAB, NULL), 0);
    const struct sample_row *noise = sampler_noise(s, 100, ROWS);
    ops->sample(f->x, logits, ROWS, VOCAB, noise, choice);
    struct topk_args top = {.logits = logits,
                            .n = ROWS,
                            .vocab = VOCAB,
                            .k = 1,
                            .noise = noise,
                            .ids = noisy,
                            .logp = logp};
    ops->head_topk(f->x, &top);
    top.noise = NULL;
    top.ids = bare;
    ops->head_topk(f->x, &top);
    for (int i = 0; i < ROWS; i++) {
        assert_int_equal(noisy[i], choice[i]);
        agree += bare[i] == choice[i];
    }
    assert_true(agree < ROWS / 2);
    sampler_destroy(s);
}

// Generates COUNT tokens. With `guess`, the spy proposes those, every seventh one wrong. Returns
// the largest number of rows that one step committed.
enum { COUNT = 30 };
static int generate(struct fixture *f, const int32_t *guess, int32_t *out, uint64_t *hash) {
    struct bench b;
    int max = 0;
    bench_open(&b, f, 0.8, guess ? 22 : 0);
    out[0] = b.m.root;
    for (int n = 1; n < COUNT;) {
        for (int d = 0; guess && d < DEPTH; d++)
            b.spy.ids[d] = n + d < COUNT ? guess[n + d] ^ ((n + d) % 7 == 0) : 0;
        assert_int_equal(decode(&b, NULL), 0);
        for (int i = 0; i < b.m.walk.count && n < COUNT; i++)
            out[n++] = b.m.walk.chosen[i];
        max = b.m.walk.count > max ? b.m.walk.count : max;
        *hash = n < COUNT ? b.m.hash : *hash; // the last step may go past COUNT
    }
    bench_close(&b);
    return max;
}

// A backend that chooses for all rows of a tree at once gives what one that follows the path gives.
static void test_sample_batched(void **state) {
    struct fixture *f = *state;
    const struct ops *own = exec_ops(f->x);
    struct ops batched = *own;
    int32_t plain[COUNT], path[COUNT], all[COUNT];
    uint64_t hash_plain = 0, hash_path = 0, hash_all = 0;
    batched.sample_batched = true;
    assert_int_equal(generate(f, NULL, plain, &hash_plain), 1);
    assert_true(generate(f, plain, path, &hash_path) > 3);
    f->x->ops = &batched;
    assert_true(generate(f, plain, all, &hash_all) > 3);
    f->x->ops = own;
    assert_memory_equal(path, plain, sizeof plain);
    assert_memory_equal(all, plain, sizeof plain);
    assert_int_equal(hash_all, hash_path);
}

// The head is part of the pass and not of the sampling: it is made to take HEAD_MS at least, so
// that verifying takes as long.
enum { HEAD_MS = 20 };
static const struct ops *quick;
static const float *head_logits;

static void slow_head(struct exec *x, const struct linear_job *jobs, int n_jobs,
                      const struct act *in, int64_t n) {
    double begin = clock_ms();
    quick->linear(x, jobs, n_jobs, in, n);
    while (jobs->out == head_logits && clock_ms() - begin < HEAD_MS)
        continue;
}

static void test_head_is_verifying(void **state) {
    struct fixture *f = *state;
    struct ops slow;
    struct bench b;
    bench_open(&b, f, 0.8, 0);
    head_logits = model_logits_at(f->model, 0);
    quick = exec_ops(f->x);
    slow = *quick;
    slow.linear = slow_head;
    f->x->ops = &slow;
    assert_int_equal(decode(&b, NULL), 0);
    f->x->ops = quick;
    struct step_times t = step_times_of(b.step);
    assert_true(t.verify >= HEAD_MS);
    assert_true(t.prompt >= 0 && t.sample >= 0);
    bench_close(&b);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),           cmocka_unit_test(test_limits),
        cmocka_unit_test(test_useful_depth),      cmocka_unit_test(test_budget_zero),
        cmocka_unit_test(test_failure),           cmocka_unit_test(test_refused),
        cmocka_unit_test(test_too_many_rows),     cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_shared_noise),      cmocka_unit_test(test_sample_batched),
        cmocka_unit_test(test_head_is_verifying),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
