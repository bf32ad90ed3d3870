// SPDX-License-Identifier: Apache-2.0
// What a request sets for its choices besides sampling: where they stop, biases, log-probabilities.
// With drafting or without, alone or side by side, the replies are the same.
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "engine/batch/batch.h"
#include "support/tiny_gguf.h"
#include "unit/test.h"

enum { CONTEXT = 300, NEW = 60, PROMPT = 100, MANY = 4 };

struct fixture {
    struct tiny_pair files;
    struct session *session;
    int32_t prompt[PROMPT];
    int32_t recording[PROMPT + NEW];
};

static int setup(void **state) {
    static struct fixture f;
    struct session_options o = session_options_default();
    struct rng g = {7};
    *state = &f;
    o.model = f.files.target;
    o.draft = f.files.draft;
    o.target.max_ctx = CONTEXT;
    for (int i = 0; i < PROMPT; i++)
        f.prompt[i] = (int32_t)rng_below(&g, 250);
    if (tiny_pair_write(&f.files, "request"))
        return -1;
    return session_open(&f.session, &o, NULL);
}

static int teardown(void **state) {
    struct fixture *f = *state;
    session_close(f->session);
    tiny_pair_remove(&f->files);
    return 0;
}

static void make(const struct fixture *f, struct request *r, double temperature) {
    request_init(r);
    r->prompt = f->prompt;
    r->n_prompt = PROMPT;
    r->max_tokens = NEW;
    r->ignore_eos = true;
    r->logit_hash = true;
    r->auto_budget = false;
    r->tree.budget = 22;
    r->sample.temperature = temperature;
    r->sample.seed = 5;
}

static void generate(const struct fixture *f, const struct request *r, struct reply *y) {
    assert_int_equal(session_generate(f->session, r, y, NULL), 0);
}

// The oracle has the reply, but for some errors: most steps take several tokens.
static void precompute(struct fixture *f, struct request *r, const struct reply *y) {
    memcpy(f->recording, r->prompt, (size_t)r->n_prompt * sizeof *f->recording);
    memcpy(f->recording + r->n_prompt, y->ids, (size_t)y->n * sizeof *f->recording);
    r->how = SPECULATE_ORACLE;
    r->oracle = (struct draft_config){
        .recording = f->recording, .n_recording = r->n_prompt + y->n, .error_rate = 0.1};
}

static void same_logprobs(const struct logprobs *a, const struct logprobs *b) {
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        struct token_logprobs p = logprobs_at(a, i), q = logprobs_at(b, i);
        assert_int_equal(p.n, q.n);
        assert_memory_equal(&p.chosen, &q.chosen, sizeof p.chosen);
        assert_memory_equal(p.ids, q.ids, (size_t)p.n * sizeof *p.ids);
        assert_memory_equal(p.logp, q.logp, (size_t)p.n * sizeof *p.logp);
    }
}

static void same(const struct reply *a, const struct reply *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_int_equal(a->hash, b->hash);
    assert_int_equal(a->end, b->end);
    same_logprobs(&a->logprobs, &b->logprobs);
    same_logprobs(&a->prompt_logprobs, &b->prompt_logprobs);
}

// A caller's stop: its calls, and after how many tokens it says yes.
struct stop {
    int32_t called[NEW];
    int64_t n, at;
};

static bool stop_at(void *arg, int32_t id) {
    struct stop *s = arg;
    assert_true(s->n < NEW);
    s->called[s->n++] = id;
    return s->n == s->at;
}

// Every token is requested once, in order, and the reply ends at the very one, whatever was
// guessed beyond it.
static void stops_at_the_token(void **state) {
    struct fixture *f = *state;
    struct request r;
    struct reply whole;
    make(f, &r, 0.8);
    generate(f, &r, &whole);
    assert_int_equal(whole.n, NEW);
    r.stop = stop_at;
    for (int64_t at = 1; at < NEW; at += at < 20 ? 1 : 7) {
        struct reply y[2];
        struct stop s[2] = {{.at = at}, {.at = at}};
        for (int drafting = 0; drafting < 2; drafting++) {
            r.how = SPECULATE_OFF;
            if (drafting)
                precompute(f, &r, &whole);
            r.stop_arg = &s[drafting];
            generate(f, &r, &y[drafting]);
            assert_int_equal(s[drafting].n, at);
            assert_memory_equal(s[drafting].called, whole.ids, (size_t)at * sizeof *whole.ids);
        }
        assert_int_equal(y[0].end, END_STOP);
        assert_int_equal(y[0].n, at);
        same(&y[0], &y[1]);
        assert_true(at < 10 || y[1].steps < at);
        reply_fini(&y[0]);
        reply_fini(&y[1]);
    }
    reply_fini(&whole);
}

