// SPDX-License-Identifier: Apache-2.0
// Timing of ops: it changes no bit of the output, counts every call once under the right name and
// section, and its bytes are those of the weights that a step must read.
#include "unit/test.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "convert/synth/synth.h"
#include "engine/batch/batch.h"
#include "ops/observe/timing.h"

static char target[64];
static const int32_t prompt[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9};
enum { N_PROMPT = sizeof prompt / sizeof *prompt, N_NEW = 70 };

static int setup(void **state) {
    (void)state;
    struct synth_options o = {
        .shape = synth_shape("qwen35-tiny"), .recipe = convert_recipe("Q8_0"), .threads = 1};
    snprintf(target, sizeof target, "/tmp/coppice-timing-%d.gguf", (int)getpid());
    return synth_write(target, &o, NULL);
}

static int teardown(void **state) {
    (void)state;
    return unlink(target);
}

static struct session *open_session(bool timing) {
    struct session_options o = session_options_default();
    struct session *s = NULL;
    o.model = target;
    o.threads = 1;
    o.timing = timing;
    assert_int_equal(session_open(&s, &o, NULL), 0);
    return s;
}

static struct reply generate(struct session *s) {
    struct request r;
    struct reply y;
    request_init(&r);
    r.prompt = prompt;
    r.n_prompt = N_PROMPT;
    r.max_tokens = N_NEW;
    r.logit_hash = true;
    assert_int_equal(session_generate(s, &r, &y, NULL), 0);
    assert_int_equal(y.n, N_NEW);
    return y;
}

static const struct timing_row *find(const struct timing_row *rows, int n, const char *section,
                                     const char *op) {
    for (int i = 0; i < n; i++)
        if (!strcmp(rows[i].section, section) && !strcmp(rows[i].op, op))
            return &rows[i];
    fail_msg("no row %s %s", section, op);
    return NULL;
}

static void test_rows(void **state) {
    (void)state;
    struct session *bare = open_session(false), *s = open_session(true);
    struct exec *x = model_exec(session_model(s));
    struct reply a = generate(bare), b = generate(s);
    int n;
    timing_rows(x, &n);
    assert_int_equal(n, 0); // off until switched on
    timing_switch(x, true);
    struct reply c = generate(s);
    timing_switch(x, false);
    assert_int_equal(a.hash, b.hash);
    assert_int_equal(a.hash, c.hash);
    const struct timing_row *rows = timing_rows(x, &n);
    // Four layers: three recurrent, one attention; a pass a token after the first.
    int64_t passes = N_NEW - 1;
    assert_int_equal(find(rows, n, "plain", "linear output")->calls, passes);
    assert_int_equal(find(rows, n, "prompt", "linear output")->calls, 1);
    assert_int_equal(find(rows, n, "plain", "norm_to_act")->calls, 9 * passes);
    assert_int_equal(find(rows, n, "plain", "gdn")->calls, 3 * passes);
    assert_int_equal(find(rows, n, "plain", "attend")->calls, passes);
    const struct timing_row *qkv = find(rows, n, "plain", "linear attn_q attn_k attn_v");
    const struct timing_row *down = find(rows, n, "plain", "linear ffn_down");
    assert_int_equal(qkv->kind, TIMING_ATTENTION);
    assert_int_equal(down->kind, TIMING_FEED_FORWARD);
    assert_int_equal(find(rows, n, "plain", "linear ssm_out")->kind, TIMING_RECURRENT);
    // Q8_0 weights of 512 x 256, with one row of activations and outputs.
    double weights = 512.0 * 256 / 32 * 34, call = down->bytes / (double)down->calls;
    assert_true(call > weights && call < 1.1 * weights);
    double ms = 0;
    for (int i = 0; i < n; i++) {
        assert_true(rows[i].calls > 0 && rows[i].bytes > 0 && rows[i].ms >= 0);
        ms += rows[i].ms;
    }
    assert_true(ms > 0 && ms <= c.total_ms);
    timing_clear(x);
    timing_rows(x, &n);
    assert_int_equal(n, 0);
    reply_fini(&a);
    reply_fini(&b);
    reply_fini(&c);
    session_close(s);
    session_close(bare);
}

static void test_copy_rate(void **state) {
    (void)state;
    struct exec *x;
    assert_int_equal(exec_create_cpu(&x, "auto", 1, NULL), 0);
    double rate = timing_copy_rate(x);
    assert_true(rate > 1e5 && rate < 1e10); // 0.1 GB/s to 10 TB/s, in bytes a millisecond
    exec_destroy(x);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_copy_rate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
