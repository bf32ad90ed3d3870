// SPDX-License-Identifier: Apache-2.0
// What a request asks of its choices beside sampling: where they stop, and biases. With drafting or
// without, alone or side by side, the replies are the same.
#include <math.h>
#include <stdio.h>

#include "base/rng.h"
#include "engine/batch.h"
#include "engine/generate.h"
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

// The oracle knows the reply, but for some errors: most steps take several tokens.
static void foresee(struct fixture *f, struct request *r, const struct reply *y) {
    memcpy(f->recording, r->prompt, (size_t)r->n_prompt * sizeof *f->recording);
    memcpy(f->recording + r->n_prompt, y->ids, (size_t)y->n * sizeof *f->recording);
    r->how = SPECULATE_ORACLE;
    r->oracle = (struct draft_config){
        .recording = f->recording, .n_recording = r->n_prompt + y->n, .error_rate = 0.1};
}

static void same(const struct reply *a, const struct reply *b) {
    assert_int_equal(a->n, b->n);
    assert_memory_equal(a->ids, b->ids, (size_t)a->n * sizeof *a->ids);
    assert_int_equal(a->hash, b->hash);
    assert_int_equal(a->end, b->end);
}

// A caller's stop: what it was asked, and after how many tokens it says yes.
struct stop {
    int32_t asked[NEW];
    int64_t n, at;
};

static bool stop_at(void *arg, int32_t id) {
    struct stop *s = arg;
    assert_true(s->n < NEW);
    s->asked[s->n++] = id;
    return s->n == s->at;
}

// Every token is asked for once, in order, and the reply ends at the very one, whatever was
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
                foresee(f, &r, &whole);
            r.stop_arg = &s[drafting];
            generate(f, &r, &y[drafting]);
            assert_int_equal(s[drafting].n, at);
            assert_memory_equal(s[drafting].asked, whole.ids, (size_t)at * sizeof *whole.ids);
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
            foresee(f, &r[i], &alone[i]);
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
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stops_at_the_token),
        cmocka_unit_test(biases_hold),
        cmocka_unit_test(bad_requests_are_refused),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