// Requests with biases of their own side by side: forbidden tokens never come, favoured ones do,
// and each reply is what it is alone.
static void biases_hold(void **state) {
    struct fixture *f = *state;
    for (int hot = 0; hot < 2; hot++) {
        struct request r[MANY];
        struct reply plain, alone[MANY], y[MANY];
        struct logit_bias bias[MANY][2];
        make(f, &r[0], hot ? 0.9 : 0);
        generate(f, &r[0], &plain);
        for (int i = 0; i < MANY; i++) {
            make(f, &r[i], hot ? 0.9 : 0);
            bias[i][0] = (struct logit_bias){plain.ids[i], -INFINITY};
            bias[i][1] = (struct logit_bias){255 - i, i % 2 ? 2 : 10000};
            r[i].sample.bias = bias[i];
            r[i].sample.n_bias = i == 0 ? 0 : i == 2 ? 2 : 1;
            generate(f, &r[i], &alone[i]);
            precompute(f, &r[i], &alone[i]);
            r[i].how = i % 2 ? SPECULATE_ORACLE : SPECULATE_TREE;
        }
        same(&plain, &alone[0]);
        for (int64_t j = 0; j < NEW; j++) {
            assert_int_not_equal(alone[1].ids[j], plain.ids[1]);
            assert_int_equal(alone[2].ids[j], 253);
            assert_int_not_equal(alone[3].ids[j], plain.ids[3]);
        }
        r[3].how = SPECULATE_OFF;
        assert_int_equal(session_generate_many(f->session, r, MANY, y, NULL, NULL), 0);
        for (int i = 0; i < MANY; i++) {
            same(&alone[i], &y[i]);
            reply_fini(&alone[i]);
            reply_fini(&y[i]);
        }
        reply_fini(&plain);
    }
}

// Log-probabilities of each token from a forward pass over the text token by token.
static void by_forward(const struct fixture *f, const int32_t *ids, int64_t n,
                       struct sample_logprobs *out) {
    struct model *m = session_model(f->session);
    struct exec *x = model_exec(m);
    struct sequence *seq = NULL;
    struct forest forest;
    int64_t vocab = model_params_of(m)->vocab;
    assert_int_equal(model_sequence(m, &seq, NULL), 0);
    assert_int_equal(forest_init(&forest, 1, NULL), 0);
    for (int64_t i = 0; i < n - 1; i++) {
        struct sample_row row = {.given = true, .token = ids[i + 1], .logprobs = &out[i]};
        int32_t choice;
        forest_reset(&forest);
        forest_chain(&forest, 0, i, &ids[i], 1, true);
        assert_int_equal(model_forward(m, &forest, &seq, 1, NULL), 0);
        out[i].n = OPS_LOGPROBS_MAX;
        exec_ops(x)->sample(x, model_logits(m, 0, 1), 1, vocab, &row, &choice);
        assert_int_equal(choice, ids[i + 1]);
    }
    forest_fini(&forest);
    sequence_destroy(seq);
}

static void like_forward(const struct logprobs *l, int64_t n, const struct sample_logprobs *want) {
    assert_int_equal(l->n, n);
    for (int64_t i = 0; i < n; i++) {
        struct token_logprobs p = logprobs_at(l, i);
        assert_int_equal(p.n, l->n_best);
        assert_memory_equal(&p.chosen, &want[i].chosen, sizeof p.chosen);
        assert_memory_equal(p.ids, want[i].ids, (size_t)p.n * sizeof *p.ids);
        assert_memory_equal(p.logp, want[i].logp, (size_t)p.n * sizeof *p.logp);
    }
}

// Those of prompt and reply are what a forward pass gives, whatever is biased, drafted, or cut.
static void logprobs_are_the_models(void **state) {
    struct fixture *f = *state;
    static const int best[] = {0, 1, 5, 32, 20};
    const struct logit_bias bias[2] = {{3, -INFINITY}, {9, 4}};
    struct sample_logprobs want[PROMPT + NEW];
    for (int i = 0; i < 5; i++) {
        struct request r;
        struct reply plain, y;
        make(f, &r, i % 2 ? 0.9 : 0);
        r.sample.bias = bias;
        r.sample.n_bias = 2;
        generate(f, &r, &plain);
        assert_int_equal(plain.logprobs.n, 0);
        r.logprobs = best[i];
        r.prompt_logprobs = i > 0;
        precompute(f, &r, &plain);
        by_forward(f, f->recording, PROMPT + NEW, want);
        generate(f, &r, &y);
        assert_int_equal(y.hash, plain.hash);
        assert_memory_equal(y.ids, plain.ids, NEW * sizeof *y.ids);
        assert_true(y.steps < NEW);
        like_forward(&y.logprobs, NEW, want + PROMPT - 1);
        like_forward(&y.prompt_logprobs, i > 0 ? PROMPT - 1 : 0, want);
        reply_fini(&plain);
        reply_fini(&y);
    }
}

