// SPDX-License-Identifier: Apache-2.0
// What a step asks of its drafters and does with their guesses, seen by a drafter that keeps the
// request and offers what the test prepared. That the output stays the same is the property test's.
#include "test.h"

#include <stdio.h>
#include <unistd.h>

#include "base/rng.h"
#include "ops/exec.h"
#include "spec/step.h"
#include "support/tiny_gguf.h"

enum { DEPTH = 6, CONTEXT = 64 };

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
                       struct proposal *const *proposals, struct err *e) {
    struct spy *s = self;
    struct proposal *p = proposals[0];
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

static const struct drafter_class spy_class = {"spy",         spy_create,  spy_destroy,
                                               spy_max_depth, spy_propose, .shared = false};

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

// One sequence with a prompt, and a step whose only drafter is the spy.
struct bench {
    struct spy spy;
    struct drafter *drafter;
    struct step *step;
    struct sequence *seq;
    int32_t root;
};

static void bench_open(struct bench *b, const struct fixture *f, double temperature, int budget) {
    struct draft_config d = {.recording = (const int32_t *)(const void *)&b->spy};
    struct step_config c = {.model = f->model, .n_drafters = 1, .share_noise = true};
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
    c.hash = true;
    assert_int_equal(step_create(&b->step, &c, NULL), 0);
    assert_int_equal(model_sequence(f->model, &b->seq, NULL), 0);
    assert_int_equal(step_feed(b->step, b->seq, prompt, 5, &b->root, NULL), 0);
}

static void bench_close(struct bench *b) {
    step_destroy(b->step);
    sequence_destroy(b->seq);
    drafter_destroy(b->drafter);
}

static const struct walk_limits free_limits = {.tokens_left = 50, .context_left = 50};

// The budget's depth is what drafters are asked for, and without a budget nothing is; price and
// budget learn from steps.
static void test_worth(void **state) {
    const struct fixture *f = *state;
    struct bench b;
    struct walk w;
    struct budget *chooser;
    struct price *price;
    bench_open(&b, f, 0, 22);
    assert_int_equal(step_run(b.step, b.seq, b.root, &free_limits, &w, NULL), 0);
    assert_int_equal(b.spy.seen.worth, 0);
    step_destroy(b.step);
    struct step_config c = {.model = f->model, .n_drafters = 1, .drafters = {b.drafter}};
    assert_int_equal(budget_create(&chooser, NULL), 0);
    assert_int_equal(price_create(&price, PRICE_CPU, NULL), 0);
    c.budget = chooser;
    c.price = price;
    c.tree = (struct tree_options){.budget = 22, .k = 3, .max_depth = TREE_MAX_DEPTH};
    sample_params_init(&c.sample);
    assert_int_equal(step_create(&b.step, &c, NULL), 0);
    b.spy.calls = 0;
    assert_false(price_ready(price));
    assert_int_equal(step_run(b.step, b.seq, w.chosen[w.count - 1], &free_limits, &w, NULL), 0);
    assert_int_equal(b.spy.calls, 1);
    assert_true(b.spy.seen.worth == DEPTH || b.spy.seen.worth == DEPTH / 2);
    assert_true(step_tree(b.step)->n > 1);
    assert_true(price_ready(price));
    bench_close(&b);
    budget_destroy(chooser);
    price_destroy(price);
}

static void test_request(void **state) {
    struct bench b;
    struct walk w;
    bench_open(&b, *state, 0.8, 22);
    for (int64_t len = 5; len < 12;) {
        assert_int_equal(sequence_len(b.seq), len);
        assert_int_equal(step_run(b.step, b.seq, b.root, &free_limits, &w, NULL), 0);
        assert_ptr_equal(b.spy.seen.seq, b.seq);
        assert_int_equal(b.spy.seen.root, b.root);
        assert_int_equal(b.spy.seen.k, 3);
        assert_int_equal(b.spy.seen.max_depth, DEPTH);
        for (int d = 0; d < DEPTH; d++) // the guess at depth d + 1 takes this position
            assert_int_equal(b.spy.noise[d].pos, len + 1 + d);
        assert_true(b.spy.noise[0].temperature == 0.8f);
        len += w.count;
        b.root = w.chosen[w.count - 1];
    }
    bench_close(&b);
}

// Guesses that could only be thrown away are not asked for.
static void test_limits(void **state) {
    struct bench b;
    struct walk w;
    struct walk_limits l = free_limits;
    bench_open(&b, *state, 0, 22);
    l.tokens_left = 4;
    assert_int_equal(step_run(b.step, b.seq, b.root, &l, &w, NULL), 0);
    assert_int_equal(b.spy.seen.max_depth, 3);
    assert_int_equal(step_tree(b.step)->n, 4);
    assert_null(b.spy.seen.noise); // greedy
    l = free_limits;
    l.context_left = 2;
    assert_int_equal(step_run(b.step, b.seq, w.chosen[w.count - 1], &l, &w, NULL), 0);
    assert_int_equal(b.spy.seen.max_depth, 1);
    int calls = b.spy.calls;
    l.context_left = 1;
    assert_int_equal(step_run(b.step, b.seq, w.chosen[w.count - 1], &l, &w, NULL), 0);
    assert_int_equal(b.spy.calls, calls);
    assert_int_equal(w.end, END_CONTEXT);
    assert_int_equal(w.count, 1);
    bench_close(&b);
}

static void test_budget_zero(void **state) {
    struct bench b;
    struct walk w;
    bench_open(&b, *state, 0, 0);
    assert_int_equal(step_run(b.step, b.seq, b.root, &free_limits, &w, NULL), 0);
    assert_int_equal(b.spy.calls, 0);
    assert_int_equal(step_tree(b.step)->n, 1);
    assert_int_equal(sequence_len(b.seq), 6);
    assert_true(step_times_of(b.step).commit == 0);
    bench_close(&b);
}

static void test_failure(void **state) {
    struct bench b;
    struct walk w;
    struct err e = {0};
    bench_open(&b, *state, 0, 22);
    uint64_t hash = step_hash(b.step);
    b.spy.fail = 1;
    assert_int_equal(step_run(b.step, b.seq, b.root, &free_limits, &w, &e), ERR_MEMORY);
    assert_string_equal(e.text, "the spy fails");
    assert_int_equal(sequence_len(b.seq), 5);
    assert_int_equal(step_hash(b.step), hash);
    b.spy.fail = 0;
    b.spy.ids[2] = 1 << 30; // no such token
    assert_true(step_run(b.step, b.seq, b.root, &free_limits, &w, &e) < 0);
    assert_int_equal(sequence_len(b.seq), 5);
    b.spy.ids[2] = 0;
    assert_int_equal(step_run(b.step, b.seq, b.root, &free_limits, &w, &e), 0);
    bench_close(&b);
}

static void test_refused(void **state) {
    const struct fixture *f = *state;
    struct step_config c = {.model = f->model, .tree = {.budget = 128}};
    struct step *s = NULL;
    struct err e = {0};
    sample_params_init(&c.sample);
    assert_int_equal(step_create(&s, &c, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "128"));
    c.tree.budget = 0;
    assert_int_equal(step_create(&s, &c, &e), 0);
    struct sequence *seq;
    static const int32_t none[2] = {0};
    assert_int_equal(model_sequence(f->model, &seq, NULL), 0);
    assert_int_equal(step_feed(s, seq, none, 0, NULL, &e), ERR_USAGE);
    assert_int_equal(step_hash(s), 0);
    assert_int_equal(step_feed(s, seq, none, 2, NULL, &e), 0);
    assert_int_equal(model_wanted(f->model), 0); // nobody asked for logits
    sequence_destroy(seq);
    step_destroy(s);
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
    struct walk w;
    int most = 0;
    bench_open(&b, f, 0.8, guess ? 22 : 0);
    out[0] = b.root;
    for (int n = 1; n < COUNT;) {
        for (int d = 0; guess && d < DEPTH; d++)
            b.spy.ids[d] = n + d < COUNT ? guess[n + d] ^ ((n + d) % 7 == 0) : 0;
        assert_int_equal(step_run(b.step, b.seq, b.root, &free_limits, &w, NULL), 0);
        for (int i = 0; i < w.count && n < COUNT; i++)
            out[n++] = w.chosen[i];
        most = w.count > most ? w.count : most;
        b.root = w.chosen[w.count - 1];
        *hash = n < COUNT ? step_hash(b.step) : *hash; // the last step may go past COUNT
    }
    bench_close(&b);
    return most;
}

// A backend that chooses for all rows of a tree at once gives what one that follows the path gives.
static void test_sample_together(void **state) {
    struct fixture *f = *state;
    const struct ops *own = exec_ops(f->x);
    struct ops together = *own;
    int32_t plain[COUNT], path[COUNT], all[COUNT];
    uint64_t hash_plain = 0, hash_path = 0, hash_all = 0;
    together.sample_together = true;
    assert_int_equal(generate(f, NULL, plain, &hash_plain), 1);
    assert_true(generate(f, plain, path, &hash_path) > 3);
    f->x->ops = &together;
    assert_true(generate(f, plain, all, &hash_all) > 3);
    f->x->ops = own;
    assert_memory_equal(path, plain, sizeof plain);
    assert_memory_equal(all, plain, sizeof plain);
    assert_int_equal(hash_all, hash_path);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_request),      cmocka_unit_test(test_limits),
        cmocka_unit_test(test_worth),        cmocka_unit_test(test_budget_zero),
        cmocka_unit_test(test_failure),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_shared_noise), cmocka_unit_test(test_sample_together),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