// Side by side, in pieces that share passes with trees, with all kinds of limits on rows.
static void logprobs_side_by_side(void **state) {
    struct fixture *f = *state;
    static const int verify[] = {4, 5, 16, 128}, chunk[] = {1, 7, 512, 33};
    struct request r[MANY];
    struct reply alone[MANY], y[MANY];
    for (int i = 0; i < MANY; i++) {
        make(f, &r[i], i % 2 ? 0.9 : 0);
        r[i].n_prompt =
            PROMPT - 30 * i; // the shorter ones decode together with pieces of the others
        r[i].logprobs = i - 1;
        r[i].prompt_logprobs = i != 2;
        r[i].max_tokens = NEW - i;
        generate(f, &r[i], &alone[i]);
        assert_int_equal(alone[i].logprobs.n, i ? NEW - i : 0);
        r[i].how = i == 1 ? SPECULATE_OFF : SPECULATE_TREE;
    }
    for (size_t i = 0; i < sizeof verify / sizeof *verify; i++) {
        struct session_options o = session_options_default();
        struct session *s = NULL;
        o.model = f->files.target;
        o.draft = f->files.draft;
        o.target.max_ctx = CONTEXT;
        o.target.max_verify = verify[i];
        o.chunk = chunk[i];
        assert_int_equal(session_open(&s, &o, NULL), 0);
        assert_int_equal(session_generate_many(s, r, MANY, y, NULL, NULL), 0);
        for (int j = 0; j < MANY; j++) {
            same(&alone[j], &y[j]);
            reply_fini(&y[j]);
        }
        session_close(s);
    }
    for (int i = 0; i < MANY; i++)
        reply_fini(&alone[i]);
}

// A prompt alone, without new tokens; a prompt of one token.
static void logprobs_of_prompts(void **state) {
    struct fixture *f = *state;
    struct sample_logprobs want[PROMPT];
    struct request r;
    struct reply y;
    make(f, &r, 0);
    by_forward(f, f->prompt, PROMPT, want);
    r.max_tokens = 0;
    r.logprobs = 3;
    r.prompt_logprobs = true;
    generate(f, &r, &y);
    assert_int_equal(y.n, 0);
    assert_int_equal(y.logprobs.n, 0);
    like_forward(&y.prompt_logprobs, PROMPT - 1, want);
    reply_fini(&y);
    r.n_prompt = 1;
    r.max_tokens = 2;
    generate(f, &r, &y);
    assert_int_equal(y.prompt_logprobs.n, 0);
    assert_int_equal(y.logprobs.n, 2);
    reply_fini(&y);
}

// Memory comes in blocks as tokens do, and stays where it is.
static void logprobs_grow(void **state) {
    (void)state;
    enum { MANY_TOKENS = 1000 };
    struct logprobs l;
    struct sample_logprobs p = {.n = 3};
    struct token_logprobs first;
    assert_int_equal(logprobs_init(&l, 3, MANY_TOKENS, NULL), 0);
    for (int i = 0; i < MANY_TOKENS; i++) {
        p.chosen = (float)-i;
        for (int j = 0; j < 3; j++) {
            p.ids[j] = i * 3 + j;
            p.logp[j] = (float)(-i - j);
        }
        assert_int_equal(logprobs_add(&l, &p, NULL), 0);
        if (i == 0)
            first = logprobs_at(&l, 0);
    }
    assert_int_equal(logprobs_add(&l, &p, NULL), ERR_STATE);
    assert_ptr_equal(logprobs_at(&l, 0).ids, first.ids);
    for (int i = 0; i < MANY_TOKENS; i++) {
        struct token_logprobs t = logprobs_at(&l, i);
        assert_true(t.chosen == (float)-i && t.n == 3);
        for (int j = 0; j < 3; j++)
            assert_true(t.ids[j] == i * 3 + j && t.logp[j] == (float)(-i - j));
    }
    logprobs_fini(&l);
    logprobs_fini(&l);
}

static void bad_requests_are_refused(void **state) {
    struct fixture *f = *state;
    const struct logit_bias beyond = {1 << 20, 1};
    struct request r;
    struct reply y;
    struct err e;
    make(f, &r, 0);
    r.sample.bias = &beyond;
    r.sample.n_bias = 1;
    assert_int_equal(session_generate(f->session, &r, &y, &e), ERR_MISMATCH);
    assert_non_null(strstr(e.text, "1048576"));
    make(f, &r, 0);
    r.logprobs = 33;
    assert_int_equal(session_generate(f->session, &r, &y, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "33 best tokens"));
    struct sequence *seq = NULL;
    assert_int_equal(session_prefill(f->session, f->prompt, 5, &seq, NULL), 0);
    make(f, &r, 0);
    r.prefix = seq;
    r.prompt_logprobs = true;
    assert_int_equal(session_generate(f->session, &r, &y, &e), ERR_USAGE);
    assert_non_null(strstr(e.text, "5 of its tokens"));
    sequence_destroy(seq);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_at_the_token),       cmocka_unit_test(biases_hold),
        cmocka_unit_test(logprobs_are_the_models),  cmocka_unit_test(logprobs_side_by_side),
        cmocka_unit_test(logprobs_of_prompts),      cmocka_unit_test(logprobs_grow),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
